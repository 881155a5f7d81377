// Times of kernels by their shapes: a computation takes the sum of its kernels, messages run as
// NCCL would run them.
// Not: the shapes (model/operator_work.hpp) nor the figures of a generation (cost/curves/).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/cost/collective_cost.hpp"
#include "tawpipe/cost/cost_model.hpp"
#include "tawpipe/cost/cuda_graphs.hpp"
#include "tawpipe/cost/curves/ampere.hpp"
#include "tawpipe/cost/curves/blackwell.hpp"
#include "tawpipe/cost/curves/hopper.hpp"
#include "tawpipe/cost/detail/edge_path.hpp"
#include "tawpipe/cost/detail/pass_work.hpp"
#include "tawpipe/cost/held_sms.hpp"
#include "tawpipe/cost/nccl_collectives.hpp"
#include "tawpipe/model/kernel.hpp"
#include "tawpipe/topology/devices.hpp"
#include "tawpipe/topology/link_speeds.hpp"

namespace tawpipe::inline v0 {

/// The curves of a compute capability's generation, or none.
constexpr const DeviceCurves* own_curves(int sm) {
  if (sm == 103) return &curves::blackwell_ultra;
  if (sm >= 100 && sm < 120) return &curves::blackwell;
  if (sm >= 90 && sm < 100) return &curves::hopper;
  return sm == 80 ? &curves::ampere : nullptr;
}
/// The same; A100's if there are none.
constexpr const DeviceCurves& curves_of(int sm) {
  const DeviceCurves* const own = own_curves(sm);
  return own != nullptr ? *own : curves::ampere;
}

/// Whether the curves of a device are of its own generation, not A100's in place of it.
inline bool has_own_curves(const DeviceSpec& device) {
  const KnownDevice* const known = find_device(device.name);
  return known != nullptr && own_curves(known->sm) != nullptr;
}

/// The SMs that NCCL's collectives hold: 16 channels by NVLink, and on devices before Blackwell 0.43
/// of all SMs for weights and gradients, since memory's bandwidth is shared too: beside an
/// all-gather of 8 A100 products took 2.08 in place of 1.18 ms. Transformer Engine's products leave
/// SMs to the collectives of activations. Sends hold none, and all-to-alls of experts the 20 that
/// DeepEP takes. Source: NVIDIA/nccl#1428; deepseek-ai/DeepEP, deep_ep/buffer.py: num_sms, and
/// Megatron-LM, core/transformer/transformer_config.py: moe_deepep_num_sms.
inline HeldSms measured_held_sms(const DeviceSpec& device) {
  HeldSms held{
      .pair_ctas = 0, .collective_ctas = 16, .expert_ctas = 20, .state_rate = device.memory_bandwidth * 0.11, .waiting = false};
  const int capability = detail::compute_capability(device);
  if (capability < 100) held.state_ctas = static_cast<int>((1 - 1.18 / 2.08) * held.sms_of(device) + 0.5);
  return held;
}

/// A format's peak on a device, and the share of it that large products sustain; 16 bits' where the
/// device lacks the format.
struct ProductPeak {
  double peak = 0;
  double share = 0;
};
inline ProductPeak product_peak(ProductFormat format, const DeviceCurves& curves, const DeviceSpec& device) {
  if (format == ProductFormat::nvfp4 && device.peak_fp4.value() > 0) return {device.peak_fp4.value(), curves.products_fp4};
  if (is_narrow(format) && device.peak_fp8.value() > 0)
    return {device.peak_fp8.value(), curves.products_fp8 * (format == ProductFormat::fp8_rows ? curves.fp8_rows : 1)};
  if (format != ProductFormat::bits32) return {device.peak.value(), curves.products};
  // TF32; before compute capability 8.0 matrix units have 16 bits only, and these are vectors.
  // Source: NVIDIA's data sheets: V100 15.7 of 125 TFLOPS, T4 8.1 of 65, P100 10.6 of 21.2.
  const int capability = detail::compute_capability(device);
  return {device.peak.value() / (capability == 70 || capability == 75 ? 8 : 2), curves.products};
}

/// The largest of 8, 2 and 1 that divides the rows of a product's operands in memory. Weights are
/// [outputs, inputs], so a forward reads rows of k, a backward rows of k and n, or of m and n for
/// weights' gradients.
inline int row_multiple(const Kernel& kernel) {
  if (kernel.aligned) return 8;
  const std::int64_t rows = kernel.pass == KernelPass::backward_weight  ? kernel.m | kernel.n
                            : kernel.pass == KernelPass::backward_input ? kernel.k | kernel.n
                                                                        : kernel.k;
  return rows % 8 == 0 ? 8 : rows % 2 == 0 ? 2 : 1;
}
/// The part of its rate that a product reaches by its operands' rows: measured for 16 bits only.
inline double row_share(const Kernel& kernel, const DeviceCurves& curves) {
  if (kernel.format != ProductFormat::bits16) return 1;
  const int multiple = row_multiple(kernel);
  return multiple == 8 ? 1 : multiple == 2 ? curves.even_rows : curves.odd_rows;
}

/// Seconds of a batch of matrix products: [m, n] results in whole waves of tiles over the
/// multiprocessors, the inner dimension split if that fills them better, and never faster than
/// memory allows.
inline double product_seconds(const Kernel& kernel, const DeviceCurves& curves, const DeviceSpec& device) {
  auto [peak, share] = product_peak(kernel.format, curves, device);
  // A tile's start and end take as long in all formats: of products of 4096 x 4096 results on
  // compute capability 10.0, 8 bits are 1.95 times as fast as 16 with an inner dimension of 4096,
  // and 1.76, 1.46 and 1.30 times with 1024, 512 and 256 (OpenXLA, matmul_interpolator_data.h).
  const double ramp = curves.inner_ramp * peak * share / (device.peak.value() * curves.products);
  const bool adds = kernel.pass == KernelPass::backward_weight && kernel.adds;
  if (adds) share *= curves.weight_gradient;
  share *= row_share(kernel, curves);
  struct Tile {
    std::int64_t rows, columns;
    double speed;
  };
  constexpr Tile tiles[] = {{256, 128, 1}, {128, 256, 1}, {128, 128, 0.9}, {64, 64, 0.6}};
  const double rate = peak * share / curves.multiprocessors;
  double best = 0;
  for (const Tile& tile : tiles) {
    const std::int64_t results =
        kernel.batch * ((kernel.m + tile.rows - 1) / tile.rows) * ((kernel.n + tile.columns - 1) / tile.columns);
    for (int split = 1; split <= 4; split *= 2) {
      const auto waves = static_cast<double>((results * split + curves.multiprocessors - 1) / curves.multiprocessors);
      const double inner = static_cast<double>(kernel.k) / split + ramp;
      const double time = waves * 2 * static_cast<double>(tile.rows * tile.columns) * inner / (rate * tile.speed);
      if (best <= 0 || time < best) best = time;
    }
  }
  const double element = bytes_of(kernel.format);
  const auto operands = static_cast<double>(kernel.m * kernel.k + kernel.k * kernel.n) * element;
  // Of a loss in chunks, each adds its gradient of the head's input to that of those before it.
  const bool sums = kernel.of_edge && kernel.count > 1 && kernel.pass == KernelPass::backward_input;
  const double results = static_cast<double>(kernel.m * kernel.n) * (adds ? 8 : sums ? 4 : 2);
  const double moved = static_cast<double>(kernel.batch) * (operands + results);
  return std::max(best, moved / (device.memory_bandwidth.value() * curves.memory));
}

/// Seconds of causal fused attention: the fraction of the peak grows with the size of a head and
/// with the number of tiles of 256 rows.
inline double attention_seconds(const Kernel& kernel, const DeviceCurves& curves, const DeviceSpec& device) {
  const bool backward = kernel.kind == Kernel::Kind::attention_backward;
  const double tiles = static_cast<double>(kernel.batch) * static_cast<double>(kernel.m) / 256;
  const double fill = (backward ? curves.attention_backward_fill : curves.attention_fill) * curves.multiprocessors;
  const auto head = static_cast<double>(kernel.k);
  const double own = kernel.pytorch ? (backward ? curves.pytorch_attention_backward : curves.pytorch_attention) : 1;
  const double share = own * (backward ? curves.attention_backward : curves.attention) * head / (head + curves.attention_head);
  return kernel.flops() * (1 + fill / tiles) / (device.peak.value() * share);
}

/// Times of kernels by generation (curves_of()). A pass of a stage takes the sum of its kernels,
/// gaps between them included, its layers no less than the host takes to launch them. So a stage
/// takes as long as its layers and edges as stages of their own. Embedding and head are few
/// launches, but for those that a loss in chunks repeats. A CUDA graph of a layer is one launch in
/// place of about ten, the layer's collectives among them; one of an iteration leaves a pass none.
/// Messages: as chosen by NCCL's table for each size (nccl_path()); sends take the route's
/// latencies and share its links.
///
/// A stage with unknown kernels takes its operations at the rate of large products and its traffic
/// at memory speed.
struct KernelCost {
  /// replace the generation's figures
  std::vector<std::pair<double DeviceCurves::*, double>> changes = {};
  Duration overhead = nccl_latency::start;  ///< of starting a send
  HeldSms held_sms{};                       ///< held by communications; off
  CudaGraphs graphs = CudaGraphs::none;
  bool host_ahead = false;  ///< for bounds: the host is never what a stage's layers wait for
  /// on which figures of a file were measured (DeviceSpec::name); "": none were
  std::string measured_on = {};

