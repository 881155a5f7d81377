// Tests of a decoder with experts in every layer: parameters, operations, kernels, activations, and
// what is refused.
// Not: known models (models_test.cpp) nor config files (huggingface_config_test.cpp).
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support/body_sums.hpp"
#include "support/layer_bytes.hpp"
#include "support/refusal.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/model/parameters.hpp"
#include "tawpipe/model/transformer.hpp"
#include "tawpipe/model/transformer_body.hpp"
#include "tawpipe/model/transformer_work.hpp"

namespace experts_test {

using doctest::Approx;
using tawpipe::Batch;
using tawpipe::Bytes;
using tawpipe::Kernel;
using tawpipe::KernelPass;
using tawpipe::Recompute;
using tawpipe::StageWork;
using tawpipe::Transformer;

namespace {

/// H = 8, Q = 8, K = 4, V = 10; E = 4 experts of I = 12, k = 2 a token, one of J = 6 for all: a
/// token passes kI + J = 30. A layer's matrices: attention 192, router 8 x 4 = 32, MLPs
/// 3 x 8 x (48 + 6) = 1296, of which a token passes 3 x 8 x 30 = 720.
const Transformer tiny{.name = "tiny",
                       .layers = 2,
                       .hidden = 8,
                       .heads = 4,
                       .kv_heads = 2,
                       .intermediate = 12,
                       .vocab = 10,
                       .dtype = tawpipe::Dtype::f16,
                       .experts = 4,
                       .experts_per_token = 2,
                       .shared_width = 6};
/// 2 sequences of 6 tokens: T = 12, so T k / E = 6 for each expert.
const Batch batch{.sequence = 6, .microbatch_size = 2, .global_batch = 8};

StageWork whole(const Transformer& model, Recompute recompute = Recompute::none) {
  return tawpipe::transformer_work(model, batch, recompute, 0, model.layers, true, true);
}

double flops(const StageWork& work, KernelPass pass, int tensor = 1, int context = 1) {
  double sum = 0;
  for (const Kernel& kernel : work.kernels) {
    if (kernel.pass == pass) sum += kernel.count * kernel.split(tensor, context).flops();
  }
  return sum;
}

/// The products of a pass that are a batch of `matrices`.
std::vector<Kernel> products(const StageWork& work, KernelPass pass, std::int64_t matrices) {
  std::vector<Kernel> found;
  for (const Kernel& kernel : work.kernels) {
    if (kernel.kind == Kernel::Kind::product && kernel.pass == pass && kernel.batch == matrices) found.push_back(kernel);
  }
  return found;
}
Kernel router(const StageWork& work, KernelPass pass = KernelPass::forward) {
  for (const Kernel& kernel : work.kernels) {
    if (kernel.by_tokens && kernel.pass == pass) return kernel;
  }
  FAIL("no router");
  return {};
}

void check_shape(const Kernel& kernel, std::int64_t m, std::int64_t n, std::int64_t k) {
  CHECK(kernel.m == m);
  CHECK(kernel.n == n);
  CHECK(kernel.k == k);
}

std::string refusal(const Transformer& model) {
  return support::refusal([&] { model.check(); });
}

}  // namespace

TEST_CASE("a layer has all experts, and a token passes some of them") {
  CHECK(tiny.is_routed());
  CHECK(tiny.token_width() == 30);
  CHECK(tiny.mlp_width() == 54);
  CHECK(tiny.routed_copies() == 16);
  CHECK(tiny.layer_matrix_parameters() == 192 + 32 + 1296);
  CHECK(tiny.token_matrix_parameters() == 192 + 32 + 720);
  CHECK(tiny.layer_parameters() == 1520 + 16);
  CHECK(tiny.parameters() == 2 * 1536 + 80 + 88);
  CHECK(tiny.active_parameters() == 3240 - 2 * (1296 - 720));
  Transformer model = tiny;
  model.gated = false;
  CHECK(model.layer_matrix_parameters() == 192 + 32 + 2 * 8 * 54);
  model = tiny;
  model.experts = model.experts_per_token = model.shared_width = 0;
  CHECK_FALSE(model.is_routed());
  CHECK(model.token_width() == 12);
  CHECK(model.mlp_width() == 12);
  CHECK(model.routed_copies() == 0);
  CHECK(model.active_parameters() == model.parameters());
}

TEST_CASE("numbers of experts that cannot be are refused") {
  CHECK(refusal(tiny).empty());
  const auto with = [](auto change) {
    Transformer model = tiny;
    change(model);
    return refusal(model);
  };
  CHECK(with([](auto& m) { m.experts = 0; }) == "model 'tiny': 2 experts a token, but no experts");
  CHECK(with([](auto& m) { m.experts = m.experts_per_token = 0; }) ==
        "model 'tiny': a shared expert of width 6, but no experts beside it");
  CHECK(with([](auto& m) { m.experts = -1; }) == "model 'tiny': the number of experts must be 1 to 4096, not -1");
  CHECK(with([](auto& m) { m.experts = 4097; }) == "model 'tiny': the number of experts must be 1 to 4096, not 4097");
  CHECK(with([](auto& m) { m.experts_per_token = 0; }) == "model 'tiny': the number of experts a token must be 1 to 4, not 0");
  CHECK(with([](auto& m) { m.experts_per_token = 5; }) == "model 'tiny': the number of experts a token must be 1 to 4, not 5");
  CHECK(with([](auto& m) { m.experts_per_token = 4; }).empty());
  CHECK(with([](auto& m) { m.expert_groups = 3; }) == "model 'tiny': 3 groups do not divide the 4 experts equally");
  CHECK(with([](auto& m) { m.groups_per_token = 2; }) == "model 'tiny': the number of groups a token must be 1 to 1, not 2");
  CHECK(with([](auto& m) { m.expert_groups = 4; }) == "model 'tiny': 1 of 4 groups have fewer than the 2 experts a token");
  CHECK(with([](auto& m) { m.shared_width = -1; }) == "model 'tiny': a shared expert of width -1 is impossible; 0 is none");
  CHECK(with([](auto& m) { m.experts = 4096, m.intermediate = 2048; }) ==
        "model 'tiny': 4096 experts of width 2048 are too wide together; the most is 4194304");
  CHECK(with([](auto& m) { m.intermediate = 1 << 18; }) ==
        "model 'tiny': 2 experts a token are too wide together; the most is 524288");
  CHECK(with([](auto& m) { m.hidden = 1 << 17, m.experts = m.experts_per_token = 8; }) ==
        "model 'tiny': 8 experts a token are too wide together; the most is 524288");
  CHECK(with([](auto& m) { m.code = tawpipe::LayerCode::torchtitan; }) ==
        "model 'tiny': experts are known as Megatron-LM runs them, not with the layers' code torchtitan");
  CHECK(with([](auto& m) { m.code = tawpipe::LayerCode::megatron_unfused; }).empty());
  CHECK(with([](auto& m) { m.fused_attention = false; }) ==
        "model 'tiny': experts come with fused attention; code with unfused attention (2021 and 2022) has none");
}

TEST_CASE("operations are those of the experts that tokens pass") {
  const StageWork work = whole(tiny);
  const double matrices = 2 * 944 * 12;
  const double attention = 1152;  // 4 x 6 x 6 x 8 / 2, of two sequences
  const double logits = 1920;
  CHECK(work.forward.value() == 2 * (matrices + attention) + logits);
  CHECK(work.backward_input.value() == 2 * (matrices + 2 * attention) + logits);
  CHECK(work.backward_weight.value() == 2 * matrices + logits);
  CHECK(work.parameters == 2 * 1536);
  CHECK(whole(tiny, Recompute::full).recompute.value() == 2 * (matrices + attention));
  CHECK(whole(tiny, Recompute::selective).recompute.value() == 2 * attention);
  Transformer model = tiny;
  model.recompute_parts = {.mlp = true};  // router and MLPs
  CHECK(whole(model, Recompute::selective).recompute.value() == 2 * 2 * 12 * (32 + 720));
  model.early_stop = true;  // all but the experts' last products; the shared expert runs before them
  CHECK(whole(model, Recompute::full).recompute.value() == 2 * (matrices + attention - 2 * 12 * 8 * 24));
}

TEST_CASE("traffic has the copies of tokens, their sum, and the router's softmax") {
  // 10H + 2(Q + K) + 3 x 30, 2(k + 1)H + 5E = 68, and the sum with the shared expert 3H; 12H + 2(Q + K) +
  // 5 x 30 + 68 + 3H; at 2 bytes
  const auto traffic = [](const Transformer& model, Recompute recompute) {
    const StageWork layer = tawpipe::layer_stack(model, batch, recompute).layer;
    return std::pair{layer.forward_traffic.value(), layer.backward_traffic.value()};
  };
  const auto [forward, backward] = traffic(tiny, Recompute::none);
  CHECK(forward == 12 * 2 * (80 + 24 + 90 + 68 + 24));
  CHECK(backward == 12 * 2 * (96 + 24 + 150 + 68 + 24));
  CHECK(traffic(tiny, Recompute::full).second == backward + forward);
  Transformer model = tiny;
  model.recompute_parts = {.mlp = true};
  CHECK(traffic(model, Recompute::selective).second == backward + 12 * 2 * (90 + 68 + 24));
}

TEST_CASE("experts' products are one batch, each of the tokens that an expert gets") {
  const StageWork work = whole(tiny);
  const auto forward = products(work, KernelPass::forward, 4);
  REQUIRE(forward.size() == 2);
  check_shape(forward[0], 6, 24, 8);  // gate and up
  check_shape(forward[1], 6, 8, 12);
  CHECK(forward[0].count == 2);
  const auto input = products(work, KernelPass::backward_input, 4);
  REQUIRE(input.size() == 2);
  check_shape(input[0], 6, 8, 24);
  check_shape(input[1], 6, 12, 8);
  const auto weight = products(work, KernelPass::backward_weight, 4);
  REQUIRE(weight.size() == 2);
  check_shape(weight[0], 24, 8, 6);
  check_shape(weight[1], 8, 12, 6);
  Transformer model = tiny;
  model.experts = 5;  // 24 / 5 tokens
  CHECK(products(whole(model), KernelPass::forward, 5).front().m == 5);
}

TEST_CASE("kernels with experts do the operations of the stage, and ranks divide them") {
  Transformer model = tiny;
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    for (const bool mlp : {false, true}) {
      model.recompute_parts = {.mlp = mlp};
      const StageWork work = whole(model, recompute);
      CHECK(flops(work, KernelPass::forward) == Approx(work.forward.value()));
      CHECK(flops(work, KernelPass::recompute) == Approx(work.recompute.value()));
      CHECK(flops(work, KernelPass::backward_input) == Approx(work.backward_input.value() + 0.5 * 2 * 1152));
      CHECK(flops(work, KernelPass::backward_weight) == Approx(work.backward_weight.value()));
      for (const KernelPass pass :
           {KernelPass::forward, KernelPass::recompute, KernelPass::backward_input, KernelPass::backward_weight}) {
        CHECK(flops(work, pass, 2) == Approx(flops(work, pass) / 2));
        CHECK(flops(work, pass, 2, 2) == Approx(flops(work, pass) / 4));
      }
    }
  }
}

