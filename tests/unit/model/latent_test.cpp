// Tests of latent attention and of first layers without experts: parameters, operations, kernels,
// activations, ranks' parts, and what is refused.
// Not: known models (models_test.cpp) nor config files (huggingface_config_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "support/body_sums.hpp"
#include "support/layer_bytes.hpp"
#include "support/refusal.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/model/parameters.hpp"
#include "tawpipe/model/transformer.hpp"
#include "tawpipe/model/transformer_body.hpp"
#include "tawpipe/model/transformer_work.hpp"

namespace latent_test {

using doctest::Approx;
using support::flops;
using support::traffic;
using tawpipe::Batch;
using tawpipe::BodyStep;
using tawpipe::Kernel;
using tawpipe::KernelPass;
using tawpipe::Recompute;
using tawpipe::Sharing;
using tawpipe::StageBody;
using tawpipe::StageWork;
using tawpipe::Transformer;

namespace {

/// H = 16, 4 heads of 6 + 2 numbers, so Q = 32, values of 4 each, so 16; short vectors of 12, and
/// of 8 with 2 turned numbers. Attention's matrices: 16 x 12 + 12 x 32, 16 x 10 + 8 x (24 + 16),
/// 16 x 16 = 1312.
const Transformer latent{.name = "latent",
                         .layers = 5,
                         .hidden = 16,
                         .heads = 4,
                         .kv_heads = 4,
                         .intermediate = 24,
                         .vocab = 10,
                         .dtype = tawpipe::Dtype::f16,
                         .head_dim = 8,
                         .query_rank = 12,
                         .key_value_rank = 8,
                         .rope_width = 2,
                         .value_size = 4};

/// The same with 4 experts of 24, two a token, and one of 8 for all; the first two layers have one
/// MLP of 40.
Transformer mixed() {
  Transformer model = latent;
  model.name = "mixed";
  model.experts = 4;
  model.experts_per_token = 2;
  model.shared_width = 8;
  model.dense_layers = 2;
  model.dense_width = 40;
  return model;
}
/// The same without latent attention.
Transformer grouped() {
  Transformer model = mixed();
  model.name = "grouped";
  model.kv_heads = 2;
  model.query_rank = model.key_value_rank = model.rope_width = model.value_size = 0;
  return model;
}
Transformer without_short_queries() {
  Transformer model = mixed();
  model.query_rank = 0;
  return model;
}
std::vector<Transformer> models() { return {latent, mixed(), grouped(), without_short_queries()}; }

const Batch batch{.sequence = 6, .microbatch_size = 2, .global_batch = 8};

double kernel_flops(const StageWork& work, KernelPass pass, const tawpipe::KernelSplit& split = {}) {
  double sum = 0;
  for (const Kernel& kernel : work.kernels) {
    if (kernel.pass == pass) sum += kernel.count * kernel.split(split).flops();
  }
  return sum;
}
std::int64_t gathered(const StageBody& body) {
  std::int64_t sum = 0;
  for (const BodyStep& step : body) sum += step.kind == BodyStep::Kind::all_gather ? step.bytes.value() : 0;
  return sum;
}

std::string refusal(Transformer model, void (*change)(Transformer&)) {
  change(model);
  return support::refusal([&] { model.check(); });
}

}  // namespace

TEST_CASE("latent attention has matrices to short vectors and from them, and their norms") {
  CHECK(latent.is_latent());
  CHECK(latent.query_width() == 32);
  CHECK(latent.value_width() == 16);
  CHECK(latent.key_width() == 24);
  CHECK(latent.latent_width() == 22);
  CHECK(latent.attention_parameters() == 1312);
  CHECK(latent.layer_parameters() == 1312 + 3 * 16 * 24 + 2 * 16 + 12 + 8);
  CHECK(without_short_queries().attention_parameters() == 16 * 32 + 16 * 10 + 8 * 40 + 16 * 16);
  CHECK(latent.key_width_of_rank(2) == 12);
  CHECK(latent.key_width_of_rank(4) == 6);
  CHECK(grouped().key_width_of_rank(4) == 8);  // a head
}

TEST_CASE("first layers without experts have one MLP of their own width") {
  const Transformer model = mixed();
  const std::int64_t norms = 2 * 16 + 12 + 8;
  const std::int64_t dense = 1312 + norms + 3 * 16 * 40;
  const std::int64_t routed = 1312 + norms + 16 * 4 + 3 * 16 * (4 * 24 + 8);
  CHECK(model.of_dense_layers().layer_parameters() == dense);
  CHECK(model.layer_parameters() == routed);
  CHECK(model.all_layer_parameters() == 2 * dense + 3 * routed);
  CHECK(model.parameters() == 2 * dense + 3 * routed + 2 * 160 + 16);
  CHECK(model.active_parameters() == model.parameters() - 3 * 3 * 16 * 2 * 24);
}

TEST_CASE("sizes of latent attention that cannot be are refused") {
  const auto with = [](void (*change)(Transformer&)) { return refusal(latent, change); };
  CHECK(with([](auto&) {}).empty());
  CHECK(with([](auto& m) { m.query_rank = 0; }).empty());
  CHECK(with([](auto& m) { m.rope_width = 0; }).empty());
  CHECK(with([](auto& m) { m.key_value_rank = 0; }) == "model 'latent': parts of latent attention, but no key_value_rank");
  CHECK(with([](auto& m) { m.key_value_rank = 1 << 18; }) ==
        "model 'latent': the rank of keys and values must be 1 to 131072, not 262144");
  CHECK(with([](auto& m) { m.value_size = 0; }) == "model 'latent': the size of a value's head must be 1 to 131072, not 0");
  CHECK(with([](auto& m) { m.query_rank = -1; }) == "model 'latent': a rank of queries of -1 is impossible; 0 is none");
  CHECK(with([](auto& m) { m.rope_width = 9; }) == "model 'latent': a turned part of 9 is impossible; a head has 8");
  CHECK(with([](auto& m) { m.kv_heads = 2; }) == "model 'latent': latent attention has as many key-value heads as heads");
  CHECK(with([](auto& m) { m.value_size = 5; }) ==
        "model 'latent': heads of 8 and values of 5 have no whole mean; choose both even or both odd");
  CHECK(with([](auto& m) { m.value_size = 1 << 16; }) ==
        "model 'latent': 4 values of 65536 are too wide together; the most is 131072");
  const std::string known = "model 'latent': latent attention is known as Megatron-LM runs it, fused";
  CHECK(with([](auto& m) { m.code = tawpipe::LayerCode::torchtitan; }) == known);
  CHECK(with([](auto& m) { m.fused_attention = false; }) == known);
  CHECK(with([](auto& m) { m.code = tawpipe::LayerCode::megatron_unfused; }).empty());
}

TEST_CASE("first layers without experts that cannot be are refused") {
  const auto with = [](void (*change)(Transformer&)) { return refusal(mixed(), change); };
  CHECK(with([](auto&) {}).empty());
  CHECK(with([](auto& m) { m.dense_layers = 5; }) == "model 'mixed': 5 first layers without experts are impossible; give 0 to 4");
  CHECK(with([](auto& m) { m.dense_width = 0; }) ==
        "model 'mixed': the width of the first layers' MLP must be 1 to 524288, not 0");
  CHECK(with([](auto& m) { m.experts = m.experts_per_token = m.shared_width = 0; }) ==
        "model 'mixed': first layers without experts, but no experts in the others");
}

TEST_CASE("operations and activations of a layer with latent attention, by hand") {
  Transformer model = latent;
  model.layers = 1;
  const StageWork work = tawpipe::transformer_work(model, batch, Recompute::none, 0, 1, false, false);
  const double matrices = 2 * 12 * (1312 + 1152);
  const double attention = 2 * 12 * 6 * (32 + 16) / 2;  // scores of 32, values of 16
  CHECK(work.forward.value() == matrices + attention);
  CHECK(work.backward_input.value() == matrices + 2 * attention);
  CHECK(work.backward_weight.value() == matrices);
  // Numbers a token: layer input, normed, residual sum, normed: 4H = 64; both short vectors before and
  // after their norms, the turned part once: 2 x 20 + 2 = 42; queries and keys 64, values 16, their
  // result 16; 4 x 24 = 96. Bytes: four rstd 16, log-sum-exps 16. `selective` runs the short vectors' norms again.
  const auto bytes = [&](Recompute recompute) { return support::layer_bytes(model, batch, recompute).saved; };
  CHECK(bytes(Recompute::none) == 12 * (2 * (64 + 42 + 64 + 16 + 16 + 96) + 32));
  CHECK(bytes(Recompute::selective) == 12 * 2 * (2 * 16 + 22 + 64 + 16 + 2 * 24));
  CHECK(bytes(Recompute::full) == 12 * 2 * 16);
  // More than 3I; the short vectors' gradients come when that of attention's result is gone.
  CHECK(support::layer_bytes(model, batch, Recompute::none).backward_workspace == 12 * 2 * (16 + 64 + 16 + 16));
  // 10H + 3I, 12H + 5I; queries and keys 64, read and written; norms of short vectors 20, as others
  CHECK(work.forward_traffic.value() == 12 * 2 * (160 + 72 + 2 * 64 + 2 * 20));
  CHECK(work.backward_traffic.value() == 12 * 2 * (192 + 120 + 2 * 64 + 3 * 20));
  // Of keys what is a product's result: without the turned part, 2 of each of 4 heads.
  CHECK(support::stash_bytes(model, batch, Recompute::full, 1, false) ==
        12 * 2 * (48 + 42 + 64 - 8 + 16 + 16 + 72) + 2 * (2 * 16 + 20) * 4);
  // In 8 bits what products read is kept so: both normed H, both normed short vectors, attention's result
  // once more, and the product of 24.
  model.products = tawpipe::ProductFormat::fp8;
  CHECK(bytes(Recompute::none) == 12 * (2 * (64 + 42 + 64 + 16 + 16 + 96) + 32 - 32 - 20 - 24 + 16));
}

TEST_CASE("kernels do the operations of their stage, whole and cut") {
  for (const Transformer& model : models()) {
    CAPTURE(model.name);
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      const auto stack = tawpipe::layer_stack(model, batch, recompute);
      for (int first = 0; first < model.layers; ++first) {
        for (int layers = 1; layers <= model.layers - first; ++layers) {
          const StageWork stage = stack.stage(first, layers, first == 0, first + layers == model.layers);
          const double attention = 2.0 * 12 * 6 * static_cast<double>(model.query_width() + model.value_width()) / 2;
          CHECK(kernel_flops(stage, KernelPass::forward) == Approx(stage.forward.value()));
          CHECK(kernel_flops(stage, KernelPass::recompute) == Approx(stage.recompute.value()));
          CHECK(kernel_flops(stage, KernelPass::backward_input) == Approx(stage.backward_input.value() + layers * attention / 2));
          CHECK(kernel_flops(stage, KernelPass::backward_weight) == Approx(stage.backward_weight.value()));
          CHECK(kernel_flops(stage, KernelPass::forward, {.tensor = 2}) == Approx(stage.forward.value() / 2));
        }
      }
    }
  }
}

