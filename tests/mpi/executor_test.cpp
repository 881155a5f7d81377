// Every schedule of the catalogue, executed by MPI processes on a toy model: what one device
// computes, and what threads send.
// Not: failing ranks (mpi/failure/failure_test.cpp).
#include "tawpipe/execute/mpi/executor.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "mpi/session_of_tests.hpp"
#include "support/toy_training.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/schedule/gradient_norm.hpp"

namespace executor_test {

using namespace tawpipe;
using support::ToyLayer;
using support::ToyOptimizer;
using support::ToyOutcome;
using support::ToyTokens;

namespace {

using Executor = mpi::MpiExecutor<double, ToyLayer<double>, ToyOptimizer<double>>;
constexpr int steps = 2;

/// Gradients and weights are those that this rank sees.
ToyOutcome train_by_mpi(const Schedule& schedule, const mpi::MpiOptions& options = {}, double clip = 0) {
  const LayerStack& model = schedule.workload().model();
  Executor executor{schedule, session_of_tests(), [&] { return ToyLayer<double>{model}; }, {}, options};
  ToyOutcome outcome;
  outcome.gradient.assign(static_cast<std::size_t>(model.parameters()), NAN);
  outcome.weights = outcome.gradient;
  support::set_toy_weights(executor.state());
  for (int step = 1; step <= steps; ++step) {
    const auto observe = [&](ParameterRange range, std::span<const double> gradients) {
      std::copy(gradients.begin(), gradients.end(), outcome.gradient.begin() + range.begin);
    };
    const Iteration args{.step = step, .learning_rate = 0.05, .gradient_clip = clip};
    outcome.results.push_back(executor.run(ToyTokens{model.token_ids}, args, observe));
  }
  read_weights(executor, [&](ParameterRange range, std::span<const double> numbers) {
    std::copy(numbers.begin(), numbers.end(), outcome.weights.begin() + range.begin);
  });
  return outcome;
}

const ToyOutcome& one_device(bool tied) {
  static std::map<bool, ToyOutcome> known;
  const auto at = known.find(tied);
  if (at != known.end()) return at->second;
  const Workload work = support::toy_work(support::toy_model(12, tied), 12);
  return known[tied] = support::train_by_threads(build_schedule("1f1b", {work, DeviceGroups{{1}}, {}}), steps);
}

/// The largest difference of numbers that this rank has. @param seen  counts them
double largest_difference(const std::vector<double>& own, const std::vector<double>& right, int& seen) {
  double largest = 0;
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (std::isnan(own[i])) continue;
    ++seen;
    largest = std::max(largest, std::isnan(right[i]) ? 1e300 : std::abs(own[i] - right[i]));
  }
  return largest;
}

std::vector<std::vector<std::int32_t>> groups_of(int ranks) {
  if (ranks == 2) return {{2}, {1, 1}};
  if (ranks == 4) return {{4}, {2, 2}, {2, 1, 1}};
  if (ranks == 6) return {{6}, {3, 3}, {2, 2, 2}, {3, 2, 1}};
  return {{ranks}};
}

}  // namespace

TEST_CASE("every schedule by MPI gives what one device gives, and sends what threads send") {
  const int ranks = session_of_tests().ranks();
  int executed = 0;
  for (const auto& info : shipped().schedules()) {
    for (const std::vector<std::int32_t>& nodes : groups_of(ranks)) {
      for (const bool tied : nodes.size() == 1 ? std::vector<bool>{true, false} : std::vector<bool>{nodes.size() == 2}) {
        CAPTURE(std::string{info.name});
        CAPTURE(tied);
        CAPTURE(nodes.size());
        const Workload work = support::toy_work(support::toy_model(12, tied), 12);
        ToyOutcome outcome;
        ToyOutcome threads;
        try {
          const Schedule schedule = build_schedule(info.name, {work, DeviceGroups{nodes}, {}});
          threads = support::train_by_threads(schedule, 1);
          outcome = train_by_mpi(schedule);
        } catch (const DeviceError&) {
          throw;
        } catch (const Error& error) {  // the same on all ranks: nothing has been sent yet
          if (session_of_tests().rank() == 0) MESSAGE(std::string{info.name} << " refuses: " << std::string{error.what()});
          continue;
        }
        ++executed;
        const ToyOutcome& one = one_device(tied);
        for (std::size_t i = 0; i < steps; ++i) {
          CHECK(outcome.results[i].loss() == doctest::Approx(one.results[i].loss()).epsilon(1e-12));
        }
        int seen = 0;
        CHECK(largest_difference(outcome.gradient, one.gradient, seen) < 1e-12);
        CHECK(largest_difference(outcome.weights, one.weights, seen) < 1e-12);
        CHECK((seen > 0 || session_of_tests().rank() > 0));  // the last shards of a small unit are padding
        for (std::size_t r = 0; r < outcome.results[0].sent.size(); ++r) {
          for (std::size_t p = 0; p < payloads; ++p) {
            CHECK(outcome.results[0].sent[r].by_payload[p] == threads.results[0].sent[r].by_payload[p]);
          }
        }
        CHECK(outcome.results[0].timeline.makespan() > Duration{});
      }
    }
  }
  CHECK(executed > 20);
}

