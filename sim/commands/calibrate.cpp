// `tawpipe calibrate`: the links of a cluster file from the output of nccl-tests.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "instruments.hpp"
#include "output.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/report/nccl_tests.hpp"
#include "tawpipe/report/table.hpp"

namespace tawpipe::sim {

int run_calibrate(const CalibrateRequest& request) {
  std::optional<OutputFile> file;
  if (!request.json.empty()) file.emplace(request.json);
  struct Kind {
    const char* name;
    int runs = 0;
    double latency = 0;
    double bandwidth = 0;
  };
  Kind kinds[] = {{"intra_node"}, {"inter_node"}};
  Table table{{{"file"},
               {"program"},
               {"ranks", Align::right},
               {"hosts", Align::right},
               {"link"},
               {"latency", Align::right},
               {"bandwidth", Align::right},
               {"error of the fit", Align::right}}};
  for (const auto& path : request.files) {
    const NcclTestsRun run = read_nccl_tests(read_text(path, "output of nccl-tests"), path);
    const FittedLink link = fit_link(run);
    Kind& kind = kinds[run.hosts > 1 ? 1 : 0];
    // Of several runs over one kind of link: the largest bandwidth (the others share it with more traffic), the mean latency.
    kind.bandwidth = std::max(kind.bandwidth, link.bytes_per_second);
    kind.latency = (kind.latency * kind.runs + link.latency_s) / (kind.runs + 1);
    ++kind.runs;
    table.row({one_line(path), run.program, std::to_string(run.ranks), std::to_string(run.hosts), kind.name,
               format_duration(seconds(link.latency_s)), format_bandwidth(BytesPerSecond{link.bytes_per_second}),
               format_percent(link.error)});
  }
  nlohmann::ordered_json json;
  for (const Kind& kind : kinds) {
    if (kind.runs == 0) continue;
    json[kind.name] = {{"bytes_per_second", kind.bandwidth}, {"latency_ps", seconds(kind.latency).value()}};
  }
  if (file) {
    (*file)(json.dump(2) + "\n");
    file->finish();
  }
  if (request.json != "-") {
    write_output("-", table.str(terminal_style()) + "\nFor a cluster file (docs/topology.md):\n" + json.dump(2) + "\n");
  }
  return ok;
}

}  // namespace tawpipe::sim
