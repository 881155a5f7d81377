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

Cluster with_hosts(int ranks, BytesPerSecond memory_bandwidth = 1_GBps) {
  return ClusterBuilder{}
      .device({.name = "device", .memory = 1_GB, .peak = 1_TFLOPS, .memory_bandwidth = memory_bandwidth})
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
  for (const char* text : {"off", "activations", "optimizer", "activations+optimizer", "activations:20+optimizer", "weights",
                           "weights+optimizer", "activations:2+weights+optimizer"})
    CHECK(name(parse_offload(text)) == text);
  CHECK(parse_offload("optimizer+activations") == Offload{.activations = true, .optimizer = true});
  CHECK(parse_offload("optimizer+weights") == Offload{.weights = true, .optimizer = true});
  CHECK(parse_offload("optimizer+activations:3") == Offload{.activations = true, .layers = 3, .optimizer = true});
  for (const char* text : {"activations:", "activations:0", "activations:2x", "activations:-1"}) {
    CAPTURE(text);
    CHECK_THROWS_WITH_AS(parse_offload(text), doctest::Contains("must be a whole number from 1"), InputError);
  }
  for (const char* text : {"", "on", "activations+", "optimizer+optimizer", "activations,optimizer", "optimizer:2", "weights:2",
                           "weights+weights"}) {
    CAPTURE(text);
    CHECK_THROWS_WITH_AS(parse_offload(text), doctest::Contains("expected off, activations, weights, optimizer"), InputError);
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

TEST_CASE("of the first layers alone, activations leave with the stages that lie within them") {
  const Workload work = support::transformer(8, 12);
  const auto leaving = [&](const std::string& name, int layers) {
    std::vector<int> counts(8, 0);
    const Schedule schedule = with_offload(build(name, work, 2), {.activations = true, .layers = layers});
    CHECK(validate(schedule).ok());
    for (const Task& task : schedule.tasks()) {
      if (task.op == Op::copy_to_host && task.rank == Rank{0})
        ++counts[static_cast<std::size_t>(schedule.stage(task.stage).first_layer)];
    }
    return counts;
  };
  CHECK(leaving("fsdp", 3) == std::vector<int>{6, 6, 6, 0, 0, 0, 0, 0});
  CHECK(leaving("gpipe", 4)[0] > 0);  // rank 0 has the first 4 layers as one
  CHECK_THROWS_WITH_AS(leaving("gpipe", 3), doctest::Contains("a stage's layers leave together, and the first has 4"),
                       InputError);
}

TEST_CASE("states are on the device in pieces, and their copies take the time of the link") {
  // Two ranks with 4 layers each, or the half of each layer: the states are most of the memory.
  const Workload work = support::transformer(8, 8);
  for (const char* name : {"gpipe", "1f1b", "fsdp", "zero1", "tawpipe", "zb-h1"}) {
    CAPTURE(name);
    const Schedule schedule = build(name, work, 2);
    const Schedule offloaded = with_offload(schedule, {.optimizer = true});
    const Cluster cluster = with_hosts(2, 100_GBps);  // beside copies, updates take no time
    const Timeline before = simulate(schedule, cluster, RooflineCost{});
    const Timeline after = simulate(offloaded, cluster, RooflineCost{});
    const auto plain = peak_memory(schedule, before);
    const auto less = peak_memory(offloaded, after);
    for (std::size_t r = 0; r < 2; ++r) {
      std::int64_t states = 0;
      std::int64_t largest = 0;
      for (const Buffer& buffer : schedule.buffers()) {
        if (buffer.rank == Rank{static_cast<int>(r)} && buffer.kind() == BufferKind::optimizer) states += buffer.bytes.value();
      }
      std::int64_t moved = 0;
      for (const Task& task : offloaded.tasks()) {
        if (task.op != Op::copy_from_host || task.rank != Rank{static_cast<int>(r)}) continue;
        largest = std::max(largest, task.bytes.value());
        moved += task.bytes.value();
      }
      CHECK(moved == states);
      CHECK(largest <= states / state_pieces + 12 * 8);  // pieces are whole packs of 8 numbers
      CHECK(less[r].host.value() == states);
      CHECK((plain[r].total - less[r].total).value() >= states - 4 * largest);
    }
    // Each way at 1 GB/s: at the end of the iteration what comes and goes overlap.
    std::int64_t bytes = 0;
    std::int64_t copies = 0;
    for (const Task& task : offloaded.tasks()) {
      if (task.op != Op::copy_to_host || task.rank != Rank{0}) continue;
      bytes += task.bytes.value();
      ++copies;
    }
    const Duration link = Bytes{bytes} / 1_GBps + 2_us * copies;
    const double added = to_seconds(after.makespan() - before.makespan()) / to_seconds(link);
    CHECK(added < 1.125);
    CHECK(added > 0.4);
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
  CHECK(states <= all + 4 * (state_pieces + 1) * work.parameter_bytes().optimizer);  // pieces padded to equal parts
  for (const StateSharding sharding : {StateSharding::none, StateSharding::gradients, StateSharding::parameters}) {
    for (const bool early : {false, true}) {
      const Schedule other = compose(logical, whole, mesh, {.sharding = sharding, .overlap_gradients = early, .bucket = 1});
      CHECK(other.parts().buckets.empty());  // one sum before the first piece's update
      const Diagnostics found_in_other = validate(other);
      CHECK_MESSAGE(found_in_other.ok(), found_in_other.text());
    }
  }
  const Schedule kept = compose(with_offload(build("1f1b", work, 2), {.activations = true}), whole, mesh,
                                {.sharding = StateSharding::optimizer, .overlap_gradients = true, .bucket = 1});
  CHECK_FALSE(kept.parts().buckets.empty());
  const Diagnostics found_in_kept = validate(kept);
  CHECK_MESSAGE(found_in_kept.ok(), found_in_kept.text());
}

namespace {

Schedule with_weights(const std::string& name, const Workload& work, const std::vector<int>& nodes, const Offload& offload,
                      const ScheduleOptions& options = {}) {
  return build_schedule(name, {.workload = work, .nodes = DeviceGroups{nodes}, .options = options, .offload = offload});
}

}  // namespace

TEST_CASE("schedules that gather weights, and pipelines, are valid with them in host memory") {
  for (const Offload& offload : {Offload{.weights = true}, Offload{.weights = true, .optimizer = true},
                                 Offload{.activations = true, .weights = true, .optimizer = true}}) {
    CAPTURE(name(offload));
    for (const char* schedule : {"fsdp", "hsdp", "hpz", "1f1b", "gpipe", "ddp"}) {
      CAPTURE(schedule);
      for (const std::vector<int>& nodes : {std::vector<int>{1}, {4}, {2, 2}}) {
        if (schedule == std::string{"ddp"} && nodes != std::vector<int>{1}) continue;
        const Diagnostics found = validate(with_weights(schedule, support::transformer(12, 12), nodes, offload));
        CHECK_MESSAGE(found.ok(), found.text());
      }
    }
  }
  for (const char* prefetch : {"0", "1", "2"}) {
    const Diagnostics found = validate(
        with_weights("fsdp", support::transformer(12, 12), {4}, {.weights = true, .optimizer = true}, {{"prefetch", prefetch}}));
    CHECK_MESSAGE(found.ok(), found.text());
  }
}

TEST_CASE("weights that are copied to several ranks in place stay on the devices") {
  CHECK_THROWS_WITH_AS(with_weights("zero1", support::transformer(4, 4), {4}, {.weights = true}),
                       doctest::Contains("choose a schedule that gathers them before each use, such as fsdp"), InputError);
}

TEST_CASE("FSDP with weights in host memory copies a rank's part for each gather, and out once") {
  // Two units' parts at most are on a device: the rest of its quarter of the weights is in host memory.
  const Workload work = support::transformer(12, 8);
  const Schedule plain = with_weights("fsdp", work, {4}, {}, {{"prefetch", "1"}});
  const Schedule hosted = with_weights("fsdp", work, {4}, {.weights = true}, {{"prefetch", "1"}});
  const Cluster cluster = with_hosts(4);
  const auto memory = [&](const Schedule& schedule) {
    return peak_memory(schedule, simulate(schedule, cluster, RooflineCost{}));
  };
  Bytes weights{};
  for (const Buffer& buffer : plain.buffers()) {
    if (buffer.persistent && buffer.rank == Rank{0} && buffer.content.kind() == ContentKind::weights) weights += buffer.bytes;
  }
  const PeakMemory before = memory(plain)[0];
  const PeakMemory after = memory(hosted)[0];
  CHECK(after.host == weights);
  CHECK(after.total < before.total);
  // 2 microbatches a rank: each unit is gathered 4 times; the update reads them once more and writes them once.
  std::int64_t in = 0;
  std::int64_t out = 0;
  for (const Task& task : hosted.tasks()) {
    if (task.rank != Rank{0} || task.payload != Payload::weights) continue;
    if (task.op == Op::copy_from_host) in += task.bytes.value();
    if (task.op == Op::copy_to_host) out += task.bytes.value();
  }
  CHECK(out == weights.value());
  CHECK(in == 5 * weights.value());
  CHECK(simulate(hosted, cluster, RooflineCost{}).makespan() > simulate(plain, cluster, RooflineCost{}).makespan());
}
