// Models by their vendors' names that have no preset, as the sizes of their config.json.
// Not: presets, which a program without JSON knows too (model/models.hpp).
#pragma once

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string>
#include <string_view>

namespace tawpipe::inline v0::detail {

/// What a published config.json says of sizes, layers and kinds, by short names of keys. Source: the file of the model of
/// that name on huggingface.co. tests/data/models/published.txt has the published counts.
struct PublishedModel {
  std::string_view name;
  std::string_view config;
};

inline constexpr PublishedModel published_models[] = {
    {"mistral-nemo-12b",
     R"({"model_type": "mistral", "n_layer": 40, "d_model": 5120, "n_head": 32, "n_kv_heads": 8, "d_ff": 14336,)"
     R"("vocab_size": 131072, "head_dim": 128, "sliding_window": null})"},
    {"mistral-small-24b",
     R"({"model_type": "mistral", "n_layer": 40, "d_model": 5120, "n_head": 32, "n_kv_heads": 8, "d_ff": 32768,)"
     R"("vocab_size": 131072, "head_dim": 128, "sliding_window": null})"},
    {"ministral-3-3b",
     R"({"model_type": "ministral3", "n_layer": 26, "d_model": 3072, "n_head": 32, "n_kv_heads": 8, "d_ff": 9216,)"
     R"("vocab_size": 131072, "tie_embedding": true})"},
    {"phi-3-mini", R"({"model_type": "phi3", "n_layer": 32, "d_model": 3072, "n_head": 32, "n_kv_heads": 32, "d_ff": 8192,)"
                   R"("vocab_size": 32064})"},
    {"phi-4", R"({"model_type": "phi3", "n_layer": 40, "d_model": 5120, "n_head": 40, "n_kv_heads": 10, "d_ff": 17920,)"
              R"("vocab_size": 100352})"},
    {"phi-2", R"({"model_type": "phi", "n_layer": 32, "d_model": 2560, "n_head": 32, "n_kv_heads": 32, "d_ff": 10240,)"
              R"("vocab_size": 51200})"},
    {"phi-3.5-moe", R"({"model_type": "phimoe", "n_layer": 32, "d_model": 4096, "n_head": 32, "n_kv_heads": 8, "d_ff": 6400,)"
                    R"("vocab_size": 32064, "attention_bias": true, "num_experts": 16, "moe_k": 2})"},
    {"smollm3-3b", R"({"model_type": "smollm3", "n_layer": 36, "d_model": 2048, "n_head": 16, "n_kv_heads": 4, "d_ff": 11008,)"
                   R"("vocab_size": 128256})"},
    {"seed-oss-36b", R"({"model_type": "seed_oss", "n_layer": 64, "d_model": 5120, "n_head": 80, "n_kv_heads": 8, "d_ff": 27648,)"
                     R"("vocab_size": 155136, "head_dim": 128})"},
    {"granite-3.3-8b",
     R"({"model_type": "granite", "n_layer": 40, "d_model": 4096, "n_head": 32, "n_kv_heads": 8, "d_ff": 12800,)"
     R"("vocab_size": 49159, "tie_embedding": true})"},
    {"granite-3.1-3b-a800m",
     R"({"model_type": "granitemoe", "n_layer": 32, "d_model": 1536, "n_head": 24, "n_kv_heads": 8, "d_ff": 512,)"
     R"("vocab_size": 49155, "tie_embedding": true, "num_experts": 40, "moe_k": 8})"},
    {"granite-4.0-h-tiny",
     R"({"model_type": "granitemoehybrid", "n_layer": 40, "d_model": 1536, "n_head": 12, "n_kv_heads": 4,)"
     R"("d_ff": 512, "vocab_size": 100352, "tie_embedding": true, "share_expert_dim": 1024, "mamba_num_heads": 48,)"
     R"("mamba_head_dim": 64, "n_groups": 1, "ssm_state_size": 128, "num_experts": 64, "moe_k": 6,)"
     R"("attn_layer_indices": [5,15,25,35]})"},
    {"granite-4.0-h-small",
     R"({"model_type": "granitemoehybrid", "n_layer": 40, "d_model": 4096, "n_head": 32, "n_kv_heads": 8,)"
     R"("d_ff": 768, "vocab_size": 100352, "tie_embedding": true, "share_expert_dim": 1536, "mamba_num_heads": 128,)"
     R"("mamba_head_dim": 64, "n_groups": 1, "ssm_state_size": 128, "num_experts": 72, "moe_k": 10,)"
     R"("attn_layer_indices": [5,15,25,35]})"},
    {"ernie-4.5-0.3b",
     R"({"model_type": "ernie4_5", "n_layer": 18, "d_model": 1024, "n_head": 16, "n_kv_heads": 2, "d_ff": 3072,)"
     R"("vocab_size": 103424, "head_dim": 128})"},
    {"ernie-4.5-21b-a3b",
     R"({"model_type": "ernie4_5_moe", "n_layer": 28, "d_model": 2560, "n_head": 20, "n_kv_heads": 4,)"
     R"("d_ff": 12288, "vocab_size": 103424, "n_shared_experts": 2, "first_k_dense_replace": 1, "num_experts": 64,)"
     R"("moe_k": 6, "moe_intermediate_size": 1536})"},
    {"ernie-4.5-300b-a47b", R"({"model_type": "ernie4_5_moe", "n_layer": 54, "d_model": 8192, "n_head": 64, "n_kv_heads": 8,)"
                            R"("d_ff": 28672, "vocab_size": 103424, "n_shared_experts": 0, "first_k_dense_replace": 3,)"
                            R"("tie_embedding": false, "num_experts": 64, "moe_k": 8, "moe_intermediate_size": 3584})"},
    {"hunyuan-7b", R"({"model_type": "hunyuan_v1_dense", "n_layer": 32, "d_model": 4096, "n_head": 32, "n_kv_heads": 8,)"
                   R"("d_ff": 14336, "vocab_size": 128167, "head_dim": 128, "tie_embedding": true})"},
    {"hunyuan-a13b", R"({"model_type": "hunyuan_v1_moe", "n_layer": 32, "d_model": 4096, "n_head": 32, "n_kv_heads": 8,)"
                     R"("d_ff": 3072, "vocab_size": 128167, "head_dim": 128, "tie_embedding": true, "n_shared_experts": 1,)"
                     R"("num_experts": 64, "moe_k": 8, "moe_intermediate_size": 3072})"},
    {"dots.llm1", R"({"model_type": "dots1", "n_layer": 62, "d_model": 4096, "n_head": 32, "n_kv_heads": 32, "d_ff": 10944,)"
                  R"("vocab_size": 152064, "head_dim": 128, "sliding_window": null, "n_shared_experts": 2,)"
                  R"("first_k_dense_replace": 1, "num_experts": 128, "moe_k": 6, "moe_intermediate_size": 1408})"},
    {"minimax-m2", R"({"model_type": "minimax_m2", "n_layer": 62, "d_model": 3072, "n_head": 48, "n_kv_heads": 8, "d_ff": 1536,)"
                   R"("vocab_size": 200064, "num_experts": 256, "moe_k": 8})"},
    {"moonlight-16b-a3b", R"({"model_type": "deepseek_v3", "n_layer": 27, "d_model": 2048, "n_head": 16, "n_kv_heads": 16,)"
                          R"("d_ff": 11264, "vocab_size": 163840, "n_shared_experts": 2, "first_k_dense_replace": 1,)"
                          R"("q_lora_rank": null, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,)"
                          R"("v_head_dim": 128, "num_experts": 64, "moe_k": 6, "moe_intermediate_size": 1408})"},
    {"deepseek-v3.2",
     R"({"model_type": "deepseek_v32", "n_layer": 61, "d_model": 7168, "n_head": 128, "n_kv_heads": 128,)"
     R"("d_ff": 18432, "vocab_size": 129280, "n_shared_experts": 1, "first_k_dense_replace": 3, "index_topk": 2048,)"
     R"("index_head_dim": 128, "index_n_heads": 64, "q_lora_rank": 1536, "kv_lora_rank": 512,)"
     R"("qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "num_experts": 256, "moe_k": 8,)"
     R"("moe_intermediate_size": 2048, "n_group": 8, "topk_group": 4})"},
    {"deepseek-moe-16b",
     R"({"model_type": "deepseek", "n_layer": 28, "d_model": 2048, "n_head": 16, "n_kv_heads": 16, "d_ff": 10944,)"
     R"("vocab_size": 102400, "n_shared_experts": 2, "first_k_dense_replace": 1, "num_experts": 64, "moe_k": 6,)"
     R"("moe_intermediate_size": 1408})"},
    {"glm-4-9b", R"({"model_type": "glm", "n_layer": 40, "d_model": 4096, "n_head": 32, "n_kv_heads": 2, "d_ff": 13696,)"
                 R"("vocab_size": 151552, "head_dim": 128})"},
    {"glm-4-32b", R"({"model_type": "glm4", "n_layer": 61, "d_model": 6144, "n_head": 48, "n_kv_heads": 2, "d_ff": 23040,)"
                  R"("vocab_size": 151552, "head_dim": 128, "attention_bias": false})"},
    {"glm-4.7-flash",
     R"({"model_type": "glm4_moe_lite", "n_layer": 47, "d_model": 2048, "n_head": 20, "n_kv_heads": 20,)"
     R"("d_ff": 10240, "vocab_size": 154880, "n_shared_experts": 1, "first_k_dense_replace": 1, "q_lora_rank": 768,)"
     R"("kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 192, "v_head_dim": 256, "num_experts": 64,)"
     R"("moe_k": 4, "moe_intermediate_size": 1536})"},
    {"glm-5", R"({"model_type": "glm_moe_dsa", "n_layer": 78, "d_model": 6144, "n_head": 64, "n_kv_heads": 64,)"
              R"("d_ff": 12288, "vocab_size": 154880, "n_shared_experts": 1, "first_k_dense_replace": 3, "index_topk": 2048,)"
              R"("index_head_dim": 128, "index_n_heads": 32, "q_lora_rank": 2048, "kv_lora_rank": 512,)"
              R"("qk_rope_head_dim": 64, "qk_nope_head_dim": 192, "v_head_dim": 256, "num_experts": 256, "moe_k": 8,)"
              R"("moe_intermediate_size": 2048})"},
    {"command-r", R"({"model_type": "cohere", "n_layer": 40, "d_model": 8192, "n_head": 64, "n_kv_heads": 64, "d_ff": 22528,)"
                  R"("vocab_size": 256000})"},
    {"aya-23-8b", R"({"model_type": "cohere", "n_layer": 32, "d_model": 4096, "n_head": 32, "n_kv_heads": 8, "d_ff": 14336,)"
                  R"("vocab_size": 256000})"},
    {"command-r7b", R"({"model_type": "cohere2", "n_layer": 32, "d_model": 4096, "n_head": 32, "n_kv_heads": 8, "d_ff": 14336,)"
                    R"("vocab_size": 256000})"},
    {"command-a", R"({"model_type": "cohere2", "n_layer": 64, "d_model": 12288, "n_head": 96, "n_kv_heads": 8, "d_ff": 36864,)"
                  R"("vocab_size": 256000})"},
    {"gpt2", R"({"model_type": "gpt2", "n_layer": 12, "d_model": 768, "n_head": 12, "vocab_size": 50257})"},
    {"gpt2-xl", R"({"model_type": "gpt2", "n_layer": 48, "d_model": 1600, "n_head": 25, "vocab_size": 50257})"},
    {"gpt-neox-20b",
     R"({"model_type": "gpt_neox", "n_layer": 44, "d_model": 6144, "n_head": 64, "d_ff": 24576, "vocab_size": 50432})"},
    {"pythia-6.9b",
     R"({"model_type": "gpt_neox", "n_layer": 32, "d_model": 4096, "n_head": 32, "d_ff": 16384, "vocab_size": 50432})"},
    {"gpt-j-6b", R"({"model_type": "gptj", "n_layer": 28, "d_model": 4096, "n_head": 16, "vocab_size": 50400})"},
    {"starcoder", R"({"model_type": "gpt_bigcode", "n_layer": 40, "d_model": 6144, "n_head": 48, "d_ff": 24576,)"
                  R"("vocab_size": 49152, "max_position_embeddings": 8192})"},
    {"starcoder2-3b",
     R"({"model_type": "starcoder2", "n_layer": 30, "d_model": 3072, "n_head": 24, "n_kv_heads": 2, "d_ff": 12288,)"
     R"("vocab_size": 49152, "sliding_window": 4096})"},
    {"starcoder2-15b",
     R"({"model_type": "starcoder2", "n_layer": 40, "d_model": 6144, "n_head": 48, "n_kv_heads": 4, "d_ff": 24576,)"
     R"("vocab_size": 49152, "tie_embedding": false, "sliding_window": 4096})"},
    {"falcon-7b", R"({"model_type": "falcon", "n_layer": 32, "d_model": 4544, "n_head": 71, "vocab_size": 65024})"},
    {"stablelm-2-1.6b",
     R"({"model_type": "stablelm", "n_layer": 24, "d_model": 2048, "n_head": 32, "n_kv_heads": 32, "d_ff": 5632,)"
     R"("vocab_size": 100352, "qkv_bias": true})"},
    {"stablelm-3b-4e1t",
     R"({"model_type": "stablelm", "n_layer": 32, "d_model": 2560, "n_head": 32, "n_kv_heads": 32, "d_ff": 6912,)"
     R"("vocab_size": 50304})"},
    {"gemma-2b", R"({"model_type": "gemma", "n_layer": 18, "d_model": 2048, "n_head": 8, "n_kv_heads": 1, "d_ff": 16384,)"
                 R"("vocab_size": 256000})"},
    {"gemma-7b", R"({"model_type": "gemma", "n_layer": 28, "d_model": 3072, "n_head": 16, "n_kv_heads": 16, "d_ff": 24576,)"
                 R"("vocab_size": 256000})"},
    {"gemma-2-2b", R"({"model_type": "gemma2", "n_layer": 26, "d_model": 2304, "n_head": 8, "n_kv_heads": 4, "d_ff": 9216,)"
                   R"("vocab_size": 256000})"},
    {"gemma-2-9b", R"({"model_type": "gemma2", "n_layer": 42, "d_model": 3584, "n_head": 16, "n_kv_heads": 8, "d_ff": 14336,)"
                   R"("vocab_size": 256000})"},
    {"gemma-2-27b", R"({"model_type": "gemma2", "n_layer": 46, "d_model": 4608, "n_head": 32, "n_kv_heads": 16, "d_ff": 36864,)"
                    R"("vocab_size": 256000, "head_dim": 128})"},
    {"gemma-3-1b", R"({"model_type": "gemma3_text", "n_layer": 26, "d_model": 1152, "n_head": 4, "n_kv_heads": 1, "d_ff": 6912,)"
                   R"("vocab_size": 262144, "sliding_window": 512})"},
    {"gemma-3-4b", R"({"model_type": "gemma3_text", "n_layer": 34, "d_model": 2560, "n_head": 8, "n_kv_heads": 4, "d_ff": 10240,)"
                   R"("vocab_size": 262208, "sliding_window": 1024})"},
    {"gemma-3-12b",
     R"({"model_type": "gemma3_text", "n_layer": 48, "d_model": 3840, "n_head": 16, "n_kv_heads": 8, "d_ff": 15360,)"
     R"("vocab_size": 262208, "sliding_window": 1024})"},
    {"gemma-3-27b", R"({"model_type": "gemma3_text", "n_layer": 62, "d_model": 5376, "n_head": 32, "n_kv_heads": 16,)"
                    R"("d_ff": 21504, "vocab_size": 262208, "head_dim": 128, "sliding_window": 1024})"},
    {"olmo-7b", R"({"model_type": "olmo", "n_layer": 32, "d_model": 4096, "n_head": 32, "n_kv_heads": 32, "d_ff": 11008,)"
                R"("vocab_size": 50304})"},
    {"olmo-2-7b", R"({"model_type": "olmo2", "n_layer": 32, "d_model": 4096, "n_head": 32, "n_kv_heads": 32, "d_ff": 11008,)"
                  R"("vocab_size": 100352})"},
    {"olmo-2-13b", R"({"model_type": "olmo2", "n_layer": 40, "d_model": 5120, "n_head": 40, "n_kv_heads": 40, "d_ff": 13824,)"
                   R"("vocab_size": 100352})"},
    {"olmo-2-32b", R"({"model_type": "olmo2", "n_layer": 64, "d_model": 5120, "n_head": 40, "n_kv_heads": 8, "d_ff": 27648,)"
                   R"("vocab_size": 100352})"},
    {"olmo-3-7b", R"({"model_type": "olmo3", "n_layer": 32, "d_model": 4096, "n_head": 32, "n_kv_heads": 32, "d_ff": 11008,)"
                  R"("vocab_size": 100278})"},
    {"olmo-3-32b", R"({"model_type": "olmo3", "n_layer": 64, "d_model": 5120, "n_head": 40, "n_kv_heads": 8, "d_ff": 27648,)"
                   R"("vocab_size": 100278})"},
    {"gpt-oss-20b", R"({"model_type": "gpt_oss", "n_layer": 24, "d_model": 2880, "n_head": 64, "n_kv_heads": 8, "d_ff": 2880,)"
                    R"("vocab_size": 201088, "head_dim": 64, "num_experts": 32, "moe_k": 4})"},
    {"qwen2-7b", R"({"model_type": "qwen2", "n_layer": 28, "d_model": 3584, "n_head": 28, "n_kv_heads": 4, "d_ff": 18944,)"
                 R"("vocab_size": 152064})"},
    {"qwen2-57b-a14b",
     R"({"model_type": "qwen2_moe", "n_layer": 28, "d_model": 3584, "n_head": 28, "n_kv_heads": 4, "d_ff": 18944,)"
     R"("vocab_size": 151936, "share_expert_dim": 20480, "num_experts": 64, "moe_k": 8,)"
     R"("moe_intermediate_size": 2560})"},
    {"qwen1.5-moe-a2.7b",
     R"({"model_type": "qwen2_moe", "n_layer": 24, "d_model": 2048, "n_head": 16, "n_kv_heads": 16, "d_ff": 5632,)"
     R"("vocab_size": 151936, "share_expert_dim": 5632, "num_experts": 60, "moe_k": 4,)"
     R"("moe_intermediate_size": 1408})"},
    {"qwen3-0.6b", R"({"model_type": "qwen3", "n_layer": 28, "d_model": 1024, "n_head": 16, "n_kv_heads": 8, "d_ff": 3072,)"
                   R"("vocab_size": 151936, "tie_embedding": true})"},
    {"qwen3-1.7b", R"({"model_type": "qwen3", "n_layer": 28, "d_model": 2048, "n_head": 16, "n_kv_heads": 8, "d_ff": 6144,)"
                   R"("vocab_size": 151936, "tie_embedding": true})"},
    {"qwen3-4b", R"({"model_type": "qwen3", "n_layer": 36, "d_model": 2560, "n_head": 32, "n_kv_heads": 8, "d_ff": 9728,)"
                 R"("vocab_size": 151936, "tie_embedding": true})"},
    {"qwen3-coder-480b-a35b",
     R"({"model_type": "qwen3_moe", "n_layer": 62, "d_model": 6144, "n_head": 96, "n_kv_heads": 8, "d_ff": 8192,)"
     R"("vocab_size": 151936, "head_dim": 128, "num_experts": 160, "moe_k": 8, "moe_intermediate_size": 2560})"},
    {"qwen3-next-80b-a3b",
     R"({"model_type": "qwen3_next", "n_layer": 48, "d_model": 2048, "n_head": 16, "n_kv_heads": 2, "d_ff": 5120,)"
     R"("vocab_size": 151936, "head_dim": 256, "linear_num_key_heads": 16, "linear_num_value_heads": 32,)"
     R"("linear_key_head_dim": 128, "linear_value_head_dim": 128, "share_expert_dim": 512, "num_experts": 512,)"
     R"("moe_k": 10, "moe_intermediate_size": 512})"},
    {"qwen3.5-35b-a3b",
     R"({"model_type": "qwen3_5_moe_text", "n_layer": 40, "d_model": 2048, "n_head": 16, "n_kv_heads": 2,)"
     R"("vocab_size": 248320, "head_dim": 256, "linear_num_key_heads": 16, "linear_num_value_heads": 32,)"
     R"("linear_key_head_dim": 128, "linear_value_head_dim": 128, "share_expert_dim": 512, "num_experts": 256,)"
     R"("moe_k": 8, "moe_intermediate_size": 512})"},
    {"qwen-7b", R"({"model_type": "qwen", "n_layer": 32, "d_model": 4096, "n_head": 32, "n_kv_heads": 32, "d_ff": 22016,)"
                R"("vocab_size": 151936})"},
    {"mimo-7b", R"({"model_type": "mimo", "n_layer": 36, "d_model": 4096, "n_head": 32, "n_kv_heads": 8, "d_ff": 11008,)"
                R"("vocab_size": 151680, "num_nextn_predict_layers": 1})"},
    {"llama-4-scout",
     R"({"model_type": "llama4_text", "n_layer": 48, "d_model": 5120, "n_head": 40, "n_kv_heads": 8, "d_ff": 8192,)"
     R"("vocab_size": 202048, "head_dim": 128, "intermediate_size_mlp": 16384, "num_experts": 16, "moe_k": 1})"},
    {"llama-4-maverick",
     R"({"model_type": "llama4_text", "n_layer": 48, "d_model": 5120, "n_head": 40, "n_kv_heads": 8, "d_ff": 8192,)"
     R"("vocab_size": 202048, "head_dim": 128, "intermediate_size_mlp": 16384, "interleave_moe_layer_step": 2,)"
     R"("num_experts": 128, "moe_k": 1})"},
    {"nemotron-3-nano-30b-a3b",
     R"({"model_type": "nemotron_h", "n_layer": 52, "d_model": 2688, "n_head": 32, "n_kv_heads": 2, "d_ff": 1856,)"
     R"("vocab_size": 131072, "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",)"
     R"("head_dim": 128, "mlp_hidden_act": "relu2", "mamba_num_heads": 64, "mamba_head_dim": 64, "n_groups": 8,)"
     R"("ssm_state_size": 128, "n_shared_experts": 1, "share_expert_dim": 3712, "num_experts": 128, "moe_k": 6,)"
     R"("moe_intermediate_size": 1856})"},
    {"nemotron-h-56b",
     R"({"model_type": "nemotron_h", "n_layer": 118, "d_model": 8192, "n_head": 64, "n_kv_heads": 8, "d_ff": 32768,)"
     R"("vocab_size": 131072,)"
     R"("hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",)"
     R"("head_dim": 128, "mlp_hidden_act": "relu2", "mamba_num_heads": 256, "mamba_head_dim": 64, "n_groups": 8,)"
     R"("ssm_state_size": 256})"},
    {"nemotron-4-mini-4b",
     R"({"model_type": "nemotron", "n_layer": 32, "d_model": 3072, "n_head": 24, "n_kv_heads": 8, "d_ff": 9216,)"
     R"("vocab_size": 256000, "head_dim": 128})"},
    {"bamba-9b", R"({"model_type": "bamba", "n_layer": 32, "d_model": 4096, "n_head": 32, "n_kv_heads": 8, "d_ff": 14336,)"
                 R"("vocab_size": 128256, "attn_layer_indices": [9,18,27], "mamba_num_heads": 128, "mamba_head_dim": 64,)"
                 R"("n_groups": 1, "ssm_state_size": 128})"},
    {"internlm2-7b", R"({"model_type": "llama", "n_layer": 32, "d_model": 4096, "n_head": 32, "n_kv_heads": 8, "d_ff": 14336,)"
                     R"("vocab_size": 92544})"},
    {"internlm3-8b",
     R"({"model_type": "internlm3", "n_layer": 48, "d_model": 4096, "n_head": 32, "n_kv_heads": 2, "d_ff": 10240,)"
     R"("vocab_size": 128512, "head_dim": 128})"},
    {"internlm-7b", R"({"model_type": "internlm", "n_layer": 32, "d_model": 4096, "n_head": 32, "d_ff": 11008,)"
                    R"("vocab_size": 103168})"},
    {"chatglm3-6b", R"({"model_type": "chatglm", "n_layer": 28, "d_model": 4096, "n_head": 32, "n_kv_heads": 2, "d_ff": 13696,)"
                    R"("vocab_size": 65024, "use_bias": false})"},
    {"orion-14b", R"({"model_type": "orion", "n_layer": 40, "d_model": 5120, "n_head": 40, "n_kv_heads": 40, "d_ff": 15360,)"
                  R"("vocab_size": 84608})"},
    {"minicpm-2b", R"({"model_type": "minicpm", "n_layer": 40, "d_model": 2304, "n_head": 36, "n_kv_heads": 36, "d_ff": 5760,)"
                   R"("vocab_size": 122753})"},
    {"minicpm3-4b", R"({"model_type": "minicpm3", "n_layer": 62, "d_model": 2560, "n_head": 40, "n_kv_heads": 40, "d_ff": 6400,)"
                    R"("vocab_size": 73448, "q_lora_rank": 768, "kv_lora_rank": 256, "qk_rope_head_dim": 32,)"
                    R"("qk_nope_head_dim": 64, "v_head_dim": 64})"},
    {"exaone-3.5-7.8b",
     R"({"model_type": "exaone", "n_layer": 32, "d_model": 4096, "n_head": 32, "n_kv_heads": 8, "d_ff": 14336,)"
     R"("vocab_size": 102400})"},
    {"exaone-4.0-32b",
     R"({"model_type": "exaone4", "n_layer": 64, "d_model": 5120, "n_head": 40, "n_kv_heads": 8, "d_ff": 27392,)"
     R"("vocab_size": 102400, "sliding_window_pattern": "LLLG"})"},
    {"apertus-8b", R"({"model_type": "apertus", "n_layer": 32, "d_model": 4096, "n_head": 32, "n_kv_heads": 8, "d_ff": 21504,)"
                   R"("vocab_size": 131072})"},
    {"afm-4.5b", R"({"model_type": "arcee", "n_layer": 36, "d_model": 2560, "n_head": 20, "n_kv_heads": 4, "d_ff": 18432,)"
                 R"("vocab_size": 128004})"},
    {"youtu-llm-2b", R"({"model_type": "youtu", "n_layer": 32, "d_model": 2048, "n_head": 16, "n_kv_heads": 16, "d_ff": 6144,)"
                     R"("vocab_size": 128256, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_rope_head_dim": 64,)"
                     R"("qk_nope_head_dim": 128, "v_head_dim": 128})"},
    {"mimo-v2-flash",
     R"({"model_type": "mimo_v2_flash", "n_layer": 48, "d_model": 4096, "n_head": 64, "n_kv_heads": 4,)"
     R"("d_ff": 16384, "vocab_size": 152576, "head_dim": 192, "v_head_dim": 128, "sliding_window": 128,)"
     R"("hybrid_layer_pattern": [0,1,1,1,1,0,1,1,1,1,1,0,1,1,1,1,1,0,1,1,1,1,1,0,1,1,1,1,1,0,1,1,1,1,1,0,1,1,1,1,1,0,1,1,1,1,1,0],)"
     R"("swa_num_key_value_heads": 8, "swa_head_dim": 192, "swa_v_head_dim": 128,)"
     R"("add_swa_attention_sink_bias": true, "n_shared_experts": null, "num_experts": 256, "moe_k": 8,)"
     R"("moe_intermediate_size": 2048, "first_k_dense_replace": 1})"},
    {"yi-6b", R"({"model_type": "llama", "n_layer": 32, "d_model": 4096, "n_head": 32, "n_kv_heads": 4, "d_ff": 11008,)"
              R"("vocab_size": 64000})"},
    {"solar-10.7b", R"({"model_type": "llama", "n_layer": 48, "d_model": 4096, "n_head": 32, "n_kv_heads": 8, "d_ff": 14336,)"
                    R"("vocab_size": 32000})"},
    {"smollm2-1.7b", R"({"model_type": "llama", "n_layer": 24, "d_model": 2048, "n_head": 32, "n_kv_heads": 32, "d_ff": 8192,)"
                     R"("vocab_size": 49152, "tie_embedding": true})"},
    {"deepseek-llm-7b",
     R"({"model_type": "llama", "n_layer": 30, "d_model": 4096, "n_head": 32, "n_kv_heads": 32, "d_ff": 11008,)"
     R"("vocab_size": 102400})"},
};

