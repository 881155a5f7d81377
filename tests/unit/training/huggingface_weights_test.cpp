// Tests of training/huggingface_weights.hpp: names, the order of rotated rows, one file and
// several, what is refused.
// Not: tensor files (safetensors_test.cpp).
#include "tawpipe/training/huggingface_weights.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "support/random.hpp"
#include "support/scratch_folder.hpp"
#include "support/small_decoder.hpp"

using support::file_bytes;
using support::put_file;
using support::ScratchFolder;
using support::small_decoder;
using tawpipe::DecoderConstants;
using tawpipe::InputError;
using tawpipe::ParameterRange;
using tawpipe::QkNorm;
using tawpipe::Transformer;
using tawpipe::training::HuggingFaceWeights;
using tawpipe::training::NewTensor;
using tawpipe::training::NumberFormat;
using tawpipe::training::rotated_row;
using tawpipe::training::SafetensorsFile;
using tawpipe::training::SafetensorsWriter;
using tawpipe::training::unrotated_row;
using tawpipe::training::write_huggingface;

namespace {

namespace fs = std::filesystem;
using Vector = std::vector<double>;

void give_numbered(ParameterRange range, std::span<double> numbers) {
  for (std::int64_t i = 0; i < range.count(); ++i) numbers[static_cast<std::size_t>(i)] = support::numbered(range.begin + i);
}

void write_numbered(const std::string& folder, const Transformer& model, NumberFormat format = NumberFormat::f32) {
  write_huggingface(folder, model, {}, format, give_numbered);
}

bool holds_numbered(const HuggingFaceWeights& weights, ParameterRange range) {
  Vector numbers(static_cast<std::size_t>(range.count()));
  weights.read<double>(range, numbers);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] != support::numbered(range.begin + static_cast<std::int64_t>(i))) return false;
  }
  return true;
}

/// y = W x of one head: `weights` [rows, x.size()].
Vector project(const Vector& weights, const Vector& x) {
  Vector y(weights.size() / x.size());
  for (std::size_t row = 0; row < y.size(); ++row) {
    for (std::size_t i = 0; i < x.size(); ++i) y[row] += weights[row * x.size() + i] * x[i];
  }
  return y;
}

double angle(std::int64_t position, std::size_t pair, std::size_t rows) {
  return static_cast<double>(position) * std::pow(10000.0, -2.0 * static_cast<double>(pair) / static_cast<double>(rows));
}

/// Meta's LLaMA: neighbours (2j, 2j + 1) turn by position x 10000^(-2j/h).
Vector rotate_neighbours(const Vector& x, std::int64_t position) {
  Vector y(x.size());
  for (std::size_t j = 0; j < x.size() / 2; ++j) {
    const double phi = angle(position, j, x.size());
    y[2 * j] = x[2 * j] * std::cos(phi) - x[2 * j + 1] * std::sin(phi);
    y[2 * j + 1] = x[2 * j] * std::sin(phi) + x[2 * j + 1] * std::cos(phi);
  }
  return y;
}

/// Hugging Face, apply_rotary_pos_emb: x cos + rotate_half(x) sin, where rotate_half puts the
/// negated second half first.
Vector rotate_halves(const Vector& x, std::int64_t position) {
  const std::size_t half = x.size() / 2;
  Vector y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double phi = angle(position, i % half, x.size());
    const double turned = i < half ? -x[i + half] : x[i - half];
    y[i] = x[i] * std::cos(phi) + turned * std::sin(phi);
  }
  return y;
}

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

TEST_CASE("rows of a head of six: theirs 0 1 2 3 4 5 are ours 0 2 4 1 3 5") {
  std::vector<std::int64_t> ours;
  for (int row = 0; row < 6; ++row) ours.push_back(rotated_row(row, 6));
  CHECK(ours == std::vector<std::int64_t>{0, 2, 4, 1, 3, 5});
  for (int row = 0; row < 128; ++row) CHECK(unrotated_row(rotated_row(row, 128), 128) == row);
}

