// The flags of Megatron-LM that a plan knows, as a table.
// Not: what they mean for a plan (megatron.hpp), nor flags that do not affect the layout
// (detail/megatron_skipped.hpp).
#pragma once

#include <cstdint>
#include <string>

#include "tawpipe/frameworks/detail/megatron_skipped.hpp"
#include "tawpipe/frameworks/setting.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0 {

/// The flags that a plan knows, with Megatron-LM's defaults.
/// Source: NVIDIA/Megatron-LM, megatron/training/arguments.py (core 0.15).
struct MegatronFlags {
  int tensor = 1;
  int pipeline = 1;
  int virtual_layers = 0;
  int virtual_stages = 0;
  int first_layers = 0;
  int last_layers = 0;
  std::string layout;
  int context = 1;
  std::string context_exchange = "p2p";
  std::string context_levels;
  int expert_parallel = 1;
  int expert_tensor = 0;  ///< 0: as `tensor`
  bool tp_pp_dp = false;
  bool sequence_parallel = false;
  bool tensor_overlap = false;
  std::string graphs = "none";
  std::string graph_scope;
  bool layer_graphs = false;  ///< of releases up to 0.13, as external_graphs
  bool external_graphs = false;
  bool graph_random_numbers = false;  ///< Transformer Engine's tracker, which graphs need
  bool unchecked_losses = false;      ///< which a graph of an iteration needs
  bool distributed_optimizer = false;
  bool overlap_gradients = false;
  bool overlap_gathers = false;
  std::int64_t bucket = 0;  ///< parameters; 0: its default
  bool megatron_fsdp = false;
  bool custom_fsdp = false;
  std::string sharding = "no_shard";
  bool torch_fsdp2 = false;
  bool keep_gathered = false;
  std::string checkpoint_format = "torch_dist";
  bool optimizer_offload = false;
  bool chunked_offload = false;
  int offloaded_layers = 0;
  int mtp_layers = 0;
  bool precision_aware = false;
  std::string main_parameters = "fp32";
  std::string momentum = "fp32";
  std::string variance = "fp32";
  std::int64_t microbatch = 0;
  std::int64_t global_batch = 0;
  std::int64_t sequence = 0;
  std::int64_t positions = 0;
  std::string granularity;
  std::string method;
  int recompute_layers = 0;
  bool recompute_activations = false;
  bool checkpoint_activations = false;   ///< up to core 0.1: full recomputation
  bool deepspeed_checkpointing = false;  ///< the same by Megatron-DeepSpeed
  std::string recompute_modules;
  bool recompute_experts = false;  ///< an old name of the module moe
  int layers = 0;
  int hidden = 0;
  int ffn = 0;
  int heads = 0;
  int head_size = 0;
  bool grouped = false;
  int groups = 1;
  bool latent = false;
  int query_rank = 0;       ///< 0: no short vector of queries
  int key_value_rank = -1;  ///< -1, here and below: its default, which detail/megatron_latent.hpp has
  int unturned = -1;        ///< of a query's or key's head, without the turned part
  int turned = -1;
  int value_size = -1;
  bool query_norms = false;  ///< of queries and keys; of latent attention: of its short vectors
  int vocab = 0;
  int padded_vocab = 0;
  int experts = 0;
  int experts_per_token = 2;
  int expert_groups = 0;     ///< 0: none
  int groups_per_token = 0;  ///< of these
  int expert_ffn = 0;        ///< 0: as `ffn`
  int shared_ffn = 0;
  std::string expert_layers = "1";
  bool grouped_experts = false;
  std::string dispatcher = "allgather";
  bool expert_overlap = false;
  bool delayed_weights = false;
  std::string flex_backend = "deepep";
  std::string expert_capacity;
  std::string window;         ///< tokens before a token, and after it
  std::string window_layers;  ///< a number or a list; "": all
  std::string softmax = "vanilla";
  std::string hybrid_pattern;   ///< a letter for each layer
  std::string hybrid_override;  ///< the same up to core 0.16
  bool hybrid = false;
  std::string attention_share = "0";  ///< of a hybrid decoder's layers without a pattern
  std::string mlp_share = "0";
  int mamba_state = 128;
  int mamba_head_size = 64;
  int mamba_groups = 8;
  int mamba_heads = 0;  ///< 0: of twice the hidden size
  int delta_key_heads = 16;
  int delta_value_heads = 32;
  int delta_key_size = 128;
  int delta_value_size = 128;
  int delta_convolution = 4;
  bool squared_relu = false;
  bool swiglu = false;
  bool unfused_swiglu = false;
  bool quick_geglu = false;  ///< a gate, as of swiglu
  bool unfused_geglu = false;
  std::string glu_offset = "0.0";
  std::string clamp;
  bool unfused_dropout = false;
  bool unfused_accumulation = false;
  bool untied = false;
  std::string normalization = "LayerNorm";
  std::string positions_kind = "learned_absolute";
  std::string rotary_factor = "1.0";
  int unscaled_positions = 0;
  bool unfused_positions = false;
  bool gpt_oss = false;  ///< of its post-training: scaled positions
  bool no_bias = false;
  bool qkv_bias = false;
  bool embedding_counts = false;
  bool loss_counts = false;
  std::string partition;  ///< of Megatron-DeepSpeed: "type:transformer|embedding": both count
  bool bf16 = false;
  bool fp16 = false;
  std::string fp8;
  std::string fp8_recipe = "delayed";
  std::string fp4;
  bool narrow_gathers = false;
  bool loss_fusion = false;
  std::string loss_fusion_by = "native";
  bool gradients_bf16 = false;
  bool gradients_fp32 = false;
  std::string implementation = "transformer_engine";
  std::string attention = "auto";
  bool legacy = false;
  bool flash = false;  ///< of legacy models; Transformer Engine chooses by itself
  std::string attention_dropout = "0.1";
  std::string hidden_dropout = "0.1";

