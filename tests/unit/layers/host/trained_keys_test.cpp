// Every key of a config.json on the way to training: it changes the loss, is refused by name, or is known
// to change nothing.
// Not: what predictions make of it (unit/model/huggingface_config_test.cpp), nor which number is right
// (torch/peers_test.py).
#include <doctest/doctest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/llama_outcome.hpp"
#include "support/scratch_folder.hpp"
#include "tawpipe/model/detail/config_keys.hpp"
#include "tawpipe/training/huggingface_config_file.hpp"

namespace {

using nlohmann::json;
using tawpipe::detail::config_keys;
using tawpipe::detail::ConfigKey;

/// What is trained: the keys that a type needs, and a window where it has one.
const std::map<std::string, json> types = {
    {"llama", json::object()},
    {"phi3", json::object()},
    {"mistral", {{"sliding_window", 3}}},
    {"qwen2", {{"use_sliding_window", true}, {"sliding_window", 3}, {"max_window_layers", 0}}},
    {"qwen3", {{"use_sliding_window", true}, {"sliding_window", 3}, {"max_window_layers", 0}}},
    {"mixtral", {{"num_local_experts", 4}, {"num_experts_per_tok", 2}, {"sliding_window", nullptr}}},
    {"qwen2_moe",
     {{"num_experts", 4},
      {"num_experts_per_tok", 2},
      {"moe_intermediate_size", 12},
      {"shared_expert_intermediate_size", 6},
      {"shared_expert_gate", false},
      {"norm_topk_prob", true}}},
    {"qwen3_moe", {{"num_experts", 4}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 12}, {"norm_topk_prob", true}}},
    {"olmoe", {{"num_experts", 4}, {"num_experts_per_tok", 2}, {"norm_topk_prob", true}}},
    {"deepseek_v3",
     {{"num_key_value_heads", 2},
      {"q_lora_rank", 6},
      {"kv_lora_rank", 5},
      {"qk_rope_head_dim", 4},
      {"qk_nope_head_dim", 4},
      {"v_head_dim", 4},
      {"n_routed_experts", 8},
      {"num_experts_per_tok", 2},
      {"moe_intermediate_size", 12},
      {"n_shared_experts", 1},
      {"first_k_dense_replace", 1},
      {"n_group", 2},
      {"topk_group", 1}}},
};
/// What latent attention and a first dense layer say by other keys.
const std::vector<std::string> not_of_deepseek = {"num_hidden_layers", "head_dim", "num_attention_heads", "mlp_only_layers",
                                                  "moe_layer_freq"};
/// Keys that only a router like DeepSeek-V3's and latent attention take.
const std::vector<std::string> of_deepseek = {"routed_scaling_factor", "scoring_func", "topk_method", "rope_interleave"};

json config_of(const std::string& type) {
  json config{{"model_type", type},       {"hidden_size", 8},         {"num_hidden_layers", 2},
              {"num_attention_heads", 2}, {"num_key_value_heads", 1}, {"head_dim", 4},
              {"intermediate_size", 12},  {"vocab_size", 10},         {"tie_word_embeddings", true}};
  config.update(types.at(type));
  return config;
}

/// Of each key other values than config_of()'s: several keys at once where one alone says nothing.
const std::map<std::string, std::vector<json>> other_values = {
    {"num_hidden_layers", {1}},
    {"hidden_size", {12}},
    {"num_attention_heads", {4}},
    {"num_key_value_heads", {2, 1}},
    {"q_lora_rank", {7}},
    {"kv_lora_rank", {7}},
    {"qk_rope_head_dim", {2}},
    {"qk_nope_head_dim", {6}},
    {"v_head_dim", {6}},
    {"n_group", {1}},
    {"topk_group", {2}},
    {"head_dim", {6}},
    {"intermediate_size", {16}},
    {"moe_intermediate_size", {16}},
    {"vocab_size", {11}},
    {"num_local_experts", {3}},
    {"num_experts", {3}},
    {"num_experts_per_tok", {1, 3}},
    {"shared_expert_intermediate_size", {8}},
    {"shared_expert_gate", {true}},
    {"tie_word_embeddings", {false}},
    {"sliding_window", {2, 8}},
    {"use_sliding_window", {false, true}},
    {"max_window_layers", {1, 2}},
    {"layer_types",
     {{"full_attention", "full_attention"}, {"sliding_attention", "sliding_attention"}, {"sliding_attention", "full_attention"}}},
    {"attention_bias", {true}},
    {"qkv_bias", {true, false}},
    {"use_qkv_bias", {true}},
    {"mlp_bias", {true}},
    {"use_qk_norm", {true, false}},
    {"rms_norm_eps", {1e-3}},
    {"hidden_act", {"gelu"}},
    {"clip_qkv", {8.0}},
    {"rope_theta", {100.0}},
    {"rope_scaling", {{{"type", "linear"}, {"factor", 4.0}}, {{"rope_type", "yarn"}, {"factor", 4.0}}}},
    {"rope_parameters",
     {{{"rope_type", "default"}, {"rope_theta", 100.0}},
      {{"rope_type", "linear"}, {"factor", 4.0}, {"rope_theta", 1e4}},
      {{"rope_type", "llama3"},
       {"factor", 4.0},
       {"low_freq_factor", 1.0},
       {"high_freq_factor", 4.0},
       {"original_max_position_embeddings", 16}},
      {{"rope_type", "dynamic"}, {"factor", 4.0}}}},
    {"partial_rotary_factor", {0.5}},
    {"decoder_sparse_step", {2}},
    {"moe_layer_freq", {2}},
    {"interleave_moe_layer_step", {2}},
    {"mlp_only_layers", {json::array({0})}},
    {"norm_topk_prob", {false}},
    {"output_router_logits", {true}},
    {"router_jitter_noise", {0.1}},
    {"num_nextn_predict_layers", {1}},
    {"num_mtp_layers", {1}},
    {"num_mtp_modules", {1}},
    {"n_routed_experts", {4}},
    {"architectures", {json::array({"LlamaForSequenceClassification"})}},
    {"quantization_config", {json{{"quant_method", "fp8"}}}},
    {"compression_config", {json{{"quant_method", "fp8"}}}},
    {"quantization", {json{{"quant_method", "fp8"}}}},
    {"attention_dropout", {0.1}},
    {"hidden_dropout", {0.1}},
    {"resid_pdrop", {0.1}},
    {"embd_pdrop", {0.1}},
    {"is_encoder_decoder", {true}},
    {"add_cross_attention", {true}},
    {"tie_encoder_decoder", {true}},
    {"chunk_size_feed_forward", {8}},
    {"pruned_heads", {json{{"0", json::array({1})}}}},
    {"per_layer_config", {json{{"0", json::array({1})}}}},
};

