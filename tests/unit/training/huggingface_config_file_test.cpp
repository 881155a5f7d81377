// Tests of training/huggingface_config_file.hpp: what is written is read again, by both readers.
// Not: what is refused together with weights (huggingface_weights_test.cpp).
#include "tawpipe/training/huggingface_config_file.hpp"

#include <doctest/doctest.h>

#include <string>

#include "support/scratch_folder.hpp"
#include "support/small_decoder.hpp"

using support::put_file;
using support::ScratchFolder;
using support::small_decoder;
using tawpipe::DecoderConstants;
using tawpipe::Dtype;
using tawpipe::InputError;
using tawpipe::Transformer;
using tawpipe::training::huggingface_config_text;
using tawpipe::training::read_decoder_config;

TEST_CASE("a config.json gives back model and constants") {
  const ScratchFolder folder;
  const DecoderConstants constants{.rope_theta = 5e5, .norm_epsilon = 1e-6, .positions = 128};
  for (const bool tied : {true, false}) {
    Transformer model = small_decoder(tied);
    model.head_dim = 6;  // not hidden / heads
    model.dtype = Dtype::bf16;
    put_file(folder / "config.json", huggingface_config_text(model, constants));
    const auto read = read_decoder_config(folder / "config.json");
    CHECK(read.constants == constants);
    CHECK(read.model.name == "small decoder");
    CHECK(read.model.tied == tied);
    CHECK(read.model.dtype == Dtype::bf16);
    CHECK(read.model.head_size() == 6);
    CHECK(read.model.parameters() == model.parameters());
    CHECK(tawpipe::resolve_model(folder.path()).parameters() == model.parameters());  // --model <folder>
  }
}

TEST_CASE("each kind of decoder is written as the type that transformers computes it by, and comes back") {
  using tawpipe::QkNorm;
  using Kind = tawpipe::RotaryScaling::Kind;
  const ScratchFolder folder;
  struct Given {
    const char* type;
    Transformer details;
    int experts = 0;
  };
  for (const Given& given : {Given{"llama", {.qkv_bias = true, .output_bias = true, .mlp_bias = true}},
                             Given{"mistral", {.window = 3}}, Given{"qwen2", {.qkv_bias = true}},
                             Given{"qwen2", {.window = 3, .qkv_bias = true}}, Given{"qwen3", {.qk_norm = QkNorm::head}},
                             Given{"qwen3", {.window = 3, .qkv_bias = true, .output_bias = true, .qk_norm = QkNorm::head}},
                             Given{"mixtral", {.window = 3}, 4}, Given{"qwen3_moe", {.qk_norm = QkNorm::head}, 4},
                             Given{"olmoe", {.qk_norm = QkNorm::width}, 4}}) {
    CAPTURE(given.type);
    Transformer model = small_decoder();
    model.window = given.details.window;
    model.qkv_bias = given.details.qkv_bias;
    model.output_bias = given.details.output_bias;
    model.mlp_bias = given.details.mlp_bias;
    model.qk_norm = given.details.qk_norm;
    model.experts = given.experts;
    model.experts_per_token = given.experts / 2;
    for (const tawpipe::RotaryScaling& scaling :
         {tawpipe::RotaryScaling{},
          {.kind = Kind::linear, .factor = 4},
          {.kind = Kind::llama3, .factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_positions = 64}}) {
      const DecoderConstants constants{.rope_theta = 5e5, .norm_epsilon = 1e-4, .positions = 128, .scaling = scaling};
      put_file(folder / "config.json", huggingface_config_text(model, constants));
      const auto read = read_decoder_config(folder / "config.json");
      CHECK(read.type == given.type);
      CHECK(read.constants == constants);
      CHECK(read.model.window == model.window);
      CHECK(read.model.qkv_bias == model.qkv_bias);
      CHECK(read.model.output_bias == model.output_bias);
      CHECK(read.model.mlp_bias == model.mlp_bias);
      CHECK(read.model.qk_norm == model.qk_norm);
      CHECK(read.model.parameters() == model.parameters());
    }
  }
  Transformer none = small_decoder();
  none.output_bias = true;
  CHECK_THROWS_WITH_AS(huggingface_config_text(none, {}), doctest::Contains("no model of transformers has together"), InputError);
}

TEST_CASE("a mixture of experts is written as a Mixtral, and with a shared expert so that it comes back") {
  const ScratchFolder folder;
  for (const int shared : {0, 6}) {
    Transformer model = small_decoder();
    model.experts = 4;
    model.experts_per_token = 2;
    model.shared_width = shared;
    const std::string text = huggingface_config_text(model, {});
    CHECK((text.find("MixtralForCausalLM") != std::string::npos) == (shared == 0));
    put_file(folder / "config.json", text);
    const auto read = read_decoder_config(folder / "config.json");
    CHECK(read.type == (shared == 0 ? "mixtral" : "qwen2_moe"));
    CHECK(read.model.intermediate == 12);
    CHECK(read.model.experts == 4);
    CHECK(read.model.experts_per_token == 2);
    CHECK(read.model.shared_width == shared);
    CHECK(read.model.parameters() == model.parameters());
    CHECK(read.constants == DecoderConstants{});
  }
}

TEST_CASE("missing constants of a Mixtral are those of MixtralConfig") {
  const ScratchFolder folder;
  put_file(folder / "config.json",
           R"({"model_type": "mixtral", "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
               "num_key_value_heads": 2, "intermediate_size": 12, "vocab_size": 10, "num_local_experts": 4,
               "num_experts_per_tok": 2})");
  CHECK(read_decoder_config(folder / "config.json").constants == DecoderConstants{1e6, 1e-5, 131072});
}

TEST_CASE("constants of a wrong type are refused") {
  const ScratchFolder folder;
  const auto check_refused = [&](const char* from, const char* to, const char* why) {
    std::string text = huggingface_config_text(small_decoder(), {});
    const auto at = text.find(from);
    REQUIRE(at != std::string::npos);
    put_file(folder / "config.json", text.replace(at, std::string{from}.size(), to));
    CHECK_THROWS_WITH_AS(read_decoder_config(folder / "config.json"), doctest::Contains(why), InputError);
  };
  check_refused(R"("rms_norm_eps": 1e-05)", R"("rms_norm_eps": "x")", "rms_norm_eps: expected a number, 0 or more");
  check_refused(R"("rms_norm_eps": 1e-05)", R"("rms_norm_eps": -1)", "rms_norm_eps: expected a number, 0 or more, not -1");
  check_refused(R"("max_position_embeddings": 2048)", R"("max_position_embeddings": -1)", "expected a whole number");
  check_refused(R"("mlp_bias": false)", R"("mlp_bias": 0)", "mlp_bias: expected true or false");
}