  bool is_gated() const { return swiglu || quick_geglu; }
  /// YaRN's. Source: megatron/post_training/model_builder.py: enable_gpt_oss.
  bool has_scaled_positions() const { return positions_kind == "yarn" || gpt_oss; }
  LayerCode code() const { return unfused_accumulation ? LayerCode::megatron_unfused : LayerCode::megatron; }
  /// Source: megatron/core/models/gpt/gpt_layer_specs.py: local layers have DotProductAttention.
  bool fused_attention() const {
    if (legacy) return flash;
    return implementation != "local" && attention != "unfused" && attention != "local";
  }
};

inline const SettingsTable<MegatronFlags>& megatron_table() {
  using F = MegatronFlags;
  static const SettingsTable<F> table{
      .kind = "Megatron-LM flag",
      .flags = true,
      .fields = {{"--tensor-model-parallel-size", &F::tensor},
                 {"--pipeline-model-parallel-size", &F::pipeline},
                 {"--num-layers-per-virtual-pipeline-stage", &F::virtual_layers},
                 {"--num-virtual-stages-per-pipeline-rank", &F::virtual_stages},
                 {"--decoder-first-pipeline-num-layers", &F::first_layers},
                 {"--decoder-last-pipeline-num-layers", &F::last_layers},
                 {"--pipeline-model-parallel-layout", &F::layout},
                 {"--account-for-embedding-in-pipeline-split", &F::embedding_counts},
                 {"--account-for-loss-in-pipeline-split", &F::loss_counts},
                 {"--pp-partition-method", &F::partition},
                 {"--context-parallel-size", &F::context},
                 {"--cp-comm-type", &F::context_exchange, {"p2p", "all_gather", "allgather", "a2a", "a2a+p2p"}},
                 {"--hierarchical-context-parallel-sizes", &F::context_levels, {}, true},
                 {"--expert-model-parallel-size", &F::expert_parallel},
                 {"--expert-tensor-parallel-size", &F::expert_tensor},
                 {"--use-tp-pp-dp-mapping", &F::tp_pp_dp},
                 {"--sequence-parallel", &F::sequence_parallel},
                 {"--tp-comm-overlap", &F::tensor_overlap},
                 {"--cuda-graph-impl", &F::graphs, {"none", "local", "transformer_engine", "full_iteration"}},
                 {"--cuda-graph-scope",
                  &F::graph_scope,
                  {"full", "full_iteration", "attn", "mlp", "moe", "moe_router", "moe_preprocess", "mamba"},
                  true},
                 {"--enable-cuda-graph", &F::layer_graphs},
                 {"--external-cuda-graph", &F::external_graphs},
                 {"--te-rng-tracker", &F::graph_random_numbers},
                 {"--no-check-for-nan-in-loss-and-grad", &F::unchecked_losses},
                 {"--use-distributed-optimizer", &F::distributed_optimizer},
                 {"--overlap-grad-reduce", &F::overlap_gradients},
                 {"--overlap-param-gather", &F::overlap_gathers},
                 {"--ddp-bucket-size", &F::bucket},
                 {"--use-megatron-fsdp", &F::megatron_fsdp},
                 {"--use-custom-fsdp", &F::custom_fsdp},
                 {"--data-parallel-sharding-strategy", &F::sharding, {"no_shard", "optim", "optim_grads", "optim_grads_params"}},
                 {"--use-torch-fsdp2", &F::torch_fsdp2},
                 {"--torch-fsdp2-no-reshard-after-forward", &F::keep_gathered},
                 {"--ckpt-format", &F::checkpoint_format},
                 {"--optimizer-cpu-offload", &F::optimizer_offload},
                 {"--chunked-optimizer-state-offload", &F::chunked_offload},
                 {"--cpu-offloading-num-layers", &F::offloaded_layers},
                 {"--use-precision-aware-optimizer", &F::precision_aware},
                 {"--main-params-dtype", &F::main_parameters, {"fp32", "fp16"}},
                 {"--exp-avg-dtype", &F::momentum, {"fp32", "fp16", "bf16", "fp8"}},
                 {"--exp-avg-sq-dtype", &F::variance, {"fp32", "fp16", "bf16", "fp8"}},
                 {"--mtp-num-layers", &F::mtp_layers},
                 {"--micro-batch-size", &F::microbatch},
                 {"--global-batch-size", &F::global_batch},
                 {"--seq-length", &F::sequence},
                 {"--max-position-embeddings", &F::positions},
                 {"--recompute-granularity", &F::granularity, {"full", "selective"}},
                 {"--recompute-method", &F::method, {"uniform", "block"}},
                 {"--recompute-num-layers", &F::recompute_layers},
                 {"--recompute-activations", &F::recompute_activations},
                 {"--checkpoint-activations", &F::checkpoint_activations},
                 {"--deepspeed-activation-checkpointing", &F::deepspeed_checkpointing},
                 {"--recompute-modules",
                  &F::recompute_modules,
                  {"core_attn", "mlp", "layernorm", "moe_act", "mla_up_proj", "moe", "shared_experts"},
                  true},
                 {"--moe-layer-recompute", &F::recompute_experts},
                 {"--num-layers", &F::layers},
                 {"--hidden-size", &F::hidden},
                 {"--ffn-hidden-size", &F::ffn},
                 {"--num-attention-heads", &F::heads},
                 {"--kv-channels", &F::head_size},
                 {"--group-query-attention", &F::grouped},
                 {"--num-query-groups", &F::groups},
                 {"--multi-latent-attention", &F::latent},
                 {"--q-lora-rank", &F::query_rank},
                 {"--kv-lora-rank", &F::key_value_rank},
                 {"--qk-head-dim", &F::unturned},
                 {"--qk-pos-emb-head-dim", &F::turned},
                 {"--v-head-dim", &F::value_size},
                 {"--qk-layernorm", &F::query_norms},
                 {"--vocab-size", &F::vocab},
                 {"--padded-vocab-size", &F::padded_vocab},
                 {"--num-experts", &F::experts},
                 {"--moe-router-topk", &F::experts_per_token},
                 {"--moe-router-num-groups", &F::expert_groups},
                 {"--moe-router-group-topk", &F::groups_per_token},
                 {"--moe-ffn-hidden-size", &F::expert_ffn},
                 {"--moe-shared-expert-intermediate-size", &F::shared_ffn},
                 {"--moe-layer-freq", &F::expert_layers},
                 {"--moe-grouped-gemm", &F::grouped_experts},
                 {"--moe-token-dispatcher-type", &F::dispatcher, {"allgather", "alltoall", "flex", "alltoall_seq"}},
                 {"--overlap-moe-expert-parallel-comm", &F::expert_overlap},
                 {"--delay-wgrad-compute", &F::delayed_weights},
                 {"--moe-flex-dispatcher-backend", &F::flex_backend, {"deepep", "hybridep"}},
                 {"--moe-expert-capacity-factor", &F::expert_capacity},
                 {"--untie-embeddings-and-output-weights", &F::untied},
                 {"--window-size", &F::window},
                 {"--window-attn-skip-freq", &F::window_layers},
                 {"--softmax-type", &F::softmax, {"vanilla", "off-by-one", "learnable"}},
                 {"--hybrid-layer-pattern", &F::hybrid_pattern},
                 {"--hybrid-override-pattern", &F::hybrid_override},
                 {"--is-hybrid-model", &F::hybrid},
                 {"--hybrid-attention-ratio", &F::attention_share},
                 {"--hybrid-mlp-ratio", &F::mlp_share},
                 {"--mamba-state-dim", &F::mamba_state},
                 {"--mamba-head-dim", &F::mamba_head_size},
                 {"--mamba-num-groups", &F::mamba_groups},
                 {"--mamba-num-heads", &F::mamba_heads},
                 {"--linear-num-key-heads", &F::delta_key_heads},
                 {"--linear-num-value-heads", &F::delta_value_heads},
                 {"--linear-key-head-dim", &F::delta_key_size},
                 {"--linear-value-head-dim", &F::delta_value_size},
                 {"--linear-conv-kernel-dim", &F::delta_convolution},
                 {"--squared-relu", &F::squared_relu},
                 {"--swiglu", &F::swiglu},
                 {"--no-bias-swiglu-fusion", &F::unfused_swiglu},
                 {"--quick-geglu", &F::quick_geglu},
                 {"--no-bias-gelu-fusion", &F::unfused_geglu},
                 {"--glu-linear-offset", &F::glu_offset},
                 {"--activation-func-clamp-value", &F::clamp},
                 {"--no-bias-dropout-fusion", &F::unfused_dropout},
                 {"--no-gradient-accumulation-fusion", &F::unfused_accumulation},
                 {"--normalization", &F::normalization, {"LayerNorm", "RMSNorm"}},
                 {"--position-embedding-type", &F::positions_kind},
                 {"--rotary-scaling-factor", &F::rotary_factor},
                 {"--yarn-original-max-position-embeddings", &F::unscaled_positions},
                 {"--no-rope-fusion", &F::unfused_positions},
                 {"--enable-gpt-oss", &F::gpt_oss},
                 {"--disable-bias-linear", &F::no_bias},
                 {"--add-qkv-bias", &F::qkv_bias},
                 {"--bf16", &F::bf16},
                 {"--fp16", &F::fp16},
                 {"--fp8-format", &F::fp8, {"e4m3", "hybrid"}},
                 {"--fp8-recipe", &F::fp8_recipe, {"delayed", "tensorwise", "blockwise", "mxfp8"}},
                 {"--fp4-format", &F::fp4, {"e2m1"}},
                 {"--fp8-param-gather", &F::narrow_gathers},
                 {"--cross-entropy-loss-fusion", &F::loss_fusion},
                 {"--cross-entropy-fusion-impl", &F::loss_fusion_by, {"native", "te"}},
                 {"--grad-reduce-in-bf16", &F::gradients_bf16},
                 {"--accumulate-allreduce-grads-in-fp32", &F::gradients_fp32},
                 {"--transformer-impl", &F::implementation, {"local", "transformer_engine", "inference_optimized"}},
                 {"--attention-backend", &F::attention, {"auto", "flash", "fused", "unfused", "local"}},
                 {"--use-legacy-models", &F::legacy},
                 {"--use-flash-attn", &F::flash},
                 {"--attention-dropout", &F::attention_dropout},
                 {"--hidden-dropout", &F::hidden_dropout}},
      .foreign = detail::megatron_foreign(),
      .skipped = detail::megatron_skipped,
      .skipped_switches = detail::megatron_skipped_switches,
      .renamed = {{"--model-parallel-size", "--tensor-model-parallel-size"},
                  {"--batch-size", "--micro-batch-size"},
                  {"--encoder-seq-length", "--seq-length"},
                  {"--encoder-num-layers", "--num-layers"},
                  {"--activations-checkpoint-method", "--recompute-method"},
                  {"--activations-checkpoint-num-layers", "--recompute-num-layers"},
                  {"--checkpoint-num-layers", "--recompute-num-layers"}}};
  return table;
}

}  // namespace tawpipe
