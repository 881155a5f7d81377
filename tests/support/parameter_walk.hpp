// Runs a schedule's tasks by id on integers, one for each parameter that a buffer holds: an executor without arithmetic.
// Not: the order in which tasks may run (tawpipe/verify/check_races.hpp) nor other families than sharded data parallelism.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "support/graph_order.hpp"
#include "tawpipe/model/parameter_blocks.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace support {

/// Believes `Buffer::content` and `Task::split` and nothing else about who has what. A weight is old or new; a gradient is the
/// sum of numbers, one for each unit and microbatch that added to it; what is lost is a number that nothing else is.
class ParameterWalk {
 public:
  using Set = std::vector<tawpipe::ParameterRange>;

  explicit ParameterWalk(tawpipe::Schedule schedule)
      : schedule_{std::move(schedule)},
        order_{schedule_.workload().model().blocks()},
        count_{static_cast<std::size_t>(order_.count())} {
    updates_.assign(static_cast<std::size_t>(schedule_.ranks()), std::vector<int>(count_, 0));
    expected_.assign(count_, 0);
    for (std::size_t unit = 0; unit < schedule_.stages().size(); ++unit) {
      for (std::int64_t m = 0; m < schedule_.workload().microbatches(); ++m) {
        for_each(needs(unit), [&](std::size_t p) { expected_[p] += contribution(unit, m); });
      }
    }
    for (const tawpipe::Buffer& buffer : schedule_.buffers()) {
      contents_.emplace_back();
      if (!keeps_parameters(buffer)) continue;
      const std::int64_t held = tawpipe::parameters_in(pieces(buffer));
      if (buffer.bytes.value() != held * size(buffer.kind()))
        report(tawpipe::concat("buffer ", contents_.size() - 1, " has another size"));
      if (!buffer.persistent || buffer.kind() == BufferKind::transfer) continue;
      contents_.back().assign(count_, lost());
      const std::uint64_t initial = buffer.kind() == BufferKind::gradients ? 0 : old_weight;
      for_each(pieces(buffer), [&](std::size_t p) { contents_.back()[p] = initial; });
    }
  }

  /// What went wrong, empty if nothing.
  std::vector<std::string> run() {
    for (task_ = 0; task_ < schedule_.tasks().size(); ++task_) {
      const tawpipe::Task& task = schedule_.tasks()[task_];
      switch (task.op) {
        case Op::forward:
        case Op::backward:
          compute(task);
          break;
        case Op::all_gather:
          gather(task);
          break;
        case Op::reduce_scatter:
        case Op::all_reduce:
          sum(task);
          break;
        case Op::update:
          update(task);
          break;
        default:
          report("is none of sharded data parallelism's");
      }
    }
    for (std::size_t b = 0; b < contents_.size(); ++b) {
      const tawpipe::Buffer& buffer = schedule_.buffers()[b];
      if (buffer.kind() != BufferKind::weights) continue;
      for_each(pieces(buffer), [&](std::size_t p) {
        if (contents_[b][p] != new_weight)
          found_.push_back(tawpipe::concat("parameter ", p, " of buffer ", b, " is not updated"));
      });
    }
    return std::move(found_);
  }

  /// [rank][parameter] how often a rank's updates had it.
  const std::vector<std::vector<int>>& updates() const { return updates_; }

 private:
  using Access = tawpipe::Access;
  using BufferKind = tawpipe::BufferKind;
  using Op = tawpipe::Op;
  static constexpr std::uint64_t old_weight = 1;
  static constexpr std::uint64_t new_weight = 2;

  /// What a member of a collective takes from and leaves its result in.
  struct Ends {
    const tawpipe::Use* from = nullptr;
    const tawpipe::Use* to = nullptr;
  };