TEST_CASE(
    "tensor-parallel ranks divide a router's tokens only with sequence parallelism, and products in 8 bits leave it in 16") {
  Transformer model = tiny;
  model.products = tawpipe::ProductFormat::fp8;
  const StageWork work = whole(model);
  check_shape(router(work), 12, 4, 8);
  check_shape(router(work).split(2, 1), 6, 4, 8);
  check_shape(router(work).split(2, 1, false), 12, 4, 8);
  check_shape(router(work).split(2, 2, false), 6, 4, 8);
  check_shape(router(work, KernelPass::backward_weight).split(2, 1), 4, 8, 6);
  check_shape(router(work, KernelPass::backward_weight).split(2, 1, false), 4, 8, 12);
  CHECK(router(work).format == tawpipe::ProductFormat::bits16);
  for (const Kernel& kernel : products(work, KernelPass::forward, 4)) CHECK(kernel.format == tawpipe::ProductFormat::fp8);
}

TEST_CASE("a layer keeps the copies that experts read, and the router's probabilities") {
  const auto saved = [](const Transformer& model, Recompute recompute) {
    return support::layer_bytes(model, batch, recompute).saved;
  };
  // 4H = 32, 2Q = 16, 2K = 8, 4 x 30 = 120, kH = 16: 192 numbers of 2 bytes; two rstd 8,
  // log-sum-exps 16, probabilities 4E = 16
  CHECK(saved(tiny, Recompute::none) == 424 * 12);
  // 2H = 16, Q = 8, 2K = 8, 2 x 30 = 60, kH = 16: 108 numbers, and 4E
  CHECK(saved(tiny, Recompute::selective) == (216 + 16) * 12);
  CHECK(saved(tiny, Recompute::full) == 16 * 12);
  Transformer model = tiny;
  model.recompute_parts = {.mlp = true};
  CHECK(saved(model, Recompute::selective) == (424 - 2 * (120 + 16) - 16) * 12);
  model.recompute_parts = {.activation = true};
  CHECK(saved(model, Recompute::selective) == (424 - 2 * 60) * 12);
  model.recompute_parts = {.layernorm = true};
  CHECK(saved(model, Recompute::selective) == (424 - 2 * 16 - 8) * 12);
  // In 8 bits: the first normed H, the product of 30 and the copies at a byte less; the attention's
  // output and the shared expert's H once more, at a byte. The router's normed H stays.
  model = tiny;
  model.products = tawpipe::ProductFormat::fp8;
  CHECK(saved(model, Recompute::none) == (424 - 8 - 30 - 16 + 8 + 8) * 12);
  // Gradients in flight: H, three of 30, and the copies'.
  CHECK(support::layer_bytes(tiny, batch, Recompute::none).backward_workspace == 2 * (8 + 90 + 16) * 12);
  // 3H + 2Q + 2K + 3 x 30 + kH, and for each of 2 sequences two rows of H in float32
  CHECK(support::stash_bytes(tiny, batch, Recompute::full, 2, false) == 2 * (2 * 154 * 12 + 128));
}

