// Of the module tawpipe-cuda: kernels on one GPU, each by itself, for `tawpipe measure`.
// Not: what follows from their times (analysis/fit_curves.hpp).
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "commands/measure.hpp"
#include "tawpipe/core/half.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/core/version.hpp"
#include "tawpipe/execute/cuda/cuda_api.hpp"
#include "tawpipe/execute/cuda/prepare.hpp"
#include "tawpipe/execute/cuda/session.hpp"
#include "tawpipe/layers/cuda/cuda_math.hpp"
#include "tawpipe/layers/cuda/decoder_bodies.hpp"
#include "tawpipe/layers/cuda/matrix_product.hpp"

namespace tawpipe::sim {

namespace {

namespace device_layers = layers::cuda;

/// All sizes follow from the rows of the largest product.
class KernelBench {
 public:
  KernelBench(int gpu, std::int64_t largest) : largest_{largest}, device_{gpu} {
    device_.use();
    cudaDeviceProp properties{};
    cuda::check(cudaGetDeviceProperties(&properties, gpu), "cudaGetDeviceProperties");
    measured_.name = properties.name;
    measured_.software = concat("CUDA ", CUDART_VERSION / 1000, ".", CUDART_VERSION % 1000 / 10, ", tawpipe ", version);
    measured_.memory = static_cast<std::int64_t>(properties.totalGlobalMem);
    stream_ = device_.make_stream(cuda::Priority::normal);
    const auto numbers = static_cast<std::size_t>(largest_ * largest_);
    host_ = device_.allocate_host(numbers * sizeof(Bfloat16));
    for (std::size_t i = 0; i < numbers; ++i) {
      const Bfloat16 value = weight(i);
      std::memcpy(host_ + i * sizeof value, &value, sizeof value);
    }
    for (std::byte** const at : {&a_, &b_, &c_}) *at = device_.allocate(numbers * sizeof(Bfloat16));
    sums_ = device_.allocate(numbers * sizeof(float));
    device_.clear(sums_, numbers * sizeof(float), stream_);
    for (std::byte* const at : {a_, b_, c_}) device_.upload(at, host_, numbers * sizeof(Bfloat16), stream_);
  }

  MeasuredDevice measure() {
    launches();
    memory();
    products();
    for (const std::int64_t head : {128, 64}) {
      for (const std::int64_t sequence : {largest_ / 2, largest_ / 4}) attention(std::min(head, largest_ / 4), sequence);
    }
    copies();
    return measured_;
  }

