// Flows over shared links: rates are max-min fair, recomputed where a start or an end changes them.
// Not: when tasks become ready (simulate/engine.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/ids.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/cost/cost_model.hpp"
#include "tawpipe/simulate/wide_sum.hpp"

namespace tawpipe::inline v0 {

/// Max-min fair sharing of links among flows. A flow of rate x uses x * weight of each link it
/// loads; no flow can be made faster without slowing one that is not faster.
///
/// Every flow has a bottleneck: a saturated link on which no flow is faster; the rate of the
/// fastest is the link's level. Only one set of rates, the fair one, has this property. After a
/// change it is restored by one sweep over the levels from low to high, as progressive filling
/// would, but a link is opened only when a flow that crosses it has a new rate: links below the
/// change, or beyond an unchanged bottleneck, are not visited.
///
/// Source: Bertsekas and Gallager, Data Networks, 2nd ed., section 6.5.2 (bottlenecks, progressive
/// filling).
class LinkSharing {
 public:
  using FlowIndex = std::int32_t;

  /// @param capacities  [link] bytes a second
  /// @param fraction_bits  times are counted in picoseconds divided by two to this power
  explicit LinkSharing(std::span<const double> capacities, int fraction_bits = 0)
      : ticks_per_second_{1e12 * static_cast<double>(std::int64_t{1} << fraction_bits)} {
    links_.resize(capacities.size());
    for (std::size_t i = 0; i < capacities.size(); ++i) links_[i].capacity = capacities[i];
  }

  /// Starts a flow of `bytes` over `loads` (which must outlive it) at `now`; its rate is known
  /// after solve().
  FlowIndex start(std::int32_t task, double bytes, std::span<const LinkLoad> loads, std::int64_t now) {
    FlowIndex index = 0;
    if (free_.empty()) {
      index = static_cast<FlowIndex>(flows_.size());
      flows_.emplace_back();
    } else {
      index = free_.back();
      free_.pop_back();
    }
    Flow& flow = flows_[at(index)];
    flow.loads = loads;
    flow.remaining = bytes;
    flow.rate = 0;
    flow.updated = now;
    flow.task = task;
    flow.bottleneck = none<LinkId>;
    for (const LinkLoad& load : loads) link_at(load.link).members.push_back({index, load.weight});
    started_.push_back(index);
    return index;
  }

  /// Ends a flow; flows that shared a link with it may become faster at the next solve().
  void finish(FlowIndex index) {
    Flow& flow = flows_[at(index)];
    for (const LinkLoad& load : flow.loads) {
      Link& loaded = link_at(load.link);
      auto member = loaded.members.begin();
      while (member->flow != index) ++member;
      *member = loaded.members.back();
      loaded.members.pop_back();
      if (loaded.members.empty()) {
        loaded.level = endless;
      } else if (loaded.level < endless) {
        freed_.push_back(load.link);
      }
    }
    flow.loads = {};
    free_.push_back(index);
  }

  /// Updates the rates after changes since the last call and reports each flow with a new rate:
  /// `report(flow, task, finish)` with its finish at these rates.
  /// @throws InputError  if a flow would last longer than the range of time.
  template <class Report>
  void solve(std::int64_t now, Report&& report) {
    if (started_.empty() && freed_.empty()) return;
    sweep();
    for (const FlowIndex index : decided_) {
      Flow& flow = flows_[at(index)];
      if (flow.new_rate == flow.rate) continue;
      flow.remaining = std::max(0.0, flow.remaining - flow.rate * (static_cast<double>(now - flow.updated) / ticks_per_second_));
      flow.updated = now;
      flow.rate = flow.new_rate;
      const double finish = flow.remaining / flow.rate * ticks_per_second_ + 0.5;
      if (!(finish < 9.2e18 - static_cast<double>(now))) {
        throw InputError(concat("the message of task ", flow.task, " would take too long: a simulation may span 106 days"));
      }
      report(index, flow.task, now + static_cast<std::int64_t>(finish));
    }
  }

  std::int32_t task(FlowIndex flow) const { return flows_[at(flow)].task; }
  /// Bytes a second, as of the last solve().
  double rate(FlowIndex flow) const { return flows_[at(flow)].rate; }

 private:
  static constexpr double endless = std::numeric_limits<double>::infinity();
  /// Rates this close are equal: sums in a different order differ by less, and must not spread as
  /// if something had changed.
  static constexpr double same = 1e-13;

