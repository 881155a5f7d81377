// The bodies of shared stages against closed forms: operations, bytes exchanged, and what a rank
// keeps.
#include "tawpipe/model/transformer_body.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "support/body_sums.hpp"
#include "tawpipe/model/workload.hpp"

using namespace tawpipe;
using support::flops;

namespace {

constexpr std::int64_t sequence = 512;

Transformer model() {
  return {.name = "m", .layers = 4, .hidden = 256, .heads = 8, .kv_heads = 4, .intermediate = 512, .vocab = 1000, .tied = false};
}

std::vector<SharedStage> shared(Recompute recompute, const Sharing& sharing, int stages = 1, const RecomputeParts& again = {}) {
  Transformer decoder = model();
  decoder.recompute_parts = again;
  const Workload work{decoder, Batch{.sequence = sequence, .microbatch_size = 1, .global_batch = 4}, recompute};
  const auto parts = work.split(stages);
  return share_stages(decoder, work.batch(), recompute, parts, sharing);
}

std::int64_t traffic(const StageBody& body) {
  std::int64_t sum = 0;
  for (const BodyStep& step : body) sum += step.traffic.value();
  return sum;
}

struct Sum {
  int count = 0;
  std::int64_t bytes = 0;
  bool operator==(const Sum&) const = default;
};
Sum collectives(const StageBody& body, BodyStep::Kind kind, bool context) {
  const BodyStep::Axis axis = context ? BodyStep::Axis::context : BodyStep::Axis::tensor;
  Sum sum;
  for (const BodyStep& step : body) {
    if (step.kind != kind || step.axis != axis) continue;
    ++sum.count;
    sum.bytes += step.bytes.value();
  }
  return sum;
}

}  // namespace

TEST_CASE("a body does what its stage does, divided by the ranks that share it") {
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    for (const Sharing& sharing : {Sharing{.tensor = 2}, Sharing{.context = 4}, Sharing{.tensor = 2, .context = 2},
                                   Sharing{.context = 4, .exchange = ContextExchange::ring},
                                   Sharing{.context = 4, .exchange = ContextExchange::all_to_all}}) {
      for (const SharedStage& stage : shared(recompute, sharing, 2)) {
        const StageWork& work = stage.work;
        CHECK(flops(stage.forward) == doctest::Approx(work.forward.value()));
        CHECK(flops(stage.backward) == doctest::Approx((work.recompute + work.backward_input + work.backward_weight).value()));
        CHECK(flops(stage.backward_input) == doctest::Approx((work.recompute + work.backward_input).value()));
        CHECK(flops(stage.backward_weight) == doctest::Approx(work.backward_weight.value()));
        CHECK(traffic(stage.forward) == doctest::Approx(static_cast<double>(work.forward_traffic.value())).epsilon(1e-3));
        CHECK(traffic(stage.backward) == doctest::Approx(static_cast<double>(work.backward_traffic.value())).epsilon(1e-3));
        CHECK(traffic(stage.backward_weight) == 0);
        for (const StageBody* body : {&stage.forward, &stage.backward, &stage.backward_input, &stage.backward_weight}) {
          CHECK(body->front().is_compute());
          CHECK(body->back().is_compute());
          for (std::size_t s = 0; s < body->size(); ++s) {
            for (const std::int32_t earlier : (*body)[s].after) CHECK(earlier < static_cast<std::int32_t>(s));
          }
        }
      }
    }
  }
}

