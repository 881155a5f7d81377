// An all_to_all by the host executor: every number is where it belongs, whatever the sizes of the pairs.
// Not: the same over MPI (mpi/all_to_all_test.cpp) and on devices (emulated/all_to_all_test.cpp).
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

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
        executor.for_each_rank([&](auto& rank) {
          rank.for_each_weight([&](ParameterRange range, std::span<double> numbers) {
            for (std::size_t i = 0; i < numbers.size(); ++i) visit(range.begin + static_cast<std::int64_t>(i), numbers[i]);
          });
        });
      };
      for_each([](std::int64_t parameter, double& number) { number = AllToAllRun::before(parameter); });
      executor.run(support::ToyTokens{7}, {});
      const std::map<std::int64_t, double> right = run.after();
      std::size_t seen = 0;
      std::size_t wrong = 0;
      for_each([&](std::int64_t parameter, double& number) {
        ++seen;
        if (number != right.at(parameter)) ++wrong;
      });
      CHECK(seen == right.size());
      CHECK(wrong == 0);
    }
  }
}