 private:
  /// Values like those of weights: a GPU that multiplies zeros takes less power and is faster.
  static Bfloat16 weight(std::size_t i) {
    const auto mixed = static_cast<std::uint32_t>((static_cast<std::uint64_t>(i) + 1) * 0x9e37'79b9'7f4a'7c15U >> 40U);
    return Bfloat16{(static_cast<float>(mixed) / 16777216.0F - 0.5F) * 0.07F};
  }
  static Bfloat16* numbers(std::byte* at) { return reinterpret_cast<Bfloat16*>(at); }

  /// Seconds of one call where it is called over and over: the middle of five runs, after one to
  /// warm up.
  template <class Call>
  double seconds_of(int calls, const Call& call) {
    const auto begin = device_.make_event(true);
    const auto end = device_.make_event(true);
    std::vector<double> took;
    for (int run = 0; run < 6; ++run) {
      device_.record(begin, stream_);
      for (int i = 0; i < calls; ++i) call();
      device_.record(end, stream_);
      while (!device_.finished(end)) std::this_thread::yield();
      if (run > 0) took.push_back(device_.seconds_between(begin, end).value() / calls);
    }
    std::nth_element(took.begin(), took.begin() + 2, took.end());
    return took[2];
  }
  void add(const Kernel& kernel, double seconds) { measured_.kernels.push_back({kernel, seconds}); }

  device_layers::CopyNumbers<Bfloat16> copy(std::int64_t count) const { return {numbers(a_), numbers(b_), count}; }

  /// The time that the host takes for a launch, and the device between two kernels: from `many`
  /// kernels against one that does as much.
  void launches() {
    constexpr int many = 16;
    const std::int64_t part = std::max<std::int64_t>(largest_ * largest_ / 64, 8);
    const double one = seconds_of(10, [&] { device_layers::launch(copy(many * part), stream_); });
    const double parts = seconds_of(10, [&] {
      for (int i = 0; i < many; ++i) device_layers::launch(copy(part), stream_);
    });
    measured_.kernel_gap = std::max((parts - one) / (many - 1), 1e-9);
    measured_.launch = std::numeric_limits<double>::infinity();
    constexpr int queued = 200;  // fewer than a stream holds
    for (int run = 0; run < 5; ++run) {
      cuda::check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
      const std::int64_t begin = tawpipe::detail::now();
      for (int i = 0; i < queued; ++i) device_layers::launch(copy(8), stream_);
      measured_.launch = std::min(measured_.launch, static_cast<double>(tawpipe::detail::now() - begin) * 1e-9 / queued);
    }
  }

  void memory() {
    for (const std::int64_t count : {largest_ * largest_, largest_ * largest_ / 2, largest_ * largest_ / 4}) {
      add({.kind = Kernel::Kind::traffic, .bytes = 4.0 * static_cast<double>(count)},
          seconds_of(4, [&] { device_layers::launch(copy(count), stream_); }));
    }
  }

  void products() {
    device_layers::MatrixProducts by;
    const auto time = [&](const device_layers::Product& shape, KernelPass pass) {
      std::byte* const to = shape.result == Dtype::f32 ? sums_ : c_;
      add({.kind = Kernel::Kind::product, .pass = pass, .adds = shape.add, .m = shape.m, .n = shape.n, .k = shape.k},
          seconds_of(10, [&] { by.multiply(shape, a_, b_, to, to, stream_); }));
    };
    const std::int64_t n = largest_;
    for (const std::int64_t size : {n, n / 2, n / 4}) {
      for (const std::int64_t inner : {n, n / 2, n / 8}) {
        time({.m = size, .n = size, .k = inner, .b_transposed = true}, KernelPass::forward);
      }
    }
    for (const std::int64_t size : {n, n / 2, n / 4}) {
      time({.m = size, .n = size, .k = n, .a_transposed = true, .add = true, .result = Dtype::f32}, KernelPass::backward_weight);
    }
    for (const std::int64_t unaligned : {n - 2, n - 1}) {  // as a head's backward by a vocabulary of that size
      time({.m = n, .n = n, .k = unaligned}, KernelPass::backward_input);
      time({.m = unaligned, .n = n, .k = n, .a_transposed = true}, KernelPass::backward_weight);
    }
  }

  /// Fused attention, where cuDNN has one for such a head.
  void attention(std::int64_t head, std::int64_t sequence) {
    const auto heads = static_cast<int>(std::max<std::int64_t>(1, largest_ / 2 / head));
    const Transformer model{.name = "heads",
                            .layers = 1,
                            .hidden = static_cast<int>(heads * head),
                            .heads = heads,
                            .kv_heads = heads,
                            .intermediate = 64,
                            .vocab = 256,
                            .tied = false,
                            .dtype = Dtype::bf16};
    device_layers::CudaMath<Bfloat16, float> math{
        model, Batch{.sequence = sequence, .microbatch_size = 1, .global_batch = 1}, {}};
    if (!math.has_fused_attention()) return;
    math.use_stream(stream_);
    math.reserve_attention(0, 0);
    Kernel kernel{.kind = Kernel::Kind::attention, .m = sequence, .n = sequence, .k = head, .batch = heads};
    const auto* const in = numbers(a_);
    auto* const sums = reinterpret_cast<float*>(sums_);
    add(kernel, seconds_of(10, [&] { math.attention(in, numbers(b_), sums, {}); }));
    kernel.kind = Kernel::Kind::attention_backward;
    kernel.pass = KernelPass::backward_input;
    add(kernel, seconds_of(10, [&] { math.attention_backward(in, numbers(b_), numbers(b_), sums, numbers(c_), {}); }));
  }

  void copies() {
    const auto bytes = static_cast<std::size_t>(largest_ * largest_) * sizeof(Bfloat16);
    const auto speed = [&](const auto& call) { return static_cast<double>(bytes) / seconds_of(4, call); };
    measured_.from_host = speed([&] { device_.upload(a_, host_, bytes, stream_); });
    measured_.to_host = speed([&] { device_.download(host_, a_, bytes, stream_); });
  }

  std::int64_t largest_;
  cuda::CudaDevice device_;
  cudaStream_t stream_ = nullptr;
  std::byte* host_ = nullptr;
  std::byte* a_ = nullptr;  ///< [largest, largest] in bf16, as the next two
  std::byte* b_ = nullptr;
  std::byte* c_ = nullptr;
  std::byte* sums_ = nullptr;  ///< as many in f32
  MeasuredDevice measured_;
};

}  // namespace

extern "C" {
MeasureDevice tawpipe_measure;
void tawpipe_measure(int gpu, std::int64_t largest, MeasuredDevice& measured) {
  cuda::prepare_environment();
  const int visible = cuda::visible_devices();
  if (gpu >= visible) throw InputError(concat("--gpu ", gpu, ": this machine shows ", visible, " GPUs, numbered from 0"));
  measured = KernelBench{gpu, largest}.measure();
}
}

}  // namespace tawpipe::sim