TEST_CASE("a tensor-parallel rank has all copies, and gathers tokens for experts before the cast") {
  Transformer model = tiny;
  const tawpipe::Sharing sharing{.tensor = 2, .sequence_parallel = true};
  const auto shared = [&](Recompute recompute) {
    const StageWork work = whole(model, recompute);
    return tawpipe::share_stages(model, batch, recompute, std::vector{work}, sharing).front();
  };
  const auto part = shared(Recompute::none);
  CHECK(support::flops(part.forward) == Approx(whole(model).forward.value() / 2));
  CHECK(support::flops(part.backward) == Approx((whole(model).backward_input + whole(model).backward_weight).value() / 2));
  // Half of all, and of each layer the other half of kH numbers of 2 bytes.
  CHECK(part.work.saved == Bytes{whole(model).saved.value() / 2 + 2 * 12 * 16});
  CHECK(shared(Recompute::full).work.saved == Bytes{whole(model, Recompute::full).saved.value() / 2});

  model.products = tawpipe::ProductFormat::fp8;
  std::int64_t gathered = 0;
  for (const auto& step : shared(Recompute::none).forward) {
    if (step.kind == tawpipe::BodyStep::Kind::all_gather) gathered += step.bytes.value();
  }
  CHECK(gathered == 2 * 12 * 8 * (1 + 2) + 12 * 8 * 2);  // attention's, experts'; the head's
}

