// Forward and backward of one decoder layer in bf16, hidden size 4096, sequence 16384: seconds,
// share of the measured matrix peak; then a roofline fitted to this shape predicts three others.
// `layer --shapes` only prints the shapes, and needs no GPU.
// Not: PyTorch's layers of the same shapes (layer_pytorch.py).
#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>

#include "bench.hpp"
#include "support/null_device.hpp"

using namespace tawpipe;

namespace {

struct Shape {
  const char* name;
  int hidden;
  int intermediate;
  int heads;
  int kv_heads;
  std::int64_t sequence;

  /// Its name and sizes as members of a JSON object.
  std::string json() const {
    return concat("\"shape\": \"", name, "\", \"sizes\": [", hidden, ", ", intermediate, ", ", heads, ", ", kv_heads, ", ",
                  sequence, "]");
  }
};

constexpr Shape shapes[] = {{"llama-2-7b, 16384", 4096, 11008, 32, 32, 16384},
                            {"llama-2-7b, 4096", 4096, 11008, 32, 32, 4096},
                            {"llama-3-8b, 8192", 4096, 14336, 32, 8, 8192},
                            {"2048 wide, 16384", 2048, 5504, 16, 16, 16384}};

struct Times {
  double forward = 1e30;  ///< seconds
  double backward = 1e30;
  StageWork work;
};

/// Three stages of a layer each on three virtual ranks, one microbatch: the one in the middle has
/// neither embedding nor head. No weights are updated: those of the last stage would be beside this
/// one's backward.
Times measure(const Shape& shape, int divisor) {
  const auto part = [&](int size) { return std::max(1, size / divisor); };
  const Transformer model =
      gpu::decoder(3, part(shape.hidden), part(shape.intermediate), part(shape.heads), part(shape.kv_heads));
  const Schedule schedule =
      schedules::gpipe(gpu::workload(model, {.sequence = shape.sequence / divisor, .microbatch_size = 1, .global_batch = 1}), 3,
                       {.overlap = true});
  gpu::Run run{schedule, {}, support::NullUpdate{}};
  Times times;
  for (int i = 0; i < 2 + part(10); ++i) {
    const IterationResult result = run.step();
    if (i < 2) continue;
    for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
      const Task& task = schedule.tasks()[t];
      if (!is_stage_work(task.op) || number(task.stage) != 1) continue;
      times.work = schedule.stage(task.stage);
      double& best = task.op == Op::forward ? times.forward : times.backward;
      best = std::min(best, to_seconds(result.timeline.duration_of(id<TaskId>(t))));
    }
  }
  return times;
}

double flops_forward(const StageWork& work) { return work.forward.value(); }
double flops_backward(const StageWork& work) { return (work.backward_input + work.backward_weight).value(); }

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view{argv[1]} == "--shapes") {
    for (const Shape& shape : shapes) std::printf("{%s}\n", shape.json().c_str());
    return 0;
  }
  const int divisor = gpu::divisor(argc, argv);
  return gpu::run([=] {
    const gpu::Peaks peaks = gpu::measure_peaks(divisor);
    std::printf("{%s, \"matrix_peak_flops\": %.4e, \"copy_bytes_per_second\": %.4e}\n", gpu::device_json().c_str(), peaks.flops,
                peaks.bytes);
    double utilization = 0;
    for (const Shape& shape : shapes) {
      const Times times = measure(shape, divisor);
      const double flops = flops_forward(times.work) + flops_backward(times.work);
      const double traffic =
          static_cast<double>((times.work.forward_traffic + times.work.backward_traffic).value()) / peaks.bytes;
      const double both = times.forward + times.backward;
      // The roofline's matrix part takes what the memory part at the copy's speed leaves.
      if (utilization == 0) utilization = flops / peaks.flops / (both - traffic);
      const double predicted = flops / (peaks.flops * utilization) + traffic;
      std::printf(
          "{%s, \"forward_seconds\": %.6e, \"backward_seconds\": %.6e, \"share_of_matrix_peak\": %.4f, "
          "\"predicted_seconds\": %.6e, \"prediction_error\": %.4f}\n",
          shape.json().c_str(), times.forward, times.backward, flops / both / peaks.flops, predicted, predicted / both - 1);
      std::fflush(stdout);
    }
    std::printf("{\"calibrated_on\": \"%s\", \"utilization\": %.4f}\n", shapes[0].name, utilization);
  });
}
