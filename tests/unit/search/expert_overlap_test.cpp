// Tests of all-to-alls of experts under another microbatch's computation: which schedules run pairs,
// what the steps of a pair wait for, times, memory and bounds.
// Not: the steps of one microbatch's body (model/expert_body_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "schedules.hpp"
#include "support/clusters.hpp"
#include "support/plan_requests.hpp"
#include "support/refusal.hpp"
#include "tawpipe/cost/held_sms.hpp"
#include "tawpipe/model/transformer_body.hpp"
#include "tawpipe/report/schedule_json.hpp"
#include "tawpipe/schedule/expand.hpp"
#include "tawpipe/schedules/interleaved_one_f_one_b.hpp"
#include "tawpipe/search/choose.hpp"
#include "tawpipe/search/predict.hpp"
#include "tawpipe/verify/validate.hpp"

namespace expert_overlap_test {

using namespace tawpipe;
using namespace tawpipe::literals;
using support::refusal;

namespace {

Transformer mixture() {
  Transformer model = support::small;
  model.name = "mixture";
  model.layers = 8;
  model.hidden = 512;
  model.intermediate = 512;
  model.experts = 8;
  model.experts_per_token = 4;
  return model;
}
/// Whole experts on 4 ranks, in 2 stages or one.
Problem problem(ExpertOverlap overlap, bool pipeline, std::int64_t batch = 64) {
  Problem one{.cluster = support::cluster(8, 2),
              .model = mixture(),
              .sequence = 1024,
              .global_batch = batch,
              .microbatch_sizes = {1},
              .schedules = {pipeline ? ScheduleChoice{"interleaved-1f1b", {{"chunks", "2"}}} : ScheduleChoice{"ddp"}},
              .recompute = Recompute::none,
              .mesh = {.data = pipeline ? 1 : 2, .expert = 4, .whole_experts = true}};
  one.expert_overlap = overlap;
  return one;
}
constexpr ExpertOverlap overlaps[] = {ExpertOverlap::on, ExpertOverlap::delayed};

}  // namespace

TEST_CASE("overlaps have names") {
  for (const ExpertOverlap one : {ExpertOverlap::off, ExpertOverlap::on, ExpertOverlap::delayed})
    CHECK(parse_expert_overlap(name(one)) == one);
  CHECK(refusal([] { parse_expert_overlap("delaid"); }).find("did you mean 'delayed'?") != std::string::npos);
}

TEST_CASE("a pipeline in pairs warms up with a forward more, and can run") {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    for (const int chunks : {1, 2, 3}) {
      for (const int microbatches : {1, ranks, 2 * ranks + 1, 4 * ranks}) {
        CAPTURE(ranks);
        CAPTURE(chunks);
        CAPTURE(microbatches);
        const auto plain = schedules::interleaved_one_f_one_b_program(ranks, microbatches, chunks);
        const auto pairs = schedules::interleaved_one_f_one_b_program(ranks, microbatches, chunks, true);
        CHECK_NOTHROW(schedules::pipeline("pairs", Workload::abstract(ranks, microbatches), pairs, {}));
        for (std::size_t r = 0; r < pairs.actions.size(); ++r) {
          const auto& actions = pairs.actions[r];
          for (std::size_t i = 0; i < actions.size(); ++i) {
            if (!actions[i].joined) continue;
            CHECK(actions[i].op == Op::forward);
            CHECK(actions[i + 1].op == Op::backward);
            // Neither waits for the other.
            CHECK_FALSE((actions[i].stage == actions[i + 1].stage && actions[i].microbatch == actions[i + 1].microbatch));
          }
          CHECK(schedules::peak_saved(pairs)[r] <= schedules::peak_saved(plain)[r] + 1);
        }
      }
    }
  }
}

TEST_CASE("all-to-alls under another microbatch take less time, more memory, and no less than the bounds") {
  for (const bool pipeline : {false, true}) {
    CAPTURE(pipeline);
    const Prediction off = predict(problem(ExpertOverlap::off, pipeline), shipped());
    std::optional<Duration> before;
    for (const ExpertOverlap overlap : overlaps) {
      CAPTURE(name(overlap));
      Problem one = problem(overlap, pipeline);
      const Prediction folded = predict(one, shipped());
      CHECK(folded.summary.makespan < off.summary.makespan);
      CHECK(folded.summary.fullest() > off.summary.fullest());
      const MinNeed least = Predictor{one, shipped()}.least(one.schedules[0]);
      CHECK(least.time <= folded.summary.makespan);
      CHECK(least.memory <= folded.summary.fullest());
      one.fold = Fold::off;
      const Prediction full = predict(one, shipped());
      CHECK(full.summary.makespan == folded.summary.makespan);
      CHECK(full.summary.fullest() == folded.summary.fullest());
      const Diagnostics found = validate(full.schedule, one.cluster);
      CHECK_MESSAGE(found.ok(), found.text());
      // A file says it too.
      const Schedule again = parse_schedule_json(schedule_json(full.schedule));
      CHECK(again.parts().bodies[0].alternates);
      CHECK(expand_bodies(again).schedule.tasks().size() == expand_bodies(full.schedule).schedule.tasks().size());
      if (before) CHECK(folded.summary.makespan <= *before);
      before = folded.summary.makespan;
    }
  }
}

