// Tests of verify/validate.hpp: everything that ships is clean, and nothing that is malformed makes
// it crash.
// Not: what each code means (check_*_test.cpp), nor that mutants are found
// (properties/mutation_test.cpp).
#include "tawpipe/verify/validate.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "schedules.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/topology/cluster_builder.hpp"

using namespace tawpipe;
using namespace tawpipe::literals;

namespace {

Workload model(int layers, int microbatches, bool tied) {
  const Transformer transformer{
      .name = "m", .layers = layers, .hidden = 8, .heads = 4, .kv_heads = 2, .intermediate = 12, .vocab = 10, .tied = tied};
  return {transformer, {.sequence = 6, .microbatch_size = 1, .global_batch = microbatches}};
}

/// Checks every schedule of the catalogue, with each of its yes-or-no options off and on; returns
/// how many could be built.
int check_catalogue(const Workload& workload, const DeviceGroups& nodes) {
  int built = 0;
  for (const ScheduleInfo& info : shipped().schedules()) {
    std::vector<ScheduleOptions> variants{{}};
    for (const auto& option : info.options) {
      const std::string values{option.values};
      const auto bar = values.find('|');
      if (bar == std::string::npos || values.find('|', bar + 1) != std::string::npos) continue;
      variants.push_back({{std::string{option.name}, values.substr(0, bar)}});
      variants.push_back({{std::string{option.name}, values.substr(bar + 1)}});
    }
    if (info.name == "tawpipe") {
      for (const char* cached : {"1", "2", "all"}) variants.push_back({{"node-cache", cached}});
      for (const char* shards : {"1", "3", "9"}) variants.push_back({{"shards", shards}});
      variants.push_back({{"buffers", "1"}});
    }
    for (const auto& options : variants) {
      std::string what{info.name};
      for (const auto& [key, value] : options) what += concat(" ", key, "=", value);
      CAPTURE(what);
      try {
        const Diagnostics found = validate(build_schedule(info.name, {workload, nodes, options}));
        CHECK_MESSAGE(found.errors() + found.warnings() == 0, found.text(2));
        ++built;
      } catch (const InputError&) {  // a size that this schedule cannot have
      }
    }
  }
  return built;
}

}  // namespace

TEST_CASE("every schedule of the catalogue is clean") {
  for (const auto& sizes : std::vector<std::vector<std::int32_t>>{{4}, {2, 2}, {3, 2, 1}, {1, 1}}) {
    const DeviceGroups nodes{sizes};
    CAPTURE(nodes.ranks());
    CAPTURE(nodes.count());
    CHECK(check_catalogue(Workload::abstract(nodes.ranks(), 2 * nodes.ranks()), nodes) > 20);
    CHECK(check_catalogue(model(2 * nodes.ranks(), 2 * nodes.ranks(), false), nodes) > 20);
    CHECK(check_catalogue(model(2 * nodes.ranks(), 2 * nodes.ranks(), true), nodes) > 20);
    CHECK(check_catalogue(model(2 * nodes.ranks(), nodes.ranks() + 1, true), nodes) > 10);  // a short last round
  }
}

