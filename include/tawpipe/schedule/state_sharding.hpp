// Which model states the ranks that hold the same parameters share among themselves, and how often
// they gather them.
// Not: the messages (schedule/compose.hpp).
#pragma once

#include <cstdint>
#include <string_view>

#include "tawpipe/core/parse_name.hpp"

namespace tawpipe::inline v0 {

/// The model states of which each rank keeps a shard; each choice includes those before it.
/// Source: Rajbhandari et al. 2020, ZeRO, arXiv:1910.02054, section 5.
enum class StateSharding : std::uint8_t {
  none,        ///< every rank keeps and updates all (DDP)
  optimizer,   ///< ZeRO-1, Megatron-LM's distributed optimizer
  gradients,   ///< ZeRO-2
  parameters,  ///< ZeRO-3, FSDP
};
inline constexpr int state_shardings = 4;

/// "none", "optimizer", "gradients" or "parameters".
constexpr std::string_view name(StateSharding sharding) {
  constexpr std::string_view names[state_shardings] = {"none", "optimizer", "gradients", "parameters"};
  return names[static_cast<int>(sharding)];
}

/// Parses a name. @throws InputError  naming the nearest and all known names.
inline StateSharding parse_state_sharding(std::string_view text) {
  return detail::parse_name<StateSharding, state_shardings>("sharding of states", text);
}

/// How long gathered parameters, and gradients that are not yet summed, are kept whole.
enum class Reshard : std::uint8_t {
  automatic,   ///< for parameters: step in a pipeline, as in torchtitan; otherwise microbatch
  step,        ///< gathered before their first use, and summed after their last, once an iteration
  microbatch,  ///< gathered before each computation and summed after each backward
};
inline constexpr int reshards = 3;

/// "auto", "step" or "microbatch".
constexpr std::string_view name(Reshard reshard) {
  constexpr std::string_view names[reshards] = {"auto", "step", "microbatch"};
  return names[static_cast<int>(reshard)];
}

/// Parses a name. @throws InputError  naming the nearest and all known names.
inline Reshard parse_reshard(std::string_view text) { return detail::parse_name<Reshard, reshards>("reshard", text); }

}  // namespace tawpipe
