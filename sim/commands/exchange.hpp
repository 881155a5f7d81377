// Schedules as files: what `tawpipe export` writes, and what --schedule-file reads.
// Not: plain task graphs (graph.hpp) nor timelines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "../request.hpp"
#include "tawpipe/report/chakra_trace.hpp"
#include "tawpipe/report/pytorch_csv.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/verify/comm_program.hpp"

namespace tawpipe::sim {

/// What `tawpipe export` takes beside the flags of the problem.
struct ExportRequest {
  std::string format = "json";    ///< --format json|pytorch-csv|dot
  std::string out = "-";          ///< --out FILE|-
  bool communication = false;     ///< --communication: pytorch-csv with SEND and RECV (PyTorch's format compute_comms)
  bool reduce_gradients = false;  ///< --reduce-grad: pytorch-csv with REDUCE_GRAD
  bool waits = false;             ///< --waits: pytorch-csv with WAIT_SEND and WAIT_REDUCE_GRAD (PyTorch 2.15 on)
  bool op_first = false;          ///< --older: pytorch-csv as its first releases wrote it, F0_s1
  std::int64_t max_tasks = 500;   ///< --max-tasks: the most that dot is given
};

/// Builds the request's schedule, or reads its schedule file, and writes it.
/// @throws InputError  for an unknown format, or a schedule that the format cannot hold.
int run_export(const Request& request, const ExportRequest& how);

/// A schedule file as read: our JSON, whole, PyTorch's rows, which need a workload to become a schedule, calls of ranks, which
/// can be proven to end but are not a schedule, or a Chakra trace, which is both.
struct ScheduleFile {
  std::string path;
  std::optional<Schedule> schedule;
  std::optional<PytorchSchedule> rows;
  std::optional<CommProgram> calls;
  std::optional<ChakraTrace> trace;

  /// Of an iteration.
  std::int64_t microbatches() const;
  /// What it says that it trains; null where it says nothing, as PyTorch's rows do.
  const Workload* workload() const { return schedule ? &schedule->workload() : nullptr; }
};

/// Reads a file of any of these kinds, told by its content, a Chakra trace by its name (NAME.0.et, of all ranks); "-" is standard
/// input. @param groups  of a Chakra trace: the file of its process groups; "": NAME.json, where there is one
/// @throws InputError  if it cannot be read, or with line and cell, or path, of what is wrong in it.
ScheduleFile read_schedule_file(const std::string& path, const std::string& groups = "");

/// The file's schedule for the problem: PyTorch's rows get its model and batch. JSON keeps its own.
/// @throws InputError  if the batch has other microbatches, or the schedule more ranks than the cluster, or if it holds no model
/// to compute times from and the cost is not fixed.
Schedule make_schedule(ScheduleFile file, const Problem& problem, bool times_are_known = false);

/// The problem that the request's schedule file stands in, and its schedule. Its work counts where no flag gives another.
struct FileProblem {
  Problem problem;
  Schedule schedule;
  std::vector<Duration> times;  ///< of a trace's computations, as known_times.hpp takes them; empty: not known
};
FileProblem load_schedule_file(const Request& request);
FileProblem load_schedule_file(const Request& request, ScheduleFile file);

/// @throws ScheduleError  naming the first finding, if the schedule is not fit to be simulated. Validating finds everything.
void require_runnable(const Schedule& schedule);

}  // namespace tawpipe::sim
