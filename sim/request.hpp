// Shared by the commands: what is asked, as text, and its resolved values.
// Not: the parsing of the command line (main.cpp).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "output_file.hpp"
#include "run_flags.hpp"
#include "schedules.hpp"
#include "tawpipe/search/fwd.hpp"
#include "tawpipe/search/job_fields.hpp"
#include "tawpipe/search/problem.hpp"

namespace tawpipe::sim {

/// Exit codes of the command.
enum Exit : int { ok = 0, findings = 1, bad_input = 2, failure = 3 };

/// What a command was asked: a job, by the texts of its fields, and what is written of the answer.
struct Request : JobTexts {
  std::optional<Cluster> cluster_value;    ///< instead of the field; Python (python/) has values
  std::optional<Transformer> model_value;  ///< likewise
  std::string schedule;
  std::string schedule_file;           ///< a schedule file, instead of `schedule`
  std::string comm_groups;             ///< the process groups of a schedule file that is a Chakra trace
  bool times_are_known = false;        ///< the schedule file has times of computations: no model is needed
  std::vector<std::string> options;    ///< key=value
  std::string step_time;               ///< measured, of this run; "": it was not
  std::string fold;                    ///< auto, on or off; "" is off, for commands without the flag
  std::string json;                    ///< a file, or "-" for standard output
  std::string timeline;                ///< a file
  std::string trace;                   ///< a file
  std::string report;                  ///< a file
  std::string gantt;                   ///< a file
  std::vector<std::string> arguments;  ///< of the command line, with those of a --config FILE

  bool has_cluster() const { return cluster_value || has("cluster"); }
  bool has_model() const { return model_value || has("model"); }
};

/// Whether a path is a log's by its ending.
inline bool is_log_name(std::string_view path) {
  return path.ends_with(".log") || path.ends_with(".txt") || path.ends_with(".out") || path.ends_with(".err");
}

/// @param choose_microbatch  the default of --microbatch: the best size (true) or 1
/// @param recompute  the default of --recompute
/// @param known  the work in a schedule file: used for a model and batch that no flag gives
/// @throws InputError  for anything missing or impossible.
Problem resolve(const Request& request, bool choose_microbatch, const Workload* known = nullptr,
                std::string_view recompute = "full");

/// Splits "key=value" texts. @throws InputError  with the example
ScheduleOptions parse_options(const std::vector<std::string>& texts, std::string_view example = "order=paper");

/// Bytes of this machine's memory; not above 0 if unknown.
double machine_memory();

/// The cost model of --cost: "kernels[:file=gpu.json,products=0.7,...]",
/// "roofline[:utilization=0.45,memory-utilization=0.8,overhead=8.4us,all-reduce=ring|tree,collectives=simple|nccl]",
/// "fixed:forward=…,…" or "measured:FILE".
/// @param utilization  the model's; 0: unknown @throws InputError  naming the parameter
Cost parse_cost(const std::string& text, double utilization);

/// The SMs that communications hold, from --hold-sms. @param device  of the cluster, for what was
/// measured on its kind @pre text is not empty @throws InputError  naming the parameter
HeldSms parse_hold_sms(const std::string& text, const DeviceSpec& device);

/// The schedule that the request names. @param others  alternative flags, for the message
/// @throws InputError  if it names none or an unknown one, or if an option is not key=value; before
/// anything is computed.
ScheduleChoice named_schedule(const Request& request, std::string_view others = "");

/// The best of the problem's schedules, among those that the library ships; compiled once for all
/// commands. @param hopeless  null: nobody is told
Prediction predict(const Problem& problem, const HopelessSchedule* hopeless = nullptr);
/// The best choice of what the problem and `choice` leave open (search/choose.hpp), also compiled
/// once.
Chosen choose(const Problem& problem, const ScheduleChoice& choice);
/// A layout that fits if none of the problem's schedules does (search/what_fits.hpp).
std::optional<FittingLayout> find_fitting_layout(const Problem& problem);

/// The name of a device that was assumed because none was given; "" if none was assumed, or no time
/// depends on it.
std::string assumed_device(const Problem& problem);

/// The problem as text, a line each for cluster, model and cost.
/// @param work  the work if the problem has no model
std::string describe(const Problem& problem, const Workload* work = nullptr);
/// The same without what is computed again, where that is a part of the answer.
std::string describe_question(const Problem& problem);
/// --recompute none, selective, selective:PARTS (none: its own choice), full, or full:LAYERS of
/// each stage (0: all).
struct RecomputeFlag {
  Recompute policy = Recompute::none;
  int layers = 0;
  RecomputeParts parts = {};
};
/// @throws InputError  for anything else
RecomputeFlag parse_recompute_flag(const std::string& text);
/// The same as text, "full:4", "selective:mlp".
std::string recompute_text(const RecomputeFlag& flag);

/// Adds the cost model in words, the assumed device if there is one, and notes.
void add_cost(nlohmann::ordered_json& json, const Problem& problem);
/// Adds what was assumed or left out when the model was read, if anything was.
void add_notes(nlohmann::ordered_json& json, const Problem& problem);

int run_list(const std::string& what, const std::string& json);
int run_simulate(const Request& request);
int run_compare(const Request& request, const std::vector<std::string>& schedules, bool baselines);
int run_topology_show(const std::string& cluster, const std::string& device, const std::string& inter_node,
                      const std::string& json);

struct ImportRequest {
  std::string file;
  std::string cluster;  ///< --cluster with the nodes below Slurm's tree
  std::string uplink;   ///< --uplink of its switches; "": as much as the nodes below send
  std::string device;   ///< --device
  std::string json;     ///< --json FILE|-
  int nodes = 0;        ///< --nodes; 0: one, or as the file says
  int nvlinks = 0;      ///< --nvlinks of each GPU; 0: as the file says
};
int run_topology_import(const ImportRequest& request);
/// That GPUs which usually have NVLinks have none, and how to add them; "" where they have some.
std::string no_nvlinks_text(const Cluster& cluster);

}  // namespace tawpipe::sim