TEST_CASE("stages of any cut are the model together, in part recomputed too") {
  for (Transformer model : models()) {
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      for (const int recomputed : {0, 1, 3}) {
        model.recompute_layers = recomputed;
        const auto stack = tawpipe::layer_stack(model, batch, recompute);
        const StageWork all = stack.stage(0, model.layers, true, true);
        for (int cut = 0; cut <= model.layers; ++cut) {
          const int again = recompute == Recompute::full && recomputed > 0 ? recomputed : model.layers;
          StageWork sum;
          for (const bool second : {false, true}) {
            const int begin = second ? cut : 0;
            const int count = second ? model.layers - cut : cut;
            const StageWork stage = tawpipe::transformer_work(model, batch, recompute, begin, count, !second, second);
            CHECK(stage.recomputed == std::min(again, count));
            CHECK(stage.layers_of(1) == (second ? std::max(0, model.dense_layers - cut) : std::min(cut, model.dense_layers)));
            sum.parameters += stage.parameters + stage.edge_parameters;
            sum.saved += stage.saved;
            sum.forward += stage.forward;
            sum.recompute += stage.recompute;
            sum.backward_input += stage.backward_input;
            sum.backward_weight += stage.backward_weight;
          }
          CHECK(sum.parameters == model.parameters());
          CHECK(sum.forward.value() == Approx(all.forward.value()));
          CHECK(sum.backward_input.value() == Approx(all.backward_input.value()));
          CHECK(sum.backward_weight.value() == Approx(all.backward_weight.value()));
          if (recomputed > 0) continue;
          CHECK(sum.saved == all.saved);
          CHECK(sum.recompute.value() == Approx(all.recompute.value()));
        }
      }
    }
  }
}

