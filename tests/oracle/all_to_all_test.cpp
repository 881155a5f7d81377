// An all_to_all through everything that reads schedules, against numbers by hand and a count pair
// by pair.
// Not: its messages over MPI (unit/execute/ring_plan_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "support/clusters.hpp"
#include "support/random.hpp"
#include "tawpipe/analysis/traffic.hpp"
#include "tawpipe/cost/measured.hpp"
#include "tawpipe/cost/roofline.hpp"
#include "tawpipe/execute/detail/dataflow_transfers.hpp"
#include "tawpipe/execute/ring_plan.hpp"
#include "tawpipe/report/chrome_trace.hpp"
#include "tawpipe/report/schedule_json.hpp"
#include "tawpipe/schedule/gradient_norm.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"
#include "tawpipe/simulate/simulate.hpp"
#include "tawpipe/verify/validate.hpp"

using namespace tawpipe;
using namespace tawpipe::literals;

namespace {

/// One all_to_all over all ranks in a mixed order; of each rank a buffer that it gives and one that
/// it gets.
struct Exchange {
  int ranks;
  Bytes bytes;
  std::vector<Bytes> sizes;  ///< [from * ranks + to]; empty: even
  Bytes held;                ///< by each buffer

  std::vector<Rank> members() const {
    std::vector<Rank> members;
    for (int r = 0; r < ranks; ++r) members.push_back(Rank{(ranks - r) % ranks});
    return members;
  }
  Schedule build() const {
    ScheduleBuilder b{"all-to-all", support::transformer(2, 1), ranks, {"compute", "communication"}};
    b.stages(b.workload().split(1));
    std::vector<Use> uses;
    for (int r = 0; r < ranks; ++r) {
      const BufferId given = b.persistent(r, Content{ContentKind::activation, StageId{0}, 0}, held);
      const BufferId got = b.persistent(r, Content{ContentKind::activation, StageId{0}, 0}, held);
      uses.push_back({given, Access::read});
      uses.push_back({got, Access::write});
    }
    Task task{.op = Op::all_to_all, .payload = Payload::activations, .lane = LaneId{1}};
    task.group = b.group(members());
    task.rank = members()[0];
    if (!sizes.empty()) task.split = b.pair_sizes(sizes);
    task.bytes = bytes;
    b.add(task, uses);
    return b.build();
  }
};

/// Sizes drawn at random, some of them none.
Exchange drawn(int ranks, std::uint64_t seed) {
  support::Random random{seed};
  Exchange exchange{ranks, Bytes{}, {}, 1_MB};
  for (int from = 0; from < ranks; ++from) {
    Bytes row;
    for (int to = 0; to < ranks; ++to) {
      exchange.sizes.push_back(Bytes{static_cast<std::int64_t>(random.next() % 5) * 4000});
      row += exchange.sizes.back();
    }
    exchange.bytes = std::max(exchange.bytes, row);
  }
  return exchange;
}

constexpr RooflineCost no_overhead{.overhead = Duration{}};

}  // namespace

