// What the keys of a config.json make of a model, part by part.
// Not: which layer has which part (model/detail/config_layers.hpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tawpipe/core/text.hpp"
#include "tawpipe/json/json_reader.hpp"
#include "tawpipe/model/detail/config_keys.hpp"
#include "tawpipe/model/detail/config_reading.hpp"
#include "tawpipe/model/detail/decoder_types.hpp"
#include "tawpipe/model/detail/rotary_keys.hpp"
#include "tawpipe/model/dtype.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::detail {

inline void read_sizes(ConfigReading& reading) {
  Transformer& model = reading.model();
  const DecoderType& type = reading.type;
  for (const std::string_view list : {"layer_types", "hybrid_override_pattern"}) {  // each layer by name
    const auto layers = reading.says("num_hidden_layers") ? std::nullopt : reading.take(list);
    if (layers) model.layers = static_cast<int>(layers->is_text() ? layers->text().size() : layers->size());
  }
  if (model.layers == 0) model.layers = ConfigReading::one_of_all(reading.need("num_hidden_layers")).whole<int>();
  model.hidden = reading.need("hidden_size").whole<int>();
  model.heads = ConfigReading::one_of_all(reading.need("num_attention_heads")).whole<int>();
  model.vocab = reading.need("vocab_size").whole<int>();
  model.tied = reading.flag("tie_word_embeddings", type.tied);
  if (!reading.is_latent()) {
    if (!reading.says("head_dim") && type.head_dim > 0) model.head_dim = type.head_dim;
    if (const auto size = reading.take("head_dim")) model.head_dim = size->whole<int>();  // null: hidden / heads
  } else {
    reading.take("head_dim");  // qk_nope_head_dim and qk_rope_head_dim say it
  }
  const bool may_share = type.is_unknown() || has_word("gpt_bigcode falcon chatglm", type.name());
  const bool one_head = may_share && reading.flag("multi_query", has_word("gpt_bigcode falcon", type.name()));
  const auto kv = reading.take("num_key_value_heads");
  if (!reading.says("num_key_value_heads") && type.kv_heads > 0) reading.config().fail("'num_key_value_heads' is missing");
  model.kv_heads = kv ? ConfigReading::one_of_all(*kv).whole<int>() : one_head ? 1 : model.heads;
}

inline void read_biases(ConfigReading& reading) {
  Transformer& model = reading.model();
  const DecoderType& type = reading.type;
  model.qkv_bias = type.qkv_bias;
  model.output_bias = type.output_bias;
  model.mlp_bias = type.mlp_bias;
  if (type.does_read(use_bias) && !type.does_read(mamba)) {
    if (const auto bias = reading.take("use_bias")) {
      if (type.name() == "internlm") {  // of attention alone
        model.qkv_bias = model.output_bias = bias->boolean();
      } else {
        model.output_bias = model.mlp_bias = bias->boolean();
        if (!type.does_read(qkv_bias)) model.qkv_bias = bias->boolean();
      }
    }
  }
  if (type.does_read(qkv_bias)) model.qkv_bias = reading.flag("qkv_bias", model.qkv_bias);
  if (type.does_read(attention_bias | input_bias)) {
    if (const auto bias = reading.take("attention_bias")) {
      model.qkv_bias = bias->boolean();
      if (type.does_read(attention_bias)) model.output_bias = bias->boolean();
    }
    if (const auto bias = reading.take("attention_out_bias")) model.output_bias = bias->boolean();
  }
  if (type.does_read(mlp_bias)) model.mlp_bias = reading.flag("mlp_bias", model.mlp_bias);
}

inline void read_norms(ConfigReading& reading) {
  Transformer& model = reading.model();
  const DecoderType& type = reading.type;
  model.qk_norm = type.qk_norm;
  if (type.does_read(qk_norms)) {
    if (const auto norms = reading.take("use_qk_norm")) {
      const QkNorm wide = type.name() == "cohere" ? QkNorm::width : QkNorm::head;
      model.qk_norm = !norms->boolean() ? QkNorm::none : type.qk_norm == QkNorm::none ? wide : type.qk_norm;
    }
  } else if (const auto norms = reading.take("use_qk_norm"); norms && norms->boolean() != (type.qk_norm != QkNorm::none)) {
    norms->fail(type.qk_norm == QkNorm::none ? "this type of model has no norms of queries and keys; it must be false"
                                             : "this type of model has these norms; it must be true");
  }
  if (type.name() == "llama4_text" && model.qk_norm != QkNorm::none) {  // they have no weights
    model.qk_norm = QkNorm::none;
    reading.not_computed("use_qk_norm", "norms without weights are not computed");
  }
  if (const auto kind = model.qk_norm == QkNorm::none ? std::nullopt : reading.take("qk_norm_type")) {
    if (kind->text() != "per_layer" && kind->text() != "per_head") kind->expected("per_layer or per_head");
    model.qk_norm = kind->text() == "per_head" ? QkNorm::head : QkNorm::width;
  }
  reading.constants().norm_epsilon = type.epsilon;
  if (const auto epsilon = reading.take("rms_norm_eps")) reading.constants().norm_epsilon = epsilon->positive_or_zero();
}