  /// @throws InputError  if figures were measured on another device.
  void check_devices(const Cluster& cluster) const {
    if (measured_on.empty()) return;
    for (const NodeType& kind : cluster.kinds()) {
      for (const DeviceSpec& device : kind.devices) {
        if (device.name == measured_on) continue;
        throw InputError(concat("the figures of the curves were measured on ", measured_on, ", and cluster ",
                                quote(cluster.name()), " has ", device.name, "; measure that, or leave the file out",
                                device.assumed ? concat(", or name its devices: --device ", measured_on) : ""));
      }
    }
  }

  /// The generation's curves, with the changes, over the device's own multiprocessors; products by
  /// the card's power (KnownDevice::sustained).
  DeviceCurves curves(const DeviceSpec& device) const {
    DeviceCurves found = curves_of(detail::compute_capability(device));
    if (device.sms > 0) found.multiprocessors = device.sms;
    const auto [products, narrow, attention] = detail::device_shares(device);
    found.products *= products;
    found.products_fp8 *= narrow;
    found.products_fp4 *= narrow;
    found.attention *= attention;
    for (const auto& [member, value] : changes) found.*member = value;
    return found;
  }

  /// DeviceCurves::speed, which is 1 in all generations: curves() looks a device up, which a path for each
  /// message need not.
  double speed() const {
    double found = 1;
    for (const auto& [member, value] : changes) {
      if (member == &DeviceCurves::speed) found = value;
    }
    return found;
  }

