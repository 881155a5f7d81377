// Trains a model of torch::nn modules by schedules of this library, in tensors that the program
// lends, and compares losses, gradients and weights with the same training in plain LibTorch.
// Not: the adapter (torch_layers.hpp).
#include <cmath>
#include <cstdio>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/execute/host/executor.hpp"
#include "tawpipe/schedules/shipped.hpp"
#include "torch_layers.hpp"

namespace {

namespace nn = torch::nn;

constexpr std::int64_t vocab = 23, hidden = 16, heads = 2, sequence = 12, microbatches = 8;
constexpr double learning_rate = 0.1;

// A decoder's layer: x + attention(norm(x)), then x + W2 gelu(W1 norm(x)).
struct LayerImpl : nn::Module {
  nn::LayerNorm first{nullptr}, second{nullptr};
  nn::Linear qkv{nullptr}, out{nullptr}, up{nullptr}, down{nullptr};

  LayerImpl() {
    first = register_module("first", nn::LayerNorm(nn::LayerNormOptions({hidden})));
    qkv = register_module("qkv", nn::Linear(hidden, 3 * hidden));
    out = register_module("out", nn::Linear(hidden, hidden));
    second = register_module("second", nn::LayerNorm(nn::LayerNormOptions({hidden})));
    up = register_module("up", nn::Linear(hidden, 4 * hidden));
    down = register_module("down", nn::Linear(4 * hidden, hidden));
  }
  torch::Tensor forward(torch::Tensor x) {
    const auto parts = qkv->forward(first->forward(x)).view({x.size(0), x.size(1), 3, heads, hidden / heads}).unbind(2);
    const auto attended = torch::scaled_dot_product_attention(parts[0].transpose(1, 2), parts[1].transpose(1, 2),
                                                              parts[2].transpose(1, 2), {}, 0.0, /*is_causal=*/true);
    x = x + out->forward(attended.transpose(1, 2).reshape(x.sizes()));
    return x + down->forward(torch::gelu(up->forward(second->forward(x))));
  }
};
TORCH_MODULE(Layer);

tawpipe_torch::Model decoder(std::int32_t layers) {
  tawpipe_torch::Model model{.name = "decoder", .sequence = sequence, .hidden = hidden, .layers = layers};
  model.embedding = [] { return tawpipe_torch::part(nn::Embedding(vocab, hidden)); };
  model.layer = [] { return tawpipe_torch::part(Layer()); };
  model.head = [] {
    return tawpipe_torch::part(
        nn::Sequential(nn::LayerNorm(nn::LayerNormOptions({hidden})), nn::Linear(nn::LinearOptions(hidden, vocab).bias(false))));
  };
  model.loss = [](const torch::Tensor& logits, const torch::Tensor& targets) {
    return nn::functional::cross_entropy(logits.view({-1, vocab}), targets.view({-1}));
  };
  return model;
}

// Each token is followed by its double plus one, modulo the vocabulary.
struct Doubling {
  void fetch(std::int64_t step, std::int32_t microbatch, std::span<std::int32_t> ids, std::span<std::int32_t> targets) const {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<std::int32_t>((5 * step + 3 * microbatch + static_cast<std::int64_t>(i)) % vocab);
      targets[i] = static_cast<std::int32_t>((2 * ids[i] + 1) % vocab);
    }
  }
};

struct Descent {
  void update(const tawpipe::UpdateArgs& args) const {
    const auto count = static_cast<std::int64_t>(args.weights.size() / sizeof(float));
    auto* gradients = const_cast<std::byte*>(args.gradients.data());
    torch::from_blob(args.weights.data(), {count})
        .sub_(torch::from_blob(gradients, {count}), args.learning_rate * args.gradient_scale);
  }
};

/// What a training leaves: losses [step], the first step's gradient and the last weights
/// [parameter].
struct Trained {
  std::vector<double> losses;
  torch::Tensor gradient;
  torch::Tensor weights;
};

