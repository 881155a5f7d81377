// What frameworks, PyTorch's allocator, CUDA and NCCL hold of a device beside the buffers of a schedule.
// Not: the arithmetic of the figures (analysis/device_memory.hpp), nor the buffers (analysis/memory.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <set>
#include <utility>

#include "tawpipe/analysis/device_memory.hpp"
#include "tawpipe/analysis/summary.hpp"
#include "tawpipe/cost/nccl_collectives.hpp"
#include "tawpipe/model/operator.hpp"
#include "tawpipe/search/problem.hpp"
#include "tawpipe/topology/devices.hpp"

namespace tawpipe::inline v0 {

namespace detail {

inline constexpr std::int64_t mebibyte = std::int64_t{1} << 20;

inline int capability_of(const Problem& problem) { return compute_capability(problem.cluster.device(Rank{0})); }

/// Whether Transformer Engine runs the layers' products, under Megatron-LM.
inline bool runs_transformer_engine(const Transformer& model) {
  return model.code == LayerCode::megatron && model.fused_attention && model.dtype != Dtype::f32;
}

/// Numbers of a rank's gradients of weights that nobody reads. A product that adds a weight's gradient to
/// the sum of earlier microbatches gives autograd a tensor of the weight's shape in its place;
/// Transformer Engine keeps one for each shape (module/base.py: get_dummy_wgrad, _dummy_wgrads).
/// Queries, keys and values are one product, gate and up another; routers are Megatron-LM's own.
inline std::int64_t unread_gradients(const Model& model, const Mesh& mesh) {
  std::set<std::pair<std::int64_t, std::int64_t>> shapes;
  for (const LayerKind& kind : model.kinds) {
    const std::vector<Operator> list = kind.operators(model.hidden);
    std::int64_t together = 0;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Operator& op = list[i];
      if (op.kind != Operator::Kind::product) continue;
      const Operator* const next = i + 1 < list.size() ? &list[i + 1] : nullptr;
      if (next != nullptr && next->kind == Operator::Kind::route) continue;
      const bool by_width = op.needs == Split::width || op.gives == Split::width;
      const bool split = op.is_of_experts() ? !mesh.whole_experts : by_width;
      together += op.out / (split ? mesh.tensor : 1);
      if (next != nullptr && next->kind == Operator::Kind::product && next->from[0] == op.from[0]) continue;
      shapes.emplace(op.in, together);
      together = 0;
    }
  }
  std::int64_t numbers = 0;
  for (const auto& [in, out] : shapes) numbers += in * out;
  return numbers;
}

/// Bytes of a weight's copies in 8 or 4 bits, which Transformer Engine makes once a step and keeps: one,
/// and one transposed where products read rows of both inputs (8 bits with one scale a tensor: before
/// Blackwell) or scales are of blocks along one dimension; with a scale of a byte for each 32 or 16
/// numbers. Source: Transformer Engine, module/linear.py: weight_workspace, is_non_tn_fp8_gemm_supported;
/// tensor/mxfp8_tensor.py, nvfp4_tensor.py.
inline double bytes_of_copies(ProductFormat format, int capability) {
  switch (format) {
    case ProductFormat::fp8:
      return capability >= 100 ? 1 : 2;
    case ProductFormat::mxfp8:
      return 2 * (1 + 1.0 / 32);
    case ProductFormat::nvfp4:
      return 2 * (0.5 + 1.0 / 16);
    default:
      return is_narrow(format) ? 2 : 0;
  }
}

/// Bytes of those copies on the rank of `peak`. Weights that live in 8 bits (--fp8-param-gather) have the
/// copies in place of 16 bits; weights that ranks share out are cast when they are gathered.
inline std::int64_t narrow_copies(const Problem& problem, const PeakMemory& peak) {
  const Transformer& model = *problem.model;
  const std::int64_t weight = problem.parameter_bytes.weight;
  if (!is_narrow(model.products) || weight == 0 || problem.sharding == StateSharding::parameters) return 0;
  const double of_layers = static_cast<double>(model.all_layer_parameters()) / static_cast<double>(model.parameters());
  const double held = static_cast<double>(peak.by_kind[static_cast<std::size_t>(BufferKind::weights)].value()) /
                      static_cast<double>(weight) * of_layers;
  const double copies = bytes_of_copies(model.products, capability_of(problem));
  return static_cast<std::int64_t>(held * (model.narrow_weights ? copies - static_cast<double>(weight) : copies));
}

/// Workspaces of cuBLAS: PyTorch's for the handles of the forward's and the backward's thread, 8 MiB each
/// or 32 from Hopper on (CUDABlas.cpp, getChosenWorkspaceSize), and Transformer Engine's of 4 or 32 MiB,
/// of which products of experts have one for each of four streams (module/base.py).
inline std::int64_t workspaces_of(const Transformer& model, int capability) {
  const std::int64_t each = (capability >= 90 ? 32 : 8) * mebibyte;
  const std::int64_t engines = runs_transformer_engine(model) ? (capability >= 90 ? 32 : 4) * mebibyte : 0;
  return 2 * each + engines * (model.is_routed() ? 5 : 1);
}

/// NCCL's buffers. A connection has 4 MiB (Simple), 4.7 MiB (LL128) and 0.5 MiB (LL) on its receiver,
/// across the network on its sender too (nccl, src/init.cc: DEFAULT_BUFFSIZE and others). A collective has
/// connections of a ring and of a tree, 3 a channel: 24 channels with 12 NVLinks or more, 2 for each
/// adapter between nodes, which gives the 0.5 to 0.7 GB a communicator of NVIDIA/nccl#964. Sends to an
/// NVLink peer have 32 channels, as the 3.2 GB of an all-to-all of 8 H100 say (#1685), to others 2.
class NcclBuffers {
 public:
  explicit NcclBuffers(const Problem& problem) : problem_{problem}, mesh_{problem.mesh.over(problem.cluster.ranks())} {}

