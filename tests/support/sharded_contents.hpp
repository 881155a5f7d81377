// Runs a sharded schedule on labels, piece by piece of each unit: which weights are where, and whose gradients were added.
// Not: the order in which tasks may run; it runs them by id (tawpipe/verify/check_races.hpp shows that order is enough).
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "support/graph_order.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/schedules/sharding_plan.hpp"
#include "tawpipe/topology/device_group.hpp"

namespace support {

/// Which pieces of a unit a rank holds: of its node's copy, and of the copy that all ranks share. Written down from the
/// definitions, not from the builder: where weights are cut over all ranks (or one ring spans all), a piece is a rank's, and
/// a rank stands for those ranks of other nodes whose place is its own modulo its node's size; elsewhere pieces are parts as
/// small as all nodes' even cuts ask for, each again in one for each node.
class Pieces {
 public:
  Pieces(const tawpipe::DeviceGroups& nodes, bool by_rank) {
    std::int64_t fine = 1;
    for (int g = 0; g < nodes.count(); ++g) fine = std::lcm(fine, std::int64_t{nodes.size(g)});
    count_ = static_cast<std::size_t>(by_rank ? nodes.ranks() : fine * nodes.count());
    for (int r = 0; r < nodes.ranks(); ++r) {
      const int group = nodes.group_of(r);
      const int size = nodes.size(group);
      const int place = r - nodes.first(group);
      std::vector<char> node(count_, 0);
      std::vector<char> own(count_, 0);
      for (std::size_t p = 0; p < count_; ++p) {
        const auto piece = static_cast<std::int64_t>(p);
        if (by_rank) {
          const int holder = static_cast<int>(piece);
          node[p] = (holder - nodes.first(nodes.group_of(holder))) % size == place ? 1 : 0;
          own[p] = holder == r ? 1 : 0;
        } else {
          node[p] = piece / nodes.count() * size / fine == place ? 1 : 0;
          own[p] = node[p] != 0 && piece % nodes.count() == group ? 1 : 0;
        }
      }
      node_.push_back(std::move(node));
      all_.push_back(std::move(own));
    }
  }

  std::size_t count() const { return count_; }
  bool in_node(tawpipe::Rank rank, std::size_t piece) const { return node_[index(rank)][piece] != 0; }
  bool in_all(tawpipe::Rank rank, std::size_t piece) const { return all_[index(rank)][piece] != 0; }
  bool holds(tawpipe::schedules::Scope scope, tawpipe::Rank rank, std::size_t piece) const {
    using tawpipe::schedules::Scope;
    return scope == Scope::replicated || (scope == Scope::node ? in_node(rank, piece) : in_all(rank, piece));
  }

 private:
  std::size_t count_ = 0;
  std::vector<std::vector<char>> node_;  ///< [rank][piece]
  std::vector<std::vector<char>> all_;   ///< [rank][piece]
};

/// Runs a schedule's tasks by id and collects what goes wrong: a computation without its weights or its saved activations, a
/// message of the wrong size or of pieces that are not there, an update without each microbatch's gradient once, weights that
/// are old at the end.
class ShardedContents {
 public:
  ShardedContents(const tawpipe::Schedule& schedule, const tawpipe::DeviceGroups& nodes,
                  const tawpipe::schedules::ShardingPlan& plan)
      : schedule_{schedule},
        nodes_{nodes},
        plan_{plan},
        pieces_{nodes, plan.weights == Scope::all || (plan.weights == Scope::replicated && !plan.two_level)},
        units_{schedule.stages().size()} {
    const auto& work = schedule.workload();
    tied_ = !work.is_abstract() && work.model().tied;
    for (const auto& buffer : schedule.buffers()) {
      Content content;
      if (buffer.persistent && buffer.kind() == BufferKind::weights) {
        content.weights.assign(cells(), nothing);
        for_each_cell(buffer, [&](std::size_t cell, std::size_t piece) {
          if (pieces_.holds(plan_.weights, buffer.rank, piece)) content.weights[cell] = old_weights;
        });
      }
      if (buffer.persistent && buffer.kind() == BufferKind::gradients) content.gradients.assign(cells(), 0);
      contents_.push_back(std::move(content));
    }
  }

