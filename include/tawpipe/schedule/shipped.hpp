// The schedules that the library ships, as a registry. Refers to every builder: a program of many files includes this in one of
// them and hands the registry on.
// Not: how schedules are found by name (schedule/registry.hpp).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tawpipe/schedule/catalogue_options.hpp"
#include "tawpipe/schedule/catalogue_pipelines.hpp"
#include "tawpipe/schedule/catalogue_sharded.hpp"
#include "tawpipe/schedule/registry.hpp"
#include "tawpipe/schedule/schedules/tawpipe.hpp"
#include "tawpipe/schedule/schedules/weipipe.hpp"
#include "tawpipe/schedule/schedules/weipipe_zero_bubble.hpp"

namespace tawpipe::inline v0 {

namespace detail {

inline Schedule build_tawpipe(const ScheduleRequest& request, OptionReader& options) {
  const std::string prefetch = options.choice("prefetch", {"on", "backward", "off"}, "on");
  schedules::TawpipeOptions chosen{.order = options.order(schedules::Order::eager),
                                   .overlap = options.on("overlap", true),
                                   .prefetch = prefetch == "on"         ? schedules::Prefetch::on
                                               : prefetch == "backward" ? schedules::Prefetch::backward
                                                                        : schedules::Prefetch::off,
                                   .buffers = options.count("buffers", 1, 2),
                                   .shards = options.count("shards", 1, 0),
                                   .speeds = options.speeds(request.speeds),
                                   .cache = options.node_cache(),
                                   .device_memory = request.device_memory};
  const std::string stripe = options.choice("stripe", {"on", "off", "auto"}, "off");
  chosen.stripe = stripe == "on" || (stripe == "auto" && request.own_adapters && chosen.overlap && chosen.cache.is_off());
  const DeviceGroups groups = options.groups("groups", request.nodes);
  options.finish();
  return schedules::tawpipe(request.workload, groups, chosen);
}

/// Fixed times are for checking closed forms, which are those of the drawn turns.
inline schedules::Order weipipe_order(const ScheduleRequest& request, OptionReader& options) {
  return options.order(request.workload.is_abstract() ? schedules::Order::paper : schedules::Order::eager);
}

template <Schedule (*build)(const Workload&, int, const schedules::WeipipeOptions&)>
Schedule build_weipipe(const ScheduleRequest& request, OptionReader& options) {
  const schedules::WeipipeOptions chosen{.order = weipipe_order(request, options), .overlap = options.on("overlap", true)};
  options.finish();
  return build(request.workload, request.nodes.ranks(), chosen);
}

template <bool several_lines>
Schedule build_weipipe_zero_bubble(const ScheduleRequest& request, OptionReader& options) {
  const schedules::Order order = weipipe_order(request, options);
  const schedules::WeipipeZeroBubbleOptions chosen{
      .order = order, .overlap = options.on("overlap", true), .split = options.on("split", order == schedules::Order::paper)};
  const DeviceGroups lines = several_lines ? options.groups("lines", request.nodes) : request.nodes;
  options.finish();
  return several_lines ? schedules::weipipe_zb2(request.workload, lines, chosen)
                       : schedules::weipipe_zb1(request.workload, lines.ranks(), chosen);
}

}  // namespace detail

/// Every schedule that the library ships.
inline Registry shipped_schedules() {
  const OptionInfo overlap{"overlap", "on|off", "on", "off: communication takes the compute lane's time"};
  const OptionInfo turns{"order", "eager|paper", "eager (paper with fixed times)",
                         "each task when its inputs are there, or lock-step turns"};
  const OptionInfo split{"split", "on|off", "on with order=paper",
                         "backwards in two parts, which shortens lock-step turns and takes memory"};
  std::vector<ScheduleInfo> all = detail::with_pipelines(detail::with_sharded({
      {"tawpipe",
       "weights move: one shard a device for good, broadcast in the node, sent once to each other node",
       "arXiv:2511.09741",
       {{"order", "eager|paper", "eager", "each task when its inputs are there, or the turns as the paper draws them"},
        {"groups", "nodes|flat|N", "nodes", "what shares a broadcast: each node, all devices, or N equal groups"},
        overlap,
        {"prefetch", "on|backward|off", "on",
         "off: the next shard is fetched after the computation, gradients travel beside it; backward: so in forward steps alone"},
        {"buffers", "N", "2", "shards a device can hold beside its own"},
        {"shards", "N", "one a device", "pieces the model is cut into"},
        {"stripe", "on|off|auto", "off",
         "shards cross between nodes in pieces over all adapters (auto: if each device has its own, and nothing is cached)"},
        {"speeds", "equal|auto|N+N", "equal",
         "faster devices run more microbatches in each step: by their peaks, or numbers for nodes or devices such as 1+2"},
        {"node-cache", "N|SIZE|all|auto", "0",
         "shards of other nodes kept once fetched: how many, how much a device, or what fits"}},
       {},
       detail::build_tawpipe},
      {"weipipe",
       "weights move: forward weights, backward weights and gradients go round a ring (interleaved, correct form)",
       "WeiPipe, PPoPP 2025",
       {turns, overlap},
       {},
       detail::build_weipipe<schedules::weipipe>},
      {"weipipe-naive",
       "weights move: WeiPipe's ring, where a turn is a forward or a backward",
       "WeiPipe, PPoPP 2025",
       {turns, overlap},
       {},
       detail::build_weipipe<schedules::weipipe_naive>},
      {"weipipe-zb1",
       "weights move: from their owners down a line of all ranks, split backwards; turns are ours",
       "after WeiPipe, PPoPP 2025",
       {turns, overlap, split},
       {},
       detail::build_weipipe_zero_bubble<false>},
      {"weipipe-zb2",
       "weights move: as weipipe-zb1, down several lines at once, as a rule one a node (ours)",
       "after WeiPipe, PPoPP 2025",
       {turns, overlap, split, {"lines", "nodes|flat|N", "nodes", "one line in each node, one of all devices, or N equal ones"}},
       {},
       detail::build_weipipe_zero_bubble<true>},
  }));
  Registry registry;
  for (ScheduleInfo& info : all) registry.add(std::move(info));
  return registry;
}

}  // namespace tawpipe