/// The same modules, autograd and torch::optim::SGD; no part of this library.
Trained train_plainly(const std::vector<tawpipe_torch::Part>& parts, const tawpipe_torch::Model& model, int steps) {
  std::vector<torch::Tensor> parameters;
  for (const auto& part : parts) {
    for (const torch::Tensor& parameter : part.module->parameters()) parameters.push_back(parameter);
  }
  torch::optim::SGD optimizer{parameters, torch::optim::SGDOptions(learning_rate)};
  Trained trained;
  for (int step = 1; step <= steps; ++step) {
    optimizer.zero_grad();
    double sum = 0;
    for (std::int32_t m = 0; m < microbatches; ++m) {
      std::vector<std::int32_t> ids(sequence), targets(sequence);
      Doubling{}.fetch(step, m, ids, targets);
      torch::Tensor x = torch::tensor(ids, torch::kInt64).view({1, sequence});
      for (const auto& part : parts) x = part.forward(x);
      const torch::Tensor loss = model.loss(x, torch::tensor(targets, torch::kInt64));
      sum += loss.item<double>();
      (loss / static_cast<double>(microbatches)).backward();
    }
    if (step == 1) {
      std::vector<torch::Tensor> gradients;
      for (const torch::Tensor& parameter : parameters) gradients.push_back(parameter.grad().reshape({-1}));
      trained.gradient = torch::cat(gradients);
    }
    trained.losses.push_back(sum / static_cast<double>(microbatches));
    optimizer.step();
  }
  trained.weights = tawpipe_torch::flattened(parts);
  return trained;
}

/// By a schedule, in this program's own tensors: for each rank those that hold the weights and the
/// gradients it keeps.
Trained train_by(const char* name, const std::vector<std::int32_t>& nodes, const tawpipe_torch::Model& model,
                 const torch::Tensor& initial, int steps) {
  tawpipe::Workload work{tawpipe_torch::layer_stack(model),
                         tawpipe::Batch{.sequence = sequence, .microbatch_size = 1, .global_batch = microbatches}};
  work.parameter_bytes({.weight = 4, .gradient = 4, .optimizer = 8});
  const tawpipe::Schedule schedule =
      tawpipe::shipped_schedules().build(name, {.workload = work, .nodes = tawpipe::DeviceGroups{nodes}, .options = {}});

  std::vector<std::pair<tawpipe::LentParameters, torch::Tensor>> weights;
  std::vector<torch::Tensor> gradients;
  std::vector<tawpipe::LentParameters> lent;
  for (std::int32_t r = 0; r < schedule.ranks(); ++r) {
    for (const auto kind : {tawpipe::ContentKind::weights, tawpipe::ContentKind::gradients}) {
      for (const auto& kept : tawpipe::kept_parameters(schedule, tawpipe::Rank{r}, kind)) {
        const torch::Tensor tensor = torch::zeros({tawpipe::parameters_in(kept)});
        lent.push_back(tawpipe_torch::lend(tensor, model, tawpipe::Rank{r}, kind, kept));
        if (kind == tawpipe::ContentKind::weights)
          weights.emplace_back(lent.back(), tensor);
        else
          gradients.push_back(tensor);
      }
    }
  }
  // Calls visit(part of a lent tensor, the same parameters of one tensor of all).
  const auto for_each_range = [&](const torch::Tensor& all, auto&& visit) {
    for (const auto& [one, tensor] : weights) {
      std::int64_t offset = 0;
      for (const tawpipe::ParameterRange& range : one.parameters) {
        if (!schedule.is_padding(range))
          visit(tensor.narrow(0, offset, range.count()), all.narrow(0, range.begin, range.count()));
        offset += range.count();
      }
    }
  };
  for_each_range(initial, [](const torch::Tensor& part, const torch::Tensor& all) { part.copy_(all); });

  tawpipe::host::HostExecutor<float, tawpipe_torch::TorchLayers, Descent> executor{
      schedule, [&] { return tawpipe_torch::TorchLayers{model}; }, Descent{}, {.lent = lent}};
  Trained trained;
  trained.gradient = torch::zeros_like(initial);
  trained.weights = torch::zeros_like(initial);
  std::mutex mutex;
  const auto observe = [&](tawpipe::ParameterRange range, std::span<const float> numbers) {
    if (!trained.losses.empty()) return;
    const std::lock_guard lock{mutex};
    std::copy(numbers.begin(), numbers.end(), trained.gradient.data_ptr<float>() + range.begin);
  };
  for (int step = 1; step <= steps; ++step) {
    trained.losses.push_back(executor.run(Doubling{}, {.step = step, .learning_rate = learning_rate}, observe).loss());
  }
  for_each_range(trained.weights, [](const torch::Tensor& part, torch::Tensor all) { all.copy_(part); });
  std::int64_t lent_numbers = 0;
  for (const auto& [one, tensor] : weights) lent_numbers += tensor.numel();
  std::printf("%-12s %d ranks, %lld weights in %zu lent tensors:", name, schedule.ranks(), static_cast<long long>(lent_numbers),
              weights.size());
  return trained;
}