TEST_CASE("replicas of every schedule by MPI give what one device gives, and send what threads send") {
  const int ranks = session_of_tests().ranks();
  const double clip = 0.01;
  const Workload whole = support::toy_work(support::toy_model(12, true), 12);
  const ToyOutcome one = support::train_by_threads(support::toy_alone(whole), steps, {}, clip);
  int executed = 0;
  for (const auto& info : shipped().schedules()) {
    for (const StateSharding sharding :
         {StateSharding::none, StateSharding::optimizer, StateSharding::gradients, StateSharding::parameters}) {
      CAPTURE(std::string{info.name});
      CAPTURE(std::string{name(sharding)});
      const Mesh mesh = Mesh{.data = sharding == StateSharding::gradients ? ranks : ranks / 2}.over(ranks);
      std::optional<Schedule> schedule;
      try {
        const Workload replica = support::toy_work(support::toy_model(12, true), 12 / mesh.data);
        schedule =
            with_gradient_norm(compose(build_schedule(info.name, {replica, DeviceGroups{{mesh.pipeline}}, {}}), whole, mesh,
                                       {.sharding = sharding, .overlap_gathers = sharding == StateSharding::optimizer}));
      } catch (const InputError&) {  // sizes that this schedule cannot have
        continue;
      }
      if (schedule->ranks() != ranks) continue;
      ++executed;
      const ToyOutcome threads = support::train_by_threads(*schedule, 1, {}, clip);
      const ToyOutcome outcome = train_by_mpi(*schedule, {}, clip);
      for (std::size_t i = 0; i < steps; ++i) {
        CHECK(outcome.results[i].loss() == doctest::Approx(one.results[i].loss()).epsilon(1e-12));
      }
      int seen = 0;
      CHECK(largest_difference(outcome.gradient, one.gradient, seen) < 1e-12);
      CHECK(largest_difference(outcome.weights, one.weights, seen) < 1e-12);
      CHECK(outcome.results[0].gradient_norm == doctest::Approx(one.results[0].gradient_norm).epsilon(1e-12));
      for (std::size_t r = 0; r < outcome.results[0].sent.size(); ++r) {
        CHECK(outcome.results[0].sent[r].by_payload == threads.results[0].sent[r].by_payload);
      }
    }
  }
  CHECK(executed > 60);
}

TEST_CASE("without overlap and with clipping, too: communications on the lane that computes") {
  const Workload work = support::toy_work(support::toy_model(12, true), 12);
  const DeviceGroups groups{groups_of(session_of_tests().ranks()).back()};
  const ToyOutcome one = support::train_by_threads(support::toy_alone(work), steps, {}, 0.01);
  CHECK(one.results[0].gradient_norm > 0.01);  // so that it clips
  for (const char* name : {"tawpipe", "weipipe", "fsdp", "1f1b"}) {
    CAPTURE(std::string{name});
    const Schedule schedule = with_gradient_norm(build_schedule(name, {work, groups, {{"overlap", "off"}}}));
    const ToyOutcome outcome = train_by_mpi(schedule, {}, 0.01);
    int seen = 0;
    CHECK(largest_difference(outcome.weights, one.weights, seen) < 1e-12);
    CHECK((seen > 0 || session_of_tests().rank() > 0));  // the last shards of a small unit are padding
    CHECK(outcome.results[0].gradient_norm == doctest::Approx(one.results[0].gradient_norm).epsilon(1e-12));
  }
}

TEST_CASE("with activations and optimizer states in host memory: the same bits, and nothing more is sent") {
  const Workload work = support::toy_work(support::toy_model(12, true), 12);
  const DeviceGroups groups{groups_of(session_of_tests().ranks()).back()};
  for (const char* name : {"tawpipe", "weipipe", "fsdp", "gpipe"}) {
    CAPTURE(std::string{name});
    const Schedule schedule = build_schedule(
        name, {.workload = work, .nodes = groups, .options = {}, .offload = {.activations = true, .optimizer = true}});
    const ToyOutcome plain = train_by_mpi(build_schedule(name, {work, groups, {}}));
    const ToyOutcome outcome = train_by_mpi(schedule);
    int seen = 0;
    CHECK(largest_difference(outcome.weights, plain.weights, seen) == 0);
    CHECK((seen > 0 || session_of_tests().rank() > 0));  // the last shards of a small unit are padding
    for (std::size_t r = 0; r < outcome.results[0].sent.size(); ++r) {
      CHECK(outcome.results[0].sent[r].total() == plain.results[0].sent[r].total());
    }
  }
}

