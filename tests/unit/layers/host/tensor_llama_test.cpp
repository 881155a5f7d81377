// The steps of a rank that shares stages: those that the simulator times are computed, and a body in which
// one collective or wait is missing or different is refused.
// Not: the numbers (numerics/tensor_test.cpp, numerics/context_test.cpp).
#include "tawpipe/layers/host/tensor_llama.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/layers/tensor_code.hpp"
#include "tawpipe/model/transformer_body.hpp"
#include "tawpipe/model/transformer_work.hpp"
#include "tawpipe/model/workload.hpp"

namespace tensor_llama_test {

using namespace tawpipe;
using layers::host::TensorLlama;

const Transformer model{
    .name = "small", .layers = 3, .hidden = 32, .heads = 4, .kv_heads = 4, .intermediate = 48, .vocab = 40, .dtype = Dtype::f64};
const Batch batch{.sequence = 16, .microbatch_size = 2, .global_batch = 4};

struct Case {
  Transformer decoder;
  Recompute recompute;
  Sharing sharing;
  StageWork stage;
  SharedStage shared;
};

/// @param stops_early  in full recomputation
std::vector<Case> cases(Recompute recompute = Recompute::none, bool stops_early = false) {
  std::vector<Case> all;
  Transformer decoder = model;
  decoder.early_stop = stops_early;
  const std::vector<StageWork> stages = Workload{decoder, batch, recompute}.split(3);
  std::vector<Sharing> sharings;
  for (const bool by_tokens : {false, true})
    sharings.push_back({.tensor = 2, .sequence_parallel = by_tokens, .sends_activations = true});
  for (const ContextExchange exchange : {ContextExchange::all_gather, ContextExchange::ring, ContextExchange::all_to_all}) {
    sharings.push_back({.context = 4, .exchange = exchange, .sends_activations = true});
    for (const bool by_tokens : {false, true}) {
      sharings.push_back(
          {.tensor = 2, .context = 2, .sequence_parallel = by_tokens, .exchange = exchange, .sends_activations = true});
    }
  }
  for (const Sharing& sharing : sharings) {
    const auto shared = share_stages(decoder, batch, recompute, stages, sharing);
    for (std::size_t s = 0; s < stages.size(); ++s) all.push_back({decoder, recompute, sharing, shared[s].work, shared[s]});
  }
  return all;
}
/// Of a mixture, with and without a shared expert, of which ranks have whole experts or parts of all.
std::vector<Case> expert_cases(Recompute recompute = Recompute::none) {
  std::vector<Case> all;
  for (const int shared_width : {0, 24}) {
    Transformer mixture = model;
    mixture.experts = 4;
    mixture.experts_per_token = 2;
    mixture.shared_width = shared_width;
    const std::vector<StageWork> stages = Workload{mixture, batch, recompute}.split(3);
    for (Sharing sharing : {Sharing{.expert = 2, .whole_experts = true}, Sharing{.context = 2},
                            Sharing{.context = 2, .whole_experts = true}, Sharing{.tensor = 2},
                            Sharing{.tensor = 2, .whole_experts = true}, Sharing{.tensor = 2, .expert = 2, .whole_experts = true},
                            Sharing{.tensor = 2, .context = 2, .exchange = ContextExchange::ring}}) {
      sharing.sends_activations = true;
      const auto shared = share_stages(mixture, batch, recompute, stages, sharing);
      for (std::size_t s = 0; s < stages.size(); ++s) all.push_back({mixture, recompute, sharing, shared[s].work, shared[s]});
    }
  }
  return all;
}

/// Calls `visit(passes, body, plan)` for the passes of a case.
template <class Visit>
void for_each_pass(const Case& one, Visit&& visit) {
  const TensorLlama<double> llama{one.decoder, batch, one.recompute, {}, one.sharing};
  const auto plan = [&](const Passes& passes) {
    const SharedPart part{one.sharing.tensor - 1, one.sharing.context - 1, one.sharing.expert - 1};
    return [&llama, &one, passes, part](const StageBody& body) { return llama.plan(passes, one.stage, body, part); };
  };
  visit(one.shared.forward, plan({.forward = true}));
  visit(one.shared.backward, plan({.backward_input = true, .backward_weight = true}));
  visit(one.shared.backward_input, plan({.backward_input = true}));
  visit(one.shared.backward_weight, plan({.backward_weight = true}));
}

/// With each policy.
std::vector<Case> all_cases() {
  std::vector<Case> all = cases();
  for (const auto& [recompute, stops] :
       {std::pair{Recompute::selective, false}, std::pair{Recompute::full, false}, std::pair{Recompute::full, true}}) {
    for (Case& one : cases(recompute, stops)) all.push_back(std::move(one));
  }
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full})
    for (Case& one : expert_cases(recompute)) all.push_back(std::move(one));
  return all;
}

