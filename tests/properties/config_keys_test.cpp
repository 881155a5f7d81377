// Every key of a config.json in every model_type: two files that differ in it alone predict something
// else, compute something else, are told apart by a note, or one is refused by the key's name.
// Not: real files (tests/unit/model/huggingface_config_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/model/detail/config_keys.hpp"
#include "tawpipe/model/detail/decoder_families.hpp"
#include "tawpipe/model/huggingface_config.hpp"

namespace {

using namespace tawpipe::detail;  // the tables
using Json = nlohmann::ordered_json;

/// What two values of a key are, and what else the file says.
struct Sample {
  std::string key;
  std::vector<Json> values;
  Json beside = Json::object();
};

const Json four_full = {"full_attention", "full_attention", "full_attention", "full_attention"};
const Json four_sliding = {"sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention"};
const Json half_sliding = {"sliding_attention", "sliding_attention", "full_attention", "full_attention"};
const Json in_window = {{"sliding_window", 16}, {"use_sliding_window", true}, {"max_window_layers", 0}};
const Json llama3 = {{"rope_type", "llama3"},
                     {"factor", 8.0},
                     {"low_freq_factor", 1.0},
                     {"high_freq_factor", 4.0},
                     {"original_max_position_embeddings", 32}};

const std::vector<Sample> samples = {
    {"num_hidden_layers", {4, 6, 8}},
    {"hidden_size", {64, 128, 256}},
    {"num_attention_heads", {4, 8}, {{"num_key_value_heads", nullptr}}},
    {"intermediate_size", {96, 112, 160}},
    {"moe_intermediate_size", {48, 56}},
    {"vocab_size", {512, 640}},
    {"num_experts", {8, 16}},
    {"num_experts_per_tok", {1, 2}},
    {"shared_expert_intermediate_size", {0, 48, 56}},
    {"shared_expert_gate", {true, false}},
    {"first_k_dense_replace", {0, 1, 2}},
    {"n_shared_experts", {1, 2}},
    {"n_group", {1, 2, 4}},
    {"topk_group", {1, 2}},
    {"q_lora_rank", {nullptr, 16, 24}},
    {"kv_lora_rank", {16, 24}},
    {"qk_rope_head_dim", {4, 8}},
    {"qk_nope_head_dim", {8, 12}},
    {"v_head_dim", {10, 12}},
    {"head_dim", {16, 32}},
    {"num_key_value_heads", {1, 2, 4}},
    {"tie_word_embeddings", {true, false}},
    {"torch_dtype", {"bfloat16", "float16", "float32"}},
    {"sliding_window", {nullptr, 8, 16}, in_window},
    {"use_sliding_window", {true, false}, in_window},
    {"max_window_layers", {0, 2, 4}, in_window},
    {"layer_types", {four_full, four_sliding, half_sliding}, in_window},
    {"attention_bias", {true, false}},
    {"qkv_bias", {true, false}},
    {"mlp_bias", {true, false}},
    {"use_qk_norm", {true, false}},
    {"rms_norm_eps", {1e-5, 1e-6}},
    {"hidden_act", {"silu", "gelu", "relu"}},
    {"max_position_embeddings", {64, 128}},
    {"rope_theta", {1e4, 5e5}},
    {"rope_scaling", {nullptr, {{"type", "linear"}, {"factor", 2}}, {{"type", "yarn"}, {"factor", 2}}, llama3}},
    {"rope_parameters", {{{"rope_type", "default"}, {"rope_theta", 7e5}}, {{"rope_type", "linear"}, {"factor", 2}}, llama3}},
    {"partial_rotary_factor", {0.25, 0.75}},
    {"rotary_dim", {4, 8}},
    {"norm_topk_prob", {true, false}},
    {"router_aux_loss_coef", {0.01, 0.02}, {{"output_router_logits", true}}},
    {"output_router_logits", {true, false}},
    {"num_nextn_predict_layers", {0, 1, 2}},
    {"num_mtp_modules", {0, 3}},
    {"architectures", {{"LlamaForCausalLM"}, {"LlamaForSequenceClassification"}}},
    {"quantization_config", {nullptr, {{"quant_method", "fp8"}}}},
    {"multi_query", {true, false}, {{"num_key_value_heads", Json()}}},
    {"sliding_window_pattern", {2, 4, "LLG"}, in_window},
    {"attention_chunk_size", {16, 32}},
    {"no_rope_layers", {{1, 1, 1, 0}, {1, 0, 1, 0}}},
    {"attn_type_list", {{1, 1, 1, 1}, {1, 1, 1, 0}}},
    {"hybrid_override_pattern", {"M*-E", "ME*-"}},
    {"hybrid_layer_pattern", {{0, 1, 1, 1}, {0, 1, 0, 1}}},
    {"full_attention_interval", {2, 4}},
    {"attn_layer_indices", {{0}, {1, 3}}},
    {"attention_out_bias", {true, false}},
    {"use_bias", {true, false}},
    {"qk_norm_type", {"per_head", "per_layer"}},
    {"use_parallel_residual", {true, false}},
    {"intermediate_size_mlp", {80, 144}},
    {"mlp_layer_types", {{"dense", "sparse", "sparse", "sparse"}, {"dense", "dense", "sparse", "sparse"}}},
    {"moe_layer_freq", {{0, 1, 1, 1}, {0, 0, 1, 1}}},
    {"mlp_only_layers", {{0}, {0, 1}}},
    {"moe_layers", {{1, 2, 3}, {2, 3}}},
    {"moe_layer_end_index", {2, 3}},
    {"swa_num_attention_heads", {4, 8}},
    {"swa_num_key_value_heads", {2, 4}},
    {"swa_head_dim", {16, 24}},
    {"swa_v_head_dim", {16, 24}},
    {"add_swa_attention_sink_bias", {true, false}},
    {"add_full_attention_sink_bias", {true, false}},
    {"attn_output_gate", {true, false}},
    {"linear_num_key_heads", {2, 4}},
    {"linear_num_value_heads", {4, 8}},
    {"linear_key_head_dim", {8, 16}},
    {"linear_value_head_dim", {8, 16}},
    {"linear_conv_kernel_dim", {3, 4}},
    {"mamba_num_heads", {8, 16}},
    {"mamba_head_dim", {8, 16}},
    {"n_groups", {1, 2}},
    {"ssm_state_size", {8, 16}},
    {"conv_kernel", {3, 4}},
    {"expand", {1, 2}, {{"mamba_head_dim", Json()}}},
    {"use_conv_bias", {true, false}},
    {"mamba_proj_bias", {true, false}},
    {"moe_latent_size", {nullptr, 16, 32}},
    {"index_topk", {8, 16}},
    {"index_head_dim", {8, 16}},
    {"index_n_heads", {2, 4}},
};

/// Keys that are read without an effect of their own: which layers lack rotary embedding is not computed, and changes no time.
const std::vector<std::string> silent = {"_name_or_path", "no_rope_layer_interval", "no_rope_layers"};

/// Keys of parts that the smallest file of a type does not have.
bool is_silent(const std::string& key, const DecoderType& type) {
  if (key == "head_dim" && type.does_read(latent)) return true;  // qk_nope_head_dim and qk_rope_head_dim say it
  if (key == "intermediate_size") return type.does_read(expert_width) && !type.does_read(dense_layers) && !type.one_part;
  if (key == "intermediate_size_mlp") return type.name() == "llama4_text";                        // no layer without experts
  if (key == "n_shared_experts") return type.name() == "nemotron_h";                              // their width says all
  if (key == "sliding_window" || key == "use_sliding_window") return type.name() == "qwen2_moe";  // only up to max_window_layers
  if (key == "max_window_layers") return type.name() == "qwen3_moe";                              // windows are in all layers
  return std::find(silent.begin(), silent.end(), key) != silent.end();
}

/// The smallest file of a type that is read.
Json smallest(const DecoderType& type) {
  Json config = {{"model_type", type.name()},
                 {"num_hidden_layers", 4},
                 {"hidden_size", 64},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", type.does_read(latent) ? 4 : 2},
                 {"intermediate_size", 96},
                 {"vocab_size", 512}};
  if (type.window > 0) config["sliding_window"] = 16;
  if (type.does_read(experts)) config.update({{"num_experts", 16}, {"num_experts_per_tok", 2}});
  if (type.does_read(expert_width)) config["moe_intermediate_size"] = 56;
  if (type.does_read(shared_experts) && !has_word("qwen2_moe granitemoeshared granitemoehybrid", type.name()))
    config["n_shared_experts"] = 1;
  if (has_word("qwen2_moe granitemoeshared granitemoehybrid nemotron_h qwen3_next", type.name()))
    config["shared_expert_intermediate_size"] = 56;
  if (type.does_read(dense_layers)) config["first_k_dense_replace"] = 1;
  if (type.does_read(expert_groups)) config.update({{"n_group", 2}, {"topk_group", 1}});
  if (type.does_read(latent)) {
    config.update(
        {{"q_lora_rank", 24}, {"kv_lora_rank", 24}, {"qk_rope_head_dim", 8}, {"qk_nope_head_dim", 12}, {"v_head_dim", 12}});
  } else {
    config["head_dim"] = 16;
  }
  if (type.does_read(value_size)) config["v_head_dim"] = 12;
  if (type.does_read(indexed)) config.update({{"index_topk", 8}, {"index_head_dim", 8}, {"index_n_heads", 2}});
  if (type.does_read(delta_nets)) {
    config.update(
        {{"linear_num_key_heads", 4}, {"linear_num_value_heads", 8}, {"linear_key_head_dim", 16}, {"linear_value_head_dim", 8}});
  }
  if (type.does_read(mamba)) {
    config.update({{"mamba_num_heads", 8}, {"mamba_head_dim", 16}, {"n_groups", 2}, {"ssm_state_size", 16}});
    if (type.one_part) config["hybrid_override_pattern"] = "ME*-";
    if (!type.one_part) config["attn_layer_indices"] = {2};
  }
  return config;
}

struct Outcome {
  std::string refused = {};
  std::string predicted = {};
  tawpipe::DecoderConstants constants = {};
  std::vector<std::string> not_computed = {};
  std::vector<std::string> notes = {};
  std::string stored = {};

