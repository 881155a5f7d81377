// How many tasks a second does the engine run, and in how many bytes of memory a task?
// `bench_engine [--json FILE|-] [GRAPH...]`: each GRAPH is a file of format tg1 or a name
// (bench/peers/graphs.hpp), by default the large three. The least of three runs counts, in seconds
// of processor time.
// Not: schedules (build_and_simulate.cpp), other simulators (peers/).
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "peers/graphs.hpp"
#include "tawpipe/core/text_file.hpp"
#include "tawpipe/core/version.hpp"
#include "tawpipe/simulate/task_graph_text.hpp"

namespace {

using tawpipe::TaskGraph;

/// Processor time of this program, which has one thread: what else runs on the machine disturbs it
/// less than the clock's time.
class Stopwatch {
 public:
  double seconds() const { return static_cast<double>(std::clock() - begin_) / CLOCKS_PER_SEC; }

 private:
  std::clock_t begin_ = std::clock();
};

bool is_file(const std::string& name) {
  std::FILE* const file = std::fopen(name.c_str(), "rb");
  if (file != nullptr) std::fclose(file);
  return file != nullptr;
}

nlohmann::ordered_json measure(const std::string& name) {
  // A named graph goes through its text as well, so that reading is measured.
  std::string text;
  if (is_file(name)) {
    text = tawpipe::read_text_file(name, "task graph", 4096);
  } else {
    tawpipe::write_task_graph(peers::named_graph(name), [&](std::string_view part) { text += part; });
  }
  const Stopwatch reading;
  const TaskGraph graph = tawpipe::parse_task_graph(text, name);
  const double read_s = reading.seconds();
  const std::size_t text_bytes = text.size();
  text = {};
  const Stopwatch building;
  const tawpipe::EngineGraph engine = tawpipe::to_engine(graph);
  const double build_s = building.seconds();
  double run_s = 1e300;
  tawpipe::Timeline timeline;
  for (int i = 0; i < 3; ++i) {
    timeline = {};
    const Stopwatch running;
    timeline = tawpipe::run_engine(engine);
    run_s = std::min(run_s, running.seconds());
  }
  const auto tasks = static_cast<double>(std::max<std::size_t>(graph.tasks(), 1));
  const double run_bytes = 2.0 * sizeof(tawpipe::TimePoint) + sizeof(std::int32_t);  // the times, and what is waited for
  nlohmann::ordered_json json;
  json["graph"] = name;
  json["tasks"] = graph.tasks();
  json["edges"] = graph.edges();
  json["text_bytes"] = text_bytes;
  json["read_s"] = read_s;
  json["build_s"] = build_s;
  json["seconds"] = run_s;
  json["seconds_per_task"] = run_s / tasks;
  json["bytes_per_task"] =
      (static_cast<double>(engine.memory_bytes()) + static_cast<double>(graph.memory_bytes())) / tasks + run_bytes;
  json["makespan_s"] = to_seconds(timeline.makespan());
  return json;
}

}  // namespace

int main(int argc, char** argv) {
  std::string json_file;
  std::vector<std::string> names;
  for (int i = 1; i < argc; ++i) {
    if (std::string{argv[i]} == "--json" && i + 1 < argc) {
      json_file = argv[++i];
    } else {
      names.emplace_back(argv[i]);
    }
  }
  if (names.empty()) names = {"star-1m", "chain-1m", "mix-100k", "mix-1m"};
  try {
    nlohmann::ordered_json all;
    all["version"] = tawpipe::version;
    all["graphs"] = nlohmann::ordered_json::array();
    std::FILE* const table = json_file == "-" ? stderr : stdout;
    std::fprintf(table, "%-12s %10s %8s %8s %8s %10s %11s %16s\n", "graph", "tasks", "read s", "build s", "run s", "tasks/s",
                 "bytes/task", "makespan s");
    for (const auto& name : names) {
      const auto row = measure(name);
      std::fprintf(table, "%-12s %10zu %8.3f %8.3f %8.3f %10.0f %11.1f %16.12f\n", name.c_str(), row["tasks"].get<std::size_t>(),
                   row["read_s"].get<double>(), row["build_s"].get<double>(), row["seconds"].get<double>(),
                   1 / row["seconds_per_task"].get<double>(), row["bytes_per_task"].get<double>(),
                   row["makespan_s"].get<double>());
      all["graphs"].push_back(row);
    }
    if (json_file == "-") {
      std::puts(all.dump(2).c_str());
    } else if (!json_file.empty()) {
      std::FILE* const file = std::fopen(json_file.c_str(), "w");
      if (file == nullptr) throw tawpipe::InputError(tawpipe::concat(json_file, " cannot be written"));
      std::fputs((all.dump(2) + "\n").c_str(), file);
      std::fclose(file);
    }
    return 0;
  } catch (const tawpipe::Error& error) {
    std::fprintf(stderr, "bench_engine: %s\n", error.what());
    return 2;
  }
}