  struct Member {
    FlowIndex flow;
    double weight;
  };
  struct Link {
    double capacity = 0;
    double level = endless;  ///< the fastest rate on it if it is saturated
    /// in this sweep: the level it would get in the current state; only rises, or is recomputed
    double share = 0;
    std::uint32_t sweep = 0;  ///< the sweep in which it was last opened
    std::uint32_t entry = 0;  ///< the valid one in the queue
    bool released = false;    ///< in this sweep: the flows it held back may become faster
    bool settled = false;     ///< in this sweep: its level is final
    bool stale = false;       ///< in this sweep: flows were decided since `share` was computed
    std::vector<Member> members{};
  };
  struct Flow {
    std::span<const LinkLoad> loads{};
    double rate = 0;  ///< bytes a second
    double new_rate = 0;
    double remaining = 0;  ///< bytes left at `updated`
    std::int64_t updated = 0;
    std::uint32_t decided = 0;  ///< the sweep in which new_rate was found
    std::uint32_t freed = 0;    ///< the sweep in which it outgrew its old rate
    LinkId bottleneck = none<LinkId>;
    std::int32_t task = -1;
  };
  /// An open link in the queue of a sweep, by the level of its next event.
  struct Entry {
    double key;
    LinkId link;
    std::uint32_t number;

    /// A total order, so that the standard library's heap does not matter.
    static bool later(const Entry& a, const Entry& b) {
      return a.key != b.key ? a.key > b.key : (a.link != b.link ? a.link > b.link : a.number > b.number);
    }
  };

  static std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }
  static bool close(double a, double b) { return a >= b * (1 - same) && a <= b * (1 + same); }
  Link& link_at(LinkId id) { return links_[index(id)]; }
  bool is_open(const Link& link) const { return link.sweep == sweep_; }
  bool is_decided(const Flow& flow) const { return flow.decided == sweep_; }
  /// Whether link `id` lets the flow become faster than it was.
  bool is_free(const Flow& flow, LinkId id) const {
    return flow.bottleneck == id || flow.bottleneck == none<LinkId> || flow.freed == sweep_;
  }
  /// The level at which the sweep must visit an open link: its own, or the one above which its
  /// flows become faster.
  static double key(const Link& link) { return link.released ? link.share : std::min(link.share, link.level); }

  /// Progressive filling from the lowest level that changes, over the links affected by a change.
  void sweep() {
    ++sweep_;
    opened_.clear();
    decided_.clear();
    for (const FlowIndex index : started_) {
      if (flows_[at(index)].loads.empty() || decide_alone(index)) continue;
      for (const LinkLoad& load : flows_[at(index)].loads) {
        if (!is_open(link_at(load.link))) open(load.link);
      }
    }
    for (const LinkId id : freed_) {
      if (!link_at(id).members.empty() && !is_open(link_at(id))) open(id);
    }
    started_.clear();
    freed_.clear();
    double reached = 0;
    double level = endless;  // of the links that are saturated at `reached`
    while (!queue_.empty()) {
      const Entry first = queue_.front();
      std::pop_heap(queue_.begin(), queue_.end(), Entry::later);
      queue_.pop_back();
      if (first.key > reached * (1 + same)) {
        reached = first.key;
        level = endless;
      }
      Link& link = link_at(first.link);
      if (link.settled || link.entry != first.number) continue;
      if (link.stale) compute_share(first.link);
      if (key(link) > first.key) {  // flows decided below it left it more capacity
        push(first.link);
      } else if (!link.released && link.share > link.level * (1 + same)) {
        release(first.link);
      } else {
        // Below the level reached by the sweep, and just above it, differences are only rounding: a
        // link that decided flows have saturated exactly, or one equal to another that has decided
        // a flow of both. All get the very same level, so that it does not matter which comes
        // first.
        if (level == endless) level = close(reached, link.level) ? link.level : reached;
        settle(first.link, level);
      }
    }
    for (const LinkId id : opened_) {
      if (!link_at(id).settled) link_at(id).level = endless;
    }
  }

  /// The common case: a flow that shares no link. False if it does.
  bool decide_alone(FlowIndex index) {
    Flow& flow = flows_[at(index)];
    double rate = endless;
    LinkId slowest = none<LinkId>;
    for (const LinkLoad& load : flow.loads) {
      const Link& link = link_at(load.link);
      if (link.members.size() > 1) return false;
      if (const double all = link.capacity / load.weight; all < rate) {
        rate = all;
        slowest = load.link;
      }
    }
    for (const LinkLoad& load : flow.loads) {
      Link& link = link_at(load.link);
      link.level = load.link == slowest ? rate : endless;
      link.sweep = sweep_;
      link.settled = true;
    }
    decide(index, rate, slowest);
    return true;
  }

  void decide(FlowIndex index, double rate, LinkId bottleneck) {
    Flow& flow = flows_[at(index)];
    flow.new_rate = rate;
    flow.bottleneck = bottleneck;
    flow.decided = sweep_;
    decided_.push_back(index);
  }

