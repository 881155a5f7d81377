// Options of activation pipelines.
// Not: their orders (gpipe.hpp, one_f_one_b.hpp, ...), nor limits of memory
// (zero_bubble_options.hpp).
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "tawpipe/model/workload.hpp"
#include "tawpipe/schedules/option_field.hpp"

namespace tawpipe::inline v0::schedules {

/// What sends and receives that overlap computation share.
enum class P2pStreams {
  /// a stream for each neighbour, on which they take turns: PyTorch has a communicator for each pair
  /// of ranks (ProcessGroupNCCL.cpp, getKeySendRecv), which single isend and irecv use
  pair,
  direction,  ///< nothing: a stream for each neighbour and direction
};
constexpr std::array<std::string_view, 2> option_names(P2pStreams) { return {"pair", "direction"}; }

/// How any pipeline's transfers run.
struct PipelineOptions {
  /// off: a send or receive holds the compute lane until it is done, as in Megatron-LM by default
  bool overlap = true;
  P2pStreams p2p = P2pStreams::direction;
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

namespace detail {
template <auto member>
auto chunks_field(const char* tried) {
  return auto_tries(option_field<member>("chunks", {.low = 1}, "pieces of the model on each device, looped over the devices"),
                    tried);
}
}  // namespace detail

/// For pipelines that cut the model into several chunks a rank.
struct ChunkOptions {
  int chunks = 2;

  static std::vector<Field<ChunkOptions>> fields() { return {detail::chunks_field<&ChunkOptions::chunks>("2|3|4")}; }
};

/// For interleaved 1F1B, whose sends and receives Megatron-LM issues one by one: they take turns,
/// but for two ranks, where it has a communicator for each direction (p2p_communication.py,
/// even_recv_odd_send_group). Closed forms, which fixed times are meant for, assume that they do not.
struct InterleavedOptions {
  int chunks = 2;
  std::optional<P2pStreams> p2p{};
  /// each forward of the steady part is one block with a backward of another microbatch (Action::joined),
  /// for which there is a forward more to warm up: Megatron-LM, --overlap-moe-expert-parallel-comm
  /// (core/pipeline_parallel/schedules.py: get_pp_rank_microbatches)
  bool pairs = false;

  static std::vector<Field<InterleavedOptions>> fields() {
    // As many as recipes for thousands of GPUs have.
    return {detail::chunks_field<&InterleavedOptions::chunks>("2|3|4|5|6|7|8|10|12"),
            auto_tries(option_field<&InterleavedOptions::p2p>(
                           "p2p", "pair: sends and receives between two devices take turns, as in Megatron-LM and PyTorch",
                           "pair (direction with fixed times or two devices)"),
                       "direction")};
  }
  InterleavedOptions resolved(const Workload& workload, int ranks) const {
    const bool pair = !workload.is_abstract() && ranks > 2;
    return {chunks, p2p.value_or(pair ? P2pStreams::pair : P2pStreams::direction), pairs};
  }
};

}  // namespace tawpipe::schedules
