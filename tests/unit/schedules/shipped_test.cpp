// Tests of schedules/shipped.hpp: every schedule's options as text, and what is said about wrong
// ones.
// Not: the schedules (unit/schedules/).
#include "tawpipe/schedules/shipped.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <string>

#include "schedules.hpp"
#include "support/clusters.hpp"

using tawpipe::build_schedule;
using tawpipe::DeviceGroups;
using tawpipe::Schedule;
using tawpipe::ScheduleOptions;
using tawpipe::shipped;
using tawpipe::Workload;

namespace {

Schedule build(const char* name, ScheduleOptions options, int ranks = 4) {
  return build_schedule(name, {Workload::abstract(ranks, 8), DeviceGroups::even(ranks, 1), std::move(options)});
}

int max_held(const Schedule& schedule) {
  int held = 0;
  int most = 0;
  for (const auto task : schedule.program(tawpipe::Rank{0}, 0)) {
    if (schedule.task(task).op == tawpipe::Op::forward) most = std::max(most, ++held);
    if (schedule.task(task).op == tawpipe::Op::backward_weight) --held;
  }
  return most;
}

}  // namespace

TEST_CASE("chunks cut the model into so many stages a rank") {
  for (const char* name : {"interleaved-1f1b", "looped-bfs", "interleaved-zb"}) {
    CHECK(build(name, {}).stages().size() == 8);
    CHECK(build(name, {{"chunks", "3"}}).stages().size() == 12);
    CHECK(build(name, {{"chunks", "3"}}).options().front().second == "3");
    CHECK_THROWS_WITH_AS(
        build(name, {{"chunks", "100000000"}}),
        "chunks=100000000 on 4 ranks with 8 microbatches are more than 2^26 computations; choose fewer chunks or "
        "a larger microbatch",
        tawpipe::InputError);
  }
}

TEST_CASE("memory-limit counts activations, activations a rank, or bytes") {
  // an abstract activation is 1 MB; without hops p activations are enough for ZB-H1
  CHECK(max_held(build("zb-auto", {{"memory-limit", "1p"}})) == 4);
  CHECK(max_held(build("zb-auto", {{"memory-limit", "3"}})) == 3);
  CHECK(max_held(build("zb-auto", {{"memory-limit", "1"}})) == 1);
  CHECK(max_held(build("zb-auto", {{"memory-limit", "3500KB"}})) == 3);
  CHECK(max_held(build("zb-auto", {})) <= 8);
  CHECK_THROWS_WITH_AS(build("zb-auto", {{"memory-limit", "1KB"}}),
                       "the memory limit of a zero-bubble pipeline must hold at least one microbatch's activations",
                       tawpipe::InputError);
  for (const char* wrong : {"0", "p", "2q", "-1", "1.5p", "99999999999"}) {
    CHECK_THROWS_WITH_AS(build("zb-auto", {{"memory-limit", wrong}}),
                         (std::string{"option memory-limit="} + wrong +
                          " of zb-auto: the value must be a number of activations such as 12 or 2p (p ranks), 1 or more, or a "
                          "size such as 40GiB")
                             .c_str(),
                         tawpipe::InputError);
  }
}

TEST_CASE("times are four whole numbers, and only their ratios count") {
  const auto tasks = [](const char* times) {
    const Schedule schedule = build("zb-auto", {{"times", times}});
    std::string text;
    for (const auto& task : schedule.tasks()) text += std::to_string(static_cast<int>(task.op)) + ' ';
    return text;
  };
  CHECK(tasks("3:3:2:1") == tasks("3000:3000:2000:1000"));
  for (const char* wrong : {"1:1:1", "0:1:1:0", "1:1:1:1:1", "1,1,1,1", "1:1:1:x", "a", "1:1:1:-1"}) {
    CHECK_THROWS_AS(build("zb-auto", {{"times", wrong}}), tawpipe::InputError);
  }
}

TEST_CASE("kept is a fraction") {
  build("zb-auto", {{"kept", "0"}});
  build("zb-auto", {{"kept", "0.366"}});
  for (const char* wrong : {"1.1", "-0.1", "nan", "0.5x"}) {
    CHECK_THROWS_WITH_AS(
        build("zb-auto", {{"kept", wrong}}),
        (std::string{"option kept="} + wrong + " of zb-auto: the value must be a fraction from 0 to 1, such as 0.4").c_str(),
        tawpipe::InputError);
  }
}

TEST_CASE("a schedule without options refuses any") {
  for (const char* name : {"zb-h1", "zb-h2", "dualpipe", "dualpipe-v", "chimera"}) {
    build(name, {});
    CHECK_THROWS_AS(build(name, {{"chunks", "2"}}), tawpipe::InputError);
  }
}

