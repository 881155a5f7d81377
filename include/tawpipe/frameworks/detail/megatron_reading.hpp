// What Megatron-LM's flags say about a job, part by part: the model, recomputation, the optimizer's
// states, levels of context parallelism.
// Not: the job (frameworks/megatron.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/frameworks/detail/megatron_experts.hpp"
#include "tawpipe/frameworks/detail/megatron_hybrid.hpp"
#include "tawpipe/frameworks/detail/megatron_kinds.hpp"
#include "tawpipe/frameworks/detail/megatron_latent.hpp"
#include "tawpipe/frameworks/framework_job.hpp"
#include "tawpipe/frameworks/megatron_flags.hpp"

namespace tawpipe::inline v0::detail {

/// The model, or what is missing from it.
inline void read_megatron_model(const ReadSettings<MegatronFlags>& read, FrameworkJob& job) {
  const MegatronFlags& flags = read.values;
  for (const auto& [name, value] : {std::pair{"--num-layers", flags.layers},
                                    {"--hidden-size", flags.hidden},
                                    {"--num-attention-heads", flags.heads},
                                    {"--kv-channels", flags.head_size},
                                    {"--ffn-hidden-size", flags.ffn},
                                    {"--num-query-groups", flags.groups},
                                    {"--vocab-size", flags.vocab},
                                    {"--padded-vocab-size", flags.padded_vocab},
                                    {"--num-experts", flags.experts},
                                    {"--moe-ffn-hidden-size", flags.expert_ffn},
                                    {"--mtp-num-layers", flags.mtp_layers},
                                    {"--moe-shared-expert-intermediate-size", flags.shared_ffn}}) {
    check_size(read, name, value, Transformer::max_vocab);
  }
  std::vector<std::string> missing;
  const auto need = [&](int value, std::string_view flag) {
    if (value == 0) missing.emplace_back(flag);
  };
  need(flags.layers, "--num-layers");
  need(flags.hidden, "--hidden-size");
  need(flags.heads, "--num-attention-heads");
  int vocab = flags.padded_vocab > 0 ? flags.padded_vocab : flags.vocab;
  // As --make-vocab-size-divisible-by does by default; LayerCode::megatron is known to pad by itself.
  if (flags.padded_vocab == 0 && flags.unfused_accumulation) vocab = (vocab + 127) / 128 * 128;
  need(vocab, "--vocab-size");
  if (!missing.empty()) {
    job.model_lacks = join(missing, ", ");
    return;
  }
  const int ffn = flags.swiglu ? static_cast<int>(std::int64_t{8} * flags.hidden / 3 / 64 * 64) : 4 * flags.hidden;
  if (flags.swiglu && flags.quick_geglu) read.fail("--quick-geglu", "not with --swiglu");
  Transformer model{.name = concat(flags.is_gated() ? "decoder-" : "gpt-", flags.layers, "x", flags.hidden),
                    .layers = flags.layers,
                    .hidden = flags.hidden,
                    .heads = flags.heads,
                    .kv_heads = flags.grouped && !flags.latent ? flags.groups : flags.heads,
                    .intermediate = flags.ffn > 0 ? flags.ffn : ffn,
                    .vocab = vocab,
                    .tied = !flags.untied,
                    .dtype = flags.bf16   ? Dtype::bf16
                             : flags.fp16 ? Dtype::f16
                                          : Dtype::f32,
                    .gated = flags.is_gated(),
                    .fused_attention = flags.fused_attention(),
                    .fused_swiglu = flags.swiglu ? !flags.unfused_swiglu : flags.quick_geglu && !flags.unfused_geglu,
                    .code = flags.code(),
                    .qkv_bias = flags.qkv_bias && !flags.latent,
                    .qk_norm = flags.query_norms && !flags.latent ? QkNorm::head : QkNorm::none};
  if (flags.latent) {
    const MegatronLatent sizes = megatron_latent(read);
    model.head_dim = sizes.unturned + sizes.turned;
  } else if (flags.head_size > 0 && std::int64_t{flags.head_size} * flags.heads != flags.hidden) {
    model.head_dim = flags.head_size;
  }
  model.products = !flags.fp4.empty()                ? ProductFormat::nvfp4
                   : flags.fp8.empty()               ? (model.dtype == Dtype::f32 ? ProductFormat::bits32 : ProductFormat::bits16)
                   : flags.fp8_recipe == "mxfp8"     ? ProductFormat::mxfp8
                   : flags.fp8_recipe == "blockwise" ? ProductFormat::fp8_block
                                                     : ProductFormat::fp8;
  model.narrow_gathers = flags.narrow_gathers && model.products == ProductFormat::fp8;
  model.narrow_weights = flags.narrow_gathers && is_narrow(model.products) && model.products != ProductFormat::nvfp4;
  // Transformer Engine's kernel works in the logits' format, Megatron-LM's own in float32
  // (VocabParallelCrossEntropy.calculate_logits_max).
  model.one_kernel_loss = flags.loss_fusion && flags.loss_fusion_by == "te";
  model.loss_in_float32 = !model.one_kernel_loss;
  try {
    model.check();
  } catch (const InputError& error) {
    read.fail("--num-layers", error.what());
  }
  if (flags.latent) read_megatron_latent(read, model);
  if (flags.experts > 0) read_megatron_experts(read, model);
  if (flags.mtp_layers > Transformer::max_layers)
    read.fail("--mtp-num-layers", concat("must be at most ", Transformer::max_layers));
  // Each is as the decoder's last layer, with norms, a product and a loss of its own, on the last stage.
  // Source: NVIDIA/Megatron-LM, megatron/core/transformer/multi_token_prediction.py (core 0.15).
  model.mtp.assign(static_cast<std::size_t>(flags.mtp_layers), 0);
  read_megatron_kinds(read, model);
  read_megatron_hybrid(read, model);
  take_known_name(model);
  job.model = std::move(model);
}

/// The layers of each stage where flags give them, over all chunks; otherwise those of embedding
/// and loss that count as a layer, if one does.
/// Source: NVIDIA/Megatron-LM, megatron/core/transformer/transformer_block.py,
/// get_num_layers_to_build (core 0.15): ranks between the first and the last have equal shares, and
/// the chunks of a rank too.
inline StageCut megatron_stage_cut(const ReadSettings<MegatronFlags>& read) {
  constexpr std::string_view layout = "--pipeline-model-parallel-layout";
  constexpr std::string_view first = "--decoder-first-pipeline-num-layers";
  constexpr std::string_view last = "--decoder-last-pipeline-num-layers";
  const MegatronFlags& flags = read.values;
  const auto alone = [&](std::string_view flag, std::initializer_list<std::string_view> others) {
    for (const std::string_view other : others) {
      if (read.has(other)) read.fail(flag, concat("not with ", other));
    }
  };
  constexpr std::string_view embedding = "--account-for-embedding-in-pipeline-split";
  constexpr std::string_view loss = "--account-for-loss-in-pipeline-split";
  const auto check_multiple = [&](const StageCut& cut, std::string_view flag) {
    if (std::ssize(cut.layers) % flags.pipeline != 0)
      read.fail(flag, concat(cut.layers.size(), " stages are no multiple of ", flags.pipeline, " pipeline ranks"));
  };
  if (const std::string_view pattern = hybrid_flag(read); !pattern.empty()) {
    StageCut cut{.layers = hybrid_layers(read).stages};
    if (!cut.layers.empty()) {
      alone(pattern, {first, last, layout, embedding, loss, "--num-layers-per-virtual-pipeline-stage",
                      "--num-virtual-stages-per-pipeline-rank"});
      check_multiple(cut, pattern);
      return cut;
    }
  }
  if (read.has(layout)) {
    alone(layout,
          {first, last, embedding, loss, "--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank"});
    StageCut cut;
    try {
      std::string plain = flags.layout;  // layers that predict further tokens are with the loss
      if (flags.mtp_layers > 0) std::erase(plain, 'm');
      cut = parse_stage_layout(plain);
    } catch (const InputError& error) {
      read.fail(layout, error.what());
    }
    const std::int64_t layers = sum_of(cut.layers);
    check_multiple(cut, layout);
    if (flags.layers > 0 && layers != flags.layers)
      read.fail(layout, concat("the stages have ", layers, " layers together, and the model has ", flags.layers));
    return cut;
  }
  if (!read.has(first) && !read.has(last)) {
    if (flags.embedding_counts == flags.loss_counts) return {};
    return {.embedding = flags.embedding_counts ? 1.0 : 0.0, .head = flags.loss_counts ? 1.0 : 0.0};
  }
  const std::string_view named = read.has(first) ? first : last;
  alone(named, {embedding, loss, "--num-layers-per-virtual-pipeline-stage"});
  if (flags.layers == 0) read.fail(named, "needs --num-layers in the same file");
  if (flags.pipeline < 2) read.fail(named, "needs --pipeline-model-parallel-size above 1");
  const int ends = (read.has(first) ? 1 : 0) + (read.has(last) ? 1 : 0);
  for (const auto& [name, layers] : {std::pair{first, flags.first_layers}, std::pair{last, flags.last_layers}}) {
    if (layers < 0 || layers > flags.layers)
      read.fail(name, concat(layers, " is not a number of layers from 0 to ", flags.layers));
  }
  const int left = flags.layers - flags.first_layers - flags.last_layers;
  const int between = flags.pipeline - ends;
  if (left < 0 || (between == 0 ? left > 0 : left % between != 0))
    read.fail(named, concat("the ", left, " layers left are not shared equally by ", between, " stages"));
  std::vector<std::int32_t> ranks(static_cast<std::size_t>(flags.pipeline), between == 0 ? 0 : left / between);
  if (read.has(first)) ranks.front() = flags.first_layers;
  if (read.has(last)) ranks.back() = flags.last_layers;
  const int chunks = std::max(1, flags.virtual_stages);
  StageCut cut;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    for (const std::int32_t layers : ranks) {
      if (layers % chunks != 0)
        read.fail(named, concat("the ", layers, " layers of a rank are not shared equally by ", chunks, " chunks"));
      cut.layers.push_back(layers / chunks);
    }
  }
  return cut;
}

