// PyTorch's pipeline rows as a program of calls: each send and receive at its place, as PyTorch's
// runtime launches them.
// Not: whether it ends (verify/prove.hpp). The rules and their sources: docs/hangs.md.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/report/detail/pytorch_check.hpp"
#include "tawpipe/report/pytorch_csv.hpp"
#include "tawpipe/report/pytorch_pipeline.hpp"
#include "tawpipe/verify/comm_program.hpp"
#include "tawpipe/verify/mend.hpp"

namespace tawpipe::inline v0 {

/// The backend for the sends and receives of a pipeline.
enum class CallSemantics : std::uint8_t {
  nccl,  ///< a call holds its stream until its counterpart runs; computations wait on events
  /// sends and receives are posted and block nothing; the host waits for the messages it needs
  gloo,
  mpi,  ///< the same with requests of MPI_Isend and MPI_Irecv
};
inline constexpr int call_semantics = 3;
constexpr std::string_view name(CallSemantics semantics) {
  constexpr std::string_view names[call_semantics] = {"nccl", "gloo", "mpi"};
  return names[static_cast<int>(semantics)];
}

/// How many communicators, each with a stream of its own, the sends and receives of a pipeline use.
enum class CallCommunicators : std::uint8_t {
  one,        ///< the pipeline's group, for everything: PyTorch's default
  direction,  ///< forwards and backwards separately
  pair,       ///< each directed pair of ranks
};
inline constexpr int call_communicators = 3;
constexpr std::string_view name(CallCommunicators communicators) {
  constexpr std::string_view names[call_communicators] = {"one", "direction", "pair"};
  return names[static_cast<int>(communicators)];
}

struct PytorchCallOptions {
  CallSemantics semantics = CallSemantics::nccl;
  CallCommunicators communicators = CallCommunicators::one;
};

namespace detail {

/// Turns rows with sends and receives into calls.
class PytorchCalls {
 public:
  PytorchCalls(const PytorchSchedule& schedule, const PytorchCallOptions& options, std::string_view source)
      : schedule_{schedule}, options_{options}, source_{source} {}

  CommProgram build() {
    PytorchCheck{schedule_, source_}.check_sharding();
    program_.name = std::string{source_};
    program_.ranks.resize(schedule_.ranks.size());
    compute_stream_ = stream("compute");
    for_each_action(schedule_, [&](const PytorchAction& action, int rank, std::size_t cell) {
      if (!is_compute(action.op)) return;
      const auto [at, added] = rank_of_stage_.try_emplace(action.stage, rank);
      if (added || at->second == rank) return;
      fail(rank, cell, action, concat("stage ", action.stage, " is computed in line ", at->second + 1, " too"));
    });
    for (std::size_t r = 0; r < schedule_.ranks.size(); ++r) add_rank(static_cast<int>(r));
    return std::move(program_);
  }

 private:
  using Key = std::tuple<PytorchOp, std::int32_t, std::int32_t>;  // op, stage, microbatch

  [[noreturn]] void fail(int rank, std::size_t cell, const PytorchAction& action, std::string_view why) const {
    throw InputError(one_line(concat(source_, ": line ", rank + 1, ", cell ", cell + 1, ": ",
                                     quote(pytorch_text(action, schedule_.grammar)), ": ", why)));
  }

  std::int32_t stream(const std::string& name) {
    const auto [at, added] = streams_.try_emplace(name, static_cast<std::int32_t>(streams_.size()));
    if (added) program_.streams.push_back(name);
    return at->second;
  }
  std::int32_t communicator(const std::string& name, std::vector<std::int32_t> ranks) {
    const auto [at, added] = communicators_.try_emplace(name, static_cast<std::int32_t>(communicators_.size()));
    if (added) program_.communicators.push_back({name, std::move(ranks)});
    return at->second;
  }
  /// The rank of a stage; -1 if none computes it.
  int rank_of(std::int32_t stage) const {
    const auto found = rank_of_stage_.find(stage);
    return found == rank_of_stage_.end() ? -1 : found->second;
  }

