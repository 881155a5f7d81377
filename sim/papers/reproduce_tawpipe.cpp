// `tawpipe reproduce tawpipe`: the paper's published cells and their predictions.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "../terminal_text.hpp"
#include "commands/instruments.hpp"
#include "papers/published_tawpipe.hpp"
#include "papers/reproduce_chart.hpp"
#include "parallel.hpp"
#include "picture_file.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/report/table.hpp"
#include "tawpipe/topology/clusters.hpp"

namespace tawpipe::sim {

namespace {

using published::Cell;

constexpr int full_nodes = 3;
constexpr std::int64_t full_batch = 1536;

/// One prediction: a variant on `nodes` nodes.
struct Setup {
  std::string variant;
  int hidden;
  int sequence;
  int nodes;
  std::int64_t batch;
  auto operator<=>(const Setup&) const = default;
};

/// With the setup's microbatch: the fastest power of two that fits, or the paper's.
Summary predict_setup(const Setup& setup, double usable_memory) {
  const published::TawpipeVariant& variant = published::tawpipe_variant(setup.variant);
  Transformer model = models::llama_family(published::tawpipe_layers, setup.hidden);
  model.loss_in_float32 = variant.loss_in_float32;
  Problem problem{.cluster = cluster_named(concat("a800x24-10gbe*", setup.nodes)), .model = model, .cost = RooflineCost{}};
  std::get<RooflineCost>(problem.cost).utilization = published::tawpipe_efficiency(setup.hidden);
  problem.schedules = {{std::string{variant.schedule}, parse_options(variant.options)}};
  problem.sequence = setup.sequence;
  problem.global_batch = setup.batch;
  problem.usable_memory = usable_memory;
  problem.microbatch_sizes =
      published::tawpipe_microbatches(variant, model, setup.sequence, setup.batch, problem.cluster.ranks());
  return predict(problem).summary;
}

double memory_gib(const Summary& summary) { return static_cast<double>(summary.fullest().value()) / (1 << 30); }

/// NCCL's kernels on a rank: the time that its lanes of communication are busy, mean over the
/// ranks.
double nccl_seconds(const Summary& summary) {
  double total = 0;
  for (std::size_t lane = 1; lane < summary.communication.lane_busy_s.size(); ++lane) {
    total += summary.communication.lane_busy_s[lane];
  }
  return summary.lanes.size() > 1 ? total : summary.communication.busy_s;
}

double compute_seconds(const Summary& summary) { return (1 - summary.bubble.ratio) * to_seconds(summary.makespan); }

double nccl_share(const Summary& summary) {
  const double nccl = nccl_seconds(summary);
  return nccl / (nccl + compute_seconds(summary));
}

std::string signed_percent(double fraction) { return fmt::format("{:+.1f} %", 100 * fraction); }

std::string rounded(double value) { return value >= 2000 ? format_rounded(value) : fmt::format("{:.0f}", value); }

/// Published and predicted, side by side.
class Reproduction {
 public:
  /// @param with_scaling  also predict how four schedules scale from one node to three
  /// @param usable_memory  the fraction of a GPU's memory that a schedule may need
  Reproduction(std::vector<Cell> cells, bool with_scaling, double usable_memory)
      : cells_{std::move(cells)}, with_scaling_{with_scaling}, usable_memory_{usable_memory} {
    for (const Cell& cell : cells_) need({cell.schedule, cell.hidden, cell.sequence, full_nodes, full_batch});
    for (const char* name : scaled) {
      for (int nodes = 1; with_scaling && nodes <= full_nodes; ++nodes) {
        need({name, scaling_hidden, scaling_sequence, nodes, full_batch / full_nodes * nodes});
        need({name, scaling_hidden, scaling_sequence, nodes, full_batch});
      }
    }
    std::vector<std::pair<const Setup*, Summary*>> work;
    for (auto& [setup, summary] : predictions_) work.emplace_back(&setup, &summary);
    in_parallel(work.size(), "reproducing",
                [&](std::size_t i) { *work[i].second = predict_setup(*work[i].first, usable_memory_); });
  }

  std::string text() const {
    return throughput_text() + "\n" + ablation_text() + "\n" + memory_text() + "\n" + communication_text() + "\n" +
           (with_scaling_ ? scaling_text() + "\n" : std::string{}) + verdict_text();
  }