/// The inner one of two levels, 0 where there are none.
inline int megatron_context_inner(const ReadSettings<MegatronFlags>& read) {
  constexpr std::string_view name = "--hierarchical-context-parallel-sizes";
  const MegatronFlags& flags = read.values;
  if (flags.context_exchange != "a2a+p2p") {
    if (read.has(name)) read.fail(name, "needs --cp-comm-type a2a+p2p");
    return 0;
  }
  if (!read.has(name)) read.fail("--cp-comm-type", concat("a2a+p2p needs ", name));
  const std::vector<std::string_view> words = split(flags.context_levels, ' ');
  const std::optional<int> inner = to_number<int>(words.front());
  const std::optional<int> outer = to_number<int>(words.back());
  const bool fits = words.size() == 2 && inner && outer && *inner > 0 && *outer > 0 && flags.context % *inner == 0 &&
                    flags.context / *inner == *outer;
  if (fits) return *inner;
  read.fail(name, concat(quote(flags.context_levels.substr(0, 60)), " must be two numbers whose product is the ", flags.context,
                         " of --context-parallel-size"));
}

/// Dropout that the flags ask for. Predictions have it with unfused attention only.
inline void note_megatron_dropout(ReadSettings<MegatronFlags>& read) {
  const auto is_zero = [](const std::string& text) { return text.find_first_not_of("0.") == std::string::npos; };
  const MegatronFlags& flags = read.values;
  const bool hidden = !is_zero(flags.hidden_dropout);
  const bool any = hidden || !is_zero(flags.attention_dropout);
  if (!flags.fused_attention() && !any)
    read.note("--attention-dropout", "dropout is 0; simulated with it, as attention that is not fused always is");
  if (!flags.fused_attention() || !any) return;
  read.note(hidden ? "--hidden-dropout" : "--attention-dropout",
            concat("dropout is ", flags.attention_dropout, " in attention and ", flags.hidden_dropout,
                   " after it, 0.1 where not set; simulated without"));
}

