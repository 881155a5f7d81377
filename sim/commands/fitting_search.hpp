// Looks for a layout that fits while the one asked for is still simulated.
// Not: the search (search/what_fits.hpp) nor its text (advice.hpp).
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <optional>
#include <string>
#include <utility>

#include "../request.hpp"
#include "output.hpp"
#include "tawpipe/report/progress.hpp"
#include "tawpipe/simulate/watch.hpp"

namespace tawpipe::sim {

/// A line of progress while many tasks are simulated.
class SimulationLine {
 public:
  explicit SimulationLine(std::string label) : label_{std::move(label)} {}
  void show(std::size_t ended, std::size_t all) {
    constexpr std::size_t many = 100'000;
    if (all < many) return;
    const auto done = static_cast<std::int64_t>(ended);
    if (!progress_ || progress_->done() > done) {  // another microbatch, recomputation or layout
      progress_.reset();
      progress_.emplace(progress_line(label_, static_cast<std::int64_t>(all)));
    }
    progress_->advance(done - progress_->done());
  }

 private:
  std::string label_;
  std::optional<Progress<>> progress_;
};

/// Runs it with a line of progress of what it simulates.
template <class Run>
auto with_simulation_line(std::string label, Run&& run) {
  SimulationLine line{std::move(label)};
  const auto show = [&](std::size_t ended, std::size_t all) { line.show(ended, all); };
  const SimulationWatch watch{show};
  return run();
}

/// find_fitting_layout() on a thread of its own.
class FittingSearch {
 public:
  /// @param problem  must outlive it
  explicit FittingSearch(const Problem& problem) : problem_{problem} {}

  /// Once; wait() otherwise does it. Destroying the search waits for its end.
  void begin() {
    found_ = std::async(std::launch::async, [this] {
      const auto note = [this](std::size_t ended, std::size_t all) {
        all_ = all;
        ended_ = ended;
      };
      const SimulationWatch watch{note};
      Problem folded = problem_;
      folded.fold = Fold::automatic;
      return find_fitting_layout(folded);
    });
  }

  /// The layout, if there is one, with a line of progress until then.
  std::optional<FittingLayout> wait() {
    if (!found_.valid()) begin();
    SimulationLine line{"looking for what fits"};
    while (found_.wait_for(std::chrono::milliseconds{50}) != std::future_status::ready) line.show(ended_, all_);
    return found_.get();
  }

 private:
  const Problem& problem_;
  std::atomic<std::size_t> ended_ = 0;
  std::atomic<std::size_t> all_ = 0;
  std::future<std::optional<FittingLayout>> found_;  // last: its end is waited for first
};

}  // namespace tawpipe::sim
