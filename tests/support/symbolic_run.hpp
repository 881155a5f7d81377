// Runs a schedule on hashes in one of many orders: whether two schedules compute the same, decided
// without the validator.
// Not: what is wrong where they differ (brute_force_contents.hpp, contents.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/verify/detail/task_graph.hpp"

namespace tawpipe::test {

using Mersenne = std::mt19937;

template <class... Values>
inline std::uint64_t mix(Values... values) {
  std::uint64_t h = 0x243f6a8885a308d3U;
  const auto one = [&](std::uint64_t v) {
    h = (h ^ v) * 0x9fb21c651e98df25U;
    h ^= h >> 29;
    h = (h + 0x632be59bd9b4e019U) * 0xff51afd7ed558ccdU;
    h ^= h >> 32;
  };
  (one(static_cast<std::uint64_t>(values)), ...);
  return h;
}

/// What a buffer holds: a value that is added up (gradients) or hashed, the part of it that belongs
/// to embedding and head, and pieces of weights by owner.
struct Symbol {
  std::uint64_t value = 0;
  std::uint64_t edge = 0;
  std::vector<std::pair<int, std::uint64_t>> pieces;

  std::uint64_t hash() const {
    std::uint64_t h = mix(value, edge);
    for (const auto& [owner, piece] : pieces) h = mix(h, owner, piece);
    return h;
  }
  void garble(std::uint64_t by) {
    value = mix(value, by);
    edge = mix(edge, by);
    for (auto& piece : pieces) piece.second = mix(piece.second, by);
  }
  void unite(const Symbol& other) {
    std::map<int, std::uint64_t> all(pieces.begin(), pieces.end());
    for (const auto& [owner, piece] : other.pieces) all.try_emplace(owner, piece);
    pieces.assign(all.begin(), all.end());
  }
};

/// Runs a schedule in one order of many: a task starts when it heads all its lanes and its
/// dependencies have ended. Where TawPipe's shards travel in pieces, it follows one parameter of
/// each stage; other runs follow the others.
class Interpreter {
 public:
  /// @param part  which parameter: at this share of the stage's
  Interpreter(const Schedule& schedule, const std::vector<Bytes>& bytes, double part)
      : schedule_{schedule}, bytes_{bytes}, part_{part} {}