/// What is captured in CUDA graphs.
/// Source: NVIDIA/Megatron-LM, megatron/training/arguments.py (core 0.15); full_iteration as an
/// implementation is of later releases, and so is full recomputation with it (0.16).
inline CudaGraphs megatron_graphs(ReadSettings<MegatronFlags>& read) {
  const MegatronFlags& flags = read.values;
  if (flags.graphs == "none" && !flags.layer_graphs && !flags.external_graphs) return CudaGraphs::none;
  if (flags.offloaded_layers > 0) read.fail("--cpu-offloading-num-layers", "not with CUDA graphs");
  if (flags.experts > 0) {  // whose numbers of tokens are known on the device only
    read.note(flags.graphs != "none" ? "--cuda-graph-impl"
              : flags.layer_graphs   ? "--enable-cuda-graph"
                                     : "--external-cuda-graph",
              "simulated without, as layers of experts are captured in parts at most");
    return CudaGraphs::none;
  }
  if (flags.graphs == "full_iteration" || flags.graph_scope == "full_iteration") return CudaGraphs::iteration;
  if (flags.granularity == "full" && !flags.recompute_activations)
    read.fail("--recompute-granularity", "full is not with CUDA graphs, but of a whole iteration (--cuda-graph-scope)");
  if (flags.graph_scope.empty() || flags.graph_scope == "full") return CudaGraphs::layers;
  read.note("--cuda-graph-scope", "simulated without CUDA graphs of parts of a layer");
  return CudaGraphs::none;
}

