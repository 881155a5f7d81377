// Tests of analysis/calibrate.hpp: times that went into a timeline come out of it again.
// Not: what timelines of a real machine look like.
#include "tawpipe/analysis/calibrate.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "schedules.hpp"
#include "support/clusters.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"
#include "tawpipe/simulate/simulate.hpp"

using namespace tawpipe::literals;
using doctest::Approx;
using tawpipe::calibrate;
using tawpipe::Calibration;
using tawpipe::Cluster;
using tawpipe::MeasuredCost;
using tawpipe::MeasuredRun;
using tawpipe::Schedule;
using tawpipe::TaskId;
using tawpipe::Timeline;

namespace {

/// Times that none of the defaults has.
MeasuredCost truth() {
  MeasuredCost cost;
  cost.forward = {.layer = 1.1e-3, .embedding = 2.3e-4, .head = 5.7e-4};
  cost.backward = {.layer = 2.9e-3, .embedding = 3.1e-4, .head = 1.3e-3};
  cost.backward_input = {.layer = 1.7e-3, .embedding = 0, .head = 7e-4};
  cost.backward_weight = {.layer = 1.3e-3, .embedding = 3.1e-4, .head = 6e-4};
  cost.update = {.once = 1.9e-5, .byte = 7.3e-9};
  cost.intra_node = {.latency = 1.1e-5, .byte = 2.3e-8};
  cost.inter_node = {.latency = 9.7e-5, .byte = 1.7e-7};
  return cost;
}

Schedule build(const std::string& name, const Cluster& cluster, const tawpipe::Workload& workload) {
  return tawpipe::build_schedule(name,
                                 {.workload = workload, .nodes = cluster.groups_by_node(), .options = {}, .device_memory = {}});
}

const tawpipe::CalibrationClass& class_of(const Calibration& found, const std::string& name) {
  const auto at = std::find_if(found.classes.begin(), found.classes.end(), [&](const auto& one) { return one.name == name; });
  REQUIRE(at != found.classes.end());
  return *at;
}

constexpr double close = 1e-6;

void check_link(const std::optional<tawpipe::MeasuredLink>& found, const std::optional<tawpipe::MeasuredLink>& expected) {
  REQUIRE(found);
  CHECK(found->latency == Approx(expected->latency).epsilon(close));
  CHECK(found->byte == Approx(expected->byte).epsilon(close));
}

void check_pass(const std::optional<tawpipe::MeasuredPass>& found, const std::optional<tawpipe::MeasuredPass>& expected) {
  REQUIRE(found);
  CHECK(found->layer == Approx(expected->layer).epsilon(close));
  CHECK(found->embedding == Approx(expected->embedding).epsilon(close));
  CHECK(found->head == Approx(expected->head).epsilon(close));
}

}  // namespace

TEST_CASE("the cost that a timeline was simulated with comes out of it") {
  const Cluster cluster = support::cluster(4, 2);
  const tawpipe::Workload workload = support::transformer(7, 8);  // stages of 1, 2, 2, 2 layers
  // 1F1B splits no backward and sends activations; ZB-H1 splits it; TawPipe and FSDP have messages
  // of several sizes.
  std::vector<Schedule> schedules;
  for (const char* name : {"1f1b", "zb-h1", "tawpipe", "fsdp"}) schedules.push_back(build(name, cluster, workload));
  std::vector<Timeline> timelines;
  for (const Schedule& schedule : schedules) timelines.push_back(simulate(schedule, cluster, truth()));
  std::vector<MeasuredRun> runs;
  for (std::size_t i = 0; i < schedules.size(); ++i) runs.push_back({schedules[i], timelines[i]});
  const Calibration found = calibrate(runs, cluster);
  check_pass(found.cost.forward, truth().forward);
  check_pass(found.cost.backward, truth().backward);
  check_pass(found.cost.backward_input, truth().backward_input);
  check_pass(found.cost.backward_weight, truth().backward_weight);
  CHECK(found.cost.update->once == Approx(truth().update->once).epsilon(close));
  CHECK(found.cost.update->byte == Approx(truth().update->byte).epsilon(close));
  check_link(found.cost.intra_node, truth().intra_node);
  check_link(found.cost.inter_node, truth().inter_node);
  CHECK(found.cost.work == tawpipe::MeasuredWork::of(workload));
  for (const auto& one : found.classes) {
    CAPTURE(one.name);
    CHECK(one.tasks > 0);
    CHECK(one.used > 0);
    CHECK(one.error < 1e-6);
  }
}

TEST_CASE("each schedule's timeline is predicted by the cost found from it") {
  const Cluster cluster = support::nodes_of({2, 1});
  const tawpipe::Workload workload = support::transformer(5, 6);
  for (const std::string name : {"tawpipe", "weipipe", "fsdp", "gpipe", "1f1b"}) {
    CAPTURE(name);
    const Schedule schedule = build(name, cluster, workload);
    const Timeline measured = simulate(schedule, cluster, truth());
    const MeasuredRun run{schedule, measured};
    const Timeline predicted = simulate(schedule, cluster, calibrate({&run, 1}, cluster).cost);
    CHECK(to_seconds(predicted.makespan()) == Approx(to_seconds(measured.makespan())).epsilon(0.02));
  }
}

