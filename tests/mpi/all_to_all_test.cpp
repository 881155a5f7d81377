// An all_to_all between MPI processes: every number is where it belongs, whatever the sizes of the
// pairs.
// Not: its messages (unit/execute/ring_plan_test.cpp).
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "mpi/session_of_tests.hpp"
#include "support/all_to_all_run.hpp"
#include "support/toy_training.hpp"
#include "tawpipe/execute/executor.hpp"
#include "tawpipe/execute/mpi/executor.hpp"

using namespace tawpipe;
using support::AllToAllRun;

static_assert(Executor<mpi::MpiExecutor<double, support::ToyLayer<double>, support::ToyOptimizer<double>>>);

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
      const int rank = session_of_tests().rank();
      for (const int which : {0, 1}) {
        const std::vector<double> numbers = run.before<double>(run.buffer(which, rank));
        const auto memory = executor.state().memory(run.buffer(which, rank));
        std::memcpy(memory.data(), numbers.data(), memory.size());
      }
      executor.run(support::ToyTokens{7}, {});
      for (const int which : {0, 1}) {
        std::vector<double> numbers(static_cast<std::size_t>(run.run()));
        const auto memory = executor.state().memory(run.buffer(which, rank));
        std::memcpy(numbers.data(), memory.data(), memory.size());
        CHECK(numbers == run.after<double>(run.buffer(which, rank)));
      }
    }
  }
}