  static bool well_formed(const Schedule& schedule) {
    std::map<std::pair<std::size_t, TaskId>, int> expected;
    std::size_t entries = 0;
    for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
      for_each_end(schedule, id<TaskId>(t), [&](Rank rank, int lane) {
        ++expected[{index(rank) * schedule.lanes().size() + static_cast<std::size_t>(lane), id<TaskId>(t)}];
      });
    }
    for (std::size_t row = 0; row < schedule.parts().program.size(); ++row) {
      for (const TaskId t : schedule.parts().program[row]) {
        ++entries;
        if (--expected[{row, t}] != 0) return false;
      }
    }
    if (entries != expected.size()) return false;
    for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
      for (const Use& use : schedule.uses(id<TaskId>(t))) {
        bool on_end = false;
        for_each_end(schedule, id<TaskId>(t),
                     [&](Rank rank, int) { on_end = on_end || rank == schedule.buffer(use.buffer).rank; });
        const Task& task = schedule.tasks()[t];
        // An exchange among the ranks of a logical rank stands for those of all layers, one after
        // another.
        const bool layers = is_collective(task.op) && task.microbatch >= 0;
        const bool shared = task.op == Op::all_gather || task.op == Op::reduce_scatter || layers;
        if (!on_end || (!is_compute(task.op) && !shared && task.bytes > schedule.buffer(use.buffer).bytes)) return false;
      }
    }
    return true;
  }

  /// Hashes of the final model states, [persistent weights and optimizer buffers]; empty if the
  /// tasks block each other.
  std::vector<std::uint64_t> run(unsigned policy, Mersenne& random) {
    start();
    const std::size_t count = schedule_.tasks().size();
    const Rows<TaskId>& program = schedule_.parts().program;
    std::vector<std::uint32_t> waits(count, 0);
    std::vector<std::vector<TaskId>> next(count);
    detail::for_each_wait(schedule_, [&](std::size_t from, std::size_t to) {
      next[from].push_back(id<TaskId>(to));
      ++waits[to];
    });
    std::vector<std::uint64_t> of_row(program.size());
    for (auto& priority : of_row) priority = random();
    std::vector<std::uint64_t> priority(count, 0);
    for (std::size_t row = 0; row < program.size(); ++row) {
      for (const TaskId t : program[row]) {
        priority[index(t)] = policy == 0       ? ~std::uint64_t{index(t)}
                             : policy == 1     ? index(t)
                             : policy % 2 == 0 ? of_row[row]
                                               : random();
      }
    }
    std::vector<TaskId> ready;
    for (std::size_t t = 0; t < count; ++t) {
      if (waits[t] == 0) ready.push_back(id<TaskId>(t));
    }
    std::size_t done = 0;
    while (!ready.empty()) {
      const auto best = std::max_element(ready.begin(), ready.end(), [&](TaskId a, TaskId b) {
        return priority[index(a)] != priority[index(b)] ? priority[index(a)] < priority[index(b)] : a > b;
      });
      const TaskId t = *best;
      *best = ready.back();
      ready.pop_back();
      execute(t);
      ++done;
      for (const TaskId later : next[index(t)]) {
        if (--waits[index(later)] == 0) ready.push_back(later);
      }
    }
    std::vector<std::uint64_t> result;
    if (done != count) return result;
    for (std::size_t b = 0; b < symbols_.size(); ++b) {
      const Buffer& buffer = schedule_.buffers()[b];
      const bool states = buffer.kind() == BufferKind::weights || buffer.kind() == BufferKind::optimizer;
      if (buffer.persistent && states) result.push_back(symbols_[b].hash());
    }
    return result;
  }

 private:
  static bool reads(Access access) { return access == Access::read || access == Access::read_write; }
  Symbol& at(const Use& use) { return symbols_[index(use.buffer)]; }
  Rank rank_of(const Use& use) const { return schedule_.buffer(use.buffer).rank; }

  void start() {
    symbols_.assign(schedule_.buffers().size(), {});
    for (std::size_t b = 0; b < symbols_.size(); ++b) {
      const Buffer& buffer = schedule_.buffers()[b];
      Symbol& symbol = symbols_[b];
      if (buffer.persistent && buffer.kind() == BufferKind::gradients) continue;
      symbol.value = mix(b, 77);
      if (buffer.persistent && buffer.kind() == BufferKind::weights) symbol = {0, 0, {{number(buffer.rank), mix(b, 78)}}};
    }
  }

  void execute(TaskId t) {
    const Op op = schedule_.task(t).op;
    if (op == Op::idle) return;
    is_compute(op) ? compute(t) : communicate(t);
  }

  void compute(TaskId t) {
    const Task& task = schedule_.task(t);
    const auto uses = schedule_.uses(t);
    const auto last = static_cast<std::int32_t>(schedule_.stages().size()) - 1;
    const bool from_batch = task.op == Op::forward ? number(task.stage) == 0 : number(task.stage) == last;
    std::uint64_t inputs =
        task.op == Op::update ? mix(1) : mix(2, static_cast<int>(task.op), number(task.stage), task.microbatch);
    const auto adds = [&](const Use& use) {
      const BufferKind kind = schedule_.buffer(use.buffer).kind();
      return task.op != Op::update && task.op != Op::forward && use.access != Access::read &&
             (kind == BufferKind::gradients || kind == BufferKind::transfer);
    };
    std::size_t counted = 0;
    for (std::size_t i = 0; i < uses.size(); ++i) {
      const Buffer& buffer = schedule_.buffer(uses[i].buffer);
      if (!reads(uses[i].access) || adds(uses[i])) continue;
      // The first stage starts from tokens and the last from the loss: what their streams hold does
      // not matter.
      const ContentKind kind = buffer.content.kind();
      const bool input = kind == ContentKind::activation || kind == ContentKind::activation_gradient;
      if (input && (from_batch || task.op == Op::backward_weight)) continue;
      // The optimizer has its own copy of the weights.
      if (task.op == Op::update && buffer.kind() == BufferKind::weights) continue;
      inputs = mix(inputs, counted++, at(uses[i]).hash());
    }
    for (std::size_t i = 0; i < uses.size(); ++i) {
      if (uses[i].access == Access::read) continue;
      const Buffer& buffer = schedule_.buffer(uses[i].buffer);
      Symbol& symbol = at(uses[i]);
      if (adds(uses[i])) {
        const StageWork& work = schedule_.stage(task.stage);
        if (uses[i].access == Access::write) symbol = {};
        if (work.parameters > 0) symbol.value += mix(inputs, 5);
        if (work.edge_parameters > 0) symbol.edge += mix(inputs, 6);
      } else if (task.op == Op::update && buffer.kind() == BufferKind::weights) {
        const std::uint64_t old = uses[i].access == Access::accumulate ? symbol.hash() : 0;
        symbol = {0, 0, {{number(buffer.rank), mix(inputs, 7, old)}}};
      } else {
        symbol = {mix(inputs, static_cast<int>(buffer.content.kind()), uses[i].access == Access::accumulate ? symbol.hash() : 0),
                  0,
                  {}};
      }
    }
  }

  /// Whether a set of parameters has the one that is followed.
  bool followed(PiecesId pieces) const {
    const LayerStack& model = schedule_.workload().model();
    for (const ParameterRange& range : schedule_.pieces(pieces)) {
      for (const StageWork& stage : schedule_.stages()) {
        for (const ParameterRange& all : model.blocks().layers_of(stage)) {
          const double followed = static_cast<double>(all.begin) + part_ * static_cast<double>(all.count());
          if (static_cast<double>(range.begin) <= followed && followed < static_cast<double>(range.end)) return true;
        }
      }
    }
    return false;
  }
  /// Whether the member's part of a gather has no parameters.
  bool gives_nothing(const Task& task, Rank member) const {
    if (task.split == none<SplitId>) return false;
    const auto split = schedule_.split(task.split);
    const auto members = schedule_.group(task.group);
    const auto at = static_cast<std::size_t>(std::find(members.begin(), members.end(), member) - members.begin());
    return at < split.size() && schedule_.pieces(split[at]).empty();
  }
  bool carries(const Task& task, Rank member) const {
    if (task.split == none<SplitId> || task.stage == none<StageId> || schedule_.name() != "tawpipe") return true;
    const auto split = schedule_.split(task.split);
    if (split.size() == 1) return followed(split[0]);
    const auto members = schedule_.group(task.group);
    return followed(split[static_cast<std::size_t>(std::find(members.begin(), members.end(), member) - members.begin())]);
  }

  void communicate(TaskId t) {
    const Task& task = schedule_.task(t);
    const auto uses = schedule_.uses(t);
    const bool cut = task.bytes < bytes_[index(t)];
    if (is_point_to_point(task.op) && !carries(task, task.rank)) {
      for (const Use& use : uses) {  // another piece: what the buffer held before is lost
        if (use.access == Access::write) at(use).garble(mix(index(t), 17));
      }
      return;
    }
    std::vector<Symbol> found;
    for (const Use& use : uses) found.push_back(at(use));
    const auto deliver = [&](const Use& use, Symbol symbol) {
      if (cut) symbol.garble(99);
      Symbol& to = at(use);
      if (use.access != Access::accumulate) {
        to = std::move(symbol);
        return;
      }
      to.value += symbol.value;
      to.edge += symbol.edge;
      if (!symbol.pieces.empty()) to.garble(symbol.hash());
    };
    const auto copy = [&](Rank from, auto&& receives) {
      for (std::size_t d = 0; d < uses.size(); ++d) {
        if (uses[d].access == Access::read || rank_of(uses[d]) == from || !receives(rank_of(uses[d]))) continue;
        Symbol sent;
        sent.value = mix(d, 13);  // a message from nowhere
        for (std::size_t s = 0; s < uses.size(); ++s) {
          if (rank_of(uses[s]) == from && uses[s].access == Access::read) sent = found[s];
        }
        deliver(uses[d], sent);
      }
    };
    if (is_host_copy(task.op)) {
      Symbol sent;
      sent.value = mix(index(t), 19);  // nothing is read
      for (std::size_t s = 0; s < uses.size(); ++s) {
        if (reads(uses[s].access)) sent = found[s];
      }
      for (const Use& use : uses) {
        if (use.access != Access::read) deliver(use, sent);
      }
    } else if (is_point_to_point(task.op)) {
      copy(task.rank, [&](Rank rank) { return rank == task.peer; });
      if (task.op == Op::exchange) copy(task.peer, [&](Rank rank) { return rank == task.rank; });
    } else if (task.op == Op::broadcast) {
      copy(task.rank, [](Rank) { return true; });
    } else if (task.op == Op::all_gather) {
      Symbol all;
      for (std::size_t s = 0; s < uses.size(); ++s) {
        if (!reads(uses[s].access) || !carries(task, rank_of(uses[s])) || gives_nothing(task, rank_of(uses[s]))) continue;
        bool also_reads = false;
        for (const Use& use : uses) also_reads = also_reads || (use.access == Access::read && rank_of(use) == rank_of(uses[s]));
        if (uses[s].access == Access::read_write && also_reads) continue;
        const Buffer& buffer = schedule_.buffer(uses[s].buffer);
        Symbol piece = found[s];
        if (buffer.persistent && buffer.kind() == BufferKind::weights && buffer.stage() == none<StageId>) {  // only its unit
          for (auto& part : piece.pieces) part.second = mix(part.second, number(task.stage));
        }
        all.unite(piece);
        if (piece.pieces.empty()) all.garble(piece.hash());
      }
      for (std::size_t d = 0; d < uses.size(); ++d) {
        if (uses[d].access == Access::read) continue;
        Symbol result = all;
        if (uses[d].access == Access::read_write && task.split == none<SplitId>) result.unite(found[d]);
        deliver(uses[d], result);
      }
    } else {
      const bool edge = task.payload == Payload::edge_gradients;
      Symbol sum;
      bool empty = true;  // half of no message is no message
      for (std::size_t s = 0; s < uses.size(); ++s) {
        if (!reads(uses[s].access)) continue;
        empty = false;
        sum.value += edge ? 0 : found[s].value;
        sum.edge += found[s].edge;
        if (!found[s].pieces.empty()) sum.garble(found[s].hash());
      }
      for (std::size_t d = 0; d < uses.size(); ++d) {
        // The result of a rooted sum appears at its root only.
        if (uses[d].access == Access::read || (task.op == Op::reduce && rank_of(uses[d]) != task.rank)) continue;
        Symbol result = sum;
        if (edge && uses[d].access == Access::read_write) result.value = found[d].value;
        if (task.op == Op::reduce_scatter && !carries(task, rank_of(uses[d]))) {
          if (uses[d].access == Access::accumulate) continue;
          result.garble(mix(index(t), number(rank_of(uses[d]))));
        }
        if (!empty || uses[d].access != Access::accumulate) deliver(uses[d], result);
      }
    }
  }

  const Schedule& schedule_;
  const std::vector<Bytes>& bytes_;  ///< [task] what it moved before it was changed
  double part_;
  std::vector<Symbol> symbols_;
};

/// A parameter of each piece that a stage is cut into, as its share of the stage.
inline std::vector<double> parts_of(const Schedule& schedule) {
  std::size_t most = 1;
  if (schedule.name() != "tawpipe") return {0.5};
  for (std::size_t s = 0; s < schedule.parts().splits.size(); ++s) most = std::max(most, schedule.split(id<SplitId>(s)).size());
  std::vector<double> parts;
  for (std::size_t i = 0; i < most; ++i) parts.push_back((static_cast<double>(i) + 0.5) / static_cast<double>(most));
  return parts;
}

}  // namespace tawpipe::test
