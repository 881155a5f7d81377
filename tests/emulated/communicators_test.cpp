// What every schedule of the catalogue calls on its communicators, against NCCL's rules.
#include "tawpipe/execute/cuda/communicators.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "support/clusters.hpp"
#include "support/each_schedule.hpp"
#include "support/nccl_rules.hpp"
#include "support/null_device.hpp"
#include "support/toy_device_training.hpp"
#include "tawpipe/cost/roofline.hpp"
#include "tawpipe/execute/cuda/nccl_executor.hpp"
#include "tawpipe/schedule/gradient_norm.hpp"
#include "tawpipe/simulate/simulate.hpp"

using namespace support;
using namespace tawpipe;

namespace {

using LoggingCommunicator = TestCommunicator<NcclLog, NullDevice::Stream>;
using LoggingExecutor = cuda::NcclExecutor<NullDevice, LoggingCommunicator, NullLayer, NullUpdate>;

/// The calls of one iteration, and the most communicators that a rank has.
std::size_t log_iteration(const Schedule& schedule, NcclLog& log, const Timeline* expected = nullptr) {
  const auto family = std::make_shared<LoggingCommunicator::Family>();
  std::size_t most = 0;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    log.at(rank);
    LoggingExecutor executor{
        schedule,     NullDevice{},          LoggingCommunicator{log, family, rank, schedule.ranks()}, [] { return NullLayer{}; },
        NullUpdate{}, {.expected = expected}};
    executor.start(ToyTokens{schedule.workload().model().token_ids}, {});
    most = std::max(most, executor.communicators());
  }
  return most;
}

std::string first_of(const std::vector<std::string>& rules) { return rules.empty() ? "" : rules.front(); }

}  // namespace

TEST_CASE("every schedule keeps NCCL's rules") {
  const Workload work = toy_work_f32(toy_model(24, true), 24);
  for_each_schedule(work, {{1}, {4}, {2, 2}, {2, 2, 2}, {3, 2, 1}}, [](const Schedule& schedule) {
    NcclLog log;
    const std::size_t most = log_iteration(schedule, log);
    CHECK(first_of(log.broken_rules()) == "");
    CHECK(log.calls() > 0);
    CHECK(most <= 13);
  });
}

TEST_CASE("an all_to_all is a message each way between each pair that has one, all in one group of calls") {
  const Workload work = toy_work_f32(toy_model(4, false), 1);
  for (const bool even : {true, false}) {
    ScheduleBuilder b{"all-to-all", work, 4, {"compute", "communication"}};
    b.stages(work.split(1));
    std::vector<Use> uses;
    for (int r = 0; r < 4; ++r) {
      for (const Access access : {Access::read, Access::write}) {
        uses.push_back({b.persistent(r, Content{ContentKind::activation, StageId{0}, 0}, Bytes{4096}), access});
      }
    }
    Task task{.op = Op::all_to_all, .payload = Payload::activations, .lane = LaneId{1}, .rank = Rank{2}};
    task.group = b.group({Rank{2}, Rank{0}, Rank{3}, Rank{1}});
    task.bytes = Bytes{1024};
    std::vector<Bytes> sizes(16, Bytes{256});
    sizes[1] = Bytes{};  // from the group's first to its second: nothing
    if (!even) task.split = b.pair_sizes(sizes);
    b.add(task, uses);
    NcclLog log;
    log_iteration(b.build(), log);
    CHECK(first_of(log.broken_rules()) == "");
    std::size_t messages = 0;
    for (const auto& entries : log.entries()) {
      for (const auto& entry : entries) messages += entry.calls[0].is_pair() ? entry.calls.size() : 0;
    }
    CHECK(messages == (even ? 24 : 22));
  }
}

TEST_CASE("schedules of 24 ranks keep NCCL's rules with few communicators a rank") {
  const Workload work = toy_work_f32(toy_model(24, true), 24);
  const std::vector<std::pair<const char*, std::size_t>> most{
      {"tawpipe", 9}, {"weipipe-zb1", 10}, {"weipipe-zb2", 12}, {"zb-h1", 5}, {"1f1b", 5}, {"hpz", 6}, {"hsdp", 4}};
  for (const auto& one : most) {
    CAPTURE(std::string{one.first});
    NcclLog log;
    const Schedule schedule = build_schedule(one.first, {.workload = work, .nodes = DeviceGroups{{8, 8, 8}}, .options = {}});
    CHECK(log_iteration(schedule, log) <= one.second);
    CHECK(first_of(log.broken_rules()) == "");
  }
}

TEST_CASE(
    "every schedule keeps NCCL's rules with a gradient norm, in the order of an expected timeline, and where nothing divides") {
  const Cluster cluster = nodes_of({3, 2});
  for_each_schedule(toy_work_f32(toy_model(7, false), 8), {{3, 2}}, [&](const Schedule& plain) {
    const Schedule schedule = with_gradient_norm(plain);
    const Timeline expected = simulate(schedule, cluster, RooflineCost{});
    NcclLog log;
    log_iteration(schedule, log, &expected);
    CHECK(first_of(log.broken_rules()) == "");
  });
}

TEST_CASE("streams that communicate come before the one that computes") {
  const Schedule schedule = build_schedule(
      "tawpipe", {.workload = toy_work_f32(toy_model(12, true), 12), .nodes = DeviceGroups{{2, 2}}, .options = {}});
  NcclLog log;
  std::vector<cuda::Priority> priorities;
  NullDevice device;
  device.priorities = &priorities;
  log.at(0);
  const LoggingExecutor executor{schedule, std::move(device),
                                 LoggingCommunicator{log, std::make_shared<LoggingCommunicator::Family>(), 0, 4},
                                 [] { return NullLayer{}; }, NullUpdate{}};
  REQUIRE(priorities.size() > 2);
  CHECK(priorities.front() == cuda::Priority::normal);
  CHECK(std::count(priorities.begin(), priorities.end(), cuda::Priority::high) == std::ssize(priorities) - 1);
}

