// How a process of a failed multi-process run exits: one line, exit code 3, at the same time on a
// host.
// Not: the detection (execute/watch.hpp), which does not end processes. For the command, and
// programs that tests start.
#pragma once

#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace tawpipe::sim {

namespace leave_detail {

inline std::atomic<bool> leaving{false};
inline std::atomic<void (*)()> clean_up{nullptr};
/// What a process says first that was told to end soon: other ranks may have ended before it.
inline std::atomic<const char*> ending{nullptr};

inline void clean() {
  if (auto* const clean_up_now = clean_up.load()) clean_up_now();
}
/// Ends the process as SIGTERM would have.
inline void terminate(int) {
  clean();
  std::signal(SIGTERM, SIG_DFL);
  std::raise(SIGTERM);
}
/// SIGALRM comes in that many milliseconds, unless the process is already leaving. May be called in
/// a signal's handler.
inline void alarm_in(int milliseconds) {
  if (leaving.load()) return;
  const itimerval time{{0, 0}, {milliseconds / 1000, milliseconds % 1000 * 1000}};
  ::setitimer(ITIMER_REAL, &time, nullptr);
}
inline void on_terminate(int) { alarm_in(500); }
/// On standard error, without locks. May be called in a signal's handler.
inline void say(std::string_view text) {
  const auto written = ::write(STDERR_FILENO, text.data(), text.size());
  static_cast<void>(written);
}
/// Says `ending`, once. May be called in a signal's handler.
inline void say_ending() {
  if (const char* const text = ending.exchange(nullptr)) say(text);
}

}  // namespace leave_detail

/// The last action of a process that exits, possibly from a signal: a function without locks and
/// allocation.
inline void clean_up_by(void (*clean_up)()) { leave_detail::clean_up = clean_up; }

/// A FailureCallback: prints `tawpipe: why` and ends the process with code 3, without waiting for
/// any thread, 0.3 to 0.8 s later: all ranks of a host exit at the same time, since Open MPI's
/// mpirun kills the rest as soon as two have exited.
inline void leave(const std::string& why) {
  if (leave_detail::leaving.exchange(true)) return;
  ::alarm(3);  // in case even these few lines do not finish
  if (::ftrylockfile(stdout) == 0) std::fflush(stdout);
  leave_detail::say_ending();
  leave_detail::say("tawpipe: " + why + "\n");
  leave_detail::clean();  // a launcher that told its ranks to end may kill them before they exit
  std::thread{[] {
    using std::chrono::steady_clock;
    constexpr std::chrono::milliseconds half{500};
    const auto earliest = steady_clock::now().time_since_epoch() + std::chrono::milliseconds{300};
    std::this_thread::sleep_until(steady_clock::time_point{(earliest + half - std::chrono::nanoseconds{1}) / half * half});
    leave_detail::clean();
    ::_exit(3);
  }}.detach();
}

/// Ends the process with code 3 in that many seconds, whatever its own end waits for.
inline void leave_within(int seconds) {
  std::thread{[seconds] {
    std::this_thread::sleep_for(std::chrono::seconds{seconds});
    leave_detail::clean();
    ::_exit(3);
  }}.detach();
}

/// Exits with `why` if it lives longer than that many seconds: for a start that nothing else
/// monitors.
class LeaveAfter {
 public:
  LeaveAfter(double seconds, std::string why)
      : thread_{[seconds, why = std::move(why)](const std::stop_token& ended) {
          std::mutex mutex;
          std::unique_lock lock{mutex};
          std::condition_variable_any{}.wait_for(lock, ended, std::chrono::duration<double>{seconds}, [] { return false; });
          if (!ended.stop_requested()) leave(why);
        }} {}

 private:
  std::jthread thread_;
};

/// If the program has not set up SIGTERM itself, it ends the process half a second late from now
/// on: launchers send it to all ranks at once when one has died; in the meantime the ranks find out
/// which one.
inline void delay_terminate() {
  struct sigaction now_set {};
  if (::sigaction(SIGTERM, nullptr, &now_set) != 0 || now_set.sa_handler != SIG_DFL) return;
  std::signal(SIGALRM, &leave_detail::terminate);
  struct sigaction own {};
  own.sa_handler = &leave_detail::on_terminate;
  own.sa_flags = SA_RESTART;
  ::sigaction(SIGTERM, &own, nullptr);
}

}  // namespace tawpipe::sim
