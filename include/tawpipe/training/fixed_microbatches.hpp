// The same microbatches at every step, as reference runs record them.
// Not: for training on text (training/token_windows.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tawpipe/core/config.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/training/microbatch_source.hpp"
#include "tawpipe/training/safetensors.hpp"

namespace tawpipe::inline v0::training {

/// A file with `tokens` and `targets`, whole numbers [microbatches, microbatch size, sequence],
/// repeated at every step.
class FixedMicrobatches final : public MicrobatchSource {
 public:
  /// @param vocab  each token must be below it
  /// @throws InputError  if the file is broken (SafetensorsFile), lacks one of the two, their
  /// shapes differ or are not of three axes, or a token lies outside the vocabulary.
  FixedMicrobatches(const std::string& path, std::int32_t vocab) {
    const SafetensorsFile file{path};
    shape_ = file.tensor("tokens").shape;
    if (shape_.size() != 3 || *std::min_element(shape_.begin(), shape_.end()) < 1 ||
        *std::max_element(shape_.begin(), shape_.end()) > std::int64_t{1} << 30) {
      throw InputError(concat("tensor 'tokens' in ", quote(path), " has shape ", shape_text(shape_),
                              "; [microbatches, microbatch size, sequence] is needed"));
    }
    file.tensor("targets", shape_);
    tokens_ = checked(file, "tokens", vocab);
    targets_ = checked(file, "targets", vocab);
  }

  std::int32_t microbatches() const { return static_cast<std::int32_t>(shape_[0]); }
  std::int32_t microbatch_size() const { return static_cast<std::int32_t>(shape_[1]); }
  std::int32_t sequence() const { return static_cast<std::int32_t>(shape_[2]); }

  /// @pre microbatch < microbatches()
  void fetch(std::int64_t /*step*/, std::int32_t microbatch, std::span<std::int32_t> tokens,
             std::span<std::int32_t> targets) const override {
    const auto size = static_cast<std::size_t>(shape_[1] * shape_[2]);
    TAWPIPE_ASSERT(microbatch >= 0 && microbatch < microbatches(), "no such microbatch");
    TAWPIPE_ASSERT(tokens.size() == size && targets.size() == size, "a microbatch of another size");
    const auto first = static_cast<std::ptrdiff_t>(size) * microbatch;
    std::copy_n(tokens_.begin() + first, size, tokens.begin());
    std::copy_n(targets_.begin() + first, size, targets.begin());
  }

 private:
  static std::vector<std::int32_t> checked(const SafetensorsFile& file, const std::string& name, std::int32_t vocab) {
    auto numbers = file.read<std::int32_t>(name);
    for (const std::int32_t token : numbers) {
      if (token >= 0 && token < vocab) continue;
      throw InputError(concat("tensor ", quote(name), " in ", quote(file.path()), " holds the token ", token,
                              ", outside the vocabulary of ", vocab));
    }
    return numbers;
  }

  std::vector<std::int64_t> shape_;
  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> targets_;
};

}  // namespace tawpipe::training