TEST_CASE("of a stage's layers the first are recomputed, whatever they are") {
  Transformer model = mixed();
  const auto of = [&](const Transformer& layer, Recompute recompute) {
    return support::layer_bytes(layer, batch, recompute).saved;
  };
  const Transformer dense = model.of_dense_layers();
  for (const int recomputed : {1, 2, 3}) {
    model.recompute_layers = recomputed;
    const StageWork stage = tawpipe::transformer_work(model, batch, Recompute::full, 1, 4, false, false);  // one dense layer
    CHECK(stage.layers_of(1) == 1);
    CHECK(stage.saved.value() == of(dense, Recompute::full) + (recomputed - 1) * of(model, Recompute::full) +
                                     (4 - recomputed) * of(model, Recompute::none));
  }
  model.recompute_layers = 1;
  const StageWork stage = tawpipe::transformer_work(model, batch, Recompute::full, 0, 3, false, false);
  CHECK(stage.saved.value() == of(dense, Recompute::full) + of(dense, Recompute::none) + of(model, Recompute::none));
}

TEST_CASE("an embedding's gradient waits in the first layer, if that has room") {
  Transformer model = mixed();
  CHECK(tawpipe::layer_stack(model, batch, Recompute::none).lookup_waits_in_layer);
  model.dense_width = 12;
  CHECK_FALSE(tawpipe::layer_stack(model, batch, Recompute::none).lookup_waits_in_layer);
}

