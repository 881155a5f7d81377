// The messages of TawPipe and WeiPipe against traces recorded from runs of the published
// implementations (data/traces).
// Not: when messages travel, which the traces do not say beyond a lock-step count.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "support/clusters.hpp"
#include "support/csv.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/schedules/tawpipe.hpp"
#include "tawpipe/schedules/weipipe.hpp"

namespace traces_test {

using tawpipe::concat;
using tawpipe::DeviceGroups;
using tawpipe::Op;
using tawpipe::Payload;
using tawpipe::Schedule;
using tawpipe::TaskId;
using tawpipe::Workload;
using tawpipe::schedules::TawpipeOptions;

namespace {

/// A message as one line: "step what shard source -> destinations". A set in which none may occur
/// twice.
using Lines = std::set<std::string>;

void insert(Lines& lines, const std::string& line) { CHECK_MESSAGE(lines.insert(line).second, "twice: " << line); }

std::string others(std::vector<int> members, int except) {
  std::erase(members, except);
  std::sort(members.begin(), members.end());
  std::string text;
  for (const int member : members) text += concat(text.empty() ? "" : ";", member);
  return text;
}

Lines traced_messages(const std::string& file) {
  Lines lines;
  for (auto& row : support::read_csv(TAWPIPE_TEST_DATA "/traces/" + file)) {
    if (row["useful"] != "1") continue;
    std::string from = row["src"];
    std::string to = row["dst"];
    std::string step = row["step"];
    std::string shard = row["shard"];
    const bool gradients = row["kind"].find("grad") != std::string::npos || row["op"] == "all_reduce";
    const std::string what = gradients ? " gradients" : " weights";
    if (row["op"] == "all_reduce") step = shard = "";  // it ends the iteration and belongs to no shard
    insert(lines, concat(step, " ", row["op"], what, " ", shard, " ", from, " -> ", to));
  }
  return lines;
}

Lines scheduled_messages(const Schedule& schedule) {
  Lines lines;
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const auto& task = schedule.task(tawpipe::id<TaskId>(t));
    if (tawpipe::is_compute(task.op)) continue;
    const std::string what = task.payload == Payload::weights ? " weights" : " gradients";
    const std::string shard = concat("W", number(task.stage));
    if (task.op == Op::pass) {
      insert(lines, concat(task.step, " send", what, " ", shard, " ", number(task.rank), " -> ", number(task.peer)));
      continue;
    }
    std::vector<int> members;
    for (const auto rank : schedule.group(task.group)) members.push_back(number(rank));
    const std::string rest = others(members, number(task.rank));
    switch (task.op) {
      case Op::broadcast:
        insert(lines, concat(task.step, " broadcast", what, " ", shard, " ", number(task.rank), " -> ", rest));
        break;
      case Op::reduce:
        insert(lines, concat(task.step, " reduce", what, " ", shard, " ", rest, " -> ", number(task.rank)));
        break;
      default:
        CHECK(task.op == Op::all_reduce);
        CHECK(task.payload == Payload::edge_gradients);
        CHECK(static_cast<int>(members.size()) == schedule.ranks());
        insert(lines, " all_reduce gradients  all -> all");
    }
  }
  return lines;
}

Lines traced_computations(const std::string& file) {
  Lines lines;
  for (auto& row : support::read_csv(TAWPIPE_TEST_DATA "/traces/" + file)) {
    insert(lines, concat(row["step"], " ", row["phase"], " ", row["shard"], " on ", row["rank"]));
  }
  return lines;
}

Lines scheduled_computations(const Schedule& schedule) {
  Lines lines;
  for (const auto& task : schedule.tasks()) {
    if (task.op != Op::forward && task.op != Op::backward) continue;
    insert(lines, concat(task.step, task.op == Op::forward ? " F W" : " B W", number(task.stage), " on ", number(task.rank)));
  }
  return lines;
}

void check_equal(const Lines& found, const Lines& expected) {
  REQUIRE(!expected.empty());
  for (const auto& line : expected) CHECK_MESSAGE(found.contains(line), "not in the schedule: " << line);
  for (const auto& line : found) CHECK_MESSAGE(expected.contains(line), "not in the trace: " << line);
}

/// How many shards travel: a broadcast or reduce among n members counts n - 1 times "on the wire".
struct Volumes {
  std::int64_t broadcasts = 0;
  std::int64_t broadcast_wire = 0;
  std::int64_t weight_sends = 0;
  std::int64_t reduces = 0;
  std::int64_t reduce_wire = 0;
  std::int64_t gradient_sends = 0;

