// PyTorch's text form of a pipeline schedule (torch.distributed.pipelining): a row a rank, a cell
// an action.
// Not: the meaning of the actions together (report/pytorch_pipeline.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/csv.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::inline v0 {

/// The kinds of actions of PyTorch. Sends and receives are named after the stage whose rank carries
/// them out: `1SEND_F3` sends the output of stage 1 for microbatch 3, `2RECV_F3` receives it for
/// stage 2.
enum class PytorchOp : std::uint8_t {
  forward,  ///< F
  /// B: the whole backward; with a W of the same stage and microbatch, only its inputs (older
  /// files)
  backward,
  backward_input,    ///< I
  backward_weight,   ///< W
  send_forward,      ///< SEND_F
  receive_forward,   ///< RECV_F
  send_backward,     ///< SEND_B
  receive_backward,  ///< RECV_B
  /// WAIT_SEND_F: until the output of SEND_F has been sent (PyTorch 2.15 on)
  wait_send_forward,
  wait_send_backward,  ///< WAIT_SEND_B
  unshard,             ///< UNSHARD: gather the stage's sharded weights; without a microbatch
  reshard,             ///< RESHARD: release them; without a microbatch
  /// REDUCE_GRAD: sum the stage's gradients over its replicas; without a microbatch
  reduce_gradients,
  /// WAIT_REDUCE_GRAD: until they are summed; without a microbatch (PyTorch 2.15 on)
  wait_reduce_gradients,
};
inline constexpr int pytorch_ops = 14;

/// The op in PyTorch's spelling, e.g. "SEND_F".
constexpr std::string_view name(PytorchOp op) {
  constexpr std::string_view names[pytorch_ops] = {
      "F",      "B",           "I",           "W",       "SEND_F",  "RECV_F",      "SEND_B",
      "RECV_B", "WAIT_SEND_F", "WAIT_SEND_B", "UNSHARD", "RESHARD", "REDUCE_GRAD", "WAIT_REDUCE_GRAD"};
  return names[static_cast<int>(op)];
}

/// Computes something: F, B, I or W.
constexpr bool is_compute(PytorchOp op) { return op <= PytorchOp::backward_weight; }
/// Sends or receives data between ranks: SEND_F, RECV_F, SEND_B or RECV_B.
constexpr bool is_transfer(PytorchOp op) { return op >= PytorchOp::send_forward && op <= PytorchOp::receive_backward; }
/// Waits for a send: WAIT_SEND_F or WAIT_SEND_B.
constexpr bool is_send_wait(PytorchOp op) { return op == PytorchOp::wait_send_forward || op == PytorchOp::wait_send_backward; }
/// Has a microbatch: everything except UNSHARD, RESHARD, REDUCE_GRAD and WAIT_REDUCE_GRAD.
constexpr bool has_microbatch(PytorchOp op) { return op < PytorchOp::unshard; }

/// One action of one stage.
struct PytorchAction {
  PytorchOp op = PytorchOp::forward;
  std::int32_t stage = 0;
  std::int32_t microbatch = -1;  ///< -1 if the op has none

  bool operator==(const PytorchAction&) const = default;
};

/// One cell: nothing (idle), one action, a forward and a backward that may overlap,
/// `(0F7;7B3)OVERLAP_F_B`, or sends and receives that are launched as one batch,
/// `(0SEND_F0;2RECV_F0)BATCH_P2P`.
struct PytorchCell {
  std::vector<PytorchAction> actions;

  bool operator==(const PytorchCell&) const = default;
};

/// The spelling of an action.
enum class PytorchGrammar : std::uint8_t {
  stage_first,  ///< `1F0`: stage, op, microbatch
  op_first,     ///< `F0_s1`, in the first releases: op, microbatch, stage; computations only
};

/// A schedule in PyTorch's form: each rank's cells in order.
struct PytorchSchedule {
  PytorchGrammar grammar = PytorchGrammar::stage_first;
  std::vector<std::vector<PytorchCell>> ranks;  ///< [rank, step]

  bool operator==(const PytorchSchedule&) const = default;
};

namespace detail {

/// Reads a text row by row. Anything that PyTorch would not write is refused.
class PytorchCsvReader {
 public:
  PytorchCsvReader(std::string_view text, std::string_view source) : rows_{text, source} {}

