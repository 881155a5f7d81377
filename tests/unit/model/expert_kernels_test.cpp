// Tests of the memory-bound kernels of a layer with experts: copies of tokens where they arrive, casts,
// biases, bounded functions, scaled positions; sizes by hand.
// Not: experts' operations (experts_test.cpp) nor what ranks send (expert_body_test.cpp).
#include <doctest/doctest.h>

#include <cstddef>
#include <variant>
#include <vector>

#include "support/refusal.hpp"
#include "tawpipe/model/detail/expert_reach.hpp"
#include "tawpipe/model/layer_kind.hpp"
#include "tawpipe/model/operator_work.hpp"
#include "tawpipe/model/transformer.hpp"

namespace expert_kernels_test {

using doctest::Approx;
using tawpipe::Attention;
using tawpipe::Batch;
using tawpipe::ExpertDispatch;
using tawpipe::Kernel;
using tawpipe::KernelPass;
using tawpipe::LayerKind;
using tawpipe::Mixture;
using tawpipe::Operator;
using tawpipe::ProductFormat;
using tawpipe::Recompute;
using tawpipe::Sharing;
using tawpipe::Transformer;

namespace {

/// H = 8, Q = 8, K = 4; E = 4 experts of I = 12, k = 2 a token.
Transformer model_in(ProductFormat format) {
  return {.name = "tiny",
          .layers = 1,
          .hidden = 8,
          .heads = 4,
          .kv_heads = 2,
          .intermediate = 12,
          .vocab = 10,
          .products = format,
          .experts = 4,
          .experts_per_token = 2};
}
/// T = 12 tokens
const Batch batch{.sequence = 6, .microbatch_size = 2, .global_batch = 2};

/// Traffic of a layer's operators of a kind, in a pass.
std::vector<Kernel> traffic(const LayerKind& kind, const Transformer& model, Operator::Kind of, KernelPass pass) {
  const std::vector<Operator> list = kind.operators(model.hidden);
  std::vector<Kernel> found;
  for (const Kernel& kernel : tawpipe::layer_work(kind, model, batch, Recompute::none).kernels) {
    const bool same = kernel.kind == Kernel::Kind::traffic && kernel.pass == pass;
    if (same && list[static_cast<std::size_t>(kernel.op)].kind == of) found.push_back(kernel);
  }
  return found;
}
double bytes(const std::vector<Kernel>& kernels) {
  double sum = 0;
  for (const Kernel& kernel : kernels) sum += kernel.bytes;
  return sum;
}

constexpr KernelPass passes[] = {KernelPass::forward, KernelPass::backward_input};

}  // namespace

TEST_CASE("ranks put what they are sent in the order of their experts") {
  for (const ProductFormat format : {ProductFormat::bits16, ProductFormat::mxfp8}) {
    const Transformer model = model_in(format);
    const int pads = format == ProductFormat::mxfp8 ? 1 : 0;
    for (const Operator::Kind kind : {Operator::Kind::dispatch, Operator::Kind::combine}) {
      for (const KernelPass pass : passes) {
        const std::vector<Kernel> found = traffic(model.layer_kind(), model, kind, pass);
        REQUIRE(found.size() == 1);
        const auto on = [&](int ranks, ExpertDispatch dispatch) {
          const Sharing sharing{.expert = ranks, .whole_experts = true, .dispatch = dispatch, .neighbours = ranks};
          return found[0].split(tawpipe::detail::kernel_split(model, sharing));
        };
        // Read a token's 8 numbers and write 2 copies, or back: 3 x 8 x 2 bytes x 12.
        CHECK(found[0].bytes == 576);
        CHECK(on(1, ExpertDispatch::all_to_all).bytes == 576);
        // Two ranks of two experts: half, and 2 copies of 12 tokens read and written once more, 384 bytes
        // of each rank; in 8 bits they are padded too.
        const Kernel two = on(2, ExpertDispatch::all_to_all);
        CHECK(two.bytes == 288 + 384 * (1 + pads));
        CHECK(two.reordered == 384 * (1 + pads));
        CHECK(two.launches == found[0].launches + 1 + pads);
        // Four ranks of an expert each have nothing to sort.
        CHECK(on(4, ExpertDispatch::all_to_all).bytes == 144 + 192 * pads);
        // Sent once: of 12 tokens 5/6 pass one of a rank's two experts; 2 x 5/6 arrive for each, in place
        // of one that is read.
        const Kernel once = on(2, ExpertDispatch::deepep);
        CHECK(once.bytes == Approx(288 + 96 * (2 * 5.0 / 6 - 1)));
        CHECK(once.launches == found[0].launches);
        // Where ranks split the width of experts there is nothing to sort either.
        CHECK(found[0].split({.tensor = 2}).bytes == 576);
        CHECK(found[0].split({.tensor = 2}).reordered == 0);
      }
    }
  }
}

TEST_CASE("no kernel that makes experts' tokens casts them, so that all are read") {
  struct Case {
    ProductFormat format;
    double others, experts;  // bytes a number: read, and written twice
  };
  // With a scale of the tensor, first for its maximum.
  for (const Case& of : {Case{ProductFormat::mxfp8, 3 + 1.0 / 16, 4 + 1.0 / 16}, Case{ProductFormat::fp8, 3, 6}}) {
    const Transformer model = model_in(of.format);
    const std::vector<Kernel> forward = traffic(model.layer_kind(), model, Operator::Kind::product, KernelPass::forward);
    REQUIRE(forward.size() == 4);  // before Q, K and V; the output; gate and up; down
    CHECK(forward[0].bytes == Approx(of.others * 12 * 8));
    CHECK(forward[1].bytes == Approx(of.others * 12 * 8));
    CHECK(forward[2].bytes == Approx(of.experts * 24 * 8));
    CHECK(forward[3].bytes == Approx(of.experts * 24 * 12));
    CHECK(forward[0].launches == 0);
    CHECK(forward[2].launches == (of.format == ProductFormat::fp8 ? 2 : 1));
    const std::vector<Kernel> backward = traffic(model.layer_kind(), model, Operator::Kind::product, KernelPass::backward_input);
    REQUIRE(backward.size() == 4);
    CHECK(backward[2].bytes == Approx(of.experts * 24 * 24));
    CHECK(backward[3].bytes == Approx(of.experts * 24 * 8));
  }
}

TEST_CASE("a fused MLP of experts has no kernels of the function, of its casts, and of scales") {
  Transformer model = model_in(ProductFormat::mxfp8);
  model.fused_experts = true;
  for (const KernelPass pass : passes) CHECK(traffic(model.layer_kind(), model, Operator::Kind::function, pass).empty());
  constexpr double each = 4 + 1.0 / 16;
  const auto products = [&](KernelPass pass) { return traffic(model.layer_kind(), model, Operator::Kind::product, pass); };
  REQUIRE(products(KernelPass::forward).size() == 3);
  CHECK(products(KernelPass::forward)[2].bytes == Approx(each * 24 * 8));  // what gate and up read
  REQUIRE(products(KernelPass::backward_input).size() == 3);
  CHECK(products(KernelPass::backward_input)[2].bytes == Approx(each * 24 * 8));  // the gradient of what down gives
  CHECK(products(KernelPass::backward_weight).empty());
  CHECK(support::refusal([&] { model.check(); }).empty());
  model.products = ProductFormat::fp8;
  CHECK(support::refusal([&] { model.check(); }) ==
        "model 'tiny': a fused MLP of experts is known for products in mxfp8, not in fp8");
  model.products = ProductFormat::mxfp8;
  model.experts = model.experts_per_token = 0;  // an MLP that is not of experts is as without it
  CHECK_FALSE(traffic(model.layer_kind(), model, Operator::Kind::function, KernelPass::forward).empty());
}

TEST_CASE("biases of what experts give, bounds and scaled positions are kernels of their own") {
  const Transformer model = model_in(ProductFormat::bits16);
  LayerKind plain = model.layer_kind();
  LayerKind with = plain;
  std::get<Attention>(with.sublayers[0]).scaled = true;
  auto& mixture = std::get<Mixture>(with.sublayers[1]);
  mixture.bias = mixture.router_bias = mixture.bounded = true;
  using Kind = Operator::Kind;
  const auto more = [&](Kind kind, KernelPass pass) {
    return bytes(traffic(with, model, kind, pass)) - bytes(traffic(plain, model, kind, pass));
  };
  // 24 copies of 8 numbers of 2 bytes, 6 and 8 of each; 2 and 4 launches for each of 4 experts.
  CHECK(more(Kind::product, KernelPass::forward) == 6 * 2 * 24 * 8);
  CHECK(more(Kind::product, KernelPass::backward_input) == 8 * 2 * 24 * 8);
  CHECK(traffic(with, model, Kind::product, KernelPass::forward).back().singles == 8);
  CHECK(traffic(with, model, Kind::product, KernelPass::backward_input).back().singles == 16);
  // 24 copies of 12 numbers
  CHECK(more(Kind::function, KernelPass::forward) == 8 * 2 * 24 * 12);
  CHECK(more(Kind::function, KernelPass::backward_input) == 15 * 2 * 24 * 12);
  // queries of 8 and keys of 4
  CHECK(more(Kind::rotary, KernelPass::forward) == 10 * 2 * 12 * 12);
  CHECK(more(Kind::rotary, KernelPass::backward_input) == 8 * 2 * 12 * 12);
  for (const Kind kind : {Kind::norm, Kind::attention, Kind::dispatch, Kind::combine, Kind::route, Kind::sum}) {
    for (const KernelPass pass : passes) CHECK(more(kind, pass) == 0);
  }
}

}  // namespace expert_kernels_test
