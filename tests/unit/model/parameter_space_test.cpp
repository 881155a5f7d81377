// Tests of model/parameter_space.hpp: each stage's parameters as ranges, with and without a model.
// Not: the order of a model's tensors (parameters_test.cpp).
#include "tawpipe/model/parameter_space.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "tawpipe/model/transformer.hpp"

using namespace tawpipe;
using Ranges = std::vector<ParameterRange>;

namespace {

/// A layer has 4*8*8 + 3*8*4 + 2*8 = 368 parameters, the embedding 88, the norm 8.
Workload small(bool tied) {
  const Transformer model{
      .name = "small", .layers = 3, .hidden = 8, .heads = 2, .kv_heads = 2, .intermediate = 4, .vocab = 11, .tied = tied};
  return {model, Batch{.sequence = 4, .microbatch_size = 1, .global_batch = 2}};
}

}  // namespace

TEST_CASE("a stage has its layers, and all that it has of embedding, norm and output in ranges that do not touch") {
  const Workload work = small(false);
  const ParameterSpace space{work, work.split(2)};
  CHECK(space.count() == 88 + 3 * 368 + 8 + 88);
  CHECK(space.layers_of(0) == Ranges{{88, 456}});
  CHECK(space.all_of(0) == Ranges{{0, 456}});
  CHECK(space.layers_of(1) == Ranges{{456, 1192}});
  CHECK(space.all_of(1) == Ranges{{456, 1288}});
  CHECK(space.edge() == Ranges{{0, 88}, {1192, 1288}});
}

TEST_CASE("a tied output matrix is the embedding") {
  const Workload work = small(true);
  const ParameterSpace space{work, work.split(2)};
  CHECK(space.count() == 88 + 3 * 368 + 8);
  CHECK(space.all_of(1) == Ranges{{456, 1200}, {0, 88}});
  CHECK(space.edge() == Ranges{{0, 88}, {1192, 1200}});
}

TEST_CASE("without a model stages have theirs one after another, and there is no edge") {
  const Workload work = Workload::abstract(2, 1);
  const ParameterSpace space{work, work.split(2)};
  CHECK(space.count() == 2'000'000);
  CHECK(space.layers_of(1) == Ranges{{1'000'000, 2'000'000}});
  CHECK(space.all_of(1) == space.layers_of(1));
  CHECK(space.edge().empty());
}