TEST_CASE("parts that are computed again are steps of the backward, the MLP with its collectives") {
  using Kind = BodyStep::Kind;
  const std::int64_t stream = sequence * 256 * 2;  // [sequence, hidden] in 16 bits
  for (const RecomputeParts& parts :
       {RecomputeParts{.core_attn = true}, RecomputeParts{.mlp = true}, RecomputeParts{.layernorm = true},
        RecomputeParts{.activation = true}, RecomputeParts{.core_attn = true, .mlp = true, .layernorm = true}}) {
    CAPTURE(name(parts));
    for (const Sharing& sharing : {Sharing{.tensor = 2}, Sharing{.context = 4}, Sharing{.tensor = 2, .context = 2}}) {
      const SharedStage stage = shared(Recompute::selective, sharing, 1, parts)[0];
      const StageWork& work = stage.work;
      CHECK(flops(stage.backward) == doctest::Approx((work.recompute + work.backward_input + work.backward_weight).value()));
      CHECK(traffic(stage.backward) == doctest::Approx(static_cast<double>(work.backward_traffic.value())).epsilon(1e-3));
    }
    const SharedStage none = shared(Recompute::none, {.tensor = 4})[0];
    const SharedStage again = shared(Recompute::selective, {.tensor = 4}, 1, parts)[0];
    const int more = parts.mlp ? 4 : 0;  // layers
    CHECK(collectives(again.backward, Kind::all_gather, false).count ==
          collectives(none.backward, Kind::all_gather, false).count + more);
    CHECK(collectives(again.backward, Kind::reduce_scatter, false).count ==
          collectives(none.backward, Kind::reduce_scatter, false).count + more);
  }
  // Without sequence parallelism a rank has all norms: two of four tensors of the residual stream, and
  // their numbers of each token.
  const Sharing plain{.tensor = 4, .sequence_parallel = false};
  const auto saved = [&](const RecomputeParts& parts) { return shared(Recompute::selective, plain, 4, parts)[1].work.saved; };
  CHECK(shared(Recompute::none, plain, 4)[1].work.saved - saved({.layernorm = true}) == Bytes{2 * stream + 8 * sequence});
}

TEST_CASE("without sequence parallelism a message is sent in parts, and gathered where it arrives") {
  using Kind = BodyStep::Kind;
  const std::int64_t stream = sequence * 256 * 2;  // [sequence, hidden] in 16 bits
  const auto stays = shared(Recompute::none, {.tensor = 4, .sequence_parallel = false}, 2);
  const auto moves = shared(Recompute::none, {.tensor = 4, .sequence_parallel = false, .sends_activations = true}, 2);
  CHECK(stays[0].work.boundary == Bytes{stream});
  CHECK(moves[0].work.boundary == Bytes{stream / 4});
  // The first stage has no input of another, the last no gradient.
  CHECK(collectives(moves[0].forward, Kind::all_gather, false) == Sum{});
  CHECK(collectives(moves[1].forward, Kind::all_gather, false) == Sum{1, stream});
  CHECK(collectives(moves[0].backward, Kind::all_gather, false) == Sum{1, stream});
  CHECK(collectives(moves[0].backward_input, Kind::all_gather, false) == Sum{1, stream});
  CHECK(collectives(moves[0].backward_weight, Kind::all_gather, false) == Sum{});
  CHECK(collectives(moves[1].backward, Kind::all_gather, false) == Sum{});
  for (const auto& stage : stays) CHECK(collectives(stage.forward, Kind::all_gather, false) == Sum{});
  // With it nothing changes: the message already is a part.
  const auto parts = shared(Recompute::none, {.tensor = 4, .sends_activations = true}, 2);
  CHECK(parts[0].work.boundary == Bytes{stream / 4});
  CHECK(collectives(parts[1].forward, Kind::all_gather, false) ==
        collectives(shared(Recompute::none, {.tensor = 4}, 2)[1].forward, Kind::all_gather, false));
}

