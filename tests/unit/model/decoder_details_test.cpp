// Tests of what decoders have beside LLaMA's matrices: windows, biases, norms of queries and keys, the
// gate of a shared expert, and notes of a config.json.
// Not: its keys one by one (tests/properties/config_keys_test.cpp).
#include <doctest/doctest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/model/huggingface_config.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/model/parameters.hpp"
#include "tawpipe/model/transformer_body.hpp"
#include "tawpipe/model/transformer_work.hpp"

using tawpipe::Batch;
using tawpipe::ContextExchange;
using tawpipe::InputError;
using tawpipe::Kernel;
using tawpipe::QkNorm;
using tawpipe::Recompute;
using tawpipe::Transformer;

namespace {

Transformer mistral() { return tawpipe::read_huggingface_config(TAWPIPE_TEST_DATA "/models/mistral_window.json").model; }

Transformer small() {
  return {.name = "small", .layers = 2, .hidden = 64, .heads = 4, .kv_heads = 2, .intermediate = 96, .vocab = 500};
}

/// Operations a token, forward and backward.
double operations(const Transformer& model, std::int64_t sequence) {
  const Batch batch{.sequence = sequence, .microbatch_size = 1, .global_batch = 1};
  const auto work = transformer_work(model, batch, Recompute::none, 0, model.layers, true, true);
  return (work.forward + work.backward_input + work.backward_weight).value() / static_cast<double>(sequence);
}

Transformer model_in(std::string_view text) { return tawpipe::parse_huggingface_config(text, "c", "m").model; }

std::string llama(std::string_view more) {
  return tawpipe::concat(R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
      "intermediate_size": 176, "vocab_size": 500)",
                         more, "}");
}

}  // namespace

TEST_CASE("a window bounds the tokens that a token attends to") {
  const Transformer model = mistral();
  CHECK(model.window == 4096);
  CHECK(operations(model, 32768) == doctest::Approx(4.87e10).epsilon(0.02));
  Transformer full = model;
  full.window = 0;
  CHECK(operations(full, 32768) == doctest::Approx(6.84e10).epsilon(0.01));
  CHECK(operations(model, 4096) == operations(full, 4096));
  CHECK(operations(model, 4097) < operations(full, 4097));

  const Batch batch{.sequence = 32768, .microbatch_size = 1, .global_batch = 1};
  for (const Transformer& one : {model, full}) {
    const double span = one.window > 0 ? 2 * 4096 - 512 : 32768;  // (2S - W) W / S
    const auto work = transformer_work(one, batch, Recompute::none, 0, 1, false, false);
    double flops = 0;
    for (const Kernel& kernel : work.kernels) {
      if (kernel.kind == Kernel::Kind::attention) flops += kernel.flops();
    }
    CHECK(flops == doctest::Approx(2 * 32768.0 * span * 4096));
  }
}

TEST_CASE("a window is not computed by blocks, latent or unfused attention") {
  const Transformer model = mistral();
  const Batch batch{.sequence = 8192, .microbatch_size = 1, .global_batch = 1};
  const std::vector stages{transformer_work(model, batch, Recompute::none, 0, 1, false, false)};
  tawpipe::Sharing sharing{.tensor = 1, .context = 2};
  for (const auto exchange : {ContextExchange::all_gather, ContextExchange::all_to_all}) {
    sharing.exchange = exchange;
    CHECK_NOTHROW(share_stages(model, batch, Recompute::none, stages, sharing));
  }
  sharing.exchange = ContextExchange::ring;
  CHECK_THROWS_WITH_AS(share_stages(model, batch, Recompute::none, stages, sharing),
                       "context exchange ring has no attention within a window; use all-gather or all-to-all", InputError);
  Transformer unfused = model;
  unfused.fused_attention = false;
  CHECK_THROWS_AS(unfused.check(), InputError);
}

TEST_CASE("biases, norms and gates are counted as published, and each has a tensor") {
  CHECK(model_in(R"({"model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16,
                  "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072, "vocab_size": 151936,
                  "tie_word_embeddings": true})")
            .parameters() == 596'049'920);  // Qwen3-0.6B
  CHECK(model_in(R"({"model_type": "qwen2_moe", "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 16,
                  "num_key_value_heads": 16, "intermediate_size": 5632, "moe_intermediate_size": 1408, "num_experts": 60,
                  "num_experts_per_tok": 4, "shared_expert_intermediate_size": 5632, "vocab_size": 151936})")
            .parameters() == 14'315'784'192);  // Qwen1.5-MoE-A2.7B
  CHECK(model_in(R"({"model_type": "olmoe", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 16,
                  "intermediate_size": 1024, "num_experts": 64, "num_experts_per_tok": 8, "vocab_size": 50304})")
            .parameters() == 6'919'161'856);  // OLMoE-1B-7B

  Transformer model = small();
  model.qkv_bias = model.output_bias = model.mlp_bias = true;
  for (const QkNorm norm : {QkNorm::none, QkNorm::head, QkNorm::width}) {
    model.qk_norm = norm;
    const auto tensors = tawpipe::ParameterOrder{model}.tensors();
    CHECK(tensors.back().range.end == model.parameters());
    for (const auto& tensor : tensors) {
      CHECK(tensor.range.count() ==
            std::accumulate(tensor.shape.begin(), tensor.shape.end(), std::int64_t{1}, std::multiplies<std::int64_t>{}));
    }
  }
}

TEST_CASE("norms of queries and keys keep and move their numbers") {
  const Batch batch{.sequence = 128, .microbatch_size = 2, .global_batch = 2};
  const auto of = [&](const Transformer& model) { return transformer_work(model, batch, Recompute::none, 0, 1, false, false); };
  Transformer normed = small();
  normed.qk_norm = QkNorm::head;
  const auto with = of(normed);
  const auto without = of(small());
  CHECK((with.saved - without.saved).value() == 256 * (2 * (64 + 32) + 4 * (4 + 2)));  // and 1/RMS of each head
  CHECK((with.forward_traffic - without.forward_traffic).value() == 256 * 2 * 2 * (64 + 32));
  CHECK(with.forward.value() == without.forward.value());
}

TEST_CASE("what a config.json leaves to assumptions is noted") {
  CHECK(model_in(llama("")).notes.empty());
  const auto stored = model_in(llama(R"(, "torch_dtype": "float32")"));
  CHECK(stored.dtype == tawpipe::Dtype::bf16);
  CHECK(stored.notes == std::vector<std::string>{"torch_dtype: the weights are stored in float32; training is taken to be in "
                                                 "bfloat16 (--dtype says otherwise)"});
  CHECK(model_in(llama(R"(, "torch_dtype": "float16")")).dtype == tawpipe::Dtype::f16);
  const auto further = tawpipe::parse_huggingface_config(llama(R"(, "num_nextn_predict_layers": 1)"), "further", "further");
  CHECK(further.model.notes.empty());
  CHECK(further.not_computed.at(0).starts_with("num_nextn_predict_layers: 1 layer that predicts further tokens"));
  CHECK(timed_model(further).parameters() == further.decoder.parameters());
  CHECK(timed_model(further).mtp_parameters() > 0);
}