  std::int64_t wire() const { return broadcast_wire + weight_sends + reduce_wire + gradient_sends; }
};

Volumes volumes(const Schedule& schedule) {
  Volumes sum;
  for (const auto& task : schedule.tasks()) {
    if (tawpipe::is_compute(task.op)) continue;
    CHECK(task.bytes.value() == 1'000'000);  // an abstract shard
    if (task.op == Op::pass) {
      ++(task.payload == Payload::weights ? sum.weight_sends : sum.gradient_sends);
      continue;
    }
    const auto receivers = static_cast<std::int64_t>(schedule.group(task.group).size()) - 1;
    ++(task.op == Op::broadcast ? sum.broadcasts : sum.reduces);
    (task.op == Op::broadcast ? sum.broadcast_wire : sum.reduce_wire) += receivers;
  }
  return sum;
}

Schedule tawpipe_of(const Workload& work, int ranks, int groups, const TawpipeOptions& options = {}) {
  return tawpipe::schedules::tawpipe(work, DeviceGroups::even(ranks, groups), options);
}

struct Run {
  int ranks;
  int groups;
  int rounds;
};
const Run tawpipe_runs[] = {{4, 2, 1}, {6, 2, 1}, {6, 3, 1}, {6, 2, 2}, {6, 3, 2}};

std::string suffix(const Run& run) { return concat(run.ranks, "r_", run.groups, "g_acc", run.rounds, ".csv"); }

}  // namespace

TEST_CASE("TawPipe sends exactly the messages that the published code needs, in the same steps") {
  for (const Run& run : tawpipe_runs) {
    CAPTURE(suffix(run));
    const Lines expected = traced_messages("tawpipe_trace_" + suffix(run));
    const Workload work = support::transformer(run.ranks, run.rounds * run.ranks);
    for (const auto order : {tawpipe::schedules::Order::eager, tawpipe::schedules::Order::paper}) {
      for (const bool overlap : {true, false}) {
        check_equal(scheduled_messages(tawpipe_of(work, run.ranks, run.groups, {.order = order, .overlap = overlap})), expected);
      }
    }
  }
}

TEST_CASE("TawPipe computes what the published code computes, in the same steps") {
  for (const Run& run : tawpipe_runs) {
    CAPTURE(suffix(run));
    const Workload work = Workload::abstract(run.ranks, run.rounds * run.ranks);
    check_equal(scheduled_computations(tawpipe_of(work, run.ranks, run.groups)),
                traced_computations("tawpipe_compute_" + suffix(run)));
  }
}

TEST_CASE("WeiPipe sends exactly the messages of the published code with its two faults mended, in the same steps") {
  for (const int rounds : {1, 2}) {
    const Schedule schedule = tawpipe::schedules::weipipe(support::transformer(4, 4 * rounds), 4);
    check_equal(scheduled_messages(schedule), traced_messages(concat("weipipe_trace_4r_acc", rounds, ".csv")));
    check_equal(scheduled_computations(schedule), traced_computations(concat("weipipe_compute_4r_acc", rounds, ".csv")));
  }
}

