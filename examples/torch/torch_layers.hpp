// torch::nn modules with autograd as layers that an executor runs, and tensors as memory that it
// trains in place.
// Not: part of the library, which knows no framework: copy it. Nor a model (train.cpp has one).
#pragma once

#include <torch/torch.h>
#ifdef TAWPIPE_TORCH_CUDA
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <optional>

#include "tawpipe/backend/device_compute.hpp"
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/backend/layer_compute.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/execute/parameter_store.hpp"
#include "tawpipe/model/layer_stack.hpp"

namespace tawpipe_torch {

/// A module and how it is called. Its parameters lie one after another in the order of
/// module->parameters().
struct Part {
  std::shared_ptr<torch::nn::Module> module;
  std::function<torch::Tensor(const torch::Tensor&)> forward;
};

/// `module` is a holder such as torch::nn::Linear or a Sequential.
template <class Holder>
Part part(Holder module) {
  return {module.ptr(), [module](const torch::Tensor& x) mutable { return module->forward(x); }};
}

/// A model of equal layers. Each maker gives a new module of the dtype at each call.
struct Model {
  std::string name = "torch";
  torch::Dtype dtype = torch::kFloat32;
  std::int64_t microbatch = 1;
  std::int64_t sequence = 1;
  std::int64_t hidden = 1;
  std::int32_t layers = 1;
  std::function<Part()> embedding = {};  ///< ids [microbatch, sequence] -> [microbatch, sequence, hidden]
  std::function<Part()> layer = {};      ///< [microbatch, sequence, hidden] -> the same
  std::function<Part()> head = {};       ///< [microbatch, sequence, hidden] -> what `loss` takes
  /// The mean over the tokens, from the head's result and targets [microbatch, sequence]; a scalar.
  std::function<torch::Tensor(const torch::Tensor&, const torch::Tensor&)> loss = {};
};

namespace detail {

template <class Value>
std::string text(const Value& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

inline tawpipe::Dtype dtype_of(torch::Dtype dtype) {
  if (dtype == torch::kFloat32) return tawpipe::Dtype::f32;
  if (dtype == torch::kFloat64) return tawpipe::Dtype::f64;
  throw tawpipe::InputError("the model's dtype is " + text(dtype) + "; this adapter trains in Float or Double");
}

/// @throws InputError  naming the parameter or buffer that does not fit.
inline void check(const Part& part, torch::Dtype dtype, const std::string& what) {
  for (const auto& parameter : part.module->named_parameters()) {
    if (parameter->scalar_type() == dtype) continue;
    throw tawpipe::InputError("parameter " + tawpipe::quote(parameter.key()) + " of the " + what + " is of dtype " +
                              text(parameter->scalar_type()) + ", and the model of " + text(dtype));
  }
  for (const auto& buffer : part.module->named_buffers()) {
    throw tawpipe::InputError("the " + what + " has a buffer, " + tawpipe::quote(buffer.key()) +
                              ", which ranks would not share; only parameters are trained");
  }
}

inline void check_shape(const torch::Tensor& tensor, torch::IntArrayRef shape, torch::Dtype dtype, const std::string& what) {
  if (tensor.sizes() == shape && tensor.scalar_type() == dtype) return;
  throw tawpipe::InputError("the " + what + " gives " + text(tensor.sizes()) + " of " + text(tensor.scalar_type()) +
                            "; expected " + text(shape) + " of " + text(dtype));
}

inline std::int64_t parameters_of(const Part& part) {
  std::int64_t count = 0;
  for (const torch::Tensor& parameter : part.module->parameters()) count += parameter.numel();
  return count;
}

}  // namespace detail

/// The model as schedules see it: a layer keeps its input and runs again in the backward.
/// @throws InputError  for a dtype that does not fit, or a module with buffers.
inline tawpipe::LayerStack layer_stack(const Model& model) {
  const Part embedding = model.embedding(), layer = model.layer(), head = model.head();
  detail::check(embedding, model.dtype, "embedding");
  detail::check(layer, model.dtype, "layer");
  detail::check(head, model.dtype, "head");
  const std::int64_t tokens = model.microbatch * model.sequence;
  const tawpipe::Bytes activation{tokens * model.hidden * static_cast<std::int64_t>(c10::elementSize(model.dtype))};
  const auto part_of = [&](const Part& part) {
    tawpipe::StageWork work{.parameters = detail::parameters_of(part), .stash = activation};
    work.forward = work.recompute = work.backward_input = work.backward_weight =
        tawpipe::Flops{2.0 * static_cast<double>(work.parameters) * static_cast<double>(tokens)};
    return work;
  };
  tawpipe::LayerStack stack{.name = model.name, .layers = model.layers, .dtype = detail::dtype_of(model.dtype)};
  stack.first_edge = part_of(embedding);
  stack.layer = part_of(layer);
  stack.layer.saved = stack.layer.boundary = activation;
  stack.last_edge = part_of(head);
  stack.last_edge.saved = activation;
  stack.last_edge.stash = {};
  return stack;
}

/// The parameters of `parts` (embedding, layers in order, head) in one run, as the library numbers
/// them.
inline torch::Tensor flattened(std::span<const Part> parts) {
  std::vector<torch::Tensor> all;
  for (const Part& part : parts) {
    for (const torch::Tensor& parameter : part.module->parameters()) all.push_back(parameter.detach().reshape({-1}));
  }
  return torch::cat(all);
}

/// The tensor's memory for an executor to keep those parameters of a rank in: one entry of
/// kept_parameters().
/// @throws InputError  if the tensor is of a different dtype or size, or not contiguous.
inline tawpipe::LentParameters lend(const torch::Tensor& tensor, const Model& model, tawpipe::Rank rank,
                                    tawpipe::ContentKind kind, std::vector<tawpipe::ParameterRange> parameters) {
  std::int64_t count = 0;
  for (const tawpipe::ParameterRange& range : parameters) count += range.count();
  if (tensor.scalar_type() != model.dtype || tensor.numel() != count || !tensor.is_contiguous()) {
    throw tawpipe::InputError(tawpipe::concat("the tensor lent to rank ", tawpipe::number(rank), " has shape ",
                                              detail::text(tensor.sizes()), " of ", detail::text(tensor.scalar_type()),
                                              tensor.is_contiguous() ? "" : ", not contiguous", "; expected ", count,
                                              " numbers of ", detail::text(model.dtype), " one after another"));
  }
  const auto bytes = static_cast<std::size_t>(tensor.nbytes());
  return {rank, kind, std::move(parameters), {static_cast<std::byte*>(tensor.data_ptr()), bytes}};
}

/// LayerCompute by autograd, for any schedule: weights are wherever the schedule has them at the
/// moment, so modules take them by from_blob for each call. A layer's forward keeps its input, and
/// its backward runs it again: modules must give the same result twice, so no dropout. On a device
/// (TAWPIPE_TORCH_CUDA) it models DeviceLayer, without capture into a graph.
class TorchLayers {
 public:
  explicit TorchLayers(const Model& model, torch::Device device = torch::kCPU)
      : model_{model}, device_{device}, embedding_{model.embedding()}, layer_{model.layer()}, head_{model.head()} {
    for (const Part* part : {&embedding_, &layer_, &head_}) part->module->to(device);
    shape_ = {model.microbatch, model.sequence, model.hidden};
    activation_ = static_cast<std::size_t>(model.microbatch * model.sequence * model.hidden) * c10::elementSize(model.dtype);
    layer_bytes_ = static_cast<std::size_t>(detail::parameters_of(layer_)) * c10::elementSize(model.dtype);
  }

