// Tensor- and context-parallel ranks over MPI: the losses, weights and bytes of threads.
// Not: recorded numbers (numerics/tensor_test.cpp, numerics/context_test.cpp).
#if __has_include(<cblas.h>)
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "mpi/session_of_tests.hpp"
#include "schedules.hpp"
#include "tawpipe/execute/executor.hpp"
#include "tawpipe/execute/host/executor.hpp"
#include "tawpipe/execute/mpi/executor.hpp"
#include "tawpipe/layers/host/tensor_llama.hpp"
#include "tawpipe/layers/host/tensor_memory.hpp"
#include "tawpipe/layers/parameter_update.hpp"
#include "tawpipe/model/tensor_part.hpp"
#include "tawpipe/model/transformer_body.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/schedule/gradient_norm.hpp"
#include "tawpipe/schedule/tensor_parts.hpp"

namespace tensor_test {

using namespace tawpipe;
using Layer = layers::host::TensorLlama<double>;
using Update = layers::AdamWUpdate<double>;

const Transformer model{
    .name = "small", .layers = 6, .hidden = 16, .heads = 4, .kv_heads = 2, .intermediate = 24, .vocab = 31, .dtype = Dtype::f64};

struct Tokens {
  void fetch(std::int64_t step, std::int32_t microbatch, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] =
          static_cast<std::int32_t>((7 * i + 3 * static_cast<std::size_t>(microbatch) + static_cast<std::size_t>(step)) % 31);
      targets[i] = (tokens[i] * 5 + 2) % 31;
    }
  }
};

Schedule schedule_of(const std::string& name, int ranks, const Mesh& axes, const Sharing& given,
                     Recompute recompute = Recompute::none, const Transformer& of = model, int sequences = 0) {
  if (sequences == 0) sequences = axes.expert;  // of a microbatch
  const auto work = [&](int replicas) {
    const Batch batch{.sequence = 8, .microbatch_size = sequences, .global_batch = 12 / replicas * sequences};
    Workload one{of, batch, recompute};
    one.parameter_bytes({.weight = 8, .gradient = 8, .optimizer = 16});
    return one;
  };
  const Schedule logical = build_schedule(name, {.workload = work(axes.data), .nodes = DeviceGroups{{ranks}}, .options = {}});
  const Batch& batch = logical.workload().batch();
  Sharing sharing = given;
  sharing.sends_activations = std::any_of(logical.tasks().begin(), logical.tasks().end(), [](const Task& task) {
    return is_point_to_point(task.op) && is_of_tokens(task.payload);
  });
  if (axes.copies() == 1) return with_gradient_norm(logical);
  const Composition with{.stages = layers::host::tensor_stages<double>(
                             of, batch, recompute, sharing, share_stages(of, batch, recompute, logical.stages(), sharing), true),
                         .sequence_parallel = sharing.sequence_parallel,
                         .sharding = StateSharding::optimizer};
  const TensorSlices slices =
      axes.whole_experts ? expert_slices(of, axes.expert_parts(), axes.tensor) : tensor_slices(of, axes.tensor);
  return with_gradient_norm(with_tensor_parts(compose(logical, work(1), axes.over(ranks * axes.copies()), with), slices,
                                              sharing.sequence_parallel && axes.tensor > 1));
}

struct Outcome {
  std::vector<IterationResult> results;
  std::vector<double> weights;
};
template <class Executor>
Outcome train(Executor& executor, const Transformer& of = model) {
  std::vector<double> weights(static_cast<std::size_t>(of.parameters()));
  for (std::size_t p = 0; p < weights.size(); ++p) weights[p] = 0.2 * std::sin(static_cast<double>(p));
  load_weights(executor, std::span<const double>{weights});
  Outcome outcome;
  for (int step = 1; step <= 2; ++step)
    outcome.results.push_back(executor.run(Tokens{}, {.step = step, .learning_rate = 0.01, .gradient_clip = 0.5}));
  outcome.weights = collect_weights(executor);
  return outcome;
}

