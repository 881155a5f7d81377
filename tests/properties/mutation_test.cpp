// Mutants: every change to a schedule that changes what it computes, or lets it hang, must be found by validate().
// Whether a mutant changes anything is decided without the validator: its tasks are run in many orders on hashes, and the
// final weights are compared with those of the schedule it came from.
// Not: what each finding says (tests/unit/analysis/).
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/draft.hpp"
#include "tawpipe/analysis/validate.hpp"
#include "tawpipe/schedule/catalogue.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/schedule/schedules/data_parallel.hpp"
#include "tawpipe/schedule/schedules/fully_sharded.hpp"
#include "tawpipe/schedule/schedules/gpipe.hpp"
#include "tawpipe/schedule/schedules/hybrid_sharded.hpp"
#include "tawpipe/schedule/schedules/interleaved_one_f_one_b.hpp"
#include "tawpipe/schedule/schedules/one_f_one_b.hpp"
#include "tawpipe/schedule/schedules/tawpipe.hpp"
#include "tawpipe/schedule/schedules/weipipe.hpp"
#include "tawpipe/schedule/schedules/weipipe_zero_bubble.hpp"
#include "tawpipe/schedule/schedules/zero_bubble.hpp"

using namespace tawpipe;
using tawpipe::test::Draft;

