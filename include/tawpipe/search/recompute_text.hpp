// What is computed again, as the text of a job's field.
// Not: the choice of it (search/choose.hpp).
#pragma once

#include <string>

#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/search/problem.hpp"

namespace tawpipe::inline v0 {

/// none, selective, selective:PARTS (none: its own choice), full, or full:LAYERS of each stage (0: all).
struct RecomputeText {
  Recompute policy = Recompute::none;
  int layers = 0;
  RecomputeParts parts = {};
};

/// @throws InputError  for anything else
inline RecomputeText parse_recompute_text(const std::string& text) {
  const std::size_t colon = text.find(':');
  const std::string policy = text.substr(0, colon);
  if (colon == std::string::npos || (policy != "full" && policy != "selective")) return {.policy = parse_recompute(text)};
  if (policy == "selective") return {.policy = Recompute::selective, .parts = parse_recompute_parts(text.substr(colon + 1))};
  return {.policy = Recompute::full, .layers = parse_whole<int>(text.substr(colon + 1), "--recompute full:LAYERS", 1)};
}

/// The same as text, "full:4", "selective:mlp".
inline std::string recompute_text(const RecomputeText& recompute) {
  const std::string policy{name(recompute.policy)};
  if (recompute.policy == Recompute::full && recompute.layers > 0) return concat(policy, ":", recompute.layers);
  if (recompute.policy == Recompute::selective && recompute.parts.any()) return concat(policy, ":", name(recompute.parts));
  return policy;
}
/// That of a problem; "auto" where it is to be chosen.
inline std::string recompute_text(const Problem& problem) {
  if (!problem.recomputes.empty()) return "auto";
  if (!problem.model) return std::string{name(problem.recompute)};
  return recompute_text({problem.recompute, problem.model->recompute_layers, problem.model->recompute_parts});
}

}  // namespace tawpipe