  /// What went wrong, empty if nothing.
  std::vector<std::string> run() {
    std::vector<int> seen(2 * units_ * static_cast<std::size_t>(schedule_.workload().microbatches()), 0);
    for (task_ = 0; task_ < schedule_.tasks().size(); ++task_) {
      const auto& task = schedule_.tasks()[task_];
      switch (task.op) {
        case Op::forward:
        case Op::backward:
          ++seen[(static_cast<std::size_t>(task.microbatch) * units_ + index(task.stage)) * 2 + (task.op == Op::forward ? 0 : 1)];
          compute(task);
          break;
        case Op::update:
          update(task);
          break;
        case Op::all_gather:
          if (task.payload == tawpipe::Payload::weights) {
            gather(task);
          } else {
            sum(task);
          }
          break;
        case Op::reduce_scatter:
        case Op::all_reduce:
          sum(task);
          break;
        default:
          report("is none of sharded data parallelism's");
      }
    }
    for (const int times : seen) {
      if (times != 1) found_.push_back(tawpipe::concat("a computation comes ", times, " times"));
    }
    for (std::size_t b = 0; b < contents_.size(); ++b) {
      const auto& buffer = schedule_.buffers()[b];
      if (!buffer.persistent || buffer.kind() != BufferKind::weights) continue;
      for_each_cell(buffer, [&](std::size_t cell, std::size_t piece) {
        if (pieces_.holds(plan_.weights, buffer.rank, piece) && contents_[b].weights[cell] != new_weights) {
          found_.push_back(tawpipe::concat("buffer ", b, " of rank ", number(buffer.rank), " is old at the end"));
        }
      });
    }
    return std::move(found_);
  }

 private:
  using Access = tawpipe::Access;
  using BufferKind = tawpipe::BufferKind;
  using Op = tawpipe::Op;
  using Scope = tawpipe::schedules::Scope;
  static constexpr char nothing = 0;
  static constexpr char old_weights = 1;
  static constexpr char new_weights = 2;

  /// [unit][piece] of states and of what is on its way. A gradient is the sum of random numbers, one for each unit and
  /// microbatch added; what is no sum any more is another random number.
  struct Content {
    std::vector<char> weights;
    std::vector<std::uint64_t> gradients;
    std::int64_t saved = -1;  ///< unit * microbatches + microbatch of saved activations
  };

  std::size_t cells() const { return units_ * pieces_.count(); }
  std::size_t cell(std::size_t unit, std::size_t piece) const { return unit * pieces_.count() + piece; }
  static std::uint64_t random(std::uint64_t x) {
    x = (x + 0x9e3779b97f4a7c15U) * 0xbf58476d1ce4e5b9U;
    return (x ^ (x >> 29)) * 0x94d049bb133111ebU;
  }
  std::uint64_t contribution(std::size_t unit, std::int64_t microbatch) const {
    return random(unit * 1'000'003 + static_cast<std::uint64_t>(microbatch) + 1);
  }

  void report(const std::string& what) {
    if (found_.size() < 20) found_.push_back(describe(schedule_, task_) + ": " + what);
  }
  std::span<const tawpipe::Use> uses() const { return schedule_.uses(tawpipe::id<tawpipe::TaskId>(task_)); }
  const tawpipe::Buffer& buffer(const tawpipe::Use& use) const { return schedule_.buffer(use.buffer); }
  Content& at(const tawpipe::Use& use) { return contents_[tawpipe::index(use.buffer)]; }
  static bool takes(Access access) { return access == Access::read || access == Access::read_write; }

  /// The cells that a persistent buffer can have: those of its unit, or of all units. A tied head's are the embedding's.
  template <class Visit>
  void for_each_cell(const tawpipe::Buffer& buffer, Visit&& visit) const {
    for (std::size_t u = 0; u < units_; ++u) {
      if (buffer.stage() != tawpipe::none<tawpipe::StageId> && !belongs(u, index(buffer.stage()))) continue;
      for (std::size_t p = 0; p < pieces_.count(); ++p) visit(cell(u, p), p);
    }
  }
  bool belongs(std::size_t unit, std::size_t stage) const {
    return unit == stage ||
           (tied_ && plan_.weights != Scope::all && schedule_.stages()[unit].head && schedule_.stages()[stage].embedding);
  }

