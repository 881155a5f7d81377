// Checks that the actions of a PyTorch schedule fit together: each computed once, in order, each
// message sent and received.
// Not: public; report/pytorch_pipeline.hpp is the public interface. Nor whether the ranks could
// wait for each other (schedules::pipeline).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/report/pytorch_csv.hpp"

namespace tawpipe::inline v0::detail {

/// Calls `visit(action, rank, cell)` for each action, row by row.
template <class Visit>
void for_each_action(const PytorchSchedule& schedule, Visit&& visit) {
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    for (std::size_t c = 0; c < schedule.ranks[r].size(); ++c) {
      for (const auto& action : schedule.ranks[r][c].actions) visit(action, static_cast<int>(r), c);
    }
  }
}

/// The result of checking a schedule.
struct PytorchShape {
  std::vector<int> rank_of_stage;
  std::int32_t microbatches = 0;
  /// [stage * microbatches + microbatch] whether a W follows the backward, which is then of the
  /// inputs only
  std::vector<bool> split;

  int stages() const { return static_cast<int>(rank_of_stage.size()); }
  std::size_t at(int stage, std::int32_t microbatch) const {
    return static_cast<std::size_t>(stage) * static_cast<std::size_t>(microbatches) + static_cast<std::size_t>(microbatch);
  }
  int rank_of(int stage) const { return rank_of_stage[static_cast<std::size_t>(stage)]; }
  /// Whether the output of `stage`'s forward (or backward) goes to another rank.
  bool sends(int stage, bool forward) const {
    const int to = forward ? stage + 1 : stage - 1;
    return to >= 0 && to < stages() && rank_of(to) != rank_of(stage);
  }
};

class PytorchCheck {
 public:
  PytorchCheck(const PytorchSchedule& schedule, std::string_view source) : schedule_{schedule}, source_{source} {}

  /// @throws InputError  naming line and cell of the first thing wrong.
  PytorchShape run() {
    place_stages();
    match_computations();
    match_messages();
    check_waits();
    check_sharding();
    return std::move(shape_);
  }

  /// A stage with UNSHARD is computed only between it and RESHARD; REDUCE_GRAD occurs once, after
  /// the last backward; a rank sums the gradients of one stage at a time. Holds whatever the order
  /// of messages. @throws InputError  as run()
  void check_sharding() const {
    struct Stage {
      bool sharded = false;
      bool gathered = false;
      bool reduced = false;
    };
    std::map<std::int32_t, Stage> stages;
    for_each_action(schedule_, [&](const PytorchAction& action, int, std::size_t) {
      if (action.op == PytorchOp::unshard) stages[action.stage].sharded = true;
    });
    std::optional<std::int32_t> sum;  // the stage whose gradients are summed and not waited for
    int row = 0;
    for_each_action(schedule_, [&](const PytorchAction& action, int rank, std::size_t cell) {
      if (rank != std::exchange(row, rank)) sum.reset();
      Stage& stage = stages[action.stage];
      const bool shut = !stage.gathered && (is_compute(action.op) ? stage.sharded : action.op == PytorchOp::reshard);
      if (shut) fail(rank, cell, action, "the stage is not unsharded here");
      const bool backward = is_compute(action.op) && action.op != PytorchOp::forward;
      if (backward && stage.reduced) {
        fail(rank, cell, action, "the stage's REDUCE_GRAD comes before it; it must come after the last backward");
      }
      if (action.op == PytorchOp::unshard && stage.gathered) fail(rank, cell, action, "the stage is unsharded already");
      if (action.op == PytorchOp::unshard) stage.gathered = true;
      if (action.op == PytorchOp::reshard) stage.gathered = false;
      if (action.op == PytorchOp::wait_reduce_gradients && std::exchange(sum, std::nullopt) != action.stage) {
        fail(rank, cell, action, concat("stage ", action.stage, "'s REDUCE_GRAD must be the last one before it"));
      }
      if (action.op != PytorchOp::reduce_gradients) return;
      if (stage.reduced) fail(rank, cell, action, "it stands twice");
      stage.reduced = true;
      sum = action.stage;
    });
  }

 private:
  /// An action and its cell; `order` counts the actions of its row.
  struct Placed {
    PytorchAction action;
    int rank;
    std::size_t cell;
    std::int64_t order;
  };
  /// The positions of a message's send and receive in their rows, or -1.
  struct Ends {
    std::int64_t sent = -1;
    std::int64_t received = -1;
  };

  [[noreturn]] void fail(int rank, std::size_t cell, const PytorchAction& action, std::string_view why) const {
    throw InputError(one_line(concat(source_, ": line ", rank + 1, ", cell ", cell + 1, ": ",
                                     quote(pytorch_text(action, schedule_.grammar)), ": ", why)));
  }
  [[noreturn]] void fail(const Placed& at, std::string_view why) const { fail(at.rank, at.cell, at.action, why); }
  [[noreturn]] void fail(std::string_view why) const { throw InputError(one_line(concat(source_, ": ", why))); }