  void forward(const tawpipe::ForwardArgs& args) {
    [[maybe_unused]] const auto guard = on_stream();
    const torch::NoGradGuard no_gradients;
    torch::Tensor x = args.stage->first_edge ? call(embedding_, args.weights.first_edge, ids(args.tokens), "embedding")
                                             : activation(args.input, "input");
    for (int l = 0; l < args.stage->layers; ++l) {
      kept(args.saved, l).copy_(x);
      x = call(layer_, args.weights.layers + at(l), x, "layer");
    }
    if (!args.stage->last_edge) {
      activation(args.output, "output").copy_(x);
      return;
    }
    kept(args.saved, args.stage->layers).copy_(x);
    torch::from_blob(args.loss, {}, options(torch::kFloat64)).copy_(loss(args.weights.last_edge, x, args.targets));
  }

  void backward(const tawpipe::BackwardArgs& args) { differentiate(args, true, true); }
  void backward_input(const tawpipe::BackwardArgs& args) { differentiate(args, true, false); }
  void backward_weight(const tawpipe::BackwardArgs& args) { differentiate(args, false, true); }

#ifdef TAWPIPE_TORCH_CUDA
  void use_stream(cudaStream_t stream) { stream_ = c10::cuda::getStreamFromExternal(stream, device_.index()).unwrap(); }

 private:
  c10::cuda::OptionalCUDAStreamGuard on_stream() const { return c10::cuda::OptionalCUDAStreamGuard(stream_); }
  std::optional<c10::Stream> stream_;
#else
 private:
  static int on_stream() { return 0; }
#endif
  torch::TensorOptions options(torch::Dtype dtype) const { return torch::TensorOptions().dtype(dtype).device(device_); }
  /// Memory of an activation as a tensor [microbatch, sequence, hidden].
  template <class Byte>
  torch::Tensor activation(std::span<Byte> memory, const std::string& what) const {
    if (memory.size() != activation_) {
      throw tawpipe::InputError(tawpipe::concat("the stage's ", what, " has ", memory.size(), " bytes; ", detail::text(shape_),
                                                " of ", detail::text(model_.dtype), " need ", activation_,
                                                ": was the schedule built for layer_stack() of this model?"));
    }
    return torch::from_blob(const_cast<std::byte*>(memory.data()), shape_, options(model_.dtype));
  }
  torch::Tensor kept(std::span<std::byte> memory, int place) const {
    const auto rest = memory.subspan(std::min(static_cast<std::size_t>(place) * activation_, memory.size()));
    return activation(rest.first(std::min(activation_, rest.size())), "memory for what is kept");
  }
  torch::Tensor ids(std::span<const std::int32_t> tokens) const {
    return torch::from_blob(const_cast<std::int32_t*>(tokens.data()), {model_.microbatch, model_.sequence},
                            options(torch::kInt32))
        .to(torch::kInt64);
  }
  std::size_t at(int layer) const { return static_cast<std::size_t>(layer) * layer_bytes_; }

