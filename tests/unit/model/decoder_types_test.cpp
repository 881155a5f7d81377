// Tests of what a config.json is: decoders of known and unknown types, nested ones, and what is none.
// Not: the keys of known types (huggingface_config_test.cpp, tests/properties/config_keys_test.cpp).
#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/model/huggingface_config.hpp"

using tawpipe::Dtype;
using tawpipe::InputError;
using tawpipe::parse_huggingface_config;

namespace decoder_types_test {

namespace {

tawpipe::Transformer parse(std::string_view text) { return parse_huggingface_config(text, "c", "m").model; }

/// The smallest config, with `more` (",\"key\": value") added.
std::string minimal(std::string_view more) {
  return tawpipe::concat(
      R"({"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 176, "vocab_size": 500)",
      more, "}");
}

}  // namespace

TEST_CASE("what is no decoder is named for what it is") {
  const auto why = [](std::string_view type) {
    try {
      parse(minimal(tawpipe::concat(R"(, "model_type": ")", type, '"')));
      return std::string{};
    } catch (const InputError& error) {
      return std::string{error.what()};
    }
  };
  CHECK(why("t5") == "config 'c': model_type: 't5' is an encoder and a decoder; a decoder alone is modelled");
  CHECK(why("modernbert") ==
        "config 'c': model_type: 'modernbert' is an encoder, which predicts no next token; a decoder is modelled");
  CHECK(why("siglip").find("is an encoder of images") != std::string::npos);
  CHECK(why("whisper").find("is a model of speech") != std::string::npos);
  CHECK(why("mamba").find("has Mamba-1 in place of attention") != std::string::npos);
  CHECK_THROWS_WITH_AS(parse(minimal(R"(, "model_type": "new", "is_encoder_decoder": true)")),
                       doctest::Contains("'new' is an encoder and a decoder"), InputError);
  CHECK_THROWS_WITH_AS(parse(R"({"model_type": "new_vision", "hidden_size": 64, "patch_size": 14, "image_size": 224})"),
                       doctest::Contains("'new_vision' is an encoder of images"), InputError);
  CHECK_THROWS_WITH_AS(parse(minimal(R"(, "model_type": "new_bert", "type_vocab_size": 2)")),
                       doctest::Contains("'new_bert' is an encoder"), InputError);
  CHECK_THROWS_WITH_AS(parse(minimal(R"(, "model_type": "llama", "num_local_experts": 16)")),
                       "config 'c': num_local_experts: describes a mixture of experts, which this type of model is not; give the "
                       "model_type of one, such as mixtral or qwen3_moe",
                       InputError);
  CHECK_NOTHROW(parse(minimal(R"(, "model_type": "llama", "num_local_experts": 0)")));  // some dense configs say so
}

TEST_CASE("a decoder of a type that is not known is read by its keys, and says what was assumed") {
  const auto read = parse_huggingface_config(
      minimal(R"(, "model_type": "a\nb", "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
                   "n_shared_experts": 1, "first_k_dense_replace": 1, "attention_bias": true, "a_new_factor": 2.5)"),
      "c", "m");
  CHECK(read.model.experts == 8);
  CHECK(read.model.dense_layers == 1);
  CHECK(read.model.shared_width == 24);
  CHECK(read.model.qkv_bias);
  REQUIRE(read.model.notes.size() == 1);
  CHECK(
      read.model.notes[0] ==
      "model_type: 'a?b' is not known; read by its keys as a decoder with norms before attention and MLP, rotary positions, "
      "attention of grouped queries, experts, biases of queries, keys and values, MLPs with a gate, and an output matrix of its "
      "own; not known, and left out: a_new_factor");
  CHECK(read.not_computed.size() == 1);
  CHECK_THROWS_WITH_AS(parse(minimal(R"(, "model_type": "new", "mamba_d_conv": 4, "mamba_dt_rank": 16)")),
                       "config 'c': mamba_d_conv: state-space layers (Mamba) are not modelled", InputError);
}

TEST_CASE("the decoder in a file with towers is read, with what the file around it says") {
  const auto read = parse_huggingface_config(
      R"({"model_type": "gemma3", "torch_dtype": "float16", "image_token_index": 7, "vision_config": {"hidden_size": 1152},
          "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
                          "sliding_window": 1024}})",
      "c", "m");
  CHECK(read.decoder.parameters() == 3'880'263'168);  // of 4,300,079,472 those of the language model
  CHECK(read.model.dtype == Dtype::f16);
  CHECK(read.unequal == "attention within a window of 1024 tokens in 29 of 34 layers");
  CHECK(read.model.notes[0] == "vision_config: is left out; the decoder is taken");
  CHECK(read.type == "gemma3_text");
  CHECK_THROWS_WITH_AS(parse(R"({"model_type": "qwen3_vl", "text_config": {"model_type": "qwen3_vl_text", "alibi_slope": 2}})"),
                       doctest::Contains("alibi_slope"), InputError);
}

TEST_CASE("a Qwen3-Next has gated delta nets in three of four layers, and gates of attention") {
  // The file of Qwen3-Next-80B-A3B-Instruct without what changes nothing.
  const auto read = parse_huggingface_config(
      R"({"model_type": "qwen3_next", "num_hidden_layers": 48, "hidden_size": 2048, "num_attention_heads": 16,
          "num_key_value_heads": 2, "head_dim": 256, "intermediate_size": 5120, "vocab_size": 151936,
          "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
          "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "full_attention_interval": 4, "num_experts": 512,
          "num_experts_per_tok": 10, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512})",
      "c", "m");
  CHECK(read.decoder.parameters() == 79'674'391'296);  // the tensors of the published file, without mtp.*
  CHECK(read.decoder.pattern == tawpipe::repeated({0, 0, 0, 1}, 48));
  CHECK(read.unequal == "gated delta nets in 36 of 48 layers");
  // By the paper's formulas: 6 operations of each matrix that a token passes, attention, causal at half, and a state
  // of 128 x 128 in each of 32 heads, read twice and written once in each of 36 layers.
  const double matrices = 6 * (static_cast<double>(read.decoder.active_parameters()) - 151936.0 * 2048);
  const double attention = 12 * 3 * 2 * 8192.0 * 16 * 256;
  const double states = 36 * 3 * 6 * 32.0 * 128 * 128;
  CHECK(read.decoder.flops(8192).all() == doctest::Approx(matrices + attention + states).epsilon(0.01));
}

TEST_CASE("numbers that Python writes and JSON does not have are read where nothing needs them") {
  const auto nemotron = minimal(
      R"(, "model_type": "nemotron_h", "num_key_value_heads": 4, "hybrid_override_pattern": "M*", "mamba_num_heads": 8,
           "mamba_head_dim": 16, "n_groups": 2, "ssm_state_size": 16, "time_step_limit": [0.0, Infinity], "time_step_floor": NaN,
           "_name_or_path": "Infinity \" NaN")");
  const auto read = parse_huggingface_config(nemotron, "c", "m");
  CHECK(read.unequal == "Mamba-2 in 1 of 2 layers");
  CHECK(read.stored_name == "Infinity \" NaN");
  CHECK_THROWS_WITH_AS(parse(minimal(R"(, "rms_norm_eps": NaN)")),
                       "config 'c': rms_norm_eps: expected a number, 0 or more, not \"NaN\"", InputError);
  CHECK_THROWS_WITH_AS(parse(minimal(R"(, "rope_theta": -Infinity)")),
                       "config 'c': rope_theta: expected a number above zero, not \"-Infinity\"", InputError);
}

}  // namespace decoder_types_test
