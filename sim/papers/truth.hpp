// Published training runs, one a row: what was run, what was measured, and the problem that it
// poses.
// Not: how well the predictions hold (truth_scores.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tawpipe/core/csv.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/search/expected_error.hpp"
#include "tawpipe/search/problem.hpp"

namespace tawpipe::sim {

/// One row. A size of 0 or an empty text: the source does not give it.
struct TruthRow {
  std::string source;
  std::string row;  ///< id, "configuration#run"
  std::string hardware;
  int gpus = 0;
  int adapters = 0;          ///< of a host, to the network; 0: one for each GPU
  double adapter_gbits = 0;  ///< Gb/s of each; 0: as is usual with the GPU
  std::string model;
  double params_b = 0;  ///< 10^9 parameters
  int layers = 0;
  int hidden = 0;
  int heads = 0;
  int kv_heads = 0;
  int ffn = 0;
  int vocab = 0;
  int experts = 0;
  int topk = 0;
  std::int64_t sequence = 0;
  std::int64_t global_batch = 0;
  std::int64_t micro_batch = 0;
  bool has_layout = true;  ///< one of tp, cp and pp is given
  int tp = 1;
  bool sp = true;
  int cp = 1;
  int ep = 1;
  int pp = 1;
  int vp = 1;
  std::string zero;
  std::string precision;
  std::string recompute;
  std::string schedule;
  std::string overlap;
  double step_time_s = 0;
  double tflops_per_gpu = 0;
  double allocated_gib = 0;  ///< the most tensors at once, of all devices: max_memory_allocated
  double reserved_gib = 0;   ///< the most that PyTorch's allocator had: max_memory_reserved
  bool ran_out = false;      ///< of memory; then there is no time
  std::string file = {};     ///< of the source: its name may say a date

  /// On PyTorch's second FSDP, or torchtitan's words.
  bool is_torchtitan() const {
    return lower_case(zero).find("fsdp2") != std::string::npos || overlap.find("torch_compile") != std::string::npos;
  }
  /// MosaicML's models, trained by Composer.
  bool is_mpt() const { return lower_case(model).starts_with("mpt"); }
  /// ZB-1p and ZB-2p.
  bool is_zero_bubble() const { return schedule.starts_with("ZB-"); }
  /// Whether ranks begin their next step without waiting for the others, as ZB-1p and ZB-2p do,
  /// which check gradients after the update; a row that ran them with the usual all-reduce says
  /// "_sync".
  bool checks_after_update() const { return is_zero_bubble() && row.find("_sync") == std::string::npos; }
  /// Replicas: what the other degrees leave of the GPUs.
  int dp() const { return static_cast<int>(gpus / (std::int64_t{tp} * cp * pp)); }
};

/// The rows of a table with the columns of docs/accuracy.md; other columns are ignored.
/// @throws InputError  naming line and column of a missing column, or of a cell that is not a
/// number or impossible.
std::vector<TruthRow> read_truth_rows(const std::string& file);
/// vTrain's measurements, in its own columns. @throws InputError  as above.
std::vector<TruthRow> read_vtrain_rows(const std::string& file);

/// The problem that a row poses, or why the library cannot express it. All sources by one mapping,
/// which docs/accuracy.md lists; it uses nothing that was measured.
/// @param with_experts  also of mixtures of experts
std::variant<Problem, std::string> truth_problem(const TruthRow& row, bool with_experts);

/// Whose code ran a row, by its source's name.
Software software_of(const TruthRow& row);

/// What a row measured: its step time, or the FLOPs that utilization is defined by over its printed
/// FLOP/s; 0 where it has neither.
double measured_seconds(const TruthRow& row, const Problem& problem);

}  // namespace tawpipe::sim