TEST_CASE("tensors follow each other, and are the parameters of the stack") {
  for (const Transformer& model : models()) {
    std::int64_t at = 0;
    for (const auto& tensor : tawpipe::ParameterOrder{model}.tensors()) {
      CHECK(tensor.range.begin == at);
      at = tensor.range.end;
    }
    CHECK(at == model.parameters());
    const auto stack = tawpipe::layer_stack(model, batch, Recompute::none);
    CHECK_NOTHROW(stack.check());
    CHECK(stack.parameters() == model.parameters());
    CHECK(stack.blocks().count() == model.parameters());
  }
  const auto tensors = tawpipe::ParameterOrder{mixed()}.tensors();
  CHECK(tensors[1].name == "decoders.0.attention.wq_a.weight");
  CHECK(tensors[4].name == "decoders.0.attention.wkv_b.weight");
  CHECK(tensors[4].shape == std::vector<std::int64_t>{24 + 16, 8});
  CHECK(tensors[6].name == "decoders.0.feed_forward.w1.weight");
  CHECK(tensors[6].shape == std::vector<std::int64_t>{40, 16});
  CHECK(tensors[9].name == "decoders.0.attention.q_norm.weight");
  CHECK_FALSE(tensors[9].decays());
}

TEST_CASE("bodies do what their stage does, with layers of both kinds, and with whole experts") {
  for (Transformer model : models()) {
    model.hidden = 64;
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      for (const bool stops : {false, true}) {
        model.early_stop = stops;
        model.recompute_layers = stops ? 1 : 0;
        const auto stack = tawpipe::layer_stack(model, batch, recompute);
        for (Sharing sharing :
             {Sharing{.tensor = 2}, Sharing{.tensor = 4}, Sharing{.context = 2}, Sharing{.tensor = 2, .context = 2},
              Sharing{.tensor = 2, .whole_experts = true}, Sharing{.expert = 4, .whole_experts = true}}) {
          if (sharing.whole_experts && !model.is_routed()) continue;
          for (const int first : {0, 1, 3}) {
            const StageWork stage = stack.stage(first, model.layers - first, first == 0, true);
            const auto part = tawpipe::share_stages(model, batch, recompute, std::vector{stage}, sharing).front();
            const StageWork& work = part.work;
            CHECK(flops(part.forward) == Approx(work.forward.value()));
            CHECK(flops(part.backward) == Approx((work.recompute + work.backward_input + work.backward_weight).value()));
            CHECK(flops(part.backward_input) == Approx((work.recompute + work.backward_input).value()));
            CHECK(flops(part.backward_weight) == Approx(work.backward_weight.value()));
            CHECK(traffic(part.forward) == Approx(static_cast<double>(work.forward_traffic.value())).epsilon(1e-3));
            CHECK(traffic(part.backward) == Approx(static_cast<double>(work.backward_traffic.value())).epsilon(1e-3));
          }
        }
      }
    }
  }
}

