// The TawPipe paper's published cells, and the options of each of its schedules here.
// Not: their predictions (the command `tawpipe reproduce tawpipe`).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/core/csv.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::published {

inline constexpr int tawpipe_layers = 48;  ///< of all of the paper's models

/// One published cell: 24 A800 in 3 nodes, 48 layers, fp16, full recomputation, 1536 sequences an
/// iteration. A figure of 0 was not published.
struct Cell {
  std::string table;     ///< main, ablation or communication
  std::string schedule;  ///< the paper's name, as in a TawpipeVariant
  int hidden = 0;
  int sequence = 0;
  double tokens = 0;           ///< a GPU and second
  double memory_gib = 0;       ///< the largest a GPU held (torch.cuda.max_memory_allocated / 1024^3)
  bool out_of_memory = false;  ///< the paper could not run it
  double nccl_share = 0;       ///< NCCL kernels' part of all kernels' time
  double nccl_s = 0;           ///< NCCL kernels' time on a GPU in one iteration
};

/// The cells of arXiv:2511.09741: throughput and memory of the main table, the analysis of
/// communication, and the ablation of its components.
inline std::vector<Cell> tawpipe_cells() {
  return {{"main", "1f1b", 1024, 4096, 7212},
          {"main", "fsdp", 1024, 4096, 10559},
          {"main", "weipipe", 1024, 4096, 12055},
          {"main", "tawpipe", 1024, 4096, 13629},
          {"main", "1f1b", 1024, 8192, 6636},
          {"main", "fsdp", 1024, 8192, 8826},
          {"main", "weipipe", 1024, 8192, 10663},
          {"main", "tawpipe", 1024, 8192, 11738},
          {"main", "1f1b", 1024, 16384, 5594},
          {"main", "fsdp", 1024, 16384, 6751},
          {"main", "weipipe", 1024, 16384, 8412},
          {"main", "tawpipe", 1024, 16384, 8914},
          {"main", "1f1b", 4096, 16384, 1114.2, 62.3},
          {"main", "zb-1", 4096, 16384, 0, 0, true},
          {"main", "zb-2", 4096, 16384, 0, 0, true},
          {"main", "fsdp", 4096, 16384, 956.1, 52.0},
          {"main", "weipipe", 4096, 16384, 1232.4, 57.8},
          {"main", "tawpipe", 4096, 16384, 1377.6, 56.7},
          {"ablation", "tawpipe", 1024, 16384, 8914},
          {"ablation", "tawpipe-without-groups", 1024, 16384, 8590},
          {"ablation", "tawpipe-without-overlap", 1024, 16384, 8220},
          {"ablation", "tawpipe", 2048, 16384, 4180},
          {"ablation", "tawpipe-without-groups", 2048, 16384, 3910},
          {"ablation", "tawpipe-without-overlap", 2048, 16384, 3470},
          {"ablation", "tawpipe", 4096, 16384, 1377.6},
          {"ablation", "tawpipe-without-groups", 4096, 16384, 1260},
          {"ablation", "tawpipe-without-overlap", 4096, 16384, 1140},
          {"communication", "1f1b", 1024, 16384, 0, 0, false, 0.480, 105.1},
          {"communication", "fsdp", 1024, 16384, 0, 0, false, 0.337, 41.7},
          {"communication", "weipipe", 1024, 16384, 0, 0, false, 0.637, 194.0},
          {"communication", "tawpipe", 1024, 16384, 0, 0, false, 0.241, 34.7}};
}

/// A schedule of the paper in terms of the catalogue; one set of options for all of its cells.
struct TawpipeVariant {
  std::string_view name;             ///< in the paper's tables
  std::string_view schedule;         ///< in the catalogue
  std::vector<std::string> options;  ///< key=value
  bool loss_in_float32 = false;      ///< Megatron-LM's cross entropy; the others' code has it in fp16
  std::string_view reason;           ///< for the options
};