  void add_rank(int rank) {
    auto& calls = program_.ranks[static_cast<std::size_t>(rank)];
    received_.clear();
    computed_.clear();
    std::int32_t last = -1;  // computation
    sent_.clear();
    const auto& row = schedule_.ranks[static_cast<std::size_t>(rank)];
    for (std::size_t c = 0; c < row.size(); ++c) {
      std::vector<std::pair<CommCall, PytorchAction>> batch;
      for (const PytorchAction& action : row[c].actions) {
        if (is_transfer(action.op)) {
          batch.emplace_back(transfer(rank, c, action, last), action);
        } else if (is_compute(action.op)) {
          add_computation(rank, c, action, calls);
          last = static_cast<std::int32_t>(calls.size() - 1);
        } else if (is_send_wait(action.op)) {
          calls.push_back(send_wait(rank, c, action));
          last = static_cast<std::int32_t>(calls.size() - 1);
        }
      }
      // Calls of a batch on one stream are one group.
      std::stable_sort(batch.begin(), batch.end(), [](const auto& a, const auto& b) { return a.first.stream < b.first.stream; });
      for (auto& [call, action] : batch) {
        if (batch.size() > 1 && call.stream >= 0) {
          const bool first = calls.empty() || calls.back().item != call.item || calls.back().stream != call.stream;
          groups_ += first ? 1 : 0;
          call.group = groups_;
        }
        (call.op == CommOp::send ? sent_ : received_)[{action.op, action.stage, action.microbatch}].push_back(
            static_cast<std::int32_t>(calls.size()));
        calls.push_back(std::move(call));
      }
    }
    if (options_.semantics == CallSemantics::nccl || sent_.empty()) return;
    std::vector<std::int32_t> rest;
    for (const auto& [key, sends] : sent_) rest.insert(rest.end(), sends.begin(), sends.end());
    std::sort(rest.begin(), rest.end());
    calls.push_back(host_wait("wait for all sends", std::move(rest)));
  }

  CommCall transfer(int rank, std::size_t cell, const PytorchAction& action, std::int32_t last) {
    const bool forward = action.op == PytorchOp::send_forward || action.op == PytorchOp::receive_forward;
    const bool sends = action.op == PytorchOp::send_forward || action.op == PytorchOp::send_backward;
    const std::int32_t other = action.stage + (forward == sends ? 1 : -1);
    if (rank_of(action.stage) != rank) fail(rank, cell, action, "its stage is not computed in this line");
    const int peer = rank_of(other);
    if (peer < 0) fail(rank, cell, action, concat("no line computes stage ", other, ", at its other end"));
    if (peer == rank) fail(rank, cell, action, concat("stage ", other, " is on the same rank; nothing is sent"));
    CommCall call;
    call.id = pytorch_text(action, schedule_.grammar);
    call.op = sends ? CommOp::send : CommOp::receive;
    call.peer = peer;
    call.item = static_cast<std::int32_t>(cell);
    call.data = concat(forward ? "F" : "B", sends ? action.stage : other, ".", action.microbatch);
    call.communicator = communicator_of(sends ? rank : peer, sends ? peer : rank, forward);
    if (options_.semantics == CallSemantics::nccl) {
      call.stream = stream(program_.communicators[static_cast<std::size_t>(call.communicator)].name);
      if (last >= 0) call.waits_for.push_back(last);  // the current stream
    }
    const PytorchOp makes = forward ? PytorchOp::forward : PytorchOp::backward;
    if (sends && !computed_.contains({makes, action.stage, action.microbatch})) {
      fail(rank, cell, action, "what it sends is not computed before it; PyTorch refuses this order");
    }
    return call;
  }

  std::int32_t communicator_of(int from, int to, bool forward) {
    if (options_.communicators == CallCommunicators::pair) return communicator(concat("pp_", from, "_", to), {from, to});
    std::vector<std::int32_t> all;
    for (std::size_t r = 0; r < schedule_.ranks.size(); ++r) all.push_back(static_cast<std::int32_t>(r));
    const bool one = options_.communicators == CallCommunicators::one;
    return communicator(one ? "pp" : forward ? "pp_forward" : "pp_backward", std::move(all));
  }

  CommCall host_wait(std::string id, std::vector<std::int32_t> calls) const {
    CommCall wait;
    wait.id = std::move(id);
    wait.op = CommOp::wait;
    wait.waits_for = std::move(calls);
    wait.blocks_host = true;
    return wait;
  }