TEST_CASE("sequence parallelism gathers twice and scatters twice a layer forward, and gathers four times backward") {
  using Kind = BodyStep::Kind;
  const std::int64_t stream = sequence * 256 * 2;  // [sequence, hidden] in 16 bits
  const SharedStage whole = shared(Recompute::none, {.tensor = 4})[0];
  // 4 layers; the embedding's sum and the head's input one more each. The loss sums 12 bytes a
  // token.
  CHECK(collectives(whole.forward, Kind::all_gather, false) == Sum{9, 9 * stream});
  CHECK(collectives(whole.forward, Kind::reduce_scatter, false) == Sum{9, 9 * stream});
  CHECK(collectives(whole.forward, Kind::all_reduce, false) == Sum{1, 12 * sequence});
  // Of each pair of products the output's gradient and, for the weights' gradient, the input; once
  // each at the head, whose input is gathered and its gradient scattered, and the gradient of what
  // the embedding gave.
  CHECK(collectives(whole.backward, Kind::all_gather, false) == Sum{18, 18 * stream});
  CHECK(collectives(whole.backward, Kind::reduce_scatter, false) == Sum{9, 9 * stream});
  // What is computed again is gathered and summed again.
  const SharedStage again = shared(Recompute::full, {.tensor = 4})[0];
  CHECK(collectives(again.backward, Kind::all_gather, false) == Sum{26, 26 * stream});
  CHECK(collectives(again.backward, Kind::reduce_scatter, false) == Sum{17, 17 * stream});
  // Without it: two all-reduces a layer each way.
  const SharedStage plain = shared(Recompute::none, {.tensor = 4, .sequence_parallel = false})[0];
  CHECK(collectives(plain.forward, Kind::all_reduce, false) == Sum{10, 9 * stream + 12 * sequence});
  CHECK(collectives(plain.backward, Kind::all_reduce, false) == Sum{9, 9 * stream});
  CHECK(collectives(plain.backward, Kind::all_gather, false) == Sum{0, 0});
}

TEST_CASE("overlap cuts products and their collectives into pieces, and changes neither work nor bytes") {
  using Kind = BodyStep::Kind;
  const SharedStage whole = shared(Recompute::none, {.tensor = 4})[0];
  const SharedStage cut = shared(Recompute::none, {.tensor = 4, .overlap = true})[0];
  CHECK(flops(cut.forward) == doctest::Approx(flops(whole.forward)));
  CHECK(flops(cut.backward) == doctest::Approx(flops(whole.backward)));
  const auto bytes = [](const StageBody& body, Kind kind) {
    double sum = 0;
    for (const BodyStep& step : body) sum += step.kind == kind ? static_cast<double>(step.bytes.value()) : 0;
    return sum;
  };
  CHECK(bytes(cut.forward, Kind::reduce_scatter) == doctest::Approx(bytes(whole.forward, Kind::reduce_scatter)).epsilon(1e-4));
  CHECK(bytes(cut.backward, Kind::reduce_scatter) == doctest::Approx(bytes(whole.backward, Kind::reduce_scatter)).epsilon(1e-4));
  // A ring sends three of the four ranks' parts of what an all-gather's buffer has.
  const auto gathered = [&](const StageBody& body) { return bytes(body, Kind::all_gather) + bytes(body, Kind::ring) * 4 / 3; };
  CHECK(gathered(cut.forward) == doctest::Approx(gathered(whole.forward)).epsilon(1e-4));
  CHECK(gathered(cut.backward) == doctest::Approx(gathered(whole.backward)).epsilon(1e-4));
  // A layer's two sums leave in four pieces each; that of the embedding in one.
  const auto count = [](const StageBody& body, Kind kind) {
    return std::count_if(body.begin(), body.end(), [&](const BodyStep& step) { return step.kind == kind; });
  };
  CHECK(count(cut.forward, Kind::reduce_scatter) == 1 + 4 * 2 * 4);
  CHECK(count(cut.forward, Kind::ring) == 4 * 2 * 3);
  // Without sequence parallelism there is nothing to cut.
  const Sharing plain{.tensor = 4, .sequence_parallel = false};
  Sharing same = plain;
  same.overlap = true;
  CHECK(shared(Recompute::none, same)[0].forward.size() == shared(Recompute::none, plain)[0].forward.size());
}

