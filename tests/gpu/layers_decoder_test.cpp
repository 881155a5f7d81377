// The whole decoder on a GPU: float32 against golden numbers, every policy and split, 16 bits, a
// captured graph, AdamW.
// Not: its kernels one by one (layers_kernels_test.cpp).
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "layers_support.hpp"
#include "tawpipe/layers/cuda/adamw.hpp"
#include "tawpipe/layers/cuda/llama.hpp"
#include "tawpipe/model/parameters.hpp"
#include "tawpipe/model/transformer_work.hpp"

using namespace gpu_test;
using tawpipe::concat;
using tawpipe::Recompute;

namespace {

std::string data = TAWPIPE_TEST_DATA;  ///< the folder tests/data; an argument where it was moved since the build

/// A tensor of a safetensors file of ours, whose header has no escapes.
template <class T>
std::vector<T> tensor(const std::string& file, const std::string& name) {
  static std::map<std::string, std::string> files;
  std::string& bytes = files[file];
  if (bytes.empty()) {
    std::ifstream in{data + "/llama_golden/A/A." + file + ".safetensors", std::ios::binary};
    bytes.assign(std::istreambuf_iterator<char>{in}, {});
  }
  std::uint64_t header = 0;
  if (bytes.size() > 8) std::memcpy(&header, bytes.data(), 8);
  const std::size_t entry = bytes.find("\"" + name + "\":{");
  const std::size_t offsets = bytes.find("\"data_offsets\":[", entry);
  if (entry == std::string::npos || offsets == std::string::npos) {
    expect(false, "no tensor " + name + " in " + file);
    return {};
  }
  std::size_t digits = 0;
  const std::uint64_t begin = std::stoull(bytes.substr(offsets + 16), &digits);
  const std::uint64_t end = std::stoull(bytes.substr(offsets + 16 + digits + 1));
  std::vector<T> numbers((end - begin) / sizeof(T));
  std::memcpy(numbers.data(), bytes.data() + 8 + header + begin, end - begin);
  return numbers;
}

/// Configuration A of the golden numbers.
tawpipe::Transformer model_of(tawpipe::Dtype dtype) {
  return {.name = "golden",
          .layers = 4,
          .hidden = 32,
          .heads = 4,
          .kv_heads = 4,
          .intermediate = 96,
          .vocab = 61,
          .tied = true,
          .dtype = dtype};
}
constexpr tawpipe::Batch batch{.sequence = 16, .microbatch_size = 1, .global_batch = 8};
constexpr int microbatches = 8;

struct Result {
  std::vector<double> losses;
  std::vector<double> gradients;
};

/// All microbatches of the first step, as one stage. @param loss_chunk  0: algorithms of products
/// are not tried either
template <class T, class G>
Result first_step(Recompute recompute, bool split, bool captured, int loss_chunk) {
  auto model = model_of(cuda::dtype_of<T>);
  model.loss_chunk = loss_chunk;
  const tawpipe::ParameterOrder order{model};
  std::vector<T> weights;
  for (const auto& one : order.tensors()) {
    for (const float x : tensor<float>("init", one.name)) weights.push_back(cuda::narrow<T>(x));
  }
  const tawpipe::StageWork stage = tawpipe::transformer_work(model, batch, recompute, 0, model.layers, true, true);
  const Array<T> device_weights{weights};
  const Array<G> gradients{std::vector<G>(weights.size())};
  const auto bytes = [](tawpipe::Bytes size) {
    return Array<unsigned char>{std::vector<unsigned char>(static_cast<std::size_t>(size.value()), 0xff)};
  };
  const auto saved = bytes(stage.saved);
  const auto stash = bytes(stage.stash);
  const auto forward_workspace = bytes(stage.forward_workspace);
  const auto backward_workspace = bytes(stage.backward_workspace);
  const auto span = [](const Array<unsigned char>& memory, tawpipe::Bytes size) {
    return std::span<std::byte>{reinterpret_cast<std::byte*>(memory.data()), static_cast<std::size_t>(size.value())};
  };
  const auto places = [&](auto* at) {
    using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(at)>>, const std::byte, std::byte>;
    const auto place = [&](std::int64_t begin) { return reinterpret_cast<Byte*>(at + begin); };
    return tawpipe::StageParameters<Byte>{place(order.layers(0, model.layers).begin), place(order.first_edge().begin),
                                          place(order.last_edge().begin)};
  };
  const auto all_tokens = tensor<std::int32_t>("data", "tokens");
  const auto all_targets = tensor<std::int32_t>("data", "targets");
  const auto ids = static_cast<std::size_t>(batch.tokens());
  const Array<std::int32_t> tokens{std::vector<std::int32_t>(ids)};
  const Array<std::int32_t> targets{std::vector<std::int32_t>(ids)};
  const Array<double> loss{std::vector<double>(1)};

  cuda::ProductChoices choices;
  cuda::Llama<T, G> llama{model, batch, recompute, {}, loss_chunk > 0 ? &choices : nullptr};
  cudaStream_t stream = nullptr;
  cuda::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  llama.use_stream(stream);
  tawpipe::ForwardArgs forward;
  forward.stage = &stage;
  forward.weights = places(static_cast<const T*>(device_weights.data()));
  forward.saved = span(saved, stage.saved);
  forward.workspace = span(forward_workspace, stage.forward_workspace);
  forward.tokens = {tokens.data(), ids};
  forward.targets = {targets.data(), ids};
  forward.loss = loss.data();
  tawpipe::BackwardArgs backward;
  backward.stage = &stage;
  backward.weights = forward.weights;
  backward.gradients = places(gradients.data());
  backward.saved = forward.saved;
  backward.stash = span(stash, stage.stash);
  backward.workspace = span(backward_workspace, stage.backward_workspace);
  backward.tokens = forward.tokens;
  backward.targets = forward.targets;
  backward.scale = 1.0 / microbatches;
  const auto compute = [&] {
    llama.forward(forward);
    if (split) {
      llama.backward_input(backward);
      llama.backward_weight(backward);
    } else {
      llama.backward(backward);
    }
  };
  Result result;
  cudaGraphExec_t graph = nullptr;
  for (int m = 0; m < microbatches; ++m) {
    const auto upload = [&](const Array<std::int32_t>& to, const std::vector<std::int32_t>& from) {
      cuda::check(cudaMemcpy(to.data(), from.data() + static_cast<std::size_t>(m) * ids, ids * 4, cudaMemcpyHostToDevice),
                  "cudaMemcpy");
    };
    upload(tokens, all_tokens);
    upload(targets, all_targets);
    wait();
    if (captured && m == 1) {
      cudaGraph_t made = nullptr;
      cuda::check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
      compute();
      cuda::check(cudaStreamEndCapture(stream, &made), "cudaStreamEndCapture");
      cuda::check(cudaGraphInstantiate(&graph, made, 0), "cudaGraphInstantiate");
      cuda::check(cudaGraphDestroy(made), "cudaGraphDestroy");
    }
    if (graph != nullptr) {
      cuda::check(cudaGraphLaunch(graph, stream), "cudaGraphLaunch");
    } else {
      compute();
    }
    wait();
    result.losses.push_back(loss.copy().front());
  }
  if (graph != nullptr) cuda::check(cudaGraphExecDestroy(graph), "cudaGraphExecDestroy");
  cuda::check(cudaStreamDestroy(stream), "cudaStreamDestroy");
  for (const G g : gradients.copy()) result.gradients.push_back(as_double(g));
  return result;
}

/// `unit`: what losses may be off by, and a tensor's gradients relative to their norm.
void check_result(const char* name, const Result& found, double loss_unit, double gradient_unit) {
  const auto losses = tensor<double>("expect", "loss_mb.f64");
  for (int m = 0; m < microbatches; ++m) {
    const auto i = static_cast<std::size_t>(m);
    expect(std::abs(found.losses[i] - losses[i]) < loss_unit, std::string{name} + ": a loss", found.losses[i] - losses[i]);
  }
  for (const auto& one : tawpipe::ParameterOrder{model_of(tawpipe::Dtype::f32)}.tensors()) {
    const auto wanted = tensor<double>("expect", "grad0/" + one.name);
    double square = 0;
    double norm = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      square += std::pow(found.gradients[static_cast<std::size_t>(one.range.begin) + i] - wanted[i], 2);
      norm += wanted[i] * wanted[i];
    }
    const double off = std::sqrt(square / norm);
    expect(off < gradient_unit, std::string{name} + " " + one.name, off);
  }
}

