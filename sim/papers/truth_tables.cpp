// Reads tables of published runs, ours and vTrain's.
// Not: what a row means (truth.cpp).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/answers/read_text.hpp"
#include "tawpipe/core/csv.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "truth.hpp"

namespace tawpipe::sim {

namespace {

/// The flags without those that have no effect: the scope of CUDA graphs where there are none.
std::string effective_flags(std::string flags) {
  constexpr std::string_view scope = "cuda_graph_scope=";
  const std::size_t at = flags.find(scope);
  if (flags.find("cuda_graph_impl=none") == std::string::npos || at == std::string::npos) return flags;
  flags.erase(at, std::min(flags.find(';', at), flags.size() - 1) - at + 1);
  if (!flags.empty() && flags.back() == ';') flags.pop_back();
  return flags;
}

/// The cells of one row, read by column.
class Cells {
 public:
  Cells(const CsvTable& table, std::size_t row) : table_{table}, row_{row} {}

  const std::string& text(std::string_view column) const { return table_.text(row_, table_.column(column)); }
  /// A whole number of at least `least`, below a million (int, three of which multiply) or a billion;
  /// `absent` where the cell is empty.
  template <class Number>
  Number count(std::string_view column, Number absent, Number least = 1) const {
    constexpr Number most = sizeof(Number) == 4 ? 1'000'000 : 1'000'000'000;
    const std::size_t at = table_.column(column);
    if (text(column).empty()) return absent;
    const double value = table_.number(row_, at);
    if (!(value >= static_cast<double>(least) && value <= static_cast<double>(most)) || value != std::floor(value)) {
      throw table_.fail(row_, at, concat(quote(text(column)), " must be a whole number from ", least, " to ", most));
    }
    return static_cast<Number>(value);
  }
  /// The same of a column that a table may lack.
  int optional(std::string_view column, int absent, int least = 1) const {
    const auto& columns = table_.columns();
    return std::find(columns.begin(), columns.end(), column) == columns.end() ? absent : count(column, absent, least);
  }
  /// A text of a column that a table may lack.
  std::string optional_text(std::string_view column) const {
    const auto& columns = table_.columns();
    return std::find(columns.begin(), columns.end(), column) == columns.end() ? std::string{} : text(column);
  }
  double measure(std::string_view column) const {
    const std::size_t at = table_.column(column);
    const double value = table_.number(row_, at);
    if (value < 0) throw table_.fail(row_, at, concat(quote(text(column)), " is negative"));
    return value;
  }
  InputError fail(std::string_view column, std::string_view why) const { return table_.fail(row_, table_.column(column), why); }