/// Keys one of whose other values says again what a type does without it.
const std::vector<std::string> repeat = {"layer_types", "num_experts_per_tok", "qkv_bias", "use_qk_norm", "use_sliding_window"};

/// Keys that say something of predictions, or are kept for others, and change no number of training: the
/// command says the number format.
const std::vector<std::string> not_of_numbers = {"torch_dtype", "max_position_embeddings", "_name_or_path"};

/// The loss of the model as `train --model config.json` computes it, with its number of parameters; or
/// the refusal.
std::string outcome(const support::ScratchFolder& folder, const json& config) {
  support::put_file(folder / "config.json", config.dump());
  try {
    const auto read = tawpipe::training::read_decoder_config(folder / "config.json");
    tawpipe::Transformer model = read.model;
    model.dtype = tawpipe::Dtype::f64;
    const tawpipe::Batch batch{.sequence = 9, .microbatch_size = 2, .global_batch = 2};
    llama_run::Runner<double> runner{model, batch, llama_run::whole(model.layers), {.constants = read.constants}};
    llama_run::fill(runner, model);
    tawpipe::Transformer smallest = model;
    smallest.vocab = 10;
    const double loss = runner.run(llama_run::ids(smallest, batch, 1), llama_run::ids(smallest, batch, 2), false).loss;
    return tawpipe::concat(static_cast<std::int64_t>(loss * 1e15), " of ", model.parameters());
  } catch (const tawpipe::InputError& error) {
    return error.what();
  }
}

bool is_loss(const std::string& outcome) {
  return !outcome.empty() && outcome.find_first_not_of("0123456789 of") == outcome.npos;
}

}  // namespace

TEST_CASE("every key of a config.json changes the loss, is refused by its name, or changes nothing") {
  const support::ScratchFolder folder;
  for (const auto& [type, own] : types) {
    CAPTURE(type);
    const json base = config_of(type);
    const std::string before = outcome(folder, base);
    CAPTURE(before);
    REQUIRE(is_loss(before));
    CHECK(outcome(folder, base) == before);
    for (const ConfigKey& row : config_keys) {
      const std::string key{row.key};
      CAPTURE(key);
      json changed = base;
      if (std::ranges::find(not_of_numbers, key) != not_of_numbers.end()) {
        changed[key] = key == "max_position_embeddings" ? json(77) : key == "_name_or_path" ? json("a name") : json("float16");
        CHECK(outcome(folder, changed) == before);
        continue;
      }
      if (type == "deepseek_v3" && std::ranges::find(not_of_deepseek, key) != not_of_deepseek.end()) continue;
      const bool mixture = base.contains("num_experts_per_tok");
      // What a dense model has no experts for, or a mixture no layer without; windows that use_sliding_window does not switch on.
      if (!mixture && (key == "router_aux_loss_coef" || key == "norm_topk_prob")) continue;
      if (type.ends_with("_moe") &&
          (key == "intermediate_size" || key == "sliding_window" || key == "max_window_layers" || key == "use_sliding_window"))
        continue;
      if (key == "router_aux_loss_coef") {  // transformers adds that loss only where router logits are put out
        changed[key] = 0.5;
        CHECK(outcome(folder, changed) == before);
        changed["output_router_logits"] = true;
        CHECK(outcome(folder, changed) != before);
        changed[key] = 0;
        CHECK(outcome(folder, changed) == before);
        continue;
      }
      bool differs = false;
      for (const json& value : other_values.contains(key) ? other_values.at(key) : std::vector<json>{77}) {
        CAPTURE(value.dump());
        if (base.contains(key) && base.at(key) == value) continue;
        changed = base;
        changed[key] = value;
        const std::string after = outcome(folder, changed);
        CAPTURE(after);
        differs = differs || after != before;
        if (std::ranges::find(repeat, key) == repeat.end()) CHECK(after != before);
        if (!is_loss(after))
          CHECK(after.find(mixture && key == "output_router_logits" ? "router_aux_loss_coef" : key) != std::string::npos);
      }
      CHECK(differs);
    }
    std::string_view idle = tawpipe::detail::idle_keys;
    while (!idle.empty()) {
      const std::string key{idle.substr(0, idle.find(' '))};
      idle.remove_prefix(std::min(idle.size(), key.size() + 1));
      if (key == "model_type") continue;
      CAPTURE(key);
      json changed = base;
      changed[key] = key == "rope_interleave" ? json(false) : json(77);
      const bool taken = type == "deepseek_v3" && std::ranges::find(of_deepseek, key) != of_deepseek.end();
      CHECK((outcome(folder, changed) == before) == !taken);
    }
    json unknown = base;
    unknown["a_new_key"] = 1;
    CHECK(outcome(folder, unknown).find("a_new_key") != std::string::npos);
  }
}