/// A vendor's name as names are here: without the organization before it, in lower case.
inline std::string plain_name(std::string_view text) {
  if (const auto slash = text.rfind('/'); slash != std::string_view::npos) text.remove_prefix(slash + 1);
  std::string name;
  for (const char c : text) name += static_cast<char>(c == '_' ? '-' : std::tolower(static_cast<unsigned char>(c)));
  for (const std::string_view before : {"meta-", "c4ai-", "nvidia-"}) {
    if (name.starts_with(before)) name.erase(0, before.size());
  }
  return name;
}

/// The name without its last part, where that says how a model was tuned, stored or dated
/// ("-instruct", "-fp8", "-2507", "-v0.1"); else empty.
inline std::string without_variant(std::string_view name) {
  const auto dash = name.rfind('-');
  if (dash == std::string_view::npos) return {};
  const std::string_view last = name.substr(dash + 1);
  constexpr std::string_view variants[] = {"instruct", "base", "chat",    "hf",       "it",       "pt",       "fp8",     "bf16",
                                           "nvfp4",    "fp4",  "int4",    "awq",      "thinking", "text",     "exp",     "16e",
                                           "128e",     "17b",  "preview", "terminus", "speciale", "pretrain", "original"};
  const auto digits = [](std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789.") == std::string_view::npos;
  };
  const bool date = last.size() == 4 && digits(last);
  const bool version = last.starts_with('v') && digits(last.substr(1));
  if (!date && !version && std::find(std::begin(variants), std::end(variants), last) == std::end(variants)) return {};
  return std::string{name.substr(0, dash)};
}

/// Names under which a model is known by another: the same sizes. DeepSeek-R1 is DeepSeek-V3.
struct SameModel {
  std::string_view name;
  std::string_view as;
};
inline constexpr SameModel same_models[] = {
    {"deepseek-r1", "deepseek-v3"},
    {"deepseek-r1-zero", "deepseek-v3"},
    {"deepseek-v3.1", "deepseek-v3"},
    {"deepseek-v3.2-exp", "deepseek-v3.2"},
    {"kimi-k2.5", "kimi-k2"},
    {"kimi-k2.6", "kimi-k2"},
    {"glm-4.6", "glm-4.5"},
    {"glm-4.7", "glm-4.5"},
    {"glm-5.1", "glm-5"},
    {"minimax-m2.1", "minimax-m2"},
    {"minimax-m2.5", "minimax-m2"},
    {"minimax-m2.7", "minimax-m2"},
    {"phi-4-reasoning", "phi-4"},
    {"llama-4-scout-17b", "llama-4-scout"},
    {"llama-4-maverick-17b", "llama-4-maverick"},
    {"gpt2-small", "gpt2"},
    {"qwen3.6-35b-a3b", "qwen3.5-35b-a3b"},
};

}  // namespace tawpipe::detail
