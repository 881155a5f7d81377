// Tests of model/models.hpp.
// Not: config files (huggingface_config_test.cpp).
#include "tawpipe/model/models.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <set>
#include <string>

#include "tawpipe/core/error.hpp"

using tawpipe::Dtype;
using tawpipe::InputError;
namespace models = tawpipe::models;

TEST_CASE("published models have their published numbers of parameters") {
  CHECK(models::named("llama-2-7b").parameters() == 6'738'415'616);
  CHECK(models::named("llama-2-13b").parameters() == 13'015'864'320);
  CHECK(models::named("llama-2-70b").parameters() == 68'976'648'192);
  CHECK(models::named("llama-3-8b").parameters() == 8'030'261'248);
  CHECK(models::named("llama-3-70b").parameters() == 70'553'706'496);
  CHECK(models::named("llama-3-405b").parameters() == 405'853'388'800);
  CHECK(models::named("llama-3.1-405b").parameters() == 405'853'388'800);
  CHECK(models::named("llama-3.3-70b").parameters() == 70'553'706'496);
  CHECK(models::named("llama-3.2-1b").parameters() == 1'235'814'400);
  CHECK(models::named("llama-3.2-3b").parameters() == 3'212'749'824);
  CHECK(models::named("mistral-7b").parameters() == 7'241'732'096);
  // 174.6 billion with 2,048 learned positions, and biases and norms' offsets: 4 of 4H, H and 3H, H
  // in a layer and two of H; its vocabulary of 50,257 is padded.
  CHECK(models::named("gpt-3-175b").parameters() + 12288 * (2048 + 96 * (4 + 1 + 3 + 1 + 2) + 1 - (51200 - 50257)) ==
        174'604'259'328);
  // Without what is not modelled: biases of query, key and value (Qwen2.5), norms of a head's query
  // and key (Qwen3).
  CHECK(models::named("qwen2.5-7b").parameters() + 28 * (3584 + 2 * 512) == 7'615'616'512);
  CHECK(models::named("qwen2.5-14b").parameters() + 48 * (5120 + 2 * 1024) == 14'770'033'664);
  CHECK(models::named("qwen2.5-32b").parameters() + 64 * (5120 + 2 * 1024) == 32'763'876'352);
  CHECK(models::named("qwen2.5-72b").parameters() + 80 * (8192 + 2 * 1024) == 72'706'203'648);
  CHECK(models::named("qwen3-8b").parameters() + 36 * 2 * 128 == 8'190'735'360);
  CHECK(models::named("qwen3-14b").parameters() + 40 * 2 * 128 == 14'768'307'200);
  CHECK(models::named("qwen3-32b").parameters() + 64 * 2 * 128 == 32'762'123'264);
  // With experts, of which a layer's norms of queries and keys are left out too.
  CHECK(models::named("mixtral-8x7b").parameters() == 46'702'792'704);
  CHECK(models::named("mixtral-8x22b").parameters() == 140'620'634'112);
  CHECK(models::named("qwen3-30b-a3b").parameters() + 48 * 2 * 128 == 30'532'122'624);
  CHECK(models::named("qwen3-235b-a22b").parameters() + 94 * 2 * 128 == 235'093'634'560);
  CHECK(models::named("olmoe-1b-7b").parameters() + 16 * 2 * 2048 == 6'919'161'856);
  // Of a DeepSeek-V3 and a Kimi K2 a bias of each expert's choice is left out.
  CHECK(models::named("deepseek-v2-lite").parameters() == 15'706'484'224);
  CHECK(models::named("deepseek-v2").parameters() == 235'741'434'880);
  CHECK(models::named("deepseek-v3").parameters() + 58 * 256 == 671'026'419'200);
  CHECK(models::named("kimi-k2").parameters() + 60 * 384 == 1'026'408'232'448);
  // With biases of Q + 2K, H, the router and experts' matrices, and a sink a head.
  CHECK(models::named("gpt-oss-120b").parameters() == 116'829'156'672);
}

TEST_CASE("models with experts have the published sizes, all and active, in billions") {
  const auto check = [](const char* name, double all, double active, double near) {
    CAPTURE(name);
    const auto model = models::named(name);
    CHECK(static_cast<double>(model.parameters()) == doctest::Approx(all * 1e9).epsilon(0.01));
    CHECK(static_cast<double>(model.active_parameters()) == doctest::Approx(active * 1e9).epsilon(near));
  };
  check("mixtral-8x7b", 46.7, 12.9, 0.01);
  check("mixtral-8x22b", 141, 39, 0.01);
  check("qwen3-30b-a3b", 30.5, 3.35, 0.01);  // published 3.3
  check("qwen3-235b-a22b", 235, 22, 0.01);
  check("olmoe-1b-7b", 6.9, 1.3, 0.02);         // of two digits
  check("deepseek-v2-lite", 15.7, 2.66, 0.01);  // published without embeddings: 2.4
  check("deepseek-v2", 235.7, 21, 0.02);
  check("deepseek-v3", 671.0, 37, 0.02);  // published without embedding
  check("kimi-k2", 1030, 32.6, 0.02);
  check("glm-4.5-air", 106.9, 12 + 1.24, 0.02);  // published without embedding and output
  check("glm-4.5", 352.8, 32 + 1.55, 0.02);
  check("gpt-oss-120b", 116.8, 5.13 + 0.58, 0.01);  // published without embedding
  check("grok-1", 314, 0.25 * 314, 0.07);           // "25 % of the weights", with attention and embedding more
}

TEST_CASE("the paper's models: 48 layers, 32 heads, vocabulary 32000, fp16, tied") {
  const int intermediate[] = {2816, 5632, 11008};  // 8/3 of 1024, 2048, 4096: 2730.7, 5461.3, 10922.7, up to a multiple of 256
  const int hidden[] = {1024, 2048, 4096};
  for (int i = 0; i < 3; ++i) {
    const auto model = models::named(tawpipe::concat("llama-48x", hidden[i]));
    CHECK(model.layers == 48);
    CHECK(model.hidden == hidden[i]);
    CHECK(model.heads == 32);
    CHECK(model.kv_heads == 32);
    CHECK(model.intermediate == intermediate[i]);
    CHECK(model.vocab == 32000);
    CHECK(model.dtype == Dtype::f16);
    CHECK(model.tied);
    CHECK(model.utilization > 0);
    CHECK_FALSE(model.utilization_source.empty());
  }
  // 48 x (4 x 1024^2 + 3 x 1024 x 2816 + 2 x 1024) + 32000 x 1024 + 1024 = 48 x 12847104 +
  // 32768000 + 1024
  CHECK(models::named("llama-48x1024").parameters() == 649'430'016);
}

TEST_CASE("every preset is possible, has its own name and says where it comes from") {
  std::set<std::string> names;
  for (const auto& preset : models::all()) {
    const auto model = preset.make();
    CAPTURE(model.name);
    CHECK_NOTHROW(model.check());
    CHECK(model.name == preset.name);
    CHECK(names.insert(model.name).second);
    CHECK_FALSE(preset.description.empty());
    CHECK_FALSE(preset.source.empty());
    CHECK((model.utilization == 0) == model.utilization_source.empty());
    CHECK(models::named(preset.name).parameters() == model.parameters());
  }
  CHECK(names.size() == 33);
}

TEST_CASE("any llama-LxH is a model of that family") {
  const auto model = models::named("llama-24x512");
  CHECK(model.name == "llama-24x512");
  CHECK(model.layers == 24);
  CHECK(model.hidden == 512);
  CHECK(model.heads == 32);           // heads of 16
  CHECK(model.intermediate == 1536);  // 8/3 of 512 = 1365.3
  CHECK(model.vocab == 32000);
  CHECK(model.tied);
  CHECK(model.utilization == 0);
  CHECK(models::named("llama-2x64").heads == 4);          // below 512: heads of 16
  CHECK(models::named("llama-2x768").heads == 32);        // heads of 24
  CHECK(models::named("llama-2x8192").heads == 32);       // heads of 256
  CHECK(models::named("llama-2x16384").heads == 128);     // above: heads of 128
  CHECK(models::named("llama-96x2048").utilization > 0);  // known for the hidden size, whatever the depth
  CHECK(models::named("llama-1x16").parameters() > 0);
}

TEST_CASE("impossible sizes of llama-LxH are refused") {
  CHECK_THROWS_WITH_AS(models::named("llama-24x500"),
                       "model 'llama-24x500': a hidden size of 500 is not a multiple of 16; the nearest are 496 and 512",
                       InputError);
  CHECK_THROWS_WITH_AS(models::named("llama-24x1000"),
                       "model 'llama-24x1000': a hidden size of 1000 is not a multiple of 32; the nearest are 992 and 1024",
                       InputError);
  CHECK_THROWS_WITH_AS(models::named("llama-24x8200"),
                       "model 'llama-24x8200': a hidden size of 8200 is not a multiple of 128; the nearest are 8192 and 8320",
                       InputError);
  CHECK_THROWS_WITH_AS(models::named("llama-24x3"),
                       "model 'llama-24x3': a hidden size of 3 is not a multiple of 16; the nearest is 16", InputError);
  CHECK_THROWS_WITH_AS(models::named("llama-0x512"), "model 'llama-0x512': the number of layers must be 1 to 4096, not 0",
                       InputError);
  CHECK_THROWS_WITH_AS(models::named("llama-4x0"), "model 'llama-4x0': the hidden size must be 1 to 131072, not 0", InputError);
  CHECK_THROWS_AS(models::named("llama-4x99999999999999999999"), InputError);
  CHECK_THROWS_AS(models::named("llama-99999999999999999999x512"), InputError);
}

TEST_CASE("an unknown name is refused with the nearest presets and the family") {
  CHECK_THROWS_WITH_AS(models::named("llama-3-80b"),
                       "unknown model 'llama-3-80b'; did you mean 'llama-3-8b'? Known: llama-3-8b, llama-3-70b, llama-2-70b, "
                       "llama-3-405b, llama-2-7b, llama-2-13b, llama-3.2-1b, llama-3.2-3b, llama-48x1024, llama-48x2048 and 23 "
                       "more, or any llama-LxH such as llama-24x512",
                       InputError);
  for (const char* wrong : {"", "llama", "llama-", "llama-x", "llama-2x", "llama-x2", "llama-2x-5", "llama-+2x512",
                            "llama-2x512 ", "llama-2X512", "Llama-2-7b", "llama-2x512x3", "llama-3.1-7b", "llama-3.1-"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(models::named(wrong), InputError);
  }
}

TEST_CASE("llama() fills in what is left out") {
  const auto model = models::llama({.layers = 48, .hidden = 1024, .heads = 32, .vocab = 32000});
  CHECK(model.name == "llama-48x1024");
  CHECK(model.kv_heads == 32);
  CHECK(model.intermediate == 2816);
  CHECK_FALSE(model.tied);
  const auto other =
      models::llama({.name = "mine", .layers = 2, .hidden = 64, .heads = 4, .kv_heads = 2, .intermediate = 100, .vocab = 10});
  CHECK(other.name == "mine");
  CHECK(other.kv_heads == 2);
  CHECK(other.intermediate == 100);
  CHECK_THROWS_AS(models::llama({}), InputError);
  CHECK_THROWS_AS(models::llama({.layers = 2, .hidden = 2'000'000'000, .heads = 4, .vocab = 10}), InputError);
}

TEST_CASE("the width of SwiGLU follows LLaMA's rule") {
  CHECK(models::llama_intermediate(4096) == 11008);  // 10922.7
  CHECK(models::llama_intermediate(5120) == 13824);  // 13653.3
  CHECK(models::llama_intermediate(96) == 256);      // 256 exactly
}
