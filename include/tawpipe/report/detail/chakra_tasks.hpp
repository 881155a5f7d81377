// The tasks of a Chakra trace: messages with both ends, collectives with all members, each with the
// data of its attributes.
// Not: their order and lanes (report/chakra_import.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/report/chakra_trace.hpp"
#include "tawpipe/report/detail/chakra_graph.hpp"
#include "tawpipe/schedule/task.hpp"

namespace tawpipe::inline v0::detail {

/// Joins the nodes of all ranks.
class ChakraTasks {
 public:
  struct End {
    std::int32_t rank = 0;
    std::int32_t step = 0;
  };
  struct Joined {
    /// for a message the sender's first; for an exchange those of its two messages
    std::vector<End> ends;
    Task task;
    Duration time{};
    std::string lanes[2];  ///< of rank and peer; "": not given
    bool is_wait = false;  ///< a message that only expresses that one rank waits for another
  };

  /// @throws InputError  naming the node without a counterpart, or with inconsistent attributes
  explicit ChakraTasks(const ChakraTrace& trace) : graph_{trace}, task_of_(graph_.ranks()) {
    for (std::size_t r = 0; r < graph_.ranks(); ++r) task_of_[r].assign(graph_.steps(r).size(), -1);
    join_messages();
    join_collectives();
    for (std::size_t r = 0; r < graph_.ranks(); ++r) {
      for (std::size_t s = 0; s < task_of_[r].size(); ++s) {
        if (task_of_[r][s] < 0) add({{static_cast<std::int32_t>(r), static_cast<std::int32_t>(s)}});
      }
    }
    for (Joined& task : tasks_) {
      if (!task.is_wait) describe(task);
    }
  }

  const ChakraGraph& graph() const { return graph_; }
  std::vector<Joined>& tasks() { return tasks_; }
  /// The task of which a rank's step is an end.
  std::int32_t task_of(std::int32_t rank, std::int32_t step) const { return task_of_[at(rank)][at(step)]; }
  /// The number of stages that the tasks name.
  std::int32_t stages() const { return stages_; }

  static std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }
  const ChakraStep& step(End end) const { return graph_.steps(at(end.rank))[at(end.step)]; }
  const ChakraNode& node(End end) const { return *step(end).node; }
  InputError fail(End end, std::string_view what) const {
    return InputError(concat(graph_.place(at(end.rank), node(end)), ": ", what));
  }

 private:
  void add(std::vector<End> ends) {
    for (const End& end : ends) task_of_[at(end.rank)][at(end.step)] = static_cast<std::int32_t>(tasks_.size());
    tasks_.push_back({std::move(ends), {}, {}, {}, false});
  }

  /// The n-th send of a rank to another with a tag matches the n-th receive.
  void join_messages() {
    std::map<std::tuple<std::int32_t, std::int32_t, std::int64_t>, std::pair<std::vector<End>, std::vector<End>>> ways;
    for (std::size_t r = 0; r < graph_.ranks(); ++r) {
      for (std::size_t s = 0; s < graph_.steps(r).size(); ++s) {
        const ChakraStep& one = graph_.steps(r)[s];
        if (one.from < 0) continue;
        auto& way = ways[{one.from, one.to, one.tag}];
        (one.type == ChakraType::send ? way.first : way.second)
            .push_back({static_cast<std::int32_t>(r), static_cast<std::int32_t>(s)});
      }
    }
    std::map<std::int64_t, std::int32_t> exchanges;  // by their id in the original schedule
    for (const auto& [way, ends] : ways) {
      const auto& [sends, receives] = ends;
      if (sends.size() != receives.size()) {
        const bool more = sends.size() > receives.size();
        const End lone = (more ? sends : receives)[std::min(sends.size(), receives.size())];
        const ChakraStep& one = step(lone);
        throw fail(lone, concat("rank ", more ? one.to : one.from, more ? " receives" : " sends", " no such message (rank ",
                                one.from, " to ", one.to, ", tag ", one.tag, ")"));
      }
      for (std::size_t i = 0; i < sends.size(); ++i) {
        const auto sent = node(sends[i]).number(ChakraKey::comm_size);
        const auto received = node(receives[i]).number(ChakraKey::comm_size);
        if (sent && received && *sent != *received) {
          throw fail(receives[i], concat("it receives ", *received, " bytes and rank ", step(sends[i]).from, " sends ", *sent));
        }
        std::vector<End> both{sends[i], receives[i]};
        if (node(sends[i]).text(ChakraKey::op) == name(Op::exchange)) {
          const auto number = node(sends[i]).number(ChakraKey::task).value_or(-1);
          const auto [found, added] = exchanges.try_emplace(number, static_cast<std::int32_t>(tasks_.size()));
          if (!added) {
            Joined& known = tasks_[at(found->second)];
            if (known.ends.size() != 2 || known.ends[0].rank != both[1].rank || known.ends[1].rank != both[0].rank) {
              throw fail(sends[i], "it is not part of an exchange, contrary to its attribute tawpipe_op");
            }
            for (const End& end : both) {
              task_of_[at(end.rank)][at(end.step)] = found->second;
              known.ends.push_back(end);
            }
            continue;
          }
        }
        const bool is_wait = node(sends[i]).text(ChakraKey::op) == chakra_wait;
        add(std::move(both));
        tasks_.back().is_wait = is_wait;
      }
    }
    for (const auto& [number, task] : exchanges) {
      if (tasks_[at(task)].ends.size() != 4) throw fail(tasks_[at(task)].ends[0], "the message back of this exchange is missing");
    }
  }

