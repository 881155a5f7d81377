// Flows over shared links: rates are max-min fair, solved anew for what a start or an end touches.
// Not: when tasks become ready (simulate/engine.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "tawpipe/core/config.hpp"
#include "tawpipe/cost/cost_model.hpp"

namespace tawpipe {

/// Max-min fair sharing of links among flows. A flow of rate x uses x * weight of each link it loads; no flow can be made
/// faster without slowing one that is not faster. Only the flows that are joined by shared links to a change are solved.
///
/// Source: Bertsekas and Gallager, Data Networks, 2nd ed., section 6.5.2 (progressive filling).
class LinkSharing {
 public:
  using FlowIndex = std::int32_t;

  explicit LinkSharing(std::vector<double> capacities) {
    links_.reserve(capacities.size());
    for (const double capacity : capacities) links_.push_back({capacity});
  }

  /// Starts a flow of `bytes` over `loads` (which must outlive it) at `now`; its rate is known after solve().
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
    flow.places.resize(loads.size());
    for (std::size_t i = 0; i < loads.size(); ++i) {
      Link& link = links_[tawpipe::index(loads[i].link)];
      flow.places[i] = static_cast<std::int32_t>(link.flows.size());
      link.flows.push_back({index, static_cast<std::int32_t>(i)});
    }
    changed_.push_back(index);
    return index;
  }

  /// Ends a flow; what shared a link with it is solved anew.
  void finish(FlowIndex index) {
    Flow& flow = flows_[at(index)];
    for (std::size_t i = 0; i < flow.loads.size(); ++i) {
      Link& link = links_[tawpipe::index(flow.loads[i].link)];
      const Member moved = link.flows.back();
      link.flows[at(flow.places[i])] = moved;
      flows_[at(moved.flow)].places[at(moved.load)] = flow.places[i];
      link.flows.pop_back();
    }
    for (const LinkLoad& load : flow.loads) {
      if (!links_[tawpipe::index(load.link)].flows.empty()) freed_.push_back(load.link);
    }
    flow.loads = {};
    ++flow.version;
    free_.push_back(index);
  }

  /// Solves what changed since the last call and reports each flow whose rate is new:
  /// `report(flow, task, finish)` with the finish in picoseconds if rates stay as they are.
  template <class Report>
  void solve(std::int64_t now, Report&& report) {
    ++mark_;
    for (const FlowIndex flow : changed_) {
      if (!flows_[at(flow)].loads.empty()) solve_component(flow, now, report);
    }
    for (const LinkId link : freed_) {
      const auto& members = links_[tawpipe::index(link)].flows;
      if (!members.empty()) solve_component(members.front().flow, now, report);
    }
    changed_.clear();
    freed_.clear();
  }

  std::uint32_t version(FlowIndex flow) const { return flows_[at(flow)].version; }
  std::int32_t task(FlowIndex flow) const { return flows_[at(flow)].task; }

 private:
  struct Member {
    FlowIndex flow;
    std::int32_t load;  ///< which of the flow's loads this link is
  };
  struct Link {
    double capacity = 0;
    std::vector<Member> flows{};
    double left = 0;    ///< capacity not yet given away in this solution
    double weight = 0;  ///< of flows without a rate in this solution
    std::uint64_t mark = 0;
  };
  struct Flow {
    std::span<const LinkLoad> loads;
    std::vector<std::int32_t> places;  ///< [load] where the flow stands in the link's list
    double remaining = 0;              ///< bytes left at `updated`
    double rate = 0;                   ///< bytes a second
    double new_rate = 0;
    std::int64_t updated = 0;
    std::int32_t task = -1;
    std::uint32_t version = 0;  ///< changes with the rate; older predictions of the finish are void
    std::uint64_t mark = 0;
  };

  static std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

  template <class Report>
  void solve_component(FlowIndex first, std::int64_t now, Report&& report) {
    if (flows_[at(first)].mark == mark_) return;
    collect(first);
    if (component_.size() == 1) {
      Flow& flow = flows_[at(first)];
      double rate = std::numeric_limits<double>::infinity();
      for (const LinkLoad& load : flow.loads) rate = std::min(rate, links_[tawpipe::index(load.link)].capacity / load.weight);
      flow.new_rate = rate;
    } else {
      fill();
    }
    for (const FlowIndex index : component_) {
      Flow& flow = flows_[at(index)];
      if (flow.new_rate == flow.rate) continue;
      flow.remaining = std::max(0.0, flow.remaining - flow.rate * static_cast<double>(now - flow.updated) * 1e-12);
      flow.updated = now;
      flow.rate = flow.new_rate;
      ++flow.version;
      report(index, flow.task, now + static_cast<std::int64_t>(flow.remaining / flow.rate * 1e12 + 0.5));
    }
  }

  /// The flows and links joined to `first`, by breadth-first search.
  void collect(FlowIndex first) {
    component_.assign(1, first);
    component_links_.clear();
    flows_[at(first)].mark = mark_;
    for (std::size_t i = 0; i < component_.size(); ++i) {
      for (const LinkLoad& load : flows_[at(component_[i])].loads) {
        Link& link = links_[tawpipe::index(load.link)];
        if (link.mark == mark_) continue;
        link.mark = mark_;
        component_links_.push_back(load.link);
        for (const Member& member : link.flows) {
          Flow& other = flows_[at(member.flow)];
          if (other.mark == mark_) continue;
          other.mark = mark_;
          component_.push_back(member.flow);
        }
      }
    }
  }

  /// Progressive filling over the collected component: the link with the least fair share settles its flows, and so on.
  void fill() {
    heap_.clear();
    for (const FlowIndex index : component_) flows_[at(index)].new_rate = -1;
    for (const LinkId id : component_links_) {
      Link& link = links_[tawpipe::index(id)];
      link.left = link.capacity;
      link.weight = 0;
      for (const Member& member : link.flows) link.weight += flows_[at(member.flow)].loads[at(member.load)].weight;
      heap_.push_back({link.left / link.weight, id});
    }
    const auto later = [](const Share& a, const Share& b) { return a.rate != b.rate ? a.rate > b.rate : a.link > b.link; };
    std::make_heap(heap_.begin(), heap_.end(), later);
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), later);
      const Share share = heap_.back();
      heap_.pop_back();
      Link& link = links_[tawpipe::index(share.link)];
      if (link.weight <= 0) continue;
      const double rate = link.left / link.weight;
      if (rate > share.rate) {  // the share grew since it was queued: other links settled some of its flows
        heap_.push_back({rate, share.link});
        std::push_heap(heap_.begin(), heap_.end(), later);
        continue;
      }
      for (const Member& member : link.flows) {
        Flow& flow = flows_[at(member.flow)];
        if (flow.new_rate >= 0) continue;
        flow.new_rate = share.rate;
        for (const LinkLoad& load : flow.loads) {
          Link& loaded = links_[tawpipe::index(load.link)];
          loaded.left = std::max(0.0, loaded.left - share.rate * load.weight);
          loaded.weight -= load.weight;
          if (loaded.weight < 1e-9) loaded.weight = 0;
        }
      }
    }
  }

  struct Share {
    double rate;
    LinkId link;
  };

  std::vector<Link> links_;
  std::vector<Flow> flows_;
  std::vector<FlowIndex> free_;
  std::vector<FlowIndex> changed_;
  std::vector<LinkId> freed_;
  std::uint64_t mark_ = 0;
  std::vector<FlowIndex> component_;
  std::vector<LinkId> component_links_;
  std::vector<Share> heap_;
};

}  // namespace tawpipe
