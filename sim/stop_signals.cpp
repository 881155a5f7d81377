// The handlers of signals that stop a training.
#include "stop_signals.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <string>

#include "leave.hpp"
#include "output_file.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::sim {

namespace {

constexpr std::array taken_signals{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
constexpr std::string_view plain_note = "\ntawpipe: stops after this step, with a checkpoint; once more stops at once\n";
constexpr const char* late_note = "tawpipe: the step took too long: no checkpoint of it\n";

volatile std::sig_atomic_t stopped_by = 0;
std::atomic<bool> tells_of_stop{false};
std::array<struct sigaction, taken_signals.size()> before{};
std::array<bool, taken_signals.size()> installed{};
std::mutex installing;
int users = 0;

/// The time from the launcher's SIGTERM to its SIGKILL.
int grace_milliseconds = 0;  ///< less what leaving takes; 0: no limit
std::string grace_note;

void take_back() {
  for (std::size_t i = 0; i < taken_signals.size(); ++i) {
    if (installed[i]) ::sigaction(taken_signals[i], &before[i], nullptr);
  }
}

void end_unfinished(int) {
  leave_detail::say_ending();
  remove_unfinished_files();
  std::signal(SIGTERM, SIG_DFL);
  std::raise(SIGTERM);
}

void stop_at_step(int signal, siginfo_t* info, void*) {
  stopped_by = signal;
  take_back();
  const bool by_launcher = grace_milliseconds > 0 && signal == SIGTERM && info->si_pid == ::getppid();
  if (tells_of_stop.load()) leave_detail::say(by_launcher ? std::string_view{grace_note} : plain_note);
  if (!by_launcher) return;
  if (tells_of_stop.load()) leave_detail::ending = late_note;
  std::signal(SIGALRM, end_unfinished);
  leave_detail::alarm_in(grace_milliseconds);
}

/// What Open MPI's mpirun sets in the environment of the processes that it starts.
void find_grace() {
  if (std::getenv("OMPI_COMM_WORLD_RANK") == nullptr) return;
  const char* const given = std::getenv("OMPI_MCA_odls_base_sigkill_timeout");
  const double seconds = given == nullptr ? 1 : to_number<double>(given).value_or(0);
  if (!(seconds > 0) || seconds > 1e6) return;
  grace_milliseconds = static_cast<int>(std::max(seconds * 1000 - 400, 100.0));
  grace_note =
      concat("\ntawpipe: stops after this step, with a checkpoint, where both take less than the ", std::llround(seconds),
             " s that mpirun gives; its option --mca odls_base_sigkill_timeout SECONDS gives more, and kill -USR1 of "
             "mpirun as long as it takes\n");
}

}  // namespace

int stop_signal() { return stopped_by; }

std::string_view name_of_signal(int signal) {
  switch (signal) {
    case SIGHUP:
      return "SIGHUP";
    case SIGINT:
      return "SIGINT";
    case SIGTERM:
      return "SIGTERM";
    default:
      return "SIGUSR1";
  }
}

StopSignals::StopSignals(bool wanted, bool tells) : wanted_{wanted} {
  if (!wanted_) return;
  const std::lock_guard lock{installing};
  if (tells) tells_of_stop = true;
  if (users++ > 0) return;
  find_grace();
  for (std::size_t i = 0; i < taken_signals.size(); ++i) {
    ::sigaction(taken_signals[i], nullptr, &before[i]);
    installed[i] = before[i].sa_handler != SIG_IGN;
    if (!installed[i]) continue;
    struct sigaction action {};
    action.sa_sigaction = stop_at_step;
    action.sa_flags = static_cast<int>(SA_SIGINFO | SA_RESTART);
    ::sigaction(taken_signals[i], &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  if (!wanted_) return;
  const std::lock_guard lock{installing};
  if (--users == 0) take_back();
}

}  // namespace tawpipe::sim
