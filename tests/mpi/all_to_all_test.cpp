// An all_to_all between MPI processes: every number is where it belongs, whatever the sizes of the pairs.
// Not: its messages (unit/execute/ring_plan_test.cpp).
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "mpi/session_of_tests.hpp"
#include "support/all_to_all_run.hpp"
#include "support/toy_training.hpp"
#include "tawpipe/execute/mpi/executor.hpp"

using namespace tawpipe;
using support::AllToAllRun;

TEST_CASE("MPI: an all_to_all there and another back leave each number where the sizes say") {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    for (const std::int64_t chunk_bytes : {std::int64_t{16}, mpi::MpiOptions{}.chunk_bytes}) {
      CAPTURE(seed);
      const AllToAllRun run{support::toy_work(support::toy_model(12, false), 1), session_of_tests().ranks(), seed};
      const Schedule schedule = run.build();
      mpi::MpiOptions options;
      options.chunk_bytes = chunk_bytes;
      mpi::MpiExecutor<double, support::ToyLayer<double>, support::ToyOptimizer<double>> executor{
          schedule, session_of_tests(), [&] { return support::ToyLayer<double>{schedule.workload().model()}; }, {}, options};
      const auto for_each = [&](auto&& visit) {
        executor.state().for_each_weight([&](ParameterRange range, std::span<double> numbers) {
          for (std::size_t i = 0; i < numbers.size(); ++i) visit(range.begin + static_cast<std::int64_t>(i), numbers[i]);
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
      CHECK(seen * static_cast<std::size_t>(schedule.ranks()) == right.size());
      CHECK(wrong == 0);
    }
  }
}
