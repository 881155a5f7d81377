// Tests of model/huggingface_config.hpp: real shapes, every error, and damaged files.
// Not: presets (models_test.cpp).
#include "tawpipe/model/huggingface_config.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "tawpipe/core/error.hpp"
#include "tawpipe/model/models.hpp"

using tawpipe::Dtype;
using tawpipe::InputError;
using tawpipe::parse_huggingface_config;
using tawpipe::read_huggingface_config;
using tawpipe::resolve_model;

namespace {

const std::string data = TAWPIPE_TEST_DATA "/models/";

std::string read(const std::string& path) {
  std::ifstream in{path, std::ios::binary};
  REQUIRE(in.good());
  return {std::istreambuf_iterator<char>{in}, {}};
}

tawpipe::Transformer parse(std::string_view text) { return parse_huggingface_config(text, "c", "m").model; }

/// The smallest config, with `more` (",\"key\": value") added.
std::string minimal(std::string_view more) {
  return tawpipe::concat(
      R"({"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 176, "vocab_size": 500)",
      more, "}");
}

/// Whether `text` is taken or refused in one line; anything else ends the test.
void check_only_input_errors(std::string_view text) {
  try {
    parse(text).check();
  } catch (const InputError& error) {
    const std::string_view message = error.what();
    CHECK(!message.empty());
    CHECK(message.find('\n') == std::string_view::npos);
  }
}

}  // namespace

