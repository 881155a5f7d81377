// Tests of schedule/offload.hpp: valid around every schedule, less memory on the device, the same
// numbers, times by the link.
// Not: what the validator finds wrong with host copies (verify/check_codes_test.cpp).
#include "tawpipe/schedule/offload.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/clusters.hpp"
#include "support/each_schedule.hpp"
#include "support/toy_training.hpp"
#include "tawpipe/analysis/memory.hpp"
#include "tawpipe/analysis/traffic.hpp"
#include "tawpipe/cost/roofline.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/schedule/gradient_norm.hpp"
#include "tawpipe/simulate/simulate.hpp"
#include "tawpipe/verify/validate.hpp"

using namespace tawpipe;

namespace {

using namespace tawpipe::literals;

const std::vector<Offload> all_kinds{{.activations = true},
                                     {.optimizer = true},
                                     {.activations = true, .optimizer = true},
                                     {.activations = true, .optimizer = true, .ahead = 3}};

Cluster with_hosts(int ranks) {
  return ClusterBuilder{}
      .device({.name = "device", .memory = 1_GB, .peak = 1_TFLOPS, .memory_bandwidth = 1_GBps})
      .devices_per_node(ranks)
      .intra_node({.bandwidth = 1_GBps, .latency = 1_us})
      .host_link({.bandwidth = 1_GBps, .latency = 2_us})
      .build();
}

Schedule build(const std::string& name, const Workload& work, int ranks) {
  return build_schedule(name, {.workload = work, .nodes = DeviceGroups{{ranks}}, .options = {}});
}

}  // namespace

TEST_CASE("what is offloaded is read as it is written") {
  for (const char* text : {"off", "activations", "optimizer", "activations+optimizer"}) CHECK(name(parse_offload(text)) == text);
  CHECK(parse_offload("optimizer+activations") == Offload{.activations = true, .optimizer = true});
  for (const char* text : {"", "on", "activations+", "optimizer+optimizer", "activations,optimizer"}) {
    CAPTURE(text);
    CHECK_THROWS_WITH_AS(parse_offload(text), doctest::Contains("expected off, activations, optimizer"), InputError);
  }
  CHECK_THROWS_WITH_AS(with_offload(build("1f1b", support::transformer(4, 2), 2), {.activations = true, .ahead = 0}),
                       doctest::Contains("at least 1"), InputError);
}

TEST_CASE("every schedule is valid with its activations and states in host memory") {
  for (const Offload& offload : all_kinds) {
    CAPTURE(name(offload));
    support::for_each_schedule(support::transformer(12, 12), {{1}, {4}, {2, 2}}, [&](const Schedule& schedule) {
      const Schedule offloaded = with_offload(schedule, offload);
      const Diagnostics found = validate(offloaded);
      CHECK_MESSAGE(found.ok(), found.text());
      const Diagnostics clipped = validate(with_gradient_norm(offloaded));
      CHECK_MESSAGE(clipped.ok(), clipped.text());
    });
  }
}

TEST_CASE("offloaded schedules train to the same bits") {
  for (const bool tied : {false, true}) {
    const Workload work = support::toy_work(support::toy_model(6, tied), 6);
    support::for_each_schedule(work, {{1}, {3}, {2, 1}}, [&](const Schedule& schedule) {
      const support::ToyOutcome plain = support::train_by_threads(schedule, 2);
      for (const Offload& offload : all_kinds) {
        CAPTURE(name(offload));
        const support::ToyOutcome offloaded = support::train_by_threads(with_offload(schedule, offload), 2);
        CHECK(plain.weights == offloaded.weights);
        CHECK(plain.gradient == offloaded.gradient);
        CHECK(plain.losses == offloaded.losses);
        CHECK(offloaded.copies_differ == 0);
      }
    });
  }
}

