// Replicas of every schedule, executed by threads on a toy model: sums over replicas, shared states,
// clipping; gradients and weights equal one device's, bytes the simulator's.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "support/clusters.hpp"
#include "support/toy_training.hpp"
#include "tawpipe/analysis/traffic.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/schedule/gradient_norm.hpp"
#include "tawpipe/verify/validate.hpp"

using namespace support;
using namespace tawpipe;

namespace composed_test {

constexpr StateSharding shardings[] = {StateSharding::none, StateSharding::optimizer, StateSharding::gradients,
                                       StateSharding::parameters};

/// A replica's schedule, on that many ranks.
Schedule built(const std::string& name, const Workload& replica, int ranks, const Offload& offload = {}) {
  return build_schedule(name, {.workload = replica, .nodes = DeviceGroups{{ranks}}, .options = {}, .offload = offload});
}

/// Calls `visit(name, ranks, logical)` for the shipped schedules of a replica.
template <class Visit>
void for_each_schedule(const Workload& replica, const std::vector<int>& sizes, Visit&& visit) {
  for (const auto& info : shipped().schedules()) {
    for (const int ranks : sizes) {
      const std::string name{info.name};
      CAPTURE(name);
      CAPTURE(ranks);
      try {
        const Schedule logical = built(name, replica, ranks);
        visit(name, ranks, logical);
      } catch (const InputError&) {  // sizes that this schedule cannot have
      }
    }
  }
}

void check_equal(const ToyOutcome& outcome, const ToyOutcome& alone) {
  for (std::size_t i = 0; i < alone.losses.size(); ++i)
    CHECK(outcome.losses[i] == doctest::Approx(alone.losses[i]).epsilon(1e-12));
  CHECK(largest_difference(outcome.gradient, alone.gradient) < 1e-12);
  CHECK(largest_difference(outcome.weights, alone.weights) < 1e-12);
  CHECK(outcome.copies_differ == 0);
}

/// Parts of equal size are told exactly; of others, whose sizes differ by one number, all ranks' sum
/// up to half a byte for each of a communication's edges.
void check_bytes(const Schedule& schedule, const ToyOutcome& outcome) {
  const Traffic told = traffic(schedule, cluster(schedule.ranks()));
  const auto& sent = outcome.results.front().sent;
  double edges = 0;
  for (const Task& task : schedule.tasks())
    edges += is_collective(task.op) ? static_cast<double>(schedule.group(task.group).size()) : 0.0;
  for (std::size_t p = 0; p < payloads; ++p) {
    std::int64_t more = -told.payload_bytes[p][0] - told.payload_bytes[p][1];
    for (const SentBytes& rank : sent) more += rank.by_payload[p];
    CHECK(std::abs(static_cast<double>(more)) <= (schedule.parts().mesh.data == 2 ? 0 : edges / 2));
  }
  if (schedule.parts().mesh.data != 2) return;
  for (std::size_t r = 0; r < sent.size(); ++r) CHECK(sent[r].total() == told.rank_sent_bytes[r]);
}

TEST_CASE("replicas of every schedule give the losses, gradients and weights of one device, in the bytes that are told") {
  for (const int data : {2, 3}) {
    CAPTURE(data);
    const Workload whole = toy_work(toy_model(8, data == 2), 12);
    const ToyOutcome alone = train_by_threads(toy_alone(whole), 2);
    const Workload replica = toy_work(toy_model(8, data == 2), 12 / data);
    for_each_schedule(replica, {1, 2, 4}, [&](const std::string&, int ranks, const Schedule& logical) {
      for (const StateSharding sharding : shardings) {
        CAPTURE(std::string{name(sharding)});
        for (const bool overlap : {false, true}) {
          CAPTURE(overlap);
          const Composition with{
              .sharding = sharding, .overlap_gradients = overlap, .overlap_gathers = overlap, .bucket = overlap ? 1 : 0};
          const Schedule schedule = compose(logical, whole, Mesh{.data = data}.over(ranks * data), with);
          const ToyOutcome outcome = train_by_threads(schedule, 2);
          check_equal(outcome, alone);
          check_bytes(schedule, outcome);
        }
      }
    });
  }
}

TEST_CASE("gradients and parameters travel once a step or for each microbatch, with the same numbers") {
  const Workload whole = toy_work(toy_model(6, true), 8);
  const ToyOutcome alone = train_by_threads(toy_alone(whole), 2);
  for_each_schedule(toy_work(toy_model(6, true), 4), {1, 2}, [&](const std::string&, int ranks, const Schedule& logical) {
    for (const StateSharding sharding : {StateSharding::gradients, StateSharding::parameters}) {
      for (const Reshard reshard : {Reshard::step, Reshard::microbatch}) {
        CAPTURE(std::string{name(sharding)});
        CAPTURE(std::string{name(reshard)});
        const Schedule schedule =
            compose(logical, whole, Mesh{.data = 2}.over(2 * ranks), {.sharding = sharding, .reshard = reshard});
        const ToyOutcome outcome = train_by_threads(schedule, 2);
        check_equal(outcome, alone);
        check_bytes(schedule, outcome);
      }
    }
  });
}

TEST_CASE("the norm over all replicas clips as on one device, in every order of the mesh") {
  const double clip = 0.05;
  const Workload whole = toy_work(toy_model(6, true), 8);
  const ToyOutcome alone = train_by_threads(toy_alone(whole), 2, {}, clip);
  REQUIRE(alone.results[0].gradient_norm > 2 * clip);
  for_each_schedule(toy_work(toy_model(6, true), 4), {1, 2}, [&](const std::string&, int ranks, const Schedule& logical) {
    for (const StateSharding sharding : shardings) {
      CAPTURE(std::string{name(sharding)});
      for (const char* const order : {"tcsd", "tcds"}) {
        const Mesh mesh = Mesh{.data = 2, .order = parse_mesh_order(order)}.over(2 * ranks);
        const Composition with{.sharding = sharding, .overlap_gathers = order[2] == 'd'};
        const Schedule schedule = with_gradient_norm(compose(logical, whole, mesh, with));
        CHECK(validate(schedule).ok());
        const ToyOutcome outcome = train_by_threads(schedule, 2, {}, clip);
        check_equal(outcome, alone);
        CHECK(outcome.results[0].gradient_norm == doctest::Approx(alone.results[0].gradient_norm).epsilon(1e-12));
      }
    }
  });
}

TEST_CASE("states of replicas lie in host memory between uses and change no number") {
  const Workload whole = toy_work(toy_model(6, true), 8);
  const Workload replica = toy_work(toy_model(6, true), 4);
  const ToyOutcome alone = train_by_threads(toy_alone(whole), 2);
  for (const std::string name : {"1f1b", "zb-h1", "tawpipe"}) {
    CAPTURE(name);
    const Schedule logical = built(name, replica, 2, {.activations = true, .optimizer = true});
    for (const StateSharding sharding : shardings) {
      CAPTURE(std::string{tawpipe::name(sharding)});
      check_equal(train_by_threads(compose(logical, whole, Mesh{.data = 2}.over(4), {.sharding = sharding}), 2), alone);
    }
  }
}

TEST_CASE("random delays change no bit of replicas") {
  const Workload whole = toy_work(toy_model(6, true), 12);
  const Workload replica = toy_work(toy_model(6, true), 4);
  for (const std::string name : {"zb-h1", "tawpipe"}) {
    CAPTURE(name);
    const Schedule logical = built(name, replica, 2);
    for (const StateSharding sharding : shardings) {
      CAPTURE(std::string{tawpipe::name(sharding)});
      const Schedule schedule = compose(logical, whole, Mesh{.data = 3}.over(6), {.sharding = sharding, .overlap_gathers = true});
      const ToyOutcome still = train_by_threads(schedule, 2);
      for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        const ToyOutcome shaken = train_by_threads(schedule, 2, {.chaos = {.seed = seed, .longest_microseconds = 40}});
        CHECK(shaken.weights == still.weights);
        CHECK(shaken.losses == still.losses);
      }
    }
  }
}

