// Trains a toy model under mpirun until one of its ranks fails in a chosen way: probe WAY RANK
// MILLISECONDS SILENCE TASK. WAY is kill, outlive (the same, and the other ranks go on), stop
// (SIGSTOP, within a layer), throw or stall (a layer that never returns). RANK fails that way so
// many MILLISECONDS after its first iteration; SILENCE and TASK are the watch's limits in seconds.
// Not: a test; failure_test.cpp starts it and looks at what is left.
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "../../../sim/leave.hpp"
#include "support/toy_training.hpp"
#include "tawpipe/execute/mpi/executor.hpp"

using namespace tawpipe;

namespace {

struct Plan {
  std::string way;
  std::int64_t at = 0;  ///< nanoseconds of this host's clock; 0: never
  mutable std::atomic<bool> stopped{false};
  bool due() const { return at != 0 && mpi::now() >= at; }
};

/// A toy layer that takes a millisecond, and fails where it is told to.
class FailingLayer {
 public:
  FailingLayer(const Transformer& model, const Plan& plan) : layer_{model}, plan_{plan} {}
  void forward(const ForwardArgs& args) const {
    work();
    layer_.forward(args);
  }
  void backward(const BackwardArgs& args) const {
    work();
    layer_.backward(args);
  }
  void backward_input(const BackwardArgs& args) const { layer_.backward_input(args); }
  void backward_weight(const BackwardArgs& args) const { layer_.backward_weight(args); }

 private:
  void work() const {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
    if (plan_.way == "throw" && plan_.due()) throw InputError("the layer has no more numbers");
    while ((plan_.way == "stall" || plan_.way == "stop") && plan_.due()) {
      // Two seconds in this task, in which the others hear of it.
      const bool long_enough = mpi::now() >= plan_.at + 2'000'000'000;
      if (plan_.way == "stop" && long_enough && !plan_.stopped.exchange(true)) kill(getpid(), SIGSTOP);
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
  }
  support::ToyLayer<double> layer_;
  const Plan& plan_;
};

int run(const std::string& way, int rank, std::int64_t milliseconds, const WatchOptions& limits) {
  mpi::Session session{limits};
  const Transformer model = support::toy_model(12, false);
  const Workload work = support::toy_work(model, 12);
  const Schedule schedule = build_schedule("tawpipe", {work, DeviceGroups{{session.ranks()}}, {}});
  Plan plan{way, 0};
  mpi::MpiExecutor<double, FailingLayer, support::ToyOptimizer<double>> executor{schedule,
                                                                                 session,
                                                                                 [&] {
                                                                                   return FailingLayer{model, plan};
                                                                                 },
                                                                                 {}};
  support::set_toy_weights(executor.state());
  std::jthread timer;
  for (int step = 1;; ++step) {
    executor.run(support::ToyTokens{model.vocab}, {.step = step, .learning_rate = 0.001});
    if (step > 1 || session.rank() != rank) continue;
    plan.at = mpi::now() + milliseconds * 1'000'000;
    if (way != "kill" && way != "outlive") continue;
    timer = std::jthread{[&] {
      std::this_thread::sleep_for(std::chrono::milliseconds{milliseconds});
      kill(getpid(), SIGKILL);
    }};
  }
}

volatile std::sig_atomic_t terminated = 0;

/// A program with a signal handler of its own, for which a failed run is not the end.
int outlive(int rank, int milliseconds, const WatchOptions& limits) {
  std::signal(SIGTERM, [](int) { terminated = terminated + 1; });
  try {
    return run("outlive", rank, milliseconds, limits);
  } catch (const DeviceError& error) {
    const int before = terminated;  // mpirun sends it, too
    std::raise(SIGTERM);
    std::printf("%s: %s\n", terminated > before ? "goes on" : "has lost its handler", error.what());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  try {
    if (std::string{argv[1]} == "outlive") {
      return outlive(std::atoi(argv[2]), std::atoi(argv[3]),
                     {.silence_seconds = std::atof(argv[4]), .task_seconds = std::atof(argv[5]), .failed = {}});
    }
    sim::delay_terminate();
    return run(argv[1], std::atoi(argv[2]), std::atoi(argv[3]),
               {.silence_seconds = std::atof(argv[4]), .task_seconds = std::atof(argv[5]), .failed = sim::leave});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tawpipe: %s\n", error.what());
    return 3;
  }
}