TEST_CASE("even blocks: each of four members sends three quarters of its buffer") {
  const Schedule schedule = Exchange{4, 4_GB, {}, 4_GB}.build();
  const Cluster cluster = support::cluster(4);
  // 3 blocks of 1 GB out of each port of 1 GB/s, after one latency
  CHECK(simulate(schedule, cluster, no_overhead).makespan() == 3_s + 1_us);
  CHECK(simulate(schedule, cluster, RooflineCost{.overhead = Duration{}, .nccl_collectives = true}).makespan() == 3_s + 1_us);
  const Traffic all = traffic(schedule, cluster);
  CHECK(all.intra_node_bytes == 12'000'000'000);
  CHECK(all.rank_sent_bytes == std::vector<std::int64_t>(4, 3'000'000'000));
  // two nodes: of each member two blocks leave, four of 1 GB through each adapter
  CHECK(simulate(schedule, support::cluster(4, 2), no_overhead).makespan() == 4_s + Duration{1'000'000});
  CHECK(traffic(schedule, support::cluster(4, 2)).inter_node_bytes == 8'000'000'000);
}

TEST_CASE("blocks of any size take what the busiest link takes, and their bytes are counted pair by pair") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    const Exchange exchange = drawn(6, seed);
    const Schedule schedule = exchange.build();
    const Cluster cluster = support::cluster(6, seed % 2 == 0 ? 2 : 3);
    const auto members = exchange.members();
    std::map<LinkId, double> load;
    std::vector<std::int64_t> sent(6, 0);
    double latency = 0;
    int pairs = 0;
    for (std::size_t from = 0; from < 6; ++from) {
      for (std::size_t to = 0; to < 6; ++to) {
        const std::int64_t size = exchange.sizes[from * 6 + to].value();
        if (from == to || size == 0) continue;
        const Route route = cluster.route(members[from], members[to]);
        for (const LinkId link : route.links) load[link] += static_cast<double>(size) / cluster.link(link).bandwidth.value();
        sent[index(members[from])] += size;
        latency += to_seconds(route.latency);
        ++pairs;
      }
    }
    double busiest = 0;
    for (const auto& [link, time] : load) busiest = std::max(busiest, time);
    CHECK(to_seconds(Duration{simulate(schedule, cluster, no_overhead).makespan()}) ==
          doctest::Approx(busiest + latency / pairs).epsilon(1e-9));
    CHECK(traffic(schedule, cluster).rank_sent_bytes == sent);
  }
}

TEST_CASE("two all_to_alls of one group and other sizes take other times") {
  ScheduleBuilder b{"two", Workload::abstract(2, 1), 2, {"compute", "communication"}};
  Task task{.op = Op::all_to_all, .lane = LaneId{1}, .rank = Rank{0}};
  task.group = b.group({Rank{0}, Rank{1}});
  task.bytes = 2_GB;
  task.split = b.pair_sizes({1_GB, 1_GB, 1_GB, 1_GB});
  b.add(task, {});
  task.split = b.pair_sizes({0_GB, 2_GB, 0_GB, 0_GB});
  b.add(task, {});
  const Timeline timeline = simulate(b.build(), support::cluster(2), no_overhead);
  CHECK(timeline.duration_of(TaskId{0}) == 1_s + 1_us);
  CHECK(timeline.duration_of(TaskId{1}) == 2_s + 1_us);
}

TEST_CASE("the validator knows what an all_to_all needs") {
  const Exchange exchange = drawn(4, 3);
  CHECK_FALSE(validate(exchange.build()).has("V110"));
  CHECK_FALSE(validate(exchange.build()).has("V305"));
  Exchange small = exchange;
  small.bytes = small.bytes / 2;
  CHECK(validate(small.build()).has("V305"));
  Exchange missing = exchange;
  missing.sizes.pop_back();
  CHECK(validate(missing.build()).has("V110"));
  CHECK(validate(Exchange{4, 4_MB, {}, 1_MB}.build()).has("V304"));  // even blocks pass through the whole buffer
  Schedule::Parts parts = exchange.build().parts();
  parts.tasks[0].split = SplitId{7};
  CHECK(validate(Schedule{exchange.build().workload(), parts}).has("V102"));
  // nothing to send on a rank, nowhere to put it on another
  parts = exchange.build().parts();
  parts.uses = Rows<Use>{{0, 2}, {parts.uses[0][0], parts.uses[0][3]}};
  const Diagnostics found = validate(Schedule{exchange.build().workload(), parts});
  CHECK(found.has("V301"));
  CHECK(found.has("V302"));
}

TEST_CASE("all_to_alls that two ranks issue in different orders are a deadlock") {
  ScheduleBuilder b{"two", Workload::abstract(2, 1), 2, {"compute", "communication"}};
  Task task{.op = Op::all_to_all, .lane = LaneId{1}, .rank = Rank{0}};
  task.group = b.group({Rank{0}, Rank{1}});
  b.add(task, {});
  b.add(task, {});
  const Schedule right = b.build();
  Schedule::Parts parts = right.parts();
  parts.dependencies = Rows<TaskId>{{0, 0, 0}, {}};
  parts.program = Rows<TaskId>{{0, 0, 2, 2, 4}, {TaskId{0}, TaskId{1}, TaskId{1}, TaskId{0}}};
  const Diagnostics found = validate(Schedule{right.workload(), parts});
  CHECK(found.has("V601"));
  CHECK(found.has("V602"));
}

TEST_CASE("JSON keeps the sizes, and says what is wrong with them") {
  const Schedule schedule = drawn(3, 5).build();
  const std::string text = schedule_json(schedule);
  CHECK(schedule_json(parse_schedule_json(text)) == text);
  CHECK(text.find(R"("op":"all_to_all")") != std::string::npos);
  CHECK(text.find(R"("pair_sizes":0)") != std::string::npos);
  const Schedule written = parse_schedule_json(
      R"({"ranks": 2, "tasks": [{"op": "all_to_all", "group": [0, 1], "bytes": 5, "pair_sizes": [0, 5, "2 B", 0]}]})");
  CHECK(written.pair_sizes(written.tasks()[0].split)[2] == Bytes{2});
  CHECK_THROWS_WITH_AS(parse_schedule_json(R"({"ranks": 2, "tasks": [{"op": "broadcast", "group": [0, 1], "pair_sizes": 0}]})"),
                       "schedule: tasks[0]: a broadcast has no 'pair_sizes'", InputError);
  CHECK(chrome_trace(schedule, simulate(schedule, support::cluster(3), no_overhead)).find("all_to_all activations") !=
        std::string::npos);
}

TEST_CASE("the gradients' norm is put around an all_to_all with its sizes") {
  const Schedule schedule = with_gradient_norm(drawn(3, 5).build());
  const auto sizes = schedule.pair_sizes(schedule.tasks()[0].split);
  CHECK(std::vector<Bytes>(sizes.begin(), sizes.end()) == drawn(3, 5).sizes);
}

TEST_CASE("executors move each block to its place") {
  for (const bool even : {true, false}) {
    Exchange exchange = even ? Exchange{4, 64_KB, {}, 1_MB} : drawn(4, 11);
    const Schedule schedule = exchange.build();
    const Rooms rooms{schedule};
    const TransferFlow flow = detail::DataflowTransfers{schedule, rooms, none<Rank>}.resolve(TaskId{0});
    const auto members = exchange.members();
    const std::int64_t number = size_bytes(schedule.workload().model().dtype);
    const auto count = [&](std::size_t from, std::size_t to) {
      return even ? exchange.bytes.value() / 4 / number : exchange.sizes[from * 4 + to].value() / number;
    };
    // A number is told by who gives it and its place in what that member gives.
    std::vector<double> message(static_cast<std::size_t>(flow.count), -1);
    for (std::size_t m = 0; m < 4; ++m) {
      CHECK(flow.ends[m].rank == members[m]);
      for (const Segment& s : flow.ends[m].gives) {
        for (std::int64_t i = 0; i < s.count; ++i) {
          message[static_cast<std::size_t>(s.packed + i)] =
              static_cast<double>(m) * 1e9 + static_cast<double>(s.place.offset + i);
        }
      }
    }
    for (std::size_t to = 0; to < 4; ++to) {
      std::vector<double> got(1'000'000, -1);
      for (const Segment& s : flow.ends[to].takes) {
        for (std::int64_t i = 0; i < s.count; ++i) {
          got[static_cast<std::size_t>(s.place.offset + i)] = message[static_cast<std::size_t>(s.packed + i)];
        }
      }
      std::size_t at = 0;
      for (std::size_t from = 0; from < 4; ++from) {
        std::int64_t first = 0;
        for (std::size_t before = 0; before < to; ++before) first += count(from, before);
        for (std::int64_t i = 0; i < count(from, to); ++i, ++at) {
          REQUIRE(got[at] == static_cast<double>(from) * 1e9 + static_cast<double>(first + i));
        }
      }
      CHECK(got[at] == -1);
    }
    // As messages: what a rank sends to another is what that one expects from it, in one order.
    for (const Rank a : members) {
      for (const Rank b : members) {
        std::vector<std::int64_t> sent;
        std::vector<std::int64_t> expected;
        for (const Chunk& c : ring_plan(schedule, TaskId{0}, flow, a, 700).initial) {
          if (c.other == b) sent.insert(sent.end(), {c.begin, c.count});
        }
        for (const Chunk& c : ring_plan(schedule, TaskId{0}, flow, b, 700).received) {
          if (c.other == a) expected.insert(expected.end(), {c.begin, c.count});
        }
        CHECK(sent == expected);
        if (a == b) CHECK(sent.empty());
      }
    }
  }
}
