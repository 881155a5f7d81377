// The source from which an executor gets the tokens and targets of a microbatch.
// Not: data itself; token_windows.hpp draws from a file, fixed_microbatches.hpp repeats the same.
#pragma once

#include <cstdint>
#include <span>

namespace tawpipe::inline v0::training {

/// Gives each rank any microbatch of any step, without communication: the result depends only on
/// step and microbatch.
class MicrobatchSource {
 public:
  MicrobatchSource() = default;
  virtual ~MicrobatchSource() = default;

  /// Fills one microbatch; several threads may call at once.
  /// @param step  of the optimizer, from 1 (Iteration::step)
  /// @param microbatch  in the whole iteration, over all ranks, from 0
  /// @param tokens  [microbatch_size, sequence]
  /// @param targets  the same shape: the token that follows each
  /// @throws InputError  if the data cannot be read, or holds a token outside the vocabulary.
  virtual void fetch(std::int64_t step, std::int32_t microbatch, std::span<std::int32_t> tokens,
                     std::span<std::int32_t> targets) const = 0;

 protected:
  MicrobatchSource(const MicrobatchSource&) = default;
  MicrobatchSource(MicrobatchSource&&) = default;
  MicrobatchSource& operator=(const MicrobatchSource&) = default;
  MicrobatchSource& operator=(MicrobatchSource&&) = default;
};

}  // namespace tawpipe::training