TEST_CASE("context parallelism moves keys and values in each of its three ways") {
  using Kind = BodyStep::Kind;
  const std::int64_t keys = 2 * sequence * 128 * 2;  // keys and values [sequence, 4 heads of 32] in 16 bits
  const SharedStage gather = shared(Recompute::none, {.context = 4})[0];
  CHECK(collectives(gather.forward, Kind::all_gather, true) == Sum{4, 4 * keys});
  CHECK(collectives(gather.backward, Kind::all_gather, true) == Sum{4, 4 * keys});
  CHECK(collectives(gather.backward, Kind::reduce_scatter, true) == Sum{4, 4 * keys});
  // A rank's quarter goes three hops forward, and in the backward, where its gradient follows a hop
  // behind.
  const SharedStage ring = shared(Recompute::none, {.context = 4, .exchange = ContextExchange::ring})[0];
  CHECK(collectives(ring.forward, Kind::ring, true) == Sum{4 * 3, 4 * 3 * keys / 4});
  CHECK(collectives(ring.backward, Kind::ring, true) == Sum{4 * 4, 4 * 3 * 2 * keys / 4});
  // Queries, keys and values of a rank's tokens, and what comes of them: [sequence / 4, 256 + 2 x
  // 128] and [sequence / 4, 256].
  const SharedStage ulysses = shared(Recompute::none, {.context = 4, .exchange = ContextExchange::all_to_all})[0];
  const std::int64_t there = sequence / 4 * 512 * 2;
  const std::int64_t back = sequence / 4 * 256 * 2;
  CHECK(collectives(ulysses.forward, Kind::all_to_all, true) == Sum{8, 4 * (there + back)});
  CHECK(collectives(ulysses.backward, Kind::all_to_all, true) == Sum{8, 4 * (there + back)});
  // Attention that is computed again has its exchange again.
  CHECK(collectives(shared(Recompute::selective, {.context = 4})[0].backward, Kind::all_gather, true) == Sum{8, 8 * keys});
  const SharedStage again = shared(Recompute::selective, {.context = 4, .exchange = ContextExchange::ring})[0];
  CHECK(collectives(again.backward, Kind::ring, true) == Sum{4 * 7, 4 * 9 * keys / 4});
  CHECK(flops(again.backward) == doctest::Approx(flops(shared(Recompute::selective, {.context = 4})[0].backward)));
  CHECK_THROWS_WITH_AS(shared(Recompute::none, {.tensor = 2, .context = 4, .exchange = ContextExchange::all_to_all}),
                       doctest::Contains("4 key-value heads are not divisible by 8"), InputError);
}

TEST_CASE("context parallelism in two levels: heads for tokens among neighbours, keys and values round a ring of them") {
  using Kind = BodyStep::Kind;
  const auto in = [](int inner) { return Sharing{.context = 4, .exchange = ContextExchange::two_level, .inner = inner}; };
  const SharedStage both = shared(Recompute::none, in(2))[0];
  // As all-to-all, but among two; the ring of two groups has one hop of a quarter's keys and values
  // forward, and two backward: of keys and values, and of their gradients.
  const std::int64_t keys = 2 * sequence * 128 * 2;
  const std::int64_t swapped = sequence / 4 * (512 + 256) * 2;
  CHECK(collectives(both.forward, Kind::all_to_all, true) == Sum{8, 4 * swapped});
  CHECK(collectives(both.backward, Kind::all_to_all, true) == Sum{8, 4 * swapped});
  CHECK(collectives(both.forward, Kind::ring, true) == Sum{4, 4 * keys / 4});
  CHECK(collectives(both.backward, Kind::ring, true) == Sum{8, 4 * 2 * keys / 4});
  for (const BodyStep& step : both.backward) CHECK(step.inner == (step.is_compute() ? 0 : 2));
  CHECK(flops(both.backward) == doctest::Approx((both.work.backward_input + both.work.backward_weight).value()));
  // At the ends it is the one or the other.
  const SharedStage ring = shared(Recompute::none, {.context = 4, .exchange = ContextExchange::ring})[0];
  const SharedStage ulysses = shared(Recompute::none, {.context = 4, .exchange = ContextExchange::all_to_all})[0];
  for (const Kind kind : {Kind::ring, Kind::all_to_all}) {
    CHECK(collectives(shared(Recompute::none, in(1))[0].backward, kind, true) == collectives(ring.backward, kind, true));
    CHECK(collectives(shared(Recompute::none, in(4))[0].backward, kind, true) == collectives(ulysses.backward, kind, true));
  }
  CHECK(both.work.forward_workspace == ring.work.forward_workspace);  // nothing is gathered
  CHECK_THROWS_WITH_AS(shared(Recompute::none, in(3)), doctest::Contains("choose a divisor of 4"), InputError);
  CHECK_THROWS_WITH_AS(shared(Recompute::none, {.context = 8, .exchange = ContextExchange::two_level, .inner = 8}),
                       doctest::Contains("not divisible by 8; exchange among fewer"), InputError);
  CHECK(parse_context_exchange("all-to-all+ring") == ContextExchange::two_level);
  CHECK_THROWS_WITH_AS(parse_context_exchange("all-to-al"), doctest::Contains("did you mean 'all-to-all'?"), InputError);
}

