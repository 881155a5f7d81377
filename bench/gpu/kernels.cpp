// Why a layer is as fast as it is: each product, attention and each kernel of a decoder layer by
// itself, with its share of the matrix peak or of the copy's speed: bench_gpu_kernels [DIVISOR [TOKENS]].
// Not: the layer as a whole (layer.cpp).
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "bench.hpp"
#include "tawpipe/layers/cuda/adamw_bodies.hpp"
#include "tawpipe/layers/cuda/cuda_math.hpp"
#include "tawpipe/layers/cuda/decoder_bodies.hpp"
#include "tawpipe/layers/cuda/embedding_bodies.hpp"
#include "tawpipe/layers/cuda/loss_bodies.hpp"
#include "tawpipe/layers/cuda/norm_bodies.hpp"

using namespace tawpipe;
namespace bodies = tawpipe::layers::cuda;

namespace {

using T = Bfloat16;

/// The parts of one layer of LLaMA-2 7B for one sequence, and of its head and update.
class Parts {
 public:
  Parts(int divisor, std::int64_t tokens) : divisor_{divisor}, tokens_{tokens / divisor}, peaks_{gpu::measure_peaks(divisor)} {
    math_.use_stream(stream_);
    math_.reserve_attention(0, 0);
    std::printf("{%s, \"tokens\": %lld, \"matrix_peak_flops\": %.4e, \"copy_bytes_per_second\": %.4e, \"fused_attention\": %s}\n",
                gpu::device_json().c_str(), static_cast<long long>(tokens_), peaks_.flops, peaks_.bytes,
                math_.has_fused_attention() ? "true" : "false");
  }

  void products() {
    product("qkv", 3 * hidden_, hidden_);
    product("attention's output", hidden_, hidden_);
    product("gate or up", inner_, hidden_);
    two_products("gate and up", inner_, hidden_);
    product("down", hidden_, inner_);
    const double flops = 2.0 * static_cast<double>(tokens_ * tokens_) * static_cast<double>(hidden_);  // causal: half of 4
    float* const sums = floats(tokens_ * hidden_);
    by_flops("attention forward", flops, [&] { math_.attention(a_, b_, sums, {}); });
    by_flops("attention backward", 2.5 * flops, [&] { math_.attention_backward(a_, b_, c_, sums, d_, {}); });
  }
  void kernels() {
    const std::int64_t row = tokens_ * hidden_;
    const std::int64_t wide = tokens_ * inner_;
    float* const partial = math_.norm_partial();
    const std::int64_t blocks = bodies::RmsNormBackward<T>::blocks(tokens_);
    body("norm", 2 * row * size, bodies::RmsNorm<T>{a_, gain_, b_, tokens_, hidden_, 1e-5F});
    body("norm backward with a residual", 4 * row * size,
         bodies::RmsNormBackward<T>{a_, gain_, b_, c_, d_, nullptr, partial, tokens_, hidden_, 1e-5F});
    body("norm backward that keeps", 6 * row * size,
         bodies::RmsNormBackward<T>{a_, gain_, b_, c_, d_, a_, partial, tokens_, hidden_, 1e-5F});
    body("sums of norms' gradients", blocks * hidden_ * 4, bodies::SumRows{partial, blocks, hidden_, floats(hidden_)});
    body(
        "rotation", 2 * tokens_ * 3 * hidden_ * size,
        bodies::Rotate<T>{a_, b_, math_.rotary_table(), tokens_, 3 * hidden_, 2 * hidden_, 3 * hidden_, tokens_, head_size_, -1});
    body("SwiGLU", 3 * wide * size, bodies::Swiglu<T>{a_, b_, c_, wide});
    body("SwiGLU backward", 5 * wide * size, bodies::SwigluBackward<T>{a_, b_, c_, wide});
    body("copy", 2 * row * size, bodies::CopyNumbers<T>{a_, b_, row});
    const std::int64_t rows = std::min(tokens_, room_ / vocab_);
    body("sums of the loss", rows * vocab_ * size,
         bodies::LogSumExp<T>{a_, ids_, floats(2 * rows), floats(2 * rows) + rows, rows, vocab_});
    body("loss backward", 2 * rows * vocab_ * size,
         bodies::CrossEntropyBackward<T>{a_, floats(rows), ids_, rows, vocab_, 1.0F, nullptr});
    body("embedding", 2 * row * size, bodies::LookUp<T>{ids_, b_, a_, tokens_, hidden_});
    embedding_backward("embedding backward", ids_);
    embedding_backward("embedding backward, half padding", ids(tokens_ / 2));
    const std::int64_t count = room_ / 4;
    float* const states = floats(4 * count);
    auto* const factors = reinterpret_cast<bodies::AdamWFactors*>(zeros(sizeof(bodies::AdamWFactors)));
    body("AdamW", count * (2 + 4 + 6 * 4),
         bodies::AdamWBody<T, float>{a_, states, states + count, states + 2 * count, states + 3 * count, count, factors, 0.9F,
                                     0.95F, 0.1F, 0.05F, 1e-8F, true});
  }

 private:
  static constexpr std::int64_t size = sizeof(T);