  /// Under NCCL the current stream waits for the send, otherwise the host does.
  CommCall send_wait(int rank, std::size_t cell, const PytorchAction& action) {
    const bool forward = action.op == PytorchOp::wait_send_forward;
    const auto send =
        sent_.extract(Key{forward ? PytorchOp::send_forward : PytorchOp::send_backward, action.stage, action.microbatch});
    if (send.empty()) fail(rank, cell, action, "the send that it waits for does not stand before it; PyTorch refuses this order");
    CommCall wait = host_wait(pytorch_text(action, schedule_.grammar), send.mapped());
    wait.item = static_cast<std::int32_t>(cell);
    if (options_.semantics == CallSemantics::nccl) {
      wait.stream = compute_stream_;
      wait.blocks_host = false;
    }
    return wait;
  }

  void add_computation(int rank, std::size_t cell, const PytorchAction& action, std::vector<CommCall>& calls) {
    CommCall call;
    call.id = pytorch_text(action, schedule_.grammar);
    call.stream = compute_stream_;
    call.item = static_cast<std::int32_t>(cell);
    if (action.op != PytorchOp::backward_weight) call.waits_for = needs(rank, cell, action);
    if (options_.semantics != CallSemantics::nccl) {
      if (!call.waits_for.empty()) calls.push_back(host_wait(concat("wait for ", call.id), std::exchange(call.waits_for, {})));
      call.blocks_host = true;
    }
    calls.push_back(std::move(call));
  }

  /// The receives that a forward or backward waits for. Inputs from its own rank must come before
  /// it.
  std::vector<std::int32_t> needs(int rank, std::size_t cell, const PytorchAction& action) {
    const bool forward = action.op == PytorchOp::forward;
    const auto made = [forward](std::int32_t stage, std::int32_t microbatch) {
      return Key{forward ? PytorchOp::forward : PytorchOp::backward, stage, microbatch};
    };
    const std::int32_t stage = forward ? action.stage - 1 : action.stage + 1;
    const auto lacks = [&](const PytorchAction& missing) {
      fail(rank, cell, action, concat("no ", pytorch_text(missing), " stands before it; PyTorch refuses this order"));
    };
    if (!forward && !computed_.contains({PytorchOp::forward, action.stage, action.microbatch})) {
      lacks({PytorchOp::forward, action.stage, action.microbatch});
    }
    computed_.insert(made(action.stage, action.microbatch));
    const int from = rank_of(stage);
    if (from < 0) return {};
    if (from == rank) {
      if (!computed_.contains(made(stage, action.microbatch))) {
        lacks({forward ? PytorchOp::forward : PytorchOp::backward, stage, action.microbatch});
      }
      return {};
    }
    const PytorchAction receive{forward ? PytorchOp::receive_forward : PytorchOp::receive_backward, action.stage,
                                action.microbatch};
    const auto found = received_.find({receive.op, receive.stage, receive.microbatch});
    if (found == received_.end()) lacks(receive);
    return found->second;
  }

  const PytorchSchedule& schedule_;
  PytorchCallOptions options_;
  std::string_view source_;
  CommProgram program_;
  std::map<std::string, std::int32_t> streams_;
  std::map<std::string, std::int32_t> communicators_;
  std::map<std::int32_t, int> rank_of_stage_;
  std::int32_t compute_stream_ = 0;
  std::int32_t groups_ = 0;
  std::map<Key, std::vector<std::int32_t>> sent_;      ///< of the current rank, and not waited for
  std::map<Key, std::vector<std::int32_t>> received_;  ///< of the current rank
  /// of the current rank; a backward by its half for the inputs
  std::set<Key> computed_;
};

}  // namespace detail

/// Whether the rows hold sends or receives.
inline bool has_transfers(const PytorchSchedule& schedule) {
  bool any = false;
  detail::for_each_action(schedule, [&](const PytorchAction& action, int, std::size_t) { any = any || is_transfer(action.op); });
  return any;
}

/// The calls that the rows make each rank's host launch. UNSHARD, RESHARD and REDUCE_GRAD act among
/// replicas, which run the same rows.
/// @pre has_transfers(schedule), or it has no messages between ranks; add_communication() adds them
/// as PyTorch does
/// @throws InputError  in one line, naming line and cell: a computation without its receive before
/// it, a send before its data is computed, stages on two ranks, gradients summed or parameters
/// released before a stage's last backward.
inline CommProgram pytorch_calls(const PytorchSchedule& schedule, const PytorchCallOptions& options = {},
                                 std::string_view source = "PyTorch CSV") {
  return detail::PytorchCalls{schedule, options, source}.build();
}

/// Rows as an order to be fixed; its items are cells.
class PytorchOrder {
 public:
  PytorchOrder(PytorchSchedule schedule, PytorchCallOptions options, std::string source)
      : schedule_{std::move(schedule)},
        options_{options},
        source_{std::move(source)},
        program_{pytorch_calls(schedule_, options_, source_)} {}