  /// The n-th collective of a rank on a process group matches the n-th of the others.
  void join_collectives() {
    std::vector<std::vector<std::vector<std::int32_t>>> calls(graph_.groups().size());  // [group][rank]
    for (auto& group : calls) group.resize(graph_.ranks());
    for (std::size_t r = 0; r < graph_.ranks(); ++r) {
      for (std::size_t s = 0; s < graph_.steps(r).size(); ++s) {
        if (graph_.steps(r)[s].group >= 0) calls[at(graph_.steps(r)[s].group)][r].push_back(static_cast<std::int32_t>(s));
      }
    }
    for (std::size_t g = 0; g < calls.size(); ++g) {
      const ChakraProcessGroup& group = graph_.groups()[g];
      std::int32_t most = group.ranks[0];
      for (const std::int32_t rank : group.ranks) {
        if (calls[g][at(rank)].size() > calls[g][at(most)].size()) most = rank;
      }
      for (std::size_t n = 0; n < calls[g][at(most)].size(); ++n) {
        const End first{most, calls[g][at(most)][n]};
        std::vector<End> ends;
        for (const std::int32_t rank : group.ranks) {
          if (calls[g][at(rank)].size() <= n) {
            throw fail(first, concat("rank ", rank, " makes ", n, " collectives on process group ", quote(group.name),
                                     " and rank ", most, " ", calls[g][at(most)].size()));
          }
          ends.push_back({rank, calls[g][at(rank)][n]});
          for (const ChakraKey key : {ChakraKey::comm_type, ChakraKey::comm_size}) {
            if (node(ends.back()).number(key) == node(first).number(key)) continue;
            throw fail(ends.back(),
                       concat("it meets node ", node(first).id, " of rank ", most, ", and they differ in ", name(key)));
          }
        }
        add(std::move(ends));
      }
    }
  }

  /// A number that tawpipe wrote. @throws InputError  if it cannot be one of those
  std::int32_t own(End end, ChakraKey key, std::int32_t missing, std::int32_t most) const {
    const std::int64_t value = node(end).number(key).value_or(missing);
    if (value != missing && (value < 0 || value > most))
      throw fail(end, concat("its ", name(key), " ", value, " is not from 0 to ", most));
    return static_cast<std::int32_t>(value);
  }

  template <class Enum>
  Enum named(End end, ChakraKey key, Enum otherwise, int count) const {
    const std::string_view text = node(end).text(key);
    if (text.empty()) return otherwise;
    for (int value = 0; value < count; ++value) {
      if (name(static_cast<Enum>(value)) == text) return static_cast<Enum>(value);
    }
    throw fail(end, concat("its ", name(key), " ", quote(text.substr(0, 40)), " is not known"));
  }

  /// The operation of a node, from the format's own fields only.
  Op plain_op(End end) const {
    switch (step(end).type) {
      case ChakraType::load:
        return Op::copy_from_host;
      case ChakraType::store:
        return Op::copy_to_host;
      case ChakraType::send:
      case ChakraType::receive:
        return Op::pass;
      case ChakraType::collective:
        break;
      case ChakraType::invalid:
      case ChakraType::metadata:
      case ChakraType::compute:  // the host's are not work of the device
        return node(end).number(ChakraKey::is_cpu_op).value_or(0) != 0 ? Op::idle : Op::forward;
    }
    switch (static_cast<ChakraCollective>(*node(end).number(ChakraKey::comm_type))) {
      case ChakraCollective::reduce:
        return Op::reduce;
      case ChakraCollective::all_gather:
        return Op::all_gather;
      case ChakraCollective::broadcast:
        return Op::broadcast;
      case ChakraCollective::all_to_all:
        return Op::all_to_all;
      case ChakraCollective::reduce_scatter:
      case ChakraCollective::reduce_scatter_block:
        return Op::reduce_scatter;
      case ChakraCollective::all_reduce:
      case ChakraCollective::barrier:
      case ChakraCollective::gather:
      case ChakraCollective::scatter:
        break;
    }
    return Op::all_reduce;
  }

