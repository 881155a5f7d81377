// Which schedule trains a model that is not a transformer fastest? Its parts state what they hold
// and compute for one sequence, and the rest is as for a transformer.
#include <cstdio>

#include "tawpipe/tawpipe.hpp"

using namespace tawpipe::literals;

namespace {

// Gated linear recurrences: h_t = a_t h_{t-1} + U x_t, y_t = x_t + V (h_t * G x_t). Three matrices
// a layer, in 16 bits; the scan over the tokens is memory-bound.
tawpipe::LayerStack recurrences(std::int64_t tokens) {
  constexpr std::int64_t width = 2048, inner = 4096, symbols = 32000;
  const auto products = [&](std::int64_t parameters) { return tawpipe::Flops{2.0 * static_cast<double>(tokens * parameters)}; };
  const tawpipe::Bytes boundary{2 * tokens * width};

  tawpipe::LayerStack model{.name = "recurrences", .layers = 32};
  model.first_edge = {.parameters = symbols * width, .stash = boundary, .backward_traffic = boundary * 2};
  model.layer = {.parameters = 3 * width * inner,
                 .saved = tawpipe::Bytes{2 * tokens * (width + 3 * inner)},
                 .stash = tawpipe::Bytes{2 * tokens * (width + 2 * inner)},
                 .boundary = boundary,
                 .forward = products(3 * width * inner),
                 .backward_input = products(3 * width * inner),
                 .backward_weight = products(3 * width * inner),
                 .forward_traffic = tawpipe::Bytes{2 * tokens * 4 * inner},
                 .backward_traffic = tawpipe::Bytes{2 * tokens * 8 * inner}};
  model.last_edge = {.parameters = symbols * width,
                     .saved = tawpipe::Bytes{4 * tokens * symbols},
                     .forward = products(symbols * width),
                     .backward_input = products(symbols * width),
                     .backward_weight = products(symbols * width)};
  model.names = {
      .first_edge = {{"symbols in", symbols * width}}, .layer = "recurrence", .last_edge = {{"symbols out", symbols * width}}};
  return model;
}

}  // namespace

int main() {
  tawpipe::Problem problem{
      .cluster = tawpipe::ClusterBuilder{}
                     .device({.name = "A800-80G", .memory = 80_GiB, .peak = 312_TFLOPS, .memory_bandwidth = 2039_GBps})
                     .nodes(4)
                     .devices_per_node(4)
                     .intra_node({.bandwidth = 160_GBps, .latency = 3_us})
                     .inter_node({.bandwidth = 10_Gbps, .latency = 30_us})
                     .build(),
      .stack = recurrences(8192),
      .sequence = 8192,
      .global_batch = 128,
      .schedules = {{"fsdp"}, {"1f1b"}, {.schedule = "interleaved-1f1b", .automatic = true}, {"zb-h1"}, {"tawpipe"}},
      .cost = tawpipe::RooflineCost{.utilization = 0.4}};  // kernels need shapes, which these parts do not have
  const tawpipe::Registry& registry = tawpipe::shipped_schedules();
  std::puts("                  sequences a microbatch   seconds   GiB");
  for (const tawpipe::ScheduleChoice& choice : problem.schedules) {
    const tawpipe::Summary one = choose(problem, choice, registry).summary;
    std::printf("%-17s %22lld   %7.2f   %3.0f%s\n", one.schedule.c_str(), static_cast<long long>(one.microbatch_size),
                tawpipe::to_seconds(one.makespan), static_cast<double>(one.fullest().value()) / (1 << 30),
                one.fits() ? "" : ": does not fit");
  }
  problem.mesh.data = 4;  // the same, with a schedule on four devices and four replicas
  const tawpipe::Summary best = predict(problem, registry).summary;
  std::printf("with four replicas the fastest is %s: %.2f s\n", best.schedule.c_str(), tawpipe::to_seconds(best.makespan));
}
