// SplitMix64: numbers that look random, the same on every machine.
// Not: a distribution; callers build one from sums and products, so that results are bit-identical
// with every standard library.
#pragma once

#include <cstdint>

namespace tawpipe::inline v0 {

/// What each number adds to SplitMix64's state.
inline constexpr std::uint64_t splitmix64_step = 0x9e3779b97f4a7c15U;

/// The number that SplitMix64 gives next in state `state`: every bit of it depends on every bit of
/// the state.
/// Source: Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators", section 4.
/// Example: `std::uint64_t z = splitmix64(state); state += splitmix64_step;`
constexpr std::uint64_t splitmix64(std::uint64_t state) {
  std::uint64_t z = state + splitmix64_step;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

}  // namespace tawpipe