TEST_CASE("each collective of a body is one of the code's, and each step of some work computes") {
  for (const Case& one : all_cases()) {
    CAPTURE(std::string{name(one.recompute)});
    for_each_pass(one, [&](const StageBody& body, auto&& plan) {
      const StepPlan steps = plan(body);
      REQUIRE(steps.operations.size() == body.size());
      CHECK(steps.part.tensor == one.sharing.tensor - 1);
      CHECK(steps.part.context == one.sharing.context - 1);
      CHECK(steps.part.expert == one.sharing.expert - 1);
      for (std::size_t s = 0; s < body.size(); ++s) {
        CAPTURE(s);
        if (!body[s].is_compute()) CHECK(steps.operations[s].size() == 1);
        if (body[s].is_compute() && body[s].flops.value() > 0) CHECK(!steps.operations[s].empty());
      }
    });
  }
}

TEST_CASE("a body without one of its collectives, or with another, is refused") {
  std::size_t mutants = 0;
  for (const Case& one : all_cases()) {
    for_each_pass(one, [&](const StageBody& body, auto&& plan) {
      for (std::size_t s = 0; s < body.size(); ++s) {
        if (body[s].is_compute()) continue;
        CAPTURE(s);
        std::vector<StageBody> others(4, body);
        others[0][s] = BodyStep{.after = body[s].after};  // dropped: nothing is done there
        others[1][s].bytes = body[s].bytes * 2;
        others[2][s].kind = body[s].kind == BodyStep::Kind::all_gather ? BodyStep::Kind::all_reduce : BodyStep::Kind::all_gather;
        others[3][s].axis = body[s].axis == BodyStep::Axis::tensor ? BodyStep::Axis::context : BodyStep::Axis::tensor;
        for (const StageBody& other : others) {
          ++mutants;
          CHECK_THROWS_AS(plan(other), ScheduleError);
        }
        StageBody twice = body;
        twice.insert(twice.end() - 1, body[s]);
        ++mutants;
        CHECK_THROWS_AS(plan(twice), ScheduleError);
      }
    });
  }
  CHECK(mutants > 1000);
}

TEST_CASE("a body in which a computation and a collective do not wait for each other is refused") {
  std::size_t mutants = 0;
  std::size_t implied = 0;
  std::vector<Case> all = cases();
  for (Case& one : expert_cases()) all.push_back(std::move(one));
  for (const Case& one : all) {
    for_each_pass(one, [&](const StageBody& body, auto&& plan) {
      for (std::size_t s = 0; s < body.size(); ++s) {
        for (std::size_t k = 0; k < body[s].after.size(); ++k) {
          const std::int32_t earlier = body[s].after[k];
          if (earlier < 0 || body[static_cast<std::size_t>(earlier)].is_compute() == body[s].is_compute()) continue;
          // What is gathered again is an input that an earlier pass has left.
          CAPTURE(s);
          if (plan(body).operations[s].empty()) continue;  // it only ends the pass
          StageBody other = body;
          other[s].after[k] = -1;
          ++mutants;
          bool refused = false;
          try {
            // A later step may wait for it: then the operation moves there, and the plan differs.
            refused = plan(other).operations[s].size() != plan(body).operations[s].size();
          } catch (const ScheduleError&) {
            refused = true;
          }
          const bool gathers_kept = body[s].kind == BodyStep::Kind::all_gather;
          if (!refused && !gathers_kept) ++implied;
        }
      }
    });
  }
  CHECK(mutants > 60);
  // With sequence parallelism the loss's gradient waits for the inputs that are gathered for the output
  // matrix's, as that one does itself: in whole and split backwards of four ways to share, and of mixtures of eight.
  CHECK(implied == 24);
}

