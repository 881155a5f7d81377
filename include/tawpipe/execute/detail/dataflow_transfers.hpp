// What communications carry: which numbers leave which buffer, and where they go.
// Not: computations and updates (dataflow_builder.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/execute/dataflow.hpp"
#include "tawpipe/execute/detail/dataflow_contents.hpp"
#include "tawpipe/schedule/gradient_norm.hpp"

namespace tawpipe::inline v0::detail {

/// Resolves passes, exchanges and collectives.
class DataflowTransfers {
 public:
  DataflowTransfers(const Schedule& schedule, const DataflowContents& contents) : schedule_{schedule}, contents_{contents} {}

  TransferFlow resolve(TaskId id) {
    const Task& task = schedule_.task(id);
    if (is_gradient_norm(task)) return norm(id);
    if (task.bytes.repeat() != 1)
      fail(id, concat("it stands for ", task.bytes.repeat(), " messages of layers, which have buffers of their own"));
    if (task.payload == Payload::activations || task.payload == Payload::activation_gradients) {
      if (is_collective(task.op)) {
        fail(id, "activations are exchanged among tensor- or context-parallel ranks, for which no layer is there");
      }
      return activations(id);
    }
    if (task.op == Op::exchange) fail(id, "weights and gradients are passed one way at a time");
    collect_ends(id);
    return task.op == Op::all_gather || task.op == Op::reduce_scatter ? by_member(id) : of_one(id);
  }

 private:
  /// One member's buffers: what it reads, and what it writes or adds to.
  struct End {
    Rank rank = none<Rank>;
    std::vector<BufferId> given;
    std::vector<Use> taken;
  };

  [[noreturn]] void fail(TaskId task, const std::string& why) const {
    throw ScheduleError(concat(describe(schedule_, task), " cannot be executed: ", why));
  }

  void collect_ends(TaskId id) {
    const Task& task = schedule_.task(id);
    ends_.clear();
    if (is_collective(task.op)) {
      for (const Rank member : schedule_.group(task.group)) ends_.push_back({member, {}, {}});
    } else {
      ends_ = {{task.rank, {}, {}}, {task.peer, {}, {}}};
    }
    for (const Use& use : schedule_.uses(id)) {
      const Rank rank = schedule_.buffer(use.buffer).rank;
      for (End& end : ends_) {
        if (end.rank != rank) continue;
        if (use.access == Access::read || use.access == Access::read_write) end.given.push_back(use.buffer);
        if (use.access != Access::read) end.taken.push_back(use);
      }
    }
  }

  /// Where the numbers of `set` lie in `buffer`, with their places in the message from `packed` on.
  /// @return how many of them were found
  std::int64_t locate(const PackedParameters& set, std::int64_t packed, BufferId buffer, bool add,
                      std::vector<Segment>& out) const {
    std::int64_t found = 0;
    for (const ParameterRange& range : set.ranges()) {
      contents_[buffer].for_each_part(range, [&](ParameterRange part, std::int64_t at) {
        const std::int64_t place = packed + part.begin - range.begin;
        Segment* last = out.empty() ? nullptr : &out.back();
        const bool goes_on = last != nullptr && last->place.buffer == buffer && last->add == add &&
                             last->place.offset + last->count == at && last->packed + last->count == place;
        if (goes_on) {
          last->count += part.count();
        } else {
          out.push_back({{buffer, at}, place, part.count(), add});
        }
        found += part.count();
      });
      packed += range.count();
    }
    return found;
  }

  void give(TaskId id, const PackedParameters& set, std::int64_t packed, const End& end, TransferEnd& out) const {
    if (set.empty()) return;
    std::int64_t found = 0;
    for (const BufferId buffer : end.given) found += locate(set, packed, buffer, false, out.gives);
    if (found == set.count()) return;
    fail(id, concat("rank ", number(end.rank), " gives ", set.count(), " parameters and the buffers it reads hold ", found));
  }

  /// @param in_place  what the member gives itself need not be stored again
  void take(const PackedParameters& set, std::int64_t packed, const End& end, bool in_place, TransferEnd& out) const {
    for (const Use& use : end.taken) {
      if (in_place && use.access == Access::read_write) continue;
      locate(set, packed, use.buffer, use.access == Access::accumulate, out.takes);
    }
  }