  static std::uint64_t random(std::uint64_t x) {
    x = (x + 0x9e3779b97f4a7c15U) * 0xbf58476d1ce4e5b9U;
    return (x ^ (x >> 29)) * 0x94d049bb133111ebU;
  }
  std::uint64_t lost() { return random(1'000'000'007U * ++lost_); }
  static std::uint64_t contribution(std::size_t unit, std::int64_t microbatch) {
    return random(unit * 1'003 + static_cast<std::uint64_t>(microbatch) + 1);
  }
  static bool keeps_parameters(const tawpipe::Buffer& buffer) {
    return buffer.kind() != BufferKind::activations && buffer.kind() != BufferKind::workspace;
  }
  /// Bytes of one parameter; copies on the move are weights or gradients, which take the same here.
  std::int64_t size(BufferKind kind) const {
    const auto& bytes = schedule_.workload().parameter_bytes();
    return kind == BufferKind::optimizer ? bytes.optimizer : bytes.weight;
  }
  void report(const std::string& what) {
    if (found_.size() < 20) found_.push_back(describe(schedule_, task_) + ": " + what);
  }

  template <class Visit>
  static void for_each(const Set& set, Visit&& visit) {
    for (const tawpipe::ParameterRange& range : set) {
      for (std::int64_t p = range.begin; p < range.end; ++p) visit(static_cast<std::size_t>(p));
    }
  }
  Set needs(std::size_t unit) const { return order_.all_of(schedule_.stages()[unit]); }
  Set set(tawpipe::PiecesId id) const {
    const auto ranges = schedule_.pieces(id);
    return {ranges.begin(), ranges.end()};
  }
  Set pieces(const tawpipe::Buffer& buffer) const { return set(buffer.content.parameters()); }
  /// [member]
  std::vector<Set> split(const tawpipe::Task& task) {
    const std::size_t members = schedule_.group(task.group).size();
    if (task.split == tawpipe::none<tawpipe::SplitId>) {
      report("does not say what it carries");
      return std::vector<Set>(members);
    }
    const auto ids = schedule_.split(task.split);
    std::vector<Set> sets;
    for (const tawpipe::PiecesId id : ids) sets.push_back(set(id));
    if (task.op == Op::all_reduce && sets.size() == 1) return std::vector<Set>(members, sets[0]);
    if (sets.size() != members) report("has a split of another length than its group");
    sets.resize(members);
    return sets;
  }

  std::span<const tawpipe::Use> uses() const { return schedule_.uses(tawpipe::id<tawpipe::TaskId>(task_)); }
  const tawpipe::Buffer& buffer(const tawpipe::Use& use) const { return schedule_.buffer(use.buffer); }
  std::vector<std::uint64_t>& at(const tawpipe::Use& use) {
    auto& content = contents_[index(use.buffer)];
    if (content.empty()) content.assign(count_, lost());
    return content;
  }
  /// [parameter] the buffer has room for it
  std::vector<char> room(const tawpipe::Use& use) const {
    std::vector<char> room(count_, 0);
    for_each(pieces(buffer(use)), [&](std::size_t p) { room[p] = 1; });
    return room;
  }
  void require(const tawpipe::Use* use, const Set& set, const char* what) {
    if (tawpipe::parameters_in(set) == 0) return;
    if (use == nullptr) return report(what);
    const auto room = this->room(*use);
    for_each(set, [&](std::size_t p) {
      if (room[p] == 0) report(tawpipe::concat(what, ": parameter ", p));
    });
  }

  void compute(const tawpipe::Task& task) {
    const Set needed = needs(index(task.stage));
    std::vector<char> here(count_, 0);
    for (const tawpipe::Use& use : uses()) {
      if (!keeps_parameters(buffer(use))) continue;
      if (buffer(use).rank != task.rank) report("uses another rank's buffer");
      if (use.access != Access::read) continue;
      for_each(pieces(buffer(use)), [&](std::size_t p) {
        if (at(use)[p] == old_weight) here[p] = 1;
      });
    }
    for_each(needed, [&](std::size_t p) {
      if (here[p] == 0) report(tawpipe::concat("lacks parameter ", p));
    });
    if (task.op == Op::forward) return;
    const tawpipe::Use* left = nullptr;
    for (const tawpipe::Use& use : uses()) {
      if (keeps_parameters(buffer(use)) && use.access != Access::read) left = &use;
    }
    require(left, needed, "has no room for its gradient");
    if (left == nullptr) return;
    if (left->access == Access::write) at(*left).assign(count_, 0);
    for_each(needed, [&](std::size_t p) { at(*left)[p] += contribution(index(task.stage), task.microbatch); });
  }

  Ends ends(tawpipe::Rank member) {
    Ends ends;
    for (const tawpipe::Use& use : uses()) {
      if (buffer(use).rank != member) continue;
      if (use.access == Access::read || (use.access == Access::read_write && ends.from == nullptr)) ends.from = &use;
      if (use.access == Access::read) continue;
      results_.push_back(&use);
      ends.to = &use;
    }
    return ends;
  }

  void check_size(const tawpipe::Task& task, std::int64_t carried) {
    if (task.bytes.value() != carried * schedule_.workload().parameter_bytes().weight) {
      report(tawpipe::concat("moves ", task.bytes.value(), " bytes of ", carried, " parameters"));
    }
  }

  void gather(const tawpipe::Task& task) {
    const auto members = schedule_.group(task.group);
    const auto sets = split(task);
    std::vector<std::optional<std::uint64_t>> gathered(count_);
    results_.clear();
    std::int64_t carried = 0;
    for (const Set& set : sets) carried += tawpipe::parameters_in(set);
    check_size(task, carried);
    for (std::size_t i = 0; i < members.size(); ++i) {
      const Ends own = ends(members[i]);
      require(own.from, sets[i], "gathers from where nothing is");
      if (own.from == nullptr) continue;
      for_each(sets[i], [&](std::size_t p) {
        if (gathered[p]) report(tawpipe::concat("gathers parameter ", p, " twice"));
        gathered[p] = at(*own.from)[p];
      });
    }
    for (const tawpipe::Use* to : results_) {
      const auto room = this->room(*to);
      if (to->access == Access::write) at(*to).assign(count_, lost());
      for (std::size_t p = 0; p < count_; ++p) {
        if (gathered[p] && room[p] != 0) at(*to)[p] = *gathered[p];
      }
    }
  }

  void sum(const tawpipe::Task& task) {
    const auto members = schedule_.group(task.group);
    const auto sets = split(task);
    Set all;
    std::vector<int> kept(count_, 0);
    for (const Set& set : sets) {
      for_each(set, [&](std::size_t p) {
        if (kept[p]++ == 0) all.push_back({static_cast<std::int64_t>(p), static_cast<std::int64_t>(p) + 1});
        if (task.op == Op::reduce_scatter && kept[p] > 1) report(tawpipe::concat("keeps parameter ", p, " twice"));
      });
    }
    check_size(task, tawpipe::parameters_in(all));
    std::vector<std::uint64_t> total(count_, 0);
    std::vector<Ends> ends;
    results_.clear();
    for (const tawpipe::Rank member : members) {
      ends.push_back(this->ends(member));
      const tawpipe::Use* from = ends.back().from;
      if (from == nullptr) continue;  // adds zeros
      require(from, all, "sums what is not there");
      for_each(all, [&](std::size_t p) { total[p] += at(*from)[p]; });
    }
    for (std::size_t i = 0; i < members.size(); ++i) {
      const tawpipe::Use* to = ends[i].to;
      require(to, sets[i], "has no room for the sum");
      if (to == nullptr) continue;
      if (to->access == Access::write) at(*to).assign(count_, lost());
      if (to->access == Access::read_write) for_each(all, [&](std::size_t p) { at(*to)[p] = lost(); });
      for_each(sets[i], [&](std::size_t p) { at(*to)[p] = total[p] + (to->access == Access::accumulate ? at(*to)[p] : 0); });
    }
  }

  void update(const tawpipe::Task& task) {
    const tawpipe::Use* weights = nullptr;
    const tawpipe::Use* gradients = nullptr;
    const tawpipe::Use* optimizer = nullptr;
    for (const tawpipe::Use& use : uses()) {
      if (buffer(use).rank != task.rank) report("uses another rank's buffer");
      if (buffer(use).kind() == BufferKind::weights) weights = &use;
      if (buffer(use).kind() == BufferKind::gradients) gradients = &use;
      if (buffer(use).kind() == BufferKind::optimizer) optimizer = &use;
    }
    if (weights == nullptr || gradients == nullptr || optimizer == nullptr) return report("lacks a model state");
    const Set set = pieces(buffer(*optimizer));
    require(weights, set, "updates weights that are not there");
    require(gradients, set, "updates by gradients that are not there");
    std::int64_t states = 0;
    for (const tawpipe::Use& use : uses()) states += size(buffer(use).kind());
    if (task.bytes.value() != states * tawpipe::parameters_in(set)) report("touches another number of bytes");
    for_each(set, [&](std::size_t p) {
      if (at(*gradients)[p] != expected_[p]) report(tawpipe::concat("has another gradient of parameter ", p));
      if (at(*weights)[p] != old_weight) report(tawpipe::concat("updates parameter ", p, " that is lost or new"));
      at(*weights)[p] = new_weight;
      ++updates_[index(task.rank)][p];
    });
  }

  tawpipe::Schedule schedule_;
  tawpipe::ParameterBlocks order_;
  std::size_t count_;
  std::size_t task_ = 0;
  std::uint64_t lost_ = 0;
  std::vector<std::uint64_t> expected_;               ///< [parameter] the gradient of all microbatches
  std::vector<std::vector<std::uint64_t>> contents_;  ///< [buffer][parameter] empty before its first use
  std::vector<const tawpipe::Use*> results_;          ///< of the collective in the making
  std::vector<std::vector<int>> updates_;
  std::vector<std::string> found_;
};

}  // namespace support