  /// The module's parameters are those in memory from now on.
  void bind(const Part& part, const std::byte* weights) const {
    for (torch::Tensor& parameter : part.module->parameters()) {
      parameter.set_data(torch::from_blob(const_cast<std::byte*>(weights), parameter.sizes(), options(model_.dtype)));
      weights += parameter.nbytes();
    }
  }
  torch::Tensor call(const Part& part, const std::byte* weights, const torch::Tensor& x, const char* what) const {
    bind(part, weights);
    torch::Tensor y = part.forward(x);
    detail::check_shape(y, shape_, model_.dtype, what);
    return y;
  }
  torch::Tensor loss(const std::byte* weights, const torch::Tensor& x, std::span<const std::int32_t> targets) const {
    bind(head_, weights);
    torch::Tensor loss = model_.loss(head_.forward(x), ids(targets));
    detail::check_shape(loss, {}, model_.dtype, "loss");
    return loss;
  }

  /// The gradient of `y` by its input `x` (where that is requested), and by the part's parameters,
  /// added to `gradients`.
  torch::Tensor gradient(const Part& part, const torch::Tensor& y, const torch::Tensor& dy, const torch::Tensor& x, bool input,
                         std::byte* gradients) const {
    std::vector<torch::Tensor> by;
    if (gradients != nullptr) by = part.module->parameters();
    if (input) by.push_back(x);
    std::vector<torch::Tensor> found;
    if (!by.empty())
      found = torch::autograd::grad({y}, by, {dy}, /*retain_graph=*/false, /*create_graph=*/false, /*allow_unused=*/true);
    for (std::size_t i = 0; i + (input ? 1 : 0) < by.size(); ++i) {
      if (found[i].defined()) torch::from_blob(gradients, by[i].sizes(), options(model_.dtype)).add_(found[i]);
      gradients += by[i].nbytes();
    }
    return input ? found.back() : torch::Tensor{};
  }

  /// Last layer first. Without `input`, the gradients of the layers' outputs are those that the
  /// call for the input has kept.
  void differentiate(const tawpipe::BackwardArgs& args, bool input, bool weights) {
    [[maybe_unused]] const auto guard = on_stream();
    const auto leaf = [&](int place) { return kept(args.saved, place).detach().requires_grad_(input); };
    const int layers = args.stage->layers;
    const bool apart = input != weights;  // one half of a backward in two
    torch::Tensor dy;
    if (args.stage->last_edge) {
      const torch::Tensor x = leaf(layers);
      const torch::Tensor y = loss(args.weights.last_edge, x, args.targets) * args.scale;
      dy = gradient(head_, y, torch::ones_like(y), x, input, weights ? args.gradients.last_edge : nullptr);
    } else if (input) {
      dy = activation(args.output_gradient, "output gradient");
    }
    for (int l = layers; l-- > 0;) {
      if (apart && input) kept(args.stash, l).copy_(dy);
      if (apart && weights) dy = kept(args.stash, l);
      const torch::Tensor x = leaf(l);
      const torch::Tensor y = call(layer_, args.weights.layers + at(l), x, "layer");
      dy = gradient(layer_, y, dy, x, input, weights ? args.gradients.layers + at(l) : nullptr);
    }
    if (!args.stage->first_edge) {
      if (input) activation(args.input_gradient, "input gradient").copy_(dy);
      return;
    }
    if (apart && input) kept(args.stash, layers).copy_(dy);
    if (!weights) return;
    if (apart) dy = kept(args.stash, layers);
    const torch::Tensor y = call(embedding_, args.weights.first_edge, ids(args.tokens), "embedding");
    gradient(embedding_, y, dy, {}, false, args.gradients.first_edge);
  }

  Model model_;
  torch::Device device_;
  Part embedding_, layer_, head_;
  std::vector<std::int64_t> shape_;  ///< of an activation
  std::size_t activation_ = 0;       ///< its bytes
  std::size_t layer_bytes_ = 0;
};

static_assert(tawpipe::LayerCompute<TorchLayers>);
#ifdef TAWPIPE_TORCH_CUDA
static_assert(tawpipe::DeviceLayer<TorchLayers, cudaStream_t>);
#endif

}  // namespace tawpipe_torch
