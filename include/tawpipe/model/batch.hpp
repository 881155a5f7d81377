// The batch of one iteration, and which activations are computed again instead of kept.
// Not: which rank runs which microbatch (schedule/).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/parse_name.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::inline v0 {

/// Which activations of a decoder layer are kept from its forward to its backward; the head is
/// never recomputed.
/// Source: Korthikanti et al. 2022, arXiv:2205.05198, section 5, adapted to fused attention
/// (docs/model_work.md).
enum class Recompute : std::uint8_t {
  none,  ///< everything that autograd keeps with fused attention
  /// results of matrix products and residual sums; the attention core and elementwise work run
  /// again
  selective,
  full,  ///< the layer's input; its whole forward runs again
};
inline constexpr int recompute_policies = 3;

/// "none", "selective" or "full".
constexpr std::string_view name(Recompute recompute) {
  constexpr std::string_view names[recompute_policies] = {"none", "selective", "full"};
  return names[static_cast<int>(recompute)];
}

/// The parts of a layer that selective recomputation runs again; none: its own choice.
/// Source: Megatron-LM, --recompute-modules; `activation` is its moe_act, for a dense layer.
struct RecomputeParts {
  bool core_attn = false;   ///< the attention between its products; its result is kept
  bool mlp = false;         ///< all of it: both products and the function between them
  bool layernorm = false;   ///< both norms
  bool activation = false;  ///< the MLP's function

  bool any() const { return core_attn || mlp || layernorm || activation; }
  bool operator==(const RecomputeParts&) const = default;

  /// As bits, for sizes of models. @pre 0 <= bits < 16
  static RecomputeParts of_bits(int bits) { return {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0}; }
  int bits() const { return (core_attn ? 1 : 0) + (mlp ? 2 : 0) + (layernorm ? 4 : 0) + (activation ? 8 : 0); }
};

namespace detail {

/// Calls `visit(name, member)` for each part.
template <class Visit>
void for_each_part(Visit&& visit) {
  visit("core_attn", &RecomputeParts::core_attn);
  visit("mlp", &RecomputeParts::mlp);
  visit("layernorm", &RecomputeParts::layernorm);
  visit("activation", &RecomputeParts::activation);
}

}  // namespace detail

/// The names of the parts, "core_attn,mlp".
inline std::string name(const RecomputeParts& parts) {
  std::string text;
  detail::for_each_part([&](std::string_view part, bool RecomputeParts::*member) {
    if (parts.*member) text += concat(text.empty() ? "" : ",", part);
  });
  return text;
}

/// Parses names of parts, separated by commas. @throws InputError  naming the nearest and all known
/// names.
inline RecomputeParts parse_recompute_parts(std::string_view text) {
  RecomputeParts parts;
  for (const std::string_view word : split(text, ',')) {
    bool known = false;
    std::vector<std::string> names;
    detail::for_each_part([&](std::string_view part, bool RecomputeParts::*member) {
      names.emplace_back(part);
      if (part != word) return;
      parts.*member = known = true;
    });
    if (!known) throw InputError(unknown_name("part of a layer", word, names));
  }
  return parts;
}

/// Parses the name of a recomputation policy. @throws InputError  naming the nearest and all known
/// names.
inline Recompute parse_recompute(std::string_view text) {
  return detail::parse_name<Recompute, recompute_policies>("recomputation", text);
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
  void check() const;

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

#if TAWPIPE_BODIES
namespace tawpipe::inline v0 {

TAWPIPE_INLINE void Batch::check() const {
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
    throw InputError(concat("a microbatch of ", microbatch_size, " sequences of ", sequence, " tokens is too large; the most is ",
                            max_tokens, " tokens a microbatch"));
  }
}

}  // namespace tawpipe
#endif
