// Tests of training/token_windows.hpp: draws depend only on seed, step and microbatch.
// Not: the files (token_data_test.cpp).
#include "tawpipe/training/token_windows.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "support/scratch_folder.hpp"

using support::put_file;
using support::ScratchFolder;
using tawpipe::InputError;
using tawpipe::training::DataOrder;
using tawpipe::training::TokenFile;
using tawpipe::training::TokenWindows;
using tawpipe::training::WindowOptions;

namespace {

struct Microbatch {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;
  bool operator==(const Microbatch&) const = default;
};

Microbatch fetch(const TokenWindows& windows, const WindowOptions& options, std::int64_t step, std::int32_t microbatch) {
  const auto size = static_cast<std::size_t>(options.microbatch_size) * static_cast<std::size_t>(options.sequence);
  Microbatch batch{std::vector<std::int32_t>(size), std::vector<std::int32_t>(size)};
  windows.fetch(step, microbatch, batch.tokens, batch.targets);
  return batch;
}

/// 0, 1, .. `count` - 1 as bytes.
std::shared_ptr<const TokenFile> counting(const ScratchFolder& folder, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(i);
  put_file(folder / "x", bytes);
  return std::make_shared<const TokenFile>(folder / "x");
}

}  // namespace

TEST_CASE("sequential order takes sequence after sequence, through all microbatches of a step") {
  const ScratchFolder folder;
  // 14 tokens, sequences of 3: 4 whole ones with a token after them (13 / 3), starting at 0, 3, 6,
  // 9
  const WindowOptions options{.microbatch_size = 2, .sequence = 3, .microbatches = 3, .order = DataOrder::sequential};
  const TokenWindows windows{counting(folder, 14), {0, 14}, options};
  CHECK(windows.tokens_per_pass() == 12);
  CHECK(fetch(windows, options, 1, 0) == Microbatch{{0, 1, 2, 3, 4, 5}, {1, 2, 3, 4, 5, 6}});
  CHECK(fetch(windows, options, 1, 1) == Microbatch{{6, 7, 8, 9, 10, 11}, {7, 8, 9, 10, 11, 12}});
  CHECK(fetch(windows, options, 1, 2) == fetch(windows, options, 1, 0));  // the second pass
  // step 2 begins with sequence 6, which is 6 - 4 = 2
  CHECK(fetch(windows, options, 2, 0) == fetch(windows, options, 1, 1));
  CHECK(windows.start((std::int64_t{1} << 60) + 1, 0, 1) == 3);  // 2^60 x 6 is a multiple of 4
}

TEST_CASE("random windows repeat for the same step and microbatch, and differ for others") {
  const ScratchFolder folder;
  const WindowOptions options{.microbatch_size = 2, .sequence = 4, .microbatches = 8, .seed = 5};
  const auto file = counting(folder, 200);
  const TokenWindows windows{file, {0, 200}, options};
  const TokenWindows again{file, {0, 200}, options};
  for (const std::int64_t step : {std::int64_t{1}, std::int64_t{7}, std::int64_t{1'000'000'000'000}}) {
    const Microbatch batch = fetch(windows, options, step, 3);
    CHECK(batch == fetch(again, options, step, 3));
    for (std::size_t i = 0; i < batch.tokens.size(); ++i) CHECK(batch.targets[i] == batch.tokens[i] + 1);
  }
  WindowOptions other = options;
  other.seed = 6;
  std::set<std::int64_t> starts;
  for (int step = 1; step <= 4; ++step) {
    for (int microbatch = 0; microbatch < 8; ++microbatch) {
      for (int row = 0; row < 2; ++row) {
        starts.insert(windows.start(step, microbatch, row));
        starts.insert(TokenWindows{file, {0, 200}, other}.start(step, microbatch, row));
      }
    }
  }
  CHECK(starts.size() > 60);  // of 128 draws among 196 places 94 differ on average: 196 (1 - (195/196)^128)
}

TEST_CASE("random windows reach every place of their range equally often, and none outside") {
  const ScratchFolder folder;
  const WindowOptions options{.sequence = 4};
  const TokenWindows windows{counting(folder, 30), {10, 22}, options};
  // 12 tokens, sequences of 4 with one after: positions 0 .. 7 of the range; 8000 draws, 1000 each
  // with a deviation of 30
  std::vector<int> drawn(8);
  for (int step = 1; step <= 8000; ++step) ++drawn.at(static_cast<std::size_t>(windows.start(step, 0, 0)));
  for (const int count : drawn) CHECK((count > 850 && count < 1150));
  for (int step = 1; step <= 100; ++step) {
    const Microbatch batch = fetch(windows, options, step, 0);
    CHECK(batch.tokens.front() >= 10);
    CHECK(batch.targets.back() < 22);
  }
}

TEST_CASE("a range of sequence + 1 tokens is enough, one less is refused") {
  const ScratchFolder folder;
  const auto file = counting(folder, 5);
  WindowOptions options{.sequence = 4};
  CHECK(fetch(TokenWindows{file, {0, 5}, options}, options, 9, 0) == Microbatch{{0, 1, 2, 3}, {1, 2, 3, 4}});
  options.order = DataOrder::sequential;
  CHECK(fetch(TokenWindows{file, {0, 5}, options}, options, 9, 0) == Microbatch{{0, 1, 2, 3}, {1, 2, 3, 4}});
  options.sequence = 5;
  CHECK_THROWS_WITH_AS((TokenWindows{file, {0, 5}, options}),
                       doctest::Contains("holds 5 tokens; a sequence of 5 needs at least 6"), InputError);
  CHECK_THROWS_WITH_AS((TokenWindows{file, {4, 5}, options}), doctest::Contains("holds 1 tokens from 4 on, the part to be used"),
                       InputError);
  options.sequence = 0;
  CHECK_THROWS_WITH_AS((TokenWindows{file, {0, 5}, options}), doctest::Contains("must be at least 1"), InputError);
}

TEST_CASE("a token outside the vocabulary is found when it is drawn") {
  const ScratchFolder folder;
  const WindowOptions options{.sequence = 4, .vocab = 4};
  const TokenWindows windows{counting(folder, 5), {0, 5}, options};
  CHECK_THROWS_WITH_AS(fetch(windows, options, 1, 0), doctest::Contains("token 4 at position 4"), InputError);
}

TEST_CASE("threads get the same microbatches as one after the other") {
  const ScratchFolder folder;
  const WindowOptions options{.microbatch_size = 3, .sequence = 16, .microbatches = 4};
  const TokenWindows windows{counting(folder, 256), {0, 256}, options};
  std::vector<std::vector<Microbatch>> got(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < got.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int step = 1; step <= 50; ++step) got[t].push_back(fetch(windows, options, step, static_cast<std::int32_t>(t)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t t = 0; t < got.size(); ++t) {
    for (int step = 1; step <= 50; ++step) {
      CHECK(got[t][static_cast<std::size_t>(step - 1)] == fetch(windows, options, step, static_cast<std::int32_t>(t)));
    }
  }
}

TEST_CASE("orders are read by name") {
  CHECK(tawpipe::training::parse_data_order("sequential") == DataOrder::sequential);
  CHECK(tawpipe::training::parse_data_order("random") == DataOrder::random);
  CHECK_THROWS_WITH_AS(tawpipe::training::parse_data_order("randm"), doctest::Contains("did you mean 'random'?"), InputError);
}