template <class T, class G>
void check_policies(const char* name, double loss_unit, double gradient_unit) {
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    for (const bool split : {false, true}) {
      check_result(name, first_step<T, G>(recompute, split, split, 0), loss_unit, gradient_unit);
    }
  }
  for (const bool split : {false, true}) {
    check_result(concat(name, " in chunks").c_str(), first_step<T, G>(Recompute::none, split, split, 24), loss_unit,
                 gradient_unit);
  }
}

/// Three steps on random numbers against the host.
void check_adamw() {
  const auto model = model_of(tawpipe::Dtype::bf16);
  const std::int64_t count = model.parameters();
  auto weights = numbers<float>(count, 1);
  const auto gradients = numbers<float>(count, 2);
  std::vector<float> mean(weights.size());
  std::vector<float> square(weights.size());
  const Array<float> master{weights};
  const Array<float> device_mean{mean};
  const Array<float> device_square{square};
  const Array<float> device_gradients{gradients};
  const Array<tawpipe::Bfloat16> rounded{std::vector<tawpipe::Bfloat16>(weights.size())};
  const tawpipe::layers::AdamW constants;
  const cuda::DeviceAdamW<tawpipe::Bfloat16> optimizer{model, constants};
  for (std::int64_t step = 1; step <= 3; ++step) {
    tawpipe::StepScalars scalars;
    scalars.learning_rate = 1e-2;
    scalars.step = step;
    const Array<tawpipe::StepScalars> device_scalars{{scalars}};
    tawpipe::DeviceUpdateArgs args;
    args.parameters = {0, count};
    args.weights = {reinterpret_cast<std::byte*>(rounded.data()), weights.size() * 2};
    args.gradients = {reinterpret_cast<const std::byte*>(device_gradients.data()), weights.size() * 4};
    args.master = master.data();
    args.first_moment = device_mean.data();
    args.second_moment = device_square.data();
    args.scalars = device_scalars.data();
    optimizer.update(args, nullptr);
    wait();
    for (const auto& one : tawpipe::ParameterOrder{model}.tensors()) {
      const auto part = [&](auto& all) {
        return std::span{all}.subspan(static_cast<std::size_t>(one.range.begin), static_cast<std::size_t>(one.range.count()));
      };
      tawpipe::layers::adamw_step<float>(constants, {.number = step, .learning_rate = 1e-2, .decay = one.decays()}, part(weights),
                                         part(gradients), part(mean), part(square));
    }
  }
  expect(difference(master.copy(), weights) < 1e-6, "AdamW's weights", difference(master.copy(), weights));
  expect(difference(rounded.copy(), weights) < 0x1p-8, "AdamW's rounded weights", difference(rounded.copy(), weights));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) data = argv[1];
  return run([] {
    check_policies<float, float>("float32", 1e-5, 1e-5);
    check_policies<tawpipe::Bfloat16, float>("bfloat16", 24 * 0x1p-9, 24 * 0x1p-9);
    check_policies<tawpipe::Half, float>("float16", 24 * 0x1p-12, 24 * 0x1p-12);
    check_adamw();
  });
}
