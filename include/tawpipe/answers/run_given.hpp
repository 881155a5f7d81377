// The fields of a whole training run (search/detail/run_rows.hpp), and their values.
// Not: what the run costs (answers/run_answer.hpp).
#pragma once

#include <optional>
#include <string>

#include "tawpipe/analysis/run_cost.hpp"
#include "tawpipe/core/parse_units.hpp"
#include "tawpipe/search/job_fields.hpp"

namespace tawpipe::inline v0::answers {

/// Whether a whole run is asked for.
inline bool wants_run(const JobTexts& job) { return job.has("train-tokens"); }

/// What the flags say of a run; the rest is the plan's.
struct RunGiven {
  /// tokens, failures, spare nodes, price, PUE and way of checkpoints; watts: 0 if not given
  TrainingRun run;
  std::string currency;
  bool has_mtbf = false;
  std::optional<double> write_bytes_per_s;
};

/// @throws InputError  naming the flag, also if one is of a run and --train-tokens is not given
RunGiven parse_run(const JobTexts& job);
/// The price of a device's hour; 0 if not given. @throws InputError
Price price_of(const JobTexts& job);

}  // namespace tawpipe::answers
