// Total and active parameters and operations of models by their operators, against published counts
// and counts from the papers' formulas.
// Not: readers of config.json (huggingface_config_test.cpp).
#include "tawpipe/model/model.hpp"

#include <doctest/doctest.h>

#include "tawpipe/core/error.hpp"
#include "tawpipe/model/models.hpp"

using namespace tawpipe;

namespace model_test {

namespace {

/// Parts per cent by which a count is off.
double off(double counted, double published) { return 100 * (counted / published - 1); }

Model gemma3_1b() {
  const Attention full{.heads = 4, .kv_heads = 1, .head_dim = 256, .qk_norm = QkNorm::head};
  Attention window = full;
  window.window = 512;
  const Mlp mlp{.width = 6912};
  return {.name = "gemma-3-1b",
          .hidden = 1152,
          .vocab = 262144,
          .tied = true,
          .kinds = {{.name = "window", .sublayers = {window, mlp}, .norms = NormPlace::both},
                    {.name = "full", .sublayers = {full, mlp}, .norms = NormPlace::both}},
          .pattern = repeated({0, 0, 0, 0, 0, 1}, 26)};
}

Model gpt_oss_20b() {
  const Attention full{.heads = 64, .kv_heads = 8, .head_dim = 64, .sinks = true, .qkv_bias = true, .output_bias = true};
  Attention window = full;
  window.window = 128;
  const Mixture mixture{.experts = 32, .per_token = 4, .width = 2880, .bias = true, .router_bias = true};
  return {.name = "gpt-oss-20b",
          .hidden = 2880,
          .vocab = 201088,
          .kinds = {{.name = "window", .sublayers = {window, mixture}}, {.name = "full", .sublayers = {full, mixture}}},
          .pattern = repeated({0, 1}, 24)};
}

Model qwen3_5_35b() {
  const DeltaNet linear{.key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128};
  const Attention full{.heads = 16, .kv_heads = 2, .head_dim = 256, .turned = 64, .gate = true, .qk_norm = QkNorm::head};
  const Mixture mixture{.experts = 256, .per_token = 8, .width = 512, .shared_width = 512, .shared_gate = true};
  return {.name = "qwen3.5-35b-a3b",
          .hidden = 2048,
          .vocab = 248320,
          .kinds = {{.name = "linear", .sublayers = {linear, mixture}}, {.name = "full", .sublayers = {full, mixture}}},
          .pattern = repeated({0, 0, 0, 1}, 40)};
}

Model nemotron_h_30b() {
  const Mamba2 mamba{.heads = 64, .head_dim = 64, .groups = 8, .state = 128};
  const Mixture mixture{
      .experts = 128, .per_token = 6, .width = 1856, .shared_width = 3712, .function = MlpFunction::squared_relu};
  const Attention attention{.heads = 32, .kv_heads = 2, .head_dim = 128, .turned = 0};
  Model model{.name = "nemotron-3-nano-30b-a3b",
              .hidden = 2688,
              .vocab = 131072,
              .kinds = {{.name = "mamba", .sublayers = {mamba}},
                        {.name = "mixture", .sublayers = {mixture}},
                        {.name = "attention", .sublayers = {attention}}}};
  for (const char c : std::string_view{"MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"})
    model.pattern.push_back(c == 'M' ? 0 : c == 'E' ? 1 : 2);
  return model;
}

Model deepseek_v3(bool index, bool mtp) {
  Attention attention{
      .heads = 128, .kv_heads = 128, .head_dim = 192, .value_dim = 128, .turned = 64, .query_rank = 1536, .key_value_rank = 512};
  if (index) {
    attention.index_heads = 64;
    attention.index_dim = 128;
    attention.index_tokens = 2048;
  }
  const Mixture mixture{.experts = 256, .per_token = 8, .width = 2048, .shared_width = 2048};
  Model model{.name = "deepseek-v3",
              .hidden = 7168,
              .vocab = 129280,
              .kinds = {{.name = "dense", .sublayers = {attention, Mlp{.width = 18432}}},
                        {.name = "mixture", .sublayers = {attention, mixture}}},
              .pattern = LayerPattern(61, 1)};
  for (int i = 0; i < 3; ++i) model.pattern[static_cast<std::size_t>(i)] = 0;
  if (mtp) model.mtp = {1};
  return model;
}

Model llama4_scout() {
  const Attention chunked{.heads = 40, .kv_heads = 8, .head_dim = 128, .chunk = 8192};
  const Attention full{.heads = 40, .kv_heads = 8, .head_dim = 128, .turned = 0};
  const Mixture mixture{.experts = 16, .per_token = 1, .width = 8192, .shared_width = 8192};
  return {.name = "llama-4-scout",
          .hidden = 5120,
          .vocab = 202048,
          .kinds = {{.name = "chunk", .sublayers = {chunked, mixture}}, {.name = "full", .sublayers = {full, mixture}}},
          .pattern = repeated({0, 0, 0, 1}, 48)};
}

Model gpt2() {
  const Attention attention{.heads = 12, .kv_heads = 12, .head_dim = 64, .turned = 0, .qkv_bias = true, .output_bias = true};
  const Mlp mlp{.width = 3072, .function = MlpFunction::plain, .bias = true};
  return {.name = "gpt2",
          .hidden = 768,
          .vocab = 50257,
          .tied = true,
          .positions = 1024,
          .final_norm_bias = true,
          .kinds = {{.name = "layer", .sublayers = {attention, mlp}, .norm_bias = true}},
          .pattern = LayerPattern(12, 0)};
}

Model cohere_35b() {
  const Attention attention{.heads = 64, .kv_heads = 64, .head_dim = 128};
  return {.name = "command-r",
          .hidden = 8192,
          .vocab = 256000,
          .tied = true,
          .kinds = {{.name = "layer", .sublayers = {attention, Mlp{.width = 22528}}, .norms = NormPlace::parallel}},
          .pattern = LayerPattern(40, 0)};
}

Model olmo2_7b() {
  const Attention attention{.heads = 32, .kv_heads = 32, .head_dim = 128, .qk_norm = QkNorm::width};
  return {.name = "olmo-2-7b",
          .hidden = 4096,
          .vocab = 100352,
          .kinds = {{.name = "layer", .sublayers = {attention, Mlp{.width = 11008}}, .norms = NormPlace::after}},
          .pattern = LayerPattern(32, 0)};
}

}  // namespace

TEST_CASE("total and active parameters are those of the published weights") {
  struct Published {
    Model model;
    double parameters;
    double active;
  };
  // The tensors of the published weights, added up; routers' correction biases are not parameters.
  const Published published[] = {{gemma3_1b(), 999'885'952, 999'885'952},
                                 {gpt_oss_20b(), 20'914'757'184, 4'186'416'960},
                                 {qwen3_5_35b(), 34'660'605'568, 3'454'983'808},
                                 {nemotron_h_30b(), 31'577'937'344, 3'580'073'408},
                                 {deepseek_v3(false, false), 671'026'404'352, 0},
                                 {deepseek_v3(false, true), 682'636'472'320, 38'240'382'976},
                                 {deepseek_v3(true, false), 671'877'913'600, 38'403'791'872},
                                 {llama4_scout(), 107'769'861'120, 17'172'894'720},
                                 {gpt2(), 124'439'808, 124'439'808},
                                 {cohere_35b(), 34'980'831'232, 34'980'831'232},
                                 {olmo2_7b(), 7'298'355'200, 7'298'355'200}};
  for (const Published& row : published) {
    CAPTURE(row.model.name);
    CHECK_NOTHROW(row.model.check());
    CHECK(std::abs(off(static_cast<double>(row.model.parameters()), row.parameters)) < 0.01);
    if (row.active > 0) CHECK(std::abs(off(static_cast<double>(row.model.active_parameters()), row.active)) < 0.5);
  }
}

TEST_CASE("operations of a training step for each token are those of independent counts") {
  // Of the same sequences by the papers' formulas, without recurrences (so up to 10 % more is right):
  // 6 for each parameter of a matrix that a token passes, and 6 SH for each layer's attention.
  struct Counted {
    Model model;
    double flops;
    double tolerance;
  };
  const Counted counted[] = {{gemma3_1b(), 6.334e9, 0.1},     {gpt_oss_20b(), 2.413e10, 0.1},
                             {llama4_scout(), 1.089e11, 0.1}, {deepseek_v3(false, true), 2.918e11, 0.1},
                             {cohere_35b(), 2.26e11, 0.1},    {olmo2_7b(), 4.776e10, 0.1},
                             {gpt2(), 1.19417e9, 0.01},       {models::named("mixtral-8x7b").decoder(), 8.2934e10, 0.01},
                             {qwen3_5_35b(), 1.969e10, 10},   {nemotron_h_30b(), 2.057e10, 10}};
  for (const Counted& row : counted) {
    CAPTURE(row.model.name);
    const double more = off(row.model.flops(8192).all(), row.flops);
    CHECK(more > -row.tolerance);
    CHECK(more < row.tolerance);
  }
}

TEST_CASE("a token attends to the tokens of its window, chunk or index") {
  // Counted token by token, half of itself.
  const auto counted = [](std::int64_t sequence, auto&& sees) {
    double sum = 0;
    for (std::int64_t i = 0; i < sequence; ++i) sum += 2 * static_cast<double>(sees(i)) - 1;
    return sum / static_cast<double>(sequence);
  };
  Operator attention{.kind = Operator::Kind::attention, .count = 1};
  CHECK(attention.span(100) == doctest::Approx(counted(100, [](auto i) { return i + 1; })).epsilon(1e-9));
  attention.reach = 30;
  CHECK(attention.span(20) == 20);
  // A window's last tokens see all of it, with no half token to leave out: the exact count less 1.
  CHECK(attention.span(100) ==
        doctest::Approx(counted(100, [](auto i) { return std::min<std::int64_t>(i + 1, 30); })).epsilon(0.02));
  attention.chunks = true;
  CHECK(attention.span(100) == doctest::Approx(counted(100, [](auto i) { return i % 30 + 1; })).epsilon(1e-9));
}

TEST_CASE("a model that cannot be is refused, naming the kind of layer") {
  Model model = gemma3_1b();
  model.kinds[0].sublayers[0] = Attention{.heads = 4, .kv_heads = 3, .head_dim = 64};
  CHECK_THROWS_WITH_AS(
      model.check(), "model 'gemma-3-1b': layers of kind 'window': 3 heads of keys and values do not divide 4 heads", InputError);
  model = gemma3_1b();
  model.pattern[3] = 2;
  CHECK_THROWS_WITH_AS(model.check(), "model 'gemma-3-1b': a layer is of kind 2; it has 2 kinds", InputError);
}

}  // namespace model_test