  Duration compute_time(const Schedule& schedule, TaskId id, const Cluster& cluster) const {
    const Task& task = schedule.task(id);
    const DeviceSpec& device = cluster.device(task.rank);
    const DeviceCurves known = curves(device);
    const double memory = device.memory_bandwidth.value() * known.memory;
    const auto taking = [&](double time) { return seconds(time / known.speed); };
    if (task.op == Op::update) return taking(2 * static_cast<double>(task.bytes.value()) / memory);  // read and written
    const StageWork& work = schedule.work(task);
    const Passes passes = traits(task.op).passes;
    const double copies = static_cast<double>(task.bytes.value()) / memory;  // of states
    if (work.kernels.empty()) return taking(by_operations(work, passes, known, device) + copies);
    double host = passes.forward ? known.host_layer : 0;  // each half of a backward is half of it
    if (passes.backward_input) host += known.host_backward / 2;
    if (passes.backward_weight) host += known.host_backward / 2;
    if (passes.backward_input) host += known.host_layer * work.part_launched_again();
    double launches = 0;  // s of the host
    if (graphs == CudaGraphs::none && !host_ahead) launches = host * work.layers + known.host_collective * work.collectives;
    if (graphs == CudaGraphs::layers && !host_ahead) launches = host * work.layers / operations_of_layer;
    double layers = 0;
    double edges = 0;
    double all_layers = 0;  // of all steps, where this is one
    double products = 0;
    double in_pieces = 0;  // the products again, as that many smaller ones, which fill the device less
    for (const Kernel& kernel : work.kernels) {
      if (!runs(kernel.pass, passes) || (kernel.before_blackwell && detail::compute_capability(device) >= 100)) continue;
      if (kernel.share == 0 && (kernel.of_edge || launches == 0)) continue;
      const double whole = kernel.count * seconds_of(kernel, known, device);
      const double time = kernel.share * whole;
      if (kernel.of_edge) {
        edges += std::max(time, (kernel.count - 1) * kernel.launches * launch_seconds(kernel.pass, known));
      } else {
        layers += time;
        all_layers += whole;
      }
      if (work.pieces == 1 || kernel.kind != Kernel::Kind::product) continue;
      products += time;
      Kernel piece = kernel;
      piece.m = (kernel.m + work.pieces - 1) / work.pieces;
      in_pieces += kernel.share * kernel.count * work.pieces * seconds_of(piece, known, device);
    }
    const double longer = products > 0 ? std::max(1.0, in_pieces / products) : 1;
    // The host runs ahead of the device, so a step has as much of its time as of the device's.
    const double part = all_layers > 0 ? layers / all_layers : work.fraction;
    return taking(std::max(longer * layers + copies, part * launches) + longer * edges);
  }