TEST_CASE("in a pair, one computes while the other's all-to-all runs") {
  Problem one = problem(ExpertOverlap::on, false, 16);
  one.mesh = {.expert = 8, .whole_experts = true};
  one.fold = Fold::off;
  const Prediction run = predict(one, shipped());
  const Schedule steps = expand_bodies(run.schedule).schedule;
  // Of the second microbatch, each layer's forward has an all-to-all between those of a layer of the
  // first's backward.
  std::vector<std::pair<bool, int>> sent;  // gradients, microbatch
  for (const Task& task : steps.tasks()) {
    if (task.op == Op::all_to_all) sent.emplace_back(task.payload == Payload::activation_gradients, task.microbatch);
  }
  REQUIRE(sent.size() == 2 * 2 * 2 * 8);  // microbatches, passes, to and from, layers
  for (std::size_t i = 16; i < 48; ++i) {
    CHECK(sent[i].first == (i % 2 == 0));
    CHECK(sent[i].second == (i % 2 == 0 ? 0 : 1));
  }
  // Backwards compute before forwards, as Megatron-LM launches them.
  std::vector<bool> computed;
  const auto program = steps.program(Rank{0}, 0);
  for (const TaskId id : program) {
    const Task& task = steps.task(id);
    if (is_compute(task.op) && task.op != Op::update) computed.push_back(task.op == Op::backward);
  }
  int turns = 0;
  for (std::size_t i = 1; i < computed.size(); ++i) turns += computed[i] != computed[i - 1] ? 1 : 0;
  CHECK(turns >= 2 * 2 * 8);
}

TEST_CASE("delayed gradients of weights wait for no all-to-all, and hold none up") {
  const Transformer model = mixture();
  const Workload work{model, Batch{.sequence = 1024, .microbatch_size = 4, .global_batch = 16}, Recompute::none};
  const auto stages = work.split(1);
  Sharing sharing{.expert = 4, .whole_experts = true, .expert_overlap = ExpertOverlap::on};
  const StageBody plain = share_stages(model, work.batch(), Recompute::none, stages, sharing)[0].backward;
  sharing.expert_overlap = ExpertOverlap::delayed;
  const SharedStage shared = share_stages(model, work.batch(), Recompute::none, stages, sharing)[0];
  const StageBody& delayed = shared.backward;
  CHECK(shared.alternates);
  const auto flops = [](const StageBody& body) {
    double sum = 0;
    for (const BodyStep& step : body) sum += step.flops.value();
    return sum;
  };
  CHECK(flops(delayed) == doctest::Approx(flops(plain)));
  CHECK(delayed.front().is_compute());
  CHECK(delayed.back().is_compute());
  int beside = 0;
  for (std::size_t s = 1; s + 1 < delayed.size(); ++s) {
    if (delayed[s].is_compute()) continue;
    const BodyStep& next = delayed[s + 1];  // begins before the all-to-all ends
    if (next.is_compute() && next.after[0] < static_cast<std::int32_t>(s)) ++beside;
  }
  CHECK(beside == 2 * 8 - 1);  // all but the first, before which no layer had gradients
  std::vector<std::int32_t> layers;
  for (const BodyStep& step : delayed) {
    if (step.layer >= 0 && step.layer < 8) layers.push_back(step.layer);
  }
  CHECK(layers == std::vector<std::int32_t>{7, 6, 5, 4, 3, 2, 1, 0});
}

TEST_CASE("schedules without pairs are refused, and where there are no all-to-alls nothing changes") {
  Problem one = problem(ExpertOverlap::on, true);
  one.schedules = {{"1f1b"}};
  CHECK(refusal([&] { predict(one, shipped()); }).find("1f1b runs no forward together with another microbatch's backward") == 0);
  one.schedules = {{"dualpipe-v"}};
  const Duration paired = predict(one, shipped()).summary.makespan;
  one.expert_overlap = ExpertOverlap::off;
  CHECK(paired < predict(one, shipped()).summary.makespan);
  Problem dense = problem(ExpertOverlap::on, true);
  dense.mesh = {.data = 4};
  dense.schedules = {{"1f1b"}};
  const Duration with = predict(dense, shipped()).summary.makespan;
  dense.expert_overlap = ExpertOverlap::off;
  CHECK(with == predict(dense, shipped()).summary.makespan);
}

TEST_CASE("all-to-alls of experts hold SMs of their own number") {
  Problem one = problem(ExpertOverlap::on, false);
  KernelCost cost;
  one.cost = cost;
  const Duration none = predict(one, shipped()).summary.makespan;
  cost.held_sms = {.expert_ctas = 64, .waiting = false, .sms = 132};
  CHECK_FALSE(cost.held_sms.is_off());
  one.cost = cost;
  CHECK(predict(one, shipped()).summary.makespan > none);
}

}  // namespace expert_overlap_test