  bool operator==(const Outcome&) const = default;
};

Outcome outcome_of(const Json& config) {
  try {
    const auto read = tawpipe::parse_huggingface_config(config.dump(), "c", "m");
    const tawpipe::Model& decoder = read.decoder;
    std::string predicted =
        tawpipe::concat(name(read.model.dtype), " ", decoder.parameters(), " ", decoder.active_parameters(), " ", read.unequal,
                        " ", read.model.expert_groups, " ", read.model.groups_per_token, " ", read.model.window);
    for (const std::int64_t sequence : {7, 64}) predicted += tawpipe::concat(" ", decoder.flops(sequence).all());
    for (const std::uint8_t kind : decoder.pattern) predicted += tawpipe::concat(" ", int{kind});
    for (const tawpipe::LayerKind& kind : decoder.kinds) {
      for (const tawpipe::Operator& op : kind.operators(decoder.hidden))
        predicted += tawpipe::concat(" ", name(op.kind), " ", op.in, " ", op.out, " ", op.vectors, " ", op.reach);
    }
    return {{}, predicted, read.constants, read.not_computed, read.model.notes, std::string{name(read.stored)}};
  } catch (const tawpipe::InputError& error) {
    return {.refused = error.what()};
  }
}

/// Whether the second file is seen to differ from the first by `key`.
bool told_apart(const std::string& key, const Outcome& a, const Outcome& b) {
  for (const Outcome* one : {&a, &b}) {
    if (!one->refused.empty()) return one->refused.find(key) != std::string::npos;
  }
  return a != b;
}

}  // namespace

