// Compares the orders that the search finds with those of the published generators in their memory.
// A table. `bench_orders [FILE [MOVES]]`; FILE is tests/data/zero_bubble/generators.csv unless said
// otherwise. `bench_orders places`: the gap to the bound for other places of stages.
// Not: a test (tests/oracle/order_search_test.cpp); and no time of this is counted as a
// benchmark's.
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "support/order_problems.hpp"
#include "tawpipe/schedules/order_search.hpp"

namespace {

double processor_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_utime.tv_sec) + 1e-6 * static_cast<double>(used.ru_utime.tv_usec);
}

/// Gaps of several places of stages, in half of 1F1B's memory, in it and in twice as much.
int places() {
  using tawpipe::schedules::search_order;
  struct Place {
    const char* name;
    const char* laid;
    int a_device;
  };
  std::puts("| stages | p/2 activations | p | 2p |");
  std::puts("|---|---|---|---|");
  for (const Place& place :
       {Place{"a line", "line", 1}, Place{"a loop, two a device", "loop", 2}, Place{"a loop, four a device", "loop", 4},
        Place{"a V", "v", 2}, Place{"a W", "v", 4}, Place{"two neighbours a device", "pairs", 2}}) {
    std::printf("| %s |", place.name);
    for (const int quarters : {2, 4, 8}) {
      double gaps[2] = {0, 0};
      for (const int devices : {4, 8}) {
        const auto problem = support::equal_stages(support::lay_stages(place.laid, devices, place.a_device), 3 * devices,
                                                   {.forward = 30, .backward_input = 32, .backward_weight = 24}, 2,
                                                   quarters * devices * place.a_device / 4);
        gaps[devices / 8] = search_order(problem, tawpipe::schedules::standard_moves).gap() * 100;
      }
      std::printf(" %.2f%%, %.2f%% |", gaps[0], gaps[1]);
      std::fflush(stdout);
    }
    std::puts("");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view{argv[1]} == "places") return places();
  const auto orders = support::published_orders(argc > 1 ? argv[1] : "tests/data/zero_bubble/generators.csv");
  const std::int64_t moves = argc > 2 ? std::atoll(argv[2]) : tawpipe::schedules::standard_moves;
  std::puts(
      "| generator | ranks x microbatches | F:B:W:c | memory | its makespan | ours | | bound | gap | its span | ours | seconds "
      "|");
  std::puts("|---|---|---|---|---|---|---|---|---|---|---|---|");
  int slower = 0;
  int optimal = 0;
  for (const auto& published : orders) {
    const double begin = processor_seconds();
    const auto found = tawpipe::schedules::search_order(published.problem, moves, published.starts);
    const double took = processor_seconds() - begin;
    // times are doubled there, and published with six digits
    const auto makespan = static_cast<double>(found.makespan);
    const bool is_slower = makespan > published.makespan * (1 + 5e-6);
    slower += is_slower ? 1 : 0;
    optimal += found.is_optimal() ? 1 : 0;
    std::printf("| %s | %s | %s | %s | %.7g | %.7g | %+.2f%%%s | %.7g | %.2f%% | %.7g | %.7g | %.2f |\n", published.name.c_str(),
                published.size.c_str(), published.times.c_str(), published.memory.c_str(), published.makespan / 2, makespan / 2,
                std::max(makespan / published.makespan - 1, -1.0) * 100, is_slower ? " slower" : "",
                static_cast<double>(found.bound) / 2, found.gap() * 100, published.span / 2, static_cast<double>(found.span) / 2,
                took);
    std::fflush(stdout);
  }
  std::printf("\n%zu orders, %d slower than the published, %d proven to be the shortest\n", orders.size(), slower, optimal);
  return slower == 0 ? 0 : 1;
}
