// tawpipe's device code as a host's, by teams of threads: against one thread alone, at its edges,
// under sanitizers (CMakeLists.txt), and at numbers of tensors that no memory has.
// Not: against the bodies as a host's compiler has them (tests/gpu/layers_kernels_test.cpp over the
// software GPU).
#include "software_gpu/device_code.hpp"

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <atomic>
#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "support/kernel_numbers.hpp"

namespace {

using namespace tawpipe;
namespace bodies = tawpipe::layers::cuda;
using support::check_near;
using support::numbers;

/// Runs one block of a launch, or all; of a kernel whose arguments are at these addresses.
struct Runs {
  std::function<bool(const cudaLaunchConfig_t&, void** arguments, std::int64_t only)> run;
};
template <class... P, std::size_t... I>
Runs runs_of(void (*kernel)(P...), std::index_sequence<I...>) {
  return {[kernel](const cudaLaunchConfig_t& config, void** arguments, std::int64_t only) {
    const auto call = [&] { kernel(*static_cast<const P*>(arguments[I])...); };
    const std::size_t shared = config.dynamicSmemBytes;
    if (only < 0) return software_gpu::run_grid(config.gridDim, config.blockDim, shared, call);
    return software_gpu::run_block(config.gridDim, config.blockDim, shared, static_cast<unsigned>(only), 0, call) !=
           software_gpu::Threads::stuck;
  }};
}
const std::map<const void*, Runs>& kernels() {
  static const auto all = [] {
    std::map<const void*, Runs> found;
    software_gpu::each_kernel([&]<class... P>(const std::string&, void (*kernel)(P...)) {
      found[reinterpret_cast<const void*>(kernel)] = runs_of(kernel, std::index_sequence_for<P...>{});
    });
    return found;
  }();
  return all;
}
std::int64_t only_block = -1;  ///< of all launches: this one; -1: all

}  // namespace

// The runtime, as far as launches need it.
extern "C" {
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** arguments) {
  return kernels().at(kernel).run(*config, arguments, only_block) ? cudaSuccess : cudaErrorLaunchFailure;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "an error"; }
const char* cudaGetErrorName(cudaError_t) { return "error"; }
}