TEST_CASE("of weights that are gathered in the next iteration a rank gives the part that it has updated") {
  const Workload whole = toy_work(toy_model(6, false), 4);
  const Schedule logical = built("1f1b", toy_work(toy_model(6, false), 2), 1);
  for (const bool late : {false, true}) {
    const Schedule schedule = compose(logical, whole, Mesh{.data = 2}.over(2),
                                      {.sharding = StateSharding::optimizer, .overlap_gathers = late, .bucket = 0});
    const Dataflow flow = resolve_dataflow(schedule);
    const Dataflow of_one = resolve_dataflow(schedule, Rank{1});
    CHECK(flow.stale == of_one.stale);
    std::int64_t stale = 0;
    for (const auto& ranges : flow.stale) stale += parameters_in(ranges);
    CHECK(stale == (late ? toy_model(6, false).parameters() : 0));  // half of them on each of two ranks
  }
}

TEST_CASE("weights and moments of any mesh go on under any other, bit for bit") {
  const Workload whole = toy_work(toy_model(6, true), 8);
  const LayerStack& model = whole.model();
  const Workload replica = toy_work(toy_model(6, true), 4);
  std::vector<Schedule> schedules{toy_alone(whole), built("fsdp", whole, 4)};
  for (const StateSharding sharding : shardings) {
    for (const std::string name : {"1f1b", "tawpipe"}) {
      const Composition with{.sharding = sharding, .overlap_gathers = true, .bucket = 1};
      schedules.push_back(compose(built(name, replica, 2), whole, Mesh{.data = 2}.over(4), with));
    }
  }
  using Numbers = std::vector<double>;
  const auto count = static_cast<std::size_t>(model.parameters());
  std::array<Numbers, 3> before{Numbers(count), Numbers(count), Numbers(count)};  // weights and two moments
  for (std::size_t i = 0; i < count; ++i) before[0][i] = std::sin(0.7 * static_cast<double>(i));
  const auto copy = [](const double* from, const ParameterRange& range, double* to) { std::copy_n(from, range.count(), to); };
  for (const Schedule& schedule : schedules) {
    ToyHostExecutor executor{schedule, [&] { return ToyLayer<double>{model}; }, {}};
    load_weights(executor, std::span<const double>{before[0]});
    set_moments(executor, [&](ParameterRange range, std::span<double> first, std::span<double> second) {
      copy(before[1].data() + range.begin, range, first.data());
      copy(before[2].data() + range.begin, range, second.data());
    });
    const auto state = [&] {
      std::array<Numbers, 3> now{collect_weights(executor), Numbers(count, NAN), Numbers(count, NAN)};
      read_moments(executor, [&](ParameterRange range, std::span<const double> first, std::span<const double> second) {
        copy(first.data(), range, now[1].data() + range.begin);
        copy(second.data(), range, now[2].data() + range.begin);
      });
      return now;
    };
    CHECK(state() == before);
    executor.run(ToyTokens{model.token_ids}, {.step = 1, .learning_rate = 0.05});
    const std::array<Numbers, 3> after = state();
    CHECK(after[0] != before[0]);
    before = after;
  }
}

}  // namespace composed_test
