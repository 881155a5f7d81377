// Every schedule of the catalogue by ranks with emulated devices and communicators that run in
// random orders: the host's bits.
#include "tawpipe/execute/cuda/nccl_executor.hpp"

#include <doctest/doctest.h>

#include <string>
#include <thread>
#include <vector>

#include "schedules.hpp"
#include "support/clusters.hpp"
#include "support/device_executor_cases.hpp"
#include "support/each_schedule.hpp"
#include "support/toy_device_training.hpp"
#include "tawpipe/analysis/traffic.hpp"
#include "tawpipe/schedule/gradient_norm.hpp"

using namespace support;
using namespace tawpipe;

namespace {

const auto train = [](const Schedule& schedule, int steps, const EmulatedOrder& order, const cuda::ExecutorOptions& options) {
  return train_f32_by_ranks(schedule, steps, order, options);
};

}  // namespace

TEST_CASE("ranks with communicators give the host executor's bits under every schedule, in any order of streams") {
  check_bits_in_any_order(train);
}

TEST_CASE("ranks with communicators train microbatches and layers that do not divide") { check_bits_of_uneven_parts(train); }

TEST_CASE("ranks with communicators give the same bits with activations and states in host memory") {
  check_bits_with_offload(train);
}

TEST_CASE("ranks with communicators clip, and a graph gives the same bits") {
  const Workload work = toy_work_f32(toy_model(6, true), 6);
  for_each_schedule(work, {{1}, {2, 1}}, [](const Schedule& plain) {
    const Schedule schedule = with_gradient_norm(plain);
    const ToyBits expected = train_f32_by_virtual_ranks(schedule, 3, {.seed = 1}, {}, 0.5);
    const bool same = train_f32_by_ranks(schedule, 3, {.seed = 1}, {}, 0.5) == expected;
    CHECK(same);
    const bool captured = train_f32_by_ranks(schedule, 3, {.seed = 2}, {.graph = true}, 0.5) == expected;
    CHECK(captured);
  });
}

TEST_CASE("ranks with communicators send what the simulator says") {
  const Workload work = toy_work_f32(toy_model(12, false), 12);
  const Cluster cluster = nodes_of({2, 2});
  for_each_schedule(work, {{2, 2}}, [&](const Schedule& schedule) {
    std::vector<IterationResult> results;
    train_f32_by_ranks(schedule, 1, {.seed = 5}, {}, 0, &results);
    const Traffic predicted = traffic(schedule, cluster);
    for (std::size_t r = 0; r < 4; ++r) CHECK(results[0].sent[r].total() == predicted.rank_sent_bytes[r]);
  });
}

TEST_CASE("ranks with communicators give the same bits where memory is laid out for an expected timeline") {
  check_bits_by_expected_timeline(train, [](const Schedule&, const Timeline&) {});
}

TEST_CASE("ranks as threads gather the timeline and values of all, and stop where one was told to") {
  const Workload work = toy_work_f32(toy_model(6, true), 6);
  const Schedule schedule = build_schedule("tawpipe", {.workload = work, .nodes = DeviceGroups{{2, 1}}, .options = {}});
  ToyRanks ranks{schedule, {.seed = 3, .threads = true}, {}};
  std::vector<IterationResult> results(3);
  std::vector<std::vector<float>> values(3, std::vector<float>(400000, -1));
  {
    std::vector<std::jthread> threads;
    for (std::size_t r = 0; r < 3; ++r) {
      threads.emplace_back([&, r] {
        Iteration args = toy_step(1, 0);
        args.stop = [r] { return r == 1 ? 15 : 0; };
        results[r] = ranks.executors[r].run(ToyTokens{7}, args);
        std::vector<char> known(values[r].size(), 0);
        for (std::size_t i = r; i < known.size(); i += 3) {
          known[i] = 1;
          values[r][i] = static_cast<float>(i);
        }
        ranks.executors[r].gather(values[r], known);
      });
    }
  }
  const ToyBits expected = train_f32_by_threads(schedule, 1);
  for (std::size_t r = 0; r < 3; ++r) {
    CHECK(results[r].losses == expected.losses[0]);
    CHECK(results[r].timeline == results[0].timeline);
    CHECK(results[r].stop == 15);
    int early = 0;
    for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
      if (results[r].timeline.end_of(id<TaskId>(t)) <= results[r].timeline.start_of(id<TaskId>(t))) ++early;
    }
    CHECK(early == 0);
    int wrong = 0;
    for (std::size_t i = 0; i < values[r].size(); ++i) wrong += values[r][i] == static_cast<float>(i) ? 0 : 1;
    CHECK(wrong == 0);
  }
}