TEST_CASE("what Transformer Engine copies around the blocks of a ring and around gathers of 8 bits counts as traffic") {
  const auto moved = [](const std::vector<Kernel>& kernels, KernelPass pass) {
    double bytes = 0;
    for (const Kernel& kernel : kernels) bytes += kernel.pass == pass ? kernel.count * kernel.bytes : 0;
    return bytes;
  };
  // Queries [128, 256], keys and values [128, 128] each, of 4 layers; a block of its own and three others.
  const double queries = 128 * 256 * 2;
  const double keys = 128 * 128 * 2;
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    const auto more = [&](KernelPass pass, const Sharing& sharing) {
      return moved(shared(recompute, sharing)[0].work.kernels, pass) -
             moved(shared(recompute, {.context = 4})[0].work.kernels, pass);
    };
    const Sharing ring{.context = 4, .exchange = ContextExchange::ring};
    CHECK(more(KernelPass::forward, ring) == doctest::Approx(4 * (2 + 3 * 1.5) * queries));
    CHECK(more(KernelPass::recompute, ring) == doctest::Approx(recompute == Recompute::none ? 0 : 4 * (2 + 3 * 1.5) * queries));
    CHECK(more(KernelPass::backward_input, ring) ==
          doctest::Approx(4 * (14 * keys + 3 * queries + 3 * (10 * keys + 4.5 * queries))));
    const Sharing two{.context = 4, .exchange = ContextExchange::two_level, .inner = 2};
    CHECK(more(KernelPass::forward, two) == doctest::Approx(4 * (2 + 1.5) * queries));
    CHECK(more(KernelPass::forward, {.context = 4, .exchange = ContextExchange::all_to_all}) == 0);
  }
  Transformer decoder = model();
  decoder.products = ProductFormat::fp8;
  const auto transposed = [&](const Sharing& sharing) {
    const Workload work{decoder, Batch{.sequence = sequence, .microbatch_size = 1, .global_batch = 4}};
    const std::vector<SharedStage> stages = share_stages(decoder, work.batch(), Recompute::none, work.split(1), sharing);
    double bytes = 0;
    for (const Kernel& kernel : stages[0].work.kernels) bytes += kernel.before_blackwell ? kernel.count * kernel.bytes : 0;
    return bytes;
  };
  // Two inputs and two gradients [sequence, hidden] of each of 4 layers, read and written.
  CHECK(transposed({.tensor = 4}) == 4 * 4 * 2 * sequence * 256);
  CHECK(transposed({.tensor = 4, .sequence_parallel = false}) == 0);
  CHECK(transposed({}) == 0);
  decoder.products = ProductFormat::mxfp8;
  CHECK(transposed({.tensor = 4}) == 0);
}