TEST_CASE("scores q.k of both conventions are the same with the rows reordered, and differ without") {
  constexpr std::int64_t rows = 8;
  constexpr std::int64_t width = 5;
  support::Random random{7};
  const auto draw = [&](std::int64_t count) {
    Vector numbers(static_cast<std::size_t>(count));
    for (double& number : numbers) number = random.real(-1, 1);
    return numbers;
  };
  const Vector wq = draw(rows * width);
  const Vector wk = draw(rows * width);
  const auto reordered = [&](const Vector& ours) {
    Vector theirs(ours.size());
    for (std::int64_t row = 0; row < rows; ++row) {
      std::copy_n(ours.begin() + rotated_row(row, rows) * width, width, theirs.begin() + row * width);
    }
    return theirs;
  };
  for (int round = 0; round < 20; ++round) {
    const Vector x = draw(width);
    const Vector y = draw(width);
    const int s = random.between(0, 500);
    const int t = random.between(501, 1000);
    const double ours = dot(rotate_neighbours(project(wq, x), s), rotate_neighbours(project(wk, y), t));
    const double theirs = dot(rotate_halves(project(reordered(wq), x), s), rotate_halves(project(reordered(wk), y), t));
    const double wrong = dot(rotate_halves(project(wq, x), s), rotate_halves(project(wk, y), t));
    CHECK(theirs == doctest::Approx(ours).epsilon(1e-12));
    CHECK(std::fabs(wrong - ours) > 1e-6);
  }
}

TEST_CASE("exported files have the names, shapes and rows that are expected there") {
  const ScratchFolder folder;
  write_numbered(folder / "m", small_decoder(false));
  const SafetensorsFile file{folder / "m/model.safetensors"};
  CHECK(file.metadata().at("format") == "pt");
  CHECK(file.tensors().size() == 21);
  CHECK(file.tensor("model.embed_tokens.weight").shape == std::vector<std::int64_t>{10, 8});
  CHECK(file.tensor("lm_head.weight").shape == std::vector<std::int64_t>{10, 8});
  CHECK(file.tensor("model.layers.1.self_attn.k_proj.weight").shape == std::vector<std::int64_t>{4, 8});
  CHECK(file.tensor("model.layers.1.mlp.down_proj.weight").shape == std::vector<std::int64_t>{8, 12});
  // Layer 0 begins at 80: wq 64, wk 32, wv 32, wo 64, w1 96, w2 96, w3 96, attention norm 8,
  // feed-forward norm 8
  const auto first = [&](const char* name) { return file.read<double>(name).front(); };
  CHECK(first("model.layers.0.self_attn.v_proj.weight") == 80 + 64 + 32);
  CHECK(first("model.layers.0.self_attn.o_proj.weight") == 80 + 128);
  CHECK(first("model.layers.0.mlp.gate_proj.weight") == 80 + 192);
  CHECK(first("model.layers.0.mlp.down_proj.weight") == 80 + 288);
  CHECK(first("model.layers.0.mlp.up_proj.weight") == 80 + 384);
  CHECK(first("model.layers.0.input_layernorm.weight") == 80 + 480);
  CHECK(first("model.layers.0.post_attention_layernorm.weight") == 80 + 488);
  CHECK(first("model.norm.weight") == 80 + 2 * 496);
  // Rows of 8 numbers, heads of 4 rows: theirs are ours 0 2 1 3, 4 6 5 7
  const auto q = file.read<double>("model.layers.0.self_attn.q_proj.weight");
  Vector starts;
  for (std::size_t row = 0; row < 8; ++row) starts.push_back((q[row * 8] - 80) / 8);
  CHECK(starts == Vector{0, 2, 1, 3, 4, 6, 5, 7});
}