  template <class Call>
  double seconds(const Call& call) {
    return gpu::seconds_of(device_, stream_, divisor_ > 1 ? 1 : 10, call);
  }
  template <class Call>
  void by_flops(const std::string& name, double flops, const Call& call) {
    const double took = seconds(call);
    std::printf("{\"part\": \"%s\", \"seconds\": %.4e, \"share_of_matrix_peak\": %.4f}\n", name.c_str(), took,
                flops / took / peaks_.flops);
    std::fflush(stdout);
  }
  void embedding_backward(const char* name, const std::int32_t* ids) {
    const bodies::LookUpBackward<T, float> sum{
        ids, a_, floats(vocab_ * hidden_), math_.token_places(), math_.norm_partial(), tokens_, hidden_};
    by_bytes(name, tokens_ * hidden_ * (size + 8), [&] { sum.each([&](const auto& body) { math_.run(body); }); });
  }
  template <class Body>
  void body(const char* name, std::int64_t bytes, const Body& body) {
    by_bytes(name, bytes, [&] { math_.run(body); });
  }
  template <class Call>
  void by_bytes(const char* name, std::int64_t bytes, const Call& call) {
    const double took = seconds(call);
    std::printf("{\"part\": \"%s\", \"seconds\": %.4e, \"share_of_copy_speed\": %.4f}\n", name, took,
                static_cast<double>(bytes) / took / peaks_.bytes);
    std::fflush(stdout);
  }
  void two_products(const std::string& name, std::int64_t out, std::int64_t in) {
    const double flops = 4.0 * static_cast<double>(tokens_) * static_cast<double>(out) * static_cast<double>(in);
    const std::int64_t row = tokens_ * out;
    float* const gradients = floats(3 * out * in);
    by_flops(name, flops, [&] { math_.project_two(a_, {b_, b_ + 2 * out * in}, {c_, c_ + row}, tokens_, in, out); });
    by_flops(name + ": gradients of their weights", flops, [&] {
      math_.add_two_weight_gradients({c_, c_ + row}, a_, {gradients, gradients + 2 * out * in}, tokens_, in, out);
    });
  }
  void product(const std::string& name, std::int64_t out, std::int64_t in) {
    const double flops = 2.0 * static_cast<double>(tokens_) * static_cast<double>(out) * static_cast<double>(in);
    by_flops(name, flops, [&] { math_.project(a_, b_, c_, tokens_, in, out, nullptr); });
    by_flops(name + ": gradient of its input", flops, [&] { math_.project_back(a_, b_, c_, tokens_, in, out, false); });
    by_flops(name + ": gradient of its weight", flops,
             [&] { math_.add_weight_gradient(a_, b_, floats(out * in), tokens_, in, out); });
  }
  T* numbers() {
    std::vector<T> values(static_cast<std::size_t>(room_));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = gpu::weight(static_cast<std::int64_t>(i));
    std::byte* const at = device_.allocate(values.size() * sizeof(T));
    cuda::check(cudaMemcpy(at, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
    return reinterpret_cast<T*>(at);
  }
  std::byte* zeros(std::size_t bytes) {
    std::byte* const at = device_.allocate(bytes);
    device_.clear(at, bytes, stream_);
    return at;
  }
  /// Memory that all share.
  float* floats(std::int64_t count) {
    if (count > count_) floats_ = reinterpret_cast<float*>(zeros(static_cast<std::size_t>(count) * sizeof(float)));
    count_ = std::max(count_, count);
    return floats_;
  }
  /// [tokens] as text has them, the last `padding` of them the same: the id of rank r in proportion to
  /// 1 / (r + 2.7). Source: Mandelbrot 1953, An informational theory of the statistical structure of
  /// language; the constant is that of English in Piantadosi 2014, doi:10.3758/s13423-014-0585-6.
  std::int32_t* ids(std::int64_t padding = 0) {
    std::vector<double> weights;
    for (std::int64_t rank = 1; rank <= vocab_; ++rank) weights.push_back(1 / (static_cast<double>(rank) + 2.7));
    std::discrete_distribution<std::int64_t> rank{weights.begin(), weights.end()};
    std::mt19937 random{1};
    std::vector<std::int32_t> values(static_cast<std::size_t>(tokens_));
    for (std::int64_t t = 0; t < tokens_ - padding; ++t) {  // neighbours in rank are not in the table
      values[static_cast<std::size_t>(t)] = static_cast<std::int32_t>((rank(random) + 1) * 7919 % vocab_);
    }
    std::byte* const at = device_.allocate(values.size() * sizeof(std::int32_t));
    cuda::check(cudaMemcpy(at, values.data(), values.size() * sizeof(std::int32_t), cudaMemcpyHostToDevice), "cudaMemcpy");
    return reinterpret_cast<std::int32_t*>(at);
  }

  int divisor_;
  std::int64_t tokens_;
  gpu::Peaks peaks_;
  std::int64_t hidden_ = 4096 / divisor_;
  std::int64_t inner_ = 11008 / divisor_ / 8 * 8;
  std::int64_t vocab_ = 32000 / divisor_ / 8 * 8;
  int heads_ = std::max(1, 32 / divisor_);
  std::int32_t head_size_ = static_cast<std::int32_t>(hidden_ / heads_);
  /// numbers of the largest tensors, and of two weights of a pair with as much between them
  std::int64_t room_ = std::max(tokens_ * std::max(2 * inner_, 3 * hidden_), 3 * inner_ * hidden_);
  cuda::CudaDevice device_{0};
  cudaStream_t stream_ = device_.make_stream(cuda::Priority::normal);
  bodies::CudaMath<T, float> math_{gpu::decoder(1, static_cast<int>(hidden_), static_cast<int>(inner_), heads_, heads_),
                                   Batch{.sequence = tokens_, .microbatch_size = 1, .global_batch = 1},
                                   {}};
  T* gain_ = numbers();
  T* a_ = numbers();
  T* b_ = numbers();
  T* c_ = numbers();
  T* d_ = numbers();
  std::int32_t* ids_ = ids();
  float* floats_ = nullptr;
  std::int64_t count_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const int divisor = gpu::divisor(argc, argv);
  return gpu::run([=] {
    Parts parts{divisor, argc > 2 ? std::atoll(argv[2]) : 16384};
    parts.products();
    parts.kernels();
  });
}