TEST_CASE("what a backward repeats is marked, and the whole forward of each layer but what no gradient needs") {
  for (const bool stops : {false, true}) {
    for (const Case& one : cases(Recompute::full, stops)) {
      std::vector<StepOperation> repeated;
      std::vector<StepOperation> forward;
      for_each_pass(one, [&](const StageBody& body, auto&& plan) {
        for (const auto& operations : plan(body).operations) {
          for (const StepOperation& operation : operations) {
            if (&body == &one.shared.forward) forward.push_back(operation);
            if (&body == &one.shared.backward && operation.again) repeated.push_back(operation);
            if (&body == &one.shared.backward_weight) CHECK(!operation.again);
          }
        }
      });
      // Without the operations of edges and messages, and of each layer its output, with the last product and its sum.
      const bool sums = one.sharing.tensor > 1;
      const auto of = [](layers::TensorCode code) { return static_cast<std::uint8_t>(code); };
      std::erase_if(forward, [&](const StepOperation& operation) {
        using enum layers::TensorCode;
        for (const auto code :
             {message, embedding_sum, look_up, take, pass_on, head_norm, head_gather, logits, loss_sum, loss, output})
          if (operation.code == of(code)) return true;
        return stops && (operation.code == of(ffn_output) || (sums && operation.code == of(ffn_sum)));
      });
      CHECK(repeated.size() == forward.size());
      for (const StepOperation& operation : forward) {
        CHECK(std::any_of(repeated.begin(), repeated.end(), [&](const StepOperation& other) {
          return other.code == operation.code && other.layer == operation.layer && other.block == operation.block;
        }));
      }
    }
  }
}

TEST_CASE("what is not computed is refused by name") {
  const Sharing two{.tensor = 2};
  Transformer parts = model;
  parts.recompute_parts.mlp = true;
  CHECK_THROWS_WITH_AS((TensorLlama<double>{parts, batch, Recompute::selective, {}, two}),
                       "tensor parallelism is executed with recomputation of all layers, and not of named parts; choose "
                       "--recompute none, selective or full",
                       InputError);
  CHECK_THROWS_WITH_AS(
      (TensorLlama<double>{model, batch, Recompute::none, {}, {.context = 2, .exchange = ContextExchange::two_level}}),
      "context parallelism is executed without an exchange in two levels; choose all-gather, ring or all-to-all", InputError);
  CHECK_THROWS_WITH_AS(
      (TensorLlama<double>{model, batch, Recompute::none, {}, {.tensor = 2, .context = 3}}),
      "context parallelism among 3 ranks cuts each sequence into 6 equal parts; 16 tokens are no multiple of that", InputError);
  CHECK_NOTHROW((TensorLlama<double>{model, batch, Recompute::full, {}, Sharing{}}));
  const Case experts = expert_cases().front();
  const auto refused = [&](Recompute recompute, const Sharing& sharing, const Batch& of, const char* why) {
    CHECK_THROWS_WITH_AS((TensorLlama<double>{experts.decoder, of, recompute, {}, sharing}), why, InputError);
  };
  refused(Recompute::none, {.tensor = 2, .sequence_parallel = false}, batch,
          "tensor parallelism is executed for mixtures of experts with sequence parallelism; choose --sequence-parallel on");
  Transformer early = experts.decoder;
  early.early_stop = true;
  CHECK_THROWS_WITH_AS((TensorLlama<double>{early, batch, Recompute::full, {}, experts.sharing}),
                       "expert parallelism is executed with experts' forwards repeated whole; early_stop must be false",
                       InputError);
  refused(Recompute::none, experts.sharing, {.sequence = 16, .microbatch_size = 3, .global_batch = 6},
          "expert parallelism among 2 ranks: a microbatch of 3 sequences cannot be shared equally; choose a multiple");
}

}  // namespace tensor_llama_test
