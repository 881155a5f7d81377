// The flags of a whole training run, as given, and their values.
// Not: what the run costs (commands/run_cost.hpp).
#pragma once

#include <optional>
#include <string>

#include "tawpipe/analysis/run_cost.hpp"
#include "tawpipe/core/parse_units.hpp"

namespace tawpipe::sim {

/// "": not given.
struct RunFlags {
  std::string tokens;                ///< --train-tokens
  std::string price;                 ///< --price, of a device's hour
  std::string power;                 ///< --power, of a device
  std::string pue;                   ///< --pue
  std::string mtbf;                  ///< --mtbf, of a device
  std::string restart_time;          ///< --restart-time
  std::string repair_time;           ///< --repair-time
  std::string spare_nodes;           ///< --spare-nodes
  std::string checkpoint;            ///< --checkpoint async|sync
  std::string checkpoint_bandwidth;  ///< --checkpoint-bandwidth, of the storage

  bool wanted() const { return !tokens.empty(); }
};

/// What the flags say of a run; the rest is the plan's.
struct RunGiven {
  /// tokens, failures, spare nodes, price, PUE and way of checkpoints; watts: 0 if not given
  TrainingRun run;
  std::string currency;
  bool has_mtbf = false;
  std::optional<double> write_bytes_per_s;
};

/// @throws InputError  naming the flag, also if one is of a run and --train-tokens is not given
RunGiven parse_run(const RunFlags& flags);
/// The price of a device's hour; 0 if not given. @throws InputError
Price price_of(const RunFlags& flags);

}  // namespace tawpipe::sim
