// Writes a task graph of bench/peers/graphs.hpp as tg1 to standard output: `make_graph mix-100k`,
// or `make_graph --mode mix --nodes 32 --devices 8 --steps 157 --extra 4 --compute 0.06 --seed 1`.
// Not: a benchmark.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "graphs.hpp"
#include "tawpipe/simulate/task_graph_text.hpp"

int main(int argc, char** argv) {
  try {
    peers::GraphOptions options;
    const auto usage = [] {
      throw tawpipe::InputError(
          "usage: make_graph MODE-SIZE, or make_graph [--mode star|chain|mix] [--nodes N] [--devices N] [--steps N] [--extra N] "
          "[--compute SECONDS] [--seed N]");
    };
    if (argc != 2 && argc % 2 != 1) usage();
    for (int i = 1; i + 1 < argc; i += 2) {
      const std::string_view flag = argv[i];
      const char* const value = argv[i + 1];
      if (flag == "--mode") {
        options.mode = value;
      } else if (flag == "--nodes") {
        options.nodes = std::atoi(value);
      } else if (flag == "--devices") {
        options.devices = std::atoi(value);
      } else if (flag == "--steps") {
        options.steps = std::atoi(value);
      } else if (flag == "--extra") {
        options.extra = std::atoi(value);
      } else if (flag == "--compute") {
        options.compute_s = std::atof(value);
      } else if (flag == "--seed") {
        options.seed = static_cast<std::uint64_t>(std::atoll(value));
      } else {
        usage();
      }
    }
    const tawpipe::TaskGraph graph = argc == 2 ? peers::named_graph(argv[1]) : peers::generate(options);
    tawpipe::write_task_graph(graph, [](std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); });
    return 0;
  } catch (const tawpipe::Error& error) {
    std::fprintf(stderr, "make_graph: %s\n", error.what());
    return 2;
  }
}