TEST_CASE("a communicator of other ranks is refused") {
  const Workload work = toy_work_f32(toy_model(6, true), 6);
  const Schedule schedule = build_schedule("tawpipe", {.workload = work, .nodes = DeviceGroups{{2, 2}}, .options = {}});
  EmulatedMachine machine{{}};
  const auto make = [&] {
    ToyNcclExecutor executor{schedule, EmulatedDevice{machine, 0},
                             EmulatedCommunicator{machine, std::make_shared<EmulatedCommunicator::Family>(), 0, 3},
                             [&] {
                               return ToyDeviceLayer{machine, ToyLayer<float>{work.model()}};
                             },
                             ToyDeviceUpdate{machine, {}}};
  };
  CHECK_THROWS_WITH_AS(make(), doctest::Contains("the schedule has 4 ranks and the communicator 3"), InputError);
}

TEST_CASE("the emulation shows a missing wait, a message that does not match and a hang") {
  int differs = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    for (const bool waits : {true, false}) {
      EmulatedMachine machine{{.seed = seed}};
      const int first = machine.make_stream(0);
      const int second = machine.make_stream(0);
      const int event = machine.make_event();
      const int end = machine.make_event();
      int value = 0;
      int seen = -1;
      machine.enqueue(first, [&] { value = 1; });
      machine.record(event, first);
      if (waits) machine.wait(second, event);
      machine.enqueue(second, [&] { seen = value; });
      machine.record(end, second);
      while (!machine.finished(end)) {
      }
      if (waits) CHECK(seen == 1);
      if (seen != 1) ++differs;
    }
  }
  CHECK(differs > 3);

  const auto exchange = [](std::int64_t sent, std::int64_t received, bool grouped, bool answers) {
    EmulatedMachine machine{{}};
    const auto family = std::make_shared<EmulatedCommunicator::Family>();
    std::vector<EmulatedDevice> devices{{machine, 0}, {machine, 1}};
    std::vector<float> memory(16, 0);
    std::byte* at = reinterpret_cast<std::byte*>(memory.data());
    EmulatedDevice::Event end;
    for (int r = 0; r < (answers ? 2 : 1); ++r) {
      EmulatedDevice& device = devices[static_cast<std::size_t>(r)];
      EmulatedCommunicator comm{machine, family, r, 2};
      const auto stream = device.make_stream(cuda::Priority::normal);
      if (grouped) comm.group_begin();
      comm.send(at, sent, Dtype::f32, 1 - r, stream);
      comm.receive(at + 32, received, Dtype::f32, 1 - r, stream);
      if (grouped) comm.group_end();
      end = device.make_event(false);
      device.record(end, stream);
    }
    while (!devices[0].finished(end)) {
    }
  };
  CHECK_NOTHROW(exchange(2, 2, true, true));
  CHECK_THROWS_WITH_AS(exchange(2, 2, false, true), doctest::Contains("hangs"), DeviceError);
  CHECK_THROWS_WITH_AS(exchange(2, 2, true, false), doctest::Contains("hangs"), DeviceError);
  CHECK_THROWS_WITH_AS(exchange(2, 3, true, true), "a send and its receive differ", DeviceError);
}
