// The catalogue's sharded data parallelism: options as text, and entries.
// Not: the other schedules (schedule/shipped.hpp).
#pragma once

#include <utility>
#include <vector>

#include "tawpipe/schedule/catalogue_options.hpp"
#include "tawpipe/schedule/schedules/data_parallel.hpp"
#include "tawpipe/schedule/schedules/fully_sharded.hpp"
#include "tawpipe/schedule/schedules/hybrid_sharded.hpp"

namespace tawpipe::inline v0::detail {

inline bool two_level(OptionReader& options, bool otherwise) {
  return options.choice("collectives", {"flat", "two-level"}, otherwise ? "two-level" : "flat") == "two-level";
}

/// DDP, ZeRO-1, ZeRO-2.
template <Schedule (*Make)(const Workload&, const DeviceGroups&, const schedules::DataParallelOptions&)>
Schedule build_replicated(const ScheduleRequest& request, OptionReader& options) {
  const schedules::DataParallelOptions chosen{.two_level = two_level(options, false), .overlap = options.on("overlap", true)};
  options.finish();
  return Make(request.workload, request.nodes, chosen);
}

inline Schedule build_fsdp(const ScheduleRequest& request, OptionReader& options) {
  const schedules::FullyShardedOptions chosen{.two_level = two_level(options, false),
                                              .prefetch = options.count("prefetch", 0, 0),
                                              .gather_first = options.on("gather-first", false),
                                              .reshard = options.on("reshard", true),
                                              .overlap = options.on("overlap", true)};
  options.finish();
  return schedules::fully_sharded(request.workload, request.nodes, chosen);
}

inline Schedule build_hpz(const ScheduleRequest& request, OptionReader& options) {
  const schedules::NodeCopyOptions chosen{
      .two_level = two_level(options, true), .prefetch = options.count("prefetch", 0, 0), .overlap = options.on("overlap", true)};
  options.finish();
  return schedules::node_copy_sharded(request.workload, request.nodes, chosen);
}

inline Schedule build_hsdp(const ScheduleRequest& request, OptionReader& options) {
  const schedules::HybridShardedOptions chosen{.reduce_each = options.choice("reduce", {"once", "each"}, "once") == "each",
                                               .prefetch = options.count("prefetch", 0, 0),
                                               .reshard = options.on("reshard", true),
                                               .overlap = options.on("overlap", true)};
  options.finish();
  return schedules::hybrid_sharded(request.workload, request.nodes, chosen);
}

inline Schedule build_hfsdp(const ScheduleRequest& request, OptionReader& options) {
  const schedules::HybridShardedOptions chosen{.prefetch = options.count("prefetch", 0, 0),
                                               .reshard = options.on("reshard", true),
                                               .overlap = options.on("overlap", true)};
  options.finish();
  return schedules::hybrid_sharded_optimizer(request.workload, request.nodes, chosen);
}

/// `all` and the sharded schedules behind it.
inline std::vector<ScheduleInfo> with_sharded(std::vector<ScheduleInfo> all) {
  const OptionInfo overlap{"overlap", "on|off", "on", "off: communication takes the compute lane's time"};
  const OptionInfo collectives{"collectives", "flat|two-level", "flat",
                               "one ring over all devices, or between nodes and inside them in turn"};
  const OptionInfo prefetch{"prefetch", "N", "0", "layers gathered ahead of the one computed; 0 gathers when needed"};
  const OptionInfo reshard{"reshard", "on|off", "on", "off: keep a layer from its forward to its backward"};
  const auto add = [&](ScheduleInfo info) { all.push_back(std::move(info)); };
  add({"fsdp",
       "data parallel, everything sharded (ZeRO-3): each layer gathered before use, its gradient scattered after",
       "arXiv:1910.02054, arXiv:2304.11277",
       {collectives,
        prefetch,
        {"gather-first", "on|off", "off", "on: one communicator, a backward's next gather before the scatter (BACKWARD_POST)"},
        reshard,
        overlap},
       {{"prefetch", "1"}},
       build_fsdp});
  add({"hpz",
       "data parallel, everything sharded, and a copy of the weights in each node, which backwards gather from (ZeRO++ hpZ)",
       "arXiv:2306.10209",
       {{"collectives", "flat|two-level", "two-level", collectives.meaning}, prefetch, overlap},
       {{"prefetch", "1"}},
       build_hpz});
  add({"hsdp",
       "data parallel, everything sharded inside each node and replicated over the nodes (HSDP, MiCS)",
       "arXiv:2304.11277, arXiv:2205.00119",
       {{"reduce", "once|each", "once", "sum gradients over the nodes once an iteration, or for each microbatch"},
        prefetch,
        reshard,
        overlap},
       {{"prefetch", "1"}},
       build_hsdp});
  add({"hfsdp",
       "data parallel, weights and gradients sharded inside each node, the optimizer over all devices (hybrid FSDP)",
       "Megatron-FSDP",
       {prefetch, reshard, overlap},
       {{"prefetch", "1"}},
       build_hfsdp});
  add({"ddp",
       "data parallel, everything replicated: gradients summed once an iteration, layer by layer beside the last backward",
       "arXiv:2006.15704",
       {collectives, overlap},
       {},
       build_replicated<schedules::data_parallel>});
  add({"zero1",
       "data parallel, optimizer sharded (ZeRO-1): gradients scattered once an iteration, new weights gathered",
       "arXiv:1910.02054",
       {collectives, overlap},
       {},
       build_replicated<schedules::zero1>});
  add({"zero2",
       "data parallel, optimizer and gradients sharded (ZeRO-2): each microbatch's gradients scattered, new weights gathered",
       "arXiv:1910.02054",
       {collectives, overlap},
       {},
       build_replicated<schedules::zero2>});
  return all;
}

}  // namespace tawpipe::detail