namespace {

using Random = std::mt19937;
std::size_t below(Random& random, std::size_t limit) { return limit == 0 ? 0 : random() % limit; }

// ---- the oracle ----------------------------------------------------------------------------------------------------

template <class... Values>
std::uint64_t mix(Values... values) {
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

/// What a buffer holds: a value that is added up (gradients) or hashed, the part of it that belongs to embedding and head,
/// and pieces of weights by owner.
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

/// Runs a schedule in one order of many: a task starts when it heads all its lanes and its dependencies have ended.
/// Where TawPipe's shards travel in pieces, it follows one parameter of each stage; other runs follow the others.
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
        // An exchange among the ranks of a logical rank stands for those of all layers, one after the other.
        const bool layers = is_collective(task.op) && task.microbatch >= 0;
        const bool shared = task.op == Op::all_gather || task.op == Op::reduce_scatter || layers;
        if (!on_end || (!is_compute(task.op) && !shared && task.bytes > schedule.buffer(use.buffer).bytes)) return false;
      }
    }
    return true;
  }

  /// Hashes of the final model states, [persistent weights and optimizer buffers]; empty if the tasks block each other.
  std::vector<std::uint64_t> run(unsigned policy, Random& random) {
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
      const bool states = buffer.kind == BufferKind::weights || buffer.kind == BufferKind::optimizer;
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
      if (buffer.persistent && buffer.kind == BufferKind::gradients) continue;
      symbol.value = mix(b, 77);
      if (buffer.persistent && buffer.kind == BufferKind::weights) symbol = {0, 0, {{number(buffer.rank), mix(b, 78)}}};
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
      const BufferKind kind = schedule_.buffer(use.buffer).kind;
      return task.op != Op::update && task.op != Op::forward && use.access != Access::read &&
             (kind == BufferKind::gradients || kind == BufferKind::transfer);
    };
    for (std::size_t i = 0; i < uses.size(); ++i) {
      const Buffer& buffer = schedule_.buffer(uses[i].buffer);
      if (!reads(uses[i].access) || adds(uses[i])) continue;
      // The first stage starts from tokens and the last from the loss: what their streams hold does not matter.
      if (from_batch && buffer.persistent && buffer.kind == BufferKind::activations) continue;
      // The optimizer has its own copy of the weights.
      if (task.op == Op::update && buffer.kind == BufferKind::weights) continue;
      inputs = mix(inputs, i, at(uses[i]).hash());
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
      } else if (task.op == Op::update && buffer.kind == BufferKind::weights) {
        const std::uint64_t old = uses[i].access == Access::accumulate ? symbol.hash() : 0;
        symbol = {0, 0, {{number(buffer.rank), mix(inputs, 7, old)}}};
      } else {
        symbol = {mix(inputs, i, uses[i].access == Access::accumulate ? symbol.hash() : 0), 0, {}};
      }
    }
  }

  /// Whether a set of parameters has the one that is followed.
  bool followed(PiecesId pieces) const {
    const Transformer& model = schedule_.workload().model();
    for (const ParameterRange& range : schedule_.pieces(pieces)) {
      for (const StageWork& stage : schedule_.stages()) {
        for (const ParameterRange& all : ParameterOrder{model}.layers_of(stage)) {
          const double followed = static_cast<double>(all.begin) + part_ * static_cast<double>(all.count());
          if (static_cast<double>(range.begin) <= followed && followed < static_cast<double>(range.end)) return true;
        }
      }
    }
    return false;
  }
  bool carries(const Task& task, Rank member) const {
    if (task.split == none<SplitId> || schedule_.name() != "tawpipe") return true;
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
    if (is_point_to_point(task.op)) {
      copy(task.rank, [&](Rank rank) { return rank == task.peer; });
      if (task.op == Op::exchange) copy(task.peer, [&](Rank rank) { return rank == task.rank; });
    } else if (task.op == Op::broadcast) {
      copy(task.rank, [](Rank) { return true; });
    } else if (task.op == Op::all_gather) {
      Symbol all;
      for (std::size_t s = 0; s < uses.size(); ++s) {
        if (!reads(uses[s].access) || !carries(task, rank_of(uses[s]))) continue;
        bool also_reads = false;
        for (const Use& use : uses) also_reads = also_reads || (use.access == Access::read && rank_of(use) == rank_of(uses[s]));
        if (uses[s].access == Access::read_write && also_reads) continue;
        const Buffer& buffer = schedule_.buffer(uses[s].buffer);
        Symbol piece = found[s];
        if (buffer.persistent && buffer.kind == BufferKind::weights && buffer.stage == none<StageId>) {  // its unit alone
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
        // The result of a rooted sum appears at its root alone.
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
std::vector<double> parts_of(const Schedule& schedule) {
  std::size_t most = 1;
  if (schedule.name() != "tawpipe") return {0.5};
  for (std::size_t s = 0; s < schedule.parts().splits.size(); ++s) most = std::max(most, schedule.split(id<SplitId>(s)).size());
  std::vector<double> parts;
  for (std::size_t i = 0; i < most; ++i) parts.push_back((static_cast<double>(i) + 0.5) / static_cast<double>(most));
  return parts;
}

constexpr unsigned orders = 6;

std::vector<Bytes> bytes_of(const Schedule& schedule) {
  std::vector<Bytes> bytes;
  for (const Task& task : schedule.tasks()) bytes.push_back(task.bytes);
  return bytes;
}

/// Whether some order of the mutant ends in other weights than the schedule it came from, or does not end.
bool changes_behaviour(const Schedule& mutant, const Draft& draft, const std::vector<Bytes>& bytes,
                       const std::vector<std::vector<std::uint64_t>>& expected, Random& random) {
  if (!Interpreter::well_formed(mutant)) return true;
  std::vector<Bytes> known;
  for (const TaskId t : draft.origin) known.push_back(bytes[index(t)]);
  const std::vector<double> parts = parts_of(mutant);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Interpreter interpreter{mutant, known, parts[i]};
    for (unsigned policy = 0; policy < orders; ++policy) {
      if (interpreter.run(policy, random) != expected[i]) return true;
    }
  }
  return false;
}

/// Whether two uses of a buffer, one of them no read, lie in no order: by the closure of all edges.
bool has_race(const Schedule& schedule, const std::vector<TaskId>& order) {
  const std::size_t count = schedule.tasks().size();
  std::vector<std::vector<bool>> before(count, std::vector<bool>(count));
  std::vector<std::vector<std::size_t>> from(count);
  detail::for_each_wait(schedule, [&](std::size_t a, std::size_t b) { from[b].push_back(a); });
  for (const TaskId t : order) {
    auto& mine = before[index(t)];
    for (const std::size_t earlier : from[index(t)]) {
      mine[earlier] = true;
      for (std::size_t i = 0; i < count; ++i) mine[i] = mine[i] || before[earlier][i];
    }
  }
  std::vector<std::vector<std::pair<std::size_t, bool>>> users(schedule.buffers().size());
  for (std::size_t t = 0; t < count; ++t) {
    for (const Use& use : schedule.uses(id<TaskId>(t))) users[index(use.buffer)].emplace_back(t, use.access != Access::read);
  }
  for (const auto& all : users) {
    for (const auto& [a, a_writes] : all) {
      for (const auto& [b, b_writes] : all) {
        if (a < b && (a_writes || b_writes) && !before[a][b] && !before[b][a]) return true;
      }
    }
  }
  return false;
}

// ---- the mutations -------------------------------------------------------------------------------------------------

TaskId pick(const std::vector<TaskId>& tasks, Random& random) {
  return tasks.empty() ? none<TaskId> : tasks[below(random, tasks.size())];
}
bool any_task(TaskId, const Task&) { return true; }
bool communication(TaskId, const Task& task) { return !is_compute(task.op); }

/// Another buffer of the same rank, of the same kind if `alike`.
BufferId other_buffer(const Draft& draft, BufferId than, bool alike, Random& random) {
  std::vector<BufferId> found;
  const Buffer& old = draft.parts.buffers[index(than)];
  for (std::size_t b = 0; b < draft.parts.buffers.size(); ++b) {
    const Buffer& buffer = draft.parts.buffers[b];
    if (b == index(than) || buffer.rank != old.rank || buffer.kind == BufferKind::workspace) continue;
    if (!alike || buffer.kind == old.kind) found.push_back(id<BufferId>(b));
  }
  return found.empty() ? none<BufferId> : found[below(random, found.size())];
}

Use* pick_use(Draft& draft, Random& random) {
  const TaskId t = pick(draft.select([&](TaskId task, const Task&) { return !draft.uses[index(task)].empty(); }), random);
  if (t == none<TaskId>) return nullptr;
  auto& uses = draft.uses[index(t)];
  return &uses[below(random, uses.size())];
}

bool swap_neighbours(Draft& draft, Random& random) {
  auto& lane = draft.program[below(random, draft.program.size())];
  if (lane.size() < 2) return false;
  const std::size_t i = below(random, lane.size() - 1);
  std::swap(lane[i], lane[i + 1]);
  return true;
}
bool drop_from_one_end(Draft& draft, Random& random) {
  auto& lane = draft.program[below(random, draft.program.size())];
  if (lane.empty()) return false;
  lane.erase(lane.begin() + static_cast<std::ptrdiff_t>(below(random, lane.size())));
  return true;
}
bool drop_dependency(Draft& draft, Random& random) {
  auto& row = draft.dependencies[below(random, draft.dependencies.size())];
  if (row.empty()) return false;
  row.erase(row.begin() + static_cast<std::ptrdiff_t>(below(random, row.size())));
  return true;
}
bool drop_dependencies(Draft& draft, Random& random) {
  auto& row = draft.dependencies[below(random, draft.dependencies.size())];
  if (row.empty()) return false;
  row.clear();
  return true;
}
/// A writer no longer waits for those who read the buffer's old content: it is released too early.
bool release_early(Draft& draft, Random& random) {
  const TaskId t = pick(draft.select(any_task), random);
  auto& row = draft.dependencies[index(t)];
  const auto reads_what_t_writes = [&](TaskId earlier) {
    for (const Use& mine : draft.uses[index(t)]) {
      if (mine.access != Access::write) continue;
      for (const Use& theirs : draft.uses[index(earlier)]) {
        if (theirs.buffer == mine.buffer && theirs.access == Access::read) return true;
      }
    }
    return false;
  };
  const auto size = row.size();
  row.erase(std::remove_if(row.begin(), row.end(), reads_what_t_writes), row.end());
  return row.size() != size;
}
bool like_buffer(Draft& draft, Random& random) {
  Use* use = pick_use(draft, random);
  if (use == nullptr) return false;
  const BufferId other = other_buffer(draft, use->buffer, true, random);
  if (other == none<BufferId>) return false;
  use->buffer = other;
  return true;
}
bool any_buffer(Draft& draft, Random& random) {
  Use* use = pick_use(draft, random);
  if (use == nullptr) return false;
  const BufferId other = other_buffer(draft, use->buffer, false, random);
  if (other == none<BufferId>) return false;
  use->buffer = other;
  return true;
}
bool wrong_access(Draft& draft, Random& random) {
  Use* use = pick_use(draft, random);
  if (use == nullptr) return false;
  use->access = static_cast<Access>((static_cast<unsigned>(use->access) + 1 + below(random, 3)) % 4);
  return true;
}
bool forget_use(Draft& draft, Random& random) {
  auto& uses = draft.uses[below(random, draft.uses.size())];
  if (uses.empty()) return false;
  uses.erase(uses.begin() + static_cast<std::ptrdiff_t>(below(random, uses.size())));
  return true;
}
bool early_update(Draft& draft, Random& random) {
  const TaskId t = pick(draft.select([](TaskId, const Task& task) { return task.op == Op::update; }), random);
  if (t == none<TaskId>) return false;
  auto& lane = draft.lane(draft.task(t).rank, draft.task(t).lane);
  const auto at = std::find(lane.begin(), lane.end(), t);
  const auto to = lane.begin() + static_cast<std::ptrdiff_t>(below(random, static_cast<std::size_t>(at - lane.begin()) + 1));
  std::rotate(to, at, at + 1);
  draft.dependencies[index(t)].clear();
  return true;
}
bool remove_communication(Draft& draft, Random& random) {
  const TaskId t = pick(draft.select(communication), random);
  if (t != none<TaskId>) draft.remove(t);
  return t != none<TaskId>;
}
bool skip_computation(Draft& draft, Random& random) {
  draft.remove(pick(draft.select([](TaskId, const Task& task) { return is_work(task.op); }), random));
  return true;
}
bool wrong_root(Draft& draft, Random& random) {
  const TaskId t =
      pick(draft.select([](TaskId, const Task& task) { return task.op == Op::broadcast || task.op == Op::reduce; }), random);
  if (t == none<TaskId>) return false;
  const auto members = draft.parts.groups[index(draft.task(t).group)];
  const Rank other = members[below(random, members.size())];
  if (other == draft.task(t).rank) return false;
  draft.task(t).rank = other;
  return true;
}
/// The message goes to another rank, into a buffer of the same kind there.
bool wrong_peer(Draft& draft, Random& random) {
  const TaskId t = pick(draft.select([](TaskId, const Task& task) { return is_point_to_point(task.op); }), random);
  if (t == none<TaskId>) return false;
  Task& task = draft.task(t);
  const Rank other = id<Rank>(below(random, static_cast<std::size_t>(draft.parts.ranks)));
  if (other == task.rank || other == task.peer) return false;
  auto& old_lane = draft.lane(task.peer, task.peer_lane);
  auto& new_lane = draft.lane(other, task.peer_lane);
  old_lane.erase(std::find(old_lane.begin(), old_lane.end(), t));
  new_lane.insert(std::upper_bound(new_lane.begin(), new_lane.end(), t), t);
  for (Use& use : draft.uses[index(t)]) {
    const Buffer& old = draft.parts.buffers[index(use.buffer)];
    if (old.rank != task.peer) continue;
    for (std::size_t b = 0; b < draft.parts.buffers.size(); ++b) {
      const Buffer& buffer = draft.parts.buffers[b];
      if (buffer.rank == other && buffer.kind == old.kind) use.buffer = id<BufferId>(b);
    }
  }
  task.peer = other;
  return true;
}
bool wrong_stage(Draft& draft, Random& random) {
  Task& task = draft.task(pick(draft.select(any_task), random));
  const StageId other = id<StageId>(below(random, draft.parts.stages.size()));
  if (other == task.stage) return false;
  task.stage = other;
  return true;
}
/// Another set of parameters than those meant, or given to other members.
bool wrong_split(Draft& draft, Random& random) {
  const TaskId t = pick(draft.select([](TaskId, const Task& task) { return task.split != none<SplitId>; }), random);
  if (t == none<TaskId>) return false;
  Task& task = draft.task(t);
  const SplitId other = id<SplitId>(below(random, draft.parts.splits.size()));
  if (other == task.split || draft.parts.splits[index(other)].size() != draft.parts.splits[index(task.split)].size())
    return false;
  task.split = other;
  return true;
}
bool wrong_microbatch(Draft& draft, Random& random) {
  Task& task = draft.task(pick(draft.select([](TaskId, const Task& t) { return is_work(t.op) && t.op != Op::update; }), random));
  const auto other = static_cast<std::int32_t>(below(random, static_cast<std::size_t>(draft.workload.microbatches())));
  if (other == task.microbatch) return false;
  task.microbatch = other;
  return true;
}
bool double_task(Draft& draft, Random& random) {
  const TaskId t = pick(draft.select(any_task), random);
  const TaskId twin = id<TaskId>(draft.parts.tasks.size());
  draft.parts.tasks.push_back(draft.parts.tasks[index(t)]);
  draft.dependencies.push_back(draft.dependencies[index(t)]);
  draft.uses.push_back(draft.uses[index(t)]);
  draft.origin.push_back(draft.origin[index(t)]);
  for (const auto& [rank, lane] : draft.ends(t)) {
    auto& program = draft.lane(rank, lane);
    program.insert(std::find(program.begin(), program.end(), t) + 1, twin);
  }
  for (auto& row : draft.dependencies) {
    if (std::find(row.begin(), row.end(), t) != row.end()) row.push_back(twin);
  }
  return true;
}
bool half_message(Draft& draft, Random& random) {
  const TaskId t =
      pick(draft.select([](TaskId, const Task& task) { return !is_compute(task.op) && task.bytes > Bytes{1}; }), random);
  if (t == none<TaskId>) return false;
  draft.task(t).bytes = draft.task(t).bytes / 2;
  return true;
}
bool large_message(Draft& draft, Random& random) {
  const TaskId t = pick(draft.select(communication), random);
  if (t == none<TaskId>) return false;
  draft.task(t).bytes = draft.task(t).bytes * 3 + Bytes{1};
  return true;
}
/// Two communications change places on one of their ranks only.
bool interleave(Draft& draft, Random& random) {
  const TaskId t = pick(draft.select(communication), random);
  if (t == none<TaskId>) return false;
  const auto ends = draft.ends(t);
  const auto [rank, lane] = ends[below(random, ends.size())];
  auto& program = draft.lane(rank, lane);
  const auto at = std::find(program.begin(), program.end(), t);
  const auto next = std::find_if(at + 1, program.end(), [&](TaskId other) { return !is_compute(draft.task(other).op); });
  if (next == program.end()) return false;
  std::iter_swap(at, next);
  return true;
}
bool move_in_lane(Draft& draft, Random& random) {
  auto& lane = draft.program[below(random, draft.program.size())];
  if (lane.size() < 3) return false;
  const TaskId moved = lane[below(random, lane.size())];
  lane.erase(std::find(lane.begin(), lane.end(), moved));
  lane.insert(lane.begin() + static_cast<std::ptrdiff_t>(below(random, lane.size() + 1)), moved);
  return true;
}

struct Mutation {
  const char* name;
  bool (*apply)(Draft&, Random&);
};
constexpr Mutation mutations[] = {
    {"neighbours of a lane swapped", swap_neighbours},
    {"dropped at one end", drop_from_one_end},
    {"one dependency dropped", drop_dependency},
    {"all dependencies of a task dropped", drop_dependencies},
    {"buffer released too early", release_early},
    {"another buffer of the kind", like_buffer},
    {"another buffer", any_buffer},
    {"another access", wrong_access},
    {"a use forgotten", forget_use},
    {"early update", early_update},
    {"communication removed", remove_communication},
    {"computation removed", skip_computation},
    {"another root", wrong_root},
    {"another peer", wrong_peer},
    {"another stage", wrong_stage},
    {"another split", wrong_split},
    {"another microbatch", wrong_microbatch},
    {"task doubled", double_task},
    {"message halved", half_message},
    {"message enlarged", large_message},
    {"communications interleaved", interleave},
    {"moved within a lane", move_in_lane},
};

struct Counts {
  int changed = 0;  ///< and all of them found
  int flagged = 0;  ///< found, though no order tried ended otherwise
  int benign = 0;   ///< neither
};
std::array<Counts, std::size(mutations)>& table() {
  static std::array<Counts, std::size(mutations)> counts;
  return counts;
}

void mutate(const std::string& what, const Schedule& schedule, int rounds) {
  CAPTURE(what);
  const Diagnostics clean = validate(schedule);
  INFO(clean.text());
  REQUIRE(clean.errors() + clean.warnings() == 0);
  const std::vector<Bytes> bytes = bytes_of(schedule);
  Random random{20240229};
  std::vector<std::vector<std::uint64_t>> expected;
  for (const double part : parts_of(schedule)) {
    for (unsigned policy = 0; policy < 4 * orders; ++policy) {  // the oracle agrees: no order makes a difference
      const auto result = Interpreter{schedule, bytes, part}.run(policy, random);
      REQUIRE(!result.empty());
      if (policy == 0) expected.push_back(result);
      REQUIRE(result == expected.back());
    }
  }
  for (std::size_t kind = 0; kind < std::size(mutations); ++kind) {
    for (int round = 0; round < rounds; ++round) {
      Draft draft{schedule};
      if (!mutations[kind].apply(draft, random)) continue;
      const Schedule mutant = draft.make();
      const Diagnostics found = validate(mutant);
      const bool changed = changes_behaviour(mutant, draft, bytes, expected, random);
      Counts& counts = table()[kind];
      ++(changed ? counts.changed : !found.ok() ? counts.flagged : counts.benign);
      if (!changed || !found.ok()) continue;
      std::string difference;
      for (std::size_t t = 0; t < std::min(mutant.tasks().size(), schedule.tasks().size()); ++t) {
        const auto a = mutant.uses(id<TaskId>(t));
        const auto b = schedule.uses(id<TaskId>(t));
        const bool same = std::equal(a.begin(), a.end(), b.begin(), b.end(),
                                     [](const Use& x, const Use& y) { return x.buffer == y.buffer && x.access == y.access; });
        if (!same) difference += " uses of " + detail::describe(mutant, id<TaskId>(t));
        if (mutant.tasks()[t].bytes != schedule.tasks()[t].bytes)
          difference += " bytes of " + detail::describe(mutant, id<TaskId>(t));
        if (difference.size() > 300) break;
      }
      FAIL_CHECK("not found: " << std::string{mutations[kind].name} << " in round " << round << difference);
    }
  }
}

Workload model(int microbatches, bool tied = false, Recompute recompute = Recompute::none) {
  const Transformer transformer{
      .name = "m", .layers = 6, .hidden = 8, .heads = 4, .kv_heads = 2, .intermediate = 12, .vocab = 10, .tied = tied};
  return {transformer, {.sequence = 6, .microbatch_size = 1, .global_batch = microbatches}, recompute};
}

schedules::TawpipeOptions tawpipe_options(schedules::Order order, bool overlap) {
  schedules::TawpipeOptions options;
  options.order = order;
  options.overlap = overlap;
  return options;
}

/// Mutants that only take order away: check_races must agree with the closure, both ways.
void compare_races(const Schedule& schedule, int count) {
  Random random{7};
  int racing = 0;
  for (int round = 0; round < count; ++round) {
    Draft draft{schedule};
    for (std::size_t i = 0; i <= below(random, 3); ++i) drop_dependency(draft, random);
    if (below(random, 2) == 0) like_buffer(draft, random);
    const Schedule mutant = draft.make();
    Diagnostics found;
    const auto order = check_cycles(mutant, found);
    REQUIRE(order.size() == mutant.tasks().size());
    check_races(mutant, order, found);
    const bool expected = has_race(mutant, order);
    racing += expected ? 1 : 0;
    CHECK((found.has("V401") || found.has("V402")) == expected);
  }
  CHECK(racing > 0);
  CHECK(racing < count);
}

constexpr int rounds = 40;

}  // namespace

using schedules::Order;

TEST_CASE("mutants of TawPipe are found") {
  mutate("eager", schedules::tawpipe(model(8), DeviceGroups{{2, 2}}), rounds);
  mutate("paper order", schedules::tawpipe(model(8), DeviceGroups{{2, 2}}, tawpipe_options(Order::paper, true)), rounds);
}
TEST_CASE("mutants of TawPipe without overlap or with unequal groups are found") {
  mutate("no overlap", schedules::tawpipe(model(4), DeviceGroups{{2, 2}}, tawpipe_options(Order::eager, false)), rounds);
  mutate("unequal groups", schedules::tawpipe(model(5), DeviceGroups{{2, 1, 1}}), rounds);
}
TEST_CASE("mutants of striped TawPipe are found") {
  schedules::TawpipeOptions options;
  options.stripe = true;
  mutate("equal groups", schedules::tawpipe(model(8), DeviceGroups{{2, 2}}, options), rounds);
  mutate("unequal groups, a short last round", schedules::tawpipe(model(6), DeviceGroups{{2, 3}}, options), rounds / 2);
  options.buffers = 1;
  options.overlap = false;
  mutate("one buffer, no overlap", schedules::tawpipe(model(4), DeviceGroups{{2, 2}}, options), rounds / 2);
}
TEST_CASE("mutants of TawPipe on devices of different speeds are found") {
  schedules::TawpipeOptions options;
  options.speeds = {2, 2, 1, 1};
  mutate("two groups", schedules::tawpipe(model(7), DeviceGroups{{2, 2}}, options), rounds / 2);
  options.stripe = true;
  mutate("striped", schedules::tawpipe(model(6), DeviceGroups{{2, 2}}, options), rounds / 2);
}
TEST_CASE("mutants of WeiPipe are found") {
  mutate("paper order", schedules::weipipe(model(8), 4), rounds);
  mutate("eager, no overlap", schedules::weipipe(model(6), 3, {.order = Order::eager, .overlap = false}), rounds);
  mutate("naive", schedules::weipipe_naive(model(5), 3), rounds / 2);
}
TEST_CASE("mutants of zero-bubble WeiPipe are found") {
  mutate("one line", schedules::weipipe_zb1(model(5), 3), rounds);
  mutate("two lines, no overlap", schedules::weipipe_zb2(model(6), DeviceGroups{{2, 1}}, {.overlap = false}), rounds);
}
TEST_CASE("mutants of FSDP are found") {
  mutate("flat", schedules::fully_sharded(model(5), DeviceGroups{{2, 1}}), rounds);
  mutate("two-level", schedules::fully_sharded(model(8), DeviceGroups{{2, 2}}, {.two_level = true}), rounds);
}
TEST_CASE("mutants of FSDP with unequal groups or without resharding are found") {
  mutate("unequal groups", schedules::fully_sharded(model(5), DeviceGroups{{2, 1}}, {.two_level = true}), rounds);
  mutate("no resharding", schedules::fully_sharded(model(3), DeviceGroups{{3}}, {.reshard = false, .overlap = false}), rounds);
}
TEST_CASE("mutants of GPipe are found") {
  mutate("overlap", schedules::gpipe(model(6), 3), rounds);
  mutate("tied, no overlap", schedules::gpipe(model(4, true), 3, {.overlap = false}), rounds);
}
TEST_CASE("mutants of 1F1B are found") {
  mutate("overlap", schedules::one_f_one_b(model(6, true), 3), rounds);
  mutate("no overlap", schedules::one_f_one_b(model(6), 3, {.overlap = false}), rounds);
}
TEST_CASE("mutants of zero-bubble and interleaved pipelines are found") {
  mutate("ZB-H1", schedules::zb_h1(model(6), 3), rounds);
  mutate("interleaved", schedules::interleaved_one_f_one_b(model(4, true), 2, 2), rounds);
}
TEST_CASE("mutants of zero bubble with recomputation, whose backwards leave a stash, are found") {
  mutate("ZB-H1", schedules::zb_h1(model(6, false, Recompute::full), 3), rounds);
  mutate("ZB-H2, tied", schedules::zb_h2(model(5, true, Recompute::selective), 3), rounds);
  mutate("WeiPipe", schedules::weipipe_zb1(model(5, false, Recompute::full), 3), rounds / 2);
}
TEST_CASE("mutants of DDP, ZeRO and HSDP are found") {
  mutate("DDP", schedules::data_parallel(model(4, true), DeviceGroups{{3}}), rounds / 2);
  mutate("ZeRO-1", schedules::zero1(model(4), DeviceGroups{{3}}), rounds / 2);
  mutate("ZeRO-2", schedules::zero2(model(4), DeviceGroups{{3}}), rounds / 2);
  mutate("HSDP", schedules::hybrid_sharded(model(5), DeviceGroups{{2, 2}}), rounds / 2);
}
TEST_CASE("mutants of composed schedules are found") {
  const auto composed = [](const char* name, const Layout& layout, int logical, int microbatches,
                           Recompute recompute = Recompute::none) {
    const RankMap map{layout, logical * layout.per_logical_rank() * layout.data};
    const DeviceGroups nodes = logical % 2 == 0 ? DeviceGroups::even(logical, 2) : DeviceGroups::even(logical, 1);
    const Schedule one = build_schedule(name, {.workload = model(microbatches, false, recompute), .nodes = nodes, .options = {}});
    mutate(concat(name, " in a layout"), compose(one, model(microbatches * layout.data, false, recompute), layout, map),
           rounds / 2);
  };
  composed("1f1b", {.tensor = 2, .data = 2}, 2, 3);
  composed("1f1b", {.tensor = 2, .context = 2}, 2, 3);
  composed("zb-h1", {.context = 2, .data = 2}, 2, 3);
  composed("zb-h1", {.tensor = 2, .data = 2}, 2, 3, Recompute::full);
  composed("tawpipe", {.tensor = 2, .data = 2}, 2, 2);
  composed("fsdp", {.tensor = 2, .data = 2}, 2, 2);
  composed("zero1", {.context = 2, .data = 2}, 2, 2);
}
TEST_CASE("races are found exactly where two uses lie in no order") {
  compare_races(schedules::tawpipe(model(4), DeviceGroups{{2, 1}}), 40);
  compare_races(schedules::weipipe(model(4), 3), 40);
  compare_races(schedules::fully_sharded(model(3), DeviceGroups{{2, 1}}, {.two_level = true}), 20);
  compare_races(schedules::one_f_one_b(model(4), 3), 40);
}
TEST_CASE("every mutation has changed something somewhere, and harmless ones are few") {
  std::string text = "\nchanged (all found)  flagged  harmless  mutation\n";
  for (std::size_t kind = 0; kind < std::size(mutations); ++kind) {
    const Counts& counts = table()[kind];
    text += concat(counts.changed, "\t", counts.flagged, "\t", counts.benign, "\t", mutations[kind].name, "\n");
  }
  MESSAGE(text);
  for (std::size_t kind = 0; kind < std::size(mutations); ++kind) {
    CAPTURE(std::string{mutations[kind].name});
    const Counts& counts = table()[kind];
    CHECK((counts.changed > 0 || counts.changed + counts.flagged + counts.benign == 0));
  }
}
