// What the commands share: the flags as text, and what they stand for once resolved.
// Not: the parsing of the command line (main.cpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "output_file.hpp"
#include "schedules.hpp"
#include "tawpipe/analysis/summary.hpp"
#include "tawpipe/cost/fixed.hpp"
#include "tawpipe/cost/measured.hpp"
#include "tawpipe/cost/roofline.hpp"
#include "tawpipe/model/transformer.hpp"
#include "tawpipe/plan/noise.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/timeline/timeline.hpp"
#include "tawpipe/topology/cluster.hpp"

namespace tawpipe::sim {

/// Exit codes of the command.
enum Exit : int { ok = 0, findings = 1, bad_input = 2, failure = 3 };

/// The shared flags as given.
struct Request {
  std::string cluster;
  std::string model;
  std::string schedule;
  std::string schedule_file;         ///< a schedule read in place of `schedule`
  std::vector<std::string> options;  ///< key=value
  std::int64_t sequence = 0;
  std::string microbatch;    ///< sequences, "auto", or "" for the command's own default
  double usable_memory = 0;  ///< 0: not given
  std::int64_t global_batch = 0;
  std::int64_t microbatches = 0;
  std::string recompute = "full";
  Layout layout;
  std::string fold;  ///< auto, on or off; "" is off, for commands without the flag
  std::string cost = "roofline";
  Noise noise;
  std::string stragglers;  ///< PROBABILITYxSLOWDOWN; goes into `noise`
  std::string json;        ///< a file, or "-" for standard output
  std::string timeline;    ///< a file
  std::string trace;       ///< a file
};

/// Whether copies that do the same are simulated once (simulate/folding.hpp).
enum class Fold {
  off,
  automatic,  ///< where it is exact
  on,         ///< or an error that says why it is not
};

using Cost = std::variant<RooflineCost, FixedCost, MeasuredCost>;

/// A request resolved: everything but the schedule and the microbatch size.
struct Problem {
  Cluster cluster;
  std::optional<Transformer> model = std::nullopt;
  Cost cost;
  Recompute recompute = Recompute::full;
  Layout layout = {};
  Fold fold = Fold::off;
  std::int64_t sequence = 0;
  std::int64_t global_batch = 0;                               ///< sequences; with microbatches == 0
  std::int64_t microbatches = 0;                               ///< given instead of the global batch, or without a model
  std::optional<std::int64_t> microbatch_size = std::nullopt;  ///< unset: to be chosen
  double usable_memory = 1;                                    ///< fraction of a device's memory that may be needed
  Noise noise = {};
  ParameterBytes parameter_bytes = {};

  /// The work of all devices with `size` sequences a microbatch.
  Workload workload(std::int64_t size) const { return workload(size, 1); }
  /// One replica's of `replicas`. @throws InputError  if the microbatches cannot be shared out equally.
  Workload workload(std::int64_t size, int replicas) const;
  /// The sizes to try where none is given: the divisors of the global batch.
  std::vector<std::int64_t> microbatch_sizes() const;
};

/// @param choose_microbatch  what no --microbatch means: choose the best size (true) or 1
/// @param known  the work that a schedule file holds: stands in for a model and batch that no flag gives
/// @throws InputError  for anything missing or impossible.
Problem resolve(const Request& request, bool choose_microbatch, const Workload* known = nullptr);

/// Splits "key=value" texts. @throws InputError  with the example
ScheduleOptions parse_options(const std::vector<std::string>& texts, std::string_view example = "order=paper");

/// The options of the schedule that the request names. @param others  flags that could be given in its place, for the message
/// @throws InputError  if it names none or an unknown one, or if an option is not key=value; before anything is computed.
ScheduleOptions named_schedule_options(const Request& request, std::string_view others = "");

/// A schedule with the timeline predicted for it.
struct Prediction {
  Schedule schedule;  ///< where it was folded (summary.folding), the kept copies alone
  Timeline timeline;
  Summary summary;
};

/// Simulates a schedule on the problem's cluster.
Prediction predict(const Problem& problem, Schedule schedule);

/// One replica's schedule, before tensor, context and data parallelism.
Schedule logical_schedule(const Problem& problem, const std::string& schedule, const ScheduleOptions& options,
                          std::int64_t microbatch_size);

/// Builds and simulates with one microbatch size.
Prediction predict(const Problem& problem, const std::string& schedule, const ScheduleOptions& options,
                   std::int64_t microbatch_size);

/// The best prediction over the sizes to try: the highest throughput among those that fit; if none fits, the smallest size's.
Prediction predict_best(const Problem& problem, const std::string& schedule, const ScheduleOptions& options);

/// What the problem is, a line each for cluster, model and cost.
std::string describe(const Problem& problem);
/// The cost model in one line: "roofline: 34 % of matrix peak, …".
std::string describe(const Cost& cost);

int run_list(const std::string& what, const std::string& json);
int run_simulate(const Request& request);
int run_compare(const Request& request, const std::vector<std::string>& schedules, bool overlapped);
int run_topology_show(const std::string& cluster, const std::string& json);
int run_topology_import(const std::string& file, int nodes, const std::string& json);

}  // namespace tawpipe::sim
