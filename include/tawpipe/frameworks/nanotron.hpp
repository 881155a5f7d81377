// Conversion between nanotron's configuration and a plan.
// Not: YAML (yaml_settings.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/frameworks/framework_job.hpp"
#include "tawpipe/frameworks/setting.hpp"
#include "tawpipe/model/models.hpp"

namespace tawpipe::inline v0 {

/// The settings that a plan knows, with nanotron's defaults; 0 where it has none.
/// Source: huggingface/nanotron, src/nanotron/config/{config,parallelism_config,models_config}.py (of March 2026).
struct NanotronSettings {
  int data = 0;
  int tensor = 0;
  int pipeline = 0;
  int context = 1;
  std::string engine = "afab";
  std::string tensor_mode = "ALL_REDUCE";
  bool tensor_overlap = false;
  bool recompute = false;
  std::int64_t sequence = 0;
  std::int64_t microbatch = 0;
  std::int64_t accumulation = 0;
  int zero = 0;
  bool gradients_fp32 = true;
  std::string optimizer = "adamW";
  std::string dtype = "bfloat16";
  int layers = 32;
  int hidden = 4096;
  int heads = 32;
  int kv_heads = 0;  ///< 0: as heads
  int intermediate = 11008;
  int vocab = 32000;
  bool tied = false;
  bool attention_bias = false;
  int window = 0;
  std::string attention = "flash_attention_2";
};

inline const SettingsTable<NanotronSettings>& nanotron_table() {
  using S = NanotronSettings;
  constexpr std::string_view experts = "a mixture of experts of nanotron is not modelled";
  static const SettingsTable<S> table{
      .kind = "nanotron setting",
      .fields = {{"model.dtype", &S::dtype, {"bfloat16", "float16", "float32"}},
                 {"model.model_config.hidden_size", &S::hidden},
                 {"model.model_config.num_hidden_layers", &S::layers},
                 {"model.model_config.num_attention_heads", &S::heads},
                 {"model.model_config.num_key_value_heads", &S::kv_heads},
                 {"model.model_config.intermediate_size", &S::intermediate},
                 {"model.model_config.vocab_size", &S::vocab},
                 {"model.model_config.tie_word_embeddings", &S::tied},
                 {"model.model_config.attention_bias", &S::attention_bias},
                 {"model.model_config.sliding_window_size", &S::window},
                 {"model.model_config._attn_implementation", &S::attention},
                 {"parallelism.dp", &S::data},
                 {"parallelism.tp", &S::tensor},
                 {"parallelism.pp", &S::pipeline},
                 {"parallelism.context_parallel_size", &S::context},
                 {"parallelism.pp_engine", &S::engine, {"1f1b", "afab"}},
                 {"parallelism.tp_mode", &S::tensor_mode, {"REDUCE_SCATTER", "ALL_REDUCE", "reduce_scatter", "all_reduce"}},
                 {"parallelism.tp_linear_async_communication", &S::tensor_overlap},
                 {"parallelism.recompute_layer", &S::recompute},
                 {"optimizer.zero_stage", &S::zero},
                 {"optimizer.accumulate_grad_in_fp32", &S::gradients_fp32},
                 {"optimizer.optimizer_factory.name", &S::optimizer},
                 {"tokens.sequence_length", &S::sequence},
                 {"tokens.micro_batch_size", &S::microbatch},
                 {"tokens.batch_accumulation_per_replica", &S::accumulation}},
      .foreign = {{"parallelism.expert_parallel_size", "1", experts},
                  {"model.model_config.moe_config.num_experts", "", experts},
                  {"model.model_config.moe_config.top_k", "", experts},
                  {"model.model_config.is_mamba_config", "false", "layers of other kinds than a decoder's are not modelled"},
                  {"model.model_config.is_llamoe_config", "false", experts},
                  {"model.model_config.is_starcoder2_config", "false",
                   "Starcoder 2 of nanotron is not read; give a Llama or Qwen2"},
                  {"model.make_vocab_size_divisible_by", "1", "simulated with the vocabulary as it is", false},
                  {"parallelism.tp_recompute_allgather", "true", "simulated with gathered inputs gathered again in the backward",
                   false},
                  {"parallelism.moe_layer_recompute", "false", experts, false},
                  {"model.ddp_bucket_cap_mb", "25", "simulated with its own buckets", false}},
      .skipped =
          "checkpoints.* data_stages general.* lighteval.* logging.* metrics_logging.* profiler.* s3_upload.* tokenizer.* "
          "doremi.* "
          "model.init_method.* model.model_config.is_llama_config model.model_config.is_qwen2_config "
          "model.model_config.bos_token_id model.model_config.eos_token_id model.model_config.pad_token_id "
          "model.model_config.hidden_act model.model_config.initializer_range model.model_config.max_position_embeddings "
          "model.model_config.pretraining_tp model.model_config.rms_norm_eps model.model_config.rope_* "
          "model.model_config.interleaved_rotary model.model_config.use_cache model.model_config.z_loss_* "
          "model.model_config.no_rope_layer model.model_config.flex_attention_mask model.model_config._* "
          "model.model_config.log_attn_probs model.model_config.ring_attn_heads_k_stride model.model_config.moe_config.* "
          "optimizer.clip_grad optimizer.learning_rate_scheduler.* optimizer.optimizer_factory.* optimizer.weight_decay "
          "optimizer.weight_decay_exclude_named_params tokens.train_steps tokens.limit_test_batches tokens.limit_val_batches "
          "tokens.val_check_interval"};
  return table;
}

namespace detail {

/// The layers of each stage: blocks go to a stage until their products, of embedding none and of the
/// output matrix as many as it has numbers, exceed its share.
/// Source: huggingface/nanotron, src/nanotron/models/base.py, build_model, and get_block_compute_costs
/// of models/llama.py.
inline StageCut nanotron_cut(const Transformer& model, int stages) {
  if (stages < 2) return {};
  const double hidden = model.hidden;
  const double layer = 4.0 * (model.heads * (model.hidden / model.heads)) * hidden + 3.0 * model.intermediate * hidden;
  const double all = model.layers * layer + static_cast<double>(model.vocab) * hidden;
  StageCut cut{.layers = std::vector<std::int32_t>(static_cast<std::size_t>(stages), 0)};
  std::size_t stage = 0;
  for (int i = 0; i < model.layers; ++i) {
    ++cut.layers[stage];
    if ((i + 1) * layer > all * (static_cast<double>(stage + 1) / stages)) ++stage;
  }
  const bool even =
      std::all_of(cut.layers.begin(), cut.layers.end(), [&](std::int32_t one) { return one == cut.layers.front(); });
  return even ? StageCut{} : cut;
}

/// @throws InputError  naming the setting whose size is impossible
inline Transformer nanotron_model(const ReadSettings<NanotronSettings>& read) {
  const NanotronSettings& s = read.values;
  Transformer model{.name = concat("decoder-", s.layers, "x", s.hidden),
                    .layers = s.layers,
                    .hidden = s.hidden,
                    .heads = s.heads,
                    .kv_heads = s.kv_heads > 0 ? s.kv_heads : s.heads,
                    .intermediate = s.intermediate,
                    .vocab = s.vocab,
                    .tied = s.tied,
                    .dtype = s.dtype == "float16"   ? Dtype::f16
                             : s.dtype == "float32" ? Dtype::f32
                                                    : Dtype::bf16,
                    .code = LayerCode::megatron_unfused,
                    .window = s.window,
                    .qkv_bias = s.attention_bias};
  if (model.dtype == Dtype::f32) model.products = ProductFormat::bits32;
  try {
    model.check();
  } catch (const InputError& error) {
    read.fail("model.model_config.hidden_size", error.what());
  }
  take_known_name(model);
  return model;
}

}  // namespace detail

/// The job that nanotron's settings describe, on that many devices.
/// @throws InputError  naming setting, line and what would be right
inline FrameworkJob nanotron_job(SettingsText text, int devices, const GivenJob& given = {}) {
  text.strict = given.strict;
  ReadSettings<NanotronSettings> read = read_settings(nanotron_table(), std::move(text));
  const NanotronSettings& s = read.values;
  for (const auto& [name, value] : {std::pair{"parallelism.dp", s.data},
                                    {"parallelism.tp", s.tensor},
                                    {"parallelism.pp", s.pipeline},
                                    {"parallelism.context_parallel_size", s.context}}) {
    if (value < 1 || value > devices) read.fail(name, concat(value, " is not a number of devices from 1 to ", devices));
  }
  const std::int64_t processes = detail::product_of({s.tensor, s.pipeline, s.data, s.context}, devices);
  if (processes != devices) {
    read.fail("parallelism.dp", concat("tp ", s.tensor, " x pp ", s.pipeline, " x dp ", s.data, " x context_parallel_size ",
                                       s.context, " is ", processes, " processes, and the cluster has ", devices, " devices"));
  }
  for (const auto& [name, value] : {std::pair{"tokens.sequence_length", s.sequence},
                                    {"tokens.micro_batch_size", s.microbatch},
                                    {"tokens.batch_accumulation_per_replica", s.accumulation}}) {
    detail::check_size(read, name, value, detail::max_sequences / 1000);
    if (value < 1) read.fail(name, "is missing, or below 1");
  }
  if (s.zero < 0 || s.zero > 1) read.fail("optimizer.zero_stage", concat(s.zero, " is not 0 or 1"));
  FrameworkJob job;
  job.code = LayerCode::megatron_unfused;  // a hook adds the gradients of microbatches
  Transformer model = detail::nanotron_model(read);
  job.dtype = model.dtype;
  job.mesh = {.tensor = s.tensor, .context = s.context, .data = s.data};
  job.mesh.order = parse_mesh_order("tcds");
  job.mesh = job.mesh.over(devices);
  if (s.pipeline > 1) {
    if (s.pipeline > s.layers) read.fail("parallelism.pp", concat(s.pipeline, " stages are more than the ", s.layers, " layers"));
    job.choice = {s.engine == "1f1b" ? "1f1b" : "gpipe", {{"overlap", "off"}}};
    job.stage_cut = detail::nanotron_cut(model, s.pipeline);
  } else {
    job.choice = {"ddp"};
  }
  job.model = std::move(model);
  job.sequence = s.sequence;
  job.microbatch_size = s.microbatch;
  job.global_batch = s.microbatch * s.accumulation * s.data;
  job.recompute = s.recompute ? Recompute::full : Recompute::none;
  job.sequence_parallel = s.tensor_mode.starts_with("R") || s.tensor_mode.starts_with("r");
  job.tensor_overlap = s.tensor_overlap && job.sequence_parallel;
  if (s.tensor_overlap && !job.sequence_parallel && s.tensor > 1)
    read.note("parallelism.tp_linear_async_communication", "simulated without overlap, which it has with REDUCE_SCATTER");
  job.context_exchange = s.attention == "llama3_ring_attention" ? ContextExchange::all_gather : ContextExchange::ring;
  job.sharding = s.zero == 1 ? StateSharding::optimizer : StateSharding::none;
  job.overlap_gradients = true;
  job.overlap_gathers = false;
  job.gradient_bytes = s.gradients_fp32 || *job.dtype == Dtype::f32 ? 4 : 2;
  if (!s.gradients_fp32 && *job.dtype != Dtype::f32) {  // no copies in float32: Adam is in the weights' format
    job.master_copies = false;
    job.optimizer_bytes = 4;
  }
  if (s.optimizer != "adamW" && s.optimizer != "adam") read.note("optimizer.optimizer_factory.name", "simulated as Adam");
  job.notes = std::move(read.notes);
  return job;
}

/// The settings with which nanotron runs the job, as far as it can. @pre the job has a model
inline NanotronSettings nanotron_settings(const FrameworkJob& job) {
  const Transformer& model = *job.model;
  NanotronSettings s;
  s.data = job.mesh.data;
  s.tensor = job.mesh.tensor;
  s.pipeline = job.is_one_of({"1f1b", "gpipe"}) ? job.mesh.pipeline : 1;
  s.context = job.mesh.context;
  if (s.pipeline > 1) s.engine = job.choice.schedule == "gpipe" ? "afab" : "1f1b";
  if (job.sequence_parallel) s.tensor_mode = "REDUCE_SCATTER";
  s.tensor_overlap = job.tensor_overlap;
  s.recompute = job.recompute == Recompute::full;
  s.sequence = job.sequence;
  s.microbatch = job.microbatch_size;
  s.accumulation = job.microbatches();
  s.zero = job.shards() ? 1 : 0;
  s.gradients_fp32 = job.gradient_bytes == 4;
  s.dtype = model.dtype == Dtype::f16 ? "float16" : model.dtype == Dtype::f32 ? "float32" : "bfloat16";
  s.layers = model.layers;
  s.hidden = model.hidden;
  s.heads = model.heads;
  s.kv_heads = model.kv_heads;
  s.intermediate = model.intermediate;
  s.vocab = model.vocab;
  s.tied = model.tied;
  s.attention_bias = model.qkv_bias;
  s.window = model.window;
  if (job.context_exchange == ContextExchange::all_gather) s.attention = "llama3_ring_attention";
  return s;
}

}  // namespace tawpipe
