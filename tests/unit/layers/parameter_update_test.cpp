// Which parameters decay, over any range of them. Not: the step (adamw_test.cpp).
#include "tawpipe/layers/parameter_update.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "support/small_decoder.hpp"

TEST_CASE("parts of a range are whole, in order, and decay as their tensors do") {
  tawpipe::Transformer mixture = support::small_decoder();
  mixture.experts = 3;
  mixture.experts_per_token = 2;
  mixture.shared_width = 4;
  tawpipe::Transformer with_vectors = support::small_decoder();
  with_vectors.qkv_bias = with_vectors.output_bias = with_vectors.mlp_bias = true;
  with_vectors.qk_norm = tawpipe::QkNorm::head;
  for (const tawpipe::Transformer& model : {support::small_decoder(), support::small_decoder(false), mixture, with_vectors}) {
    const tawpipe::ParameterOrder order{model};
    std::vector<bool> decays;
    for (const auto& tensor : order.tensors())
      decays.insert(decays.end(), static_cast<std::size_t>(tensor.range.count()), tensor.decays());
    for (const std::int64_t begin : {0, 1, 79, 80, 500, 1079}) {
      for (const std::int64_t end : {begin, begin + 1, order.count()}) {
        std::int64_t at = begin;
        tawpipe::layers::for_each_alike(model, {begin, end}, [&](const tawpipe::ParameterRange& part, bool decay) {
          CHECK(part.begin == at);
          CHECK(part.count() > 0);
          for (; at < part.end; ++at) CHECK(decays[static_cast<std::size_t>(at)] == decay);
        });
        CHECK(at == end);
      }
    }
  }
}