  PytorchSchedule read() {
    while (rows_.next()) {
      if (rows_.line().empty()) throw rows_.fail(concat("it is empty; expected the actions of rank ", rows_.number() - 1));
      auto& cells = schedule_.ranks.emplace_back();
      for (column_ = 0; column_ < rows_.cells().size(); ++column_) cells.push_back(read_cell(trimmed(rows_.cells()[column_])));
    }
    if (schedule_.ranks.empty()) throw rows_.fail("the file is empty; expected a row for each rank");
    return std::move(schedule_);
  }

 private:
  PytorchCell read_cell(std::string_view cell) {
    PytorchCell read;
    if (cell.empty()) return read;
    if (cell.front() != '(') {
      read.actions.push_back(read_action(cell, cell));
      return read;
    }
    const auto close = cell.find(')');
    if (close == std::string_view::npos) fail(cell, "the bracket does not close; expected (F;B)OVERLAP_F_B");
    const bool batch = cell.substr(close + 1) == "BATCH_P2P";
    if (!batch && cell.substr(close + 1) != "OVERLAP_F_B") {
      fail(cell, concat("expected OVERLAP_F_B or BATCH_P2P after the bracket, not ", shown(cell.substr(close + 1))));
    }
    if (grammar_known_ && schedule_.grammar == PytorchGrammar::op_first) {
      fail(cell, "the older form, F0_s1, has no brackets");
    }
    std::string_view inside = cell.substr(1, close - 1);
    while (true) {
      const auto semicolon = inside.find(';');
      read.actions.push_back(read_action(trimmed(inside.substr(0, semicolon)), cell));
      if (semicolon == std::string_view::npos) break;
      inside.remove_prefix(semicolon + 1);
    }
    if (batch) {
      for (const PytorchAction& action : read.actions) {
        if (is_transfer(action.op)) continue;
        fail(cell, "BATCH_P2P holds sends and receives only, such as (0SEND_F0;2RECV_F0)BATCH_P2P");
      }
      return read;
    }
    const auto is_forward = [](const PytorchAction& action) { return action.op == PytorchOp::forward; };
    if (read.actions.size() != 2 || !is_compute(read.actions[0].op) || !is_compute(read.actions[1].op) ||
        is_forward(read.actions[0]) == is_forward(read.actions[1])) {
      fail(cell, "OVERLAP_F_B overlaps one forward with one backward, such as (0F7;7B3)OVERLAP_F_B");
    }
    return read;
  }

  /// @param cell  the text for errors
  PytorchAction read_action(std::string_view text, std::string_view cell) {
    const bool stage_first = !text.empty() && is_digit(text.front());
    if (!stage_first && (text.empty() || cell.front() == '(' || !looks_op_first(text))) {
      fail(cell, "expected stage, operation and microbatch, such as 2F0");
    }
    const auto grammar = stage_first ? PytorchGrammar::stage_first : PytorchGrammar::op_first;
    if (grammar_known_ && grammar != schedule_.grammar) fail(cell, "one file has either the form 1F0 or F0_s1, not both");
    grammar_known_ = true;
    schedule_.grammar = grammar;
    return stage_first ? read_stage_first(text, cell) : read_op_first(text, cell);
  }

  /// F, B or W, and a digit: the first releases had no I.
  static bool looks_op_first(std::string_view text) {
    return text.size() > 1 && std::string_view{"FBW"}.find(text.front()) != std::string_view::npos && is_digit(text[1]);
  }

  PytorchAction read_stage_first(std::string_view text, std::string_view cell) {
    PytorchAction action;
    action.stage = number(text, cell, "stage", max_stage);
    const auto end = std::min(text.find_first_of("0123456789"), text.size());
    action.op = find_op(text.substr(0, end), cell);
    text.remove_prefix(end);
    if (has_microbatch(action.op)) {
      if (text.empty()) fail(cell, concat("the microbatch is missing; expected a number after ", name(action.op)));
      action.microbatch = number(text, cell, "microbatch", max_microbatch);
    }
    if (!text.empty()) fail(cell, concat("nothing may follow the ", has_microbatch(action.op) ? "microbatch" : "operation"));
    return action;
  }