double difference(const torch::Tensor& a, const torch::Tensor& b) { return (a - b).abs().max().item<double>(); }

bool compare(const Trained& plain, const Trained& found) {
  double loss = 0;
  for (std::size_t i = 0; i < plain.losses.size(); ++i) loss = std::max(loss, std::abs(plain.losses[i] - found.losses[i]));
  const double gradient = difference(plain.gradient, found.gradient), weights = difference(plain.weights, found.weights);
  const bool same = loss < 1e-5 && gradient < 1e-5 && weights < 1e-5;
  std::printf(" losses %.4f to %.4f; differences: losses %.1e, gradients %.1e, weights %.1e%s\n", found.losses.front(),
              found.losses.back(), loss, gradient, weights, same ? "" : "  TOO LARGE");
  return same;
}

/// Prints the error with which a call refuses what does not fit.
template <class Call>
bool refuses(const char* what, Call&& call) {
  try {
    call();
  } catch (const tawpipe::InputError& error) {
    std::printf("%s: %s\n", what, error.what());
    return true;
  }
  std::printf("%s: NOT REFUSED\n", what);
  return false;
}

bool refuses_what_does_not_fit() {
  bool all = true;
  tawpipe_torch::Model model = decoder(2);
  all = refuses("dtype of a module",
                [&] {
                  model.layer = [] {
                    Layer layer;
                    layer->to(torch::kFloat64);
                    return tawpipe_torch::part(layer);
                  };
                  tawpipe_torch::layer_stack(model);
                }) &&
        all;
  all = refuses("shape of a layer",
                [&] {
                  model = decoder(2);
                  model.layer = [] { return tawpipe_torch::part(nn::Linear(hidden, hidden + 1)); };
                  train_by("1f1b", {1}, model, torch::zeros({tawpipe_torch::layer_stack(model).parameters()}), 1);
                }) &&
        all;
  all = refuses("buffers",
                [&] {
                  model = decoder(2);
                  model.layer = [] { return tawpipe_torch::part(nn::BatchNorm1d(sequence)); };
                  tawpipe_torch::layer_stack(model);
                }) &&
        all;
  const std::vector<tawpipe::ParameterRange> ten{{.begin = 0, .end = 10}};
  all = refuses("dtype of a lent tensor",
                [&] {
                  tawpipe_torch::lend(torch::zeros({10}, torch::kFloat64), model, tawpipe::Rank{1}, tawpipe::ContentKind::weights,
                                      ten);
                }) &&
        all;
  all = refuses("size of a lent tensor",
                [&] {
                  tawpipe_torch::lend(torch::zeros({2, 3}), model, tawpipe::Rank{1}, tawpipe::ContentKind::weights, ten);
                }) &&
        all;
  return all;
}

}  // namespace

int main() {
  torch::set_num_threads(1);  // ranks are threads already
  torch::manual_seed(1);
  constexpr int steps = 20;
  bool same = true;
  const tawpipe_torch::Model model = decoder(4);
  std::vector<tawpipe_torch::Part> parts{model.embedding()};
  for (std::int32_t l = 0; l < model.layers; ++l) parts.push_back(model.layer());
  parts.push_back(model.head());
  const torch::Tensor initial = tawpipe_torch::flattened(parts).clone();
  const Trained plain = train_plainly(parts, model, steps);
  std::printf("plain LibTorch: losses %.4f to %.4f\n", plain.losses.front(), plain.losses.back());
  const std::pair<const char*, std::vector<std::int32_t>> runs[] = {
      {"1f1b", {2}}, {"1f1b", {4}}, {"tawpipe", {1, 1}}, {"tawpipe", {2, 2}}, {"zb-h1", {4}}, {"zb-v", {2}}, {"fsdp", {2, 2}}};
  for (const auto& [name, nodes] : runs) same = compare(plain, train_by(name, nodes, model, initial, steps)) && same;
  same = refuses_what_does_not_fit() && same;
  return same ? 0 : 1;
}
