// Arguments and entry points of the measuring commands.
// Not: their flags (../instruments.cpp, ../search_flags.cpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../request.hpp"
#include "measured_setup.hpp"
#include "tawpipe/analysis/calibration.hpp"
#include "tawpipe/report/kineto_trace.hpp"
#include "tawpipe/report/table.hpp"

namespace tawpipe::sim {

struct ReproduceRequest {
  std::vector<std::string> files;              ///< FILE...: tables of measured runs
  std::string data;                            ///< --data FILE|-: the measurements
  std::string json;                            ///< --json FILE|-
  std::string chart;                           ///< --chart FILE.svg|.png
  bool experts = false;                        ///< --experts: also mixtures of experts
  bool left_out = false;                       ///< --leave-out: also with each fitted figure left out
  double usable_memory = usable_memory_share;  ///< --usable-memory FRACTION; for the TawPipe paper only
};

/// Every published cell of the TawPipe paper, predicted. @throws InputError  for a file that is not
/// a table of its cells.
int run_reproduce_tawpipe(const ReproduceRequest& request);
/// Tables of measured runs, predicted: with the accuracy for each source, and which rows cannot be
/// expressed.
/// @throws InputError  for a file that is not one, naming line and column.
int run_reproduce_truth(const ReproduceRequest& request);
/// vTrain's measured iterations, predicted. @throws InputError  for a file without its columns.
int run_reproduce_vtrain(const ReproduceRequest& request);

struct SweepRequest {
  Request base;
  std::vector<std::string> vary;       ///< --vary PARAMETER=VALUES, any number
  std::vector<std::string> schedules;  ///< --schedules
  std::string csv;                     ///< --csv FILE|-
  std::string chart;                   ///< --chart FILE.svg|.png
  unsigned threads = 0;                ///< --threads; 0: all cores
};

/// Predicts each schedule at each point. Output does not depend on the number of threads.
/// @throws InputError  for an unknown parameter or schedule, or an impossible first or last point.
int run_sweep(const SweepRequest& request);

/// The gain of one schedule from a tenth more of each speed.
int run_sensitivity(const Request& request);

/// The same run under `runs` seeds of noise: figures with their spread.
int run_spread(const Request& request, int runs);

struct ImproveRequest {
  Request base;             ///< schedule "": the best of those of compared_entries()
  std::string out;          ///< --out FILE|-: the schedule found
  std::int64_t budget = 0;  ///< --budget; 0: the search's own
};

/// A faster task graph than that of the best schedule. @throws InputError  if nothing fits, or
/// everything is too large.
int run_improve(const ImproveRequest& request);

struct CalibrateRequest {
  std::vector<std::string> files;      ///< outputs of nccl-tests
  bool ring = false;                   ///< --ring: its all_reduce ran with NCCL_ALGO=Ring
  int adapters = 0;                    ///< --adapters of a node; 0: as the outputs say, or assumed
  std::string json;                    ///< --json FILE|-: the fragment of a cluster file, or the measured times
  std::vector<std::string> timelines;  ///< --timeline FILE, any number: measured times are fitted to them instead
  std::vector<std::string> schedules;  ///< --schedule-file FILE, one for each timeline
  std::vector<std::string> kineto;     ///< --kineto FILE, any number: or from traces of PyTorch's profiler
  KinetoNames names;                   ///< --layer, --embedding, --head in those traces
  std::string cluster;                 ///< --cluster on which the timelines or traces were measured
  std::string device;                  ///< --device, of that cluster
  std::string inter_node;              ///< --inter-node, likewise
  MeasuredSetup setup;                 ///< --model, --sequence, ... of the traces
  std::string out;                     ///< --out FILE|-: the measured times
};

/// Latency and bandwidth of each kind of link from nccl-tests, or a measured cost from timelines or
/// profiler traces.
/// @throws InputError  for an invalid file, or flags of several kinds.
int run_calibrate(const CalibrateRequest& request);
/// A measured cost from the traces of PyTorch's profiler. @throws InputError  for an invalid file.
int calibrate_kineto(const CalibrateRequest& request);
/// The classes of a calibration as a table.
Table calibration_table(const Calibration& found);

struct DoctorRequest {
  std::vector<std::string> dumps;  ///< files or folders of the flight recorder
  std::string json;                ///< --json FILE|-
  std::string report;              ///< --report FILE.html
};

/// Finds why a job hangs. @throws InputError  for a file that is not a dump, or whose name has no
/// rank.
int run_doctor(const DoctorRequest& request);

struct CompareTimelinesRequest {
  std::string predicted;  ///< CSV
  std::string measured;   ///< CSV
  std::string json;       ///< --json FILE|-
};

/// The difference of a predicted timeline from a measured one. @throws InputError  if they are of
/// different tasks.
int run_compare_timelines(const CompareTimelinesRequest& request);

}  // namespace tawpipe::sim