/// Bytes of the optimizer's states of a parameter; 0: as if all of them were in float32.
inline std::int64_t megatron_optimizer(const ReadSettings<MegatronFlags>& read, Dtype dtype) {
  const MegatronFlags& flags = read.values;
  const auto width = [](std::string_view word) { return word == "fp32" ? 4 : word == "fp8" ? 1 : 2; };
  for (const auto& [name, value] : {std::pair{"--main-params-dtype", &flags.main_parameters},
                                    {"--exp-avg-dtype", &flags.momentum},
                                    {"--exp-avg-sq-dtype", &flags.variance}}) {
    if (*value != "fp32" && !flags.precision_aware) read.fail(name, "needs --use-precision-aware-optimizer");
  }
  const int master = size_bytes(dtype) < 4 ? width(flags.main_parameters) : 0;
  const int sum = master + width(flags.momentum) + width(flags.variance);
  return sum == trained_bytes(dtype).optimizer ? 0 : sum;
}

/// Adds a module of --recompute-modules to the parts. Of layers of experts moe is all of the MLP, and
/// moe_act its function, which dense layers cannot have alone; mlp is of first layers without experts.
/// Source: NVIDIA/Megatron-LM, megatron/core/transformer/transformer_layer.py, moe/experts.py.
inline void add_megatron_module(ReadSettings<MegatronFlags>& read, std::string_view module, bool dense_first,
                                RecomputeParts& parts) {
  const bool experts = read.values.experts > 0;
  if (module == "core_attn") {
    parts.core_attn = true;
  } else if (module == "layernorm") {
    parts.layernorm = true;
  } else if (module == (experts ? "moe" : "mlp")) {
    parts.mlp = true;
  } else if (module == "mlp" && dense_first) {
    return;  // note_megatron_dense_first()
  } else if (module == "moe_act" && experts) {
    parts.activation = true;
  } else if (module == "mla_up_proj" && read.values.latent) {
    read.note("--recompute-modules", "simulated without mla_up_proj, whose results are kept");
  } else if (module == "shared_experts" && experts) {
    read.note("--recompute-modules", "simulated without shared_experts, which moe has with all others");
  } else {
    read.note("--recompute-modules", concat("simulated without ", module, ", which ",
                                            experts ? "layers of experts lack" : "a dense decoder's layers lack"));
  }
}

