// An all_to_all by the host executor: every number is where it belongs, whatever the sizes of the
// pairs.
// Not: the same over MPI (mpi/all_to_all_test.cpp) and on devices (emulated/all_to_all_test.cpp).
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "support/all_to_all_run.hpp"
#include "support/toy_training.hpp"

using namespace tawpipe;
using support::AllToAllRun;

TEST_CASE("host: an all_to_all there and another back leave each number where the sizes say") {
  for (const int ranks : {1, 2, 5}) {
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      CAPTURE(ranks);
      CAPTURE(seed);
      const AllToAllRun run{support::toy_work(support::toy_model(12, false), 1), ranks, seed};
      const Schedule schedule = run.build();
      support::ToyHostExecutor executor{schedule, [&] { return support::ToyLayer<double>{schedule.workload().model()}; }, {}};
      const auto for_each = [&](auto&& visit) {
        for (int r = 0; r < ranks; ++r) {
          for (const int which : {0, 1}) visit(run.buffer(which, r), executor.rank(Rank{r}).memory(run.buffer(which, r)));
        }
      };
      for_each([&](BufferId buffer, auto memory) {
        const std::vector<double> numbers = run.before<double>(buffer);
        REQUIRE(memory.size() == numbers.size() * sizeof(double));
        std::memcpy(memory.data(), numbers.data(), memory.size());
      });
      executor.run(support::ToyTokens{7}, {});
      for_each([&](BufferId buffer, auto memory) {
        std::vector<double> numbers(static_cast<std::size_t>(run.run()));
        std::memcpy(numbers.data(), memory.data(), memory.size());
        CHECK(numbers == run.after<double>(buffer));
      });
    }
  }
}
