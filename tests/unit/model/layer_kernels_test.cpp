// Tests of model/transformer_kernels.hpp: which kernels a stage runs, and what tensor and context
// parallelism leave of them.
// Not: how long they take (unit/cost/kernel_cost_test.cpp).
#include "tawpipe/model/transformer_work.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <tuple>

#include "support/layer_bytes.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/model/transformer_body.hpp"
#include "tawpipe/model/transformer_work.hpp"
#include "tawpipe/model/workload.hpp"

namespace layer_kernels_test {

using doctest::Approx;
using tawpipe::Kernel;
using tawpipe::KernelPass;

namespace {

double flops(const tawpipe::StageWork& work, KernelPass pass, int tensor = 1, int context = 1) {
  double sum = 0;
  for (const Kernel& kernel : work.kernels) {
    if (kernel.pass == pass) sum += kernel.count * kernel.split(tensor, context).flops();
  }
  return sum;
}

tawpipe::Transformer gpt() {
  return {
      .name = "gpt", .layers = 4, .hidden = 512, .heads = 8, .kv_heads = 8, .intermediate = 2048, .vocab = 1000, .gated = false};
}

const tawpipe::Batch batch{.sequence = 1024, .microbatch_size = 2, .global_batch = 8};

}  // namespace

TEST_CASE("kernels do the operations of the stage, and in the backward attention's scores once more") {
  const auto model = tawpipe::models::named("llama-3-8b");
  const auto work = tawpipe::transformer_work(model, batch, tawpipe::Recompute::none, 0, 3, true, true);
  CHECK(flops(work, KernelPass::forward) == Approx(work.forward.value()));
  CHECK(flops(work, KernelPass::backward_weight) == Approx(work.backward_weight.value()));
  CHECK(flops(work, KernelPass::recompute) == 0);
  // Of attention, forward b S S Q x 2 / 2 x 2 products; the backward has 2 in the stage and 2.5 in
  // the kernels.
  const double attention = 2.0 * 3 * 2 * 1024 * 1024 * 4096;
  CHECK(flops(work, KernelPass::backward_input) == Approx(work.backward_input.value() + 0.5 * attention));
}

TEST_CASE("recomputation runs the forward again, or the attention") {
  const auto model = tawpipe::models::named("llama-3-8b");
  const auto full = tawpipe::transformer_work(model, batch, tawpipe::Recompute::full, 0, 2, false, false);
  CHECK(flops(full, KernelPass::recompute) == Approx(full.recompute.value()));
  const auto selective = tawpipe::transformer_work(model, batch, tawpipe::Recompute::selective, 0, 2, false, false);
  CHECK(flops(selective, KernelPass::recompute) == Approx(selective.recompute.value()));
}

TEST_CASE("parts that are computed again run their own kernels: attention, the MLP's products, what is memory-bound") {
  tawpipe::Transformer model = tawpipe::models::named("llama-3-8b");
  const auto again = [&](const tawpipe::RecomputeParts& parts) {
    model.recompute_parts = parts;
    const auto work = tawpipe::transformer_work(model, batch, tawpipe::Recompute::selective, 0, 2, false, false);
    CHECK(flops(work, KernelPass::recompute) == Approx(work.recompute.value()));
    const auto none = tawpipe::transformer_work(model, batch, tawpipe::Recompute::none, 0, 2, false, false);
    double moved = 0;
    for (const Kernel& kernel : work.kernels) moved += kernel.pass == KernelPass::recompute ? kernel.count * kernel.bytes : 0;
    return std::tuple{work.recompute.value(), moved, (work.backward_traffic - none.backward_traffic).value()};
  };
  const double tokens = 2048;
  const double attention = 2.0 * 2 * 2 * 1024 * 1024 * 4096;
  const double products = 2 * 2 * tokens * 3 * 4096 * 14336;
  CHECK(std::get<0>(again({.core_attn = true})) == Approx(attention));
  CHECK(std::get<1>(again({.core_attn = true})) == 0);
  CHECK(std::get<0>(again({.mlp = true})) == Approx(products));
  CHECK(std::get<1>(again({.mlp = true})) == Approx(2 * tokens * 2 * 3 * 14336));
  CHECK(std::get<0>(again({.layernorm = true})) == 0);
  CHECK(std::get<1>(again({.layernorm = true})) == Approx(2 * tokens * 2 * 4 * 4096));
  CHECK(std::get<2>(again({.layernorm = true})) == static_cast<std::int64_t>(2 * tokens * 2 * 4 * 4096));
  CHECK(std::get<1>(again({.activation = true})) == Approx(std::get<1>(again({.mlp = true}))));
  CHECK(std::get<2>(again({.activation = true})) == static_cast<std::int64_t>(2 * tokens * 2 * 3 * 14336));
  CHECK(std::get<0>(again({.core_attn = true, .mlp = true, .layernorm = true})) == Approx(attention + products));
  // In 8 bits the inputs of what runs again are cast again.
  model.products = tawpipe::ProductFormat::fp8;
  CHECK(std::get<1>(again({.mlp = true})) > 2 * tokens * 2 * 3 * 14336);
  model.code = tawpipe::LayerCode::torchtitan_eager;
  CHECK(std::get<1>(again({.layernorm = true})) == Approx(2 * tokens * 2 * 36 * 4096));
}

TEST_CASE("full recomputation that stops early leaves out a layer's last product, its cast and the residual sum") {
  auto model = tawpipe::models::named("llama-3-8b");
  const auto again = [&] {
    const auto work = tawpipe::transformer_work(model, batch, tawpipe::Recompute::full, 0, 2, false, false);
    double moved = 0;
    for (const Kernel& kernel : work.kernels) {
      if (kernel.pass == KernelPass::recompute && kernel.kind == Kernel::Kind::traffic) moved += kernel.count * kernel.bytes;
    }
    CHECK(work.recompute.value() == Approx(flops(work, KernelPass::recompute)));
    return std::pair{work.recompute.value(), moved};
  };
  const double tokens = 2048;
  for (const auto products : {tawpipe::ProductFormat::bits16, tawpipe::ProductFormat::fp8}) {
    model.products = products;
    model.early_stop = {};
    const auto [flops_all, moved_all] = again();
    model.early_stop = true;
    const auto [flops_needed, moved_needed] = again();
    CHECK(flops_all - flops_needed == Approx(2 * 2 * tokens * 4096 * 14336));
    const double cast = products == tawpipe::ProductFormat::fp8 ? 3 * 14336 : 0;  // read and written, both layouts
    CHECK(moved_all - moved_needed == Approx(2 * tokens * (2 * 3 * 4096 + cast)));
  }
  CHECK(model.stops_early());
  model.early_stop = {};
  CHECK_FALSE(model.stops_early());
  model.code = tawpipe::LayerCode::torchtitan_eager;
  CHECK_FALSE(model.stops_early());
  for (const auto code : {tawpipe::LayerCode::torchtitan, tawpipe::LayerCode::composer}) {
    model.code = code;
    CHECK(model.stops_early());
  }
  model.early_stop = false;
  CHECK_FALSE(model.stops_early());
}

TEST_CASE("tensor and context parallelism divide every kernel") {
  const auto model = tawpipe::models::named("llama-3-8b");
  const auto work = tawpipe::transformer_work(model, batch, tawpipe::Recompute::none, 0, 2, true, true);
  for (const KernelPass pass : {KernelPass::forward, KernelPass::backward_input, KernelPass::backward_weight}) {
    CHECK(flops(work, pass, 4) == Approx(flops(work, pass) / 4));
    CHECK(flops(work, pass, 2, 4) == Approx(flops(work, pass) / 8));
  }
}

TEST_CASE("scores of more tokens than any memory holds are refused") {
  tawpipe::Transformer model = gpt();
  model.fused_attention = false;
  const tawpipe::Batch whole{.sequence = 1 << 24, .microbatch_size = 1, .global_batch = 1};
  CHECK_THROWS_WITH_AS(tawpipe::Workload(model, whole), doctest::Contains("choose fused attention or shorter sequences"),
                       tawpipe::InputError);
}

TEST_CASE("unfused attention multiplies all pairs of tokens and moves the scores") {
  tawpipe::Transformer model = gpt();
  const auto fused = tawpipe::transformer_work(model, batch, tawpipe::Recompute::none, 0, 4, false, false);
  model.fused_attention = false;
  const auto unfused = tawpipe::transformer_work(model, batch, tawpipe::Recompute::none, 0, 4, false, false);
  // 4 b S S Q operations in place of half of them.
  CHECK(flops(unfused, KernelPass::forward) - flops(fused, KernelPass::forward) == Approx(4 * 2.0 * 2 * 1024 * 1024 * 512));
  double moved = 0;
  for (const Kernel& kernel : unfused.kernels) {
    if (kernel.kind == Kernel::Kind::traffic && kernel.pass == KernelPass::forward) moved += kernel.count * kernel.bytes;
  }
  for (const Kernel& kernel : fused.kernels) {
    if (kernel.kind == Kernel::Kind::traffic && kernel.pass == KernelPass::forward) moved -= kernel.count * kernel.bytes;
  }
  // 13 bytes of each pair; biases and dropout 5 numbers of H more for each token.
  CHECK(moved == Approx(4 * (13.0 * 2 * 8 * 1024 * 1024 + 5.0 * 512 * 2048 * 2)));
}

TEST_CASE("without gradient accumulation fusion kernels of their own add what the products have written") {
  tawpipe::Transformer model = gpt();
  const auto added = [&](int tensor, int context) {  // bytes
    const auto work = tawpipe::transformer_work(model, batch, tawpipe::Recompute::none, 0, 3, false, true);
    double bytes = 0;
    for (const Kernel& kernel : work.kernels) {
      if (kernel.pass != KernelPass::backward_weight) continue;
      if (kernel.kind == Kernel::Kind::product) CHECK(kernel.adds == model.fuses_accumulation());
      if (kernel.kind == Kernel::Kind::traffic) bytes += kernel.count * kernel.split(tensor, context).bytes;
    }
    return bytes;
  };
  CHECK(added(1, 1) == 0);
  model.code = tawpipe::LayerCode::megatron_unfused;
  const double parameters = 3 * 12 * 512 * 512 + 1000 * 512;
  CHECK(added(1, 1) == Approx(10 * parameters));      // bfloat16, sums in float32
  CHECK(added(4, 8) == Approx(10 * parameters / 4));  // all context-parallel ranks have all
  model.dtype = tawpipe::Dtype::f16;
  CHECK(added(1, 1) == Approx(6 * parameters));
}

TEST_CASE("a loss in chunks runs a product for each chunk, as wide as it is, and lists equal ones once") {
  auto model = tawpipe::models::named("llama-3-8b");
  const auto whole = tawpipe::transformer_work(model, batch, tawpipe::Recompute::none, 0, 0, false, true);
  for (const int chunk : {1, 4096, 128256, 1 << 20}) {
    CAPTURE(chunk);
    model.loss_chunk = chunk;
    const auto work = tawpipe::transformer_work(model, batch, tawpipe::Recompute::none, 0, 0, false, true);
    CHECK(work.kernels.size() <= 12);
    CHECK(flops(work, KernelPass::forward) == Approx(work.forward.value()));
    CHECK(flops(work, KernelPass::recompute) == Approx(work.recompute.value()));
    CHECK(flops(work, KernelPass::backward_input) == Approx(flops(whole, KernelPass::backward_input)));
    CHECK(flops(work, KernelPass::backward_weight) == Approx(flops(whole, KernelPass::backward_weight)));
    std::int64_t products = 0;
    for (const Kernel& kernel : work.kernels) {
      if (kernel.kind == Kernel::Kind::product && kernel.pass == KernelPass::forward) products += kernel.count;
    }
    CHECK(products == (128256 + chunk - 1) / chunk);
  }
}

TEST_CASE("Megatron-LM pads the vocabulary, other code multiplies with what there is") {
  auto model = tawpipe::models::named("llama-3-8b");
  const auto aligned = [&] {
    const auto work = tawpipe::transformer_work(model, batch, tawpipe::Recompute::none, 0, 1, false, true);
    return std::count_if(work.kernels.begin(), work.kernels.end(), [](const Kernel& kernel) { return kernel.aligned; });
  };
  CHECK(aligned() == 3);
  for (const auto code : {tawpipe::LayerCode::megatron_unfused, tawpipe::LayerCode::torchtitan, tawpipe::LayerCode::composer}) {
    model.code = code;
    CHECK(aligned() == 0);
  }
}

TEST_CASE("without sequence parallelism each tensor-parallel rank runs norms and residual sums of all tokens") {
  const auto work = tawpipe::transformer_work(gpt(), batch, tawpipe::Recompute::none, 0, 1, false, false);
  double split = 0, whole = 0;
  for (const Kernel& kernel : work.kernels) {
    if (kernel.kind != Kernel::Kind::traffic || kernel.pass != KernelPass::forward) continue;
    split += kernel.split(4, 1).bytes;
    whole += kernel.split(4, 1, false).bytes;
  }
  CHECK(whole - split == Approx(0.75 * 10 * 512 * 2048 * 2));  // 10 numbers of H, of which a quarter was left
}

TEST_CASE("selective recomputation by operation keeps attention and runs every second product again") {
  tawpipe::Transformer model = tawpipe::models::named("llama-3-8b");
  const auto recomputed = [&] {
    const auto work = tawpipe::transformer_work(model, batch, tawpipe::Recompute::selective, 0, 1, false, false);
    double operations = 0;
    int attention = 0;
    for (const Kernel& kernel : work.kernels) {
      if (kernel.pass != KernelPass::recompute) continue;
      operations += kernel.count * kernel.flops();
      attention += kernel.kind == Kernel::Kind::attention ? 1 : 0;
    }
    CHECK(operations == Approx(work.recompute.value()));
    return attention;
  };
  CHECK(recomputed() == 1);
  const auto saved = support::layer_bytes(model, batch, tawpipe::Recompute::selective).saved;
  model.code = tawpipe::LayerCode::torchtitan;
  CHECK(recomputed() == 0);
  // Attention's output and the last product in place of key, up and the residual sum.
  CHECK(support::layer_bytes(model, batch, tawpipe::Recompute::selective).saved ==
        saved + static_cast<std::int64_t>(2048) * (2 * (4096 - 1024 - 14336) + 4 * 32));
}

TEST_CASE("torchtitan: a product for each matrix; without torch.compile norms and rotary embedding by operator") {
  tawpipe::Transformer model = tawpipe::models::named("llama-3-8b");
  const auto measure = [&](KernelPass pass) {
    const auto work = tawpipe::transformer_work(model, batch, tawpipe::Recompute::none, 0, 1, false, false);
    int products = 0;
    double moved = 0, flops = 0;
    for (const Kernel& kernel : work.kernels) {
      if (kernel.pass != pass) continue;
      products += kernel.kind == Kernel::Kind::product ? 1 : 0;
      moved += kernel.count * kernel.bytes;
      flops += kernel.count * kernel.flops();
    }
    return std::tuple{products, moved, flops};
  };
  const auto [fused, least, work] = measure(KernelPass::forward);
  model.code = tawpipe::LayerCode::torchtitan;
  const auto [single, compiled, same] = measure(KernelPass::forward);
  model.code = tawpipe::LayerCode::torchtitan_eager;
  const auto [eager_products, eager, again] = measure(KernelPass::forward);
  CHECK(fused == 4);
  CHECK(single == 7);
  CHECK(eager_products == 7);
  CHECK(same == Approx(work));
  CHECK(again == Approx(work));
  const double token = 2048 * 2;                                 // two bytes a number
  CHECK(compiled - least == Approx(token * 2 * (4096 + 1024)));  // keys and values copied
  CHECK(eager - compiled == Approx(token * (32 * 4096 + 8 * (4096 + 1024) + 2 * 14336)));

  model.code = tawpipe::LayerCode::torchtitan;
  model.products = tawpipe::ProductFormat::fp8;
  const double tensor = std::get<1>(measure(KernelPass::backward_input));
  model.products = tawpipe::ProductFormat::fp8_rows;
  CHECK(std::get<1>(measure(KernelPass::backward_input)) > tensor);
  CHECK(tawpipe::parse_layer_code("torchtitan-eager") == tawpipe::LayerCode::torchtitan_eager);
}

TEST_CASE("torchtitan casts 8-bit weights in each pass, unless their owners have, and copies them for the backward") {
  tawpipe::Transformer model = tawpipe::models::named("llama-3-8b");
  model.code = tawpipe::LayerCode::torchtitan;
  model.products = tawpipe::ProductFormat::fp8;
  const auto traffic = [&](KernelPass pass) {
    double bytes = 0;
    for (const Kernel& kernel : tawpipe::transformer_work(model, batch, tawpipe::Recompute::none, 0, 1, false, false).kernels) {
      if (kernel.kind == Kernel::Kind::traffic && kernel.pass == pass) bytes += kernel.bytes;
    }
    return bytes;
  };
  const double forward = traffic(KernelPass::forward);
  const double backward = traffic(KernelPass::backward_input);
  model.narrow_gathers = true;
  const auto parameters = static_cast<double>(model.layer_matrix_parameters());
  CHECK(forward - traffic(KernelPass::forward) == Approx(5 * parameters));
  CHECK(backward - traffic(KernelPass::backward_input) == Approx((5 - 2) * parameters));
  const auto made = tawpipe::layer_stack(model, batch, tawpipe::Recompute::none);
  CHECK(made.gathered_bytes == 1);
  model.products = tawpipe::ProductFormat::fp8_rows;
  CHECK_THROWS_WITH_AS(model.check(), doctest::Contains("gathered in 8 bits where products are in fp8"), tawpipe::InputError);
}

TEST_CASE("recomputation of the first layers of a stage is theirs and the others' without") {
  tawpipe::Transformer model = tawpipe::models::named("llama-3-8b");
  const tawpipe::Workload kept{model, batch, tawpipe::Recompute::none};
  const tawpipe::Workload all{model, batch, tawpipe::Recompute::full};
  model.recompute_layers = 3;
  const tawpipe::Workload part{model, batch, tawpipe::Recompute::full};
  const auto stage = part.stage(8, 8, false, false);
  const auto none = kept.stage(8, 8, false, false);
  const auto full = all.stage(8, 8, false, false);
  CHECK(stage.recomputed == 3);
  CHECK(stage.saved.value() * 8 == full.saved.value() * 3 + none.saved.value() * 5);
  CHECK(stage.recompute.value() == Approx(full.recompute.value() * 3 / 8));
  CHECK(flops(stage, KernelPass::recompute) == Approx(stage.recompute.value()));
  CHECK(stage.forward.value() == Approx(full.forward.value()));
  CHECK(tawpipe::transformer_work(model, batch, tawpipe::Recompute::full, 8, 8, false, false).saved == stage.saved);
  // Gathered by themselves: the model's first layers.
  const auto units = part.units();
  CHECK(units[3].recompute.value() > 0);
  CHECK(units[4].recompute.value() == 0);
  // Ranks that share the stage: less than a layer's whole forward again for each layer.
  const auto forwards = [&](const tawpipe::Workload& work) {
    const std::vector<tawpipe::StageWork> stages{work.stage(8, 8, false, false)};
    return tawpipe::share_stages(model, batch, tawpipe::Recompute::full, stages, {.tensor = 2, .context = 1})[0].backward.size();
  };
  CHECK(forwards(part) < forwards(all));
  CHECK(part.model().recompute_layers == 3);
}

TEST_CASE("a GPT keeps what Korthikanti et al. count: s b h (34 + 5 a s / h)") {
  tawpipe::Transformer model = gpt();
  model.fused_attention = false;
  // 16 tensors of s b h, two masks of a byte, two statistics of 4 bytes a token, and 5 a s b s of
  // the scores.
  const double tokens = 2048;
  const double linear = tokens * (34.0 * 512 + 8);
  CHECK(support::layer_bytes(model, batch, tawpipe::Recompute::none).saved == linear + 5.0 * tokens * 8 * 1024);
  CHECK(support::layer_bytes(model, batch, tawpipe::Recompute::selective).saved == linear);
  CHECK(support::layer_bytes(model, batch, tawpipe::Recompute::full).saved == tokens * 2 * 512);
}

TEST_CASE("the layers' format is that of their products; casts cost traffic; the head stays in 16 bits") {
  tawpipe::Transformer model = tawpipe::models::named("llama-3-8b");
  model.products = tawpipe::ProductFormat::mxfp8;
  const auto work = tawpipe::transformer_work(model, batch, tawpipe::Recompute::none, 0, 1, false, true);
  int narrow = 0, wide = 0;
  for (const Kernel& kernel : work.kernels) {
    if (kernel.kind == Kernel::Kind::product) ++(kernel.format == tawpipe::ProductFormat::mxfp8 ? narrow : wide);
  }
  CHECK(narrow == 12);
  CHECK(wide == 3);
  CHECK(tawpipe::bytes_of(tawpipe::ProductFormat::mxfp8) == Approx(33.0 / 32));
  CHECK(tawpipe::parse_product_format("nvfp4") == tawpipe::ProductFormat::nvfp4);
  CHECK_THROWS_WITH_AS(tawpipe::parse_product_format("fp9"), doctest::Contains("did you mean 'fp8'?"), tawpipe::InputError);
}

}  // namespace layer_kernels_test
