// The values of the flags of a whole training run.
#include "run_flags.hpp"

#include <string_view>
#include <utility>

#include "tawpipe/core/parse_number.hpp"

namespace tawpipe::sim {

namespace {

/// The value of a flag by its parser, whose complaint then names it.
template <class Parse>
auto value_of(std::string_view flag, const std::string& text, Parse&& parse) {
  try {
    return parse(std::string_view{text});
  } catch (const InputError& error) {
    throw InputError(concat(flag, ": ", error.what()));
  }
}

/// A time that a failure takes.
double short_time(std::string_view flag, const std::string& text) {
  const double seconds = value_of(flag, text, parse_time_span);
  if (seconds <= 1e8) return seconds;
  throw InputError(concat(flag, " must be at most 1e8 s, three years, not ", quote(text)));
}

}  // namespace

Price price_of(const RunFlags& flags) { return flags.price.empty() ? Price{} : value_of("--price", flags.price, parse_price); }

RunGiven parse_run(const RunFlags& flags) {
  RunGiven given;
  given.run.price = price_of(flags).amount;
  given.currency = price_of(flags).currency;
  if (!flags.wanted()) {
    for (const auto& [flag, text] : {std::pair{"--power", &flags.power},
                                     {"--pue", &flags.pue},
                                     {"--mtbf", &flags.mtbf},
                                     {"--restart-time", &flags.restart_time},
                                     {"--repair-time", &flags.repair_time},
                                     {"--spare-nodes", &flags.spare_nodes},
                                     {"--checkpoint", &flags.checkpoint},
                                     {"--checkpoint-bandwidth", &flags.checkpoint_bandwidth}}) {
      if (!text->empty()) throw InputError(concat(flag, " is of a whole run; give --train-tokens too, such as 15T"));
    }
    return given;
  }
  TrainingRun& run = given.run;
  run.tokens = value_of("--train-tokens", flags.tokens, tawpipe::parse_count);
  if (!flags.power.empty()) run.watts = value_of("--power", flags.power, parse_power);
  if (!flags.pue.empty()) {
    run.pue = parse_positive(flags.pue, "--pue");
    if (run.pue < 1 || run.pue > 10)
      throw InputError(
          concat("--pue must be the power of the site over that of its computers, from 1 to 10, not ", quote(flags.pue)));
  }
  given.has_mtbf = !flags.mtbf.empty();
  if (given.has_mtbf) {
    run.failures.device_mtbf_s = value_of("--mtbf", flags.mtbf, parse_time_span);
    if (run.failures.device_mtbf_s <= 0) throw InputError("--mtbf must be above zero, such as 50000h");
  }
  if (!flags.restart_time.empty()) run.failures.restart_s = short_time("--restart-time", flags.restart_time);
  if (!flags.repair_time.empty()) run.failures.repair_s = short_time("--repair-time", flags.repair_time);
  if (!flags.spare_nodes.empty()) run.spare_nodes = parse_whole<int>(flags.spare_nodes, "--spare-nodes", 0, max_spare_nodes);
  if (flags.checkpoint != "" && flags.checkpoint != "async" && flags.checkpoint != "sync")
    throw InputError(concat("--checkpoint must be async or sync, not ", quote(flags.checkpoint)));
  run.checkpoints.asynchronous = flags.checkpoint != "sync";
  if (!flags.checkpoint_bandwidth.empty())
    given.write_bytes_per_s = value_of("--checkpoint-bandwidth", flags.checkpoint_bandwidth, parse_bandwidth).value();
  if (given.write_bytes_per_s.value_or(1) < 1)
    throw InputError("--checkpoint-bandwidth must be at least a byte a second, such as 100GB/s");
  return given;
}

}  // namespace tawpipe::sim