inline void read_mlp(ConfigReading& reading) {
  Transformer& model = reading.model();
  const DecoderType& type = reading.type;
  model.gated = type.gated;
  constexpr std::string_view known =
      "silu swish swiglu swigluoai gelu gelu_new gelu_fast gelu_python gelu_pytorch_tanh quick_gelu relu relu2 xielu";
  if (const auto function = reading.take("hidden_act")) {
    if (!has_word(known, function->text()))
      reading.note("hidden_act",
                   concat(quote(abbreviated(function->text())), " is not known; it is taken to take as long as silu"));
    const bool same = function->text() == "swish" || function->text() == "swiglu";
    reading.constants().activation = same ? "silu" : function->text();
  }
  if (reading.constants().activation != "silu")
    reading.not_computed("hidden_act", concat(reading.constants().activation, " is not computed; silu is"));
  if (!type.gated) reading.not_computed("model_type", "an MLP without a gate is not computed");
  if (const auto width = reading.take("intermediate_size")) {
    model.intermediate = ConfigReading::one_of_all(*width).whole<int>() / (type.half_width ? 2 : 1);
  } else if (type.mlp_factor > 0 && model.hidden <= Transformer::max_hidden) {
    model.intermediate = type.mlp_factor * model.hidden;
  } else if (!type.does_read(experts)) {
    reading.need("intermediate_size");
  }
}

inline void read_latent(ConfigReading& reading) {
  if (!reading.is_latent()) return;
  Transformer& model = reading.model();
  const auto width = [&](std::string_view key, int least) {
    return reading.need(key).whole<int>(least, Transformer::max_hidden);
  };
  if (reading.says("q_lora_rank")) {
    if (const auto rank = reading.take("q_lora_rank")) model.query_rank = rank->whole<int>(1, Transformer::max_hidden);
  } else {
    reading.need("q_lora_rank");
  }
  model.key_value_rank = width("kv_lora_rank", 1);
  model.rope_width = width("qk_rope_head_dim", 0);
  const int unturned = width("qk_nope_head_dim", 0);
  model.value_size = reading.says("v_head_dim") ? width("v_head_dim", 1) : model.heads > 0 ? model.hidden / model.heads : 0;
  model.head_dim = unturned + model.rope_width;
  if (const auto pairs = reading.config().find_given("rope_interleave"); pairs && pairs->shown() == "false")
    reading.not_computed("rope_interleave", "latent attention is computed with turned pairs of neighbours; it must be true");
  if (model.kv_heads != model.heads)
    reading.need("num_key_value_heads").fail(concat("latent attention has as many as heads, ", model.heads));
}

/// What a router like DeepSeek-V3's has; predictions take none of it.
inline void read_sigmoid_router(ConfigReading& reading) {
  RouterRules& router = reading.constants().router;
  router.sigmoid = true;
  router.scale = reading.type.router_scale;
  if (const auto scale = reading.config().find_given("routed_scaling_factor"); scale) router.scale = scale->positive();
  for (const std::string_view key : {"n_group", "topk_group"}) {
    if (reading.type.name() == "deepseek_v3" && !reading.says(key))
      reading.not_computed(key, "is missing; give it, as the class of transformers has 8 groups, of which 4 are open");
  }
  for (const auto& [key, value] : {std::pair{"scoring_func", "sigmoid"}, std::pair{"topk_method", "noaux_tc"}}) {
    const auto given = reading.config().find_given(key);
    if (given && given->shown() != concat("\"", value, "\""))
      reading.not_computed(key, concat("must be ", value, " in a ", reading.type.name()));
  }
}

