// One run of this command for a page of `tawpipe serve`: a process of its own, with limits of time, memory and output.
// Not: what is run (questions.hpp), nor who waits for it (server.hpp).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "descriptor.hpp"

namespace tawpipe::sim {

struct RunLimits {
  std::chrono::seconds time{120};  ///< then it is told to show the best so far
  double memory = 8e9;             ///< bytes that it may write to
};

/// The end of a run.
struct RunEnd {
  enum class Why { ended, too_long, too_large } why = Why::ended;
  int code = 0;        ///< exit code; -1: by a signal
  std::string output;  ///< what it printed
  std::string errors;  ///< the last of what it complained about
};

/// Runs `tawpipe ARGUMENTS`, in a folder without files. Its end kills a process that still runs.
class CommandRun {
 public:
  using Clock = std::chrono::steady_clock;
  /// @throws Error  where the system has no room for another process
  CommandRun(std::vector<std::string> arguments, const RunLimits& limits);
  CommandRun(const CommandRun&) = delete;
  CommandRun& operator=(const CommandRun&) = delete;
  ~CommandRun();

  /// Its pipes, of which one is to be read before go_on() has anything new; -1: at its end.
  int output() const { return output_.number(); }
  int errors() const { return errors_.number(); }
  /// When go_on() is to be called at the latest.
  Clock::time_point until() const { return until_; }
  /// Reads what there is. @return whether it has ended
  bool go_on();
  /// @pre go_on()
  RunEnd& end() { return end_; }

 private:
  void start(std::vector<std::string>& arguments, double memory);
  bool stop(RunEnd::Why why);

  Descriptor output_;
  Descriptor errors_;
  pid_t process_ = -1;
  Clock::time_point until_;
  bool told_to_end_ = false;
  RunEnd end_;
};

}  // namespace tawpipe::sim
