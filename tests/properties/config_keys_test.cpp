// Every key of a config.json in every model_type: two files that differ in it alone predict something
// else, compute something else, are told apart by a note, or one is refused by the key's name.
// Not: real files (tests/unit/model/huggingface_config_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/model/detail/config_keys.hpp"
#include "tawpipe/model/huggingface_config.hpp"
#include "tawpipe/model/transformer_work.hpp"

namespace {

using tawpipe::Recompute;
using tawpipe::detail::ConfigKey;
using tawpipe::detail::DecoderType;
using tawpipe::detail::find_config_key;
using tawpipe::detail::KeyRole;
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
    {"num_local_experts", {8, 16}},
    {"num_experts", {8, 16}},
    {"n_routed_experts", {8, 16}},
    {"num_experts_per_tok", {1, 2}},
    {"shared_expert_intermediate_size", {0, 48, 56}},
    {"shared_expert_gate", {true, false}},
    {"first_k_dense_replace", {0, 1, 2}},
    {"n_shared_experts", {nullptr, 1, 2}},
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
    {"dtype", {"bfloat16", "float16", "float32"}},
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
    {"num_mtp_layers", {0, 1}},
    {"num_mtp_modules", {0, 3}},
    {"architectures", {{"LlamaForCausalLM"}, {"LlamaForSequenceClassification"}}},
    {"quantization_config", {nullptr, {{"quant_method", "fp8"}}}},
    {"compression_config", {nullptr, {{"format", "pack"}}}},
    {"quantization", {nullptr, {{"bits", 4}}}},
};

const std::vector<Json> anything = {true, 7, -0.5, "other", {1, 2}, {{"a", 1}}};

/// The smallest file of a type that is read.
Json smallest(const DecoderType& type) {
  Json config = {{"model_type", type.name},
                 {"num_hidden_layers", 4},
                 {"hidden_size", 64},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", type.latent ? 4 : 2},
                 {"intermediate_size", 96},
                 {"vocab_size", 512}};
  if (type.window > 0) config["sliding_window"] = 16;
  for (const Sample& sample : samples) {
    const ConfigKey* const row = find_config_key(sample.key, type.name);
    if (row != nullptr && row->required && !config.contains(sample.key)) config[sample.key] = sample.values.back();
  }
  if (type.name == "qwen3_moe") config["num_experts"] = 16;  // which has two names
  if (type.latent || type.name == "glm4_moe") config.update({{"n_group", 2}, {"topk_group", 1}});
  if (!type.latent) config["head_dim"] = 16;
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
    std::string predicted = tawpipe::concat(name(read.model.dtype), " ", read.model.active_parameters());
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      const auto stack = layer_stack(read.model, {.sequence = 64, .microbatch_size = 2, .global_batch = 2}, recompute);
      predicted += tawpipe::concat(" ", stack.parameters(), " ", stack.layer.forward.value(), " ", stack.layer.saved.value());
      for (const auto& kernel : stack.layer.kernels) predicted += tawpipe::concat(" ", kernel.flops(), " ", kernel.bytes);
      for (const auto& [key, size] : stack.sizes) predicted += tawpipe::concat(" ", key, " ", size);
    }
    return {{}, predicted, read.constants, read.not_computed, read.model.notes, std::string{name(read.stored)}};
  } catch (const tawpipe::InputError& error) {
    return {.refused = error.what()};
  }
}

/// Whether the second file is seen to differ from the first by `key`.
bool told_apart(const std::string& key, KeyRole role, const Outcome& a, const Outcome& b) {
  for (const Outcome* one : {&a, &b}) {
    if (!one->refused.empty()) return one->refused.find(key) != std::string::npos;
  }
  const auto about = [&](const std::vector<std::string>& texts) {
    return std::any_of(texts.begin(), texts.end(), [&](const std::string& text) { return text.starts_with(key + ": "); });
  };
  if (role == KeyRole::note) return a.predicted == b.predicted && a.notes != b.notes && (about(a.notes) || about(b.notes));
  if (role == KeyRole::numbers)
    return a.predicted == b.predicted && (a.constants != b.constants || a.not_computed != b.not_computed);
  return a.predicted != b.predicted || (a.notes != b.notes && (about(a.notes) || about(b.notes)));
}

}  // namespace

TEST_CASE("each key of each model_type changes what it says, or is refused by name") {
  std::mt19937 random{20};
  for (const DecoderType& type : tawpipe::detail::decoder_types) {
    CAPTURE(type.name);
    const Json base = smallest(type);
    const Outcome plain = outcome_of(base);
    REQUIRE(plain.refused == "");
    CHECK(plain.notes.empty());
    for (const ConfigKey& row : tawpipe::detail::config_keys) {
      const std::string key{row.key};
      if (find_config_key(key, type.name) != &row) continue;
      CAPTURE(key);
      if (row.role == KeyRole::nothing) {
        Json other = base;
        other[key] = key == "_name_or_path" ? Json("name") : anything[random() % anything.size()];
        CHECK(outcome_of(other) == plain);
        continue;
      }
      if (row.role == KeyRole::only) {
        Json other = base;
        other[key] = anything[random() % anything.size()];
        const bool allowed = tawpipe::detail::has_word(row.values, other[key].dump());
        const Outcome found = outcome_of(other);
        CHECK((allowed ? found.refused.empty() : found.refused.find(key) != std::string::npos));
        continue;
      }
      const auto sample = std::find_if(samples.begin(), samples.end(), [&](const Sample& one) { return one.key == key; });
      REQUIRE_MESSAGE(sample != samples.end(), "the key has no sample");
      for (std::size_t a = 0; a < sample->values.size(); ++a) {
        for (std::size_t b = 0; b < a; ++b) {
          Json first = base;
          for (const auto& [beside, value] : sample->beside.items()) {
            const ConfigKey* const known = find_config_key(beside, type.name);
            if (known != nullptr && (known->role == KeyRole::sizes || known->role == KeyRole::numbers)) first[beside] = value;
          }
          Json second = first;
          first[key] = sample->values[a];
          second[key] = sample->values[b];
          CAPTURE(first[key].dump());
          CAPTURE(second[key].dump());
          const Outcome one = outcome_of(first);
          const Outcome other = outcome_of(second);
          CAPTURE(one.refused);
          CAPTURE(other.refused);
          CHECK(told_apart(key, row.role, one, other));
        }
      }
    }
  }
}

TEST_CASE("keys of transformers that change nothing change nothing, and unknown ones are refused by name") {
  for (const DecoderType& type : tawpipe::detail::decoder_types) {
    const Json base = smallest(type);
    const Outcome plain = outcome_of(base);
    for (const std::string_view key : tawpipe::split(tawpipe::detail::idle_keys, ' ')) {
      if (key == "model_type") continue;
      Json other = base;
      other[std::string{key}] = 3;
      CHECK_MESSAGE(outcome_of(other) == plain, key);
    }
    Json other = base;
    other.update({{"alibi", true}, {"logit_scale", 2}, {"left_out", nullptr}});
    const std::string refused = outcome_of(other).refused;
    CHECK(refused.find("alibi, logit_scale") != std::string::npos);
    CHECK(refused.find("left_out") == std::string::npos);
  }
}

TEST_CASE("a file without model_type is read as a llama, and says so") {
  Json config = smallest(tawpipe::detail::decoder_types[0]);
  config.erase("model_type");
  const Outcome found = outcome_of(config);
  REQUIRE(found.notes.size() == 1);
  CHECK(found.notes[0] == "model_type: is missing; the model is taken to be a llama");
}
