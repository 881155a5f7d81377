// The schedules that the library ships, as a registry. It refers to every builder: a program of
// many files includes this in a single file and passes the registry on.
// Not: how schedules are found by name (schedules/registry.hpp).
#pragma once

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/schedules/registry.hpp"

namespace tawpipe::inline v0 {

/// Every schedule that the library ships.
TAWPIPE_INLINE Registry shipped_schedules();

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include "tawpipe/schedules/chimera.hpp"
#include "tawpipe/schedules/data_parallel.hpp"
#include "tawpipe/schedules/dualpipe.hpp"
#include "tawpipe/schedules/fully_sharded.hpp"
#include "tawpipe/schedules/gpipe.hpp"
#include "tawpipe/schedules/hybrid_sharded.hpp"
#include "tawpipe/schedules/looped_bfs.hpp"
#include "tawpipe/schedules/one_f_one_b.hpp"
#include "tawpipe/schedules/tawpipe.hpp"
#include "tawpipe/schedules/v_schedules.hpp"
#include "tawpipe/schedules/weipipe.hpp"
#include "tawpipe/schedules/weipipe_zero_bubble.hpp"
#include "tawpipe/schedules/zero_bubble.hpp"
#include "tawpipe/schedules/zero_bubble_auto.hpp"
#include "tawpipe/schedules/zero_bubble_v.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// Builds by a function of workload and ranks, and of options where there are any.
template <auto make>
struct ByRanks {
  Schedule operator()(const ScheduleRequest& request) const { return make(request.workload, request.nodes.ranks()); }
  template <class Options>
  Schedule operator()(const ScheduleRequest& request, const Options& options) const {
    return make(request.workload, request.nodes.ranks(), options);
  }
};

/// Builds by a function of workload, nodes and options.
template <auto make>
struct ByNodes {
  template <class Options>
  Schedule operator()(const ScheduleRequest& request, const Options& options) const {
    return make(request.workload, request.nodes, options);
  }
};

/// Builds by a function of workload, ranks and chunks or options that have them.
template <auto make>
struct Chunked {
  template <class Options>
  Schedule operator()(const ScheduleRequest& request, const Options& options) const {
    const int ranks = request.nodes.ranks();
    const double computations = 3.0 * options.chunks * ranks * static_cast<double>(request.workload.microbatches());
    schedules::check_tasks("chunks", options.chunks, computations, request.workload, ranks);
    if constexpr (std::same_as<Options, schedules::ChunkOptions>) {
      return make(request.workload, ranks, options.chunks);
    } else {
      return make(request.workload, ranks, options);
    }
  }
};

inline void add_weight_pipelines(Registry& registry) {
  registry.add<schedules::TawpipeOptions>(
      {.name = "tawpipe",
       .description = "weights move: one shard a device for good, broadcast in the node, sent once to each other node",
       .source = "arXiv:2511.09741",
       .family = ScheduleFamily::weight_pipeline,
       .leads = true},
      [](const ScheduleRequest& request, schedules::TawpipeOptions options) {
        options.device_memory = request.device_memory;
        options.device_speeds = request.speeds;
        options.own_adapters = request.own_adapters;
        return schedules::tawpipe(request.workload, request.nodes, options);
      });
  registry.add<schedules::WeipipeOptions>(
      {.name = "weipipe",
       .description = "weights move: forward weights, backward weights and gradients go round a ring (interleaved, correct form)",
       .source = "WeiPipe, PPoPP 2025",
       .family = ScheduleFamily::weight_pipeline},
      ByRanks<schedules::weipipe>{});
  registry.add<schedules::WeipipeOptions>({.name = "weipipe-naive",
                                           .description = "weights move: WeiPipe's ring, where a turn is a forward or a backward",
                                           .source = "WeiPipe, PPoPP 2025",
                                           .family = ScheduleFamily::weight_pipeline},
                                          ByRanks<schedules::weipipe_naive>{});
  registry.add<schedules::WeipipeZeroBubbleOptions>(
      {.name = "weipipe-zb1",
       .description = "weights move: from their owners down a line of all ranks, split backwards; turns are ours",
       .source = "after WeiPipe, PPoPP 2025",
       .family = ScheduleFamily::weight_pipeline},
      ByRanks<schedules::weipipe_zb1>{});
  registry.add<schedules::WeipipeLinesOptions>(
      {.name = "weipipe-zb2",
       .description = "weights move: as weipipe-zb1, down several lines at once, as a rule one a node (ours)",
       .source = "after WeiPipe, PPoPP 2025",
       .family = ScheduleFamily::weight_pipeline},
      ByNodes<schedules::weipipe_zb2>{});
}

inline void add_sharded(Registry& registry) {
  registry.add<schedules::FullyShardedOptions>(
      {.name = "fsdp",
       .description = "data parallel, everything sharded (ZeRO-3): each layer gathered before use, its gradient scattered after",
       .source = "arXiv:1910.02054, arXiv:2304.11277",
       .family = ScheduleFamily::data_parallel,
       .leads = true},
      ByNodes<schedules::fully_sharded>{});
  registry.add<schedules::NodeCopyOptions>(
      {.name = "hpz",
       .description = "data parallel, everything sharded, and a copy of the weights in each node, which backwards gather from "
                      "(ZeRO++ hpZ)",
       .source = "arXiv:2306.10209",
       .family = ScheduleFamily::data_parallel},
      ByNodes<schedules::node_copy_sharded>{});
  registry.add<schedules::HybridShardedOptions>(
      {.name = "hsdp",
       .description = "data parallel, everything sharded inside each node and replicated over the nodes (HSDP, MiCS)",
       .source = "arXiv:2304.11277, arXiv:2205.00119",
       .family = ScheduleFamily::data_parallel},
      ByNodes<schedules::hybrid_sharded>{});
  registry.add<schedules::HybridOptimizerOptions>(
      {.name = "hfsdp",
       .description = "data parallel, weights and gradients sharded inside each node, the optimizer over all devices (hybrid "
                      "FSDP)",
       .source = "Megatron-FSDP",
       .family = ScheduleFamily::data_parallel,
       .leads = true},
      ByNodes<schedules::hybrid_sharded_optimizer>{});
  registry.add<schedules::DataParallelOptions>(
      {.name = "ddp",
       .description = "data parallel, everything replicated: gradients summed once an iteration, layer by layer during the last "
                      "backward",
       .source = "arXiv:2006.15704",
       .family = ScheduleFamily::data_parallel,
       .leads = true,
       .plain = true,
       .pairs = true},
      [](const ScheduleRequest& request, schedules::DataParallelOptions options) {
        options.pairs = request.pairs;
        return schedules::data_parallel(request.workload, request.nodes, options);
      });
  registry.add<schedules::DataParallelOptions>(
      {.name = "zero1",
       .description = "data parallel, optimizer sharded (ZeRO-1): gradients scattered once an iteration, new weights gathered",
       .source = "arXiv:1910.02054",
       .family = ScheduleFamily::data_parallel},
      ByNodes<schedules::zero1>{});
  registry.add<schedules::DataParallelOptions>(
      {.name = "zero2",
       .description = "data parallel, optimizer and gradients sharded (ZeRO-2): each microbatch's gradients scattered, new "
                      "weights gathered",
       .source = "arXiv:1910.02054",
       .family = ScheduleFamily::data_parallel},
      ByNodes<schedules::zero2>{});
}

inline void add_pipelines(Registry& registry) {
  registry.add<schedules::BlockingOptions>(
      {.name = "1f1b",
       .description = "activations move: a pipeline that alternates one forward and one backward",
       .source = "arXiv:2104.04473",
       .leads = true},
      ByRanks<schedules::one_f_one_b>{});
  registry.add<schedules::BlockingOptions>(
      {.name = "gpipe", .description = "activations move: all forwards, then all backwards", .source = "arXiv:1811.06965"},
      ByRanks<schedules::gpipe>{});
  registry.add<schedules::InterleavedOptions>(
      {.name = "interleaved-1f1b",
       .description = "activations move: 1F1B with several chunks of the model a device, for smaller bubbles and more messages",
       .source = "arXiv:2104.04473",
       .leads = true,
       .pairs = true},
      [](const ScheduleRequest& request, schedules::InterleavedOptions options) {
        options.pairs = request.pairs;
        return Chunked<schedules::interleaved_one_f_one_b>{}(request, options);
      });
  registry.add<schedules::ChunkOptions>(
      {.name = "looped-bfs",
       .description = "activations move: several chunks a device, each chunk meets all microbatches before the next",
       .source = "arXiv:2211.05953"},
      Chunked<schedules::looped_bfs>{});
  registry.add({.name = "zb-h1",
                .description = "activations move: 1F1B with split backwards, in 1F1B's memory",
                .source = "arXiv:2401.10241"},
               ByRanks<schedules::zb_h1>{});
  registry.add({.name = "zb-h2",
                .description = "activations move: split backwards without bubbles, in twice 1F1B's memory",
                .source = "arXiv:2401.10241",
                .leads = true},
               ByRanks<schedules::zb_h2>{});
  registry.add<schedules::ZeroBubbleOptions>(
      {.name = "zb-auto",
       .description = "activations move: split backwards in the best order found under a memory limit (ZB-1p, ZB-2p)",
       .source = "arXiv:2401.10241",
       .planned = false},
      ByRanks<schedules::zb_auto>{});
  registry.add<schedules::SearchedChunkOptions>({.name = "interleaved-zb",
                                                 .description = "activations move: interleaved 1F1B with split backwards",
                                                 .source = "arXiv:2401.10241, torch.distributed.pipelining"},
                                                Chunked<schedules::interleaved_zero_bubble>{});
  registry.add<schedules::SearchedOptions>(
      {.name = "zb-v",
       .description = "activations move: two chunks a device in a V, without bubbles, in 1F1B's memory",
       .source = "arXiv:2405.15362",
       .leads = true},
      ByRanks<schedules::zb_v>{});
  registry.add<schedules::SearchedOptions>(
      {.name = "v-half",
       .description = "activations move: two chunks a device in a V, in half of 1F1B's memory",
       .source = "arXiv:2405.15362",
       .leads = true},
      ByRanks<schedules::v_half>{});
  registry.add<schedules::SearchedOptions>(
      {.name = "v-min",
       .description = "activations move: two chunks a device in a V, in a third of 1F1B's memory",
       .source = "arXiv:2405.15362",
       .leads = true},
      ByRanks<schedules::v_min>{});
  registry.add({.name = "dualpipe",
                .description = "activations move: from both ends, forwards overlapping backwards; each stage on two devices",
                .source = "arXiv:2412.19437",
                .pairs = true},
               ByRanks<schedules::dualpipe>{});
  registry.add({.name = "dualpipe-v",
                .description = "activations move: DualPipe cut in half, two chunks a device in a V",
                .source = "deepseek-ai/DualPipe",
                .pairs = true},
               ByRanks<schedules::dualpipe_v>{});
  registry.add({.name = "chimera",
                .description = "activations move: two 1F1B pipelines in opposite directions; each stage on two devices",
                .source = "arXiv:2107.06925"},
               ByRanks<schedules::chimera>{});
}

}  // namespace detail

TAWPIPE_INLINE Registry shipped_schedules() {
  Registry registry;
  detail::add_weight_pipelines(registry);
  detail::add_sharded(registry);
  detail::add_pipelines(registry);
  return registry;
}

}  // namespace tawpipe
#endif
