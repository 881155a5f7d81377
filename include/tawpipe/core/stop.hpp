// Ends long computations early: they ask now and then whether they were told to.
// Not: signals, which are the program's; nor threads, each of which needs a scope of its own.
#pragma once

#include <optional>
#include <utility>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/function_ref.hpp"

namespace tawpipe::inline v0 {

/// Thrown by a computation that was told to end.
class Stopped : public Error {
 public:
  Stopped() : Error{"stopped"} {}
};

/// Whether a computation was told to end: asked often, and by all threads that take part.
using StopTold = FunctionRef<bool()>;

namespace detail {

/// Of the computations on this thread; null: none ends early.
inline thread_local const StopTold* stop_told = nullptr;

}  // namespace detail

/// While it lives, computations on this thread end with Stopped, or where they have a best so far
/// (plan()) with that, soon after `told` has become true: simulations, predictions and searches. What
/// `told` throws ends them, too.
///
/// Example:
/// ```cpp
/// std::atomic<bool> enough{false};  // set by another thread, or the handler of a signal
/// const auto told = [&] { return enough.load(); };
/// const tawpipe::StopScope scope{told};
/// const tawpipe::PlanResult found = tawpipe::plan(request, tawpipe::shipped_schedules());  // found.stopped
/// ```
class StopScope {
 public:
  /// @param told  refers to what must outlive the scope
  explicit StopScope(StopTold told) : told_{told}, before_{std::exchange(detail::stop_told, &*told_)} {}
  /// That of another thread; null: none.
  explicit StopScope(const StopTold* told) : before_{std::exchange(detail::stop_told, told)} {}
  StopScope(const StopScope&) = delete;
  StopScope& operator=(const StopScope&) = delete;
  ~StopScope() { detail::stop_told = before_; }

 private:
  std::optional<StopTold> told_;
  const StopTold* before_;
};

/// @throws Stopped  if the computations on this thread were told to end
inline void check_stop() {
  if (detail::stop_told != nullptr && (*detail::stop_told)()) throw Stopped{};
}

}  // namespace tawpipe
