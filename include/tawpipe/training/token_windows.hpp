// Microbatches cut from a file of tokens, at random positions or one after another.
// Not: the file (training/token_data.hpp). It keeps no state: step and microbatch determine the
// result.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/config.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/splitmix64.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/training/microbatch_source.hpp"
#include "tawpipe/training/token_data.hpp"

namespace tawpipe::inline v0::training {

/// Where the sequences of a microbatch begin.
enum class DataOrder : std::uint8_t {
  random,  ///< anywhere, independently of each other, as in nanoGPT's get_batch
  /// one after another, restarting at the end; a remainder shorter than a sequence is left out
  sequential,
};

constexpr std::string_view name(DataOrder order) { return order == DataOrder::random ? "random" : "sequential"; }

/// @throws InputError  naming the nearest and all known orders.
inline DataOrder parse_data_order(std::string_view text) {
  if (text == name(DataOrder::random)) return DataOrder::random;
  if (text == name(DataOrder::sequential)) return DataOrder::sequential;
  throw InputError(unknown_name("data order", text, {"random", "sequential"}));
}

/// The shape of TokenWindows.
struct WindowOptions {
  std::int32_t microbatch_size = 1;  ///< sequences of a microbatch
  std::int32_t sequence = 0;         ///< tokens of a sequence
  std::int32_t microbatches = 1;     ///< of one step, over all ranks; used by sequential order
  std::int32_t vocab = 256;
  std::uint64_t seed = 0;
  DataOrder order = DataOrder::random;
};

/// Sequences of `sequence` tokens with the token that follows each, from one range of a file.
class TokenWindows final : public MicrobatchSource {
 public:
  /// @throws InputError  if the range holds fewer than sequence + 1 tokens, or a size is below 1.
  TokenWindows(std::shared_ptr<const TokenFile> file, TokenRange range, const WindowOptions& options)
      : file_{std::move(file)}, range_{range}, options_{options} {
    check_size(options_.microbatch_size, "a microbatch of ", " sequences");
    check_size(options_.sequence, "a sequence of ", " tokens");
    check_size(options_.microbatches, "a step of ", " microbatches");
    if (range_.count() <= options_.sequence) {
      const bool whole = range_ == TokenRange{0, file_->count()};
      throw InputError(concat("token file ", quote(file_->path()), " holds ", range_.count(), " tokens",
                              whole ? "" : concat(" from ", range_.begin, " on, the part to be used"), "; a sequence of ",
                              options_.sequence, " needs at least ", std::int64_t{options_.sequence} + 1,
                              ": give a longer file or a shorter sequence"));
    }
  }

  /// Tokens of one pass over the data in sequential order: whole sequences only.
  std::int64_t tokens_per_pass() const { return windows() * options_.sequence; }

  void fetch(std::int64_t step, std::int32_t microbatch, std::span<std::int32_t> tokens,
             std::span<std::int32_t> targets) const override {
    const auto sequence = static_cast<std::size_t>(options_.sequence);
    TAWPIPE_ASSERT(
        tokens.size() == sequence * static_cast<std::size_t>(options_.microbatch_size) && targets.size() == tokens.size(),
        "a microbatch of another size");
    std::vector<std::int32_t> window(sequence + 1);
    for (std::int32_t row = 0; row < options_.microbatch_size; ++row) {
      file_->read(range_.begin + start(step, microbatch, row), window, options_.vocab);
      const std::size_t at = static_cast<std::size_t>(row) * sequence;
      for (std::size_t i = 0; i < sequence; ++i) {
        tokens[at + i] = window[i];
        targets[at + i] = window[i + 1];
      }
    }
  }

  /// First token of a sequence, counted from the start of the range: 0 .. count - sequence - 1.
  /// @pre step >= 1
  std::int64_t start(std::int64_t step, std::int32_t microbatch, std::int32_t row) const {
    TAWPIPE_ASSERT(step >= 1, "the first step is 1");
    if (options_.order == DataOrder::random) {
      // Drawn from all positions by remainder: the bias towards any position is below count / 2^64.
      std::uint64_t state = splitmix64(options_.seed);
      state = splitmix64(state ^ static_cast<std::uint64_t>(step));
      state = splitmix64(state ^ static_cast<std::uint64_t>(microbatch));
      state = splitmix64(state ^ static_cast<std::uint64_t>(row));
      return static_cast<std::int64_t>(state % static_cast<std::uint64_t>(range_.count() - options_.sequence));
    }
    // Remainders first: the product stays within 64 bits, for any number of steps.
    const auto count = static_cast<std::uint64_t>(windows());
    const auto size = static_cast<std::uint64_t>(options_.microbatch_size);
    const std::uint64_t before =
        static_cast<std::uint64_t>(step - 1) % count * (static_cast<std::uint64_t>(options_.microbatches) * size % count);
    const std::uint64_t in_step = static_cast<std::uint64_t>(microbatch) * size + static_cast<std::uint64_t>(row);
    return static_cast<std::int64_t>((before + in_step) % count) * options_.sequence;
  }

 private:
  static void check_size(std::int32_t value, std::string_view before, std::string_view after) {
    if (value < 1) throw InputError(concat(before, value, after, " is impossible; it must be at least 1"));
  }

  /// Sequences in the range that do not overlap and have a token after them.
  std::int64_t windows() const { return (range_.count() - 1) / options_.sequence; }

  std::shared_ptr<const TokenFile> file_;
  TokenRange range_;
  WindowOptions options_;
};

}  // namespace tawpipe::training
