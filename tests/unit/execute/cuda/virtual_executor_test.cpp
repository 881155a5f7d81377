// Every schedule of the catalogue by virtual ranks on an emulated device whose streams run in random orders: bits as on the host.
#include "tawpipe/execute/cuda/virtual_executor.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/clusters.hpp"
#include "support/toy_device_training.hpp"
#include "tawpipe/analysis/traffic.hpp"
#include "tawpipe/schedule/catalogue.hpp"
#include "tawpipe/schedule/gradient_norm.hpp"

using namespace support;
using namespace tawpipe;

namespace {

using Nodes = std::vector<std::int32_t>;

/// Calls `visit(schedule)` for each of the catalogue's, but for sizes that it refuses.
template <class Visit>
void for_each_schedule(const Workload& work, const std::vector<Nodes>& sizes, Visit&& visit) {
  int built = 0;
  for (const auto& info : catalogue()) {
    for (const Nodes& nodes : sizes) {
      std::optional<Schedule> schedule;
      try {
        schedule = build_schedule(info.name, {.workload = work, .nodes = DeviceGroups{nodes}, .options = {}});
      } catch (const InputError&) {
        continue;
      }
      ++built;
      CAPTURE(std::string{info.name});
      CAPTURE(schedule->ranks());
      CAPTURE(nodes.size());
      visit(*schedule);
    }
  }
  CHECK(built * 10 > static_cast<int>(catalogue().size() * sizes.size()) * 8);
}

}  // namespace

TEST_CASE("virtual ranks give the host executor's bits under every schedule, in any order of streams") {
  for (const bool tied : {true, false}) {
    const Workload work = toy_work_f32(toy_model(12, tied), 12, tied ? Recompute::full : Recompute::none);
    for_each_schedule(work, {{1}, {2}, {1, 1}, {2, 2}, {3, 3}, {2, 2, 2}, {3, 2, 1}}, [](const Schedule& schedule) {
      const ToyBits expected = train_f32_by_threads(schedule, 2);
      for (const std::uint64_t seed : {1, 2, 3, 4}) {
        CHECK(train_f32_by_virtual_ranks(schedule, 2, {.seed = seed, .in_issue_order = seed == 3}) == expected);
      }
    });
  }
}

TEST_CASE("microbatches and layers that do not divide, on virtual ranks") {
  for_each_schedule(toy_work_f32(toy_model(7, true), 8), {{3, 2}}, [](const Schedule& schedule) {
    CHECK(train_f32_by_virtual_ranks(schedule, 1, {.seed = 2}) == train_f32_by_threads(schedule, 1));
  });
}
