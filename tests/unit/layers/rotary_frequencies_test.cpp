// Rotary frequencies. Not: refusals of models, which those who compute them test.
#include "tawpipe/layers/rotary_frequencies.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

using tawpipe::DecoderConstants;
using tawpipe::RotaryScaling;
using tawpipe::layers::rotary_frequencies;

TEST_CASE("rotary frequencies are those of transformers") {
  // LlamaRotaryEmbedding(config).inv_freq of transformers 5.24 with its float32 replaced by float64; heads of 16.
  struct Given {
    RotaryScaling scaling;
    std::vector<double> frequencies;
  };
  for (const Given& given :
       {Given{{},
              {1.0, 0.31622776601683794, 0.1, 0.03162277660168379, 0.01, 0.003162277660168379, 0.001, 0.00031622776601683794}},
        Given{{.kind = RotaryScaling::Kind::linear, .factor = 4},
              {0.25, 0.07905694150420949, 0.025, 0.007905694150420948, 0.0025, 0.0007905694150420947, 0.00025,
               7.905694150420948e-05}},
        Given{{.kind = RotaryScaling::Kind::llama3,
        .factor = 8,
        .low_freq_factor = 1,
        .high_freq_factor = 4,
        .original_positions = 64},
              {1.0, 0.24438459943539836, 0.013042256043820465, 0.003952847075210474, 0.00125, 0.00039528470752104737, 0.000125,
               3.952847075210474e-05}}}) {
    const DecoderConstants options{.rope_theta = 1e4, .scaling = given.scaling};
    const auto found = rotary_frequencies<double>(options, 16);
    const auto rounded = rotary_frequencies<float>(options, 16);
    REQUIRE(found.size() == given.frequencies.size());
    for (std::size_t j = 0; j < found.size(); ++j) {
      CHECK(found[j] == doctest::Approx(given.frequencies[j]).epsilon(1e-15));
      CHECK(rounded[j] == doctest::Approx(given.frequencies[j]).epsilon(1e-6));
    }
  }
}
