// A program with a SIGTERM handler of its own around an executor of which a rank fails: it is told,
// its handler stays, it trains on.
// Not: ranks that are processes (mpi/failure/).
#include <csignal>
#include <stdexcept>
#include <string>
#include <tawpipe/execute/host/executor.hpp>
#include <tawpipe/schedules/shipped.hpp>

namespace {

volatile std::sig_atomic_t terminated = 0;
void on_terminate(int) { terminated = terminated + 1; }

/// Computes nothing; the forward of one microbatch can fail.
struct Layer {
  std::int32_t fails = -1;
  void forward(const tawpipe::ForwardArgs& args) const {
    if (args.microbatch == fails) throw std::runtime_error("the layer fails");
    std::raise(SIGTERM);
    if (args.loss != nullptr) *args.loss = 1;
  }
  void backward(const tawpipe::BackwardArgs&) const {}
  void backward_input(const tawpipe::BackwardArgs&) const {}
  void backward_weight(const tawpipe::BackwardArgs&) const {}
};
struct Optimizer {
  void update(const tawpipe::UpdateArgs&) const {}
};
struct Tokens {
  void fetch(std::int64_t, std::int32_t, std::span<std::int32_t>, std::span<std::int32_t>) const {}
};

double train(const tawpipe::Schedule& schedule, const Layer& layer, std::string& told) {
  tawpipe::host::HostExecutor<double, Layer, Optimizer> executor{
      schedule, [&] { return layer; }, Optimizer{}, {.failed = [&](const std::string& why) { told = why; }}};
  return executor.run(Tokens{}, {}).loss();
}

}  // namespace

int main() {
  using namespace tawpipe;
  std::signal(SIGTERM, on_terminate);
  LayerStack model{.name = "nothing", .layers = 4, .dtype = Dtype::f64};
  model.first_edge = {.parameters = 8, .stash = Bytes{64}};
  model.layer = {.parameters = 8, .saved = Bytes{64}, .stash = Bytes{64}, .boundary = Bytes{64}};
  model.last_edge = {.parameters = 8, .saved = Bytes{64}};
  const Batch batch{.sequence = 2, .global_batch = 4};
  const Schedule schedule = shipped_schedules().build(
      "tawpipe", {.workload = Workload{model, batch, Recompute::none}, .nodes = DeviceGroups{{2}}, .options = {}});
  std::string told;
  std::string caught;
  try {
    train(schedule, Layer{.fails = 2}, told);
  } catch (const std::runtime_error& error) {
    caught = error.what();
  }
  const int before = terminated;
  std::raise(SIGTERM);
  if (told != "the layer fails" || caught != told || terminated != before + 1) return 1;
  return train(schedule, {}, told) == 1 && terminated > before + 4 ? 0 : 1;
}