  void compute(const tawpipe::Task& task) {
    const auto unit = index(task.stage);
    const std::int64_t saved = static_cast<std::int64_t>(unit) * schedule_.workload().microbatches() + task.microbatch;
    std::vector<char> here(pieces_.count(), nothing);
    bool has_saved = task.op == Op::forward;
    bool leaves = task.op == Op::forward;
    for (const auto& use : uses()) {
      Content& content = at(use);
      if (buffer(use).rank != task.rank) report("uses a buffer of another rank");
      if (buffer(use).kind() == BufferKind::activations) {
        if (use.access == Access::write) content.saved = saved;
        has_saved = has_saved || content.saved == saved;
        continue;
      }
      if (use.access == Access::read) {
        if (content.weights.empty()) content.weights.assign(cells(), nothing);
        for (std::size_t p = 0; p < pieces_.count(); ++p) here[p] = std::max(here[p], content.weights[cell(unit, p)]);
        continue;
      }
      if (use.access == Access::write) content.gradients.assign(cells(), 0);
      if (content.gradients.empty()) return report("adds to nothing");
      for (std::size_t p = 0; p < pieces_.count(); ++p) content.gradients[cell(unit, p)] += contribution(unit, task.microbatch);
      leaves = true;
    }
    const auto& work = schedule_.stage(task.stage);
    if (work.parameters + work.edge_parameters == 0) return;
    for (const char piece : here) {
      if (piece != old_weights) return report(piece == nothing ? "lacks weights" : "computes with new weights");
    }
    if (!has_saved) report("lacks its saved activations");
    if (!leaves) report("leaves its gradient nowhere");
  }

  /// Whether the piece travels in the task: inside a node and over all ranks each does, along a rail those that all members
  /// hold for their nodes.
  bool travels(const tawpipe::Task& task, std::size_t piece) const {
    const auto members = schedule_.group(task.group);
    if (inside(task) || members.size() == static_cast<std::size_t>(schedule_.ranks())) return true;
    return std::ranges::all_of(members, [&](auto rank) { return pieces_.in_node(rank, piece); });
  }
  bool inside(const tawpipe::Task& task) const {
    const auto members = schedule_.group(task.group);
    return nodes_.group_of(number(members.front())) == nodes_.group_of(number(members.back()));
  }
  /// Whether `rank` gives the piece in a gather, or keeps it in a reduce-scatter.
  bool has(const tawpipe::Task& task, tawpipe::Rank rank, std::size_t piece) const {
    return inside(task) ? pieces_.in_node(rank, piece) : pieces_.in_all(rank, piece);
  }

  /// The message is as large as the pieces that travel, but for less than a parameter that rounding takes or adds: two of a tied
  /// head, whose norm and matrix are cut apart. Exactly: support/parameter_walk.hpp.
  void check_size(const tawpipe::Task& task) {
    std::int64_t whole = 0;
    for (std::size_t u = 0; u < units_; ++u) {
      if (!belongs(u, index(task.stage))) continue;
      const auto& work = schedule_.stages()[u];
      whole = std::max(whole, work.parameters + work.edge_parameters);
    }
    const auto& bytes = schedule_.workload().parameter_bytes();
    const std::int64_t one = task.payload == tawpipe::Payload::weights ? bytes.weight : bytes.gradient;
    whole *= one;
    std::int64_t travelling = 0;
    for (std::size_t p = 0; p < pieces_.count(); ++p) travelling += travels(task, p) ? 1 : 0;
    const bool edge = schedule_.stage(task.stage).embedding || schedule_.stage(task.stage).head;
    const std::int64_t rounding = tied_ && edge ? 2 * one : one;
    const auto expected = whole * travelling / static_cast<std::int64_t>(pieces_.count());
    // an embedding's own message may go without the final norm that lies with a tied matrix
    const bool tied_embedding = tied_ && schedule_.stage(task.stage).embedding;
    if (task.bytes.value() > expected + rounding || (!tied_embedding && task.bytes.value() < expected - rounding)) {
      report(tawpipe::concat("moves ", task.bytes.value(), " instead of ", expected, " bytes"));
    }
  }