/// Notes where MLPs are recomputed in layers with experts and not in those without, or the reverse.
inline void note_megatron_dense_first(ReadSettings<MegatronFlags>& read, bool experts) {
  const bool others = among("mlp", read.values.recompute_modules);
  if (experts == others) return;
  read.note(read.values.recompute_experts ? "--moe-layer-recompute" : "--recompute-modules",
            experts ? "simulated with mlp too, which the first layers have in place of moe"
                    : "simulated without mlp, which only the first layers have");
}

/// Full recomputation by its old flags. --recompute-method without granularity is full too, if it was
/// read from its old name. Source: NVIDIA/Megatron-LM v2.0 and v3.0, megatron/arguments.py.
inline void take_old_recomputation(ReadSettings<MegatronFlags>& read) {
  MegatronFlags& flags = read.values;
  const Setting* const method = read.find("--recompute-method");
  const std::string_view name = flags.checkpoint_activations           ? "--checkpoint-activations"
                                : flags.deepspeed_checkpointing        ? "--deepspeed-activation-checkpointing"
                                : method != nullptr && method->renamed ? "--recompute-method"
                                                                       : "";
  if (name.empty() || !flags.granularity.empty() || flags.recompute_activations) return;
  flags.granularity = "full";
  if (flags.method.empty()) flags.method = "uniform";
  if (flags.recompute_layers == 0) flags.recompute_layers = 1;
  read.note(name, concat("an old flag, read as --recompute-granularity full --recompute-method ", flags.method,
                         " --recompute-num-layers ", flags.recompute_layers));
}

/// Sets what is recomputed: full, of all layers or the first of a stage; or selective, of the parts
/// that --recompute-modules names, or of attention without that flag.
/// Source: NVIDIA/Megatron-LM, megatron/core/transformer/transformer_config.py (core 0.15),
/// TransformerConfig.__post_init__: recompute_modules = ["core_attn"].
/// @param dense_first  whether the first layers have no experts, and others have
inline std::optional<Recompute> megatron_recompute(ReadSettings<MegatronFlags>& read, bool dense_first, int& only,
                                                   RecomputeParts& parts) {
  take_old_recomputation(read);
  const MegatronFlags& flags = read.values;
  const bool experts = flags.recompute_experts && flags.experts > 0;
  if (experts && flags.granularity == "full" && !flags.recompute_activations)
    read.fail("--moe-layer-recompute", "not with full recomputation");
  const bool selective = flags.recompute_activations || flags.granularity == "selective";
  if (selective || experts) {
    for (const std::string_view flag : {"--recompute-method", "--recompute-num-layers"}) {
      if (read.has(flag)) read.fail(flag, "not with selective recomputation; it is for --recompute-granularity full");
    }
    parts.core_attn = selective && flags.recompute_modules.empty();
    parts.mlp = experts;
    for (const std::string_view module : split(flags.recompute_modules, ' ')) {
      if (!module.empty()) add_megatron_module(read, module, dense_first, parts);
    }
    if (dense_first) note_megatron_dense_first(read, parts.mlp);
    return parts.any() ? Recompute::selective : Recompute::none;
  }
  if (flags.granularity.empty()) return Recompute::none;
  if (flags.method.empty()) read.fail("--recompute-granularity", "full needs --recompute-method uniform or block");
  if (flags.recompute_layers == 0)
    read.fail("--recompute-granularity", "full needs --recompute-num-layers, such as 1 with uniform");
  const int layers = flags.recompute_layers;
  if (flags.method == "block") {
    only = std::max(0, layers);
  } else if (flags.method == "uniform" && layers > 1) {
    read.note("--recompute-num-layers", concat("the input of each ", layers, "th layer is kept; simulated as of each"));
  }
  return Recompute::full;
}

}  // namespace tawpipe::detail