  /// pass, broadcast, reduce, all_reduce: one set of parameters.
  TransferFlow of_one(TaskId id) {
    const Task& task = schedule_.task(id);
    if (task.split == none<SplitId>) fail(id, "it does not say which parameters it carries (split)");
    const PackedParameters& set = contents_.set(schedule_.split(task.split)[0]);
    TransferFlow flow;
    flow.count = set.count();
    const bool summed = task.op == Op::reduce || task.op == Op::all_reduce;
    for (const End& end : ends_) {
      TransferEnd out{end.rank, {}, {}};
      const bool root = end.rank == task.rank;
      // Summed: a member without a microbatch names no buffer and gives zeros.
      if (summed ? !end.given.empty() : root) give(id, set, 0, end, out);
      if (task.op == Op::all_reduce || (task.op == Op::reduce) == root) take(set, 0, end, false, out);
      flow.ends.push_back(std::move(out));
    }
    return flow;
  }

  /// all_gather, reduce_scatter: each member has a part of its own.
  TransferFlow by_member(TaskId id) {
    const Task& task = schedule_.task(id);
    const bool gather = task.op == Op::all_gather;
    if (task.split == none<SplitId> || schedule_.split(task.split).size() != ends_.size()) {
      fail(id, concat("it does not say what each of its ", ends_.size(), " members ", gather ? "gives" : "keeps", " (split)"));
    }
    TransferFlow flow;
    std::vector<const PackedParameters*> sets;
    flow.member_begin.push_back(0);
    for (const PiecesId set : schedule_.split(task.split)) {
      sets.push_back(&contents_.set(set));
      flow.count += sets.back()->count();
      flow.member_begin.push_back(flow.count);
    }
    for (std::size_t m = 0; m < ends_.size(); ++m) {
      TransferEnd out{ends_[m].rank, {}, {}};
      for (std::size_t part = 0; part < sets.size(); ++part) {
        const bool gives = gather ? part == m : !ends_[m].given.empty();
        const bool takes = gather || part == m;
        if (gives) give(id, *sets[part], flow.member_begin[part], ends_[m], out);
        if (takes) take(*sets[part], flow.member_begin[part], ends_[m], gather && part == m, out);
      }
      flow.ends.push_back(std::move(out));
    }
    return flow;
  }

  /// One number of each member, summed.
  TransferFlow norm(TaskId id) {
    collect_ends(id);
    TransferFlow flow;
    flow.count = 1;
    for (const End& end : ends_) {
      if (end.given.size() != 1) fail(id, concat("rank ", number(end.rank), " must name one buffer for its sum of squares"));
      const Segment one{{end.given[0], 0}, 0, 1, false};
      flow.ends.push_back({end.rank, {one}, {one}});
    }
    return flow;
  }

  /// Activations and their gradients: whole buffers.
  TransferFlow activations(TaskId id) {
    const Task& task = schedule_.task(id);
    collect_ends(id);
    const std::int64_t count = task.bytes.value() / size_bytes(schedule_.workload().model().dtype);
    TransferFlow flow;
    flow.count = task.op == Op::exchange ? 2 * count : count;
    for (std::size_t m = 0; m < 2; ++m) {
      const bool gives = m == 0 || task.op == Op::exchange;
      const bool takes = m == 1 || task.op == Op::exchange;
      const End& end = ends_[m];
      TransferEnd out{end.rank, {}, {}};
      if ((gives && end.given.size() != 1) || (takes && end.taken.size() != 1)) {
        fail(id, concat("rank ", number(end.rank), " must name one buffer for each way that an activation goes"));
      }
      const auto way = static_cast<std::int64_t>(m);
      if (gives) out.gives.push_back({{end.given[0], 0}, way * count, count, false});
      if (takes) out.takes.push_back({{end.taken[0].buffer, 0}, (task.op == Op::exchange ? 1 - way : 0) * count, count, false});
      flow.ends.push_back(std::move(out));
    }
    return flow;
  }

  const Schedule& schedule_;
  const DataflowContents& contents_;
  std::vector<End> ends_;  ///< of the task at hand
};

}  // namespace tawpipe::detail