TEST_CASE("the root gets from each rank what that one knows") {
  const int ranks = session_of_tests().ranks();
  const Workload work = support::toy_work(support::toy_model(12, true), 12);
  const Schedule schedule = build_schedule("gpipe", {work, DeviceGroups{{ranks}}, {}});
  Executor executor{schedule, session_of_tests(), [&] { return ToyLayer<double>{work.model()}; }, {}};
  const auto count = static_cast<std::size_t>(3 * ranks);
  std::vector<double> values(count, -1);
  std::vector<char> known(count, 0);
  for (std::size_t i = 0; i < count; ++i) {  // rank r knows r, r + ranks, and all of the last third
    if (static_cast<int>(i) % ranks != session_of_tests().rank() && static_cast<int>(i) < 2 * ranks) continue;
    values[i] = static_cast<double>(i);
    known[i] = 1;
  }
  executor.gather(values, known);
  CHECK(executor.is_root() == (session_of_tests().rank() == 0));
  for (std::size_t i = 0; executor.is_root() && i < count; ++i) CHECK(values[i] == static_cast<double>(i));
}

TEST_CASE("the same run gives the same bits, also with messages of single numbers") {
  const int ranks = session_of_tests().ranks();
  for (const char* name : {"tawpipe", "weipipe"}) {
    const Workload work = support::toy_work(support::toy_model(12, false), 12);
    const Schedule schedule = build_schedule(name, {work, DeviceGroups{{ranks}}, {}});
    const ToyOutcome first = train_by_mpi(schedule);
    const ToyOutcome again = train_by_mpi(schedule);
    const ToyOutcome chunked = train_by_mpi(schedule, {.chunk_bytes = 8, .gather_timeline = false});
    const auto equal = [](const std::vector<double>& a, const std::vector<double>& b) {
      bool same = a.size() == b.size();
      for (std::size_t i = 0; same && i < a.size(); ++i) same = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]));
      return same;
    };
    CHECK(equal(first.weights, again.weights));
    CHECK(equal(first.weights, chunked.weights));
    CHECK(first.results[1].losses == again.results[1].losses);
  }
}

TEST_CASE("what one rank is told to stop for, all know after the same step") {
  mpi::Session& session = session_of_tests();
  const Workload work = support::toy_work(support::toy_model(12, false), 12);
  const Schedule schedule = build_schedule("1f1b", {work, DeviceGroups{{session.ranks()}}, {}});
  for (const bool timeline : {true, false}) {
    Executor executor{schedule, session, [&] { return ToyLayer<double>{work.model()}; }, {}, {.gather_timeline = timeline}};
    support::set_toy_weights(executor.state());
    for (int step = 1; step <= 4; ++step) {
      Iteration args{.step = step, .learning_rate = 0.05};
      if (step > 1) args.stop = [&] { return step == 3 && session.rank() == session.ranks() - 1 ? 15 : 0; };
      CHECK(executor.run(ToyTokens{work.model().token_ids}, args).stop == (step == 3 ? 15 : 0));
    }
  }
}

TEST_CASE("timelines start at zero, and a task ends before what waits for it on the same rank starts") {
  const int ranks = session_of_tests().ranks();
  const Workload work = support::toy_work(support::toy_model(12, false), 12);
  const Schedule schedule = build_schedule("tawpipe", {work, DeviceGroups{{ranks}}, {}});
  const ToyOutcome outcome = train_by_mpi(schedule);
  const Timeline& timeline = outcome.results[1].timeline;
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const TaskId task = id<TaskId>(t);
    CHECK(timeline.start_of(task).picoseconds() >= 0);
    CHECK(timeline.end_of(task) >= timeline.start_of(task));
    if (!is_compute(schedule.task(task).op)) continue;
    for (const TaskId earlier : schedule.dependencies(task)) {
      if (is_compute(schedule.task(earlier).op)) CHECK(timeline.end_of(earlier) <= timeline.start_of(task));
    }
  }
}

TEST_CASE("a schedule of other than MPI's ranks is refused, both numbers named") {
  mpi::Session& session = session_of_tests();
  const Workload work = support::toy_work(support::toy_model(12, false), 12);
  const Schedule schedule = build_schedule("gpipe", {work, DeviceGroups{{session.ranks() + 1}}, {}});
  const auto make = [&] { return ToyLayer<double>{work.model()}; };
  const std::string expected = concat("the schedule has ", session.ranks() + 1, " ranks and MPI has ", session.ranks(),
                                      " processes; start mpirun with -np ", session.ranks() + 1);
  CHECK_THROWS_WITH_AS(Executor(schedule, session, make, {}), expected.c_str(), InputError);
}

TEST_CASE("hosts are groups where ranks are numbered host by host") {
  CHECK(mpi::nodes_of(session_of_tests()).count() == 1);  // the tests run on one host
  CHECK(mpi::nodes_of(session_of_tests()).ranks() == session_of_tests().ranks());
  const DeviceGroups groups = mpi::nodes_of(std::vector<int>{0, 0, 0, 3, 3, 5});
  REQUIRE(groups.count() == 3);
  CHECK(groups.size(0) == 3);
  CHECK(groups.size(1) == 2);
  CHECK(groups.size(2) == 1);
  CHECK_THROWS_WITH_AS(mpi::nodes_of(std::vector<int>{0, 1, 0}),
                       "ranks 0 and 2 are on one host and rank 1 is on another; ranks must be numbered host by host: start with "
                       "mpirun --map-by slot (or ppr:N:node with --rank-by slot)",
                       InputError);
}

}  // namespace executor_test