namespace {

/// make(pointers...) run by its threads, and by one alone: the same but for the order of sums.
template <class Make, class... V>
void check_body(const char* name, const Make& make, const std::vector<V>&... given) {
  CAPTURE(name);
  std::tuple<std::vector<V>...> alone{given...};
  std::tuple<std::vector<V>...> together{given...};
  std::apply([&](auto&... v) { bodies::run_on_host(make(v.data()...)); }, alone);
  std::apply([&](auto&... v) { bodies::launch(make(v.data()...), nullptr); }, together);
  const auto compare = [&]<std::size_t... I>(std::index_sequence<I...>) {
    const auto one = [](const auto& ours, const auto& wanted) {
      if constexpr (std::is_integral_v<typename std::remove_cvref_t<decltype(ours)>::value_type>) {
        CHECK(ours == wanted);
      } else {
        check_near(ours, wanted);
      }
    };
    (one(std::get<I>(together), std::get<I>(alone)), ...);
  };
  compare(std::index_sequence_for<V...>{});
}

template <class T>
void check_norms(std::int64_t rows, std::int64_t hidden) {
  CAPTURE(hidden);
  const std::int64_t count = rows * hidden;
  const auto x = numbers<T>(count, 1, 2);
  const auto gain = numbers<T>(hidden, 2);
  check_body(
      "RmsNorm", [&](T* a, T* g, T* y) { return bodies::RmsNorm<T>{a, g, y, rows, hidden, 1e-5F}; }, x, gain, x);
  check_body(
      "RmsNormBackward",
      [&](T* a, T* g, T* d, T* residual, T* to, float* sums) {
        return bodies::RmsNormBackward<T>{a, g, d, residual, to, a, sums, rows, hidden, 1e-5F};
      },
      x, gain, numbers<T>(count, 3), numbers<T>(count, 4), numbers<T>(count, 5), std::vector<float>(x.size()));
}

template <class T>
void check_layers(std::int64_t rows, std::int64_t hidden) {
  CAPTURE(hidden);
  check_norms<T>(rows, hidden);
  const std::int64_t count = rows * hidden;
  const auto x = numbers<T>(count, 1, 2);
  check_body(
      "SumRows",
      [&](float* from, float* to) {
        return bodies::SumRows{from, rows, hidden, to};
      },
      numbers<float>(count, 6), std::vector<float>(static_cast<std::size_t>(hidden)));
  check_body(
      "SwigluBackward",
      [&](T* gate, T* up, T* to) {
        return bodies::SwigluBackward<T>{gate, up, to, count};
      },
      x, numbers<T>(count, 2), numbers<T>(count, 3));
  std::vector<std::int32_t> targets;
  for (std::int64_t r = 0; r < rows; ++r) targets.push_back(static_cast<std::int32_t>(r * 5 % hidden));
  const std::vector<float> sums(targets.size());
  check_body(
      "LogSumExp",
      [&](T* from, std::int32_t* target, float* to, float* wanted) {
        return bodies::LogSumExp<T>{from, target, to, wanted, rows, hidden};
      },
      x, targets, sums, sums);
  check_body(
      "CrossEntropyBackward",
      [&](T* from, float* sum, std::int32_t* target) {
        return bodies::CrossEntropyBackward<T>{from, sum, target, rows, hidden, 0.5F, nullptr};
      },
      x, sums, targets);
  std::vector<std::int32_t> ids(200, 3);
  for (std::size_t t = 0; t < ids.size(); t += 3) ids[t] = static_cast<std::int32_t>(t % 5);
  const std::vector<std::int32_t> places(ids.size() * 4);
  const std::int64_t tokens = std::ssize(ids);
  const auto place = [](std::int32_t* at) { return reinterpret_cast<bodies::TokenPlace*>(at); };
  check_body(
      "SortTokens",
      [&](std::int32_t* id, std::int32_t* to) {
        return bodies::SortTokens{id, place(to), tokens};
      },
      ids, places);
  std::vector<std::int32_t> sorted = places;
  bodies::run_on_host(bodies::SortTokens{ids.data(), place(sorted.data()), tokens});
  const std::vector<float> runs(static_cast<std::size_t>(tokens * hidden));
  check_body(
      "SumRuns",
      [&](std::int32_t* from, T* d, float* table, float* to) {
        return bodies::SumRuns<T, float>{place(from), d, table, to, tokens, hidden};
      },
      sorted, numbers<T>(tokens * hidden, 1), numbers<float>(5 * hidden, 2), runs);
  check_body(
      "AddRuns",
      [&](std::int32_t* from, float* of, T* table) {
        return bodies::AddRuns<T>{place(from), of, table, tokens, hidden};
      },
      sorted, numbers<float>(tokens * hidden, 1), numbers<T>(5 * hidden, 2));
}

template <class T>
void check_attention(const bodies::HeadLayout& layout) {
  const std::int64_t tokens = layout.tokens();
  const auto qkv = numbers<T>(tokens * layout.width(), 1);
  const auto gradient = numbers<T>(tokens * layout.query_width(), 2);
  std::vector<T> output = gradient;
  std::vector<float> sums(static_cast<std::size_t>(tokens * layout.heads));
  check_body(
      "PlainAttention",
      [&](T* from, T* to, float* sum) {
        return bodies::PlainAttention<T>{from, to, sum, layout};
      },
      qkv, output, sums);
  bodies::run_on_host(bodies::PlainAttention<T>{qkv.data(), output.data(), sums.data(), layout});
  check_body(
      "PlainAttentionQueries",
      [&](T* from, T* out, T* back, float* sum, T* to, float* products) {
        return bodies::PlainAttentionQueries<T>{from, out, back, sum, to, products, layout};
      },
      qkv, output, gradient, sums, qkv, sums);
  check_body(
      "PlainAttentionKeys",
      [&](T* from, T* back, float* sum, float* products, T* to) {
        return bodies::PlainAttentionKeys<T>{from, back, sum, products, to, layout};
      },
      qkv, gradient, sums, numbers<float>(tokens * layout.heads, 3), qkv);
}

/// Memory that takes none before it is touched.
template <class T>
class Vast {
 public:
  explicit Vast(std::int64_t count) : bytes_{static_cast<std::size_t>(count) * sizeof(T)} {
    at_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(at_ != MAP_FAILED);
    madvise(at_, bytes_, MADV_NOHUGEPAGE);
  }
  Vast(const Vast&) = delete;
  Vast& operator=(const Vast&) = delete;
  ~Vast() { munmap(at_, bytes_); }
  T* data() const { return static_cast<T*>(at_); }

