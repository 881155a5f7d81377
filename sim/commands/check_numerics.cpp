// `tawpipe check-numerics`: trains a recorded run under any schedule and compares every recorded
// number.
#include <fmt/format.h>

#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "../execution.hpp"
#include "../output_file.hpp"
#include "../request.hpp"
#include "../terminal_text.hpp"
#include "numerics.hpp"
#include "output.hpp"
#include "papers/reference_run.hpp"
#include "tawpipe/report/table.hpp"

namespace tawpipe::sim {

namespace {

using training::NumericsCheck;
using training::ReferenceRun;

/// Losses of all steps and one evaluation after them, the first gradient, parameters after the
/// first and the last step.
template <class T, class Executor>
std::vector<NumericsCheck> compare(Executor& executor, const ReferenceRun& reference) {
  load_weights(executor, std::span<const T>{reference.initial<T>()});
  std::vector<T> gradient(static_cast<std::size_t>(reference.model().parameters()));
  std::vector<char> known(gradient.size(), 0);
  std::mutex mutex;
  const auto observe = [&](ParameterRange range, std::span<const T> numbers) {
    const std::lock_guard lock{mutex};
    std::copy(numbers.begin(), numbers.end(), gradient.begin() + range.begin);
    std::fill_n(known.begin() + range.begin, range.count(), char{1});
  };
  std::vector<std::vector<double>> losses;
  std::vector<NumericsCheck> checks;
  for (int step = 0; step <= reference.steps; ++step) {
    const Iteration args{.step = step + 1, .learning_rate = reference.learning_rate};
    losses.push_back(executor.run(reference, args, step == 0 ? GradientObserver<T>{observe} : nullptr).losses);
    if (step != 0 && step + 1 != reference.steps) continue;
    if (step == 0) {
      executor.gather(gradient, known);
      if (executor.is_root()) reference.check_parameters<T>("grad0", gradient, checks);
    }
    const std::vector<T> weights = collect_weights(executor);
    if (executor.is_root()) reference.check_parameters<T>(concat("step", step + 1), weights, checks);
  }
  if (!executor.is_root()) return {};
  reference.check_losses<T>(losses, checks);
  return checks;
}

/// @param file  destination of --json; null without it
int report(const NumericsRequest& request, const Schedule& schedule, const std::vector<NumericsCheck>& checks, OutputFile* file) {
  bool passes = true;
  for (const NumericsCheck& check : checks) passes = passes && check.passes();
  if (file != nullptr) {
    nlohmann::ordered_json json;
    json["schedule"] = schedule.name();
    json["ranks"] = schedule.ranks();
    json["dtype"] = request.execution.dtype;
    json["passes"] = passes;
    json["checks"] = nlohmann::ordered_json::array();
    for (const NumericsCheck& check : checks) {
      nlohmann::ordered_json one;
      one["quantity"] = check.quantity;
      one["difference"] = check.difference;
      one["tolerance"] = check.tolerance;
      one["worst"] = check.worst;
      one["compared"] = check.compared;
      one["passes"] = check.passes();
      json["checks"].push_back(std::move(one));
    }
    (*file)(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
    file->finish();
  }
  if (request.json == "-") return passes ? ok : findings;
  Table table{{{"quantity"}, {"largest difference", Align::right}, {"tolerance", Align::right}, {"where"}, {""}}};
  for (const NumericsCheck& check : checks) {
    table.row({check.quantity, fmt::format("{:.2e}", check.difference), fmt::format("{:.0e}", check.tolerance), check.worst,
               check.passes() ? "ok" : "EXCEEDED"});
  }
  print(fmt::format("{} on {} ranks, {}, against {}\n\n", schedule.name(), schedule.ranks(), request.execution.dtype,
                    one_line(request.reference)) +
        table.str(terminal_style()));
  return passes ? ok : findings;
}

template <class T>
int run(const NumericsRequest& request, const ReferenceRun& reference) {
  const ExecutionModel model{
      reference.model(),
      executed_batch(request.execution, reference.batch()),
      reference.constants,
      {.beta1 = reference.beta1, .beta2 = reference.beta2, .epsilon = reference.epsilon, .weight_decay = reference.weight_decay}};
  return with_executor<T>(request.execution, model, [&](auto& executor) -> int {
    std::optional<OutputFile> json;
    if (executor.is_root() && !request.json.empty()) json.emplace(request.json);
    const auto checks = compare<T>(executor, reference);
    return executor.is_root() ? report(request, executor.schedule(), checks, json ? &*json : nullptr) : int{ok};
  });
}

}  // namespace

int run_check_numerics(const NumericsRequest& request) {
  if (request.reference.empty()) throw InputError("--reference is missing; give a folder (docs/training.md)");
  const ReferenceRun reference{request.reference};
  const Dtype dtype = execution_dtype(request.execution);
  if (size_bytes(dtype) < 4) {
    throw InputError(
        concat("--dtype ", request.execution.dtype, " is too coarse to be compared with a recorded run; choose f32"));
  }
  return dtype == Dtype::f64 ? run<double>(request, reference) : run<float>(request, reference);
}

}  // namespace tawpipe::sim