TEST_CASE("a folder with a config.json becomes a model of the folder's name") {
  const auto model = read_huggingface_config(data + "llama_2_7b").model;
  CHECK(model.name == "llama_2_7b");
  CHECK(model.parameters() == 6'738'415'616);
  CHECK(model.dtype == Dtype::f16);
  CHECK(model.utilization == 0);
  CHECK(read_huggingface_config(data + "llama_2_7b/config.json").model.name == "llama_2_7b");
  CHECK(read_huggingface_config(data + "llama_2_7b/").model.name == "llama_2_7b");
}

TEST_CASE("a head size of its own is read") {
  // 40 x (2 x 5120 x 4096 + 2 x 5120 x 1024 + 3 x 5120 x 14336 + 2 x 5120) + 2 x 131072 x 5120 +
  // 5120: as published
  const auto model = read_huggingface_config(data + "mistral_nemo.json").model;
  CHECK(model.name == "mistral_nemo");
  CHECK(model.query_width() == 4096);
  CHECK(model.parameters() == 12'247'782'400);
  CHECK(model.dtype == Dtype::bf16);
}

TEST_CASE("a Qwen2 has the biases of its queries, keys and values") {
  const auto model = read_huggingface_config(data + "qwen2_05b.json").model;
  CHECK(model.tied);
  CHECK(model.parameters() == 494'032'768);  // as published
  CHECK(model.dtype == Dtype::bf16);         // from "dtype", the newer key
}

TEST_CASE("a Qwen3 has norms of its queries and keys") {
  const auto model = parse(minimal(R"(, "model_type": "qwen3", "head_dim": 32, "num_key_value_heads": 2)"));
  CHECK(model.head_size() == 32);
  auto without = model;
  without.qk_norm = tawpipe::QkNorm::none;
  CHECK(model.layer_parameters() - without.layer_parameters() == 64);
  CHECK(parse(minimal(R"(, "model_type": "qwen3", "num_key_value_heads": 2)")).head_size() == 128);  // as Qwen3Config
}

TEST_CASE("what a config leaves out takes its default") {
  const auto model = read_huggingface_config(data + "minimal.json").model;
  CHECK(model.kv_heads == 4);
  CHECK(!model.head_dim.has_value());
  CHECK_FALSE(model.tied);
  CHECK(model.dtype == Dtype::bf16);
  const auto with_null = parse(minimal(R"(, "head_dim": null, "num_key_value_heads": null, "torch_dtype": null)"));
  CHECK(with_null.parameters() == model.parameters());
}

TEST_CASE("a missing file is named, with what would be right") {
  CHECK_THROWS_WITH_AS(read_huggingface_config("/no/such/config.json"),
                       "cannot read '/no/such/config.json'; give a config.json, or a folder with one", InputError);
  const std::string folder_without = data.substr(0, data.size() - 1);
  const std::string expected =
      tawpipe::concat("cannot read '", folder_without, "/config.json'; give a config.json, or a folder with one");
  CHECK_THROWS_WITH_AS(read_huggingface_config(folder_without), expected.c_str(), InputError);
  CHECK_THROWS_AS(read_huggingface_config(""), InputError);
  CHECK_THROWS_WITH_AS(read_huggingface_config("two\nlines"), "cannot read 'two?lines'; give a config.json, or a folder with one",
                       InputError);
}

TEST_CASE("text that is not JSON is refused with line and column") {
  // line 3 is `  "intermediate_size" 11008`: the number begins in column 23 and ends in column 27, where the parser notices
  CHECK_THROWS_WITH_AS(parse(read(data + "missing_colon.json")),
                       "config 'c': not JSON: line 3, column 27: syntax error while parsing object separator - unexpected number "
                       "literal; expected ':'",
                       InputError);
  CHECK_THROWS_WITH_AS(parse(""),
                       "config 'c': not JSON: line 1, column 1: syntax error while parsing value - unexpected end of input; "
                       "expected '[', '{', or a literal; the text is cut off",
                       InputError);
  CHECK_THROWS_WITH_AS(
      parse("hello"),
      "config 'c': not JSON: line 1, column 1: syntax error while parsing value - invalid literal; last read: 'h'", InputError);
  CHECK_THROWS_WITH_AS(parse(minimal(R"(, "rope_theta": 1e999)")),
                       "config 'c': not JSON: line 1, column 134: number overflow parsing '1e999'", InputError);
  CHECK_THROWS_WITH_AS(parse("[1, 2]"), "config 'c': expected an object {...}, not a list", InputError);
  CHECK_THROWS_WITH_AS(parse("null"), "config 'c': expected an object {...}, not null", InputError);
}

TEST_CASE("missing keys and wrong types are named") {
  CHECK_THROWS_WITH_AS(parse("{}"), "config 'c': 'num_hidden_layers' is missing (or n_layer, n_layers, num_layers)", InputError);
  CHECK_THROWS_WITH_AS(parse(R"({"num_hidden_layers": 2, "hidden_size": "64"})"),
                       "config 'c': hidden_size: expected a whole number from 0 to 2147483647, not \"64\"", InputError);
  CHECK_THROWS_WITH_AS(parse(R"({"num_hidden_layers": 2.5})"),
                       "config 'c': num_hidden_layers: expected a whole number from 0 to 2147483647, not 2.5", InputError);
  CHECK_THROWS_WITH_AS(parse(R"({"num_hidden_layers": 18446744073709551615})"),
                       "config 'c': num_hidden_layers: expected a whole number from 0 to 2147483647, not 18446744073709551615",
                       InputError);
  CHECK_THROWS_WITH_AS(parse(minimal(R"(, "tie_word_embeddings": 1)")),
                       "config 'c': tie_word_embeddings: expected true or false, not 1", InputError);
  CHECK_THROWS_WITH_AS(parse(minimal(R"(, "torch_dtype": 16)")), "config 'c': torch_dtype: expected a text in quotes, not 16",
                       InputError);
}

TEST_CASE("impossible sizes and unknown dtypes name the file") {
  CHECK_THROWS_WITH_AS(parse(minimal(R"(, "num_key_value_heads": 3)")),
                       "config 'c': cannot be used: model 'm': 3 key-value heads do not divide the 4 heads; each must serve "
                       "equally many",
                       InputError);
  CHECK_THROWS_WITH_AS(parse(minimal(R"(, "torch_dtype": "int8")")),
                       "config 'c': torch_dtype: unknown dtype 'int8'; known: float64, float32, bfloat16, float16, float8",
                       InputError);
  CHECK_THROWS_AS(parse(minimal(R"(, "head_dim": 0)")), InputError);
  CHECK_THROWS_AS(parse(minimal(R"(, "head_dim": -128)")), InputError);
}

TEST_CASE("mixtures of experts in every layer are read") {
  const auto mixtral = parse(read(data + "mixture_of_experts.json"));
  CHECK(mixtral.experts == 8);
  CHECK(mixtral.experts_per_token == 2);
  CHECK(mixtral.intermediate == 14336);
  CHECK(mixtral.parameters() == 46'702'792'704);

  const auto olmoe = parse(minimal(R"(, "model_type": "olmoe", "num_experts": 64, "num_experts_per_tok": 8)"));
  CHECK(olmoe.experts == 64);
  CHECK(olmoe.experts_per_token == 8);
  CHECK(olmoe.intermediate == 176);

  const std::string_view experts =
      R"(, "num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 24, "num_key_value_heads": 4)";
  const auto qwen3 =
      parse(minimal(tawpipe::concat(R"(, "model_type": "qwen3_moe", "decoder_sparse_step": 1, "mlp_only_layers": [])",
                                    R"(, "norm_topk_prob": true)", experts)));
  CHECK(qwen3.experts == 16);
  CHECK(qwen3.experts_per_token == 4);
  CHECK(qwen3.intermediate == 24);
  CHECK(qwen3.shared_width == 0);

  const auto qwen2 =
      parse(minimal(tawpipe::concat(R"(, "model_type": "qwen2_moe", "shared_expert_intermediate_size": 96)", experts)));
  CHECK(qwen2.experts == 16);
  CHECK(qwen2.intermediate == 24);
  CHECK(qwen2.shared_width == 96);
}

TEST_CASE("latent attention and first layers without experts are read") {
  const auto deepseek = parse(read(data + "deepseek_v3.json"));
  const auto preset = tawpipe::models::named("deepseek-v3");
  CHECK(deepseek.parameters() == preset.parameters());
  CHECK(deepseek.active_parameters() == preset.active_parameters());
  CHECK(deepseek.intermediate == 2048);
  CHECK(deepseek.dense_layers == 3);
  CHECK(deepseek.dense_width == 18432);
  CHECK((deepseek.expert_groups == 8 && deepseek.groups_per_token == 4));
  CHECK(deepseek.query_rank == 1536);
  CHECK(deepseek.head_size() == 192);

  const std::string of_v2 = R"(, "first_k_dense_replace": 1, "n_routed_experts": 8, "num_experts_per_tok": 2,
      "moe_intermediate_size": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 10)";
  const std::string of_lite = of_v2 + R"(, "model_type": "deepseek_v2", "n_shared_experts": null)";
  for (const char* type : {"deepseek_v2", "deepseek_v3", "kimi_k2"}) {
    const auto model = parse(minimal(tawpipe::concat(of_v2, R"(, "q_lora_rank": null, "head_dim": 4, "n_shared_experts": 2)",
                                                     R"(, "model_type": ")", type, '"')));
    CHECK(model.query_rank == 0);
    CHECK(model.key_value_rank == 16);
    CHECK(model.rope_width == 4);
    CHECK(model.head_size() == 12);
    CHECK(model.value_size == 10);
    CHECK(model.shared_width == 48);
    CHECK(model.dense_layers == 1);
    CHECK(model.dense_width == 176);
    CHECK(model.intermediate == 24);
  }
  CHECK(parse(minimal(of_lite + R"(, "q_lora_rank": null)")).shared_width == 0);
  CHECK(parse(minimal(of_lite + R"(, "q_lora_rank": 20)")).query_rank == 20);
  CHECK_THROWS_WITH_AS(parse(minimal(of_lite)), "config 'c': 'q_lora_rank' is missing", InputError);

  const auto glm = parse(minimal(
      R"(, "model_type": "glm4_moe", "num_key_value_heads": 2, "head_dim": 32, "first_k_dense_replace": 0, "n_routed_experts": 8,
      "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 24)"));
  CHECK_FALSE(glm.is_latent());
  CHECK(glm.head_size() == 32);
  CHECK(glm.kv_heads == 2);
  CHECK(glm.shared_width == 24);
  CHECK(glm.dense_layers == 0);
  CHECK(glm.dense_width == 0);
}

TEST_CASE("latent attention and first layers that cannot be are refused") {
  const auto with = [](std::string_view from, std::string_view to) {
    std::string text = read(data + "deepseek_v3.json");
    const auto at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
  };
  const auto refused = [](const std::string& text, const char* why) { CHECK_THROWS_WITH_AS(parse(text), why, InputError); };
  refused(with(R"("first_k_dense_replace": 3)", R"("first_k_dense_replace": 61)"),
          "config 'c': no layer has the 256 experts (first_k_dense_replace, moe_layer_freq, mlp_only_layers, layer_types); leave "
          "them out");
  refused(with(R"("kv_lora_rank")", R"("x")"), "config 'c': 'kv_lora_rank' is missing");
  refused(with(R"("qk_rope_head_dim": 64)", R"("qk_rope_head_dim": -64)"),
          "config 'c': qk_rope_head_dim: expected a whole number from 0 to 131072, not -64");
  refused(with(R"("num_key_value_heads": 128)", R"("num_key_value_heads": 64)"),
          "config 'c': num_key_value_heads: latent attention has as many as heads, 128");
  refused(with(R"("n_shared_experts": 1)", R"("n_shared_experts": 4096)"),
          "config 'c': n_shared_experts: shared experts of width 2048 are too wide together; the most is 4194304");
  refused(with(R"("intermediate_size": 18432)", R"("intermediate_size": 0)"),
          "config 'c': cannot be used: model 'm': the width of the first layers' MLP must be 1 to 524288, not 0");
}

TEST_CASE("experts in some of the layers are read, and experts not said are refused") {
  const std::string qwen3 =
      R"(, "model_type": "qwen3_moe", "num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 24,
         "num_key_value_heads": 4)";
  const auto turns = parse_huggingface_config(minimal(qwen3 + R"(, "decoder_sparse_step": 2)"), "c", "m");
  CHECK(turns.unequal.empty());  // the first of two has none
  CHECK(turns.model.dense_layers == 1);
  CHECK(parse(minimal(qwen3 + R"(, "mlp_only_layers": [0])")).dense_width == 176);
  const auto last = parse_huggingface_config(minimal(qwen3 + R"(, "mlp_only_layers": [1])"), "c", "m");
  CHECK(last.unequal == "layers with and without experts by turns");
  CHECK(last.decoder.pattern == tawpipe::LayerPattern{0, 1});
  const tawpipe::Transformer timed = tawpipe::timed_model(last);
  CHECK(timed.has_kinds());
  CHECK(timed.parameters() == 205696);
  CHECK(timed.dtype == last.model.dtype);
  CHECK_THROWS_AS(parse(minimal(qwen3 + R"(, "mlp_only_layers": 0)")), InputError);
  CHECK_THROWS_AS(parse(minimal(qwen3 + R"(, "mlp_only_layers": [2])")), InputError);
  CHECK_THROWS_WITH_AS(parse(minimal(R"(, "model_type": "mixtral", "num_key_value_heads": 4, "num_experts_per_tok": 2)")),
                       "config 'c': 'num_experts' is missing (or num_local_experts, n_routed_experts, moe_num_experts, "
                       "num_routed_experts)",
                       InputError);
  CHECK_THROWS_WITH_AS(parse(minimal(R"(, "model_type": "olmoe", "num_experts": 8)")),
                       doctest::Contains("config 'c': 'num_experts_per_tok' is missing"), InputError);
  CHECK_THROWS_WITH_AS(parse(minimal(R"(, "model_type": "olmoe", "num_experts": 0, "num_experts_per_tok": 2)")),
                       "config 'c': num_experts: expected a whole number from 1 to 2147483647, not 0", InputError);
  CHECK_THROWS_WITH_AS(parse(minimal(R"(, "model_type": "olmoe", "num_experts": 8, "num_experts_per_tok": 9)")),
                       "config 'c': cannot be used: model 'm': the number of experts a token must be 1 to 8, not 9", InputError);
  CHECK_THROWS_WITH_AS(
      parse(minimal(R"(, "model_type": "qwen2_moe", "num_key_value_heads": 4, "num_experts": 8, "num_experts_per_tok": 2,
                       "moe_intermediate_size": 24)")),
      doctest::Contains("'shared_expert_intermediate_size' is missing"), InputError);
}

TEST_CASE("a model is found by preset, by sizes, or by path") {
  CHECK(resolve_model("llama-2-7b").parameters() == 6'738'415'616);
  CHECK(resolve_model("llama-24x512").layers == 24);
  CHECK(resolve_model(data + "llama_2_7b").parameters() == 6'738'415'616);
  CHECK(resolve_model(data + "minimal.json").hidden == 64);
  CHECK_THROWS_WITH_AS(resolve_model("llama-2-8b"),
                       doctest::Contains("unknown model 'llama-2-8b'; did you mean 'llama-2-7b'? Known: "), InputError);
  CHECK_THROWS_WITH_AS(resolve_model("llama-2-8b"),
                       doctest::Contains(", any llama-LxH such as llama-24x512, or the path of a config.json"), InputError);
  CHECK_THROWS_WITH_AS(resolve_model("absent.json"), "cannot read 'absent.json'; give a config.json, or a folder with one",
                       InputError);
  CHECK_THROWS_AS(resolve_model(""), InputError);
  CHECK_THROWS_AS(resolve_model("no/such/folder"), InputError);
}

TEST_CASE("a file without end is not read to its end") {
  if (std::ifstream{"/dev/zero"}.good()) CHECK_THROWS_AS(read_huggingface_config("/dev/zero"), InputError);
}

TEST_CASE("a config cut off anywhere gives only an input error") {
  const auto text = read(data + "llama_2_7b/config.json");
  for (std::size_t length = 0; length + 2 < text.size(); ++length) {  // the last two bytes are "}\n"
    CHECK_THROWS_AS(parse(std::string_view{text}.substr(0, length)), InputError);
  }
}

TEST_CASE("a config with any byte replaced, lost or doubled gives a model or an input error") {
  for (const char* file : {"mistral_nemo.json", "mixture_of_experts.json", "deepseek_v3.json"}) {
    const auto text = read(data + file);
    for (std::size_t at = 0; at < text.size(); ++at) {
      for (const char byte : {'\0', '\n', '"', '0', '9', '-', '.', 'e', ',', ':', '{', '}', '[', '\\', '\x7f', '\xff'}) {
        auto mutated = text;
        mutated[at] = byte;
        check_only_input_errors(mutated);
      }
      check_only_input_errors(std::string{text}.erase(at, 1));
      check_only_input_errors(std::string{text}.insert(at, 1, text[at]));
    }
  }
}

TEST_CASE("deep nesting gives only an input error") {
  check_only_input_errors(std::string(100'000, '['));
  check_only_input_errors(minimal(", \"x\": " + std::string(50'000, '[') + std::string(50'000, ']')));
}