  Path path(const Schedule& schedule, const Task& task, const Cluster& cluster) const {
    Path path = path_of(schedule, task, cluster);
    const double speed = this->speed();
    if (speed == 1) return path;
    path.latency = seconds(to_seconds(path.latency) / speed);
    for (LinkLoad& load : path.loads) load.weight /= speed;
    return path;
  }

  bool paths_by_size() const { return true; }
  bool times_by_work() const { return true; }

 private:
  Path path_of(const Schedule& schedule, const Task& task, const Cluster& cluster) const {
    if (is_collective(task.op) && !is_all_pairs(task.op)) {
      const auto members = schedule.group(task.group);
      Path path = nccl_path(task.op, members, task.rank, static_cast<double>(task.bytes.value()), cluster);
      if (members.size() < 2 || !cluster.same_node(members.front(), members.back())) return path;
      const DeviceCurves known = curves(cluster.device(members.front()));
      path.latency = seconds(to_seconds(path.latency) * known.collective_latency);
      for (LinkLoad& load : path.loads) load.weight /= known.collective_bandwidth;
      return path;
    }
    return detail::edge_path(schedule, task, cluster, Algorithm::ring, overhead);
  }

  static bool runs(KernelPass pass, const Passes& passes) {
    switch (pass) {
      case KernelPass::forward:
        return passes.forward;
      case KernelPass::recompute:
      case KernelPass::backward_input:
        return passes.backward_input;
      case KernelPass::backward_weight:
        return passes.backward_weight;
    }
    return false;  // unreachable
  }

  /// that a host launches: PyTorch's modules and functions
  static constexpr double operations_of_layer = 10;

  /// Of the host, for one of a layer's operations: autograd runs those of a backward.
  double launch_seconds(KernelPass pass, const DeviceCurves& curves) const {
    if (graphs == CudaGraphs::iteration) return 0;
    const bool forward = pass == KernelPass::forward || pass == KernelPass::recompute;
    return (forward ? curves.host_layer : curves.host_backward) / operations_of_layer;
  }
  double seconds_of(const Kernel& kernel, const DeviceCurves& curves, const DeviceSpec& device) const {
    const bool in_graph = graphs == CudaGraphs::iteration || (graphs == CudaGraphs::layers && !kernel.of_edge);
    const double gaps = (in_graph ? std::min(curves.graph_gap, curves.kernel_gap) : curves.kernel_gap) * kernel.launches;
    const double time = kernel.kind == Kernel::Kind::product   ? product_seconds(kernel, curves, device)
                        : kernel.kind == Kernel::Kind::traffic ? kernel.bytes / (device.memory_bandwidth.value() * curves.memory)
                                                               : attention_seconds(kernel, curves, device);
    if (graphs == CudaGraphs::iteration) return gaps + time;
    return gaps + std::max(time, kernel.singles * curves.host_kernel);
  }

  static double by_operations(const StageWork& work, const Passes& passes, const DeviceCurves& curves, const DeviceSpec& device) {
    const auto [flops, traffic] = detail::pass_work(work, passes);
    return flops.value() / (device.peak.value() * curves.products) +
           static_cast<double>(traffic.value()) / (device.memory_bandwidth.value() * curves.memory);
  }
};
static_assert(CostModel<KernelCost>);

}  // namespace tawpipe