  const PytorchSchedule& schedule() const { return schedule_; }
  const CommProgram& program() const { return program_; }
  std::int32_t items(std::int32_t rank) const { return static_cast<std::int32_t>(row(rank).size()); }
  /// @pre the call comes from a cell
  std::int32_t item_of(CallRef call) const { return std::max(0, call_at(program_, call).item); }
  bool communicates(std::int32_t rank, std::int32_t item) const {
    const PytorchCell& cell = row(rank)[static_cast<std::size_t>(item)];
    return !cell.actions.empty() && is_transfer(cell.actions[0].op);
  }
  std::string text(std::int32_t rank, std::int32_t item) const {
    std::string all;
    for (const PytorchAction& action : row(rank)[static_cast<std::size_t>(item)].actions) {
      all += (all.empty() ? "" : " + ") + pytorch_text(action, schedule_.grammar);
    }
    return all;
  }
  std::string_view group_word() const { return "BATCH_P2P"; }
  /// Only a file that has batches has a reader that takes them: no release of PyTorch does.
  bool takes_groups() const {
    bool batches = false;
    bool waits = false;  // of releases without batches
    for (const auto& cells : schedule_.ranks) {
      for (const PytorchCell& cell : cells) {
        batches = batches || (cell.actions.size() > 1 && is_transfer(cell.actions[0].op));
        waits = waits || (!cell.actions.empty() && is_send_wait(cell.actions[0].op));
      }
    }
    return batches && !waits;
  }

  /// The rows with the change; nothing if PyTorch would refuse them.
  std::optional<PytorchOrder> edited(const OrderEdit& edit) const {
    using Kind = OrderEdit::Kind;
    PytorchSchedule changed = schedule_;
    auto& cells = changed.ranks[static_cast<std::size_t>(edit.rank)];
    const auto first = cells.begin() + edit.first;
    const auto second = cells.begin() + edit.second;
    if (edit.kind == Kind::swap) std::iter_swap(first, second);
    if (edit.kind == Kind::move) std::rotate(first, second, second + 1);
    if (edit.kind == Kind::remove) cells.erase(first);
    if (edit.kind == Kind::join) {
      first->actions.insert(first->actions.end(), second->actions.begin(), second->actions.end());
      cells.erase(second);
    }
    try {
      return PytorchOrder{std::move(changed), options_, source_};
    } catch (const InputError&) {
      return std::nullopt;
    }
  }

  /// Adds sends and receives where PyTorch itself puts them.
  std::optional<Mend<PytorchOrder>> in_one_order() const {
    PytorchSchedule computations{schedule_.grammar, {}};
    bool waits = false;
    for (const auto& cells : schedule_.ranks) {
      auto& kept = computations.ranks.emplace_back();
      for (const PytorchCell& cell : cells) {
        if (cell.actions.empty()) continue;
        const bool wait = is_send_wait(cell.actions[0].op);
        waits = waits || wait;
        if (!wait && !is_transfer(cell.actions[0].op)) kept.push_back(cell);
      }
    }
    try {
      PytorchSchedule mended = add_communication(computations, source_);
      if (waits) mended = add_waits(mended);
      return Mend<PytorchOrder>{"put sends and receives where PyTorch itself does",
                                PytorchOrder{std::move(mended), options_, source_}};
    } catch (const InputError&) {
      return std::nullopt;
    }
  }

 private:
  const std::vector<PytorchCell>& row(std::int32_t rank) const { return schedule_.ranks[static_cast<std::size_t>(rank)]; }

  PytorchSchedule schedule_;
  PytorchCallOptions options_;
  std::string source_;
  CommProgram program_;
};

}  // namespace tawpipe