 private:
  std::size_t bytes_;
  void* at_;
};
/// Runs launch(), but of its blocks only this one.
template <class Launch>
void of_block(std::int64_t block, const Launch& launch) {
  only_block = block;
  launch();
  only_block = -1;
}

}  // namespace

TEST_CASE("device code takes the device's branches, and they round as the host's") {
  CHECK(bodies::on_device);
  for (const float x : {0.0F, -0.0F, 1.0F, 1.00390625F, -2.7F, 65504.0F, 65520.0F, 1e-7F, 3e38F}) {
    CAPTURE(x);
    CHECK(bodies::narrow<Bfloat16>(x).bits == Bfloat16{x}.bits);
    CHECK(bodies::narrow<Half>(x).bits == Half{x}.bits);
    CHECK(bodies::widen(Bfloat16{x}) == static_cast<float>(Bfloat16{x}));
    CHECK(bodies::widen(Half{x}) == static_cast<float>(Half{x}));
  }
}

TEST_CASE("layers' kernels by teams of threads compute what one thread does") {
  check_layers<float>(9, 20);
  check_norms<Bfloat16>(5, 6 * 1024);  // two packs a thread
  check_layers<Bfloat16>(5, 264);
  check_layers<Half>(9, 37);  // no packs
  check_norms<Bfloat16>(3, bodies::RmsNormBackward<Bfloat16>::max_shared + 8);
  check_attention<float>({.sequence = 9, .sequences = 1, .heads = 3, .kv_heads = 1, .size = 6});
  check_attention<Bfloat16>({.sequence = 140, .sequences = 1, .heads = 2, .kv_heads = 1, .size = 8});  // two tiles
}

TEST_CASE("sums, the gradient's norm and its clipping: packs, their heads and tails") {
  const auto check_type = [&]<class T>(T, Dtype type) {
    for (const std::size_t begin : {0, 1, 3}) {
      for (const std::size_t from_begin : {0, 1}) {
        std::vector<T> to(3000);
        std::vector<T> from(3000);
        for (std::size_t i = 0; i < to.size(); ++i) {
          to[i] = static_cast<T>(static_cast<float>(i % 7));
          from[i] = static_cast<T>(static_cast<float>(i % 5));
        }
        const std::size_t count = to.size() - 4;
        double squares = 0;
        for (std::size_t i = 0; i < count; ++i) squares += std::pow(static_cast<double>(static_cast<float>(to[begin + i])), 2);
        double partials[cuda::kernels::square_partials];
        float square = 1;
        cuda::kernels::add_squares(&square, reinterpret_cast<const std::byte*>(to.data() + begin),
                                   static_cast<std::int64_t>(count), type, partials, nullptr);
        CHECK(square == static_cast<float>(squares) + 1);
        cuda::kernels::add(reinterpret_cast<std::byte*>(to.data() + begin),
                           reinterpret_cast<const std::byte*>(from.data() + from_begin), static_cast<std::int64_t>(count), type,
                           nullptr);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < to.size(); ++i) {
          const bool inside = i >= begin && i < begin + count;
          const std::size_t added = inside ? (i - begin + from_begin) % 5 : 0;
          wrong += static_cast<float>(to[i]) == static_cast<float>(i % 7 + added) ? 0 : 1;
        }
        CHECK(wrong == 0);
      }
    }
  };
  check_type(float{}, Dtype::f32);
  check_type(double{}, Dtype::f64);
  check_type(__nv_bfloat16{}, Dtype::bf16);
  check_type(__half{}, Dtype::f16);
  const StepScalars scalars{.gradient_clip = 2};
  for (const auto& [square, wanted] : {std::pair{16.0F, 0.5F}, std::pair{1.0F, 1.0F}}) {
    float scale = 0;
    cuda::kernels::clip_scale(&scale, &square, &scalars, nullptr);
    CHECK(scale == wanted);
  }
}