/// @see docs/accuracy_paper.md for the evidence.
inline const std::vector<TawpipeVariant>& tawpipe_variants() {
  static const std::vector<TawpipeVariant> variants{
      {"1f1b", "1f1b", {"overlap=off"}, true, "Megatron-LM's default: sends and receives hold the compute stream"},
      {"zb-1", "zb-auto", {"memory-limit=1p"}, true, "the code's ZERO_BUBBLE_MEM_LIMIT of p"},
      {"zb-2", "zb-auto", {"memory-limit=2p"}, true, "the code's ZERO_BUBBLE_MEM_LIMIT of 2p"},
      {"fsdp", "fsdp", {"gather-first=on"}, false, "the next gather before the scatter, on one communicator (BACKWARD_POST)"},
      {"weipipe", "weipipe", {"order=eager"}, false, "turns kept in step by messages alone"},
      {"tawpipe", "tawpipe", {"buffers=3"}, false, "the code discards its requests: transfers never wait for computation"},
      {"tawpipe-without-groups", "weipipe", {"order=eager"}, false, "without groups the shards go round one ring of all GPUs"},
      {"tawpipe-without-overlap",
       "tawpipe",
       {"buffers=3", "prefetch=backward"},
       false,
       "a forward step's shard is fetched after the computation; the one way of blocking that loses what was measured"}};
  return variants;
}

/// The variant of that name. @throws InputError  naming the nearest if there is none.
inline const TawpipeVariant& tawpipe_variant(std::string_view name) {
  std::vector<std::string> names;
  for (const auto& variant : tawpipe_variants()) {
    if (variant.name == name) return variant;
    names.emplace_back(variant.name);
  }
  throw InputError(unknown_name("schedule of the paper", name, names));
}

/// The fraction of the A800's 312 TFLOPS that matrix products reach, one for each hidden size and
/// all schedules: the one with which the paper's full TawPipe, which hides its communication, is
/// predicted right.
inline double tawpipe_efficiency(int hidden) {
  if (hidden == 1024) return 0.335;
  if (hidden == 2048) return 0.465;
  if (hidden == 4096) return 0.55;
  throw InputError(concat("no efficiency is known for a hidden size of ", hidden, "; the paper has 1024, 2048 and 4096"));
}

/// The maximum of tokens in a microbatch: 4 sequences of 16,384, as the memory at hidden 4096
/// shows, and the maximum that the published scripts name anywhere.
inline constexpr std::int64_t tawpipe_microbatch_tokens = 65536;

/// The sequences of a microbatch that the paper's code tries, the fastest of which that fits it
/// takes: powers of two of no more tokens than that, in equal numbers on all devices. At hidden
/// 4096 its published memory shows the most of these (twice as many would not fit, half as many
/// would take a third less), for all but zb-1 and zb-2, which have none published. None where the
/// batch has no such size.
inline std::vector<std::int64_t> tawpipe_microbatches(const TawpipeVariant& variant, const Transformer& model,
                                                      std::int64_t sequence, std::int64_t batch, int devices) {
  std::vector<std::int64_t> sizes;
  const std::int64_t most = std::max<std::int64_t>(1, tawpipe_microbatch_tokens / sequence);
  for (std::int64_t size = 1; batch % (size * devices) == 0 && size <= most; size *= 2) sizes.push_back(size);
  const bool told = model.layers == tawpipe_layers && model.hidden == 4096 && !variant.name.starts_with("zb-");
  if (told && !sizes.empty()) sizes = {sizes.back()};
  return sizes;
}

/// Cells from a file with the columns table, schedule, hidden, sequence,
/// throughput_tokens_per_gpu_s, peak_memory_gb, nccl_time_share and nccl_time_s. @throws InputError
/// naming what is wrong with it.
inline std::vector<Cell> read_tawpipe_cells(const CsvTable& file) {
  std::vector<Cell> cells;
  for (std::size_t row = 0; row < file.rows(); ++row) {
    const auto number = [&](std::string_view column) { return file.number(row, file.column(column)); };
    Cell cell;
    cell.table = file.text(row, file.column("table"));
    cell.schedule = file.text(row, file.column("schedule"));
    const auto size = [&](std::string_view column) {
      const double value = number(column);
      if (!(value >= 1 && value <= 1e6)) throw file.fail(row, file.column(column), "must be a whole number from 1 to 1000000");
      return static_cast<int>(value);
    };
    cell.hidden = size("hidden");
    cell.sequence = size("sequence");
    cell.tokens = number("throughput_tokens_per_gpu_s");
    cell.memory_gib = number("peak_memory_gb");
    cell.nccl_share = number("nccl_time_share");
    cell.nccl_s = number("nccl_time_s");
    cell.out_of_memory = cell.tokens <= 0 && cell.memory_gib <= 0 && cell.nccl_s <= 0;
    tawpipe_variant(cell.schedule);
    tawpipe_efficiency(cell.hidden);
    cells.push_back(std::move(cell));
  }
  return cells;
}

}  // namespace tawpipe::published
