// What execute/cuda/device_api.hpp promises, of a real device: memory, order, times, sums, graphs.
// Not: communicators (nccl_test.cpp).
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "checks.hpp"
#include "tawpipe/core/half.hpp"
#include "tawpipe/execute/cuda/cuda_api.hpp"

using namespace tawpipe;
using cuda::CudaDevice;

namespace {

/// A device with one stream, to which numbers are brought and from which they are read.
struct Bench {
  CudaDevice device{0};
  CudaDevice::Stream stream = device.make_stream(cuda::Priority::normal);
  CudaDevice::Event done = device.make_event(false);
  std::byte* window = device.allocate_host(std::size_t{1} << 22);

  void finish() {
    device.record(done, stream);
    while (!device.finished(done)) std::this_thread::yield();
  }
  template <class T>
  std::byte* put(const std::vector<T>& values, std::size_t skip = 0) {
    std::byte* const at = device.allocate((values.size() + skip) * sizeof(T)) + skip * sizeof(T);
    std::memcpy(window, values.data(), values.size() * sizeof(T));
    device.upload(at, window, values.size() * sizeof(T), stream);
    finish();
    return at;
  }
  template <class T>
  std::vector<T> get(const std::byte* at, std::size_t count) {
    device.download(window, at, count * sizeof(T), stream);
    finish();
    std::vector<T> values(count);
    std::memcpy(values.data(), window, count * sizeof(T));
    return values;
  }
};

/// Small whole numbers, of which all sums are exact in any of the types.
template <class T>
std::vector<T> whole(std::size_t count, int seed) {
  std::vector<T> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(static_cast<T>(static_cast<float>((i * 7 + seed) % 9) - 4));
  return values;
}

template <class T>
void sums(gpu::Checks& checks, Bench& bench, Dtype type) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{7}, std::size_t{1000}, std::size_t{100'003}}) {
    for (const std::size_t skip : {0, 1, 3}) {
      for (const std::size_t skip_from : {skip, std::size_t{2}}) {
        const auto a = whole<T>(count, 1);
        const auto b = whole<T>(count, 5);
        std::byte* const to = bench.put(a, skip);
        bench.device.add(to, bench.put(b, skip_from), static_cast<std::int64_t>(count), type, bench.stream);
        const auto found = bench.get<T>(to, count);
        bool same = true;
        double square = 0;
        for (std::size_t i = 0; i < count; ++i) {
          same = same && static_cast<float>(found[i]) == static_cast<float>(a[i]) + static_cast<float>(b[i]);
          square += static_cast<double>(static_cast<float>(a[i])) * static_cast<double>(static_cast<float>(a[i]));
        }
        checks.that(same, concat("sum of ", count, " numbers of ", name(type), ", ", skip, " and ", skip_from, " in"));
        std::byte* const sum = bench.put(std::vector<float>{3});
        std::byte* const from = bench.put(a, skip);
        bench.device.add_squares(reinterpret_cast<float*>(sum), from, static_cast<std::int64_t>(count), type, bench.stream);
        checks.that(bench.get<float>(sum, 1)[0] == static_cast<float>(square + 3),
                    concat("squares of ", count, " numbers of ", name(type)));
      }
    }
  }
}

void scales(gpu::Checks& checks, Bench& bench) {
  std::byte* const square = bench.put(std::vector<float>{16});
  std::byte* const scale = bench.put(std::vector<float>{0});
  for (const double clip : {0.0, 1.0, 5.0}) {
    const std::byte* const scalars = bench.put(std::vector<StepScalars>{{.gradient_clip = clip}});
    bench.device.clip_scale(reinterpret_cast<float*>(scale), reinterpret_cast<const float*>(square),
                            reinterpret_cast<const StepScalars*>(scalars), bench.stream);
    checks.that(bench.get<float>(scale, 1)[0] == (clip == 1.0 ? 0.25F : 1.0F), concat("the scale for a clip of ", clip));
  }
}

/// A graph of two streams does what its work does by itself, every time it is launched, and its
/// times can be read.
void graphs(gpu::Checks& checks, Bench& bench) {
  CudaDevice& device = bench.device;
  const auto side = device.make_stream(cuda::Priority::high);
  const auto fork = device.make_event(false);
  const auto join = device.make_event(false);
  const auto begin = device.make_event(true);
  const auto end = device.make_event(true);
  constexpr std::size_t count = 1 << 16;
  std::byte* const a = bench.put(std::vector<float>(count, 1));
  std::byte* const b = bench.put(std::vector<float>(count, 2));
  const auto work = [&] {  // a += b overlapping a copy, then b += a
    std::byte* const c = a + count / 2 * sizeof(float);
    device.record(begin, bench.stream);
    device.record(fork, bench.stream);
    device.wait(side, fork);
    device.add(a, b, count / 2, Dtype::f32, bench.stream);
    device.add(c, b, count / 2, Dtype::f32, side);
    device.record(join, side);
    device.wait(bench.stream, join);
    device.add(b, a, count, Dtype::f32, bench.stream);
    device.record(end, bench.stream);
  };
  work();
  checks.that(bench.get<float>(b, count) == std::vector<float>(count, 5), "work by itself");  // 1 + 2 = 3, 2 + 3 = 5
  device.begin_capture(bench.stream);
  work();
  const auto graph = device.end_capture(bench.stream);
  checks.that(bench.get<float>(b, count) == std::vector<float>(count, 5), "a capture runs nothing");
  device.launch(graph, bench.stream);
  checks.that(bench.get<float>(b, count) == std::vector<float>(count, 13), "first launch");  // 3 + 5 = 8, 5 + 8 = 13
  device.launch(graph, bench.stream);
  checks.that(bench.get<float>(b, count) == std::vector<float>(count, 34), "second launch");
  std::optional<double> known;
  while (!(known = device.seconds_between(begin, end))) std::this_thread::yield();
  checks.that(device.finished(end), "a graph's timed event is reached");
  const double seconds = *known;
  checks.that(seconds > 0 && seconds < 1, concat("a graph's time of ", seconds, " s"));
}

void errors(gpu::Checks& checks, Bench& bench) {
  try {
    bench.device.allocate(std::size_t{1} << 50);
    checks.that(false, "a petabyte");
  } catch (const cuda::CudaError& error) {
    checks.that(error.status() == cudaErrorMemoryAllocation, error.what());
  }
  checks.that(cudaGetLastError() == cudaSuccess, "the runtime's last error is cleared");
}

}  // namespace

int main() {
  return gpu::run([](gpu::Checks& checks) {
    Bench bench;
    sums<float>(checks, bench, Dtype::f32);
    sums<double>(checks, bench, Dtype::f64);
    sums<Bfloat16>(checks, bench, Dtype::bf16);
    sums<Half>(checks, bench, Dtype::f16);
    scales(checks, bench);
    graphs(checks, bench);
    errors(checks, bench);
  });
}