TEST_CASE("exported weights come back by any range, in every format") {
  const ScratchFolder folder;
  for (const auto format : {NumberFormat::f64, NumberFormat::f32, NumberFormat::f16}) {
    write_numbered(folder / "m", small_decoder(), format);
    const HuggingFaceWeights weights{folder / "m"};
    CHECK(weights.model().parameters() == 1080);
    CHECK(weights.constants() == DecoderConstants{});
    for (const ParameterRange range : {ParameterRange{0, 1080}, {83, 99}, {100, 101}, {143, 150}, {0, 200}, {579, 1080}}) {
      CHECK(holds_numbered(weights, range));
    }
  }
  write_numbered(folder / "m", small_decoder(), NumberFormat::bf16);
  Vector one(1);
  HuggingFaceWeights{folder / "m"}.read<double>({255, 256}, one);
  CHECK(one[0] == 255);
  CHECK_THROWS_WITH_AS(write_numbered(folder / "m", small_decoder(), NumberFormat::i8), doctest::Contains("give F64, F32"),
                       InputError);
}

TEST_CASE("weights of a mixture of experts have a Mixtral's names, and come back") {
  const ScratchFolder folder;
  Transformer model = small_decoder();
  model.experts = 3;
  model.experts_per_token = 2;
  write_numbered(folder / "m", model);
  const SafetensorsFile file{folder / "m/model.safetensors"};
  CHECK(file.tensors().size() == 2 * (6 + 1 + 9) + 2);
  // Layer 0 begins at 80: wq 64, wk 32, wv 32, wo 64, router 24, w1 w2 w3 of 96 for each expert
  const std::string moe = "model.layers.0.block_sparse_moe.";
  CHECK(file.tensor(moe + "gate.weight").shape == std::vector<std::int64_t>{3, 8});
  CHECK(file.tensor(moe + "experts.2.w2.weight").shape == std::vector<std::int64_t>{8, 12});
  CHECK(file.read<double>(moe + "gate.weight").front() == 80 + 192);
  CHECK(file.read<double>(moe + "experts.0.w1.weight").front() == 80 + 216);
  CHECK(file.read<double>(moe + "experts.2.w3.weight").front() == 80 + 216 + 8 * 96);
  const HuggingFaceWeights weights{folder / "m"};
  CHECK(weights.model().experts == 3);
  CHECK(holds_numbered(weights, {0, model.parameters()}));

  for (const auto norm : {QkNorm::head, QkNorm::width}) {  // a Qwen3 with experts, an OLMoE
    model.qk_norm = norm;
    write_numbered(folder / "m", model);
    const SafetensorsFile other{folder / "m/model.safetensors"};
    CHECK(other.tensor("model.layers.1.mlp.gate.weight").shape == std::vector<std::int64_t>{3, 8});
    CHECK(other.read<double>("model.layers.0.mlp.experts.2.down_proj.weight").front() == 80 + 216 + 7 * 96);
    CHECK(holds_numbered(HuggingFaceWeights{folder / "m"}, {0, model.parameters()}));
  }
  model.shared_width = 4;
  CHECK_THROWS_WITH_AS(write_numbered(folder / "s", model), doctest::Contains("has a shared expert of width 4"), InputError);
}