TEST_CASE("a product in pieces waits for an exchange before it") {
  const Sharing sharing{.tensor = 2, .context = 2, .exchange = ContextExchange::all_to_all, .overlap = true};
  const StageBody body = shared(Recompute::none, sharing)[0].forward;
  const auto exchange = [](const BodyStep& step) { return step.kind == BodyStep::Kind::all_to_all; };
  const auto first = std::find_if(body.begin(), body.end(), exchange);
  const auto second = std::find_if(first + 1, body.end(), exchange);
  REQUIRE(second != body.end());
  const auto product = second + 1;
  CHECK(product->is_compute());
  CHECK((product + 1)->kind == BodyStep::Kind::reduce_scatter);
  CHECK(product->after[0] == static_cast<std::int32_t>(second - body.begin()));
}

TEST_CASE("without sequence parallelism each rank keeps the residual stream whole") {
  const std::int64_t stream = sequence * 256 * 2;
  const StageWork split = shared(Recompute::full, {.tensor = 4}, 4)[1].work;  // one layer, which keeps its input
  CHECK(split.saved == Bytes{stream / 4});
  CHECK(split.boundary == Bytes{stream / 4});
  const StageWork whole = shared(Recompute::full, {.tensor = 4, .sequence_parallel = false}, 4)[1].work;
  CHECK(whole.saved == Bytes{stream});
  CHECK(whole.boundary == Bytes{stream});
}

TEST_CASE("ranks beyond the number of key-value heads hold copies") {
  using Kind = BodyStep::Kind;
  // 8 tensor ranks, 4 heads: each has one of 32, not half of it.
  const SharedStage stage = shared(Recompute::none, {.tensor = 8, .context = 2})[0];
  CHECK(collectives(stage.forward, Kind::all_gather, true) == Sum{4, 4 * 2 * sequence * 32 * 2});
}

TEST_CASE("torchtitan gathers 8-bit inputs after their cast, and again only with the norms that it computes again") {
  Transformer decoder = model();
  decoder.code = LayerCode::torchtitan;
  const auto body = [&](Recompute recompute, bool overlap = false) {
    const Workload work{decoder, Batch{.sequence = sequence, .microbatch_size = 2, .global_batch = 4}, recompute};
    return share_stages(decoder, work.batch(), recompute, work.split(1), {.tensor = 4, .overlap = overlap})[0];
  };
  const std::int64_t stream = 2 * sequence * 256;
  // Forward: two a layer, and the head's; backward: two of gradients, the embedding's and the head's.
  CHECK(collectives(body(Recompute::none).forward, BodyStep::Kind::all_gather, false) == Sum{9, 9 * 2 * stream});
  const int plain = collectives(body(Recompute::none).backward, BodyStep::Kind::all_gather, false).count;
  CHECK(plain == 4 * 2 + 2);
  CHECK(collectives(body(Recompute::selective).backward, BodyStep::Kind::all_gather, false).count == plain + 4 * 2);
  CHECK(collectives(body(Recompute::full).backward, BodyStep::Kind::all_gather, false).count == plain + 4 * 2);
  // What is compiled does not sum again what no gradient needs.
  const int sums = collectives(body(Recompute::none).backward, BodyStep::Kind::reduce_scatter, false).count;
  CHECK(collectives(body(Recompute::full).backward, BodyStep::Kind::reduce_scatter, false).count == sums + 4);
  decoder.early_stop = false;
  CHECK(collectives(body(Recompute::full).backward, BodyStep::Kind::reduce_scatter, false).count == sums + 4 * 2);
  decoder.early_stop = {};
  // What is not gathered again is kept: three quarters more of both inputs.
  const Bytes kept = body(Recompute::none).work.saved;
  decoder.code = LayerCode::megatron;
  CHECK(kept - body(Recompute::none).work.saved == Bytes{4 * 2 * 2 * stream * 3 / 4});
  decoder.code = LayerCode::torchtitan;
  decoder.products = ProductFormat::fp8;
  CHECK(collectives(body(Recompute::none).forward, BodyStep::Kind::all_gather, false) == Sum{9, (8 + 2) * stream});
  CHECK(collectives(body(Recompute::none).forward, BodyStep::Kind::reduce_scatter, false) == Sum{9, 9 * 2 * stream});
  // With overlap a piece for each rank; of one scale a row sums only.
  CHECK(collectives(body(Recompute::none, true).forward, BodyStep::Kind::ring, false) == Sum{8 * 3, 8 * 3 * stream / 4});
  CHECK(collectives(body(Recompute::none, true).forward, BodyStep::Kind::reduce_scatter, false).count == 8 * 4 + 1);
  decoder.products = ProductFormat::fp8_rows;
  CHECK(collectives(body(Recompute::none, true).forward, BodyStep::Kind::all_gather, false) == Sum{9, 9 * 2 * stream});
  CHECK(collectives(body(Recompute::none, true).forward, BodyStep::Kind::reduce_scatter, false).count == 8 * 4 + 1);
}

