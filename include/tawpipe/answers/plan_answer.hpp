// How to train? The whole answer: the search, today's run for comparison, settings for a framework, what other clusters
// and single changes would buy.
// Not: files, signals, a display of progress: a program has its own.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "tawpipe/answers/plan_frameworks.hpp"
#include "tawpipe/answers/plan_what_if.hpp"
#include "tawpipe/report/table.hpp"

namespace tawpipe::inline v0::answers {

/// Called between rounds of a search with its progress, what it is of (whose result is not there yet)
/// and its name, "planning"; false ends it with the best so far.
using PlanWatch = std::function<bool(const PlanProgress&, const Planned&, std::string_view)>;

/// Is given the search of each number of devices as soon as it has ended.
using PlanEnded = std::function<void(const Planned&)>;

struct PlanAnswer {
  Planned planned;
  std::vector<Planned> by_devices = {};  ///< of PlanQuestion::devices, and `planned` is the first of them
  std::optional<Today> today = {};       ///< of PlanQuestion::today
  std::optional<Emitted> emitted = {};   ///< of PlanQuestion::emit, if anything fits
  std::vector<WhatIf> what_if = {};      ///< of PlanQuestion::what_if

  /// Why there is no plan; "" if there is one.
  std::string complaint() const;
  /// Whether a search was ended early.
  bool stopped() const;
};

/// Everything that is asked. Deterministic, for any number of threads, unless stopped or ended by
/// PlanQuestion::seconds. Told to stop, by `watch` or a StopScope of this thread, it is the best so far; what today's run
/// and changes take is then left out.
/// @throws InputError  for anything missing or impossible; Stopped  before it had begun to search
///
/// Example:
/// ```cpp
/// tawpipe::answers::PlanQuestion question{.emit = "megatron"};
/// question.job.set("cluster", "dgx-h100*2");
/// question.job.set("model", "llama-3-8b");
/// question.job.set("sequence", "8k");
/// question.job.set("global-batch", "128");
/// const tawpipe::answers::PlanAnswer found = answer(question);
/// std::puts(to_json(found).dump(2).c_str());  // what `tawpipe plan --json -` prints
/// ```
PlanAnswer answer(PlanQuestion question, const PlanWatch& watch, const PlanEnded& ended = {});
/// The same, to its end.
PlanAnswer answer(PlanQuestion question);
/// What is known where a search was told to stop and did not end: the best so far.
/// @throws InputError  if that is no answer to PlanQuestion::emit
PlanAnswer answer_so_far(Planned best);
/// The same of several numbers of devices. @pre not all.empty()
PlanAnswer answer_so_far(std::vector<Planned> all);

/// The keys of docs/output.md: what `tawpipe plan --json` writes.
nlohmann::ordered_json to_json(const PlanAnswer& answer);
/// What `tawpipe plan` prints: for PlanQuestion::emit only the settings.
std::string to_text(const PlanAnswer& answer, const TableStyle& style);

/// The search's request. @throws InputError  for anything missing or impossible
PlanRequest resolve_plan(const PlanQuestion& question);
/// One search. @param what  its name, for `watch`
Planned search_plan(const PlanQuestion& question, PlanRequest request, std::string_view what, const PlanWatch& watch);
/// The best plan of a search for each format of GEMMs that the job lists.
/// @param switches  the framework whose switches are taken, if any
Planned search_plans(const PlanQuestion& question, std::string_view what, const PlanWatch& watch,
                     std::optional<Framework> switches = {});

}  // namespace tawpipe::answers