  nlohmann::ordered_json json() const {
    nlohmann::ordered_json json;
    json["cells"] = nlohmann::ordered_json::array();
    for (const Cell& cell : cells_) {
      const Summary& summary = of(cell);
      nlohmann::ordered_json row;
      row["table"] = cell.table;
      row["schedule"] = cell.schedule;
      row["hidden"] = cell.hidden;
      row["sequence"] = cell.sequence;
      row["microbatch"] = summary.microbatch_size;
      add(row, "tokens", cell.tokens, summary.tokens_per_device_per_second);
      add(row, "memory_gib", cell.memory_gib, memory_gib(summary));
      add(row, "nccl_share", cell.nccl_share, nccl_share(summary));
      add(row, "nccl_s", cell.nccl_s, nccl_seconds(summary));
      row["measured_out_of_memory"] = cell.out_of_memory;
      row["predicted_out_of_memory"] = !summary.fits();
      json["cells"].push_back(std::move(row));
    }
    const Errors errors = throughput_errors();
    json["mean_error"] = errors.mean;
    json["largest_error"] = errors.largest;
    json["order_right"] = wrong_order().empty();
    json["usable_memory"] = usable_memory_;
    return json;
  }

 private:
  static constexpr const char* scaled[] = {"tawpipe", "weipipe", "fsdp", "1f1b"};
  static constexpr int scaling_hidden = 1024;
  static constexpr int scaling_sequence = 16384;

  struct Errors {
    double mean = 0;
    double largest = 0;
    int count = 0;
  };

  void need(const Setup& setup) { predictions_.try_emplace(setup); }
  const Summary& of(const Setup& setup) const { return predictions_.at(setup); }
  const Summary& of(const Cell& cell) const { return of({cell.schedule, cell.hidden, cell.sequence, full_nodes, full_batch}); }
  double error(const Cell& cell) const { return of(cell).tokens_per_device_per_second / cell.tokens - 1; }

  static void add(nlohmann::ordered_json& row, const std::string& name, double measured, double predicted) {
    if (measured <= 0) return;
    row["measured_" + name] = measured;
    row["predicted_" + name] = predicted;
    row["error_" + name] = predicted / measured - 1;
  }

  std::string throughput_text() const {
    Table table{{{"sequence", Align::right},
                 {"hidden", Align::right},
                 {"schedule"},
                 {"measured", Align::right},
                 {"predicted", Align::right},
                 {"error", Align::right},
                 {"microbatch", Align::right}}};
    for (const Cell& cell : cells_) {
      if (cell.table != "main") continue;
      const Summary& summary = of(cell);
      const bool fits = summary.fits();
      table.row({format_count(cell.sequence), std::to_string(cell.hidden), cell.schedule,
                 cell.out_of_memory ? "out of memory" : rounded(cell.tokens),
                 fits ? rounded(summary.tokens_per_device_per_second) : "out of memory",
                 cell.out_of_memory ? (fits ? "wrong" : "right") : signed_percent(error(cell)),
                 std::to_string(summary.microbatch_size)});
    }
    return "Throughput, tokens a GPU and second (24 GPUs)\n\n" + table.str(terminal_style());
  }

  /// The loss from leaving out a part. Both are run with the same rule for the microbatch.
  std::string ablation_text() const {
    Table table{{{"hidden", Align::right},
                 {"schedule"},
                 {"measured", Align::right},
                 {"predicted", Align::right},
                 {"error", Align::right},
                 {"measured loss", Align::right},
                 {"predicted loss", Align::right},
                 {"microbatch", Align::right}}};
    const Cell* whole = nullptr;
    for (const Cell& cell : cells_) {
      if (cell.table != "ablation") continue;
      if (cell.schedule == "tawpipe") whole = &cell;
      const double predicted = of(cell).tokens_per_device_per_second;
      const bool compared = whole != nullptr && whole->hidden == cell.hidden && whole != &cell;
      table.row({std::to_string(cell.hidden), cell.schedule, rounded(cell.tokens), rounded(predicted),
                 signed_percent(error(cell)), compared ? signed_percent(cell.tokens / whole->tokens - 1) : "",
                 compared ? signed_percent(predicted / of(*whole).tokens_per_device_per_second - 1) : "",
                 std::to_string(of(cell).microbatch_size)});
    }
    return "Ablation, 16,384 tokens a sequence\n\n" + table.str(terminal_style());
  }

  std::string memory_text() const {
    Table table{{{"hidden", Align::right},
                 {"schedule"},
                 {"measured", Align::right},
                 {"predicted", Align::right},
                 {"error", Align::right},
                 {"microbatch", Align::right}}};
    for (const Cell& cell : cells_) {
      if (cell.memory_gib <= 0 && !cell.out_of_memory) continue;
      const double predicted = memory_gib(of(cell));
      table.row({std::to_string(cell.hidden), cell.schedule,
                 cell.out_of_memory ? "out of memory" : fmt::format("{:.1f} GiB", cell.memory_gib),
                 fmt::format("{:.1f} GiB", predicted), cell.out_of_memory ? "" : signed_percent(predicted / cell.memory_gib - 1),
                 std::to_string(of(cell).microbatch_size)});
    }
    return "Peak memory of a GPU\n\n" + table.str(terminal_style());
  }