  void push(LinkId id) {
    Link& link = link_at(id);
    ++link.entry;  // invalidates the previous entry
    if (key(link) == endless) return;
    queue_.push_back({key(link), id, link.entry});
    std::push_heap(queue_.begin(), queue_.end(), Entry::later);
  }

  void open(LinkId id) {
    Link& link = link_at(id);
    link.sweep = sweep_;
    link.released = false;
    link.settled = false;
    opened_.push_back(id);
    compute_share(id);
    push(id);
  }

  /// The rate at which the link is saturated: decided flows keep theirs, free ones take as much as
  /// they can, and the others no more than they have, since another link limits them. Where that
  /// equals the share, both links limit them and it does not matter which counts: they share like
  /// free flows, so the share has the same bits.
  void compute_share(LinkId id) {
    Link& link = link_at(id);
    link.stale = false;
    WideSum taken;
    WideSum free_weight;
    capped_.clear();
    for (const Member& member : link.members) {
      const Flow& flow = flows_[at(member.flow)];
      if (is_decided(flow)) {
        taken.add(flow.new_rate * member.weight);
      } else if (is_free(flow, id)) {
        free_weight.add(member.weight);
      } else {
        capped_.push_back({flow.rate, member.weight});
      }
    }
    for (;;) {
      WideSum weight = free_weight;
      for (const Capped& flow : capped_) weight.add(flow.weight);
      const double left = taken.left_of(link.capacity);
      if (!(weight.value() < endless && left < endless)) {  // also of what is no number
        throw InputError("what messages take of a link adds up to more than a number can hold; give slower links");
      }
      link.share = weight.value() > 0 ? std::max(0.0, left) / weight.value() : endless;
      std::size_t kept = 0;
      for (const Capped& flow : capped_) {
        if (flow.rate < link.share * (1 - same)) {
          taken.add(flow.rate * flow.weight);
        } else {
          capped_[kept++] = flow;
        }
      }
      if (kept == capped_.size()) return;
      capped_.resize(kept);
    }
  }

  /// The sweep has passed the level of `id`: the flows it limited become faster, and their other
  /// links must be updated.
  void release(LinkId id) {
    Link& link = link_at(id);
    link.released = true;
    freed_flows_.clear();
    for (const Member& member : link.members) {
      Flow& flow = flows_[at(member.flow)];
      if (flow.bottleneck != id || is_decided(flow)) continue;
      // Only rounding can have settled one of its links at a lower level: then it stays unchanged.
      const bool held = std::any_of(flow.loads.begin(), flow.loads.end(), [&](const LinkLoad& load) {
        return is_open(link_at(load.link)) && link_at(load.link).settled;
      });
      if (held) {
        decide(member.flow, flow.rate, id);
        link.stale = true;
      } else {
        flow.freed = sweep_;
        freed_flows_.push_back(member.flow);
      }
    }
    for (const FlowIndex freed : freed_flows_) {
      for (const LinkLoad& load : flows_[at(freed)].loads) {
        if (load.link == id) continue;
        if (!is_open(link_at(load.link))) {
          open(load.link);
        } else {
          compute_share(load.link);
          push(load.link);
        }
      }
    }
    if (link.stale) compute_share(id);
    push(id);
  }

  /// The link is saturated at `level`: every flow on it that is not slower for another reason has
  /// that rate.
  void settle(LinkId id, double level) {
    Link& link = link_at(id);
    link.settled = true;
    link.level = level;
    for (const Member& member : link.members) {
      const Flow& flow = flows_[at(member.flow)];
      if (is_decided(flow) || (!is_free(flow, id) && flow.rate < level * (1 - same))) continue;
      const double rate = close(flow.rate, level) ? flow.rate : level;
      decide(member.flow, rate, id);
      for (const LinkLoad& load : flow.loads) {
        Link& other = link_at(load.link);
        if (is_open(other)) {
          other.stale = true;
        } else if (rate != flow.rate && other.level < endless) {
          open(load.link);
        }
      }
    }
  }

  double ticks_per_second_;
  std::vector<Link> links_;
  std::vector<Flow> flows_;
  std::vector<FlowIndex> free_;
  std::vector<FlowIndex> started_;  ///< since the last solution
  std::vector<LinkId> freed_;       ///< saturated links that a flow has left since then
  std::uint32_t sweep_ = 0;         ///< at most two for each task: 32 bits are enough
  std::vector<LinkId> opened_;
  std::vector<FlowIndex> decided_;
  std::vector<Entry> queue_;
  // Scratch.
  struct Capped {
    double rate;
    double weight;
  };
  std::vector<Capped> capped_;
  std::vector<FlowIndex> freed_flows_;
};

}  // namespace tawpipe