  void gather(const tawpipe::Task& task) {
    check_size(task);
    std::vector<char> gathered(cells(), nothing);
    for (const auto& use : uses()) {
      if (!takes(use.access) || at(use).weights.empty()) continue;
      for (std::size_t c = 0; c < cells(); ++c) {
        const std::size_t piece = c % pieces_.count();
        const bool gives = has(task, buffer(use).rank, piece) && travels(task, piece) && of_stage(task, c);
        if (gives) gathered[c] = std::max(gathered[c], at(use).weights[c]);
      }
    }
    for (const auto& use : uses()) {
      if (use.access == Access::read) continue;
      auto& weights = at(use).weights;
      if (use.access == Access::write || weights.empty()) weights.assign(cells(), nothing);
      for (std::size_t c = 0; c < cells(); ++c) {
        if (gathered[c] == nothing) continue;
        // a buffer as small as a slice keeps the slice
        const bool slice = buffer(use).kind() == BufferKind::transfer && buffer(use).persistent;
        if (!slice || pieces_.in_node(buffer(use).rank, c % pieces_.count())) weights[c] = gathered[c];
      }
    }
  }
  bool of_stage(const tawpipe::Task& task, std::size_t cell) const { return belongs(cell / pieces_.count(), index(task.stage)); }

  /// reduce-scatter, all-reduce, and the all-gather of a sum.
  void sum(const tawpipe::Task& task) {
    check_size(task);
    const bool gathers = task.op == Op::all_gather;
    std::vector<std::uint64_t> total(cells(), 0);
    for (const auto& use : uses()) {
      if (!takes(use.access)) continue;
      if (at(use).gradients.empty()) return report("sums what nobody has written");
      for (std::size_t c = 0; c < cells(); ++c) {
        if (!gathers || has(task, buffer(use).rank, c % pieces_.count())) total[c] += at(use).gradients[c];
      }
    }
    for (const auto& use : uses()) {
      if (use.access == Access::read) continue;
      auto& gradients = at(use).gradients;
      if (use.access == Access::write) gradients.assign(cells(), random(task_));
      for (std::size_t c = 0; c < cells(); ++c) {
        const std::size_t piece = c % pieces_.count();
        if (!travels(task, piece)) continue;
        const bool kept = task.op != Op::reduce_scatter || has(task, buffer(use).rank, piece);
        if (use.access == Access::accumulate) {
          if (kept) gradients[c] += total[c];
        } else {
          gradients[c] = kept ? total[c] : random(task_ + c);
        }
      }
    }
  }

  void update(const tawpipe::Task& task) {
    const Content* gradients = nullptr;
    Content* weights = nullptr;
    for (const auto& use : uses()) {
      if (buffer(use).rank != task.rank || buffer(use).stage() != task.stage) report("uses what is not its own");
      if (buffer(use).kind() == BufferKind::gradients) gradients = &at(use);
      if (buffer(use).kind() == BufferKind::weights) weights = &at(use);
    }
    if (gradients == nullptr || weights == nullptr) return report("lacks gradients or weights");
    tawpipe::Buffer own;
    own.content = {tawpipe::ContentKind::weights, task.stage, tawpipe::none<tawpipe::PiecesId>};
    for_each_cell(own, [&](std::size_t c, std::size_t piece) {
      const auto& work = schedule_.stages()[c / pieces_.count()];
      if (!pieces_.holds(plan_.optimizer, task.rank, piece)) return;
      std::uint64_t expected = 0;
      for (std::int64_t m = 0; m < schedule_.workload().microbatches(); ++m) expected += contribution(c / pieces_.count(), m);
      if (work.parameters + work.edge_parameters > 0 && gradients->gradients[c] != expected) report("has another gradient");
      if (weights->weights[c] != old_weights) report("has no weights to update, or updates twice");
      weights->weights[c] = new_weights;
    });
  }

  const tawpipe::Schedule& schedule_;
  const tawpipe::DeviceGroups& nodes_;
  tawpipe::schedules::ShardingPlan plan_;
  Pieces pieces_;
  std::size_t units_;
  bool tied_ = false;
  std::size_t task_ = 0;
  std::vector<Content> contents_;  ///< [buffer]
  std::vector<std::string> found_;
};

}  // namespace support
