// One rank of a schedule on a GPU with torch::nn modules, on a communicator and a stream that the
// program had before: those of a framework are used, not owned.
// Not: the adapter (torch_layers.hpp) nor a comparison of many schedules (train.cpp).
//
//   for r in 0 1; do RANK=$r WORLD_SIZE=2 LOCAL_RANK=$r build-torch/train_gpu tawpipe /tmp/nccl-id & done; wait
#include <c10/cuda/CUDAStream.h>
#include <nccl.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tawpipe/execute/cuda/cuda_api.hpp"
#include "tawpipe/execute/cuda/nccl_api.hpp"
#include "tawpipe/execute/cuda/nccl_executor.hpp"
#include "tawpipe/schedules/shipped.hpp"
#include "torch_layers.hpp"

namespace {

namespace nn = torch::nn;

constexpr std::int64_t vocab = 23, hidden = 16, sequence = 12, microbatches = 8;
constexpr double learning_rate = 0.1;

tawpipe_torch::Model perceptrons() {
  tawpipe_torch::Model model{.name = "perceptrons", .sequence = sequence, .hidden = hidden, .layers = 4};
  model.embedding = [] { return tawpipe_torch::part(nn::Embedding(vocab, hidden)); };
  model.layer = [] {
    return tawpipe_torch::part(nn::Sequential(nn::Linear(hidden, 4 * hidden), nn::GELU(), nn::Linear(4 * hidden, hidden)));
  };
  model.head = [] { return tawpipe_torch::part(nn::Linear(hidden, vocab)); };
  model.loss = [](const torch::Tensor& logits, const torch::Tensor& targets) {
    return nn::functional::cross_entropy(logits.view({-1, vocab}), targets.view({-1}));
  };
  return model;
}

struct Doubling {
  void fetch(std::int64_t step, std::int32_t microbatch, std::span<std::int32_t> ids, std::span<std::int32_t> targets) const {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<std::int32_t>((5 * step + 3 * microbatch + static_cast<std::int64_t>(i)) % vocab);
      targets[i] = static_cast<std::int32_t>((2 * ids[i] + 1) % vocab);
    }
  }
};

/// Gradient descent; the learning rate is read on the device.
struct Descent {
  void update(const tawpipe::DeviceUpdateArgs& args, cudaStream_t stream) const {
    const c10::cuda::CUDAStreamGuard guard{c10::cuda::getStreamFromExternal(stream, c10::cuda::current_device())};
    const auto count = static_cast<std::int64_t>(args.weights.size() / sizeof(float));
    const auto on_gpu = torch::TensorOptions().device(torch::kCUDA);
    const auto rate = torch::from_blob(const_cast<double*>(&args.scalars->learning_rate), {}, on_gpu.dtype(torch::kFloat64));
    const auto gradients = torch::from_blob(const_cast<std::byte*>(args.gradients.data()), {count}, on_gpu);
    torch::from_blob(args.weights.data(), {count}, on_gpu).sub_(gradients * rate.to(torch::kFloat32));
  }
};

/// A communicator as a framework would have it; the ranks meet at a file.
ncclComm_t connect(int rank, int ranks, const std::string& file) {
  ncclUniqueId id;
  if (rank == 0) {
    tawpipe::cuda::check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    std::ofstream{file + ".part", std::ios::binary}.write(id.internal, sizeof(id.internal));
    std::filesystem::rename(file + ".part", file);
  } else {
    while (!std::filesystem::exists(file)) std::this_thread::sleep_for(std::chrono::milliseconds{10});
    std::ifstream{file, std::ios::binary}.read(id.internal, sizeof(id.internal));
  }
  ncclComm_t comm = nullptr;
  tawpipe::cuda::check(ncclCommInitRank(&comm, ranks, id, rank), "ncclCommInitRank");
  return comm;
}

