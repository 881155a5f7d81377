// Schedules as files: the output of `tawpipe export` and the input of --schedule-file.
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

/// The flags of `tawpipe export` in addition to those of the problem.
struct ExportRequest {
  std::string format = "json";    ///< --format json|pytorch-csv|dot
  std::string out = "-";          ///< --out FILE|-
  bool communication = false;     ///< --communication: pytorch-csv with SEND and RECV (PyTorch's format compute_comms)
  bool reduce_gradients = false;  ///< --reduce-grad: pytorch-csv with REDUCE_GRAD
  bool waits = false;             ///< --waits: pytorch-csv with WAIT_SEND and WAIT_REDUCE_GRAD (PyTorch 2.15 on)
  bool op_first = false;          ///< --older: pytorch-csv in the form of its first releases, F0_s1
  std::int64_t max_tasks = 500;   ///< --max-tasks: the limit for dot
};

/// Builds the request's schedule, or reads its schedule file, and writes it.
/// @throws InputError  for an unknown format, or a schedule that the format cannot hold.
int run_export(const Request& request, const ExportRequest& how);

/// A schedule file as read: our complete JSON; PyTorch's rows, which need a workload to become a
/// schedule; calls of ranks, which can be checked for hangs but are not a schedule; or a Chakra
/// trace, which is both.
struct ScheduleFile {
  std::string path;
  std::optional<Schedule> schedule;
  std::optional<PytorchSchedule> rows;
  std::optional<CommProgram> calls;
  std::optional<ChakraTrace> trace;

  /// The number in an iteration.
  std::int64_t microbatches() const;
  /// Its workload; null if it has none, like PyTorch's rows.
  const Workload* workload() const { return schedule ? &schedule->workload() : nullptr; }
};

/// Reads a file of any of these kinds, detected by its content, a Chakra trace by its name
/// (NAME.0.et, of all ranks); "-" is standard input. @param groups  for a Chakra trace: the file of
/// its process groups; "": NAME.json, if it exists
/// @throws InputError  if it cannot be read, or with line and cell, or path, of the error.
ScheduleFile read_schedule_file(const std::string& path, const std::string& groups = "");

/// The file's schedule for the problem: PyTorch's rows get its model and batch. JSON keeps its own.
/// @throws InputError  if the batch has a different number of microbatches, or the schedule more
/// ranks than the cluster, or if it holds no model to compute times from and the cost is not fixed.
Schedule make_schedule(ScheduleFile file, const Problem& problem, bool times_are_known = false);

/// The problem of the request's schedule file, and its schedule. Its workload is used unless a flag
/// gives another.
struct FileProblem {
  Problem problem;
  Schedule schedule;
  std::vector<Duration> times;  ///< of a trace's computations, for known_times.hpp; empty: unknown
};
FileProblem load_schedule_file(const Request& request);
FileProblem load_schedule_file(const JobQuestion& job, ScheduleFile file);

/// @throws ScheduleError  naming the first finding, if the schedule cannot be simulated. Validation
/// finds all errors.
void require_runnable(const Schedule& schedule);

}  // namespace tawpipe::sim