  PytorchAction read_op_first(std::string_view text, std::string_view cell) {
    PytorchAction action;
    action.op = find_op(text.substr(0, 1), cell);
    text.remove_prefix(1);
    action.microbatch = number(text, cell, "microbatch", max_microbatch);
    if (!text.starts_with("_s")) fail(cell, "expected operation, microbatch and stage, such as F0_s1");
    text.remove_prefix(2);
    action.stage = number(text, cell, "stage", max_stage);
    if (!text.empty()) fail(cell, "nothing may follow the stage");
    return action;
  }

  PytorchOp find_op(std::string_view text, std::string_view cell) const {
    std::vector<std::string> known;
    for (int i = 0; i < pytorch_ops; ++i) {
      known.emplace_back(name(static_cast<PytorchOp>(i)));
      if (text == known.back()) return static_cast<PytorchOp>(i);
    }
    fail(cell, unknown_name("operation", text.substr(0, 20), known));
  }

  /// Takes the digits that `text` begins with.
  std::int32_t number(std::string_view& text, std::string_view cell, std::string_view what, std::int32_t most) const {
    if (text.empty() || !is_digit(text.front())) fail(cell, concat("the ", what, " must be a number"));
    const auto value = take_number<std::int32_t>(text);
    if (!value || *value > most) fail(cell, concat("the ", what, " is too large; the most is ", most));
    return *value;
  }

  [[noreturn]] void fail(std::string_view cell, std::string_view why) const {
    throw rows_.fail(column_, concat(shown(cell), ": ", why));
  }
  static std::string shown(std::string_view text) { return CsvReader::shown(text); }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

  static constexpr std::int32_t max_stage = (1 << 20) - 1;
  static constexpr std::int32_t max_microbatch = std::numeric_limits<std::int32_t>::max() - 1;

  CsvReader rows_;
  PytorchSchedule schedule_;
  bool grammar_known_ = false;
  std::size_t column_ = 0;
};

}  // namespace detail

/// Reads PyTorch's CSV in either grammar, with communication or without; blank cells are idle. A
/// row is a rank.
///
/// pipeline_program() checks the actions together (each computed once, in an order that can run).
/// @param source  the file's name, for messages
/// @throws InputError  in one line, naming line and column, both from 1.
inline PytorchSchedule parse_pytorch_csv(std::string_view text, std::string_view source = "PyTorch CSV") {
  return detail::PytorchCsvReader{text, source}.read();
}

/// The text of an action's cell: "1F0", "3SEND_B2", "0UNSHARD"; or "F0_s1".
inline std::string pytorch_text(const PytorchAction& action, PytorchGrammar grammar = PytorchGrammar::stage_first) {
  if (grammar == PytorchGrammar::op_first) return concat(name(action.op), action.microbatch, "_s", action.stage);
  std::string text = concat(action.stage, name(action.op));
  if (has_microbatch(action.op)) text += std::to_string(action.microbatch);
  return text;
}

/// Writes the format that parse_pytorch_csv() reads; lines end in "\n", and the rows keep their
/// lengths.
/// @throws InputError  if the older grammar, which has only computations, is requested for anything
/// else, or if the schedule is empty.
inline std::string write_pytorch_csv(const PytorchSchedule& schedule) {
  const bool op_first = schedule.grammar == PytorchGrammar::op_first;
  std::string out;
  for (const auto& cells : schedule.ranks) {
    if (cells.empty() || (cells.size() == 1 && cells.front().actions.empty())) {
      throw InputError(concat("rank ", &cells - schedule.ranks.data(), " has no actions; PyTorch's CSV has no row for it"));
    }
    for (const auto& cell : cells) {
      if (&cell != &cells.front()) out += ',';
      if (op_first && (cell.actions.size() > 1 || (!cell.actions.empty() && !is_compute(cell.actions[0].op)))) {
        throw InputError(concat("the older form of PyTorch's CSV, F0_s1, cannot say ", pytorch_text(cell.actions[0]),
                                cell.actions.size() > 1 ? " with another in one cell" : ""));
      }
      if (cell.actions.size() > 1) out += '(';
      for (const auto& action : cell.actions) {
        if (&action != &cell.actions.front()) out += ';';
        out += pytorch_text(action, schedule.grammar);
      }
      if (cell.actions.size() > 1) out += is_transfer(cell.actions[0].op) ? ")BATCH_P2P" : ")OVERLAP_F_B";
    }
    out += '\n';
  }
  return out;
}

}  // namespace tawpipe