TEST_CASE("logits of 32,768 tokens and 131,072 words: rows beyond 2^31 numbers are where they belong") {
  constexpr std::int64_t rows = 32768;
  constexpr std::int64_t vocab = 131072;
  const Vast<Bfloat16> logits{rows * vocab};
  std::vector<std::int32_t> targets(rows, 7);
  std::vector<float> sums(rows);
  std::vector<float> wanted(rows);
  for (const std::int64_t row : {std::int64_t{0}, (std::int64_t{1} << 31) / vocab, rows - 1}) {
    CAPTURE(row);
    Bfloat16* const own = logits.data() + row * vocab;
    own[7] = Bfloat16{static_cast<float>(row + 1) / 4096};
    const auto own_block = [&](const auto& body) { of_block(row, [&] { bodies::launch(body, nullptr); }); };
    own_block(bodies::LogSumExp<Bfloat16>{logits.data(), targets.data(), sums.data(), wanted.data(), rows, vocab});
    const auto at = static_cast<std::size_t>(row);
    const double largest = static_cast<double>(static_cast<float>(Bfloat16{static_cast<float>(row + 1) / 4096}));
    CHECK(wanted[at] == static_cast<float>(largest));
    CHECK(static_cast<double>(sums[at]) == doctest::Approx(std::log(vocab - 1 + std::exp(largest))));
    own_block(bodies::CrossEntropyBackward<Bfloat16>{logits.data(), sums.data(), targets.data(), rows, vocab, 1, nullptr});
    CHECK(static_cast<float>(own[7]) < -0.9F);
    CHECK(static_cast<float>(own[vocab - 1]) > 0);
  }
}

TEST_CASE("one block of a grid over more than 2^31 numbers has its share up to the last") {
  constexpr std::int64_t count = (std::int64_t{1} << 32) + 8;
  const Vast<Bfloat16> from{count};
  const Vast<Bfloat16> to{count};
  const bodies::CopyNumbers<Bfloat16> copy{from.data(), to.data(), count};
  from.data()[count - 1] = Bfloat16{3};
  CHECK(copy.grid().blocks == 2048);
  of_block(0, [&] { bodies::launch(copy, nullptr); });  // 2^32 / 8 packs are whole rounds of the grid
  CHECK(static_cast<float>(to.data()[count - 1]) == 3);
  from.data()[count - 1] = Bfloat16{2};
  of_block(0, [&] {
    cuda::kernels::add(reinterpret_cast<std::byte*>(to.data()), reinterpret_cast<const std::byte*>(from.data()), count,
                       Dtype::bf16, nullptr);
  });
  CHECK(static_cast<float>(to.data()[count - 1]) == 5);
}

TEST_CASE("threads that wait for others that have ended are an error") {
  const auto only_half = [] {
    if (threadIdx.x < 16) __syncthreads();
  };
  CHECK_FALSE(software_gpu::run_grid(dim3{1}, dim3{32}, 0, only_half));
  std::atomic<int> all = 0;
  CHECK(software_gpu::run_grid(dim3{2, 3}, dim3{4}, 0, [&] { ++all; }));
  CHECK(all == 24);
}
