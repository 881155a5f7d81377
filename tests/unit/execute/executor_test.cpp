// Tests of execute/executor.hpp and execute/parameter_store.hpp: what all executors model, memory
// that a program lends them, and what they do not touch in its process.
// Not: their numbers (host_executor_test.cpp, emulated/, mpi/).
#include "tawpipe/execute/executor.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/toy_device_training.hpp"
#include "support/toy_training.hpp"

using namespace tawpipe;
using namespace support;

static_assert(Executor<ToyHostExecutor>);
static_assert(ExecutorRank<host::RankState<double>, double>);
static_assert(Executor<ToyVirtualExecutor>);
static_assert(Executor<ToyNcclExecutor>);
static_assert(ExecutorRank<cuda::RankParameters<EmulatedDevice>, float>);
static_assert(!Executor<ToyLayer<double>>);

namespace {

/// A layer that throws in the forward of one microbatch.
class FailingLayer {
 public:
  FailingLayer(const LayerStack& model, std::int32_t fails) : layer_{model}, fails_{fails} {}
  void forward(const ForwardArgs& args) {
    if (args.microbatch == fails_ && args.stage->last_edge) throw std::runtime_error("the layer fails");
    layer_.forward(args);
  }
  void backward(const BackwardArgs& args) { layer_.backward(args); }
  void backward_input(const BackwardArgs& args) { layer_.backward_input(args); }
  void backward_weight(const BackwardArgs& args) { layer_.backward_weight(args); }

 private:
  ToyLayer<double> layer_;
  std::int32_t fails_;
};

volatile std::sig_atomic_t terminated = 0;
void on_terminate(int) { terminated = terminated + 1; }

Schedule schedule_of(const char* name, std::vector<std::int32_t> nodes, bool tied = false) {
  return build_schedule(name, {.workload = toy_work(toy_model(6, tied), 4), .nodes = DeviceGroups{nodes}, .options = {}});
}

template <class E>
void set_toy(E& executor) {
  set_weights(executor, [](const ParameterRange& range, std::span<typename E::Number> numbers) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      numbers[i] =
          static_cast<typename E::Number>(std::sin(0.7 * static_cast<double>(range.begin + static_cast<std::int64_t>(i))));
    }
  });
}

}  // namespace

TEST_CASE("an executor trains in memory that the program lends, to the same bits as in its own") {
  for (const char* name : {"1f1b", "tawpipe", "fsdp", "ddp"}) {
    CAPTURE(std::string{name});
    const Schedule schedule = schedule_of(name, {2, 1}, true);
    const LayerStack& model = schedule.workload().model();
    ToyHostExecutor own{schedule, [&] { return ToyLayer<double>{model}; }, {}};
    set_toy(own);

    // A framework's tensors: one for each run that a rank keeps.
    std::vector<std::vector<double>> tensors;
    std::vector<LentParameters> lent;
    for (int r = 0; r < schedule.ranks(); ++r) {
      for (const ContentKind kind : {ContentKind::weights, ContentKind::gradients}) {
        for (const auto& kept : kept_parameters(schedule, Rank{r}, kind)) {
          tensors.emplace_back(static_cast<std::size_t>(parameters_in(kept)), 7.0);
          lent.push_back({Rank{r}, kind, kept, std::as_writable_bytes(std::span{tensors.back()})});
        }
      }
    }
    REQUIRE_FALSE(lent.empty());
    std::int64_t rank_bytes = 0;
    ToyHostExecutor executor{schedule, [&] { return ToyLayer<double>{model}; }, {}, {.lent = lent}};
    for (int r = 0; r < schedule.ranks(); ++r) {
      rank_bytes += own.rank(Rank{r}).plan().bytes.value() - executor.rank(Rank{r}).plan().bytes.value();
    }
    CHECK(rank_bytes > 0);                // what is lent is not allocated
    CHECK(tensors.front().front() == 7);  // and keeps what it holds
    set_toy(executor);
    for (int step = 1; step <= 3; ++step) {
      const Iteration args{.step = step, .learning_rate = 0.05};
      CHECK(own.run(ToyTokens{7}, args).losses == executor.run(ToyTokens{7}, args).losses);
    }
    const std::vector<double> weights = collect_weights(own);
    CHECK(collect_weights(executor) == weights);
    std::size_t compared = 0;
    for (std::size_t i = 0; i < lent.size(); ++i) {
      if (lent[i].kind != ContentKind::weights) continue;
      ++compared;
      auto at = tensors[i].begin();
      for (const ParameterRange& range : lent[i].parameters) {
        if (!schedule.is_padding(range)) CHECK(std::equal(at, at + range.count(), weights.begin() + range.begin));
        at += range.count();
      }
    }
    CHECK(compared > 0);
  }
}