TEST_CASE("torchtitan copies the tokens of several sequences around gathers and sums") {
  Transformer decoder = model();
  decoder.code = LayerCode::torchtitan;
  const auto copied = [&](const Sharing& sharing, KernelPass pass, Recompute recompute, std::int64_t sequences) {
    const Workload work{decoder, Batch{.sequence = sequence, .microbatch_size = sequences, .global_batch = 4}, recompute};
    const auto traffic = [&](const Sharing& shared) {
      const std::vector<SharedStage> stages = share_stages(decoder, work.batch(), recompute, work.split(1), shared);
      double bytes = 0;
      for (const Kernel& kernel : stages[0].work.kernels) {
        if (kernel.kind == Kernel::Kind::traffic && kernel.pass == pass) bytes += kernel.count * kernel.bytes;
      }
      return bytes;
    };
    Sharing without = sharing;
    without.copies = false;
    const double bytes = traffic(sharing) - traffic(without);
    return bytes / (2.0 * static_cast<double>(sequence) * 256);  // bytes of a number of two sequences
  };
  const Sharing four{.tensor = 4};
  using doctest::Approx;
  CHECK(copied(four, KernelPass::forward, Recompute::none, 1) == 0);
  // 4 layers of two gathers and two sums, embedding and head: 2 bytes are read and written.
  CHECK(copied(four, KernelPass::forward, Recompute::none, 2) == Approx(4 * (16 + 2)));
  CHECK(copied(four, KernelPass::backward_input, Recompute::none, 2) == Approx(4 * (16 + 2)));
  CHECK(copied(four, KernelPass::recompute, Recompute::full, 2) == Approx(4 * 12));      // but the last sum
  CHECK(copied(four, KernelPass::recompute, Recompute::selective, 2) == Approx(4 * 8));  // sums are kept
  CHECK(copied({.tensor = 4, .sequence_parallel = false}, KernelPass::forward, Recompute::none, 2) == 0);
  CHECK(copied({.context = 4}, KernelPass::forward, Recompute::none, 2) == 0);
  // Asynchronous: the parts of a sum are added, of one sequence too.
  CHECK(copied({.tensor = 4, .overlap = true}, KernelPass::forward, Recompute::none, 2) == Approx(8 * 2.5 + 4 * 2));
  CHECK(copied({.tensor = 4, .overlap = true}, KernelPass::forward, Recompute::none, 1) == Approx(8 * 2.5 / 2));
  decoder.products = ProductFormat::fp8;
  CHECK(copied(four, KernelPass::forward, Recompute::none, 2) == Approx(8 * 2 + 4 * (8 + 2)));
  decoder.products = ProductFormat::fp8_rows;
  CHECK(copied(four, KernelPass::forward, Recompute::none, 2) == Approx(4 * (8 + 2)));
  decoder.code = LayerCode::megatron;
  CHECK(copied(four, KernelPass::forward, Recompute::none, 2) == 0);
}
