// Megatron-LM's flags of mixtures of experts: what they say of a model and of its mesh, what of
// them is simulated otherwise, and how they are written.
// Not: the other flags of a job (detail/megatron_reading.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/frameworks/detail/layer_pattern.hpp"
#include "tawpipe/frameworks/framework_job.hpp"
#include "tawpipe/frameworks/megatron_flags.hpp"

namespace tawpipe::inline v0::detail {

/// The number of first layers without experts: --moe-layer-freq is 1, or a list of zeros and then ones.
/// Source: NVIDIA/Megatron-LM, megatron/training/arguments.py (core 0.15), moe_freq_type;
/// core/models/gpt/gpt_layer_specs.py, get_gpt_decoder_block_spec.
inline int megatron_dense_layers(const ReadSettings<MegatronFlags>& read) {
  constexpr std::string_view name = "--moe-layer-freq";
  const MegatronFlags& flags = read.values;
  const std::string_view text = trimmed(flags.expert_layers);
  if (to_number<int>(text) == 1) return 0;
  const std::vector<int> pattern = layer_pattern(text).value_or(std::vector<int>{});
  const auto first = std::find(pattern.begin(), pattern.end(), 1);
  const auto dense = first - pattern.begin();
  if (first == pattern.end() || std::count(pattern.begin(), first, 0) != dense ||
      std::count(first, pattern.end(), 1) != pattern.end() - first) {
    read.fail(name, concat("layers with and without experts in one model are modelled where those without come first; the whole ",
                           "value is 1, or a list of zeros and then ones such as ([0]*1+[1]*31), not ",
                           quote(flags.expert_layers.substr(0, 60))));
  }
  if (std::ssize(pattern) != flags.layers)
    read.fail(name, concat("the list has ", pattern.size(), " layers, and the model has ", flags.layers));
  return static_cast<int>(dense);
}

/// A capacity of experts drops what is above it; experts are simulated with equal loads, of which nothing is. Refuses
/// one to which all experts' rows are padded, if it is above these.
/// Source: NVIDIA/Megatron-LM, megatron/core/transformer/moe/moe_utils.py: get_capacity; a negative factor is none.
inline void check_megatron_capacity(const ReadSettings<MegatronFlags>& read) {
  constexpr std::string_view factor = "--moe-expert-capacity-factor";
  if (!read.has("--moe-pad-expert-input-to-capacity")) return;
  const std::string& text = read.values.expert_capacity;
  const std::optional<double> capacity = to_number<double>(text);
  if (!capacity) read.fail("--moe-pad-expert-input-to-capacity", concat("needs a number as ", factor));
  if (*capacity != 1) {
    read.fail("--moe-pad-expert-input-to-capacity", concat("rows of experts padded to ", quote(text.substr(0, 20)),
                                                           " of their mean are not modelled; give ", factor, " 1.0"));
  }
}

/// Gives the model its experts. @pre flags.experts > 0, and the model without them is valid
inline void read_megatron_experts(const ReadSettings<MegatronFlags>& read, Transformer& model) {
  const MegatronFlags& flags = read.values;
  if (flags.legacy) read.fail("--num-experts", "experts of --use-legacy-models are not modelled");
  if (!flags.fused_attention()) read.fail("--num-experts", "layers of experts are known with fused attention only");
  if (flags.experts_per_token < 1 || flags.experts_per_token > flags.experts)
    read.fail("--moe-router-topk",
              concat(flags.experts_per_token, " is not a number of experts from 1 to the ", flags.experts, " of --num-experts"));
  check_megatron_capacity(read);
  if (read.has("--moe-extended-tp")) read.fail("--moe-extended-tp", "an old flag; it is --expert-tensor-parallel-size now");
  model.experts = flags.experts;
  model.experts_per_token = flags.experts_per_token;
  model.shared_width = flags.shared_ffn;
  if (flags.expert_groups > 0) {
    model.expert_groups = flags.expert_groups;
    model.groups_per_token = flags.groups_per_token;
  }
  model.dense_layers = megatron_dense_layers(read);
  if (model.dense_layers > 0) model.dense_width = model.intermediate;
  if (flags.expert_ffn > 0) model.intermediate = flags.expert_ffn;
  model.name += concat("-", flags.experts, "-experts");
  try {
    model.check();
  } catch (const InputError& error) {
    read.fail("--num-experts", error.what());
  }
}

/// Shares the experts out over the mesh: Megatron-LM's expert-parallel devices are those of tensor
/// and context parallelism and, next to them, some of the data-parallel ones.
/// Source: NVIDIA/Megatron-LM, megatron/core/parallel_state.py (core 0.15), initialize_model_parallel;
/// core/transformer/moe/moe_layer.py: sequence parallelism.
/// @pre the mesh has the tensor, context and data parallelism of a dense model
inline void share_megatron_experts(const ReadSettings<MegatronFlags>& read, Mesh& mesh) {
  constexpr std::string_view parallel = "--expert-model-parallel-size";
  constexpr std::string_view tensor = "--expert-tensor-parallel-size";
  const MegatronFlags& flags = read.values;
  if (flags.experts == 0) {
    if (flags.expert_parallel > 1) read.fail(parallel, "needs --num-experts in the same file");
    return;
  }
  if (flags.tensor > 1 && !flags.sequence_parallel)
    read.fail("--tensor-model-parallel-size", "experts need --sequence-parallel with it, without which Megatron-LM stops");
  const int splits = read.has(tensor) ? flags.expert_tensor : flags.tensor;
  if (flags.expert_parallel == 1) {
    if (splits == flags.tensor) return;
    read.fail(tensor,
              concat(splits, " must be the ", flags.tensor, " of --tensor-model-parallel-size where ", parallel, " is 1"));
  }
  if (splits != 1) {
    read.fail(read.has(tensor) ? tensor : parallel,
              concat("experts that are also split by tensor parallelism are not modelled; give ", tensor, " 1"));
  }
  if (flags.fp16) read.fail("--fp16", concat("not with ", parallel, " above 1; experts are shared out with --bf16"));
  if (flags.experts % flags.expert_parallel != 0)
    read.fail(parallel, concat(flags.expert_parallel, " does not divide the ", flags.experts, " of --num-experts"));
  const int sharing = flags.tensor * flags.context;
  if (flags.expert_parallel % sharing != 0) {
    read.fail(parallel, concat(flags.expert_parallel, " must be a multiple of tensor ", flags.tensor, " x context ",
                               flags.context, " = ", sharing, ", so that each of these devices has experts of its own"));
  }
  mesh.whole_experts = true;
  mesh.expert = flags.expert_parallel / sharing;
  if (mesh.data % mesh.expert != 0) {
    read.fail(parallel,
              concat(flags.expert_parallel, " does not divide the ", mesh.data * sharing, " devices of a stage, tensor ",
                     flags.tensor, " x context ", flags.context, " x data ", mesh.data));
  }
  mesh.data /= mesh.expert;
  if (mesh.expert == 1) return;
  if (flags.tp_pp_dp && flags.pipeline > 1) {
    read.fail("--use-tp-pp-dp-mapping",
              concat("not with experts over more devices than tensor x context = ", sharing, ", where Megatron-LM stops"));
  }
  mesh.order = parse_mesh_order("tceds");
}

/// Notes what of the experts is simulated otherwise.
/// Source: NVIDIA/Megatron-LM, megatron/core/transformer/moe/token_dispatcher.py (core 0.15).
inline void note_megatron_experts(ReadSettings<MegatronFlags>& read) {
  constexpr std::string_view dispatcher = "--moe-token-dispatcher-type";
  const MegatronFlags& flags = read.values;
  if (flags.experts == 0) return;
  const bool shared_out = flags.expert_parallel > 1;
  const auto note_if = [&](bool differs, std::string_view flag, std::string_view why) {
    if (differs) read.note(flag, why);
  };
  note_if(!flags.expert_capacity.empty() && !flags.expert_capacity.starts_with('-'), "--moe-expert-capacity-factor",
          "tokens above it are dropped; simulated with equal loads of experts, of which none is");
  note_if(!flags.grouped_experts, "--moe-grouped-gemm",
          "is not set; simulated with it, the products of a device's experts as one grouped product");
  note_if(read.has("--moe-use-legacy-grouped-gemm"), "--moe-use-legacy-grouped-gemm",
          "simulated with Transformer Engine's grouped products");
  note_if(shared_out && flags.dispatcher != "alltoall" && flags.dispatcher != "flex", dispatcher,
          concat("is ", flags.dispatcher, read.has(dispatcher) ? "" : " where not set", "; simulated as alltoall"));
  note_if(!shared_out && flags.tensor > 1 && flags.dispatcher.starts_with("alltoall"), dispatcher,
          concat("is ", flags.dispatcher, "; simulated as allgather, with tokens gathered before they are copied for experts"));
  note_if(shared_out && flags.shared_ffn > 0 && read.has("--moe-shared-expert-overlap"), "--moe-shared-expert-overlap",
          "simulated without overlap of the shared expert and the exchange of tokens");
}

/// The overlap of all-to-alls with another microbatch's computation.
/// Source: NVIDIA/Megatron-LM, megatron/core/transformer/transformer_config.py: __post_init__.
/// @param chunks  of a device's layers
inline ExpertOverlap megatron_expert_overlap(const ReadSettings<MegatronFlags>& read, int chunks, const FrameworkJob& job) {
  constexpr std::string_view overlap = "--overlap-moe-expert-parallel-comm";
  const MegatronFlags& flags = read.values;
  if (flags.experts == 0) return ExpertOverlap::off;
  if (flags.delayed_weights && !flags.expert_overlap)
    read.fail("--delay-wgrad-compute", concat("needs ", overlap, ", without which Megatron-LM stops"));
  if (!flags.expert_overlap) return ExpertOverlap::off;
  const auto fail_if = [&](bool fails, std::string_view why) {
    if (fails) read.fail(overlap, why);
  };
  fail_if(flags.expert_parallel == 1, "needs --expert-model-parallel-size above 1");
  fail_if(flags.pipeline > 1 && chunks == 1,
          "needs virtual stages where --pipeline-model-parallel-size is above 1 (--num-virtual-stages-per-pipeline-rank)");
  fail_if(flags.dispatcher.starts_with("allgather") || flags.dispatcher == "alltoall_seq",
          "needs --moe-token-dispatcher-type alltoall or flex");
  fail_if(job.recompute == Recompute::full, "not with --recompute-granularity full, where Megatron-LM stops");
  fail_if(job.recompute == Recompute::selective && job.recompute_parts.mlp && job.has_experts(),
          "not with moe among --recompute-modules, where Megatron-LM stops");
  fail_if(read.has("--moe-shared-expert-overlap"), "not with --moe-shared-expert-overlap, where Megatron-LM stops");
  return flags.delayed_weights ? ExpertOverlap::delayed : ExpertOverlap::on;
}

/// How tokens get to experts, and what runs meanwhile.
inline void read_megatron_dispatch(const ReadSettings<MegatronFlags>& read, int chunks, FrameworkJob& job) {
  job.expert_dispatch = read.values.dispatcher == "flex" ? ExpertDispatch::deepep : ExpertDispatch::all_to_all;
  job.expert_overlap = megatron_expert_overlap(read, chunks, job);
}

/// The devices over which the job's experts are shared out, as Megatron-LM counts them.
inline int megatron_expert_parallel(const FrameworkJob& job) {
  return job.has_experts() && (job.mesh.whole_experts || job.mesh.expert > 1) ? job.mesh.shared() : 1;
}

/// Why Megatron-LM cannot run the job's experts.
inline void need_for_megatron_experts(Reasons& reasons, const FrameworkJob& job) {
  if (!job.has_experts()) return;
  const int parallel = megatron_expert_parallel(job);
  const int sharing = job.mesh.tensor * job.mesh.context;
  reasons.add_if(job.mesh.expert > 1 && !job.mesh.whole_experts && sharing > 1,
                 "experts that are shared out and also split by tensor parallelism are not written");
  reasons.add_if(job.mesh.tensor > 1 && !job.sequence_parallel,
                 "experts with tensor parallelism need sequence parallelism (--sequence-parallel on)");
  reasons.add_if(job.model->experts % parallel != 0,
                 concat(job.model->experts, " experts are not shared equally by ", parallel, " devices"));
  reasons.add_if(parallel > 1 && job_dtype(job) == Dtype::f16, "experts are not shared out in float16; bfloat16 is as large");
  if (job.expert_overlap != ExpertOverlap::off && parallel > 1) {
    reasons.add_if(job.mesh.pipeline > 1 && job.chunks() == 1,
                   "all-to-alls of experts overlap with interleaved 1F1B only where there is a pipeline");
    reasons.add_if(job.recompute == Recompute::full || (job.recompute == Recompute::selective && job.recompute_parts.mlp),
                   "all-to-alls of experts do not overlap where these are computed again (--recompute)");
  }
  reasons.add_if(job.graphs != CudaGraphs::none,
                 "layers of experts whose tokens are not dropped are not captured in CUDA graphs (--cuda-graphs none)");
}

/// The first layers of a model of several kinds that have no experts where others do.
inline int dense_first_of(const Transformer& model) {
  if (!model.has_kinds()) return model.dense_layers;
  const auto routed = [&](std::uint8_t kind) {
    const auto& parts = model.kinds[kind].sublayers;
    return std::any_of(parts.begin(), parts.end(), [](const auto& part) { return std::holds_alternative<Mixture>(part); });
  };
  const auto first = std::find_if(model.pattern.begin(), model.pattern.end(), routed);
  return first == model.pattern.end() ? 0 : static_cast<int>(first - model.pattern.begin());
}

/// Whether the first layers have no experts, and others have.
inline bool has_dense_first(const FrameworkJob& job) { return job.model && dense_first_of(*job.model) > 0; }

/// The modules of --recompute-modules for the parts that the job runs again: of layers of experts
/// the MLP is moe, and its function moe_act; of layers without experts before them it is mlp.
inline std::string megatron_modules(const FrameworkJob& job) {
  std::string modules;
  const std::string parts = name(job.recompute_parts);
  for (const std::string_view part : split(parts, ',')) {
    if (part.empty()) continue;
    const std::string_view module = !job.has_experts()     ? part
                                    : part == "activation" ? "moe_act"
                                    : part != "mlp"        ? part
                                    : has_dense_first(job) ? "moe mlp"
                                                           : "moe";
    modules += concat(modules.empty() ? "" : " ", module);
  }
  return modules;
}

/// Sets the flags of the job's experts. @pre megatron_cannot() is empty
/// @param model  the job's, of equal layers
inline void write_megatron_experts(const FrameworkJob& job, const Transformer& model, MegatronFlags& flags) {
  if (!job.has_experts()) return;
  flags.experts = model.experts;
  flags.experts_per_token = model.experts_per_token;
  flags.expert_ffn = model.intermediate;
  flags.shared_ffn = model.shared_width;
  if (model.expert_groups > 1) {
    flags.expert_groups = model.expert_groups;
    flags.groups_per_token = model.groups_per_token;
  }
  if (model.dense_layers > 0) {
    flags.ffn = model.dense_width;
    flags.expert_layers = concat("([0]*", model.dense_layers, "+[1]*", model.layers - model.dense_layers, ")");
  }
  flags.grouped_experts = true;
  flags.expert_parallel = megatron_expert_parallel(job);
  if (flags.expert_parallel == 1) return;
  flags.dispatcher = job.expert_dispatch == ExpertDispatch::deepep ? "flex" : "alltoall";
  flags.expert_overlap = job.expert_overlap != ExpertOverlap::off;
  flags.delayed_weights = job.expert_overlap == ExpertOverlap::delayed;
  if (job.mesh.tensor > 1) flags.expert_tensor = 1;
}

}  // namespace tawpipe::v0::detail
