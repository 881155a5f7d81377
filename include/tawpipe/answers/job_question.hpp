// A job as it is asked for, and the problem that it is: texts of fields, files and names become values.
// Not: the fields (search/job_fields.hpp) nor the answer.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/search/job_fields.hpp"
#include "tawpipe/search/problem.hpp"
#include "tawpipe/search/recompute_text.hpp"

namespace tawpipe::inline v0::answers {

/// A job as it is asked for: by the texts of its fields, and values that have no text.
///
/// Example:
/// ```cpp
/// tawpipe::answers::JobQuestion job;
/// job.set("cluster", "dgx-h100*2");
/// job.set("model", "llama-3-8b");
/// job.set("sequence", "8k");
/// job.set("global-batch", "128");
/// ```
struct JobQuestion : JobTexts {
  std::optional<Cluster> cluster_value = {};    ///< in place of the field
  std::optional<Transformer> model_value = {};  ///< likewise
  std::string schedule = {};                    ///< its name
  std::vector<std::string> options = {};        ///< key=value, of the schedules
  bool times_are_known = false;                 ///< a schedule file has times of computations: no model is needed
  std::string step_time = {};                   ///< measured, of this run; "": it was not
  std::string fold = {};                        ///< auto, on or off; "" is off

  bool has_cluster() const { return cluster_value || has("cluster"); }
  bool has_model() const { return model_value || has("model"); }
};

/// Whether a path is a log's by its ending.
inline bool is_log_name(std::string_view path) {
  return path.ends_with(".log") || path.ends_with(".txt") || path.ends_with(".out") || path.ends_with(".err");
}

/// @param choose_microbatch  the default of the field: the best size (true) or 1
/// @param recompute  the default of the field
/// @param known  the work in a schedule file: used for a model and batch that no field gives
/// @throws InputError  for anything missing or impossible.
Problem resolve(const JobQuestion& job, bool choose_microbatch, const Workload* known = nullptr,
                std::string_view recompute = "full");

/// Splits "key=value" texts. @throws InputError  with the example
ScheduleOptions parse_options(const std::vector<std::string>& texts, std::string_view example = "order=paper");

/// The cost model of the field `cost`: "kernels[:file=gpu.json,products=0.7,...]",
/// "roofline[:utilization=0.45,memory-utilization=0.8,overhead=8.4us,all-reduce=ring|tree,collectives=simple|nccl]",
/// "fixed:forward=…,…" or "measured:FILE".
/// @param utilization  the model's; 0: unknown @throws InputError  naming the parameter
Cost parse_cost(const std::string& text, double utilization);

/// The SMs that communications hold, from the field `hold-sms`. @param device  of the cluster, for what was
/// measured on its kind @pre text is not empty @throws InputError  naming the parameter
HeldSms parse_hold_sms(const std::string& text, const DeviceSpec& device);

/// The schedule that the job names. @param others  alternative flags, for the message
/// @throws InputError  if it names none or an unknown one, or if an option is not key=value; before
/// anything is computed.
ScheduleChoice named_schedule(const JobQuestion& job, std::string_view others = "");

/// The name of a device that was assumed because none was given; "" if none was assumed, or no time
/// depends on it.
std::string assumed_device(const Problem& problem);

/// The problem as text, a line each for cluster, model and cost.
/// @param work  the work if the problem has no model
std::string describe(const Problem& problem, const Workload* work = nullptr);
/// The same without what is computed again, where that is a part of the answer.
std::string describe_question(const Problem& problem);

/// Adds the cost model in words, the assumed device if there is one, and notes.
void add_cost(nlohmann::ordered_json& json, const Problem& problem);
/// Adds what was assumed or left out when the model was read, if anything was.
void add_notes(nlohmann::ordered_json& json, const Problem& problem);

/// That GPUs which usually have NVLinks have none, and how to add them; "" where they have some.
std::string no_nvlinks_text(const Cluster& cluster);

/// The word, quoted for a shell.
std::string shell_word(const std::string& word);

}  // namespace tawpipe::answers
