// Tests of training/fixed_microbatches.hpp.
// Not: the file format (safetensors_test.cpp).
#include "tawpipe/training/fixed_microbatches.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "support/scratch_folder.hpp"

using support::ScratchFolder;
using tawpipe::InputError;
using tawpipe::training::FixedMicrobatches;
using tawpipe::training::NumberFormat;
using tawpipe::training::SafetensorsWriter;

namespace {

void write(const std::string& path, const std::vector<std::int64_t>& tokens, const std::vector<std::int64_t>& targets) {
  const std::vector<std::int32_t> numbers{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  SafetensorsWriter writer{path, {{"targets", NumberFormat::i32, targets}, {"tokens", NumberFormat::i32, tokens}}};
  for (int twice = 0; twice < 2; ++twice) writer.write<std::int32_t>(numbers);
  writer.finish();
}

}  // namespace

TEST_CASE("fixed microbatches are the same at every step") {
  const ScratchFolder folder;
  write(folder / "x", {3, 2, 2}, {3, 2, 2});
  const FixedMicrobatches data{folder / "x", 12};
  CHECK(data.microbatches() == 3);
  CHECK(data.microbatch_size() == 2);
  CHECK(data.sequence() == 2);
  std::vector<std::int32_t> tokens(4);
  std::vector<std::int32_t> targets(4);
  for (const int step : {0, 5}) {
    data.fetch(step, 1, tokens, targets);
    CHECK(tokens == std::vector<std::int32_t>{4, 5, 6, 7});
    CHECK(targets == tokens);
  }
}

TEST_CASE("fixed microbatches of a wrong shape or vocabulary are refused") {
  const ScratchFolder folder;
  write(folder / "x", {3, 4}, {3, 4});
  CHECK_THROWS_WITH_AS((FixedMicrobatches{folder / "x", 12}),
                       doctest::Contains("has shape [3, 4]; [microbatches, microbatch size, sequence] is needed"), InputError);
  write(folder / "x", {3, 2, 2}, {3, 4, 1});
  CHECK_THROWS_WITH_AS((FixedMicrobatches{folder / "x", 12}), doctest::Contains("'targets'"), InputError);
  write(folder / "x", {3, 2, 2}, {3, 2, 2});
  CHECK_THROWS_WITH_AS((FixedMicrobatches{folder / "x", 11}),
                       doctest::Contains("holds the token 11, outside the vocabulary of 11"), InputError);
}

TEST_CASE("the reference data open") {
  const std::string path = TAWPIPE_SHARED "/reference/llama_golden/B/B.data.safetensors";
  if (!std::filesystem::exists(path)) return;
  const FixedMicrobatches data{path, 97};
  CHECK(data.microbatches() == 24);
  CHECK(data.microbatch_size() == 2);
  CHECK(data.sequence() == 24);
}