TEST_CASE("each key of each model_type changes what it says, or is refused by name") {
  for (const DecoderType& type : decoder_types) {
    CAPTURE(type.names);
    const Json base = smallest(type);
    const Outcome plain = outcome_of(base);
    REQUIRE(plain.refused == "");
    for (const ConfigKey& row : config_keys) {
      const std::string key{row.key};
      CAPTURE(key);
      if (is_silent(key, type)) continue;
      const auto sample = std::find_if(samples.begin(), samples.end(), [&](const Sample& one) { return one.key == key; });
      REQUIRE_MESSAGE(sample != samples.end(), "the key has no sample");
      Json first = base;
      for (const auto& [beside, value] : sample->beside.items()) {
        Json with = first;
        with[beside] = value;
        const Outcome found = outcome_of(with);
        if (found.refused.find(beside) == std::string::npos) first = with;
      }
      for (std::size_t a = 0; a < sample->values.size(); ++a) {
        for (std::size_t b = 0; b < a; ++b) {
          Json second = first;
          first[key] = sample->values[a];
          second[key] = sample->values[b];
          CAPTURE(first.dump());
          CAPTURE(second[key].dump());
          const Outcome one = outcome_of(first);
          const Outcome other = outcome_of(second);
          CAPTURE(one.refused);
          CAPTURE(other.refused);
          CHECK(told_apart(key, one, other));
        }
      }
    }
    for (const ConfigKey& row : config_keys) {  // by other names it says the same, or is refused by that name
      const auto sample = std::find_if(samples.begin(), samples.end(), [&](const Sample& one) { return one.key == row.key; });
      if (sample == samples.end() || row.key == "moe_layer_freq" || sample->values.back().is_null()) continue;
      for (const std::string_view alias : tawpipe::split(row.aliases, ' ')) {
        if (alias.empty()) continue;
        Json named = base;
        Json renamed = base;
        renamed.erase(std::string{row.key});
        named[std::string{row.key}] = renamed[std::string{alias}] = sample->values.back();
        const Outcome one = outcome_of(named);
        const Outcome other = outcome_of(renamed);
        CAPTURE(alias);
        CAPTURE(one.refused);
        CAPTURE(other.refused);
        CHECK(one.refused.empty() == other.refused.empty());
        CHECK(one.predicted == other.predicted);
      }
    }
    for (const OnlyKey& only : only_keys) {
      for (const std::string_view key : tawpipe::split(only.keys, ' ')) {
        Json other = base;
        other[std::string{key}] = {{"a", 1}};
        CHECK(outcome_of(other).refused.find(only.why) != std::string::npos);
      }
    }
    for (const ScaledKey& scaled : scaled_keys) {
      for (const std::string_view key : tawpipe::split(scaled.key, ' ')) {
        Json other = base;
        other[std::string{key}] = 7;
        const Outcome found = outcome_of(other);
        CHECK(found.predicted == plain.predicted);
        CHECK(found.not_computed != plain.not_computed);
      }
    }
    for (const std::string_view key : tawpipe::split(dropout_keys, ' ')) {
      Json other = base;
      other[std::string{key}] = 0.5;
      CHECK(outcome_of(other).notes != plain.notes);
      other[std::string{key}] = 0.0;
      CHECK(outcome_of(other) == plain);
    }
  }
}