/// [step] mean losses of the same training by LibTorch on the CPU.
std::vector<double> train_plainly(const tawpipe_torch::Model& model, const std::vector<tawpipe_torch::Part>& parts, int steps) {
  std::vector<torch::Tensor> parameters;
  for (const auto& part : parts) {
    for (const torch::Tensor& parameter : part.module->parameters()) parameters.push_back(parameter);
  }
  torch::optim::SGD optimizer{parameters, torch::optim::SGDOptions(learning_rate)};
  std::vector<double> losses;
  for (int step = 1; step <= steps; ++step) {
    optimizer.zero_grad();
    double sum = 0;
    for (std::int32_t m = 0; m < microbatches; ++m) {
      std::vector<std::int32_t> ids(sequence), targets(sequence);
      Doubling{}.fetch(step, m, ids, targets);
      torch::Tensor x = torch::tensor(ids, torch::kInt64).view({1, sequence});
      for (const auto& part : parts) x = part.forward(x);
      const torch::Tensor loss = model.loss(x, torch::tensor(targets, torch::kInt64)) / static_cast<double>(microbatches);
      sum += loss.item<double>();
      loss.backward();
    }
    losses.push_back(sum);
    optimizer.step();
  }
  return losses;
}

int environment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::atoi(text);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: RANK=.. WORLD_SIZE=.. LOCAL_RANK=.. train_gpu SCHEDULE FILE-TO-MEET-AT\n", stderr);
    return 2;
  }
  const int rank = environment("RANK"), ranks = environment("WORLD_SIZE"), device = environment("LOCAL_RANK"), steps = 20;
  tawpipe::cuda::CudaDevice gpu{device};
  gpu.use();
  const ncclComm_t comm = connect(rank, ranks, argv[2]);
  const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool(false, static_cast<c10::DeviceIndex>(device));

  torch::manual_seed(1);
  const tawpipe_torch::Model model = perceptrons();
  std::vector<tawpipe_torch::Part> parts{model.embedding()};
  for (std::int32_t l = 0; l < model.layers; ++l) parts.push_back(model.layer());
  parts.push_back(model.head());
  const torch::Tensor initial = tawpipe_torch::flattened(parts).clone();

  tawpipe::Workload work{tawpipe_torch::layer_stack(model),
                         tawpipe::Batch{.sequence = sequence, .microbatch_size = 1, .global_batch = microbatches}};
  work.parameter_bytes({.weight = 4, .gradient = 4, .optimizer = 8});
  const tawpipe::Schedule schedule = tawpipe::shipped_schedules().build(
      argv[1], {.workload = work, .nodes = tawpipe::DeviceGroups{std::vector<std::int32_t>{ranks}}, .options = {}});

  // Tensors of this program, in which the executor keeps this rank's weights.
  const auto on_gpu = torch::TensorOptions().device(torch::kCUDA, static_cast<c10::DeviceIndex>(device));
  std::vector<torch::Tensor> tensors;
  std::vector<tawpipe::LentParameters> lent;
  for (const auto& kept : tawpipe::kept_parameters(schedule, tawpipe::Rank{rank}, tawpipe::ContentKind::weights)) {
    std::vector<torch::Tensor> ranges;
    for (const tawpipe::ParameterRange& range : kept) {
      const bool padding = schedule.is_padding(range);
      ranges.push_back(padding ? torch::zeros({range.count()}) : initial.narrow(0, range.begin, range.count()));
    }
    tensors.push_back(torch::cat(ranges).to(on_gpu.device()));
    lent.push_back(tawpipe_torch::lend(tensors.back(), model, tawpipe::Rank{rank}, tawpipe::ContentKind::weights, kept));
  }
  const auto make_layers = [&] { return tawpipe_torch::TorchLayers{model, on_gpu.device()}; };
  std::vector<double> losses;
  {
    tawpipe::cuda::NcclExecutor<tawpipe::cuda::CudaDevice, tawpipe::cuda::NcclCommunicator, tawpipe_torch::TorchLayers, Descent>
        executor{schedule,       std::move(gpu), tawpipe::cuda::NcclCommunicator::adopt(comm), make_layers, Descent{},
                 {.lent = lent}, stream.stream()};
    for (int step = 1; step <= steps; ++step) {
      losses.push_back(executor.run(Doubling{}, {.step = step, .learning_rate = learning_rate}).loss());
    }
  }
  ncclCommDestroy(comm);

  double difference = 0;
  const std::vector<double> plain = train_plainly(model, parts, steps);
  for (int step = 0; step < steps; ++step) {
    difference = std::max(difference, std::abs(losses[static_cast<std::size_t>(step)] - plain[static_cast<std::size_t>(step)]));
  }
  std::printf("rank %d of %s: losses %.4f to %.4f, at most %.1e from plain LibTorch's on the CPU\n", rank, argv[1],
              losses.front(), losses.back(), difference);
  return difference < 1e-4 ? 0 : 1;
}