namespace {

struct NoTokens {
  void fetch(std::int64_t, std::int32_t, std::span<std::int32_t>, std::span<std::int32_t>) const {
    throw DeviceError("the disk is gone");
  }
};

}  // namespace

TEST_CASE("an executor that fails tells of it, drops its graphs, then aborts all its communicators at once") {
  const Schedule schedule = build_schedule(
      "tawpipe", {.workload = toy_work_f32(toy_model(12, true), 12), .nodes = DeviceGroups{{2, 2}}, .options = {}});
  NcclLog calls;
  std::vector<std::string> log;
  const auto family = std::make_shared<LoggingCommunicator::Family>();
  family->log = &log;
  NullDevice device;
  device.log = &log;
  calls.at(0);
  LoggingExecutor executor{schedule,
                           std::move(device),
                           LoggingCommunicator{calls, family, 0, 4},
                           [] { return NullLayer{}; },
                           NullUpdate{},
                           {.failed = [&](const std::string& why) { log.push_back(why); }}};
  const std::size_t communicators = executor.communicators() + 1;  // and that of all ranks
  REQUIRE(communicators > 2);
  CHECK_THROWS_WITH_AS(executor.start(NoTokens{}, {}), "the disk is gone", DeviceError);
  CHECK(log == std::vector<std::string>{"the disk is gone", "graphs dropped", concat(communicators, " communicators aborted")});
  CHECK_THROWS_WITH_AS(executor.start(ToyTokens{7}, {}), "this executor has failed; the program should end", DeviceError);
}

TEST_CASE("a broken rule is found") {
  const Workload work = toy_work_f32(toy_model(12, true), 12);
  const auto logged = [&](const char* name) {
    NcclLog log;
    log_iteration(build_schedule(name, {.workload = work, .nodes = DeviceGroups{{2, 2}}, .options = {}}), log);
    REQUIRE(log.broken_rules().empty());
    return log;
  };
  const auto is_pair = [](const NcclLog::Entry& entry) { return entry.calls[0].is_pair(); };
  {
    NcclLog log = logged("fsdp");  // the order of two collectives
    auto& calls = log.entries()[1];
    const auto differs = std::adjacent_find(calls.begin(), calls.end(), [](const NcclLog::Entry& a, const NcclLog::Entry& b) {
      return a.communicator == b.communicator && a.calls[0].count != b.calls[0].count;
    });
    REQUIRE(differs != calls.end());
    std::iter_swap(differs, differs + 1);
    CHECK(first_of(log.broken_rules()).find("call different collectives") != std::string::npos);
  }
  {
    NcclLog log = logged("fsdp");  // the order of calls on two communicators
    auto& calls = log.entries()[1];
    const auto differs = std::adjacent_find(calls.begin(), calls.end(), [](const NcclLog::Entry& a, const NcclLog::Entry& b) {
      return a.communicator != b.communicator;
    });
    REQUIRE(differs != calls.end());
    std::iter_swap(differs, differs + 1);
    CHECK(first_of(log.broken_rules()).find("hangs at its call") != std::string::npos);
  }
  {
    NcclLog log = logged("zb-h1");  // a receive left out
    auto& calls = log.entries()[2];
    calls.erase(std::find_if(calls.begin(), calls.end(), is_pair));
    CHECK(first_of(log.broken_rules()).find("do not match their receives") != std::string::npos);
  }
  {
    NcclLog log = logged("1f1b");  // an exchange that is no group
    for (auto& calls : log.entries()) {
      for (std::size_t i = 0; i < calls.size(); ++i) {
        if (calls[i].calls.size() < 2) continue;
        NcclLog::Entry second = calls[i];
        second.calls.erase(second.calls.begin());
        calls[i].calls.pop_back();
        calls.insert(calls.begin() + static_cast<std::ptrdiff_t>(i) + 1, second);
      }
    }
    CHECK(first_of(log.broken_rules()).find("hangs at its call") != std::string::npos);
  }
  {
    NcclLog log = logged("1f1b");  // a send and a receive of the same memory in one group
    for (auto& entry : log.entries()[0]) {
      if (entry.calls.size() == 2) entry.calls[1].to = const_cast<std::byte*>(entry.calls[0].from);
    }
    CHECK(first_of(log.broken_rules()).find("writes what") != std::string::npos);
  }
  {
    NcclLog log = logged("tawpipe");  // a broadcast without a source where it is not the root
    for (auto& calls : log.entries()) {
      for (auto& entry : calls) {
        CommunicatorCall& call = entry.calls[0];
        if (call.kind == CommunicatorCall::Kind::broadcast && call.peer != entry.member) call.from = nullptr;
      }
    }
    CHECK(first_of(log.broken_rules()).find("lacks a source") != std::string::npos);
  }
  {
    NcclLog log = logged("1f1b");  // an all-reduce in place on some members only
    for (auto& entry : log.entries()[1]) {
      if (entry.calls[0].kind == CommunicatorCall::Kind::all_reduce) ++entry.calls[0].to;
    }
    CHECK(first_of(log.broken_rules()).find("call different collectives") != std::string::npos);
  }
  {
    NcclLog log = logged("zb-h1");  // two lanes on one communicator
    for (auto& entry : log.entries()[0])
      entry.communicator = is_pair(entry) ? log.entries()[0][1].communicator : entry.communicator;
    CHECK(!log.broken_rules().empty());
  }
}
