// A stage that several ranks share, by matrices (tensor parallelism) and by tokens (context
// parallelism): one rank's part of it, and the small task graph of its layers.
// Not: how both follow from a model (model/transformer_body.hpp).
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/parse_name.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/core/units.hpp"
#include "tawpipe/model/stage_work.hpp"

namespace tawpipe::inline v0 {

/// How the ranks that split a sequence exchange queries, keys and values.
enum class ContextExchange : std::uint8_t {
  /// keys and values are gathered before the attention (Grattafiori et al. 2024, arXiv:2407.21783,
  /// 3.3.2)
  all_gather,
  /// keys and values circulate while blocks of them are processed (Liu et al. 2023,
  /// arXiv:2310.01889)
  ring,
  /// each rank has all tokens of some heads (Ulysses: Jacobs et al. 2023, arXiv:2309.14509)
  all_to_all,
  /// all-to-all among neighbours, and a ring of their groups (Fang and Zhao 2024, arXiv:2405.07719)
  two_level,
};
inline constexpr int context_exchanges = 4;

/// "all-gather", "ring", "all-to-all" or "all-to-all+ring".
constexpr std::string_view name(ContextExchange exchange) {
  constexpr std::string_view names[context_exchanges] = {"all-gather", "ring", "all-to-all", "all-to-all+ring"};
  return names[static_cast<int>(exchange)];
}

/// Whether ranks pass blocks of keys and values around, a kernel of attention for each block.
constexpr bool passes_blocks(ContextExchange exchange) {
  return exchange == ContextExchange::ring || exchange == ContextExchange::two_level;
}
/// Attention within a window is not computed by blocks. Source: Transformer Engine,
/// pytorch/attention/dot_product_attention/context_parallel.py: attn_forward_func_with_cp.
[[noreturn]] inline void refuse_ring_of_window(ContextExchange exchange) {
  throw InputError(
      concat("context exchange ", name(exchange), " has no attention within a window; use all-gather or all-to-all"));
}

/// Parses the name of an exchange. @throws InputError  naming the nearest and all known names.
inline ContextExchange parse_context_exchange(std::string_view text) {
  return detail::parse_name<ContextExchange, context_exchanges>("context exchange", text);
}

/// How tokens get to ranks that have whole experts, and back.
enum class ExpertDispatch : std::uint8_t {
  /// a copy of a token for each of its experts (Lepikhin et al. 2020, GShard, arXiv:2006.16668,
  /// section 3.2; Megatron-LM's dispatcher alltoall)
  all_to_all,
  /// a copy for each node that has one of its experts, to the rank at the sender's place there, which
  /// passes on one for each rank that has one; results are summed on the way back (DeepEP, HybridEP)
  deepep,
};
/// The names of its values.
constexpr std::array<std::string_view, 2> option_names(ExpertDispatch) { return {"all-to-all", "deepep"}; }
constexpr std::string_view name(ExpertDispatch dispatch) { return option_names(dispatch)[static_cast<std::size_t>(dispatch)]; }

/// Whether all-to-alls with tokens for whole experts run under another microbatch's computation: a
/// forward and a backward of different microbatches take turns, so that each computes while the
/// other's tokens travel (DeepSeek-AI 2024, arXiv:2412.19437, section 3.2.1; Megatron-LM,
/// --overlap-moe-expert-parallel-comm).
enum class ExpertOverlap : std::uint8_t {
  off,
  on,
  /// and gradients of weights wait until the all-to-all that needs nothing of them has begun
  /// (Megatron-LM, --delay-wgrad-compute)
  delayed,
};
inline constexpr int expert_overlaps = 3;

/// "off", "on" or "delayed".
constexpr std::string_view name(ExpertOverlap overlap) {
  constexpr std::string_view names[expert_overlaps] = {"off", "on", "delayed"};
  return names[static_cast<int>(overlap)];
}

/// Parses the name of an overlap. @throws InputError  naming the nearest and all known names.
inline ExpertOverlap parse_expert_overlap(std::string_view text) {
  return detail::parse_name<ExpertOverlap, expert_overlaps>("overlap of experts' all-to-alls", text);
}

/// How a stage is split over ranks.
struct Sharing {
  int tensor = 1;
  int context = 1;
  int expert = 1;  ///< ranks that have sequences of their own of a microbatch
  /// Each of all these ranks has whole experts, to which the tokens are sent: an all-to-all before
  /// and one after them (Lepikhin et al. 2020, GShard, arXiv:2006.16668, section 3.2). False:
  /// tensor-parallel ranks split the width of all experts, as that of an MLP.
  bool whole_experts = false;
  ExpertDispatch dispatch = ExpertDispatch::all_to_all;
  /// of a dispatch by DeepEP: ranks next to each other that lie in one node; divides ranks()
  int neighbours = 1;
  /// of all-to-alls between ranks with whole experts
  ExpertOverlap expert_overlap = ExpertOverlap::off;
  /// Norms and residuals are split by tokens over the tensor-parallel ranks: an all-gather before
  /// and a reduce-scatter after each pair of products in place of one all-reduce (Korthikanti et
  /// al. 2022, arXiv:2205.05198, section 4.2).
  bool sequence_parallel = true;
  ContextExchange exchange = ContextExchange::all_gather;
  /// of an exchange in two levels: neighbours that exchange all-to-all; divides `context`
  int inner = 1;
  /// With sequence parallelism: products are cut into pieces, so that a gather's parts arrive and a
  /// sum's parts leave while others are computed (Megatron-LM's --tp-comm-overlap, PyTorch's
  /// asynchronous tensor parallelism).
  bool overlap = false;
  /// Stages hand activations to other ranks. Without sequence parallelism each tensor-parallel rank
  /// then sends a part of them, which the receivers gather among themselves (Narayanan et al. 2021,
  /// arXiv:2104.04473, section 4.1: scatter/gather, Megatron-LM's and DeepSpeed's default).
  bool sends_activations = false;

