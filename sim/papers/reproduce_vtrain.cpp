// `tawpipe reproduce vtrain --closed-form`: measured Megatron-LM iterations and the closed form.
// Not: the simulator on them (reproduce_truth.cpp).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "../terminal_text.hpp"
#include "commands/instruments.hpp"
#include "commands/output.hpp"
#include "papers/megatron_iteration.hpp"
#include "tawpipe/core/csv.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/report/table.hpp"

namespace tawpipe::sim {

namespace {

struct Row {
  MegatronRun run;
  double measured_ms = 0;
  double predicted_ms = 0;
  double error() const { return predicted_ms / measured_ms - 1; }
};

std::vector<Row> read_rows(const CsvTable& file) {
  std::vector<Row> rows;
  for (std::size_t r = 0; r < file.rows(); ++r) {
    const auto number = [&](const char* column) { return file.number(r, file.column(column)); };
    const auto whole = [&](const char* column) { return static_cast<int>(std::clamp(number(column), -1e9, 1e9)); };
    Row row;
    row.run = {.gpus = whole("# GPUs"),
               .global_batch = whole("global batch"),
               .microbatch = whole("micro batch"),
               .hidden = whole("hidden size"),
               .heads = whole("attention heads"),
               .layers = whole("# layers"),
               .sequence = whole("sequence length"),
               .tensor = whole("tensor parallelism"),
               .data = whole("data parallelism"),
               .pipeline = whole("pipeline parallelism")};
    row.measured_ms = number("iteration time (ms)");
    if (!(row.measured_ms > 0)) throw InputError(concat("row ", r + 1, " of the measurements has no iteration time"));
    row.predicted_ms = 1e3 * megatron_iteration(row.run);
    rows.push_back(row);
  }
  if (rows.empty()) throw InputError("the file of measurements has no rows");
  return rows;
}

/// Mean absolute error and number, of the rows that `belongs` selects.
template <class Belongs>
std::pair<double, int> mean_error(const std::vector<Row>& rows, Belongs&& belongs) {
  double sum = 0;
  int count = 0;
  for (const Row& row : rows) {
    if (!belongs(row)) continue;
    sum += std::abs(row.error());
    ++count;
  }
  return {count > 0 ? sum / count : 0, count};
}

std::string text(const std::vector<Row>& rows) {
  Table groups{{{"rows"}, {"count", Align::right}, {"mean error", Align::right}}};
  const auto add = [&](const std::string& name, auto&& belongs) {
    const auto [mean, count] = mean_error(rows, belongs);
    if (count > 0) groups.row({name, std::to_string(count), format_percent(mean)});
  };
  add("all", [](const Row&) { return true; });
  add("one node", [](const Row& row) { return row.run.gpus <= 8; });
  add("several nodes", [](const Row& row) { return row.run.gpus > 8; });
  for (int tensor = 1; tensor <= 16; tensor *= 2) {
    add(fmt::format("tensor parallel {}", tensor), [&](const Row& row) { return row.run.tensor == tensor; });
  }
  for (int pipeline = 1; pipeline <= 32; pipeline *= 2) {
    add(fmt::format("pipeline parallel {}", pipeline), [&](const Row& row) { return row.run.pipeline == pipeline; });
  }
  std::vector<Row> worst = rows;
  std::stable_sort(worst.begin(), worst.end(),
                   [](const Row& a, const Row& b) { return std::abs(a.error()) > std::abs(b.error()); });
  worst.resize(std::min<std::size_t>(worst.size(), 5));
  Table table{{{"GPUs", Align::right},
               {"t", Align::right},
               {"d", Align::right},
               {"p", Align::right},
               {"batch", Align::right},
               {"microbatch", Align::right},
               {"hidden", Align::right},
               {"layers", Align::right},
               {"measured", Align::right},
               {"predicted", Align::right},
               {"error", Align::right}}};
  for (const Row& row : worst) {
    const MegatronRun& run = row.run;
    table.row({std::to_string(run.gpus), std::to_string(run.tensor), std::to_string(run.data), std::to_string(run.pipeline),
               std::to_string(run.global_batch), std::to_string(run.microbatch), std::to_string(run.hidden),
               std::to_string(run.layers), fmt::format("{:.1f} ms", row.measured_ms), fmt::format("{:.1f} ms", row.predicted_ms),
               fmt::format("{:+.1f} %", 100 * row.error())});
  }
  return groups.str(terminal_style()) + "\nThe largest errors\n\n" + table.str(terminal_style());
}

}  // namespace

int run_reproduce_vtrain_closed_form(const ReproduceRequest& request) {
  const std::vector<Row> rows =
      read_rows(CsvTable{request.data, read_text(request.data, "file of measurements"), "iteration time (ms)"});
  std::optional<OutputFile> file;
  if (!request.json.empty()) file.emplace(request.json);
  if (file) {
    nlohmann::ordered_json json;
    json["mean_error"] = mean_error(rows, [](const Row&) { return true; }).first;
    json["rows"] = nlohmann::ordered_json::array();
    for (const Row& row : rows) {
      json["rows"].push_back({{"gpus", row.run.gpus},
                              {"tensor", row.run.tensor},
                              {"data", row.run.data},
                              {"pipeline", row.run.pipeline},
                              {"measured_ms", row.measured_ms},
                              {"predicted_ms", row.predicted_ms},
                              {"error", row.error()}});
    }
    (*file)(json.dump(2) + "\n");
    file->finish();
  }
  if (request.json != "-") print(text(rows));
  return ok;
}

}  // namespace tawpipe::sim
