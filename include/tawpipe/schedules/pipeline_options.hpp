// Options of activation pipelines.
// Not: their orders (gpipe.hpp, one_f_one_b.hpp, ...), nor limits of memory
// (zero_bubble_options.hpp).
#pragma once

#include <optional>
#include <vector>

#include "tawpipe/model/workload.hpp"
#include "tawpipe/schedules/option_field.hpp"

namespace tawpipe::inline v0::schedules {

/// How any pipeline's transfers run.
struct PipelineOptions {
  /// off: a send or receive holds the compute lane until it is done, as in Megatron-LM by default
  bool overlap = true;
};

/// For the pipelines that Megatron-LM has: by default its sends and receives hold the compute
/// stream. Closed forms, which fixed times are meant for, assume overlap.
struct BlockingOptions {
  std::optional<bool> overlap{};

  static std::vector<Field<BlockingOptions>> fields() {
    return {auto_tries(option_field<&BlockingOptions::overlap>(
                           "overlap", "off: sends and receives hold the compute lane, as in Megatron-LM by default",
                           "off (on with fixed times)"),
                       "on|off")};
  }
  BlockingOptions resolved(const Workload& workload) const { return {overlap.value_or(workload.is_abstract())}; }
};

/// For pipelines that cut the model into several chunks a rank.
struct ChunkOptions {
  int chunks = 2;

  static std::vector<Field<ChunkOptions>> fields() {
    return {auto_tries(
        option_field<&ChunkOptions::chunks>("chunks", {.low = 1}, "pieces of the model on each device, looped over the devices"),
        "2|3|4")};
  }
};

}  // namespace tawpipe::schedules
