// Forward and backward of one decoder layer while a kernel holds 8, 16, 32 or 96 SMs and waits, at
// low and at high priority: the speed of the layer, as input for --hold-sms speeds=FILE.
// Not: while data is transferred (nccl-tests does that).
#include <cstdio>

#include "bench.hpp"
#include "spin.hpp"
#include "support/null_device.hpp"

using namespace tawpipe;
using cuda::Priority;

namespace {

constexpr int threads_of_nccl = 640;  // a block of NCCL's kernels has at most these

/// Flags in device memory, and streams for what spins.
class Spinner {
 public:
  Spinner() : flags_{reinterpret_cast<int*>(device_.allocate(2 * sizeof(int)))}, read_{device_.allocate_host(sizeof(int))} {
    for (const Priority priority : {Priority::normal, Priority::high}) streams_.push_back(device_.make_stream(priority));
    commands_ = device_.make_stream(Priority::high);
    load();
  }

  /// From `delay` seconds on, so many CTAs want an SM each, at most for `limit` seconds.
  void begin(int ctas, Priority priority, double delay, double limit) {
    device_.clear(reinterpret_cast<std::byte*>(flags_), 2 * sizeof(int), commands_);
    wait(commands_);
    const cudaStream_t stream = streams_[priority == Priority::high ? 1 : 0];
    gpu::spin(1, 32, stop(), nullptr, nanoseconds(delay), stream);
    gpu::spin(ctas, threads_of_nccl, stop(), begun(), nanoseconds(limit), stream);
  }
  /// @return how many CTAs had begun
  int end() {
    device_.download(read_, reinterpret_cast<const std::byte*>(begun()), sizeof(int), commands_);
    wait(commands_);
    int count = 0;
    std::memcpy(&count, read_, sizeof count);
    const int one = 1;
    std::memcpy(read_, &one, sizeof one);
    device_.upload(reinterpret_cast<std::byte*>(flags_), read_, sizeof(int), commands_);
    for (const cudaStream_t stream : streams_) wait(stream);
    return count;
  }

 private:
  static std::uint64_t nanoseconds(double seconds) { return static_cast<std::uint64_t>(seconds * 1e9); }
  int* stop() const { return flags_; }
  int* begun() const { return flags_ + 1; }
  void wait(cudaStream_t stream) { cuda::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize"); }
  /// A kernel's first launch may wait for all that runs.
  void load() {
    begin(1, Priority::normal, 0, 0);
    end();
  }

  cuda::CudaDevice device_{0};
  int* flags_;
  std::byte* read_;
  std::vector<cudaStream_t> streams_;
  cudaStream_t commands_ = nullptr;
};

/// The layer in the middle of three on three virtual ranks: it has neither embedding nor head, and
/// no other, nor an update, overlaps it.
class Layer {
 public:
  explicit Layer(int divisor)
      : schedule_{schedules::gpipe(
            gpu::workload(gpu::decoder(3, std::max(1, 4096 / divisor), std::max(1, 11008 / divisor), std::max(1, 32 / divisor),
                                       std::max(1, 32 / divisor)),
                          {.sequence = std::max(1, 8192 / divisor), .microbatch_size = 1, .global_batch = 1}),
            3, {.overlap = true})},
        run_{schedule_, {}, {}} {
    for (int i = 0; i < 3; ++i) step();
  }

  struct Times {
    double first = 0;  ///< seconds until the layer's forward begins
    double forward = 0;
    double backward = 0;

    double both() const { return forward + backward; }
  };
  Times step() {
    const IterationResult result = run_.step();
    Times times;
    for (std::size_t t = 0; t < schedule_.tasks().size(); ++t) {
      const Task& task = schedule_.tasks()[t];
      if (!is_stage_work(task.op) || number(task.stage) != 1) continue;
      (task.op == Op::forward ? times.forward : times.backward) = to_seconds(result.timeline.duration_of(id<TaskId>(t)));
      if (task.op == Op::forward) times.first = to_seconds(result.timeline.start[t].since_start());
    }
    return times;
  }

 private:
  Schedule schedule_;
  gpu::Run<support::NullUpdate> run_;
};

/// The middle one by forward and backward together.
Layer::Times median(std::vector<Layer::Times> all) {
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.both() < b.both(); });
  return all[all.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const int divisor = gpu::divisor(argc, argv);
  return gpu::run([=] {
    const int times = std::max(3, 15 / divisor);
    Layer layer{divisor};
    Spinner spinner;
    std::vector<Layer::Times> runs;
    for (int i = 0; i < times; ++i) runs.push_back(layer.step());
    const Layer::Times alone = median(runs);
    std::printf("{%s, \"shape\": \"llama-2-7b, %d\", \"divisor\": %d, \"forward_seconds\": %.6e, \"backward_seconds\": %.6e}\n",
                gpu::device_json().c_str(), 8192 / divisor, divisor, alone.forward, alone.backward);
    for (const Priority priority : {Priority::high, Priority::normal}) {
      for (const int ctas : {8, 16, 32, 96}) {
        runs.clear();
        int begun = ctas;
        for (int i = 0; i < times; ++i) {
          // They come while the stage before this layer computes, and find no SM free.
          spinner.begin(ctas, priority, alone.first / 2, 5);
          runs.push_back(layer.step());
          begun = std::min(begun, spinner.end());
        }
        const Layer::Times beside = median(runs);
        std::printf(
            "{\"ctas\": %d, \"priority\": \"%s\", \"speed\": %.4f, \"forward_seconds\": %.6e, \"backward_seconds\": %.6e, "
            "\"ctas_begun\": %d}\n",
            ctas, priority == Priority::high ? "high" : "low", alone.both() / beside.both(), beside.forward, beside.backward,
            begun);
        std::fflush(stdout);
      }
    }
  });
}