TEST_CASE("clipping takes the norm of the whole gradient, of which each parameter counts once") {
  const auto norm = [](int pipeline, const Mesh& axes, bool by_tokens) {
    const Sharing sharing{.tensor = axes.tensor, .context = axes.context, .sequence_parallel = by_tokens};
    const Schedule schedule = schedule_of("1f1b", pipeline, axes, sharing);
    const auto layer = [&] { return Layer{model, schedule.workload().batch(), Recompute::none, {}, sharing}; };
    host::HostExecutor<double, Layer, Update> threads{schedule, layer, Update{model, {}}};
    return train(threads).results.back().gradient_norm;
  };
  const double alone = norm(1, {}, true);
  CHECK(alone > 0);
  CHECK(norm(1, {.context = 2}, true) == doctest::Approx(alone).epsilon(1e-12));
  CHECK(norm(2, {.tensor = 2, .context = 2, .data = 2}, true) == doctest::Approx(alone).epsilon(1e-12));
  for (const bool by_tokens : {false, true}) {
    CHECK(norm(1, {.tensor = 2}, by_tokens) == doctest::Approx(alone).epsilon(1e-12));
    CHECK(norm(2, {.tensor = 2, .data = 2}, by_tokens) == doctest::Approx(alone).epsilon(1e-12));
  }
}

Transformer mixture() {
  Transformer mixture = model;
  mixture.experts = 4;
  mixture.experts_per_token = 2;
  mixture.shared_width = 8;
  return mixture;
}

TEST_CASE("clipping takes the norm of the whole gradient of a mixture whose experts ranks divide") {
  const Transformer of = mixture();
  const auto norm = [&](int pipeline, const Mesh& axes) {
    const Sharing sharing{.expert = axes.expert, .whole_experts = axes.whole_experts};
    const Schedule schedule = schedule_of("1f1b", pipeline, axes, sharing, Recompute::none, of, 2);
    const auto layer = [&] { return Layer{of, schedule.workload().batch(), Recompute::none, {}, sharing}; };
    host::HostExecutor<double, Layer, Update> threads{schedule, layer, Update{of, {}}};
    return train(threads, of).results.back().gradient_norm;
  };
  const double alone = norm(1, {});
  CHECK(alone > 0);
  CHECK(norm(1, {.expert = 2, .whole_experts = true}) == doctest::Approx(alone).epsilon(1e-12));
  CHECK(norm(2, {.expert = 2, .whole_experts = true}) == doctest::Approx(alone).epsilon(1e-12));
  CHECK(norm(2, {.data = 2, .expert = 2, .whole_experts = true}) == doctest::Approx(alone).epsilon(1e-12));
}

/// On the processes of the test as on threads.
void check_processes(const std::string& name, int pipeline, const Mesh& axes, const Sharing& sharing,
                     Recompute recompute = Recompute::none, const Transformer& of = model) {
  CAPTURE(name);
  CAPTURE(pipeline);
  CAPTURE(sharing.sequence_parallel);
  CAPTURE(std::string{tawpipe::name(sharing.exchange)});
  const Schedule schedule = schedule_of(name, pipeline, axes, sharing, recompute, of);
  const auto layer = [&] { return Layer{of, schedule.workload().batch(), recompute, {}, sharing}; };
  host::HostExecutor<double, Layer, Update> threads{schedule, layer, Update{of, {}}};
  const Outcome expected = train(threads, of);
  mpi::MpiExecutor<double, Layer, Update> processes{schedule, session_of_tests(), layer, Update{of, {}}, {.chunk_bytes = 200}};
  const Outcome got = train(processes, of);
  for (std::size_t step = 0; step < got.results.size(); ++step) {
    const IterationResult& one = got.results[step];
    const IterationResult& other = expected.results[step];
    for (std::size_t m = 0; m < one.losses.size(); ++m) CHECK(one.losses[m] == doctest::Approx(other.losses[m]).epsilon(1e-12));
    CHECK(one.gradient_norm == doctest::Approx(other.gradient_norm).epsilon(1e-12));
    for (std::size_t r = 0; r < one.sent.size(); ++r) CHECK(one.sent[r].by_payload == other.sent[r].by_payload);
  }
  if (!processes.is_root()) return;
  double worst = 0;
  for (std::size_t p = 0; p < got.weights.size(); ++p) worst = std::max(worst, std::abs(got.weights[p] - expected.weights[p]));
  CHECK(worst < 1e-12);
}