  std::string communication_text() const {
    Table table{{{"hidden", Align::right},
                 {"schedule"},
                 {"measured time", Align::right},
                 {"predicted time", Align::right},
                 {"measured share", Align::right},
                 {"predicted share", Align::right}}};
    for (const Cell& cell : cells_) {
      if (cell.nccl_s <= 0) continue;
      const Summary& summary = of(cell);
      table.row({std::to_string(cell.hidden), cell.schedule, fmt::format("{:.1f} s", cell.nccl_s),
                 fmt::format("{:.1f} s", nccl_seconds(summary)), format_percent(cell.nccl_share),
                 format_percent(nccl_share(summary))});
    }
    return "Time of NCCL's kernels on a GPU, and its share of all kernels' (predicted: data in flight, no waiting)\n\n" +
           table.str(terminal_style());
  }

  std::string scaling_text() const {
    Table table{{{"schedule"},
                 {"8", Align::right},
                 {"16", Align::right},
                 {"24", Align::right},
                 {"strong: 8", Align::right},
                 {"16", Align::right},
                 {"24", Align::right}}};
    for (const char* name : scaled) {
      std::vector<std::string> cells{name};
      for (const bool weak : {true, false}) {
        for (int nodes = 1; nodes <= full_nodes; ++nodes) {
          const std::int64_t batch = weak ? full_batch / full_nodes * nodes : full_batch;
          cells.push_back(rounded(of({name, scaling_hidden, scaling_sequence, nodes, batch}).tokens_per_device_per_second));
        }
      }
      table.row(std::move(cells));
    }
    return fmt::format(
               "Scaling, tokens a GPU and second by the number of GPUs: weak with 64 sequences a GPU, strong with 1,536 in\n"
               "all; hidden {}, {} tokens a sequence. The paper shows curves without figures.\n\n",
               scaling_hidden, format_count(scaling_sequence)) +
           table.str(terminal_style());
  }

  Errors throughput_errors() const {
    Errors errors;
    for (const Cell& cell : cells_) {
      if (cell.table != "main" || cell.out_of_memory) continue;
      errors.mean += std::abs(error(cell));
      errors.largest = std::max(errors.largest, std::abs(error(cell)));
      ++errors.count;
    }
    errors.mean /= std::max(errors.count, 1);
    return errors;
  }

  /// Pairs of schedules of one size that the predictions rank differently from the measurements.
  std::vector<std::string> wrong_order() const {
    std::vector<std::string> wrong;
    for (const Cell& a : cells_) {
      for (const Cell& b : cells_) {
        const bool pair = a.table == "main" && b.table == "main" && a.hidden == b.hidden && a.sequence == b.sequence;
        if (!pair || a.tokens <= b.tokens || b.tokens <= 0) continue;
        if (of(a).tokens_per_device_per_second > of(b).tokens_per_device_per_second) continue;
        wrong.push_back(fmt::format("{} before {} at hidden {}, sequence {}", b.schedule, a.schedule, a.hidden, a.sequence));
      }
    }
    return wrong;
  }

  std::string verdict_text() const {
    const Errors errors = throughput_errors();
    std::string text = fmt::format("Mean error of {} throughputs {}, largest {}.\n", errors.count, format_percent(errors.mean),
                                   format_percent(errors.largest));
    const std::vector<std::string> wrong = wrong_order();
    text += wrong.empty() ? "The order of the schedules is the measured one everywhere.\n"
                          : "Wrong order: " + join(wrong, "; ") + ".\n";
    text += fmt::format(
        "\nOne compute efficiency for each hidden size, one bandwidth for each kind of link, the fastest microbatch of at most\n"
        "{} tokens that fits {} of the memory (at hidden 4096 the one that the published memory tells), one set of\n"
        "options for each schedule:\n",
        format_count(published::tawpipe_microbatch_tokens), format_percent(usable_memory_, 0));
    for (const auto& variant : published::tawpipe_variants()) {
      text += fmt::format("  {:<24}{} {}: {}\n", variant.name, variant.schedule, join(variant.options, " "), variant.reason);
    }
    return text;
  }

  std::vector<Cell> cells_;
  bool with_scaling_;
  double usable_memory_;
  std::map<Setup, Summary> predictions_;
};

}  // namespace

int run_reproduce_tawpipe(const ReproduceRequest& request) {
  std::vector<Cell> cells = published::tawpipe_cells();
  if (!request.data.empty()) {
    cells = published::read_tawpipe_cells(CsvTable{request.data, read_text(request.data, "file of published cells"), "schedule"});
  }
  std::optional<OutputFile> file;
  if (!request.json.empty()) file.emplace(request.json);
  PictureFile chart{"--chart", request.chart};
  const Reproduction reproduction{std::move(cells), request.data.empty(), request.usable_memory};
  if (file) {
    (*file)(reproduction.json().dump(2) + "\n");
    file->finish();
  }
  if (chart) chart.write(reproduce_chart(reproduction.json()));
  if (request.json != "-") print(reproduction.text());
  return ok;
}

}  // namespace tawpipe::sim
