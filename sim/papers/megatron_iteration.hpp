// The time of one Megatron-LM iteration on A100 (tensor, data and pipeline parallel, 1F1B), in
// closed form.
// Not: a schedule (schedule/); for LLaMA-style models and other schedules use the simulator.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::inline v0 {

/// A GPT and its layout, in the columns of vTrain's measurements.
struct MegatronRun {
  int gpus = 1;
  std::int64_t global_batch = 1;  ///< sequences
  std::int64_t microbatch = 1;    ///< sequences
  int hidden = 1;
  int heads = 1;
  int layers = 1;
  int sequence = 1;  ///< tokens
  int tensor = 1;
  int data = 1;
  int pipeline = 1;

  /// @throws InputError  if the degrees do not multiply to the GPUs, or the batch cannot be shared.
  void check() const {
    for (const std::int64_t value :
         {std::int64_t{gpus}, global_batch, microbatch, std::int64_t{hidden}, std::int64_t{heads}, std::int64_t{layers},
          std::int64_t{sequence}, std::int64_t{tensor}, std::int64_t{data}, std::int64_t{pipeline}}) {
      if (value < 1 || value > 1'000'000'000) throw InputError("a Megatron run needs sizes and degrees of 1 or more");
    }
    if (std::int64_t{tensor} * data * pipeline != gpus) {
      throw InputError(
          concat("tensor ", tensor, " x data ", data, " x pipeline ", pipeline, " parallelism is not the ", gpus, " GPUs"));
    }
    if (global_batch % (data * microbatch) != 0) {
      throw InputError(
          concat("a batch of ", global_batch, " cannot be shared by ", data, " replicas in microbatches of ", microbatch));
    }
  }
};

/// One curve or figure for each kind of operation. Data sheets: A100 SXM 312 TFLOPS fp16, 2039
/// GB/s, NVLink 240 GB/s a direction as NCCL counts it. The rest was fitted once, by least mean
/// absolute error, on 30 of the 807 published rows (20 of one node, 10 of several; every 37th and
/// every 6th).
struct MegatronCosts {
  double peak = 312e12;
  double memory = 2039e9;
  double efficiency = 0.57;       ///< of the peak, for matrix products of any size that fills the device
  double half_flops = 65e9;       ///< of a layer's forward on a device, at which matrix products reach half of that
  double scores_traffic = 24;     ///< times that the S x S scores of each head are read or written (unfused attention)
  double launch = 2.85e-3;        ///< s, host time to start a layer's forward and backward: a lower limit
  double launch_tensor = 0.4e-3;  ///< s more with tensor parallelism
  double latency = 33e-6;         ///< s, of an all-reduce or a transfer
  double inside = 120e9;          ///< bytes/s a direction of a device inside its node
  double node = 47.5e9;           ///< bytes/s a direction of a whole node
  double overhead = 2e-3;         ///< s an iteration
  int vocabulary = 51200;
  int devices_per_node = 8;
};

/// Seconds of one iteration:
/// (m + p - 1) (L/p layer + 2 hop) + m head + gradients, with m microbatches a pipeline, where
///   layer      max(3 F / (peak e) + scores, launch) with F = (24 b S H^2 + 4 b S^2 H) / t, e = efficiency x / (x + half) for
///              x = 24 b S H^2 / t, and four all-reduces of 2 b S H bytes inside the tensor-parallel group;
///   hop        2 b S H bytes to the next stage;
///   head       three products with the vocabulary's matrix, and its softmax;
///   gradients  an all-reduce of 4 bytes a parameter over the replicas; the groups of one node share its adapters.
/// @throws InputError  as MegatronRun::check
/// Source: Narayanan et al. 2021, arXiv:2104.04473, sections 2.2 and 3 (1F1B, all-reduces, FLOPs).
inline double megatron_iteration(const MegatronRun& run, const MegatronCosts& costs = {}) {
  run.check();
  const double t = run.tensor;
  const double d = run.data;
  const double p = run.pipeline;
  const double hidden = run.hidden;
  const double sequence = run.sequence;
  const double tokens = static_cast<double>(run.microbatch) * sequence;
  const auto count = static_cast<double>(run.global_batch / (run.data * run.microbatch));
  const bool several = run.gpus > costs.devices_per_node;
  const bool spans = run.tensor > costs.devices_per_node;

  const double products = 24 * tokens * hidden * hidden / t;
  const double rate = costs.peak * costs.efficiency * products / (products + costs.half_flops);
  const double compute = 3 * (products + 4 * tokens * sequence * hidden / t) / rate;
  const double scores =
      costs.scores_traffic * static_cast<double>(run.microbatch) * run.heads / t * sequence * sequence * 2 / costs.memory;
  const double activation = tokens * hidden * 2;
  double reduces = 0;
  if (run.tensor > 1) {
    reduces = 4 * (costs.latency + 2 * (t - 1) / t * activation / (spans ? costs.node : costs.inside));
  }
  const double launch = costs.launch + (run.tensor > 1 ? costs.launch_tensor : 0);
  const double layer = std::max(compute + scores + reduces, launch);
  const double head = 6 * tokens * hidden * costs.vocabulary / t / rate + 16 * tokens * costs.vocabulary / t / costs.memory;
  double hop = 0;
  if (run.pipeline > 1) {
    const bool across = several && run.tensor * run.data >= costs.devices_per_node;  // stages lie on different nodes
    hop = costs.latency + activation / (across ? costs.node : costs.inside);
  }
  double time = (count + p - 1) * (layer * run.layers / p + 2 * hop) + count * head + costs.overhead;
  if (run.data > 1) {
    const double parameters = (12 * hidden * hidden * run.layers / p + costs.vocabulary * hidden) / t;
    const double bandwidth = several ? costs.node / std::min(run.tensor, costs.devices_per_node) : costs.inside;
    time += 2 * (d - 1) / d * parameters * 4 / bandwidth;
  }
  return time;
}

}  // namespace tawpipe