 private:
  const CsvTable& table_;
  std::size_t row_;
};

/// A row's memory is what its column `memory_kind` says: allocated, reserved, or out of memory. Without
/// one torchtitan's is reserved (train.py: max_reserved_gib), others' allocated. SimuMax's note has both.
void take_memory(TruthRow& row, const Cells& cells) {
  const std::string kind = lower_case(cells.optional_text("memory_kind"));
  const std::string note = cells.optional_text("note");
  const double memory = cells.measure("peak_memory_gib");
  row.ran_out = kind == "out of memory";
  if (!kind.empty() && !row.ran_out && kind != "allocated" && kind != "reserved")
    throw cells.fail("memory_kind", concat(quote(kind), " is none of: allocated, reserved, out of memory"));
  const bool reserved = kind.empty() ? row.is_torchtitan() : kind == "reserved";
  (reserved ? row.reserved_gib : row.allocated_gib) = row.ran_out ? 0 : memory;
  constexpr std::string_view both = "max_reserved ";
  const std::size_t at = note.find(both);
  if (at == std::string::npos) return;
  const std::string_view rest = std::string_view{note}.substr(at + both.size());
  row.reserved_gib = to_number<double>(rest.substr(0, rest.find(' '))).value_or(0);
}

/// A host's adapters: "4x100 RoCE" of the column `network`, of Gb/s, or "1600 RoCE", all together; "4 x 100 Gb/s RoCE
/// a node" of `interconnect`, whose other texts say what is usual, or nothing.
void take_network(TruthRow& row, const Cells& cells) {
  const std::string said = cells.optional_text("network");
  const std::string interconnect = cells.optional_text("interconnect");
  std::string text = said.substr(0, said.find(' '));
  const std::vector<std::string_view> words = split(interconnect, ' ');
  if (text.empty() && words.size() > 4 && words[1] == "x" && words[3] == "Gb/s" && interconnect.ends_with(" a node"))
    text = concat(words[0], "x", words[2]);
  if (text.empty()) return;
  const std::size_t times = text.find('x');
  const int all = times == std::string::npos ? 8 : to_number<int>(text.substr(0, times)).value_or(0);
  const double gbits = to_number<double>(times == std::string::npos ? text : text.substr(times + 1)).value_or(0);
  if (all < 1 || !(gbits > 0)) {
    if (!said.empty())
      throw cells.fail("network", concat(quote(said), " is none of: 8x400 InfiniBand, 1600 RoCE (Gb/s of a host)"));
    return;
  }
  row.adapters = all;
  row.adapter_gbits = times == std::string::npos ? gbits / all : gbits;
}

void check_degrees(const TruthRow& row, const Cells& cells, std::string_view column) {
  const std::int64_t product = std::int64_t{row.tp} * row.cp * row.pp;
  if (row.gpus < 1) throw cells.fail(column, "the row has no number of GPUs");
  if (row.gpus % product != 0) {
    throw cells.fail(column, concat("tensor ", row.tp, " x context ", row.cp, " x pipeline ", row.pp, " = ", product,
                                    " does not divide the ", row.gpus, " GPUs"));
  }
}

/// A row of a later release that names no flags ran with those that the nearest earlier release of the
/// same configuration names: a recipe changes from time to time, and the table follows the last one
/// that was read. A row is called CONFIGURATION#RELEASE; releases of two numberings, "25.05" and "v25.03",
/// say nothing of each other.
void carry_flags(std::vector<TruthRow>& rows) {
  const std::vector<TruthRow> given = rows;
  for (TruthRow& row : rows) {
    const std::size_t mark = row.row.find('#');
    if (!row.overlap.empty() || mark == std::string::npos) continue;
    const std::string_view configuration = std::string_view{row.row}.substr(0, mark + 1);
    const std::string_view release = std::string_view{row.row}.substr(mark + 1);
    std::string_view nearest;
    for (const TruthRow& other : given) {
      if (other.source != row.source || other.overlap.empty() || !other.row.starts_with(configuration)) continue;
      const std::string_view earlier = std::string_view{other.row}.substr(mark + 1);
      if (earlier.starts_with('v') != release.starts_with('v') || earlier >= release || earlier <= nearest) continue;
      nearest = earlier;
      row.overlap = other.overlap;
    }
  }
}

}  // namespace

std::vector<TruthRow> read_truth_rows(const std::string& file) {
  const CsvTable table{one_line(file), answers::read_text(file, "table of measurements"), "step_time_s"};
  std::vector<TruthRow> rows;
  for (std::size_t r = 0; r < table.rows(); ++r) {
    const Cells cells{table, r};
    TruthRow row;
    row.source = cells.text("source");
    row.row = cells.text("row");
    row.hardware = cells.text("hardware");
    row.gpus = cells.count("gpus", 0);
    take_network(row, cells);
    row.model = cells.text("model");
    row.params_b = cells.measure("params_b");
    row.layers = cells.count("layers", 0);
    row.hidden = cells.count("hidden", 0);
    row.heads = cells.count("heads", 0);
    row.kv_heads = cells.count("kv_heads", 0);
    row.ffn = cells.count("ffn", 0);
    row.vocab = cells.count("vocab", 0);
    row.experts = cells.count("experts", 0, 0);
    row.topk = cells.optional("topk", 0, 0);
    row.sequence = cells.count<std::int64_t>("sequence", 0);
    row.global_batch = cells.count<std::int64_t>("global_batch", 0);
    row.micro_batch = cells.count<std::int64_t>("micro_batch", 0);
    row.tp = cells.count("tp", 1);
    row.sp = cells.text("sp") != "0";
    row.cp = cells.count("cp", 1);
    row.ep = cells.optional("ep", 1);
    row.pp = cells.count("pp", 1);
    row.vp = cells.count("vp", 1);
    if (cells.text("vp").empty() && row.pp > 1 && lower_case(cells.text("schedule")).find("interleaved") != std::string::npos) {
      const int slots = row.layers % row.pp == 0 ? row.layers : row.layers + 2;  // with embedding and loss
      if (slots % row.pp == 0) row.vp = slots / row.pp;                          // a layer each
    }
    if (row.pp > 1 && row.micro_batch * row.dp() == row.global_batch && row.micro_batch % row.pp == 0) {
      row.micro_batch /= row.pp;  // a replica's whole batch, of which a pipeline makes one microbatch a rank (torchtitan)
    }
    row.zero = cells.text("zero");
    row.precision = cells.text("precision");
    row.recompute = cells.text("recompute");
    row.schedule = cells.text("schedule");
    row.overlap = effective_flags(cells.text("overlap_flags"));
    row.file = cells.optional_text("file");
    row.step_time_s = cells.measure("step_time_s");
    row.tflops_per_gpu = cells.measure("tflops_per_gpu");
    take_memory(row, cells);
    row.has_layout = !(cells.text("tp").empty() && cells.text("cp").empty() && cells.text("pp").empty());
    check_degrees(row, cells, "gpus");
    rows.push_back(std::move(row));
  }
  if (rows.empty()) throw InputError(concat(one_line(file), ": the table has no rows"));
  carry_flags(rows);
  return rows;
}

std::vector<TruthRow> read_vtrain_rows(const std::string& file) {
  const CsvTable table{one_line(file), answers::read_text(file, "file of measurements"), "iteration time (ms)"};
  std::vector<TruthRow> rows;
  for (std::size_t r = 0; r < table.rows(); ++r) {
    const Cells cells{table, r};
    TruthRow row;
    row.gpus = cells.count("# GPUs", 0);
    row.source = row.gpus > 8 ? "vtrain, several nodes" : "vtrain, one node";
    row.row = concat(row.source, "#", r + 1);
    row.hardware = "A100-80G";
    row.adapters = 4;  // 800 Gb/s a node: VIA-Research/vTrain, src/config.py, inter_node_bandwidth
    row.model = "gpt";
    row.layers = cells.count("# layers", 0);
    row.hidden = cells.count("hidden size", 0);
    row.heads = cells.count("attention heads", 0);
    row.ffn = 4 * row.hidden;
    row.sequence = cells.count<std::int64_t>("sequence length", 0);
    row.global_batch = cells.count<std::int64_t>("global batch", 0);
    row.micro_batch = cells.count<std::int64_t>("micro batch", 0);
    row.tp = cells.count("tensor parallelism", 1);
    // One node ran the model that vTrain publishes: its parts of the vocabulary are not padded, and it
    // computes nothing again (src/model/gpt_model.py, gpt_modeling.py). Several ran Megatron-DeepSpeed.
    row.vocab = row.gpus > 8 ? 50304 : 50257 / row.tp * row.tp;
    row.sp = false;
    row.pp = cells.count("pipeline parallelism", 1);
    row.zero = "none";
    row.precision = "FP16";
    row.recompute = row.gpus > 8 ? "full" : "none";
    row.schedule = "1F1B";
    row.step_time_s = cells.measure("iteration time (ms)") / 1e3;
    check_degrees(row, cells, "# GPUs");
    if (cells.count("data parallelism", row.dp()) != row.dp()) {
      throw cells.fail("data parallelism", concat("tensor ", row.tp, " x pipeline ", row.pp, " leaves ", row.dp(), " of the ",
                                                  row.gpus, " GPUs to data parallelism"));
    }
    if (row.step_time_s <= 0) throw cells.fail("iteration time (ms)", "the row has no iteration time");
    rows.push_back(std::move(row));
  }
  if (rows.empty()) throw InputError(concat(one_line(file), ": the file of measurements has no rows"));
  return rows;
}

}  // namespace tawpipe::sim