TEST_CASE("keys of transformers that change nothing change nothing, and unknown ones are refused by name") {
  for (const DecoderType& type : decoder_types) {
    const Json base = smallest(type);
    const Outcome plain = outcome_of(base);
    for (const std::string_view key : tawpipe::split(idle_keys, ' ')) {
      if (key == "model_type") continue;
      Json other = base;
      other[std::string{key}] = 3;
      const bool trained = type.sigmoid && has_word("routed_scaling_factor scoring_func topk_method", key);
      CHECK_MESSAGE((outcome_of(other) == plain) == !trained, key);
    }
    Json other = base;
    other.update({{"alibi_slope", true}, {"logit_factor", 2}, {"left_out", nullptr}});
    const std::string refused = outcome_of(other).refused;
    CHECK(refused.find("alibi_slope, logit_factor") != std::string::npos);
    CHECK(refused.find("left_out") == std::string::npos);
  }
}

TEST_CASE("a file without model_type is read as a llama, and says so") {
  Json config = smallest(decoder_types[0]);
  const Outcome named = outcome_of(config);
  config.erase("model_type");
  const Outcome found = outcome_of(config);
  CHECK(found.predicted == named.predicted);
  CHECK(found.not_computed.empty());
  REQUIRE(found.notes.size() == 1);
  CHECK(found.notes[0].starts_with("model_type: is missing; read by its keys as a decoder with norms before attention"));
}
