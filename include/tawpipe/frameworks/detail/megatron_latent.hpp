// Megatron-LM's flags of multi-latent attention: what they say of a model, what of them is simulated
// otherwise, and how they are written.
// Not: the other flags of a model (detail/megatron_reading.hpp).
#pragma once

#include <string_view>
#include <tuple>

#include "tawpipe/core/text.hpp"
#include "tawpipe/frameworks/framework_job.hpp"
#include "tawpipe/frameworks/megatron_flags.hpp"

namespace tawpipe::inline v0::detail {

/// Sizes of latent attention, with Megatron-LM's defaults of what is not set.
/// Source: NVIDIA/Megatron-LM, megatron/training/arguments.py (core 0.15), _add_mla_args.
struct MegatronLatent {
  int query_rank = 0;
  int key_value_rank = 32;
  int unturned = 128;
  int turned = 64;
  int value_size = 128;
};

/// @pre flags.latent
inline MegatronLatent megatron_latent(const ReadSettings<MegatronFlags>& read) {
  const MegatronFlags& flags = read.values;
  MegatronLatent sizes;
  for (const auto& [name, value, target] : {std::tuple{"--q-lora-rank", flags.query_rank, &sizes.query_rank},
                                            {"--kv-lora-rank", flags.key_value_rank, &sizes.key_value_rank},
                                            {"--qk-head-dim", flags.unturned, &sizes.unturned},
                                            {"--qk-pos-emb-head-dim", flags.turned, &sizes.turned},
                                            {"--v-head-dim", flags.value_size, &sizes.value_size}}) {
    if (!read.has(name)) continue;
    if (value < 1 || value > Transformer::max_hidden)
      read.fail(name, concat(value, " is impossible; give 1 to ", Transformer::max_hidden));
    *target = value;
  }
  return sizes;
}

/// Gives the model its latent attention. @pre flags.latent, and the model without it is valid and
/// has heads of as many numbers of a query
inline void read_megatron_latent(const ReadSettings<MegatronFlags>& read, Transformer& model) {
  constexpr std::string_view latent = "--multi-latent-attention";
  const MegatronFlags& flags = read.values;
  if (flags.legacy) read.fail(latent, "not with --use-legacy-models");
  if (!flags.fused_attention()) read.fail(latent, "latent attention is known with fused attention only");
  if (flags.head_size == 0 && flags.hidden % flags.heads != 0) {
    read.fail(latent, concat("needs --kv-channels where the ", flags.heads, " heads do not divide the hidden size of ",
                             flags.hidden, ", without which Megatron-LM stops"));
  }
  const MegatronLatent sizes = megatron_latent(read);
  model.query_rank = sizes.query_rank;
  model.key_value_rank = sizes.key_value_rank;
  model.rope_width = sizes.turned;
  model.value_size = sizes.value_size;
  try {
    model.check();
  } catch (const InputError& error) {
    read.fail(latent, error.what());
  }
}

/// Notes what of latent attention is simulated otherwise.
/// Source: NVIDIA/Megatron-LM, megatron/core/models/gpt/gpt_layer_specs.py (core 0.15): qk_layernorm.
inline void note_megatron_latent(ReadSettings<MegatronFlags>& read) {
  const MegatronFlags& flags = read.values;
  if (!flags.latent) return;
  if (flags.grouped)
    read.note("--group-query-attention", "simulated without, as latent attention has a key and a value of each head");
  if (!flags.query_norms) read.note("--qk-layernorm", "is not set; simulated with it, with norms of the short vectors");
}

/// Sets the flags of the model's latent attention. @pre megatron_cannot() is empty
inline void write_megatron_latent(const Transformer& model, MegatronFlags& flags) {
  if (!model.is_latent()) return;
  flags.latent = flags.query_norms = true;
  flags.query_rank = model.query_rank;
  flags.key_value_rank = model.key_value_rank;
  flags.unturned = static_cast<int>(model.head_size()) - model.rope_width;
  flags.turned = model.rope_width;
  flags.value_size = model.value_size;
  flags.head_size = model.hidden % model.heads == 0 ? 0 : model.value_size;  // which is not used
}

/// Why Megatron-LM cannot run the job's latent attention.
inline void need_for_megatron_latent(Reasons& reasons, const FrameworkJob& job) {
  if (!job.model || !job.model->is_latent()) return;
  reasons.add_if(job.model->rope_width == 0 || job.model->rope_width == job.model->head_size(),
                 "latent attention has a turned and an unturned part of each query");
}

}  // namespace tawpipe::v0::detail