TEST_CASE("TawPipe's volumes as they were counted in the recorded runs") {
  struct Counted {
    Run run;
    std::int64_t broadcasts, broadcast_wire, weight_sends, reduces, reduce_wire, gradient_sends, wire;
  };
  const Counted runs[] = {{{6, 2, 1}, 22, 44, 11, 12, 24, 6, 85},
                          {{6, 3, 1}, 33, 33, 22, 18, 18, 12, 85},
                          {{6, 2, 2}, 42, 84, 21, 24, 48, 12, 165},
                          {{6, 3, 2}, 63, 63, 42, 36, 36, 24, 165},
                          {{4, 2, 1}, 14, 14, 7, 8, 8, 4, 33}};
  for (const Counted& counted : runs) {
    const auto& [ranks, groups, rounds] = counted.run;
    const Volumes found = volumes(tawpipe_of(Workload::abstract(ranks, rounds * ranks), ranks, groups));
    CHECK(found.broadcasts == counted.broadcasts);
    CHECK(found.broadcast_wire == counted.broadcast_wire);
    CHECK(found.weight_sends == counted.weight_sends);
    CHECK(found.reduces == counted.reduces);
    CHECK(found.reduce_wire == counted.reduce_wire);
    CHECK(found.gradient_sends == counted.gradient_sends);
    CHECK(found.wire() == counted.wire);
  }
}

TEST_CASE("TawPipe's volumes in closed form, for other sizes") {
  for (int n = 2; n <= 24; ++n) {
    for (int g = 1; g <= n; ++g) {
      if (n % g != 0) continue;
      for (const std::int64_t a : {1, 2, 3}) {
        CAPTURE(n);
        CAPTURE(g);
        CAPTURE(a);
        // Each group needs a shard N times in its first forwards and, since the turning shards
        // stay, N-1 times in each of the other 2a-1 passes; each of its N a gradients is collected
        // once. A group of one device has no collectives.
        const std::int64_t deliveries = n + (n - 1) * (2 * a - 1);
        const std::int64_t size = n / g;
        const std::int64_t collectives = size > 1 ? g : 0;
        const Volumes found = volumes(tawpipe_of(Workload::abstract(n, a * n), n, g));
        CHECK(found.broadcasts == collectives * deliveries);
        CHECK(found.broadcast_wire == (size - 1) * g * deliveries);
        CHECK(found.weight_sends == (g - 1) * deliveries);
        CHECK(found.reduces == collectives * n * a);
        CHECK(found.reduce_wire == (size - 1) * g * n * a);
        CHECK(found.gradient_sends == (g - 1) * n * a);
        CHECK(found.wire() == (n - 1) * (deliveries + n * a));  // whatever the groups
      }
    }
  }
}

TEST_CASE("WeiPipe's volumes as they were counted in the recorded runs") {
  struct Counted {
    int ranks, rounds;
    std::int64_t weights, gradients, zeros;
  };
  // Forward + backward weights, gradients, and of those the all-zero ones that the published code
  // sends while the ranks have nothing to add yet: 20 + 28, 28 and 32 + 44, 44 with 0 + 1 + 2 + 3 =
  // 6 zeros; six ranks: 0 + ... + 5 = 15 zeros.
  const Counted runs[] = {{4, 1, 48, 28, 6}, {4, 2, 76, 44, 6}, {6, 1, 54 + 66, 66, 15}, {6, 2, 84 + 102, 102, 15}};
  for (const Counted& counted : runs) {
    CAPTURE(counted.ranks);
    CAPTURE(counted.rounds);
    const Volumes found =
        volumes(tawpipe::schedules::weipipe(Workload::abstract(counted.ranks, counted.ranks * counted.rounds), counted.ranks));
    CHECK(found.weight_sends == counted.weights);
    CHECK(found.gradient_sends == counted.gradients - counted.zeros);
    CHECK(found.broadcasts + found.reduces == 0);
  }
}

TEST_CASE("what an added round costs: TawPipe (3N-2)(N-1) shards on the wire, WeiPipe N(3N-1)") {
  for (int n = 2; n <= 12; ++n) {
    CAPTURE(n);
    const auto taw = [&](int rounds) { return volumes(tawpipe_of(Workload::abstract(n, rounds * n), n, 1)).wire(); };
    const auto wei = [&](int rounds) {
      return volumes(tawpipe::schedules::weipipe(Workload::abstract(n, rounds * n), n)).wire();
    };
    CHECK(taw(3) - taw(2) == (3 * n - 2) * (n - 1));
    CHECK(wei(3) - wei(2) == n * (3 * n - 1));
  }
}

}  // namespace traces_test
