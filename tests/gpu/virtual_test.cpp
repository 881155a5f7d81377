// Every schedule with 1, 4, 6 and 8 virtual ranks on one GPU gives a recorded run's numbers; a
// graph's replay gives an eager run's bits. virtual_test REFERENCE [SCHEDULE]...
// Not: several processes (nccl_test.cpp).
#include <string>
#include <vector>

#include "tawpipe/execute/cuda/virtual_executor.hpp"
#include "training.hpp"

using namespace tawpipe;

namespace {

gpu::Trained train(const gpu::Reference& reference, const Schedule& schedule, bool graph) {
  cuda::VirtualExecutor<cuda::CudaDevice, gpu::Layer, gpu::Optimizer> executor{schedule,
                                                                               cuda::CudaDevice{0},
                                                                               [&] { return gpu::layer_of(reference); },
                                                                               gpu::optimizer_of(reference),
                                                                               {.graph = graph, .time_limit = 400}};
  return gpu::train(executor, reference, [](std::span<float>, std::span<const char>) {});
}

}  // namespace

int main(int argc, char** argv) {
  return gpu::run([&](gpu::Checks& checks) {
    const gpu::Reference reference{argc > 1 ? argv[1] : ""};
    std::vector<std::string> names{argv + 2, argv + argc};
    if (names.empty()) {
      for (const auto& info : shipped().schedules()) names.emplace_back(info.name);
    }
    int trained = 0;
    for (const std::string& name : names) {
      for (const std::vector<std::int32_t>& nodes : std::vector<std::vector<std::int32_t>>{{1}, {2, 2}, {3, 2, 1}, {4, 4}}) {
        const auto schedule = gpu::schedule_of(reference, name, nodes);
        if (!schedule) continue;
        ++trained;
        const std::string what = concat(name, " on ", schedule->ranks(), " virtual ranks");
        const gpu::Trained eager = train(reference, *schedule, false);
        gpu::check(checks, reference, eager, what);
        checks.that(train(reference, *schedule, true) == eager, what + ": a graph gives the same bits");
      }
    }
    checks.that(trained >= static_cast<int>(names.size()) * 2, "few sizes are refused");
  });
}