TEST_CASE("a few late tasks do not matter") {
  const Cluster cluster = support::cluster(2);
  const Schedule schedule = build("gpipe", cluster, support::transformer(2, 9));
  Timeline measured = simulate(schedule, cluster, truth());
  std::size_t forwards = 0;
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const tawpipe::Task& task = schedule.tasks()[t];
    if (task.op == tawpipe::Op::forward && task.microbatch % 3 == 0) {
      measured.end[t] = measured.end[t] + 1_s;
      ++forwards;
    }
  }
  REQUIRE(forwards == 6);
  const MeasuredRun run{schedule, measured};
  const Calibration found = calibrate({&run, 1}, cluster);
  // Two stages, a layer each, one with the embedding and one with the head: only their sums can be
  // told.
  const auto& forward = *found.cost.forward;
  CHECK(forward.layer + forward.embedding == Approx(1.1e-3 + 2.3e-4).epsilon(close));
  CHECK(forward.layer + forward.head == Approx(1.1e-3 + 5.7e-4).epsilon(close));
  CHECK(class_of(found, "forward").error > 0.9);  // a third of the 18 forwards took 1 s more: 6 s of 6.03 s
}

TEST_CASE("messages that share a link are left to the simulator") {
  // Two ranks send to two others at once, over one adapter: each takes twice its time; a third
  // message has its links to itself.
  const Cluster cluster = support::cluster(4, 2);
  const tawpipe::Workload workload = support::transformer(1, 1);
  tawpipe::ScheduleBuilder builder{"test", workload, 4, {"compute"}};
  builder.stages({workload.stage(0, 1, true, true)});
  const auto pass = [&](int from, int to) {
    const auto sent = builder.persistent(from, tawpipe::Content{tawpipe::ContentKind::weights}, 1_KB);
    const auto got = builder.persistent_copy(to, tawpipe::Content{tawpipe::ContentKind::weights}, 1_KB);
    builder.add({.op = tawpipe::Op::pass,
                 .payload = tawpipe::Payload::weights,
                 .rank = tawpipe::Rank{from},
                 .peer = tawpipe::Rank{to},
                 .stage = tawpipe::StageId{0},
                 .bytes = 1_KB},
                {{sent, tawpipe::Access::read}, {got, tawpipe::Access::write}});
  };
  pass(0, 2);
  pass(1, 3);
  pass(0, 2);
  const Schedule schedule = builder.build();
  Timeline measured;
  for (const auto& [start, end] : std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 200}, {100, 300}, {300, 400}}) {
    measured.start.push_back(tawpipe::TimePoint{tawpipe::Duration{start * 1'000'000}});
    measured.end.push_back(tawpipe::TimePoint{tawpipe::Duration{end * 1'000'000}});
  }
  const MeasuredRun run{schedule, measured};
  const Calibration found = calibrate({&run, 1}, cluster);
  CHECK(class_of(found, "messages between nodes").tasks == 3);
  CHECK(class_of(found, "messages between nodes").used == 1);
  CHECK(found.cost.inter_node->latency == 0);  // of one size: all of it goes to the bytes
  CHECK(found.cost.inter_node->byte == Approx(100e-6 / 1000));
  CHECK_FALSE(found.cost.intra_node);
  CHECK_FALSE(found.cost.forward);
}

TEST_CASE("what cannot be calibrated from is refused") {
  const Cluster cluster = support::cluster(2);
  const Schedule schedule = build("gpipe", cluster, support::transformer(2, 2));
  const Timeline measured = simulate(schedule, cluster, truth());
  CHECK_THROWS_WITH_AS(calibrate({}, cluster), "there is no measured timeline to calibrate from", tawpipe::InputError);
  const Timeline empty;
  const MeasuredRun wrong{schedule, empty};
  CHECK_THROWS_AS(calibrate({&wrong, 1}, cluster), tawpipe::InputError);
  const MeasuredRun run{schedule, measured};
  CHECK_THROWS_AS(calibrate({&run, 1}, support::cluster(1)), tawpipe::InputError);
  const tawpipe::Transformer other{
      .name = "other", .layers = 2, .hidden = 16, .heads = 4, .kv_heads = 4, .intermediate = 16, .vocab = 12};
  const Schedule another =
      build("gpipe", cluster, {other, tawpipe::Batch{.sequence = 4, .microbatch_size = 1, .global_batch = 2}});
  const Timeline others = simulate(another, cluster, truth());
  const std::vector<MeasuredRun> mixed{run, {another, others}};
  CHECK_THROWS_WITH_AS(calibrate(mixed, cluster),
                       "the times were measured with a hidden size of 8, not 16; measure them again for it", tawpipe::InputError);
}

TEST_CASE("messages of nearly one size that scatter tell a bandwidth, not a latency") {
  const Cluster cluster = support::nodes_of({1, 1});
  const Schedule schedule = build("tawpipe", cluster, support::transformer(3, 8));  // stages of one layer and of two
  Timeline measured = simulate(schedule, cluster, truth());
  tawpipe::Bytes least{std::int64_t{1} << 60};
  for (const tawpipe::Task& task : schedule.tasks()) {
    if (task.op == tawpipe::Op::pass) least = std::min<tawpipe::Bytes>(least, task.bytes);
  }
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const tawpipe::Task& task = schedule.tasks()[t];
    if (task.op != tawpipe::Op::pass || task.bytes != least) continue;
    measured.end[t] = measured.end[t] + (measured.end[t] - measured.start[t]);  // twice as long, as the double size
  }
  const MeasuredRun run{schedule, measured};
  const Calibration found = calibrate({&run, 1}, cluster);
  REQUIRE(found.cost.inter_node);
  CHECK(found.cost.inter_node->latency == 0);
  CHECK(found.cost.inter_node->byte > 0);
}
