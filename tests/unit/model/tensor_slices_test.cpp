// Parts of a decoder for tensor-parallel ranks: every parameter in one part, norms in all, padding in
// none.
#include "tawpipe/model/tensor_slices.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/model/tensor_part.hpp"

using namespace tawpipe;

namespace tensor_slices_test {

Transformer model(int heads, int kv_heads, int intermediate, int vocab) {
  return {.name = "small",
          .layers = 2,
          .hidden = 4 * heads,
          .heads = heads,
          .kv_heads = kv_heads,
          .intermediate = intermediate,
          .vocab = vocab};
}

/// [parameter] how many parts have it
std::vector<int> owners(const Transformer& whole, const TensorSlices& slices) {
  std::vector<int> owners(static_cast<std::size_t>(whole.parameters()), 0);
  for (int rank = 0; rank < slices.parts(); ++rank) {
    slices.for_each_run({0, slices.count()}, rank, [&](const ParameterRange& run, std::int64_t) {
      for (std::int64_t p = run.begin; p < run.end; ++p) ++owners[static_cast<std::size_t>(p)];
    });
  }
  return owners;
}

TEST_CASE("of parts that divide the experts each expert is in one, and all else is in all") {
  Transformer mixture = model(4, 2, 8, 12);
  mixture.experts = 4;
  mixture.experts_per_token = 2;
  mixture.shared_width = 4;
  for (const int parts : {2, 4}) {
    const TensorSlices slices = expert_slices(mixture, parts);
    CHECK(slices.count() == mixture.parameters() - mixture.expert_parameters() / parts * (parts - 1));
    CHECK(slices.blocks().count() == slices.count());
    const std::vector<int> owned = owners(mixture, slices);
    for (const ParameterTensor& tensor : ParameterOrder{mixture}.tensors()) {
      const bool expert = tensor.name.find(".experts.") != std::string::npos;
      for (std::int64_t p = tensor.range.begin; p < tensor.range.end; ++p)
        CHECK(owned[static_cast<std::size_t>(p)] == (expert ? 1 : parts));
    }
    // The last part's first expert of layer 1.
    const std::string name =
        parts == 2 ? "decoders.1.feed_forward.experts.2.w1.weight" : "decoders.1.feed_forward.experts.3.w1.weight";
    std::vector<ParameterRange> runs;
    slices.for_each_run({0, slices.count()}, parts - 1, [&](const ParameterRange& run, std::int64_t) { runs.push_back(run); });
    const auto tensors = ParameterOrder{mixture}.tensors();
    const auto at =
        std::find_if(tensors.begin(), tensors.end(), [&](const ParameterTensor& tensor) { return tensor.name == name; });
    CHECK(std::any_of(runs.begin(), runs.end(), [&](const ParameterRange& run) { return run.begin == at->range.begin; }));
  }
  CHECK_THROWS_AS(expert_slices(mixture, 3), InputError);
}

TEST_CASE("of parts of matrices with whole experts each expert is in one, each part of a matrix in as many as repeat it") {
  Transformer mixture = model(4, 2, 8, 12);
  mixture.experts = 4;
  mixture.experts_per_token = 2;
  mixture.shared_width = 6;
  const TensorSlices slices = expert_slices(mixture, 4, 2);
  CHECK(slices.blocks().count() == slices.count());
  const std::vector<int> owned = owners(mixture, slices);
  for (const ParameterTensor& tensor : ParameterOrder{mixture}.tensors()) {
    CAPTURE(tensor.name);
    const bool expert = tensor.name.find(".experts.") != std::string::npos;
    const bool whole = !tensor.decays() || tensor.name.ends_with("feed_forward.gate.weight");
    for (std::int64_t p = tensor.range.begin; p < tensor.range.end; ++p)
      CHECK(owned[static_cast<std::size_t>(p)] == (expert ? 1 : whole ? 4 : 2));
  }
}

TEST_CASE("each parameter is in one part, those of norms are in all") {
  for (const Transformer& whole : {model(4, 2, 8, 10), model(6, 3, 10, 61), model(4, 4, 7, 9)}) {
    const TensorSlices slices = tensor_slices(whole, 2);
    const std::vector<int> owned = owners(whole, slices);
    for (const ParameterTensor& tensor : ParameterOrder{whole}.tensors()) {
      CAPTURE(tensor.name);
      for (std::int64_t p = tensor.range.begin; p < tensor.range.end; ++p)
        CHECK(owned[static_cast<std::size_t>(p)] == (tensor.decays() ? 1 : 2));
    }
  }
}

TEST_CASE("attention's output and down are cut by columns, what is before them by rows") {
  const Transformer whole = model(4, 2, 8, 10);  // hidden 16, so rows of wo are 16 long: 8 in a part
  const TensorSlices slices = tensor_slices(whole, 2);
  const auto tensors = ParameterOrder{whole}.tensors();
  const ParameterRange wq = tensors[1].range;  // [16, 16]: rows 8 .. 15 are the second part's
  const ParameterRange wo = tensors[4].range;
  std::vector<ParameterRange> runs;
  slices.for_each_run({0, slices.count()}, 1, [&](const ParameterRange& run, std::int64_t) { runs.push_back(run); });
  CHECK(runs[0] == ParameterRange{5 * 16, 10 * 16});  // the embedding's rows 5 .. 9
  CHECK(runs[1] == ParameterRange{wq.begin + 8 * 16, wq.end});
  CHECK(runs[4] == ParameterRange{wo.begin + 8, wo.begin + 16});
  CHECK(runs[5] == ParameterRange{wo.begin + 24, wo.begin + 32});
}

TEST_CASE("shares of ranges that follow each other follow each other, and padding follows the model") {
  const Transformer whole = model(6, 3, 10, 61);
  const TensorSlices slices = tensor_slices(whole, 2);
  const std::int64_t all = whole.parameters();
  std::int64_t reached = 0;
  for (std::int64_t begin = 0; begin < all; begin += 37) {
    const ParameterRange share = slices.share(ParameterRange{begin, std::min(begin + 37, all)});
    CHECK(share.begin == reached);
    reached = share.end;
  }
  CHECK(reached == slices.count());
  CHECK(slices.share(ParameterRange{all + 1, all + 9}) == ParameterRange{slices.count() + 1, slices.count() + 9});
  const ParameterRange layer = ParameterOrder{whole}.layers(1, 1);
  CHECK(slices.share(layer) == slices.blocks().layers(1, 1));
}

TEST_CASE("a part without heads, or experts, is refused by name") {
  CHECK_THROWS_WITH_AS(
      tensor_part(model(4, 2, 8, 10), 4),
      "model 'small': tensor parallelism among 4 ranks leaves the last none of its 2 key and value heads; choose "
      "fewer",
      InputError);
  Transformer latent = model(4, 4, 8, 10);
  latent.key_value_rank = 4;
  CHECK_THROWS_AS(tensor_part(latent, 2), InputError);
}

}  // namespace tensor_slices_test
