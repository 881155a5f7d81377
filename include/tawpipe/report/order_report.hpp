// Whether an order of calls ends under every timing, and a fix if not, as a page and as JSON
// (docs/hangs.md).
// Not: the proof (verify/prove.hpp) nor the search for a fix (verify/mend.hpp).
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/report/comm_program_json.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/report/pytorch_calls.hpp"
#include "tawpipe/verify/mend.hpp"

namespace tawpipe::inline v0 {

/// The result of checking an order.
struct OrderReport {
  bool right = false;  ///< it ends, and each message reaches the right receive
  std::string text;
  nlohmann::ordered_json json;
  std::string mended;  ///< the order as a file, fixed if a fix was found; empty if not requested
};

namespace detail {

/// The place of a call in its text: the cell of a row, or only the rank.
inline std::string place_of(const CommProgram& program, CallRef call) {
  const std::int32_t item = call_at(program, call).item;
  return item < 0 ? fmt::format("rank {}", call.rank) : fmt::format("rank {}, cell {}", call.rank, item + 1);
}

inline std::vector<std::string> texts_of(const CommProgram& program, const std::vector<CallRef>& calls) {
  std::vector<std::string> all;
  for (const CallRef& call : calls) all.push_back(call_text(program, call));
  return all;
}

/// "4096 bytes", or the sizes of each pair.
inline std::string size_text(const CommCall& call) {
  if (call.bytes_to.empty() && call.bytes_from.empty()) return fmt::format("{} bytes", call.bytes);
  std::string text;
  const auto add = [&](std::string_view what, const std::vector<std::int64_t>& sizes) {
    for (std::size_t i = 0; i < sizes.size(); ++i) text += fmt::format("{}{}", i == 0 ? what : ", ", sizes[i]);
  };
  add("bytes to each rank ", call.bytes_to);
  add(text.empty() ? "bytes from each rank " : ", from each ", call.bytes_from);
  return text;
}

inline OrderReport order_report(const CommProgram& program, const HangVerdict& verdict,
                                const std::optional<std::string>& mended) {
  OrderReport report;
  report.right = verdict.is_right();
  nlohmann::ordered_json& json = report.json;
  json["ranks"] = program.ranks.size();
  json["calls"] = program.calls();
  json["verdict"] = verdict.ends ? "ends" : "deadlock";
  json["cycle"] = nlohmann::ordered_json::array();
  json["missing"] = texts_of(program, verdict.missing);
  json["differing"] = nlohmann::ordered_json::array();
  json["crossed_data"] = nlohmann::ordered_json::array();
  json["mend"] = mended ? nlohmann::ordered_json(*mended) : nlohmann::ordered_json{};

  std::string& text = report.text;
  text = fmt::format("{} calls on {} ranks\n", format_count(static_cast<std::int64_t>(program.calls())), program.ranks.size());
  text += verdict.ends ? "ends in every timing\n" : "hangs\n";
  if (!verdict.circle.empty()) text += "each waits for the next, the last for the first:\n";
  for (const auto& calls : verdict.circle) {
    json["cycle"].push_back(unit_text(program, calls));
    text += fmt::format("  {:<18} {}\n", place_of(program, calls[0]), one_line(unit_text(program, calls)));
  }
  for (const CallRef& call : verdict.missing) {
    text += fmt::format("no rank answers {} ({})\n", one_line(call_text(program, call)), place_of(program, call));
  }
  for (const auto& calls : verdict.differing) {
    json["differing"].push_back(texts_of(program, calls));
    text += "these calls meet and differ in kind or size:\n";
    for (const CallRef& call : calls) {
      const CommCall& one = call_at(program, call);
      text += fmt::format("  {:<18} {} {}, {}\n", place_of(program, call), one_line(one.id), name(one.op), size_text(one));
    }
    const bool even = std::all_of(calls.begin(), calls.end(), [&](const CallRef& call) {
      const CommCall& one = call_at(program, call);
      return one.op == CommOp::all_to_all && one.bytes_to.empty() && one.bytes_from.empty();
    });
    if (even) text += "  (an all_to_all of uneven sizes gives bytes_to and bytes_from, a size for each rank)\n";
  }
  constexpr std::size_t max_crossed = 8;
  for (std::size_t i = 0; i < verdict.crossed.size(); ++i) {
    const auto& [send, receive] = verdict.crossed[i];
    const bool meeting = is_meeting(call_at(program, send).op);
    if (meeting) {
      json["crossed_data"].push_back({{"calls", texts_of(program, {send, receive})}});
    } else {
      json["crossed_data"].push_back({{"send", call_text(program, send)}, {"receive", call_text(program, receive)}});
    }
    if (i == max_crossed) text += fmt::format("and {} more\n", verdict.crossed.size() - i);
    if (i >= max_crossed) continue;
    text += fmt::format(
        "{} {} {}\n", one_line(call_text(program, send)), meeting ? "meets" : "is received by",
        one_line(call_text(program, receive)) + (meeting ? ", which carries other data" : ", which expects other data"));
  }
  if (!report.right) text += mended ? fmt::format("mend: {}\n", one_line(*mended)) : "no mend was found\n";
  return report;
}

template <class Order, class Write>
OrderReport prove_and_mend(const Order& order, bool with_mended, const Write& write) {
  const HangVerdict verdict = prove(order.program());
  const std::optional<Mend<Order>> found = mend(order, verdict);
  OrderReport report = order_report(order.program(), verdict, found ? std::optional{found->text} : std::nullopt);
  if (with_mended) report.mended = write(found ? found->order : order);
  return report;
}

}  // namespace detail

/// Checks the calls of ranks and searches for a fix. @param with_mended  whether to return the
/// order as a file too
inline OrderReport report_order(const CommProgram& program, bool with_mended = false) {
  return detail::prove_and_mend(ProgramOrder{program}, with_mended,
                                [](const ProgramOrder& order) { return write_comm_program(order.program()); });
}

/// The same for PyTorch's rows. If they have only computations, sends and receives are added as
/// PyTorch adds them.
/// @throws InputError  for rows that PyTorch would refuse; `source` names them
inline OrderReport report_order(const PytorchSchedule& rows, const PytorchCallOptions& options = {},
                                const std::string& source = "PyTorch CSV", bool with_mended = false) {
  PytorchSchedule whole = has_transfers(rows) ? rows : add_communication(rows, source);
  return detail::prove_and_mend(PytorchOrder{std::move(whole), options, source}, with_mended,
                                [](const PytorchOrder& order) { return write_pytorch_csv(order.schedule()); });
}

}  // namespace tawpipe
