// Tests of models by their vendors' names: parameters, all and active ones, against published counts.
// Not: operations (model_test.cpp) nor other config.json files (huggingface_config_test.cpp).
#include "tawpipe/model/published_models.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/model/huggingface_config.hpp"
#include "tawpipe/model/models.hpp"

using tawpipe::find_published_model;
using tawpipe::resolve_model;

TEST_CASE("total and active parameters of every family are those of its vendor") {
  std::ifstream table{TAWPIPE_TEST_DATA "/models/published.txt"};
  std::string line;
  std::set<std::string> families;
  std::set<std::string> names;
  while (std::getline(table, line)) {
    if (line.starts_with('#')) continue;
    const std::vector<std::string_view> row = tawpipe::split(line, ';');
    REQUIRE(row.size() == 7);
    const std::string name{row[0]};
    CAPTURE(name);
    const auto number = [&](std::size_t column) { return std::stod(std::string{row[column]}); };
    const auto found = find_published_model(name);
    REQUIRE(found);
    const auto off = [](std::int64_t counted, double published) {
      return std::abs(100 * (static_cast<double>(counted) / published - 1));
    };
    CHECK(off(found->decoder.parameters(), number(1)) <= number(2));
    if (number(3) > 0) {
      const auto left_out = static_cast<std::int64_t>(number(5)) * found->decoder.vocab * found->decoder.hidden;
      CHECK(off(found->decoder.active_parameters() - left_out, number(3)) <= number(4));
    }
    if (found->decoder.mtp.empty() &&
        found->unequal.empty()) {  // norms, biases and positions are all that equal layers leave out
      CHECK(off(found->model.parameters(), static_cast<double>(found->decoder.parameters())) <= 1);
    }
    families.insert(found->type);
    names.insert(name);
  }
  CHECK(families.size() >= 60);
  for (const auto& model : tawpipe::detail::published_models) CHECK_MESSAGE(names.contains(std::string{model.name}), model.name);
}

TEST_CASE("a model is known by its vendor's name, however it was tuned, stored or dated") {
  const auto same = [](std::string_view name, std::string_view as) {
    CAPTURE(name);
    const auto found = find_published_model(name);
    REQUIRE(found);
    const auto known = find_published_model(as);
    REQUIRE(known);
    CHECK(found->decoder.parameters() == known->decoder.parameters());
    CHECK(found->decoder.name == known->decoder.name);
  };
  same("Qwen/Qwen3-8B", "qwen3-8b");
  same("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", "qwen3-235b-a22b");
  same("deepseek-ai/DeepSeek-R1-0528", "deepseek-v3");
  same("deepseek-r1", "deepseek-v3");
  same("openai/gpt-oss-20b", "gpt-oss-20b");
  same("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3-8b");
  same("meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama-4-scout");
  same("meta-llama/Llama-2-7b-hf", "llama-2-7b");
  same("google/gemma-3-27b-it", "gemma-3-27b");
  same("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b");
  same("moonshotai/Kimi-K2-Instruct-0905", "kimi-k2");
  same("zai-org/GLM-4.6", "glm-4.5");
  same("nvidia/DeepSeek-R1-NVFP4", "deepseek-v3");
  for (const char* none : {"", "/", "-", "Qwen/", "Qwen/Qwen9-8B", "instruct", "-instruct"})
    CHECK_FALSE(find_published_model(none));

  CHECK(resolve_model("Qwen/Qwen3-4B").parameters() == 4'022'468'096);
  CHECK(resolve_model("microsoft/phi-4").name == "phi-4");
  CHECK_THROWS_WITH_AS(resolve_model("Qwen/Qwen9-8B"), doctest::Contains("unknown model 'Qwen/Qwen9-8B'"), tawpipe::InputError);
  CHECK_THROWS_WITH_AS(resolve_model("./Qwen3-8B"), doctest::Contains("cannot read './Qwen3-8B'"), tawpipe::InputError);
}
