// The data of communications: which numbers leave which buffer, and their destinations.
// Not: computations and updates (dataflow_builder.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/execute/dataflow.hpp"
#include "tawpipe/schedule/describe.hpp"
#include "tawpipe/schedule/gradient_norm.hpp"
#include "tawpipe/schedule/interpret.hpp"

namespace tawpipe::inline v0::detail {

/// Finds the places of the data of passes, exchanges and collectives.
class DataflowTransfers {
 public:
  /// @param only  the only rank to resolve; none: all
  DataflowTransfers(const Schedule& schedule, const Rooms& rooms, Rank only)
      : schedule_{schedule}, rooms_{rooms}, only_{only}, messages_{schedule} {}

  TransferFlow resolve(TaskId id) {
    const Task& task = schedule_.task(id);
    const ParameterMessage& message = messages_.read(id);
    if (is_gradient_norm(task)) return norm(id, message);
    if (is_host_copy(task.op)) return copy(id, message);
    if (task.bytes.repeat() != 1) {
      fail(id, concat("it stands for ", task.bytes.repeat(), " messages of layers, which have buffers of their own"));
    }
    if (task.payload == Payload::activations || task.payload == Payload::activation_gradients) {
      if (is_all_pairs(task.op)) return blocks(id, message);
      if (is_collective(task.op)) {
        fail(id, "activations are exchanged among tensor- or context-parallel ranks, for which no layer is there");
      }
      return activations(id, message);
    }
    if (is_all_pairs(task.op)) fail(id, "only activations and their gradients go from all to all");
    if (goes_both_ways(task.op)) fail(id, "weights and gradients are passed one way at a time");
    return parameters(id, message);
  }

 private:
  [[noreturn]] void fail(TaskId task, const std::string& why) const {
    throw ScheduleError(concat(describe(schedule_, task), " cannot be executed: ", why));
  }
  bool is_wanted(Rank rank) const { return only_ == none<Rank> || rank == only_; }

