// The batch of one iteration, and which activations are computed again instead of kept.
// Not: which rank runs which microbatch (schedule/).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::inline v0 {

/// Which activations of a decoder layer are kept from its forward to its backward; the head is
/// never recomputed.
/// Source: Korthikanti et al. 2022, arXiv:2205.05198, section 5, adapted to fused attention
/// (docs/models.md).
enum class Recompute : std::uint8_t {
  none,       ///< everything that autograd keeps with fused attention
  selective,  ///< results of matrix products and residual sums; the attention core and elementwise work run again
  full,       ///< the layer's input; its whole forward runs again
};

/// "none", "selective" or "full".
constexpr std::string_view name(Recompute recompute) {
  switch (recompute) {
    case Recompute::none:
      return "none";
    case Recompute::selective:
      return "selective";
    case Recompute::full:
      return "full";
  }
  return "";  // unreachable: every enumerator returns above
}

/// Parses the name of a recomputation policy. @throws InputError  naming the nearest and all known
/// names.
inline Recompute parse_recompute(std::string_view text) {
  for (const auto recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    if (text == name(recompute)) return recompute;
  }
  throw InputError(unknown_name("recomputation", text, {"none", "selective", "full"}));
}

/// The sequences of one iteration over all devices, cut into equal microbatches.
struct Batch {
  std::int64_t sequence = 0;         ///< tokens a sequence
  std::int64_t microbatch_size = 1;  ///< sequences a microbatch
  std::int64_t global_batch = 0;     ///< sequences an iteration

  static constexpr std::int64_t max_tokens = std::int64_t{1} << 24;  ///< of one microbatch
  static constexpr std::int64_t max_global_batch = std::int64_t{1} << 40;

  /// Tokens of one microbatch.
  constexpr std::int64_t tokens() const { return sequence * microbatch_size; }

  /// Microbatches of one iteration. @throws InputError  as check().
  std::int64_t microbatches() const {
    check();
    return global_batch / microbatch_size;
  }

  /// @throws InputError  if a size is below 1 or beyond the limits above, or if the microbatch size
  /// does not divide the global batch (naming the nearest sizes that do).
  void check() const {
    if (sequence < 1) throw InputError(concat("a sequence of ", sequence, " tokens is impossible; it needs at least 1"));
    if (microbatch_size < 1) {
      throw InputError(concat("a microbatch of ", microbatch_size, " sequences is impossible; it needs at least 1"));
    }
    if (global_batch < 1) {
      throw InputError(concat("a global batch of ", global_batch, " sequences is impossible; it needs at least 1"));
    }
    if (global_batch > max_global_batch) {
      throw InputError(concat("a global batch of ", global_batch, " sequences is too large; the most is ", max_global_batch));
    }
    if (global_batch % microbatch_size != 0) throw_indivisible();
    if (sequence > max_tokens || microbatch_size > max_tokens / sequence) {
      throw InputError(concat("a microbatch of ", microbatch_size, " sequences of ", sequence,
                              " tokens is too large; the most is ", max_tokens, " tokens a microbatch"));
    }
  }

 private:
  /// Complexity: O(sqrt(global_batch)), and only when reporting an error.
  [[noreturn]] void throw_indivisible() const {
    std::int64_t below = 0;
    std::int64_t above = 0;
    const auto consider = [&](std::int64_t divisor) {
      if (divisor < microbatch_size && divisor > below) below = divisor;
      if (divisor > microbatch_size && (above == 0 || divisor < above)) above = divisor;
    };
    for (std::int64_t d = 1; d * d <= global_batch; ++d) {
      if (global_batch % d != 0) continue;
      consider(d);
      consider(global_batch / d);
    }
    // 1 divides everything and is below any size that does not divide, so `below` is always found.
    const std::string sizes =
        above == 0 ? concat("the nearest that does is ", below) : concat("the nearest that do are ", below, " and ", above);
    throw InputError(concat("microbatch size ", microbatch_size, " does not divide the global batch of ", global_batch,
                            " sequences; ", sizes));
  }
};

}  // namespace tawpipe