  /// Whether an operation that tawpipe wrote agrees with the format's own fields.
  static bool stands_for(Op plain, Op op, std::size_t ends) {
    if (plain == Op::pass) return op == (ends == 4 ? Op::exchange : Op::pass);
    return is_compute(plain) ? is_compute(op) : op == plain;
  }

  void describe(Joined& joined) {
    const End end = joined.ends[0];
    const Op plain = plain_op(end);
    Task& task = joined.task;
    task.op = named(end, ChakraKey::op, plain, ops);
    if (!stands_for(plain, task.op, joined.ends.size())) {
      throw fail(end, concat("its tawpipe_op ", quote(name(task.op)), " is not what its type says (", name(plain), ")"));
    }
    task.payload = named(end, ChakraKey::payload, traits(task.op).payload, payloads);
    const std::int32_t root = own(end, ChakraKey::root, -1, static_cast<std::int32_t>(graph_.ranks()) - 1);
    task.rank = Rank{end.rank};
    if (is_point_to_point(task.op)) {
      task.peer = Rank{joined.ends[1].rank};
      if (task.op == Op::exchange && root == joined.ends[1].rank) std::swap(task.rank, task.peer);
    } else if (is_collective(task.op) && root >= 0) {
      const auto& members = graph_.groups()[at(step(end).group)].ranks;
      if (std::find(members.begin(), members.end(), root) == members.end())
        throw fail(end, "its tawpipe_root is not in its group");
      task.rank = Rank{root};
    }
    const std::int32_t last = std::int32_t{1} << 30;
    task.microbatch = own(end, ChakraKey::microbatch, -1, last);
    task.step = own(end, ChakraKey::step, -1, last);
    if (const std::int32_t stage = own(end, ChakraKey::stage, -1, max_stages - 1); stage >= 0) {
      task.stage = StageId{stage};
      stages_ = std::max(stages_, stage + 1);
    }
    const std::int32_t repeat = std::max(1, own(end, ChakraKey::repeat, 1, Messages::max_repeat));
    const auto size = node(end).number(is_host_copy(task.op) ? ChakraKey::tensor_size : ChakraKey::comm_size).value_or(0);
    const std::int64_t parts =
        gathers(task.op) ? static_cast<std::int64_t>(joined.ends.size()) : 1;  // here the size is that of a part
    const std::int64_t whole = is_compute(task.op) ? 0 : saturating_multiply(size, parts);
    const std::int64_t bytes = node(end).number(ChakraKey::bytes).value_or(whole);
    if (bytes < 0 || bytes > std::int64_t{1} << 50) throw fail(end, concat("its ", bytes, " bytes are not from 0 to 1 PiB"));
    task.bytes = Messages{Bytes{bytes}, repeat};
    joined.lanes[0] = node(end).text(ChakraKey::lane);
    if (is_point_to_point(task.op)) {
      joined.lanes[1] = node(joined.ends[1]).text(ChakraKey::lane);
      if (task.rank != Rank{end.rank}) std::swap(joined.lanes[0], joined.lanes[1]);
    }
    if (is_compute(task.op)) time(joined);
  }

  void time(Joined& joined) {
    const ChakraNode& from = node(joined.ends[0]);
    constexpr std::int64_t in_us = 1'000'000;
    const std::int64_t exact = from.number(ChakraKey::picoseconds).value_or(-1);
    if (from.duration_us > static_cast<std::uint64_t>(std::int64_t{9'000'000'000'000})) {
      throw fail(joined.ends[0], concat("its duration of ", from.duration_us, " us is beyond 104 days"));
    }
    joined.time = Duration{exact >= 0 ? exact : static_cast<std::int64_t>(from.duration_us) * in_us};
    const std::int64_t work = from.number(ChakraKey::num_ops).value_or(0);
    if (exact >= 0 || from.duration_us > 0 || work <= 0) return;
    joined.time = Duration{-1};  // from the cost model
    joined.task.op = Op::forward;
    joined.task.stage = none<StageId>;
  }

  ChakraGraph graph_;
  std::vector<std::vector<std::int32_t>> task_of_;  ///< [rank][step]
  std::vector<Joined> tasks_;
  std::int32_t stages_ = 0;
};

}  // namespace tawpipe::detail
