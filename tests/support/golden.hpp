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
#include "tawpipe/model/transformer.hpp"
#include "tawpipe/training/safetensors.hpp"

namespace golden {

/// Configuration "A" or "B", dense, or "M0", a mixture of experts, with all its tensors.
struct Case {
  explicit Case(const std::string& name)
      : config(nlohmann::json::parse(std::ifstream{path(name, ".config.json")})),
        init{path(name, ".init.safetensors")},
        data{path(name, ".data.safetensors")},
        expect{path(name, ".expect.safetensors")},
        tokens{data.read<std::int32_t>("tokens")},
        targets{data.read<std::int32_t>("targets")} {}

  tawpipe::Transformer model(tawpipe::Dtype dtype) const {
    return {.name = "golden",
            .layers = config.at("n_layers"),
            .hidden = config.at("dim"),
            .heads = config.at("n_heads"),
            .kv_heads = config.at("n_kv_heads"),
            .intermediate = config.at("hidden"),
            .vocab = config.at("vocab_size"),
            .tied = config.at("tied") != 0,
            .dtype = dtype,
            .experts = config.value("n_experts", 0),
            .experts_per_token = config.value("top_k", 0)};
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
    return std::string{TAWPIPE_TEST_DATA} + (name.starts_with("M") ? "/moe_golden/" : "/llama_golden/") + name + "/" + name +
           ending;
  }
};

}  // namespace golden