TEST_CASE("bodies with experts move and compute what their stage does") {
  Transformer model = tiny;
  model.hidden = 64;
  model.intermediate = 128;
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    for (const int ranks : {1, 2, 4}) {
      for (const bool again : {false, true}) {
        model.recompute_parts = {.mlp = again};
        model.early_stop = again;
        const tawpipe::Sharing sharing{.tensor = ranks, .context = ranks == 4 ? 1 : 2};
        const auto part = tawpipe::share_stages(model, batch, recompute, std::vector{whole(model, recompute)}, sharing).front();
        CHECK(support::flops(part.forward) == Approx(part.work.forward.value()));
        CHECK(support::flops(part.backward) ==
              Approx((part.work.recompute + part.work.backward_input + part.work.backward_weight).value()));
        CHECK(support::traffic(part.forward) == Approx(static_cast<double>(part.work.forward_traffic.value())).epsilon(1e-3));
        CHECK(support::traffic(part.backward) == Approx(static_cast<double>(part.work.backward_traffic.value())).epsilon(1e-3));
      }
    }
  }
}

TEST_CASE("tensors of a layer with experts follow each other, by name") {
  const auto tensors = tawpipe::ParameterOrder{tiny}.tensors();
  REQUIRE(tensors.size() == 1 + 2 * (4 + 1 + 3 * 4 + 3 + 2) + 2);
  std::int64_t at = 0;
  for (const auto& tensor : tensors) {
    CHECK(tensor.range.begin == at);
    at = tensor.range.end;
  }
  CHECK(at == tiny.parameters());
  CHECK(tensors[5].name == "decoders.0.feed_forward.gate.weight");
  CHECK(tensors[5].shape == std::vector<std::int64_t>{4, 8});
  CHECK(tensors[6].name == "decoders.0.feed_forward.experts.0.w1.weight");
  CHECK(tensors[6].shape == std::vector<std::int64_t>{12, 8});
  CHECK(tensors[16].name == "decoders.0.feed_forward.experts.3.w2.weight");
  CHECK(tensors[16].shape == std::vector<std::int64_t>{8, 12});
  CHECK(tensors[20].name == "decoders.0.feed_forward.shared_experts.w3.weight");
  CHECK(tensors[20].shape == std::vector<std::int64_t>{6, 8});
  CHECK(tensors[21].name == "decoders.0.attention_norm.weight");
  CHECK(tensors[22].range.end == 80 + tiny.layer_parameters());
}