inline constexpr std::string_view is_mixture =
    "describes a mixture of experts, which this type of model is not; give the model_type of one, such as mixtral or qwen3_moe";

inline void read_experts(ConfigReading& reading) {
  Transformer& model = reading.model();
  const DecoderType& type = reading.type;
  if (!type.does_read(experts)) {
    for (const std::string_view key : {"num_experts", "num_experts_per_tok", "moe_intermediate_size", "n_shared_experts"}) {
      if (const auto value = reading.take(key); value && !has_value(key == "n_shared_experts" ? "0" : "0 1 []", *value))
        value->fail(is_mixture);
    }
    return;
  }
  const bool may_have_none = type.is_unknown() || has_word("deepseek nemotron_h granitemoehybrid minicpm", type.name());
  const auto experts_given = reading.take("num_experts");
  const bool dense = may_have_none && (!experts_given || has_value("0", *experts_given));
  if (type.name() == "granitemoehybrid" && dense)
    model.intermediate = reading.need("shared_expert_intermediate_size").whole<int>();
  if (dense) {
    for (const std::string_view key : {"num_experts_per_tok", "moe_intermediate_size", "n_shared_experts", "n_group",
                                       "topk_group", "norm_topk_prob", "shared_expert_intermediate_size", "router_aux_loss_coef"})
      reading.take(key);
    return;
  }
  model.experts = ConfigReading::one_of_all(reading.need("num_experts")).whole<int>(1);
  model.experts_per_token = ConfigReading::one_of_all(reading.need("num_experts_per_tok")).whole<int>(1);
  const int dense_width = model.intermediate;
  if (type.does_read(expert_width)) {
    const auto width = may_have_none ? reading.take("moe_intermediate_size") : reading.need("moe_intermediate_size");
    if (width) model.intermediate = ConfigReading::one_of_all(*width).whole<int>();
  } else if (model.intermediate == 0) {
    reading.need("intermediate_size");
  }
  model.dense_width = dense_width;
  if (type.is_unknown() || type.name() == "llama4_text") {
    if (const auto wide = reading.take("intermediate_size_mlp")) model.dense_width = wide->whole<int>();
  }
  if (type.name() == "llama4_text") model.shared_width = model.intermediate;  // always one
  if (type.does_read(shared_experts)) {
    const auto wide = reading.take("shared_expert_intermediate_size");
    const bool by_width = has_word("granitemoeshared granitemoehybrid", type.name());
    const auto shared = by_width ? std::nullopt : reading.take("n_shared_experts");
    const std::int64_t count = shared ? ConfigReading::one_of_all(*shared).whole<std::int64_t>(0, Transformer::max_experts) : 0;
    const int each = wide ? wide->whole<int>() : model.intermediate;
    const std::int64_t width = !shared                                            ? (wide ? each : 0)
                               : wide && count > 0 && type.name() == "nemotron_h" ? each
                                                                                  : count * each;
    if (width > Transformer::max_expert_width) {
      shared->fail(
          concat("shared experts of width ", each, " are too wide together; the most is ", Transformer::max_expert_width));
    }
    model.shared_width = static_cast<int>(width);
    if (!wide && !reading.says("n_shared_experts") && !type.is_unknown())
      reading.need(has_word("qwen2_moe granitemoeshared", type.name()) ? "shared_expert_intermediate_size" : "n_shared_experts");
  }
  model.shared_gate = model.shared_width > 0 && reading.flag("shared_expert_gate", type.shared_gate);
  if (type.does_read(expert_groups)) {
    model.expert_groups = reading.size("n_group", 1, 1);
    model.groups_per_token = reading.size("topk_group", 1, 1);
  }
  RouterRules& router = reading.constants().router;
  router.sum_to_one = reading.flag("norm_topk_prob", type.sum_to_one);
  if (!router.sum_to_one && has_word("mixtral minimax_m2 phimoe gpt_oss granitemoe", type.name()))
    reading.need("norm_topk_prob").fail("the weights of this type's experts have the sum 1; it must be true");
  const auto balance = reading.take("router_aux_loss_coef");
  if (reading.flag("output_router_logits", false)) router.balance = balance ? balance->positive_or_zero() : type.balance;
  if (type.sigmoid) read_sigmoid_router(reading);
  if (!type.router.empty()) reading.not_computed("model_type", concat("the router of a ", type.name(), " ", type.router));
}