  void place_stages() {
    std::map<std::int32_t, int> ranks;
    std::vector<bool> computes(schedule_.ranks.size());
    for_each_action(schedule_, [&](const PytorchAction& action, int rank, std::size_t cell) {
      if (!is_compute(action.op)) return;
      computes[static_cast<std::size_t>(rank)] = true;
      const auto [at, added] = ranks.try_emplace(action.stage, rank);
      if (!added && at->second != rank) {
        fail(rank, cell, action,
             concat("stage ", action.stage, " is computed in line ", at->second + 1, " too; a stage has one rank"));
      }
    });
    for (std::size_t r = 0; r < computes.size(); ++r) {
      if (!computes[r]) fail(concat("line ", r + 1, " computes nothing; each rank needs a stage"));
    }
    for (const auto& [stage, rank] : ranks) {
      if (stage != shape_.stages()) fail(concat("no line computes stage ", shape_.stages(), ", though there is a stage ", stage));
      shape_.rank_of_stage.push_back(rank);
    }
    for_each_action(schedule_, [&](const PytorchAction& action, int rank, std::size_t cell) {
      if (action.stage >= shape_.stages()) fail(rank, cell, action, concat("there are only ", shape_.stages(), " stages"));
      if (shape_.rank_of(action.stage) != rank) {
        fail(rank, cell, action, concat("stage ", action.stage, " is computed in line ", shape_.rank_of(action.stage) + 1));
      }
    });
  }

  /// Each stage and microbatch has one forward, and then one backward, or one of the inputs and one
  /// of the weights.
  void match_computations() {
    std::int64_t order = 0;
    for_each_action(schedule_, [&](const PytorchAction& action, int rank, std::size_t cell) {
      if (is_compute(action.op)) computed_.push_back({action, rank, cell, order});
      shape_.microbatches = std::max(shape_.microbatches, is_compute(action.op) ? action.microbatch + 1 : 0);
      ++order;
    });
    const auto key = [](const Placed& at) { return std::tuple{at.action.stage, at.action.microbatch, at.order}; };
    std::sort(computed_.begin(), computed_.end(), [&](const Placed& a, const Placed& b) { return key(a) < key(b); });
    std::size_t next = 0;
    for (std::int32_t s = 0; s < shape_.stages(); ++s) {
      for (std::int32_t m = 0; m < shape_.microbatches; ++m) {
        std::size_t end = next;
        while (end < computed_.size() && computed_[end].action.stage == s && computed_[end].action.microbatch == m) ++end;
        match_one(s, m, next, end);
        next = end;
      }
    }
  }

  void match_one(std::int32_t stage, std::int32_t microbatch, std::size_t begin, std::size_t end) {
    const auto missing = [&](PytorchOp op) {
      fail(concat("line ", shape_.rank_of(stage) + 1, " lacks ", quote(pytorch_text({op, stage, microbatch}, schedule_.grammar)),
                  "; there are ", shape_.stages(), " stages and ", shape_.microbatches, " microbatches"));
    };
    if (begin == end) missing(PytorchOp::forward);
    if (computed_[begin].action.op != PytorchOp::forward) fail(computed_[begin], "its forward does not stand before it");
    if (begin + 1 == end) missing(PytorchOp::backward);
    const Placed& backward = computed_[begin + 1];
    if (backward.action.op == PytorchOp::forward) fail(backward, "it stands twice");
    if (backward.action.op == PytorchOp::backward_weight) fail(backward, "no backward of the inputs stands before it");
    const bool split = begin + 2 < end;
    if (!split && backward.action.op == PytorchOp::backward_input) missing(PytorchOp::backward_weight);
    if (split && computed_[begin + 2].action.op != PytorchOp::backward_weight) fail(computed_[begin + 2], "it stands twice");
    if (begin + 3 < end) fail(computed_[begin + 3], "it stands twice");
    shape_.split.push_back(split);
  }

