// A stage's layers, head and gradients in transit lie within the bytes that the model says.
// Not: what is in them.
#include "tawpipe/layers/stage_memory.hpp"

#include <doctest/doctest.h>

#include <span>
#include <vector>

#include "support/layer_bytes.hpp"
using namespace tawpipe;
using tawpipe::layers::BackwardPart;
using tawpipe::layers::Cursor;
using tawpipe::layers::StageMemory;

namespace {

constexpr std::int64_t tokens = 6;
const Batch batch{.sequence = tokens, .microbatch_size = 1, .global_batch = 1};

Transformer model(std::int32_t intermediate) {
  return {.layers = 2,
          .hidden = 10,
          .heads = 4,
          .kv_heads = 2,
          .intermediate = intermediate,
          .vocab = 10,
          .dtype = Dtype::f32,
          .head_dim = 4};
}

/// A stage of `layers` layers.
StageWork stage_of(std::int32_t layers, bool embedding) {
  StageWork stage;
  stage.layers = layers;
  stage.first_edge = embedding;
  return stage;
}

BackwardArgs arguments(const StageWork& stage, std::span<std::byte> saved, std::span<std::byte> stash,
                       std::span<std::byte> workspace) {
  BackwardArgs args;
  args.stage = &stage;
  args.saved = saved;
  args.stash = stash;
  args.workspace = workspace;
  return args;
}

}  // namespace

TEST_CASE("a layer's activation is reached in the next layer's or the head's place, or in the stage's output") {
  const StageMemory<float> memory{model(14), batch, Recompute::full, true};
  std::vector<std::byte> saved(1000);
  std::vector<std::byte> output(240);
  StageWork stage = stage_of(2, false);
  const auto at = [&](std::int64_t layer) {
    return reinterpret_cast<const std::byte*>(memory.reached(stage, saved.data(), layer, output));
  };
  CHECK(at(1) == saved.data() + 240);
  CHECK(at(2) == output.data());
  stage.last_edge = true;
  CHECK(at(2) == saved.data() + 480);
}

TEST_CASE("an embedding's gradient waits in the stash, or in a layer that still has room for it") {
  // With nothing recomputed there is room for T I numbers; T H and two rows of H are held: 6 *
  // 14 >= 8 * 10 > 6 * 13
  for (const std::int32_t intermediate : {13, 14}) {
    for (const auto recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      CAPTURE(intermediate);
      CAPTURE(name(recompute));
      const Transformer of = model(intermediate);
      const std::int64_t layer = support::layer_bytes(of, batch, recompute).saved;
      const StageMemory<float> memory{of, batch, recompute};
      StageWork stage = stage_of(2, true);
      std::vector<std::byte> saved(static_cast<std::size_t>(2 * layer));
      std::vector<std::byte> stash(static_cast<std::size_t>(memory.stash_bytes(stage)));
      const BackwardArgs args = arguments(stage, saved, stash, {});
      const auto* const begin = reinterpret_cast<const std::byte*>(memory.lookup_gradient(args));
      const std::byte* const end = begin + tokens * 10 * 4;
      const bool in_stash = begin >= stash.data() && end <= stash.data() + stash.size();
      const bool in_layer = begin >= saved.data() && end <= saved.data() + layer;
      CHECK(in_stash == (recompute != Recompute::none || intermediate == 13));
      CHECK(in_layer == !in_stash);
      stage.layers = 0;
      CHECK(reinterpret_cast<const std::byte*>(memory.lookup_gradient(args)) == stash.data());
    }
  }
}

TEST_CASE("a backward in two parts puts what it computed again in the stash, layer by layer") {
  const Transformer of = model(14);
  const StageMemory<float> memory{of, batch, Recompute::full, true};
  std::vector<std::byte> saved(1000);
  const StageWork stage = stage_of(2, false);
  std::vector<std::byte> stash(static_cast<std::size_t>(memory.stash_bytes(stage)));
  std::vector<std::byte> workspace(100000);
  const BackwardArgs args = arguments(stage, saved, stash, workspace);
  Cursor<float> scratch{workspace.data()};
  const auto tensors = memory.tensors_of(args, BackwardPart::input, 1, scratch);
  CHECK(reinterpret_cast<std::byte*>(tensors.input) == saved.data() + tokens * 10 * 4);
  CHECK(reinterpret_cast<std::byte*>(tensors.attention_norm) == stash.data() + stash.size() / 2);
  // Only the sigmoid passes.
  CHECK(reinterpret_cast<std::byte*>(tensors.sigmoid) == workspace.data());
  CHECK(reinterpret_cast<std::byte*>(scratch.take(0)) == workspace.data() + tokens * 14 * 4);
}
