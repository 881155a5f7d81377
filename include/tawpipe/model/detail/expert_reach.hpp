// Which part of the tokens is sent to some of a layer's experts, if routers choose any alike.
// Not: how many bytes that is (model/detail/body_exchanges.hpp).
#pragma once

#include <algorithm>

#include "tawpipe/model/kernel.hpp"
#include "tawpipe/model/shared_stage.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::detail {

/// The chance that `chosen` different ones of `all` are all among the other than `some`.
inline double chance_of_none(double all, double some, int chosen) {
  double chance = 1;
  for (int i = 0; i < chosen; ++i) chance *= std::max(0.0, all - some - i) / (all - i);
  return chance;
}

/// The chance that exactly `found` of `chosen` different ones of `all` are among `some`
/// (hypergeometric).
inline double chance_of(int found, int all, int some, int chosen) {
  double chance = 1;
  for (int i = 0; i < found; ++i) chance *= static_cast<double>(some - i) / (all - i) * (chosen - i) / (i + 1);
  return chance * chance_of_none(all - found, some - found, chosen - found);
}

/// The part of tokens that pass at least one of `some` experts that follow each other, from the
/// first of a group on where they are more than a group's. A router first chooses groups of experts,
/// then experts in these.
inline double part_reaching(const Transformer& model, int some) {
  const int of_group = model.experts / model.expert_groups;
  const int groups = (some - 1) / of_group + 1;
  double none = 0;
  for (int chosen = 0; chosen <= std::min(groups, model.groups_per_token); ++chosen) {
    const double among = static_cast<double>(some) / groups * chosen;
    none += chance_of(chosen, model.expert_groups, groups, model.groups_per_token) *
            chance_of_none(of_group * model.groups_per_token, among, model.experts_per_token);
  }
  return 1 - none;
}

/// How ranks share a model's kernels, with what arrives at those that have experts of their own.
inline KernelSplit kernel_split(const Transformer& model, const Sharing& sharing) {
  KernelSplit split = sharing.kernels();
  if (!sharing.whole_experts || sharing.ranks() == 1) return split;
  split.sends_copies = sharing.dispatch == ExpertDispatch::all_to_all;
  const int of_rank = model.experts / sharing.ranks();
  if (!split.sends_copies) split.arriving = sharing.ranks() * part_reaching(model, of_rank);
  return split;
}

}  // namespace tawpipe::inline v0::detail