  /// The places of the numbers of `set` in `buffer`, and their offsets in the message from `packed`
  /// on.
  /// @return the number found
  std::int64_t locate(const PackedParameters& set, std::int64_t packed, BufferId buffer, bool add,
                      std::vector<Segment>& out) const {
    std::int64_t found = 0;
    for (const ParameterRange& range : set.ranges()) {
      rooms_[buffer].for_each_part(range, [&](ParameterRange part, std::int64_t at) {
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

  static bool is_taken(const MessageEnd& end, BufferId buffer) {
    return std::any_of(end.taken.begin(), end.taken.end(), [&](const Use& use) { return use.buffer == buffer; });
  }
  /// Whether an end of a gather has all of what it gives beside where it gathers, as the contents are proven
  /// (verify/detail/message_walk.hpp): then that buffer is only filled.
  bool gives_apart(const ParameterMessage& message, const MessageEnd& end, const PackedParameters& set) const {
    if (is_sum(message.op) || end.given.size() < 2) return false;
    std::vector<Segment> apart;
    std::int64_t found = 0;
    for (const BufferId buffer : end.given) found += is_taken(end, buffer) ? 0 : locate(set, 0, buffer, false, apart);
    return found == set.count();
  }

  TransferFlow parameters(TaskId id, const ParameterMessage& message) const {
    const std::size_t needed = message.by_member() ? message.ends.size() : 1;
    if (message.parts.size() != needed) {
      fail(id, concat("it does not say which parameters ",
                      !message.by_member()  ? "it carries"
                      : gathers(message.op) ? concat("each of its ", needed, " members gives")
                                            : concat("each of its ", needed, " members keeps"),
                      " (split)"));
    }
    TransferFlow flow;
    for (const MessageEnd& end : message.ends) flow.ends.push_back({end.rank, {}, {}});
    for (std::size_t part = 0; part < needed; ++part) {
      const PackedParameters& set = rooms_.set(message.parts[part]);
      if (message.by_member()) flow.member_begin.push_back(flow.count);
      for (std::size_t e = 0; e < message.ends.size(); ++e) {
        const MessageEnd& end = message.ends[e];
        if (!is_wanted(end.rank)) continue;
        bool apart = false;
        if (message.gives(part, e) && !set.empty()) {
          std::int64_t found = 0;
          apart = gives_apart(message, end, set);
          for (const BufferId buffer : end.given) {
            if (apart && is_taken(end, buffer)) continue;
            found += locate(set, flow.count, buffer, false, flow.ends[e].gives);
          }
          if (found != set.count()) {
            fail(id,
                 concat("rank ", number(end.rank), " gives ", set.count(), " parameters and the buffers it reads hold ", found));
          }
        }
        if (!message.takes(part, e)) continue;
        for (const Use& use : end.taken) {
          if (message.in_place(part, e, use.access) && !apart) continue;
          locate(set, flow.count, use.buffer, use.access == Access::accumulate, flow.ends[e].takes);
        }
      }
      flow.count += set.count();
    }
    if (message.by_member()) flow.member_begin.push_back(flow.count);
    return flow;
  }

  /// A host copy: all of a buffer.
  TransferFlow copy(TaskId id, const ParameterMessage& message) const {
    const Task& task = schedule_.task(id);
    const MessageEnd& end = message.ends.front();
    if (end.given.size() != 1 || end.taken.size() != 1) fail(id, "it must name one buffer that it reads and one that it writes");
    const Bytes bytes = schedule_.buffer(end.given[0]).bytes;
    check_holds(id, end.taken[0].buffer, bytes.value());
    TransferFlow flow;
    // Rounded up to whole numbers: a buffer takes a multiple of its alignment (plan_buffers).
    flow.count = (bytes.value() + number_size(task.payload) - 1) / number_size(task.payload);
    flow.ends.push_back(
        {end.rank, {{{end.given[0], 0}, 0, flow.count, false}}, {{{end.taken[0].buffer, 0}, 0, flow.count, false}}});
    return flow;
  }
  /// Bytes of a number in a host copy. Optimizer states have 4 bytes or the model's wider type.
  std::int64_t number_size(Payload payload) const {
    const std::int64_t size = size_bytes(schedule_.workload().model().dtype);
    switch (traits(payload).numbers) {
      case Numbers::weights:
        return schedule_.workload().parameter_bytes().weight;
      case Numbers::gradients:
        return schedule_.workload().parameter_bytes().gradient;
      case Numbers::states:
        return std::max<std::int64_t>(4, size);
      case Numbers::activations:
      case Numbers::single:
      case Numbers::none:
        return size;
    }
    return size;  // unreachable: every enumerator returns above
  }

  /// One number of each member, summed.
  TransferFlow norm(TaskId id, const ParameterMessage& message) const {
    TransferFlow flow;
    flow.count = 1;
    for (const MessageEnd& end : message.ends) {
      if (end.given.size() != 1) fail(id, concat("rank ", number(end.rank), " must name one buffer for its sum of squares"));
      const Segment one{{end.given[0], 0}, 0, 1, false};
      flow.ends.push_back({end.rank, {one}, {one}});
    }
    return flow;
  }

  /// all_to_all: a member's buffer has its block for each member in the group's order, and receives
  /// those from each in that order.
  TransferFlow blocks(TaskId id, const ParameterMessage& message) const {
    const Task& task = schedule_.task(id);
    const std::size_t n = message.ends.size();
    const std::int64_t size = size_bytes(schedule_.workload().model().dtype);
    const bool even = task.split == none<SplitId>;
    if (even && task.bytes.value() % (size * static_cast<std::int64_t>(n)) != 0) {
      fail(id, concat("its ", task.bytes.value(), " bytes are not even blocks for ", n, " members; give the size of each pair"));
    }
    TransferFlow flow;
    std::vector<std::int64_t> got(n, 0);  // [member] numbers
    for (const MessageEnd& end : message.ends) {
      if (end.given.size() != 1 || end.taken.size() != 1) {
        fail(id, concat("rank ", number(end.rank), " must name one buffer that it gives and one that it gets"));
      }
      flow.ends.push_back({end.rank, {}, {}});
    }
    for (std::size_t from = 0; from < n; ++from) {
      const std::int64_t row = flow.count;
      for (std::size_t to = 0; to < n; ++to) {
        const std::int64_t count = even ? task.bytes.value() / size / static_cast<std::int64_t>(n)
                                        : schedule_.pair_sizes(task.split)[from * n + to].value() / size;
        flow.member_begin.push_back(flow.count);
        if (count > 0) flow.ends[to].takes.push_back({{message.ends[to].taken[0].buffer, got[to]}, flow.count, count, false});
        got[to] += count;
        flow.count += count;
      }
      if (flow.count > row) flow.ends[from].gives.push_back({{message.ends[from].given[0], 0}, row, flow.count - row, false});
      check_holds(id, message.ends[from].given[0], (flow.count - row) * size);
    }
    flow.member_begin.push_back(flow.count);
    for (std::size_t to = 0; to < n; ++to) check_holds(id, message.ends[to].taken[0].buffer, got[to] * size);
    return flow;
  }
  void check_holds(TaskId id, BufferId buffer, std::int64_t bytes) const {
    const std::int64_t held = schedule_.buffer(buffer).bytes.value();
    if (held < bytes) fail(id, concat(describe(schedule_, buffer), " has ", held, " bytes, and its blocks ", bytes));
  }

  /// Activations and their gradients: whole buffers.
  TransferFlow activations(TaskId id, const ParameterMessage& message) const {
    const Task& task = schedule_.task(id);
    const std::int64_t count = task.bytes.value() / size_bytes(schedule_.workload().model().dtype);
    TransferFlow flow;
    const bool both = goes_both_ways(task.op);
    flow.count = both ? 2 * count : count;
    for (std::size_t m = 0; m < 2; ++m) {
      const bool gives = m == 0 || both;
      const bool takes = m == 1 || both;
      const MessageEnd& end = message.ends[m];
      TransferEnd out{end.rank, {}, {}};
      if ((gives && end.given.size() != 1) || (takes && end.taken.size() != 1)) {
        fail(id, concat("rank ", number(end.rank), " must name one buffer for each way that an activation goes"));
      }
      const auto way = static_cast<std::int64_t>(m);
      if (gives) out.gives.push_back({{end.given[0], 0}, way * count, count, false});
      if (takes) out.takes.push_back({{end.taken[0].buffer, 0}, (both ? 1 - way : 0) * count, count, false});
      flow.ends.push_back(std::move(out));
    }
    return flow;
  }

  const Schedule& schedule_;
  const Rooms& rooms_;
  Rank only_;
  MessageReader messages_;
};

}  // namespace tawpipe::detail
