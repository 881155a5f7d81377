// Reports the progress of a simulation to the program that started it.
// Not: a display of that (report/progress.hpp).
#pragma once

#include <cstddef>

#include "tawpipe/core/function_ref.hpp"

namespace tawpipe::inline v0 {

/// Called with the number of a simulation's tasks that have ended, and the number of all.
using SimulationProgress = FunctionRef<void(std::size_t ended, std::size_t all)>;

namespace detail {

/// Of the simulations on this thread; null: nobody.
inline thread_local const SimulationProgress* told_progress = nullptr;

}  // namespace detail

/// While it lives, each simulation that starts on this thread reports its progress about a hundred
/// times.
///
/// Example:
/// ```cpp
/// const auto show = [](std::size_t ended, std::size_t all) { fmt::print("{} of {}\n", ended, all); };
/// const tawpipe::SimulationWatch watch{show};
/// const auto timeline = tawpipe::simulate(schedule, cluster, tawpipe::RooflineCost{});
/// ```
class SimulationWatch {
 public:
  /// @param progress  refers to what must outlive the watch
  explicit SimulationWatch(SimulationProgress progress) : progress_{progress}, before_{detail::told_progress} {
    detail::told_progress = &progress_;
  }
  SimulationWatch(const SimulationWatch&) = delete;
  SimulationWatch& operator=(const SimulationWatch&) = delete;
  ~SimulationWatch() { detail::told_progress = before_; }

 private:
  SimulationProgress progress_;
  const SimulationProgress* before_;
};

}  // namespace tawpipe