  Bytes total() const {
    double connections = 0;
    for (const auto& axes :
         {std::initializer_list<MeshAxis>{MeshAxis::tensor}, {MeshAxis::context}, {MeshAxis::data, MeshAxis::context}}) {
      connections += of_collective(axes);
    }
    if (mesh_.whole_experts) {
      const auto experts = {MeshAxis::tensor, MeshAxis::context, MeshAxis::expert};
      connections += of_peers(experts, mesh_.shared()) + of_collective({MeshAxis::data});
    }
    connections += of_peers({MeshAxis::pipeline}, 3);               // the ranks before and after it
    if (mesh_.ranks() > 1) connections += of_collective(all_axes);  // all ranks: norms of gradients, the loss
    return Bytes{static_cast<std::int64_t>(connections * connection)};
  }

 private:
  static constexpr double connection = 4 * mebibyte + 4915200 + 524288;
  static constexpr std::initializer_list<MeshAxis> all_axes = {MeshAxis::tensor, MeshAxis::context, MeshAxis::expert,
                                                               MeshAxis::pipeline, MeshAxis::data};

  bool has_nvlink() const {
    const KnownDevice* const known = find_device(problem_.cluster.device(Rank{0}).name);
    return known != nullptr && known->links > 0;
  }
  double of_collective(std::initializer_list<MeshAxis> axes) const {
    MeshPlace last;
    for (const MeshAxis axis : axes) last[axis] = mesh_.size(axis) - 1;
    if (last == MeshPlace{}) return 0;  // alone
    const bool inside = problem_.cluster.same_node(Rank{0}, mesh_.rank(last));
    const double channels = !has_nvlink() ? 2 : inside ? 24 : 16;
    return 3 * channels;
  }
  double of_peers(std::initializer_list<MeshAxis> axes, int ranks) const {
    const std::vector<Rank> group = mesh_.group({}, axes);
    const auto near = std::count_if(group.begin(), group.end(), [&](Rank r) { return problem_.cluster.same_node(r, group[0]); });
    const int peers = std::min(ranks, static_cast<int>(group.size())) - 1;
    const int inside = std::min({peers, static_cast<int>(near) - 1, 7});  // of more, channels are shared out: assumed
    return inside * (has_nvlink() ? 32 : 2) + std::min(peers - inside, 64) * 2 * 2;
  }

  const Problem& problem_;
  Mesh mesh_;
};

}  // namespace detail

/// What a device has beside the buffers of `summary`'s fullest rank.
///
/// Context: 0.5 GiB, on Blackwell 0.7: assumed; PyTorch's kernels are loaded when first used.
/// Gaps: the caching allocator rounds to 2 MiB and cannot join what lies between other tensors: 4 % of
/// what is allocated, as three runs say (max_reserved of Llama 3 70B with 12 layers on 8 B200, tensor
/// parallelism of 1, 2 and 4: 6.5, 3.0 and 2.8 %; SimuMax); with expandable segments, which torchtitan
/// sets (run_train.sh), 1 %: assumed. Programs without that allocator have none.
/// Deviation: of allocated memory as public runs have it, and of the gaps (docs/accuracy_memory.md).
inline DeviceMemory device_memory(const Problem& problem, const Summary& summary) {
  DeviceMemory found;
  const int capability = detail::capability_of(problem);
  found.context = Bytes{(capability >= 100 ? 700 : 500) * detail::mebibyte};
  if (problem.cluster.ranks() > 1) found.collectives = detail::NcclBuffers{problem}.total();
  found.gaps = 0.04;
  found.deviation = 0.1;
  if (!problem.model) return found;
  const Transformer& model = *problem.model;
  if (model.code == LayerCode::tawpipe) {
    found.gaps = 0;
    return found;
  }
  if (model.code == LayerCode::torchtitan || model.code == LayerCode::torchtitan_eager) found.gaps = 0.01;
  const auto fullest = std::max_element(summary.peak_memory.begin(), summary.peak_memory.end(),
                                        [](const PeakMemory& a, const PeakMemory& b) { return a.total < b.total; });
  std::int64_t bytes = detail::workspaces_of(model, capability);
  if (detail::runs_transformer_engine(model) && fullest != summary.peak_memory.end()) {
    const Mesh mesh = problem.mesh.over(problem.cluster.ranks());
    const std::int64_t element = size_bytes(model.dtype);
    bytes += detail::unread_gradients(model.decoder(), mesh) * element + detail::narrow_copies(problem, *fullest);
    // The output matrix is Megatron-LM's own product, whose tensor lives while the logits do.
    if (mesh.pipeline == 1) bytes += std::int64_t{model.vocab} * model.hidden / mesh.tensor * element;
    found.deviation = 0.05;
  }
  found.libraries = Bytes{bytes};
  return found;
}

/// Adds that to a summary of a model.
inline void add_device_memory(Summary& summary, const Problem& problem) {
  if (summary.model.empty()) return;
  summary.beside = device_memory(problem, summary);
}

}  // namespace tawpipe