  /// torchtitan's copies around gathers and sums of several sequences count; a lower bound leaves
  /// them out.
  bool copies = true;

  int ranks() const { return tensor * context * expert; }
  /// The number of parts of a microbatch's tokens.
  int token_ranks() const { return context * expert; }
  /// The number of parts of norms, residuals and their saved activations.
  int token_parts() const { return sequence_parallel ? ranks() : token_ranks(); }
  KernelSplit kernels() const { return {tensor, context, expert, whole_experts, sequence_parallel}; }
  /// The number of parts in which keys and values circulate.
  int attention_blocks() const {
    return exchange == ContextExchange::ring ? context : exchange == ContextExchange::two_level ? context / inner : 1;
  }
  /// Whether what another rank's stage sent is gathered first.
  bool gathers_messages() const { return sends_activations && tensor > 1 && !sequence_parallel; }
  /// Whether a forward and a backward take turns at all-to-alls to and from experts.
  bool alternates() const { return expert_overlap != ExpertOverlap::off && whole_experts && ranks() > 1; }
  /// Whether gradients of weights wait until the next all-to-all has begun.
  bool delays_weights() const { return expert_overlap == ExpertOverlap::delayed && alternates(); }
  bool operator==(const Sharing&) const = default;
};

/// Kernels of a stage (StageWork::kernels) that a step runs: those of an operator of one layer, or of a
/// part of an edge, in a pass.
struct StepKernels {
  std::int16_t op = 0;          ///< Kernel::op
  std::uint8_t layer_kind = 0;  ///< LayerPattern
  bool of_edge = false;
  KernelPass pass = KernelPass::forward;
  double share = 1;  ///< the part of each that it runs

  auto operator<=>(const StepKernels&) const = default;
  bool has(const Kernel& kernel) const {
    return kernel.op == op && kernel.of_edge == of_edge && kernel.pass == pass && (of_edge || kernel.layer_kind == layer_kind);
  }
};

/// One step of a stage's body: a computation of every rank that shares the stage, or a collective
/// along an axis among those ranks.
struct BodyStep {
  /// The ranks of a collective.
  enum class Axis : std::uint8_t {
    tensor,
    context,
    all,  ///< all ranks that share the stage, tensor fastest, then context
  };

  enum class Kind : std::uint8_t {
    compute,
    all_reduce,
    all_gather,
    reduce_scatter,
    all_to_all,
    ring,  ///< each rank sends to the next
  };

  Kind kind = Kind::compute;
  Axis axis = Axis::tensor;  ///< a collective's
  bool gradients = false;    ///< a collective carries gradients of activations
  Flops flops{};             ///< a computation's, of one rank
  Bytes traffic{};           ///< a computation's memory-bound bytes, of one rank
  /// An all_to_all is among this many neighbours of the axis, and a ring goes to the rank this many
  /// further on; 0: among all of the axis, and to the next.
  std::int32_t inner = 0;
  /// Of an all_to_all among neighbours, in addition: what a rank sends to those at its place among
  /// all other neighbours together.
  Bytes relayed{};
  /// a computation's: its products are cut by tokens into that many kernels, and it runs one; a
  /// collective's: the host launches that many of them at once
  std::int32_t pieces = 1;
  /// a collective's: the whole buffer (all_gather, reduce_scatter, all_reduce), or what one rank
  /// sends, with `relayed`
  Bytes bytes{};
  /// Earlier steps that it waits for; -1: none. Computations also run in order, and so do
  /// collectives of an axis.
  std::array<std::int32_t, 2> after = {-1, -1};
  /// The stage's layer whose weights it is the first to need, or whose gradient is complete after
  /// it; the number of layers: of what follows them; -1: none.
  std::int32_t layer = -1;
  /// a computation's; empty: not known, as of a body that was read from a file
  std::vector<StepKernels> kernels = {};

  bool is_compute() const { return kind == Kind::compute; }
};

inline constexpr int body_axes = 3;
/// "tensor", "context" or "all".
constexpr std::string_view name(BodyStep::Axis axis) {
  constexpr std::string_view names[body_axes] = {"tensor", "context", "all"};
  return names[static_cast<int>(axis)];
}
inline constexpr int body_step_kinds = 6;

/// The kind's name in files.
constexpr std::string_view name(BodyStep::Kind kind) {
  constexpr std::string_view names[body_step_kinds] = {"compute",        "all_reduce", "all_gather",
                                                       "reduce_scatter", "all_to_all", "ring"};
  return names[static_cast<int>(kind)];
}

/// The steps of one pass through a stage, each after its dependencies.
using StageBody = std::vector<BodyStep>;

/// One rank's part of a stage. Without bodies a computation is a single task without communication.
struct SharedStage {
  StageWork work;
  StageBody forward = {};
  StageBody backward = {};         ///< both parts together
  StageBody backward_input = {};   ///< by itself
  StageBody backward_weight = {};  ///< by itself
  /// A forward and a backward that a rank's program has next to each other, neither of which waits
  /// for the other, take turns: one computes while the other's all-to-all among all ranks runs.
  bool alternates = false;
};

}  // namespace tawpipe