TEST_CASE("what a schedule records can be given back") {
  const Workload work = support::transformer(8, 8);
  const DeviceGroups nodes{{2, 2}};
  for (const auto& info : tawpipe::shipped().schedules()) {
    CAPTURE(info.name);
    const Schedule schedule = build_schedule(info.name, {work, nodes, {}});
    ScheduleOptions recorded;
    for (const auto& [key, value] : schedule.options()) recorded[key] = value;
    CHECK(recorded.size() == info.options.size());
    CHECK(build_schedule(info.name, {work, nodes, recorded}).options() == schedule.options());
  }
}

TEST_CASE("the defaults that are listed are those that are recorded") {
  const Workload work = support::transformer(8, 8);
  for (const auto& info : tawpipe::shipped().schedules()) {
    CAPTURE(info.name);
    const Schedule schedule = build_schedule(info.name, {work, DeviceGroups{{2, 2}}, {}});
    REQUIRE(schedule.options().size() == info.options.size());
    for (std::size_t i = 0; i < info.options.size(); ++i) {
      CHECK(schedule.options()[i].first == info.options[i].name);
      const std::string& standard = info.options[i].standard;  // in words where it follows from something else
      const bool number = standard == "nodes" || standard == "devices";
      if (standard.find(' ') == std::string::npos && !number) CHECK(schedule.options()[i].second == standard);
    }
  }
}

TEST_CASE("sizes that would take minutes and gigabytes are refused before the work") {
  for (const char* key : {"buffers", "shards"}) {
    CHECK_THROWS_AS(build("tawpipe", {{key, "1000000000"}}), tawpipe::InputError);
  }
  CHECK_THROWS_WITH_AS(build("fsdp", {{"prefetch", "1000000000"}}),
                       "option prefetch=1000000000 of fsdp: the value must be a whole number from 0 to 4096: no model has more "
                       "layers",
                       tawpipe::InputError);
  CHECK_THROWS_WITH_AS(
      build_schedule("tawpipe", {Workload::abstract(4, 100000), DeviceGroups{{4}}, {{"shards", "4096"}}}),
      "shards=4096 on 4 ranks with 100000 microbatches are more than 2^26 computations; choose fewer shards or a larger "
      "microbatch",
      tawpipe::InputError);
  CHECK_THROWS_AS(build_schedule("weipipe", {Workload::abstract(64, 1000000), DeviceGroups{{64}}, {}}), tawpipe::InputError);
}

TEST_CASE("an option that leaves the choice to the devices takes what the request knows of them") {
  const auto recorded = [](ScheduleOptions options, bool own_adapters) {
    const Schedule schedule = build_schedule("tawpipe", {.workload = Workload::abstract(4, 8),
                                                         .nodes = DeviceGroups{{2, 2}},
                                                         .options = std::move(options),
                                                         .speeds = {2, 2, 1, 1},
                                                         .own_adapters = own_adapters});
    ScheduleOptions texts;
    for (const auto& [key, value] : schedule.options()) texts[key] = value;
    return texts;
  };
  CHECK(recorded({{"speeds", "auto"}}, false).at("speeds") == "2+1");
  CHECK(recorded({}, false).at("speeds") == "equal");
  CHECK(recorded({{"stripe", "auto"}}, true).at("stripe") == "on");
  CHECK(recorded({{"stripe", "auto"}}, false).at("stripe") == "off");
  CHECK(recorded({{"stripe", "auto"}, {"node-cache", "1"}}, true).at("stripe") == "off");
  CHECK(recorded({{"groups", "flat"}}, false).at("groups") == "1");
  CHECK_THROWS_WITH_AS(recorded({{"groups", "9"}}, false), "9 groups cannot be cut from 4 ranks; choose 1 to 4",
                       tawpipe::InputError);
}

TEST_CASE("the tasks of many microbatches are known from those of few, and too many are refused before they are made") {
  const auto tasks = [](const Schedule& one) { return static_cast<double>(one.tasks().size()); };
  const auto request = [](std::int64_t microbatches) {
    return tawpipe::ScheduleRequest{Workload::abstract(4, microbatches), DeviceGroups::even(4, 1), {}};
  };
  for (const auto& info : shipped().schedules()) {
    if (info.name == "zb-auto") continue;  // it orders tasks for seconds
    CAPTURE(info.name);
    const std::optional<double> expected = shipped().expected(info.name, request(192), tasks);
    REQUIRE(expected.has_value());
    CHECK(*expected == doctest::Approx(tasks(build_schedule(info.name, request(192)))).epsilon(0.01));
    CHECK_FALSE(shipped().expected(info.name, request(100), tasks).has_value());
    if (*expected / 192 > 8.5) {  // more than are seen without
      CHECK_THROWS_WITH_AS(build_schedule(info.name, request(8'000'000)), doctest::Contains("more than 2^26 tasks"),
                           tawpipe::InputError);
    }
  }
}
