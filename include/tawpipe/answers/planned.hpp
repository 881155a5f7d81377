// One search of a plan, and what is said of its plans: in words, as text, as JSON.
// Not: the search itself (search/plan.hpp), nor the whole answer (answers/plan_answer.hpp).
#pragma once

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tawpipe/analysis/run_cost.hpp"
#include "tawpipe/answers/plan_question.hpp"
#include "tawpipe/frameworks/verdict.hpp"
#include "tawpipe/report/table.hpp"
#include "tawpipe/search/plan.hpp"
#include "tawpipe/search/remedies.hpp"

namespace tawpipe::inline v0::answers {

struct Today;

/// One search and the data for printing it.
struct Planned {
  /// The best plan with one of the formats that --gemm-format lists; none: nothing fits.
  struct Format {
    std::string products;
    std::optional<Duration> makespan;
  };
  /// What one change would make of the best plan's time.
  struct Change {
    std::string what;
    Duration makespan{};
  };
  /// The best plan on what is left when a node is lost; none: nothing fits.
  struct NodeLoss {
    std::optional<Plan> plan = {};
    std::int64_t global_batch = 0;  ///< its own: replicas that are lost take their part with them
    NodeLost lost = {};
  };
  /// How a framework's own switches differ from those of a plan without --today and --emit.
  struct OwnSwitches {
    std::vector<std::string> words = {};
    std::optional<Duration> plain = {};  ///< the step time of its plan without them; none: it does not exist or fit so
  };
  PlanQuestion question;
  PlanRequest request;
  PlanResult result;
  double bound_s = 0;                      ///< a lower bound for any schedule (search/bound.hpp)
  std::vector<Format> formats = {};        ///< if it lists several
  std::vector<Change> changes = {};        ///< plan_changes.hpp
  std::optional<NodeLoss> node_loss = {};  ///< run_cost.hpp
  std::vector<Remedy> remedies = {};       ///< where nothing fits
  OwnSwitches own_switches = {};
  /// The framework of --today or --emit: what to use runs in it.
  std::optional<Framework> framework = {};
  mutable std::optional<Verdict> known_verdict = {};  ///< verdict()'s own
  std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();

  /// Of --seconds, as PlanRequest::seconds: 0 where there is no limit, a little where nothing is left.
  double seconds_left() const {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - began;
    return request.seconds > 0 ? std::max(1e-3, request.seconds - passed.count()) : 0;
  }
  /// Whether nothing of --seconds is left.
  bool is_late() const { return request.seconds > 0 && seconds_left() <= 1e-3; }
  /// The fastest. @pre there is a plan
  const Summary& best() const { return result.plans.front().summary; }
  /// The plan to use, found at the first call: nothing changes after it. @pre there is a plan
  const Verdict& verdict() const {
    if (!known_verdict) known_verdict = verdict_of(request, result, framework);
    return *known_verdict;
  }
  const Plan& use() const { return result.plans[verdict().use]; }
};

/// The command that simulates a plan, with every flag of the problem that differs from its default.
std::string command_of(const PlanQuestion& question, const PlanRequest& request, const Plan& plan);
/// The job of a plan: what was asked, with what the plan chose.
JobTexts planned_texts(const JobTexts& asked, const PlanRequest& request, const Plan& plan);
/// "full:4": what it computes again.
std::string recompute_text(const PlanRequest& request, const Plan& plan);
/// "TP2 FSDP8" (report/layout_words.hpp).
std::string layout_text(const Plan& plan);
/// "TP2 PP4 DP2 by 1f1b, microbatch 1, no recomputation".
std::string told_text(const PlanRequest& request, const Plan& plan);
/// The error of a plan's time, and where it runs.
RunsWithError runs_with_error(const Planned& planned, const Plan& plan);
/// What measurement would tell which of two is faster, where they differ most.
std::string separating_measurement(const Summary& use, const Summary& other);
/// Of a device, the least of all candidates where none fits; none: unknown.
std::optional<Bytes> least_needed(const PlanResult& result);
/// The schedule's options, and what is around it.
std::string options_text(const Plan& plan);

/// The parts of an iteration's time, means over the devices.
struct Shares {
  double compute = 0;
  double exposed = 0;  ///< communication that no computation hides
  double waiting = 0;
};
Shares shares_of(const Summary& summary);
/// "computation", "communication" or "waiting".
std::string limit_of(const Summary& summary);
/// Of the usable memory, on the fullest device.
double memory_share(const Summary& summary);
/// Of a billion tokens. @param price  of a device's hour
double price_of_tokens(double price, const Summary& summary);
/// The parts in which another plan takes more time than the best.
std::string loses_by(const Summary& best, const Summary& other);
/// One plan of `planned`.
nlohmann::ordered_json plan_json(const Planned& planned, const Plan& plan);
/// The keys that docs/output.md lists.
nlohmann::ordered_json result_json(const Planned& planned);
/// The plan to use in one sentence, what cannot be told apart from it, and what no framework runs.
std::string verdict_text(const Planned& planned, const Verdict& verdict, const Today* today);
/// The verdict, the plans, their limits, and why the others are slower. @param today  may be null
std::string result_text(const Planned& planned, const TableStyle& style, const Today* today);
/// A line for each number of devices.
std::string devices_table(const std::vector<Planned>& all, const TableStyle& style);

}  // namespace tawpipe::answers
