// Today's run of another framework, as the plan to beat, and plans as its settings.
// Not: the settings themselves (frameworks/), nor the search (search/plan.hpp).
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/answers/planned.hpp"
#include "tawpipe/frameworks/frameworks.hpp"
#include "tawpipe/frameworks/yaml_job.hpp"

namespace tawpipe::inline v0::answers {

/// The settings of --today as read, and their framework.
struct TodayFile {
  Framework framework = Framework::megatron;  ///< of a YAML whose switches and schedules it has
  FrameworkJob job = {};
  std::optional<YamlKind> kind = {};  ///< of a YAML

  std::string_view program() const { return kind ? title(*kind) : title(framework); }
  /// Whether its settings are Megatron-LM's flags, if by other names.
  bool has_megatron_flags() const { return framework == Framework::megatron && kind != YamlKind::nanotron; }
};

/// Today's run, simulated.
struct Today {
  TodayFile file;
  PlanQuestion question;  ///< those with which `simulate` runs it
  PlanRequest request;    ///< its problem
  Plan plan;
  /// Single changes of its settings that are faster and fit, the fastest first.
  std::vector<std::pair<std::vector<std::string>, Summary>> changes = {};
};

/// Reads --today, and fills the flags of the problem that are not given.
/// @throws InputError  naming setting and line, or if a flag and a setting contradict each other
TodayFile read_today(PlanQuestion& question);
/// The optimizer's states of the job as flags.
void take_optimizer(FrameworkJob& job, JobQuestion& request);

/// Puts a framework's switches into the flags that are not given: what it always does, and overlaps
/// that it can turn on.
void take_best_switches(Framework framework, PlanQuestion& question);

/// How the switches of `planned` differ from `plain`, the request without the framework, and what its plan takes
/// without them. @param plan  of `planned`
Planned::OwnSwitches own_switches(const Planned& planned, const Plan& plan, const PlanRequest& plain);
/// A sentence of it; "" where nothing differs.
std::string own_switches_text(const Planned& planned);
void add_own_switches(nlohmann::ordered_json& json, const Planned& planned);

/// Simulates today's run on the cluster of `planned`, and each single change of its settings.
Today simulate_today(const Planned& planned, TodayFile file);

/// The settings that turn today's run into a plan, in the words of its file; none where these cannot say it.
/// @pre its framework runs the plan
std::vector<std::string> changes_from(const Today& today, const Planned& planned, const Plan& plan);
/// The loss of today's run, and its reasons.
std::string today_text(const Today& today, const Planned& planned);
nlohmann::ordered_json today_json(const Today& today, const Planned& planned);

/// A plan as a framework's settings.
struct Emitted {
  Framework framework = Framework::megatron;
  std::vector<std::string> cannot = {};  ///< why it cannot run the best plan; none if it can
  Planned planned;                       ///< the plans that it can run, the best first
};

/// Why the framework cannot run the best plan; none if it can.
std::vector<std::string> cannot_run_best(Framework framework, const Planned& planned);
/// The request for plans that the framework can run, of the schedules that the flags allow.
PlanRequest request_for(Framework framework, const Planned& planned);
/// The settings, with explaining comments. @param best  of all plans
std::string emitted_text(const Emitted& emitted, const Planned& best);
nlohmann::ordered_json emitted_json(const Emitted& emitted, const Planned& best);

}  // namespace tawpipe::answers