TEST_CASE("parts that do not fit together are findings, not crashes") {
  const Schedule good = build_schedule("tawpipe", {model(4, 4, false), DeviceGroups{{2, 2}}, {}});
  REQUIRE(validate(good).ok());
  std::mt19937 random{1};
  const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random() % limit); };
  const auto odd = [&]() -> std::int32_t {
    constexpr std::int32_t values[] = {-2147483647 - 1, -2, -1, 0, 1, 2, 3, 4, 5, 7, 100, 1000000, 2147483647};
    return values[below(std::size(values))];
  };
  const auto spoil_rows = [&]<class T>(Rows<T>& rows, auto&& make) {
    std::vector<std::uint32_t> begins = rows.begins();
    std::vector<T> items = rows.items();
    const std::size_t way = below(4);
    if (way == 0 && !begins.empty()) begins[below(begins.size())] = static_cast<std::uint32_t>(odd());
    if (way == 1 && !begins.empty()) begins.pop_back();
    if (way >= 2 && !items.empty()) items[below(items.size())] = make();
    rows = {std::move(begins), std::move(items)};
  };
  int faulty = 0;
  constexpr int rounds = 3000;
  for (int round = 0; round < rounds; ++round) {
    Schedule::Parts parts = good.parts();
    for (std::size_t changes = 1 + below(3); changes > 0; --changes) {
      Task& task = parts.tasks[below(parts.tasks.size())];
      Buffer& buffer = parts.buffers[below(parts.buffers.size())];
      switch (below(20)) {
        case 0:
          task.op = static_cast<Op>(below(256));
          break;
        case 1:
          task.payload = static_cast<Payload>(below(256));
          break;
        case 2:
          task.lane = id<LaneId>(below(256));
          break;
        case 3:
          task.peer_lane = id<LaneId>(below(256));
          break;
        case 4:
          task.rank = Rank{odd()};
          break;
        case 5:
          task.peer = Rank{odd()};
          break;
        case 6:
          task.group = GroupId{odd()};
          break;
        case 7:
          task.stage = StageId{odd()};
          break;
        case 8:
          task.microbatch = odd();
          break;
        case 9:
          task.bytes = Bytes{odd()};
          break;
        case 10:
          buffer.rank = Rank{odd()};
          break;
        case 11:
          buffer.content = Content{buffer.content.kind(), StageId{odd()}, buffer.content.parameters()};
          break;
        case 12:
          buffer.bytes = Bytes{odd()};
          break;
        case 13:
          buffer.content = Content{static_cast<ContentKind>(below(64)), StageId{0}, odd()};
          break;
        case 14:
          buffer.persistent = !buffer.persistent;
          break;
        case 15:
          spoil_rows(parts.dependencies, [&] { return TaskId{odd()}; });
          break;
        case 16:
          spoil_rows(parts.program, [&] { return TaskId{odd()}; });
          break;
        case 17:
          spoil_rows(parts.groups, [&] { return Rank{odd()}; });
          break;
        case 18:
          spoil_rows(parts.uses, [&] { return Use{BufferId{odd()}, static_cast<Access>(below(256))}; });
          break;
        default:
          if (below(2) == 0) parts.ranks = odd();
          if (below(3) == 0) parts.lanes.resize(below(300));
          if (below(3) == 0) parts.stages.resize(below(8));
          break;
      }
    }
    const Diagnostics found = validate(Schedule{good.workload(), std::move(parts)});
    CHECK(!found.text().empty());
    faulty += found.ok() ? 0 : 1;
  }
  CHECK(faulty > rounds / 2);
}

TEST_CASE("a schedule without anything in it is no error of form") {
  Schedule::Parts parts;
  const Diagnostics none_at_all = validate(Schedule{Workload::abstract(1, 1), parts});
  CHECK(none_at_all.has("V101"));  // no ranks, no lanes
  parts.ranks = 1;
  parts.lanes = {"compute"};
  parts.stages = Workload::abstract(1, 1).split(1);
  parts.program = Rows<TaskId>{{0, 0}, {}};
  const Diagnostics found = validate(Schedule{Workload::abstract(1, 1), parts});
  CHECK(!found.has("V101"));
  CHECK(found.count("V701") == 2);  // one stage, one microbatch: no forward, no backward
}

TEST_CASE("a cluster adds its ranks and memory") {
  const Schedule schedule = build_schedule("gpipe", {model(4, 4, false), DeviceGroups{{2}}, {}});
  const auto cluster = [](int devices, Bytes memory) {
    return ClusterBuilder{}
        .device({.name = "d", .memory = memory, .peak = 1_TFLOPS, .memory_bandwidth = 1_GBps})
        .nodes(1)
        .devices_per_node(devices)
        .intra_node({.bandwidth = 1_GBps, .latency = 1_us})
        .build();
  };
  CHECK(validate(schedule, cluster(2, 1_GiB)).ok());
  CHECK(validate(schedule, cluster(1, 1_GiB)).count("V801") == 1);
  CHECK(validate(schedule, cluster(2, 1_KiB)).count("V802") == 2);
  const std::vector<Bytes> peaks{1_MiB, 3_GiB};
  const Diagnostics found = validate(schedule, cluster(2, 1_GiB), {.peaks = peaks});
  REQUIRE(found.count("V802") == 1);
  CHECK(found.findings()[0].rank == Rank{1});
  CHECK(found.findings()[0].message == "rank 1 needs 3221225472 bytes and its device has 1073741824; 2147483648 are missing");
}