TEST_CASE("tensor-parallel processes give the losses, weights and bytes of threads") {
  const int ranks = session_of_tests().ranks();
  if (ranks % 2 != 0) return;
  const std::vector<std::pair<int, Mesh>> meshes{{ranks / 2, {.tensor = 2}}, {1, {.tensor = 2, .data = ranks / 2}}};
  for (const std::string name : {"1f1b", "zb-h1", "tawpipe"}) {
    for (const auto& [pipeline, axes] : meshes) {
      for (const bool by_tokens : {false, true})
        check_processes(name, pipeline, axes, {.tensor = 2, .sequence_parallel = by_tokens});
    }
  }
}

// An all-to-all is among two ranks, as there are two key and value heads.
TEST_CASE("context-parallel processes give the losses, weights and bytes of threads") {
  const int ranks = session_of_tests().ranks();
  if (ranks % 2 != 0) return;
  for (const ContextExchange exchange : {ContextExchange::all_gather, ContextExchange::ring, ContextExchange::all_to_all}) {
    check_processes("1f1b", ranks / 2, {.context = 2}, {.context = 2, .exchange = exchange});
    check_processes("zb-h1", 1, {.context = 2, .data = ranks / 2}, {.context = 2, .exchange = exchange});
    if (ranks == 4 && exchange != ContextExchange::all_to_all) {
      check_processes("tawpipe", 1, {.context = 4}, {.context = 4, .exchange = exchange});
      check_processes("1f1b", 1, {.tensor = 2, .context = 2}, {.tensor = 2, .context = 2, .exchange = exchange});
    }
  }
}
// With a mixture of experts; a microbatch has a sequence of each rank.
TEST_CASE("processes that share a mixture give the losses, weights and bytes of threads") {
  const int ranks = session_of_tests().ranks();
  if (ranks % 2 != 0) return;
  const std::vector<std::tuple<std::string, int, int>> runs{
      {"1f1b", ranks / 2, 2}, {"zb-h1", 1, 2}, {"1f1b", 1, ranks == 4 ? 4 : 2}};
  for (const auto& [name, pipeline, experts] : runs) {
    const Mesh axes{.data = ranks / pipeline / experts, .expert = experts, .whole_experts = true};
    check_processes(name, pipeline, axes, {.expert = experts, .whole_experts = true}, Recompute::full, mixture());
  }
  for (const bool whole : {false, true}) {
    check_processes("1f1b", ranks / 2, {.tensor = 2, .whole_experts = whole}, {.tensor = 2, .whole_experts = whole},
                    Recompute::none, mixture());
    check_processes("zb-h1", 1, {.context = 2, .data = ranks / 2, .whole_experts = whole},
                    {.context = 2, .whole_experts = whole, .exchange = ContextExchange::ring}, Recompute::selective, mixture());
  }
  if (ranks != 4) return;
  check_processes("1f1b", 1, {.tensor = 2, .expert = 2, .whole_experts = true}, {.tensor = 2, .expert = 2, .whole_experts = true},
                  Recompute::none, mixture());
  check_processes("zb-v", 1, {.tensor = 2, .context = 2, .whole_experts = true},
                  {.tensor = 2, .context = 2, .whole_experts = true}, Recompute::full, mixture());
}
TEST_CASE("processes that share stages and compute activations again give the losses, weights and bytes of threads") {
  const int ranks = session_of_tests().ranks();
  if (ranks % 2 != 0) return;
  for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
    check_processes("zb-h1", ranks / 2, {.tensor = 2}, {.tensor = 2}, recompute);
    for (const ContextExchange exchange : {ContextExchange::all_gather, ContextExchange::ring, ContextExchange::all_to_all})
      check_processes("1f1b", ranks / 2, {.context = 2}, {.context = 2, .exchange = exchange}, recompute);
  }
}

}  // namespace tensor_test
#endif
