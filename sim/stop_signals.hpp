// Signals that end a training after a step, with a checkpoint: SIGINT, SIGTERM, SIGHUP of a terminal
// that is closed, and SIGUSR1, which launchers and schedulers send.
// Not: how all ranks agree on the step (execute/iteration.hpp); how a run that has failed leaves
// (leave.hpp).
#pragma once

#include <string_view>

namespace tawpipe::sim {

/// The first of them that came while a StopSignals lived; 0: none.
int stop_signal();
/// SIGINT, ...
std::string_view name_of_signal(int signal);

/// While it lives, those signals end nothing: stop_signal() says which came. A second one ends the
/// process as if none lived; signals that are ignored stay so. Ranks that are threads of a process
/// have one each.
///
/// Open MPI's mpirun tells its processes to end by SIGTERM, whatever signal it received itself, and
/// kills them soon after. Before that comes, files that are not finished are removed and the
/// process ends.
class StopSignals {
 public:
  /// @param wanted  whether this one does anything. @param tells  on standard error: of this
  /// process's ranks, the root
  StopSignals(bool wanted, bool tells);
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

 private:
  bool wanted_;
};

}  // namespace tawpipe::sim
