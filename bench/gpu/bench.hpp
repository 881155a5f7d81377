// What the GPU benchmarks share: a decoder of a given shape under a schedule on one GPU, measured
// peaks. They print JSON lines.
// Not: benchmarks. They need only the CUDA toolkit, so no Google Benchmark and no JSON library.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "schedules.hpp"
#include "tawpipe/core/half.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/execute/cuda/cuda_api.hpp"
#include "tawpipe/execute/cuda/prepare.hpp"
#include "tawpipe/execute/cuda/session.hpp"
#include "tawpipe/execute/cuda/virtual_executor.hpp"
#include "tawpipe/layers/cuda/adamw.hpp"
#include "tawpipe/layers/cuda/llama.hpp"
#include "tawpipe/layers/cuda/matrix_product.hpp"
#include "tawpipe/schedules/gpipe.hpp"

namespace gpu {

using tawpipe::Bfloat16;
using tawpipe::Dtype;
using Layer = tawpipe::layers::cuda::Llama<Bfloat16>;
using Optimizer = tawpipe::layers::cuda::DeviceAdamW<Bfloat16>;

/// The same tokens always: what they are does not matter here.
struct Tokens {
  int vocab;
  void fetch(std::int64_t, std::int32_t, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<std::int32_t>(i * 7919 % static_cast<std::size_t>(vocab));
      targets[i] = static_cast<std::int32_t>((i + 1) * 7919 % static_cast<std::size_t>(vocab));
    }
  }
};

/// Numbers as weights have them: a GPU that multiplies zeros draws less power and runs faster.
inline Bfloat16 weight(std::int64_t parameter) {
  const auto mixed = static_cast<std::uint32_t>(static_cast<std::uint64_t>(parameter + 1) * 0x9e37'79b9'7f4a'7c15U >> 40U);
  return Bfloat16{(static_cast<float>(mixed) / 16777216.0F - 0.5F) * 0.07F};
}

/// A LLaMA decoder in bf16 with a vocabulary so small that it costs nothing.
inline tawpipe::Transformer decoder(int layers, int hidden, int intermediate, int heads, int kv_heads) {
  return {.name = "decoder",
          .layers = layers,
          .hidden = hidden,
          .heads = heads,
          .kv_heads = kv_heads,
          .intermediate = intermediate,
          .vocab = 256,
          .tied = false,
          .dtype = Dtype::bf16};
}
inline tawpipe::Workload workload(const tawpipe::Transformer& model, const tawpipe::Batch& batch) {
  tawpipe::Workload work{model, batch, tawpipe::Recompute::none};
  work.parameter_bytes(tawpipe::trained_bytes(model.dtype));
  return work;
}

/// Trains a schedule's ranks on GPU 0, with products' algorithms found by trial.
template <class Update>
class Run {
 public:
  Run(const tawpipe::Schedule& schedule, const tawpipe::cuda::ExecutorOptions& options, Update update)
      : tokens_{schedule.workload().model().token_ids},
        executor_{
            schedule, tawpipe::cuda::CudaDevice{0},
            [&] {
              return Layer{
                  *schedule.workload().model().decoder, schedule.workload().batch(), tawpipe::Recompute::none, {}, &choices_};
            },
            std::move(update), options} {
    executor_.for_each_rank([](auto& rank) {
      rank.set_weights([](const tawpipe::ParameterRange& range, Dtype type, std::span<std::byte> bytes) {
        for (std::int64_t i = 0; i < range.count(); ++i) {
          const Bfloat16 value = weight(range.begin + i);
          const auto wide = static_cast<float>(value);
          const auto at = static_cast<std::size_t>(i);
          if (type == Dtype::f32) {
            std::memcpy(bytes.data() + at * sizeof wide, &wide, sizeof wide);
          } else {
            std::memcpy(bytes.data() + at * sizeof value, &value, sizeof value);
          }
        }
      });
    });
  }
  tawpipe::IterationResult step() { return executor_.run(tokens_, {.step = ++step_, .learning_rate = 1e-4}); }
  /// Seconds of the quickest of `times` iterations by the host's clock, after one to warm up (by
  /// graph: two).
  double quickest(int times) {
    for (int i = 0; i < 2; ++i) step();
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < times; ++i) {
      const std::int64_t begin = tawpipe::detail::now();
      step();
      best = std::min(best, static_cast<double>(tawpipe::detail::now() - begin) * 1e-9);
    }
    return best;
  }

 private:
  Tokens tokens_;
  tawpipe::layers::cuda::ProductChoices choices_;
  tawpipe::cuda::VirtualExecutor<tawpipe::cuda::CudaDevice, Layer, Update> executor_;
  int step_ = 0;
};

