// What a whole training run costs with a plan, as text and JSON, and what losing a node means for it.
// Not: the formulas (analysis/run_cost.hpp) nor the fields (answers/run_given.hpp).
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/answers/plan_answer.hpp"

namespace tawpipe::inline v0::answers {

struct RunAnswer {
  TrainingRun run;
  RunCost cost;
  std::string currency;
  /// the goodput with the least and the largest published MTBF, if none was given
  std::optional<std::pair<double, double>> published = {};
  double synchronous = 0;  ///< the goodput with checkpoints for which training waits
  double one_writer = 0;   ///< the same, all written by one node with its part of the storage's speed
};

/// The run of the flags by steps of `summary`, a run of `problem`. @pre wants_run(job)
/// @throws InputError  if the problem has no model
RunAnswer answer_run(const JobTexts& job, const Problem& problem, const Summary& summary);
/// A line for each part.
std::string run_text(const RunAnswer& answer);
/// The keys of docs/output.md.
nlohmann::ordered_json run_json(const RunAnswer& answer);

/// The same of the best plan, with the node that is lost; "" and nothing without --train-tokens or a plan.
std::string run_text(const Planned& planned);
/// Its time, goodput and cost, for a table; empty as above.
std::vector<std::string> run_cells(const Planned& planned);
void add_run(nlohmann::ordered_json& json, const Planned& planned);

/// The best plan on one node less: of a search with the same batch, and the best one with as many
/// replicas fewer as it takes. None where it was not asked for or there is one node.
std::optional<Planned::NodeLoss> find_node_loss(const Planned& planned, const PlanWatch& watch);

/// "2,500,000 USD", "2.50 USD".
std::string money_text(double amount, const std::string& currency);

}  // namespace tawpipe::answers
