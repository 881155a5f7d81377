// Tests of frameworks/deepspeed.hpp: optimizers, and what is only noted.
// Not: stages and batches (frameworks_test.cpp).
#include "tawpipe/frameworks/deepspeed.hpp"

#include <doctest/doctest.h>

#include <string>

using namespace tawpipe;

namespace deepspeed_test {

namespace {

FrameworkJob job(const std::string& more, const std::string& dtype = "\"bf16\": {\"enabled\": true}") {
  return deepspeed_job(concat("{\"train_batch_size\": 32, \"train_micro_batch_size_per_gpu\": 1, ", dtype,
                              dtype.empty() ? "" : ",", "\n", more, "}"),
                       "ds.json", 16);
}
std::string optimizer(const std::string& type, const std::string& parameters = "") {
  return concat("\"optimizer\": {\"type\": \"", type, "\", \"params\": {\"lr\": 1e-4", parameters, "}}");
}

}  // namespace

TEST_CASE("the optimizer's states are those of its type") {
  CHECK(job(optimizer("AdamW")).optimizer_bytes == 0);
  CHECK(job(optimizer("Lamb")).notes.empty());
  const FrameworkJob lion = job(optimizer("Lion"));
  CHECK(lion.optimizer_bytes == 4 + 4);
  CHECK(lion.notes.empty());
  CHECK(deepspeed_cannot(lion).empty());
  CHECK(job(optimizer("SGD")).optimizer_bytes == 4);
  CHECK(job(optimizer("SGD", ", \"momentum\": 0.0")).optimizer_bytes == 4);
  CHECK(job(optimizer("SGD", ", \"momentum\": 0.9")).optimizer_bytes == 8);
  CHECK(job(optimizer("Lion"), "").optimizer_bytes == 4);  // weights are their own master copy
  const FrameworkJob none = job(optimizer("SGD"), "");
  CHECK(none.optimizer_bytes == 4);
  CHECK(none.notes.size() == 1);
  const FrameworkJob narrow = job(optimizer("Lion") + ", \"zero_optimization\": {\"stage\": 1}",
                                  "\"bf16\": {\"enabled\": true, \"bf16_master_weights_and_grads\": true}");
  CHECK(narrow.optimizer_bytes == 2 + 4);
  const FrameworkJob compressed = job(optimizer("OneBitAdam"));
  REQUIRE(compressed.notes.size() == 1);
  CHECK(compressed.notes[0] == "ds.json, line 2: optimizer.type: simulated as Adam, with two moments and whole messages");
}

TEST_CASE("what changes messages or memory and is not modelled is noted") {
  for (const char* more :
       {"\"communication_data_type\": \"fp32\"", "\"zero_optimization\": {\"stage\": 1, \"reduce_scatter\": false}",
        "\"activation_checkpointing\": {\"partition_activations\": true}", "\"pipeline\": {\"stages\": 4}"}) {
    CAPTURE(std::string{more});
    REQUIRE(job(more).notes.size() == 1);
    CHECK(job(more).notes[0].find("ds.json, line 2: ") == 0);
  }
  CHECK(job("\"communication_data_type\": null, \"zero_optimization\": {\"stage\": 1, \"reduce_scatter\": true}, "
            "\"activation_checkpointing\": {\"partition_activations\": false}, \"pipeline\": {\"stages\": \"auto\"}")
            .notes.empty());
}

TEST_CASE("ZeRO-3's weights and the optimizer's states lie in host memory where a file says so") {
  const auto zero = [](const std::string& stage, const std::string& parameters) {
    return job("\"zero_optimization\": {\"stage\": " + stage +
               ", \"offload_optimizer\": {\"device\": \"cpu\", \"pin_memory\": true}, \"offload_param\": {\"device\": \"" +
               parameters + "\", \"pin_memory\": true}}");
  };
  const FrameworkJob both = zero("3", "cpu");
  CHECK(both.offload == Offload{.weights = true, .optimizer = true});
  CHECK(both.choice.schedule == "fsdp");
  CHECK(both.notes.empty());
  CHECK(deepspeed_cannot(both).empty());
  const std::string text = deepspeed_text(both, {});
  CHECK(text.find("\"offload_param\"") != std::string::npos);
  CHECK(deepspeed_job(text, "written", 16).offload == both.offload);
  CHECK(zero("3", "none").offload == Offload{.optimizer = true});
  const FrameworkJob two = zero("2", "cpu");
  CHECK(two.offload == Offload{.optimizer = true});
  CHECK(two.notes.size() == 1);
  CHECK_THROWS_WITH_AS(zero("3", "nvme"), doctest::Contains("zero_optimization.offload_param.device: drives are not modelled"),
                       InputError);
}

}  // namespace deepspeed_test
