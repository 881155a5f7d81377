// Tests of frameworks/toml_settings.hpp and frameworks/json_settings.hpp: names, values and lines
// of settings.
// Not: what they mean (torchtitan_test.cpp, deepspeed_test.cpp).
#include "tawpipe/frameworks/toml_settings.hpp"

#include <doctest/doctest.h>

#include <string>

#include "tawpipe/frameworks/json_settings.hpp"

using namespace tawpipe;

namespace toml_settings_test {

namespace {

/// "3: training.seq_len = 4096" for each.
std::string shown(const SettingsText& found) {
  std::string text;
  for (const Setting& setting : found.settings)
    text += concat(setting.line, ": ", setting.name, " = ", join(setting.values, " "), "\n");
  return text;
}
std::string toml(const std::string& text) {
  try {
    return shown(toml_settings(text, "job.toml"));
  } catch (const InputError& error) {
    return error.what();
  }
}
std::string json_of(const std::string& text) {
  try {
    return shown(json_settings(text, "ds.json"));
  } catch (const InputError& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("TOML's sections, comments, quotes, numbers and lists") {
  CHECK(
      toml("# a job\n[training]\nseq_len = 8_192 # tokens\n\n[ parallelism ]\n"
           "pipeline_parallel_schedule = \"1F1B\"\n'tensor_parallel_degree' = 8\n"
           "list = [\n  \"a\", # one\n  'b',\n]\nempty = []\n[a.b]\nc.d = true\ntext = \"\"\"\nx\ny\"\"\"\nlast = -1\n") ==
      "3: training.seq_len = 8192\n6: parallelism.pipeline_parallel_schedule = 1F1B\n7: parallelism.tensor_parallel_degree = 8\n"
      "8: parallelism.list = a b\n12: parallelism.empty = \n14: a.b.c.d = true\n15: a.b.text = x\ny\n18: a.b.last = -1\n");
}

TEST_CASE("what is not TOML, or is not read, is named with its line") {
  CHECK(toml("[a]\nb 3\n") == "job.toml, line 2: expected '=', not '3'");
  CHECK(toml("[a]\nb = \n") == "job.toml, line 2: a value is missing");
  CHECK(toml("[a\nb = 1\n") == "job.toml, line 1: expected ']'");
  CHECK(toml("a = [1, 2\n") == "job.toml, line 1: the list [ has no end");
  CHECK(toml("a = \"x\n") == "job.toml, line 1: a quote has no end");
  CHECK(toml("\na = {b = 1}\n") == "job.toml, line 2: an inline table {...} is not read");
  CHECK(toml("[[a]]\n") == "job.toml, line 1: an array of tables [[...]] is not read");
  CHECK(toml("[a]\nb = 1\nc = 2\nb = 3\n") == "job.toml, line 4: a.b stands in line 2 already");
  CHECK(toml("a = 1 2 b = 3\n[x] y\n").find("job.toml, line 2: expected the end of the line") == 0);
}

TEST_CASE("JSON's objects, with their lines") {
  CHECK(json_of("{\n \"train_batch_size\": 32,\n \"bf16\": {\"enabled\": true},\n \"zero_optimization\": {\n  \"stage\": 2,\n"
                "  \"offload_optimizer\": {\n\"device\": \"cpu\"}\n },\n \"x\": [1, [2], {\"y\": \"}\"}]\n}\n") ==
        "2: train_batch_size = 32\n3: bf16.enabled = true\n5: zero_optimization.stage = 2\n"
        "7: zero_optimization.offload_optimizer.device = cpu\n9: x = 1 2 {...}\n");
  CHECK(json_of("{}").empty());
  CHECK(json_of("{\"a\": }").find("ds.json: not JSON: line 1") == 0);
  CHECK(json_of("[1]").find("expected an object") != std::string::npos);
  CHECK(json_of("{\"a\": 1, \"a\": 2}").find("stands twice") != std::string::npos);
}

}  // namespace toml_settings_test