TEST_CASE("weights like DeepSeek-V3's and GLM-4.5's have their names, with the biases of the choice, and come back") {
  const ScratchFolder folder;
  Transformer model = small_decoder();
  model.dense_layers = 1;
  model.dense_width = 20;
  model.experts = 4;
  model.experts_per_token = 2;
  model.shared_width = 12;
  model.expert_groups = 2;
  DecoderConstants constants;
  constants.router = {.sigmoid = true, .scale = 2.5, .bias = {0.5, -1, 0.25, 2}};
  const std::string gate = "model.layers.1.mlp.gate.";
  for (const bool latent : {false, true}) {
    if (latent) {
      model.kv_heads = 2;
      model.query_rank = 6;
      model.key_value_rank = 5;
      model.rope_width = 2;
      model.value_size = 6;
      model.head_dim = 4;
    }
    write_huggingface(folder / "m", model, constants, NumberFormat::f32, give_numbered);
    const SafetensorsFile file{folder / "m/model.safetensors"};
    CHECK(file.tensor("model.layers.0.mlp.up_proj.weight").shape == std::vector<std::int64_t>{20, 8});
    CHECK(file.tensor("model.layers.1.mlp.shared_experts.down_proj.weight").shape == std::vector<std::int64_t>{8, 12});
    CHECK(file.read<double>(gate + "e_score_correction_bias") == Vector{0.5, -1, 0.25, 2});
    CHECK(file.contains("model.layers.0.self_attn.kv_a_proj_with_mqa.weight") == latent);
    const HuggingFaceWeights weights{folder / "m"};
    CHECK(holds_numbered(weights, {0, model.parameters()}));
    CHECK(weights.constants() == constants);
    CHECK(weights.model().dense_width == 20);
    CHECK(weights.model().expert_groups == 2);
    if (!latent) continue;
    // q_a 6 rows, q_b 8, kv_a 5 + 2, kv_b heads of 2 + 6: layer 0 begins at 80.
    CHECK(file.tensor("model.layers.0.self_attn.q_b_proj.weight").shape == std::vector<std::int64_t>{8, 6});
    CHECK(file.read<double>("model.layers.0.self_attn.q_b_proj.weight").front() == 80 + 48);
    CHECK(file.read<double>("model.layers.0.self_attn.kv_a_proj_with_mqa.weight").front() == 80 + 48 + 48);
    CHECK(file.tensor("model.layers.0.self_attn.kv_b_proj.weight").shape == std::vector<std::int64_t>{16, 5});
    CHECK(file.contains("model.layers.1.self_attn.q_a_layernorm.weight"));
    CHECK(file.contains("model.layers.1.self_attn.kv_a_layernorm.weight"));
  }
  // Without biases they are written as 0, and a model that chooses by a softmax has no such type.
  constants.router.bias.clear();
  write_huggingface(folder / "m", model, constants, NumberFormat::f32, give_numbered);
  CHECK(HuggingFaceWeights{folder / "m"}.constants().router.bias == Vector(4, 0.0));
  constants.router.sigmoid = false;
  CHECK_THROWS_WITH_AS(write_huggingface(folder / "m", model, constants, NumberFormat::f32, give_numbered),
                       doctest::Contains("that no model of transformers has together"), InputError);
}

TEST_CASE("biases and norms of heads are in the order of transformers' heads, and come back") {
  const ScratchFolder folder;
  Transformer model = small_decoder();
  model.qkv_bias = model.output_bias = true;
  model.qk_norm = QkNorm::head;
  write_numbered(folder / "m", model);
  const SafetensorsFile file{folder / "m/model.safetensors"};
  CHECK(file.tensors().size() == 2 * (9 + 4 + 2) + 2);
  // Layer 0 begins at 80 and has 480 numbers of matrices; then biases 8, 4, 4, 8 and norms 4, 4
  const auto numbers = [&](const std::string& name) {
    Vector found = file.read<double>("model.layers.0." + name);
    for (double& number : found) number -= 80 + 480;
    return found;
  };
  CHECK(numbers("self_attn.q_proj.bias") == Vector{0, 2, 1, 3, 4, 6, 5, 7});
  CHECK(numbers("self_attn.k_proj.bias") == Vector{8, 10, 9, 11});
  CHECK(numbers("self_attn.v_proj.bias") == Vector{12, 13, 14, 15});
  CHECK(numbers("self_attn.o_proj.bias").front() == 16);
  CHECK(numbers("self_attn.q_norm.weight") == Vector{24, 26, 25, 27});
  CHECK(numbers("self_attn.k_norm.weight") == Vector{28, 30, 29, 31});
  CHECK(numbers("input_layernorm.weight").front() == 32);
  CHECK(holds_numbered(HuggingFaceWeights{folder / "m"}, {0, model.parameters()}));
}

