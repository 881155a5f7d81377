// torchtitan's models by name and flavor.
// Not: their settings (frameworks/torchtitan.hpp).
#pragma once

#include <string_view>

#include "tawpipe/frameworks/framework_job.hpp"
#include "tawpipe/model/models.hpp"

namespace tawpipe::inline v0::detail {

/// Models known to both, by torchtitan's name and flavor.
struct TorchtitanModel {
  std::string_view name;
  std::string_view flavor;
  std::string_view ours;
};
inline constexpr TorchtitanModel torchtitan_models[] = {{"llama3", "8B", "llama-3-8b"},
                                                        {"llama3", "70B", "llama-3-70b"},
                                                        {"llama3", "405B", "llama-3-405b"},
                                                        {"qwen3", "8B", "qwen3-8b"},
                                                        {"qwen3", "14B", "qwen3-14b"},
                                                        {"qwen3", "32B", "qwen3-32b"},
                                                        {"qwen3", "30B-A3B", "qwen3-30b-a3b"},
                                                        {"qwen3", "235B-A22B", "qwen3-235b-a22b"},
                                                        {"deepseek_v3", "16B", "deepseek-v2-lite"},
                                                        {"deepseek_v3", "236B", "deepseek-v2"},
                                                        {"deepseek_v3", "671B", "deepseek-v3"}};

/// torchtitan's own model of those sizes; none if it has none.
inline const TorchtitanModel* torchtitan_model(const Transformer& model) {
  for (const TorchtitanModel& known : torchtitan_models) {
    if (same_sizes(models::named(known.ours), model)) return &known;
  }
  return nullptr;
}

}  // namespace tawpipe::v0::detail
