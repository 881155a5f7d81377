// The golden numbers of tests/data/llama_golden and moe_golden: a configuration with its parameters,
// data and expected tensors.
// Not: what is computed from them (support/llama_run.hpp).
#pragma once

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/decoder_constants.hpp"
#include "tawpipe/model/transformer.hpp"
#include "tawpipe/training/safetensors.hpp"

namespace golden {

/// Configuration "A" or "B", dense; "M0", a mixture of experts, "M1", the same with a loss that balances
/// them; "D1", with sigmoid scores, groups, a shared expert and a first dense layer; "D2", the same with
/// latent attention. With all its tensors.
struct Case {
  explicit Case(const std::string& name)
      : config(nlohmann::json::parse(std::ifstream{path(name, ".config.json")})),
        init{path(name, ".init.safetensors")},
        data{path(name, ".data.safetensors")},
        expect{path(name, ".expect.safetensors")},
        tokens{data.read<std::int32_t>("tokens")},
        targets{data.read<std::int32_t>("targets")} {}

  tawpipe::Transformer model(tawpipe::Dtype dtype) const {
    tawpipe::Transformer model{.name = "golden",
                               .layers = config.at("n_layers"),
                               .hidden = config.at("dim"),
                               .heads = config.at("n_heads"),
                               .kv_heads = config.at("n_kv_heads"),
                               .intermediate = config.value("expert_hidden", config.at("hidden").get<int>()),
                               .vocab = config.at("vocab_size"),
                               .tied = config.at("tied") != 0,
                               .dtype = dtype,
                               .head_dim = config.at("head_dim"),
                               .experts = config.value("n_experts", 0),
                               .experts_per_token = config.value("top_k", 0)};
    model.shared_width = config.value("n_shared_experts", 0) * model.intermediate;
    model.dense_layers = config.value("n_dense_layers", 0);
    if (model.dense_layers > 0) model.dense_width = config.at("hidden");
    if (config.value("router", "softmax") == "sigmoid") {
      model.expert_groups = config.at("n_group");
      model.groups_per_token = config.at("topk_group");
    }
    if (config.value("attention", "gqa") == "mla") {
      model.query_rank = config.at("q_lora_rank");
      model.key_value_rank = config.at("kv_lora_rank");
      model.rope_width = config.at("qk_rope_head_dim");
      model.value_size = config.at("v_head_dim");
    }
    return model;
  }
  tawpipe::DecoderConstants constants() const {
    tawpipe::DecoderConstants constants{.norm_epsilon = config.at("norm_eps"), .latent_epsilon = config.at("norm_eps")};
    constants.router.balance = config.value("aux_coef", 0.0);
    if (config.value("router", "softmax") != "sigmoid") return constants;
    constants.router.sigmoid = true;
    constants.router.scale = config.at("routed_scaling_factor");
    for (int layer = config.at("n_dense_layers"); layer < config.at("n_layers"); ++layer) {
      const auto bias = init.read<double>("decoders." + std::to_string(layer) + ".feed_forward.gate.e_score_correction_bias");
      constants.router.bias.insert(constants.router.bias.end(), bias.begin(), bias.end());
    }
    return constants;
  }
  tawpipe::Batch batch() const {
    const std::int64_t size = config.at("micro_batch");
    return {.sequence = config.at("seq"), .microbatch_size = size, .global_batch = size * microbatches()};
  }
  std::int64_t microbatches() const { return config.at("n_micro"); }
  /// The ids of one microbatch, of `tokens` or `targets`.
  std::span<const std::int32_t> microbatch(const std::vector<std::int32_t>& ids, std::int64_t index) const {
    const auto size = static_cast<std::size_t>(batch().tokens());
    return std::span{ids}.subspan(static_cast<std::size_t>(index) * size, size);
  }

  nlohmann::json config;
  tawpipe::training::SafetensorsFile init;
  tawpipe::training::SafetensorsFile data;
  tawpipe::training::SafetensorsFile expect;
  std::vector<std::int32_t> tokens;   // [microbatches, microbatch, sequence]
  std::vector<std::int32_t> targets;  // the same

 private:
  static std::string path(const std::string& name, const std::string& ending) {
    return std::string{TAWPIPE_TEST_DATA} + (name == "A" || name == "B" ? "/llama_golden/" : "/moe_golden/") + name + "/" + name +
           ending;
  }
};

}  // namespace golden
