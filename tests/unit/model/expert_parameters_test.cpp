// Tests of which parameters are those of experts (ParameterBlocks::part_of), by hand.
// Not: which ranks have them (unit/schedule/experts_test.cpp).
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/model/parameter_blocks.hpp"
#include "tawpipe/model/parameters.hpp"
#include "tawpipe/model/transformer.hpp"
#include "tawpipe/model/transformer_work.hpp"

namespace expert_parameters_test {

using tawpipe::Batch;
using tawpipe::LayerStack;
using tawpipe::ParameterBlocks;
using tawpipe::ParameterRange;
using tawpipe::Recompute;
using tawpipe::Transformer;
using Ranges = std::vector<ParameterRange>;

namespace {

/// A first edge of 10 parameters, three layers of 20, of each its 5 to 14 of experts, a last edge of
/// 7: experts are 15 to 24, 35 to 44 and 55 to 64, the last edge begins at 70.
const ParameterBlocks blocks{{.first_edge = 10, .layers = 3, .layer = {20, {5, 15}}, .last_edge = 7}};

Ranges experts_of(const Ranges& ranges) { return blocks.part_of(ranges, true); }
Ranges others_of(const Ranges& ranges) { return blocks.part_of(ranges, false); }

}  // namespace

TEST_CASE("of the whole model the experts are a run of each layer") {
  CHECK(experts_of({{0, 77}}) == Ranges{{15, 25}, {35, 45}, {55, 65}});
  CHECK(others_of({{0, 77}}) == Ranges{{0, 15}, {25, 35}, {45, 55}, {65, 77}});
}

TEST_CASE("ranges begin and end inside experts, beside them, or in an edge") {
  CHECK(experts_of({{18, 21}}) == Ranges{{18, 21}});
  CHECK(others_of({{18, 21}}).empty());
  CHECK(experts_of({{18, 38}}) == Ranges{{18, 25}, {35, 38}});
  CHECK(others_of({{18, 38}}) == Ranges{{25, 35}});
  CHECK(experts_of({{25, 35}}).empty());
  CHECK(others_of({{25, 35}}) == Ranges{{25, 35}});
  CHECK(experts_of({{24, 25}}) == Ranges{{24, 25}});
  CHECK(experts_of({{25, 26}}).empty());
  CHECK(others_of({{3, 10}}) == Ranges{{3, 10}});
  CHECK(experts_of({{3, 16}}) == Ranges{{15, 16}});
  CHECK(others_of({{70, 77}}) == Ranges{{70, 77}});
  CHECK(experts_of({{70, 77}}).empty());
  CHECK(others_of({{64, 72}}) == Ranges{{65, 72}});
  CHECK(experts_of({}).empty());
  // Their order is kept: a buffer may have the last edge first.
  CHECK(others_of({{70, 77}, {0, 20}}) == Ranges{{70, 77}, {0, 15}});
  CHECK(experts_of({{50, 60}, {10, 20}}) == Ranges{{55, 60}, {15, 20}});
  // Pieces that continue each other are one.
  CHECK(experts_of({{16, 18}, {18, 20}}) == Ranges{{16, 20}});
}

TEST_CASE("both parts of any range together are the range") {
  for (std::int64_t begin = 0; begin <= 77; ++begin) {
    for (std::int64_t end = begin; end <= 77; ++end) {
      const Ranges range{{begin, end}};
      std::vector<int> times(77, 0);
      std::int64_t of_experts = 0;
      for (const bool experts : {false, true}) {
        for (const ParameterRange& one : blocks.part_of(range, experts)) {
          for (std::int64_t p = one.begin; p < one.end; ++p) ++times[static_cast<std::size_t>(p)];
          if (experts) of_experts += one.count();
        }
      }
      std::int64_t wrong = 0;
      std::int64_t expected = 0;
      for (std::int64_t p = 0; p < 77; ++p) {
        const bool inside = begin <= p && p < end;
        wrong += times[static_cast<std::size_t>(p)] == (inside ? 1 : 0) ? 0 : 1;
        const std::int64_t in_layer = (p - 10) % 20;
        expected += inside && p >= 10 && p < 70 && in_layer >= 5 && in_layer < 15 ? 1 : 0;
      }
      CHECK(wrong == 0);
      CHECK(of_experts == expected);
    }
  }
}

TEST_CASE("a layer may be all experts, and a model may have none") {
  const ParameterBlocks all{{.first_edge = 2, .layers = 2, .layer = {6, {0, 6}}, .last_edge = 0}};
  CHECK(all.part_of(Ranges{{0, 14}}, true) == Ranges{{2, 14}});
  CHECK(all.part_of(Ranges{{0, 14}}, false) == Ranges{{0, 2}});
  const ParameterBlocks none{{.first_edge = 2, .layers = 2, .layer = {6, {}}, .last_edge = 1}};
  CHECK(none.part_of(Ranges{{1, 15}}, true).empty());
  CHECK(none.part_of(Ranges{{1, 15}}, false) == Ranges{{1, 15}});
}

TEST_CASE("a decoder's experts are those that a router chooses among, by the names of their tensors") {
  for (const bool gated : {false, true}) {
    for (const int shared_width : {0, 6}) {
      const Transformer model{.name = "tiny",
                              .layers = 2,
                              .hidden = 8,
                              .heads = 4,
                              .kv_heads = 2,
                              .intermediate = 12,
                              .vocab = 10,
                              .gated = gated,
                              .experts = 4,
                              .experts_per_token = 2,
                              .shared_width = shared_width};
      const LayerStack stack = tawpipe::layer_stack(model, Batch{6, 2, 8}, Recompute::none);
      CHECK(stack.experts.count() == (gated ? 3 : 2) * 8 * 4 * 12);
      const ParameterBlocks of_model = stack.blocks();
      for (const auto& tensor : tawpipe::ParameterOrder{model}.tensors()) {
        const bool expert = tensor.name.find(".experts.") != std::string::npos;
        CHECK(of_model.part_of(Ranges{tensor.range}, expert) == Ranges{tensor.range});
        CHECK(of_model.part_of(Ranges{tensor.range}, !expert).empty());
      }
    }
  }
}

}  // namespace expert_parameters_test