TEST_CASE("a device keeps what few computations need, and the host the rest") {
  // GPipe on two ranks: rank 0 saves 8 microbatches before its first backward. Of these at most two
  // are on their way out (one while the next forward writes its own), one is in use and one is
  // fetched: the last three never leave.
  const Workload work = support::transformer(8, 8);
  const Schedule schedule = build("gpipe", work, 2);
  const Schedule offloaded = with_offload(schedule, {.activations = true, .optimizer = true});
  const Cluster cluster = with_hosts(2);
  const auto peaks = [&](const Schedule& one) { return peak_memory(one, simulate(one, cluster, RooflineCost{})); };
  const auto before = peaks(schedule);
  const auto after = peaks(offloaded);
  const auto activations = static_cast<std::size_t>(BufferKind::activations);
  const auto optimizer = static_cast<std::size_t>(BufferKind::optimizer);
  for (std::size_t r = 0; r < 2; ++r) {
    CAPTURE(r);
    CHECK(before[r].host == Bytes{});
    CHECK(after[r].by_kind[activations].value() <= before[r].by_kind[activations].value() / 2);
    CHECK(before[r].by_kind[optimizer] > Bytes{});
    CHECK(after[r].by_kind[optimizer] == Bytes{});  // at the peak, which the backwards make
    CHECK(after[r].host > before[r].by_kind[optimizer]);
  }
  const Traffic moved = traffic(offloaded, cluster);
  CHECK(moved.host_bytes[0] == moved.host_bytes[1]);
  CHECK(moved.intra_node_bytes == traffic(schedule, cluster).intra_node_bytes);
  CHECK(moved.host_bytes[0] + moved.host_bytes[1] == [&] {
    std::int64_t sum = 0;
    for (const Task& task : offloaded.tasks()) sum += is_host_copy(task.op) ? task.bytes.value() : 0;
    return sum;
  }());
}

TEST_CASE("a copy takes its bytes over the host link and its latency") {
  ScheduleBuilder builder{"copies", support::transformer(2, 1), 1, {"compute", "to_host"}};
  const Content saved{ContentKind::saved, StageId{0}, 0};
  const BufferId device = builder.transient(0, saved, 1_MB);
  const BufferId host = builder.buffer({.rank = Rank{0}, .content = saved, .persistent = false, .host = true, .bytes = 1_MB});
  builder.add({.op = Op::copy_to_host, .payload = Payload::activations, .lane = LaneId{1}, .rank = Rank{0}, .bytes = 1_MB},
              {{device, Access::read}, {host, Access::write}});
  const Schedule schedule = builder.build();
  // 1 MB at 1 GB/s and 2 us
  CHECK(simulate(schedule, with_hosts(1), RooflineCost{}).makespan() == 1_ms + 2_us);
  CHECK_THROWS_WITH_AS(simulate(schedule, support::cluster(1), RooflineCost{}),
                       doctest::Contains("reach the memory of their host is not known; give \"host_link\""), InputError);
}

TEST_CASE("a composed schedule copies each rank's part, and of sharded states its shard") {
  const Workload work = support::transformer(4, 4);
  const Schedule logical = with_offload(build("1f1b", work, 2), {.activations = true, .optimizer = true});
  const Mesh mesh = Mesh{.tensor = 1, .context = 1, .data = 2}.over(4);
  const Workload whole = support::transformer(4, 8);
  const Schedule sharded = compose(logical, whole, mesh, {.sharding = StateSharding::optimizer});
  const Diagnostics found = validate(sharded);
  CHECK_MESSAGE(found.ok(), found.text());
  std::int64_t states = 0;
  for (const Task& task : sharded.tasks()) {
    if (task.op == Op::copy_to_host && task.payload == Payload::optimizer_states) states += task.bytes.value();
  }
  const std::int64_t all = work.model().parameters() * work.parameter_bytes().optimizer;
  CHECK(states >= all);
  CHECK(states <= all + 4 * 4 * work.parameter_bytes().optimizer);  // padded to equal parts
}
