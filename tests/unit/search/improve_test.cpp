// Tests of search/improve.hpp: what is changed stays the same work.
// Not: how much faster schedules become (docs/bounds.md).
#include "tawpipe/search/improve.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "schedules.hpp"
#include "tawpipe/search/nearby_options.hpp"
#include "tawpipe/search/predict.hpp"
#include "tawpipe/topology/cluster_dimensions.hpp"
#include "tawpipe/verify/validate.hpp"

using namespace tawpipe;

namespace {

Problem small_problem(const char* schedule) {
  return {.cluster = cluster_from_dimensions("2x3"),
          .model =
              Transformer{
                  .name = "small", .layers = 12, .hidden = 1024, .heads = 8, .kv_heads = 8, .intermediate = 2816, .vocab = 9600},
          .sequence = 4096,
          .global_batch = 18,
          .microbatch_sizes = {1},
          .schedules = {{schedule}}};
}

Timeline times(const Problem& problem, const Schedule& schedule) {
  return std::visit([&](const auto& cost) { return simulate(schedule, problem.cluster, cost); }, problem.cost);
}

}  // namespace

TEST_CASE("a schedule in its own order is the schedule") {
  for (const char* name : {"tawpipe", "weipipe", "fsdp", "1f1b", "zb-v"}) {
    CAPTURE(name);
    const Problem problem = small_problem(name);
    const Schedule schedule = Predictor{problem, shipped()}.best().schedule;
    const Schedule again = detail::MovableSchedule{schedule}.build();
    CHECK(times(problem, again) == times(problem, schedule));
    CHECK(validate(again).ok());
  }
}

TEST_CASE("whatever changes place, a schedule stays valid") {
  std::mt19937 random{7};
  for (const char* name : {"tawpipe", "weipipe-zb2", "fsdp", "interleaved-1f1b", "v-half"}) {
    CAPTURE(name);
    const Problem problem = small_problem(name);
    detail::MovableSchedule moving{Predictor{problem, shipped()}.best().schedule};
    int moved = 0;
    for (int i = 0; i < 200; ++i) {
      const auto a = static_cast<std::uint32_t>(random() % moving.size());
      const auto b = static_cast<std::uint32_t>((a + 1 + random() % 40) % moving.size());
      moved += (random() % 4 == 0 ? moving.wait(a, b) : moving.hoist(b, a)) ? 1 : 0;
    }
    CHECK(moved > 0);
    CHECK(validate(moving.build()).text() == "no findings\n");
  }
}

TEST_CASE("what is found is faster, valid and the same each time") {
  const Problem problem = small_problem("tawpipe");
  const Schedule start = Predictor{problem, shipped()}.best().schedule;
  const auto search = [&] {
    return improve(
        start, {.places = {0, 0, 0, 1, 1, 1}, .budget = 300'000}, [&](const Schedule& one) { return times(problem, one); },
        [](const Schedule& one, const Timeline&) { return validate(one).ok(); }, [](const ImproveProgress&) { return true; });
  };
  const Improvement found = search();
  CHECK(found.before == times(problem, start).makespan());
  CHECK(found.timeline.makespan() <= found.before);
  CHECK(found.timeline == times(problem, found.schedule));
  CHECK(found.tried > 0);
  for (std::size_t i = 1; i < found.steps.size(); ++i) CHECK(found.steps[i].makespan <= found.steps[i - 1].makespan);
  CHECK(search().timeline == found.timeline);
}

TEST_CASE("ending a search gives what was found so far") {
  const Problem problem = small_problem("tawpipe");
  const Schedule start = Predictor{problem, shipped()}.best().schedule;
  int asked = 0;
  const Improvement found = improve(
      start, {}, [&](const Schedule& one) { return times(problem, one); }, [](const Schedule&, const Timeline&) { return true; },
      [&](const ImproveProgress&) { return ++asked < 5; });
  CHECK(!found.finished);
  CHECK(found.tried <= 5);
}

TEST_CASE("nearby options change one thing") {
  const Problem problem = small_problem("tawpipe");
  const Schedule built = Predictor{problem, shipped()}.best().schedule;
  const std::vector<ScheduleChoice> near = nearby_choices({"tawpipe"}, built, shipped());
  CHECK(near.size() > 5);
  for (const ScheduleChoice& one : near) CHECK(one.options.size() == 1);
  CHECK(std::any_of(near.begin(), near.end(), [](const ScheduleChoice& one) {
    return one.options.contains("buffers") && one.options.at("buffers") == "3";
  }));
}