TEST_CASE("tensor-parallel ranks gather short vectors, and make those of all tokens without sequence parallelism") {
  const auto part = [](const Transformer& model, bool sequence_parallel) {
    const StageWork stage = tawpipe::transformer_work(model, batch, Recompute::none, 0, 1, false, false);
    const Sharing sharing{.tensor = 2, .sequence_parallel = sequence_parallel};
    return tawpipe::share_stages(model, batch, Recompute::none, std::vector{stage}, sharing).front();
  };
  CHECK(gathered(part(latent, true).forward) == 12 * 2 * (22 + 16));
  CHECK(gathered(part(without_short_queries(), true).forward) == 12 * 2 * (26 + 16));
  CHECK(gathered(part(grouped(), true).forward) == 12 * 2 * (16 + 16));
  for (const bool sequence_parallel : {false, true}) {
    const auto shared = part(latent, sequence_parallel);
    CHECK(flops(shared.forward) == Approx(kernel_flops(shared.work, KernelPass::forward)));  // of one rank
    const double down = sequence_parallel ? 0 : 2 * 12 * 16 * 22 / 2;
    CHECK(flops(shared.forward) == Approx(shared.work.forward.value() + down));
  }
}

TEST_CASE("whole experts take nothing on a stage without") {
  const Transformer model = mixed();
  const auto stack = tawpipe::layer_stack(model, batch, Recompute::none);
  const StageWork stage = stack.stage(0, 2, false, false);
  const auto part = [&](const Sharing& sharing) {
    return tawpipe::share_stages(model, batch, Recompute::none, std::vector{stage}, sharing).front();
  };
  const auto split = part({.tensor = 2});
  const auto with_experts = part({.tensor = 2, .whole_experts = true});
  CHECK(split.work.forward_workspace == with_experts.work.forward_workspace);
  CHECK(split.work.saved == with_experts.work.saved);
  CHECK(split.work.parameters == with_experts.work.parameters);
  CHECK(flops(split.backward) == Approx(flops(with_experts.backward)));
}

TEST_CASE("nothing overflows at the limits of latent attention") {
  constexpr int most = Transformer::max_hidden;
  Transformer model = latent;
  model.layers = Transformer::max_layers;
  model.hidden = model.head_dim.emplace() = model.value_size = model.query_rank = model.key_value_rank = model.rope_width = most;
  model.heads = model.kv_heads = model.intermediate = 1;
  model.vocab = Transformer::max_vocab;
  model.dtype = tawpipe::Dtype::f64;
  model.experts = Transformer::max_experts;
  model.experts_per_token = 4;
  model.shared_width = Transformer::max_intermediate - 4;
  const Batch largest{.sequence = Batch::max_tokens, .microbatch_size = 1, .global_batch = Batch::max_global_batch};
  const StageWork work = tawpipe::transformer_work(model, largest, Recompute::full, 0, model.layers, false, false);
  // 22H + 8I + 2 x 2(Q + Q) + norms of short vectors 5 x 2H + sums with the shared expert 6H
  // + 2 x (2(k + 1)H + 5E), where I = 4H and Q = H
  const double layer = (22.0 + 32 + 8 + 10 + 6 + 20) * most + 10 * 4096;
  CHECK(static_cast<double>(work.backward_traffic.value()) ==
        Approx(8 * layer * model.layers * static_cast<double>(largest.sequence)).epsilon(1e-9));
}

}  // namespace latent_test