TEST_CASE("a reason to stop is asked for once, at the iteration's end, and given back") {
  const Schedule schedule = schedule_of("1f1b", {2});
  ToyHostExecutor executor{schedule, [&] { return ToyLayer<double>{schedule.workload().model()}; }, {}};
  set_toy(executor);
  int asked = 0;
  Iteration args{.learning_rate = 0.05};
  CHECK(executor.run(ToyTokens{7}, args).stop == 0);
  args.stop = [&] { return ++asked == 1 ? 0 : 15; };
  CHECK(executor.run(ToyTokens{7}, args).stop == 0);
  CHECK(executor.run(ToyTokens{7}, args).stop == 15);
  CHECK(asked == 2);
}

TEST_CASE("weights are kept in numbers of every type but float8") {
  const auto size = [](Dtype type) {
    std::int64_t bytes = 0;
    tawpipe::detail::with_number(type, [&](auto number) { bytes = sizeof(number); });
    return bytes;
  };
  for (const Dtype type : {Dtype::f64, Dtype::f32, Dtype::bf16, Dtype::f16}) CHECK(size(type) == size_bytes(type));
  CHECK_THROWS_WITH_AS(size(Dtype::f8), "weights of float8 are not supported; choose f32, bf16, f16 or f64", InputError);
}

TEST_CASE("lent memory that fits nothing is refused") {
  const Schedule schedule = schedule_of("1f1b", {2});
  const auto refusal = [&](const LentParameters& lent) {
    const std::vector<LentParameters> all{lent};
    try {
      ToyHostExecutor{schedule, [&] { return ToyLayer<double>{schedule.workload().model()}; }, {}, {.lent = all}};
    } catch (const InputError& error) {
      return std::string{error.what()};
    }
    return std::string{};
  };
  const auto kept = kept_parameters(schedule, Rank{1}, ContentKind::weights);
  REQUIRE(kept.size() == 1);
  std::vector<double> tensor(static_cast<std::size_t>(parameters_in(kept[0])));
  const auto bytes = std::as_writable_bytes(std::span{tensor});
  CHECK(refusal({Rank{1}, ContentKind::weights, kept[0], bytes}).empty());
  CHECK(refusal({Rank{1}, ContentKind::weights, kept[0], bytes.first(8)}).find(" has 8 bytes; ") != std::string::npos);
  CHECK(refusal({Rank{0}, ContentKind::weights, kept[0], bytes}).ends_with("kept_parameters() says what each of them holds"));
  CHECK(refusal({Rank{1}, ContentKind::saved, kept[0], bytes}).ends_with("only weights and gradients are lent"));
}

TEST_CASE("a rank that fails leaves the process, its signals and its next executor alone") {
  struct sigaction own {};
  own.sa_handler = on_terminate;
  struct sigaction before {};
  sigaction(SIGTERM, &own, &before);
  const Schedule schedule = schedule_of("tawpipe", {2, 2});
  const LayerStack& model = schedule.workload().model();
  std::vector<std::string> told;
  {
    host::HostExecutor<double, FailingLayer, ToyOptimizer<double>> executor{
        schedule,
        [&] {
          return FailingLayer{model, 2};
        },
        {},
        {.failed = [&](const std::string& why) { told.push_back(why); }}};
    CHECK_THROWS_WITH_AS(executor.run(ToyTokens{7}, {}), "the layer fails", std::runtime_error);
  }
  CHECK(told == std::vector<std::string>{"the layer fails"});
  std::raise(SIGTERM);
  CHECK(terminated == 1);  // the program's handler, while and after an executor ran
  ToyHostExecutor next{schedule, [&] { return ToyLayer<double>{model}; }, {}};
  set_toy(next);
  const Schedule one_rank = toy_alone(schedule.workload());
  ToyHostExecutor alone{one_rank, [&] { return ToyLayer<double>{model}; }, {}};
  set_toy(alone);
  std::raise(SIGTERM);
  CHECK(next.run(ToyTokens{7}, {}).loss() == doctest::Approx(alone.run(ToyTokens{7}, {}).loss()).epsilon(1e-12));
  CHECK(terminated == 2);
  struct sigaction now {};
  sigaction(SIGTERM, &before, &now);
  CHECK((now.sa_handler == on_terminate));
}
