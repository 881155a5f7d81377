// Tests of model/stage_cut.hpp, and of workloads that are cut by it.
// Not: schedules on them (unit/search/predict_test.cpp).
#include "tawpipe/model/stage_cut.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "tawpipe/model/workload.hpp"

using namespace tawpipe;
using Layers = std::vector<std::int32_t>;

namespace {

const Transformer six_layers{
    .name = "six layers", .layers = 6, .hidden = 64, .heads = 4, .kv_heads = 4, .intermediate = 128, .vocab = 96};

Layers cut_layers(const Workload& work, int stages) {
  Layers layers;
  for (const StageWork& stage : work.split(stages)) layers.push_back(stage.layers);
  return layers;
}

}  // namespace

TEST_CASE("layers are given as numbers or as Megatron-LM's layout") {
  CHECK(parse_stage_cut("7,8, 8,7").layers == Layers{7, 8, 8, 7});
  CHECK(parse_stage_cut("even").is_even());
  CHECK(parse_stage_cut("").is_even());
  CHECK(parse_stage_cut("auto").balanced);
  CHECK(parse_stage_cut("Et*2|tt|t*2L").layers == Layers{2, 2, 2});
  CHECK(parse_stage_cut("Ettt|(tt|)*29,L").layers.size() == 31);
  CHECK(parse_stage_cut("E|(t|)*2(t|t)*2|L").layers == Layers{0, 1, 1, 1, 2, 1, 0});  // t|t t|t: t, tt, t
}

TEST_CASE("equal stages that follow each other are written once in Megatron-LM's layout") {
  const auto written = [](const Layers& layers) { return stage_layout({.layers = layers}); };
  CHECK(written({2, 3, 3, 3, 3, 2, 2}) == "Et*2|(t*3|)*4t*2|t*2L");
  CHECK(written({4, 4, 4, 4}) == "Et*4|(t*4|)*2t*4L");
  CHECK(written({0, 0, 0, 1, 0}) == "E|(|)*2t|L");
  CHECK(written({5, 4}) == "Et*5|t*4L");
  CHECK(written({9}) == "Et*9L");
  for (const Layers& layers : {Layers{2, 3, 3, 3, 3, 2, 2}, {0, 0, 0, 1, 0}, {1, 1, 1, 1, 1}, {7}})
    CHECK(parse_stage_cut(written(layers)).layers == layers);
}

TEST_CASE("what cannot be is named") {
  for (const auto& [text, why] : std::vector<std::pair<std::string, std::string>>{{"E7,8xL", "'7' is none of"},
                                                                                  {"t|tL", "the first is E"},
                                                                                  {"Et|t", "the last is L"},
                                                                                  {"Et|Et|L", "there is one E"},
                                                                                  {"EtL|tL", "there is one L"},
                                                                                  {"Et|m|L", "not modelled"},
                                                                                  {"E(t|L", "'(' has no ')'"},
                                                                                  {"E(t|)L", "followed by '*'"},
                                                                                  {"Et*|L", "followed by a number"},
                                                                                  {"Et*65000|t*65000L", "more than 65536"},
                                                                                  {"7,,8", "must be the layers of each"}}) {
    CAPTURE(text);
    CHECK_THROWS_WITH_AS(parse_stage_cut(text), doctest::Contains(why.c_str()), InputError);
  }
}

TEST_CASE("a balanced cut has the least slowest stage, and all layers") {
  for (const std::int32_t total : {1, 5, 8, 30, 126}) {
    for (const int stages : {1, 2, 3, 8}) {
      for (const double embedding : {0.0, 0.3, 1.0}) {
        for (const double head : {0.0, 0.7, 2.5}) {
          const Layers layers = balanced_layers(total, stages, embedding, head);
          REQUIRE(layers.size() == static_cast<std::size_t>(stages));
          CHECK(std::accumulate(layers.begin(), layers.end(), 0) == total);
          if (total >= stages) CHECK(*std::min_element(layers.begin(), layers.end()) >= 1);
          if (stages == 1) continue;
          const auto slowest = [&](const Layers& some) {
            double most = 0;
            for (std::size_t s = 0; s < some.size(); ++s) {
              most = std::max(most, some[s] + (s == 0 ? embedding : 0) + (s + 1 == some.size() ? head : 0));
            }
            return most;
          };
          // No move of one layer makes the slowest stage faster, unless it leaves a stage without.
          for (std::size_t from = 0; from < layers.size(); ++from) {
            for (std::size_t to = 0; to < layers.size(); ++to) {
              Layers moved = layers;
              if (from == to || moved[from] <= (total >= stages ? 1 : 0)) continue;
              --moved[from];
              ++moved[to];
              CHECK(slowest(moved) >= slowest(layers) - 1e-9);
            }
          }
        }
      }
    }
  }
  CHECK(balanced_layers(126, 8, 1, 1) == Layers{15, 16, 16, 16, 16, 16, 16, 15});  // Llama 3's 405B
}

TEST_CASE("a workload is cut as it is told") {
  Workload work{six_layers, Batch{.sequence = 16, .microbatch_size = 1, .global_batch = 4}};
  CHECK(cut_layers(work, 4) == Layers{1, 2, 1, 2});
  const Flops all = work.model_flops();
  work.cut_by(parse_stage_cut("1,2,2,1"));
  CHECK(cut_layers(work, 4) == Layers{1, 2, 2, 1});
  CHECK(work.split(4)[2].first_layer == 3);
  CHECK(work.split(4)[0].first_edge);
  CHECK(work.split(4)[3].last_edge);
  CHECK(work.model_flops().value() == all.value());
  CHECK_THROWS_WITH_AS(work.split(2), "layers are given for 4 stages, and this schedule cuts the model into 2", InputError);
  CHECK_THROWS_WITH_AS(work.units(), doctest::Contains("has no stages"), InputError);
  work.cut_by(parse_stage_cut("1,2,2,2"));
  CHECK_THROWS_WITH_AS(work.split(4), "the stages have 7 layers together, and the model has 6", InputError);
  work.cut_by({.embedding = 1, .head = 1});
  CHECK(cut_layers(work, 4) == Layers{1, 2, 2, 1});
}