TEST_CASE("nothing overflows at the limits of experts") {
  // E I + J <= 2^22, k I + J = 2^19, k H = 2^19
  const Transformer model{.name = "limit",
                          .layers = Transformer::max_layers,
                          .hidden = Transformer::max_hidden,
                          .heads = Transformer::max_hidden,
                          .kv_heads = Transformer::max_hidden,
                          .intermediate = 1,
                          .vocab = Transformer::max_vocab,
                          .dtype = tawpipe::Dtype::f64,
                          .experts = Transformer::max_experts,
                          .experts_per_token = 4,
                          .shared_width = Transformer::max_intermediate - 4};
  const Batch most{.sequence = Batch::max_tokens, .microbatch_size = 1, .global_batch = Batch::max_global_batch};
  const double tokens = static_cast<double>(most.sequence);
  const double h = model.hidden;
  const double i = Transformer::max_intermediate;
  const double v = model.vocab;
  const double e = model.experts;
  for (const auto recompute : {Recompute::none, Recompute::full}) {
    const StageWork work = tawpipe::transformer_work(model, most, recompute, 0, model.layers, true, true);
    const double routing = 2 * 5 * h + 5 * e + 3 * h;  // and the sum with the shared expert
    const double again = recompute == Recompute::full ? 14 * h + 3 * i + routing : 0;
    const double backward = 8 * model.layers * (16 * h + 5 * i + routing + again) + 3 * 8 * h + 3 * 8 * h + 32 * v;
    CHECK(static_cast<double>(work.backward_traffic.value()) == Approx(tokens * backward).epsilon(1e-9));
    const double kept = recompute == Recompute::full ? 8 * h : 8 * (8 * h + 4 * i + 4 * h) + 8 + 4 * h + 4 * e;
    CHECK(static_cast<double>(work.saved.value()) == Approx(tokens * (model.layers * kept + 16 * h + 4 + 8 * v)).epsilon(1e-9));
    CHECK(work.backward_workspace > Bytes{0});
  }
}

}  // namespace experts_test