/// Seconds of one call by events: the quickest of five runs of `repeat` calls.
inline double seconds_of(tawpipe::cuda::CudaDevice& device, cudaStream_t stream, int repeat, const std::function<void()>& call) {
  const auto begin = device.make_event(true);
  const auto end = device.make_event(true);
  double best = std::numeric_limits<double>::infinity();
  for (int run = 0; run < 6; ++run) {  // the first warms up
    device.record(begin, stream);
    for (int i = 0; i < repeat; ++i) call();
    device.record(end, stream);
    while (!device.finished(end)) std::this_thread::yield();
    if (run > 0) best = std::min(best, device.seconds_between(begin, end).value() / repeat);
  }
  return best;
}

/// By what a benchmark divides sizes and repetitions: its first argument, so that it can be tried
/// without a GPU; 1 without one.
inline int divisor(int argc, char** argv) { return argc > 1 ? std::max(1, std::atoi(argv[1])) : 1; }

/// What the GPU reaches, measured: a bf16 product of 8192 x 8192 x 8192 with sums in f32, and a
/// copy of 2 GiB.
struct Peaks {
  double flops = 0;  ///< a second
  double bytes = 0;  ///< a second, read and written
};
inline Peaks measure_peaks(int divisor) {
  tawpipe::cuda::CudaDevice device{0};
  const auto stream = device.make_stream(tawpipe::cuda::Priority::normal);
  const std::int64_t n = 8192 / divisor;
  const std::size_t copied = (std::size_t{1} << 31U) / static_cast<std::size_t>(divisor);
  std::vector<Bfloat16> numbers(static_cast<std::size_t>(n * n));
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = weight(static_cast<std::int64_t>(i));
  const std::size_t bytes = numbers.size() * sizeof(Bfloat16);
  std::byte* const window = device.allocate_host(bytes);
  std::memcpy(window, numbers.data(), bytes);
  std::byte* const a = device.allocate(copied);
  std::byte* const b = device.allocate(copied);
  std::byte* const c = device.allocate(bytes);
  device.upload(a, window, bytes, stream);
  device.upload(b, window, bytes, stream);
  tawpipe::layers::cuda::MatrixProducts products;
  const tawpipe::layers::cuda::Product product{.m = n, .n = n, .k = n};
  Peaks peaks;
  peaks.flops = 2.0 * std::pow(static_cast<double>(n), 3) /
                seconds_of(device, stream, 10, [&] { products.multiply(product, a, b, c, c, stream); });
  peaks.bytes = 2.0 * static_cast<double>(copied) / seconds_of(device, stream, 4, [&] { device.copy(b, a, copied, stream); });
  return peaks;
}

/// The name and size of GPU 0 as JSON members, for the head of each benchmark's output.
inline std::string device_json() {
  cudaDeviceProp properties{};
  tawpipe::cuda::check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  int driver = 0;
  tawpipe::cuda::check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  return tawpipe::concat("\"device\": \"", properties.name, "\", \"memory_bytes\": ", properties.totalGlobalMem,
                         ", \"multiprocessors\": ", properties.multiProcessorCount, ", \"cuda_of_driver\": ", driver);
}

/// Runs a benchmark where there is a GPU, with the environment that the command has. @return the
/// program's exit code
inline int run(const std::function<void()>& benchmark) {
  tawpipe::cuda::prepare_environment();
  try {
    tawpipe::cuda::visible_devices();
  } catch (const tawpipe::DeviceError& error) {
    std::fprintf(stderr, "skipped: %s\n", error.what());
    return 77;
  }
  try {
    benchmark();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "FAILED: %s\n", error.what());
    return 1;
  }
}

}  // namespace gpu