TEST_CASE("weights in several files are found by their index") {
  const ScratchFolder folder;
  write_numbered(folder / "m", small_decoder());
  const std::string whole = folder / "m/model.safetensors";
  std::string index = R"({"metadata": {"total_size": 4320}, "weight_map": {)";
  {
    const SafetensorsFile file{whole};
    const auto& tensors = file.tensors();
    for (int part = 0; part < 2; ++part) {
      const std::string name = part == 0 ? "model-00001-of-00002.safetensors" : "model-00002-of-00002.safetensors";
      std::vector<NewTensor> own;
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        if ((i < 7) != (part == 0)) continue;
        own.push_back({tensors[i].name, NumberFormat::f32, tensors[i].shape});
        index += "\"" + tensors[i].name + "\": \"" + name + "\",";
      }
      SafetensorsWriter writer{folder / ("m/" + name), own};
      for (const NewTensor& tensor : own) writer.write<float>(file.read<float>(tensor.name));
      writer.finish();
    }
  }
  fs::remove(whole);
  index.back() = '}';
  put_file(folder / "m/model.safetensors.index.json", index + "}");
  CHECK(holds_numbered(HuggingFaceWeights{folder / "m"}, {0, 1080}));

  const auto check_refused = [&](const std::string& text, const char* why) {
    put_file(folder / "m/model.safetensors.index.json", text);
    CHECK_THROWS_WITH_AS(HuggingFaceWeights{folder / "m"}, doctest::Contains(why), InputError);
  };
  std::string wrong = index + "}";
  const std::size_t at = wrong.find("00001-of");
  check_refused(wrong.replace(at, 5, "00002"), "has no such tensor");
  check_refused(wrong.replace(at, 5, "00003"), "No such file");
  check_refused(R"({"weight_map": {"a": "../x"}})", "weight_map.a: expected the name of a file in the same folder");
  check_refused(R"({"weight_map": {}})", "lack the tensor 'model.embed_tokens.weight'");
  check_refused(R"({})", "'weight_map' is missing");
}

TEST_CASE("what a decoder does not compute is refused") {
  const ScratchFolder folder;
  const std::string config = folder / "m/config.json";
  const auto check_refused = [&](std::string_view from, std::string_view to, const char* why) {
    write_numbered(folder / "m", small_decoder());
    std::string text = file_bytes(config);
    const std::size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    put_file(config, text.replace(at, from.size(), to));
    CHECK_THROWS_WITH_AS(HuggingFaceWeights{folder / "m"}, doctest::Contains(why), InputError);
  };
  check_refused(R"("attention_bias": false)", R"("attention_bias": true)",
                "lack the tensor 'model.layers.0.self_attn.q_proj.bias'");
  check_refused(R"("rope_scaling": null)", R"("rope_scaling": {"type": "yarn", "factor": 2})",
                "the scaling yarn is not computed");
  check_refused(R"("rope_scaling": null)", R"("partial_rotary_factor": 0.5)",
                "partial_rotary_factor: heads that are turned in part");
  check_refused(R"("rope_scaling": null)", R"("rope_scaling": {"factor": 2})",
                "rope_scaling: factor is not a key of the scaling default");
  check_refused(R"("silu")", R"("gelu")", "hidden_act: gelu is not computed; silu is");
  check_refused(R"("rope_theta": 10000.0)", R"("rope_theta": -1)", "rope_theta: expected a number above zero");
  check_refused(R"("num_hidden_layers": 2)", R"("num_hidden_layers": 3)", "lack the tensor 'model.layers.2.");
  check_refused(R"("num_hidden_layers": 2)", R"("num_hidden_layers": 1)", "have a tensor that is not computed: 'model.layers.1.");
  check_refused(R"("intermediate_size": 12)", R"("intermediate_size": 16)", "has shape [12, 8]; [16, 8] is needed");
  CHECK_THROWS_WITH_AS(HuggingFaceWeights{folder / "none"}, doctest::Contains("config.json"), InputError);
  Transformer odd = small_decoder();
  odd.head_dim = 3;
  CHECK_THROWS_WITH_AS(write_numbered(folder / "odd", odd), doctest::Contains("needs an even head size"), InputError);
}

TEST_CASE("missing constants are those of LlamaConfig, and a tied model may carry its output matrix") {
  const ScratchFolder folder;
  write_numbered(folder / "m", small_decoder(false));
  put_file(folder / "m/config.json",
           R"({"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
               "intermediate_size": 12, "vocab_size": 10, "tie_word_embeddings": true, "torch_dtype": "float32"})");
  const HuggingFaceWeights weights{folder / "m"};
  CHECK(weights.constants() == DecoderConstants{10000, 1e-6, 2048});
  CHECK(holds_numbered(weights, {0, 1080}));
}