inline void read_positions(ConfigReading& reading) {
  DecoderConstants& constants = reading.constants();
  const DecoderType& type = reading.type;
  constants.rope_theta = type.theta;
  constants.rotary_part = type.rotary_part;
  constants.positions = type.positions;
  if (const auto positions = reading.take("max_position_embeddings")) constants.positions = positions->whole<std::int32_t>();
  const auto part = reading.take("partial_rotary_factor");
  if (part) constants.rotary_part = part->positive();
  const auto scaling = reading.take("rope_scaling");
  const auto parameters = reading.take("rope_parameters");
  if (scaling && parameters) parameters->fail("rope_scaling and rope_parameters say the same in two ways; give one of them");
  if (scaling) read_rotary(*scaling, "rope_scaling", reading.read);
  if (parameters) read_rotary(*parameters, "rope_parameters", reading.read);
  if (const auto theta = reading.take("rope_theta")) {
    if (constants.rope_theta != type.theta && constants.rope_theta != theta->positive())
      theta->fail(concat("is ", constants.rope_theta, " in rope_parameters; give one of them"));
    constants.rope_theta = theta->positive();
  }
  if (const auto turned = reading.take("rotary_dim"); turned && reading.model().heads > 0)
    constants.rotary_part =
        turned->whole<int>(1, static_cast<int>(reading.model().head_size())) / static_cast<double>(reading.model().head_size());
  if (part && constants.rotary_part > 1) part->fail("more than all numbers of a head cannot be turned; it must be 1 or less");
}

inline void read_stored(ConfigReading& reading) {
  if (const auto name = reading.take("_name_or_path")) reading.read.stored_name = name->label();
  const auto dtype = reading.take("torch_dtype");
  if (!dtype || dtype->shown() == "\"auto\"") return;
  const Dtype stored = dtype->parsed(parse_dtype);
  if (stored == Dtype::f8) dtype->fail("8-bit floats are not modelled: a device's peak is of 16-bit ones; give bfloat16");
  reading.read.stored = stored;
  reading.model().dtype = stored == Dtype::f16 ? Dtype::f16 : Dtype::bf16;
  if (size_bytes(stored) > 2) {
    reading.note(reading.named("torch_dtype"), concat("the weights are stored in ", name(stored),
                                                      "; training is taken to be in bfloat16 (--dtype says otherwise)"));
  }
}

/// Keys that have no part of their own: what is left out, and what must have one value.
inline void read_others(ConfigReading& reading) {
  if (const auto names = reading.take("architectures")) {
    for (const JsonValue name : *names) {  // other heads than a language model's have other parameters
      if (name.text().ends_with("ForCausalLM") || name.text().ends_with("ForConditionalGeneration") ||
          name.text().ends_with("LMHeadModel"))
        continue;
      reading.note_not_computed(
          "architectures", concat(one_line(name.text().substr(0, 60)), " has another head; that of a language model is taken"));
    }
  }
  if (reading.take("quantization_config")) {
    const std::string_view key = reading.named("quantization_config");
    reading.note(key, "the weights are stored quantized; training is taken to be in 16 bits");
    reading.not_computed(key, "the weights are stored quantized, which is not read");
  }
  if (const auto modules = reading.take("num_mtp_modules"); modules && modules->whole<int>(0, Transformer::max_layers) > 0)
    reading.note_not_computed("num_mtp_modules", concat(modules->shown(), " modules that predict further tokens left out"));
  const bool may_list = reading.type.is_unknown() || reading.type.name() == "minimax_m2";
  if (const auto types = may_list ? reading.take("attn_type_list") : std::nullopt) {
    for (const JsonValue one : *types) {
      if (one.whole<int>() != 1) one.fail("linear attention (lightning attention) is not modelled; it must be 1");
    }
  }
  for (const auto& [key, value] : reading.config().members()) {
    if (value.is_null()) continue;
    for (const OnlyKey& only : only_keys) {
      if (has_word(only.keys, key) && !has_value(only.values, value)) value.fail(only.why);
    }
    for (const ScaledKey& scaled : scaled_keys) {
      if (has_word(scaled.key, key) && !has_value(scaled.neutral, value)) reading.not_computed(key, "is not computed");
    }
    if (has_word(dropout_keys, key) && value.positive_or_zero() > 0)
      reading.note_not_computed(key, concat("dropout of ", value.shown(), " left out"));
  }
}

}  // namespace tawpipe::detail