  /// If there are sends or receives: each message that crosses ranks is sent after its producer and
  /// received before its consumer, once, and two ranks send and receive in the same order. If there
  /// are none, PyTorch adds them when it loads the file.
  void match_messages() {
    std::int64_t order = 0;
    const std::size_t pairs = shape_.split.size();
    std::array<std::vector<Ends>, 2> messages;  // [forward] [producing stage, microbatch]
    bool any = false;
    for_each_action(schedule_, [&](const PytorchAction& action, int rank, std::size_t cell) {
      const std::int64_t here = order++;
      if (!is_transfer(action.op)) return;
      if (!any) messages = {std::vector<Ends>(pairs), std::vector<Ends>(pairs)};
      any = true;
      const bool forward = action.op == PytorchOp::send_forward || action.op == PytorchOp::receive_forward;
      const bool send = action.op == PytorchOp::send_forward || action.op == PytorchOp::send_backward;
      const int from = send ? action.stage : forward ? action.stage - 1 : action.stage + 1;
      if (from < 0 || from >= shape_.stages() || !shape_.sends(from, forward)) {
        fail(rank, cell, action,
             send ? "what it makes stays on this rank, so that nothing is sent" : "what it needs is made on this rank, or given");
      }
      if (action.microbatch >= shape_.microbatches) {
        fail(rank, cell, action, concat("there are only ", shape_.microbatches, " microbatches"));
      }
      Ends& ends = messages[forward ? 1 : 0][shape_.at(from, action.microbatch)];
      std::int64_t& end = send ? ends.sent : ends.received;
      if (end >= 0) fail(rank, cell, action, "it stands twice");
      end = here;
      const int to = forward ? from + 1 : from - 1;
      const std::pair<int, int> peers{shape_.rank_of(from), shape_.rank_of(to)};
      (send ? sent_ : received_)[peers].push_back({action, rank, cell, here});
    });
    if (!any) return;
    for (const Placed& at : computed_) check_message(at, messages);
    for (const auto& [peers, sent] : sent_) check_order(sent, received_[peers]);
  }

  void check_message(const Placed& at, const std::array<std::vector<Ends>, 2>& messages) const {
    if (at.action.op == PytorchOp::backward_weight) return;
    const bool forward = at.action.op == PytorchOp::forward;
    const auto& all = messages[forward ? 1 : 0];
    const auto [stage, m] = std::pair{at.action.stage, at.action.microbatch};
    if (shape_.sends(stage, forward)) {
      const PytorchAction send{forward ? PytorchOp::send_forward : PytorchOp::send_backward, stage, m};
      const std::int64_t sent = all[shape_.at(stage, m)].sent;
      if (sent < 0) fail(at, concat("line ", at.rank + 1, " lacks ", quote(pytorch_text(send)), ", which sends its output"));
      if (sent < at.order) fail(at, concat(quote(pytorch_text(send)), " stands before it, though it sends what this makes"));
    }
    const int from = forward ? stage - 1 : stage + 1;
    if (from < 0 || from >= shape_.stages() || !shape_.sends(from, forward)) return;
    const PytorchAction receive{forward ? PytorchOp::receive_forward : PytorchOp::receive_backward, stage, m};
    const std::int64_t received = all[shape_.at(from, m)].received;
    if (received < 0)
      fail(at, concat("line ", at.rank + 1, " lacks ", quote(pytorch_text(receive)), ", which brings what it needs"));
    if (received > at.order) fail(at, concat(quote(pytorch_text(receive)), " comes after it, although this needs it"));
  }

  /// Messages from one rank to another arrive in the order in which they are sent.
  void check_order(const std::vector<Placed>& sent, const std::vector<Placed>& received) const {
    for (std::size_t i = 0; i < sent.size() && i < received.size(); ++i) {
      const PytorchAction& to = received[i].action;
      const bool forward = to.op == PytorchOp::receive_forward;
      const PytorchAction expected{forward ? PytorchOp::send_forward : PytorchOp::send_backward,
                                   forward ? to.stage - 1 : to.stage + 1, to.microbatch};
      if (sent[i].action == expected) continue;
      fail(received[i], concat("line ", sent[i].rank + 1, " sends ", quote(pytorch_text(sent[i].action)),
                               " here instead; between two ranks, sends and receives stand in one order"));
    }
  }

  /// If there are waits, each send has one after it.
  void check_waits() const {
    std::map<std::tuple<PytorchOp, std::int32_t, std::int32_t>, std::optional<Placed>> sends;  // sends without a wait so far
    bool any = false;
    for_each_action(schedule_, [&](const PytorchAction& action, int rank, std::size_t cell) {
      const Placed here{action, rank, cell, 0};
      const bool forward = action.op == PytorchOp::send_forward || action.op == PytorchOp::wait_send_forward;
      const std::tuple key{forward ? PytorchOp::send_forward : PytorchOp::send_backward, action.stage, action.microbatch};
      if (action.op == std::get<0>(key)) sends[key] = here;
      if (!is_send_wait(action.op)) return;
      any = true;
      const auto send = sends.find(key);
      if (send == sends.end()) fail(here, "the send that it waits for does not stand before it");
      if (!std::exchange(send->second, std::nullopt)) fail(here, "it stands twice");
    });
    for (const auto& [key, send] : sends) {
      if (any && send) fail(*send, "no WAIT_SEND stands after it, though other sends have one");
    }
  }

  const PytorchSchedule& schedule_;
  std::string_view source_;
  PytorchShape shape_;
  std::vector<Placed> computed_;                                 ///< by stage, microbatch and order
  std::map<std::pair<int, int>, std::vector<Placed>> sent_;      ///< [from, to] in order
  std::map<std::pair<int, int>, std::vector<Placed>> received_;  ///< [from, to] in order
};

}  // namespace tawpipe::detail
