// The bodies of stages whose ranks have whole experts: operations, bytes sent to experts and back,
// steps, what a rank keeps, and what is refused.
// Not: tensor-parallel ranks that split all experts (experts_test.cpp).
#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support/body_sums.hpp"
#include "support/mixtures.hpp"
#include "support/refusal.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/model/kernel.hpp"
#include "tawpipe/model/transformer_body.hpp"
#include "tawpipe/model/workload.hpp"

namespace expert_body_test {

using namespace tawpipe;
using doctest::Approx;
using Axis = BodyStep::Axis;
using Kind = BodyStep::Kind;
using support::flops;
using support::refusal;
using support::traffic;
using support::wide_mixture;

namespace {

constexpr std::int64_t sequence = 512;
constexpr std::int64_t sequences = 8;  // of a microbatch

Workload work(const Transformer& model, Recompute recompute) {
  return Workload{model, Batch{.sequence = sequence, .microbatch_size = sequences, .global_batch = 16}, recompute};
}
std::vector<SharedStage> shared(const Transformer& model, Recompute recompute, const Sharing& sharing, int stages = 2) {
  const Workload whole = work(model, recompute);
  const auto parts = whole.split(stages);
  return share_stages(model, whole.batch(), recompute, parts, sharing);
}

const std::vector<Sharing> layouts{
    {.expert = 2, .whole_experts = true},
    {.expert = 8, .whole_experts = true},
    {.tensor = 4, .whole_experts = true},
    {.context = 2, .whole_experts = true},
    {.tensor = 2, .context = 2, .expert = 2, .whole_experts = true},
};

struct Sent {
  int count = 0;
  std::int64_t bytes = 0;
  bool gradients = false;
  bool operator==(const Sent&) const = default;
};
/// To experts or back, with gradients or without.
Sent sent(const StageBody& body, bool gradients) {
  Sent sum{.gradients = gradients};
  for (const BodyStep& step : body) {
    CHECK((step.axis == Axis::all) == (step.kind == Kind::all_to_all));
    if (step.axis != Axis::all || step.gradients != gradients) continue;
    ++sum.count;
    sum.bytes += step.bytes.value();
  }
  return sum;
}

}  // namespace

TEST_CASE("all ranks' steps together do what their stage does") {
  for (const int shared_width : {0, 64}) {
    for (const RecomputeParts& parts : {RecomputeParts{}, RecomputeParts{.mlp = true}, RecomputeParts{.activation = true},
                                        RecomputeParts{.core_attn = true, .mlp = true, .layernorm = true}}) {
      Transformer model = wide_mixture(shared_width);
      model.recompute_parts = parts;
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        for (const bool early : {false, true}) {
          model.early_stop = early;
          const auto whole = work(model, recompute).split(2);
          for (const Sharing& sharing : layouts) {
            const auto stages = shared(model, recompute, sharing);
            for (std::size_t s = 0; s < stages.size(); ++s) {
              CAPTURE(sharing.tensor);
              CAPTURE(sharing.expert);
              CAPTURE(name(parts));
              const SharedStage& stage = stages[s];
              const double ranks = sharing.ranks();
              const Flops both = whole[s].recompute + whole[s].backward_input;
              CHECK(ranks * flops(stage.forward) == Approx(whole[s].forward.value()));
              CHECK(ranks * flops(stage.backward) == Approx((both + whole[s].backward_weight).value()));
              CHECK(ranks * flops(stage.backward_input) == Approx(both.value()));
              CHECK(ranks * flops(stage.backward_weight) == Approx(whole[s].backward_weight.value()));
              CHECK(traffic(stage.forward) == Approx(static_cast<double>(stage.work.forward_traffic.value())).epsilon(1e-3));
              CHECK(traffic(stage.backward) == Approx(static_cast<double>(stage.work.backward_traffic.value())).epsilon(1e-3));
              CHECK(traffic(stage.backward_input) ==
                    Approx(static_cast<double>(stage.work.backward_traffic.value())).epsilon(1e-3));
              CHECK(traffic(stage.backward_weight) == 0);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("ranks divide the operations of all kernels") {
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    const auto whole = work(wide_mixture(), recompute).split(2);
    for (const Sharing& sharing : layouts) {
      const auto stages = shared(wide_mixture(), recompute, sharing);
      for (std::size_t s = 0; s < stages.size(); ++s) {
        double all = 0;
        double own = 0;
        for (const Kernel& kernel : whole[s].kernels) all += kernel.count * kernel.flops();
        for (const Kernel& kernel : stages[s].work.kernels) own += kernel.count * kernel.flops();
        CHECK(own * sharing.ranks() == Approx(all));
      }
    }
  }
}

TEST_CASE("each rank sends the copies of its own tokens to experts and gets them back, and their gradients") {
  // 2 copies of [4096 tokens, 256] in 16 bits, of all ranks
  constexpr std::int64_t copies = 2 * sequence * sequences * 256 * 2;
  for (const Sharing& sharing : layouts) {
    const std::int64_t own = copies / sharing.ranks();
    const auto check = [&](Recompute recompute, const RecomputeParts& parts, bool early, int again) {
      Transformer model = wide_mixture();
      model.recompute_parts = parts;
      model.early_stop = early;
      const SharedStage stage = shared(model, recompute, sharing)[1];  // two layers
      CHECK(sent(stage.forward, false) == Sent{4, 4 * own, false});
      CHECK(sent(stage.forward, true) == Sent{0, 0, true});
      for (const StageBody* body : {&stage.backward, &stage.backward_input}) {
        CHECK(sent(*body, true) == Sent{4, 4 * own, true});
        CHECK(sent(*body, false) == Sent{again, again * own, false});
      }
      CHECK(sent(stage.backward_weight, true) == Sent{0, 0, true});
      CHECK(sent(stage.backward_weight, false) == Sent{});
    };
    check(Recompute::none, {}, false, 0);
    check(Recompute::selective, {}, false, 0);
    check(Recompute::selective, {.activation = true}, false, 0);
    check(Recompute::selective, {.mlp = true}, false, 4);
    check(Recompute::selective, {.core_attn = true, .mlp = true}, true, 4);
    check(Recompute::full, {}, false, 4);
    check(Recompute::full, {}, true, 2);  // what experts give is not sent back
  }
}

TEST_CASE("by DeepEP a token is sent once to each node that has one of its experts, and passed on to each rank there") {
  // Of a rank's 1,024 tokens [256] in 16 bits; 8 experts, of which a token passes 2.
  constexpr double tokens = 1024.0 * 256 * 2;
  const double to_rank = 1 - 6.0 / 8 * 5 / 7;  // which has 2 experts
  const double to_node = 1 - 4.0 / 8 * 3 / 7;  // of two ranks
  for (const Sharing& ranks : {Sharing{.expert = 4}, Sharing{.tensor = 2, .context = 2}, Sharing{.tensor = 2, .expert = 2}}) {
    Sharing sharing = ranks;
    sharing.whole_experts = true;
    const SharedStage before = shared(wide_mixture(), Recompute::none, sharing)[1];
    sharing.dispatch = ExpertDispatch::deepep;
    const auto steps = [&](int neighbours) {
      sharing.neighbours = neighbours;
      const SharedStage stage = shared(wide_mixture(), Recompute::none, sharing)[1];
      CHECK(stage.forward.size() == before.forward.size());
      CHECK(flops(stage.backward) == flops(before.backward));
      std::vector<BodyStep> found;
      for (const BodyStep& step : stage.forward) {
        if (step.axis == Axis::all) found.push_back(step);
      }
      REQUIRE(found.size() == 4);
      return found;
    };
    for (const BodyStep& step : steps(2)) {
      CHECK(step.inner == 2);
      CHECK(static_cast<double>(step.relayed.value()) == Approx(tokens * to_node));
      // To both ranks of a node, its own tokens and those of the rank that sent it theirs.
      CHECK(static_cast<double>(step.bytes.value()) == Approx(tokens * to_node + 2 * 2 * tokens * to_rank));
    }
    for (const BodyStep& step : steps(4)) {  // in one node
      CHECK(step.inner == 0);
      CHECK(step.relayed == Bytes{});
      CHECK(static_cast<double>(step.bytes.value()) == Approx(4 * tokens * to_rank));
    }
    for (const BodyStep& step : steps(1)) {  // each in a node of its own
      CHECK(step.inner == 1);
      CHECK(static_cast<double>(step.relayed.value()) == Approx(3 * tokens * to_rank));
    }
  }
}

TEST_CASE("first layers without experts send no tokens, however others send theirs") {
  Transformer model = wide_mixture();
  model.dense_layers = 2;
  model.dense_width = 256;
  for (const ExpertDispatch dispatch : {ExpertDispatch::all_to_all, ExpertDispatch::deepep}) {
    const auto stages =
        shared(model, Recompute::none, {.expert = 4, .whole_experts = true, .dispatch = dispatch, .neighbours = 2});
    CHECK(sent(stages[0].forward, false) == Sent{});
    CHECK(sent(stages[1].forward, false).count == 4);
  }
}

TEST_CASE("the part of tokens that is sent to some experts is that of all choices of groups and of experts in them") {
  Transformer model = wide_mixture();
  for (const auto& [groups, of_token, chosen] :
       std::vector<std::array<int, 3>>{{1, 1, 2}, {4, 2, 2}, {4, 3, 3}, {2, 1, 4}, {8, 4, 1}}) {
    model.expert_groups = groups;
    model.groups_per_token = of_token;
    model.experts_per_token = chosen;
    model.check();
    for (const int some : {1, 2, 4, 8}) {
      int reached = 0;
      int all = 0;
      for (unsigned of_groups = 0; of_groups < 1U << groups; ++of_groups) {
        if (std::popcount(of_groups) != of_token) continue;
        for (unsigned experts = 0; experts < 1U << 8; ++experts) {
          bool among = std::popcount(experts) == chosen;
          for (int e = 0; e < 8; ++e) among = among && ((experts >> e & 1) == 0 || (of_groups >> (e / (8 / groups)) & 1) != 0);
          all += among ? 1 : 0;
          reached += among && (experts & ((1U << some) - 1)) != 0 ? 1 : 0;
        }
      }
      CHECK(detail::part_reaching(model, some) == Approx(static_cast<double>(reached) / all));
    }
  }
}

TEST_CASE("computations between what is sent are one step each") {
  const Sharing sharing{.expert = 4, .whole_experts = true};
  for (const int shared_width : {0, 64}) {
    const auto of = [&](Recompute recompute) { return shared(wide_mixture(shared_width), recompute, sharing)[0]; };
    const SharedStage none = of(Recompute::none);
    // Of each of two layers: to experts, their products, and back; between layers one step.
    CHECK(none.forward.size() == 1 + 2 * 4);
    CHECK(none.backward.size() == 1 + 2 * 4);
    CHECK(none.backward_input.size() == 1 + 2 * 4);
    CHECK(none.backward_weight.size() == 1);
    CHECK(of(Recompute::full).backward.size() == 1 + 2 * 8);
    for (const StageBody* body : {&none.forward, &none.backward}) {
      for (std::size_t s = 0; s < body->size(); ++s) {
        const BodyStep& step = (*body)[s];
        CHECK(step.is_compute() == (s % 2 == 0));
        if (s > 0) CHECK(step.after[0] == static_cast<std::int32_t>(s) - 1);
      }
    }
    // What experts compute: 2 layers of 3 matrices [256, 128] for 2 copies of a rank's 1,024 tokens.
    const double products = 2.0 * 3 * 256 * 128 * 2 * sequence * sequences / 4;
    CHECK(none.forward[2].flops.value() == Approx(products));
    CHECK(none.forward[6].flops.value() == Approx(products));
    CHECK(none.backward[2].flops.value() == Approx(2 * products));
    CHECK(none.backward_input[2].flops.value() == Approx(products));
  }
}

TEST_CASE("tensor-parallel ranks gather and sum tokens around the shared expert only") {
  const auto count = [](const StageBody& body, Kind kind) {
    int found = 0;
    for (const BodyStep& step : body) found += step.kind == kind && step.axis == Axis::tensor ? 1 : 0;
    return found;
  };
  const Sharing sharing{.tensor = 2, .expert = 2, .whole_experts = true};
  const SharedStage with = shared(wide_mixture(), Recompute::none, sharing, 4)[1];  // one layer
  const SharedStage without = shared(wide_mixture(0), Recompute::none, sharing, 4)[1];
  CHECK(count(without.forward, Kind::all_gather) == 1);  // attention's
  CHECK(count(with.forward, Kind::all_gather) == 2);
  CHECK(count(without.forward, Kind::reduce_scatter) == 1);
  CHECK(count(with.forward, Kind::reduce_scatter) == 2);
  CHECK(count(without.backward, Kind::all_gather) == 2);  // its output's gradient, and its input again
  CHECK(count(with.backward, Kind::all_gather) == 3);     // experts keep their copies
}

TEST_CASE("a rank has a part of the matrices and whole experts, and a part of each activation") {
  const Transformer model = wide_mixture();
  const std::int64_t experts = 3 * 256 * 8 * 128;
  const std::int64_t dense = model.layer_parameters() - experts;
  const StageWork whole = work(model, Recompute::none).split(4)[1];  // one layer
  for (const Sharing& sharing : layouts) {
    const StageWork own = shared(model, Recompute::none, sharing, 4)[1].work;
    CHECK(own.parameters == dense / sharing.tensor + experts / sharing.ranks());
    CHECK(own.boundary == Bytes{whole.boundary.value() / sharing.ranks()});
    if (sharing.tensor == 1) CHECK(own.saved == Bytes{whole.saved.value() / sharing.ranks()});
  }
  // Where ranks split all experts, each has all copies of tokens.
  const Sharing split{.tensor = 4};
  const Sharing apart{.tensor = 4, .whole_experts = true};
  const std::int64_t copies = 2 * sequence * sequences * 256 * 2;
  CHECK(shared(model, Recompute::none, split, 4)[1].work.saved - shared(model, Recompute::none, apart, 4)[1].work.saved ==
        Bytes{copies * 3 / 4});
}

TEST_CASE("without an axis of more than one rank there are no steps") {
  for (const SharedStage& stage : shared(wide_mixture(), Recompute::none, {.whole_experts = true})) {
    CHECK(stage.forward.empty());
    CHECK(stage.backward.empty());
  }
}

TEST_CASE("experts that ranks cannot have whole are refused") {
  const auto with = [](const Sharing& sharing) { return refusal([&] { shared(wide_mixture(), Recompute::none, sharing); }); };
  CHECK(with({.expert = 3, .whole_experts = true}) ==
        "expert parallelism among 3 ranks: they do not divide the 8 experts equally; choose a divisor");
  CHECK(with({.tensor = 4, .expert = 4, .whole_experts = true}) ==
        "expert parallelism among 16 ranks: they do not divide the 8 experts equally; choose a divisor");
  CHECK(with({.tensor = 2, .whole_experts = true, .sequence_parallel = false}) ==
        "expert parallelism with tensor parallelism needs sequence parallelism, so that each rank sends its own tokens");
  CHECK(with({.context = 2, .expert = 2, .whole_experts = true, .sequence_parallel = false}).empty());
  Transformer none = wide_mixture(0);
  none.experts = none.experts_per_token = 0;
  CHECK(refusal([&] { shared(none, Recompute::none, {.expert = 2, .whole_experts = true}); }) ==
        "expert parallelism: model 'mixture' has no experts");
}

}  // namespace expert_body_test
