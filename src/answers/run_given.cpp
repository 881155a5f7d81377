// The values of the flags of a whole training run.
#include "tawpipe/answers/run_given.hpp"

#include <string>
#include <string_view>

#include "tawpipe/core/parse_number.hpp"

namespace tawpipe::inline v0::answers {

namespace {

/// The value of a field by its parser, whose complaint then names it. @pre it is set
template <class Parse>
auto value_of(const JobTexts& job, std::string_view field, Parse&& parse) {
  try {
    return parse(std::string_view{job.text(field)});
  } catch (const InputError& error) {
    throw InputError(concat("--", field, ": ", error.what()));
  }
}

/// A time that a failure takes.
double short_time(const JobTexts& job, std::string_view field) {
  const double seconds = value_of(job, field, parse_time_span);
  if (seconds <= 1e8) return seconds;
  throw InputError(concat("--", field, " must be at most 1e8 s, three years, not ", quote(job.text(field))));
}

}  // namespace

Price price_of(const JobTexts& job) { return job.has("price") ? value_of(job, "price", parse_price) : Price{}; }

RunGiven parse_run(const JobTexts& job) {
  RunGiven given;
  given.run.price = price_of(job).amount;
  given.currency = price_of(job).currency;
  if (!wants_run(job)) {
    for (const JobField& field : job_fields()) {
      if (field.is(of_run) && field.name != "price" && job.has(field.name))
        throw InputError(concat("--", field.name, " is of a whole run; give --train-tokens too, such as 15T"));
    }
    return given;
  }
  TrainingRun& run = given.run;
  run.tokens = value_of(job, "train-tokens", tawpipe::parse_count);
  if (job.has("power")) run.watts = value_of(job, "power", parse_power);
  if (job.has("pue")) {
    run.pue = parse_positive(job.text("pue"), "--pue");
    if (run.pue < 1 || run.pue > 10)
      throw InputError(
          concat("--pue must be the power of the site over that of its computers, from 1 to 10, not ", quote(job.text("pue"))));
  }
  given.has_mtbf = job.has("mtbf");
  if (given.has_mtbf) {
    run.failures.device_mtbf_s = value_of(job, "mtbf", parse_time_span);
    if (run.failures.device_mtbf_s <= 0) throw InputError("--mtbf must be above zero, such as 50000h");
  }
  if (job.has("restart-time")) run.failures.restart_s = short_time(job, "restart-time");
  if (job.has("repair-time")) run.failures.repair_s = short_time(job, "repair-time");
  if (job.has("spare-nodes")) run.spare_nodes = parse_whole<int>(job.text("spare-nodes"), "--spare-nodes", 0, max_spare_nodes);
  const std::string checkpoint = job.text("checkpoint");
  if (checkpoint != "" && checkpoint != "async" && checkpoint != "sync")
    throw InputError(concat("--checkpoint must be async or sync, not ", quote(checkpoint)));
  run.checkpoints.asynchronous = checkpoint != "sync";
  if (job.has("checkpoint-bandwidth")) given.write_bytes_per_s = value_of(job, "checkpoint-bandwidth", parse_bandwidth).value();
  if (given.write_bytes_per_s.value_or(1) < 1)
    throw InputError("--checkpoint-bandwidth must be at least a byte a second, such as 100GB/s");
  return given;
}

}  // namespace tawpipe::answers
