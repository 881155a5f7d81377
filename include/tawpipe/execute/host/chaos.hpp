// Random delays before tasks, to expose races: a schedule's result must not depend on when its
// tasks run.
// Not: a model of a slow machine (simulate/).
#pragma once

#include <chrono>
#include <cstdint>
#include <random>
#include <thread>

#include "tawpipe/core/ids.hpp"

namespace tawpipe::inline v0::host {

/// The delays of an executor.
struct Chaos {
  std::uint64_t seed = 0;
  std::int64_t longest_microseconds = 0;  ///< each delay is from 0 to this; 0: none
};

/// The delays of one lane of one rank in one iteration: the same for the same seed.
class ChaosDelay {
 public:
  ChaosDelay(const Chaos& chaos, Rank rank, int lane, std::int64_t step) : longest_{chaos.longest_microseconds} {
    std::seed_seq seeds{chaos.seed, static_cast<std::uint64_t>(number(rank)), static_cast<std::uint64_t>(lane),
                        static_cast<std::uint64_t>(step)};
    if (longest_ > 0) random_.seed(seeds);
  }

  /// Sleeps, or half of the time only yields.
  void delay() {
    if (longest_ <= 0) return;
    const std::uint64_t drawn = random_();
    if (drawn % 2 == 0) {
      std::this_thread::yield();
      return;
    }
    std::this_thread::sleep_for(
        std::chrono::microseconds{static_cast<std::int64_t>(drawn / 2 % static_cast<std::uint64_t>(longest_ + 1))});
  }

 private:
  std::int64_t longest_;
  std::mt19937_64 random_;
};

}  // namespace tawpipe::host
