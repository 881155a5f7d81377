// The rows of a whole training run: what it takes, costs, and loses to failures.
// Not: their values (answers/run_given.hpp), nor the rows of a job (job_rows.hpp).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/search/job_field.hpp"

namespace tawpipe::inline v0::detail {

inline std::vector<JobField> run_fields() {
  const auto row = [](std::string_view name, std::string_view type, std::string_view meaning) {
    return JobField{
        .name = name, .group = "Training run", .type = type, .meaning = std::string{meaning}, .traits = of_plan | of_run};
  };
  return {
      row("train-tokens", "TOKENS", "Of a whole run, such as 15T: its days, device-hours, price, energy, and what failures take"),
      row("price", "PRICE", "Of a device's hour, with a currency's letters or without: 2.5USD"),
      row("power", "POWER", "Of a device, such as 700W (default the most that its data sheet says)"),
      row("pue", "FACTOR", "Power of the site over that of its computers (default 1.54)"),
      row("mtbf", "TIME", "Mean time between failures of one device that stop the run, such as 50000h (default Llama 3's)"),
      row("restart-time", "TIME", "From a failure until training goes on, with other nodes (default 10min)"),
      row("repair-time", "TIME", "Until a failed node is back (default 1d)"),
      row("spare-nodes", "N", "That wait for others to fail, and are paid for (default as many as needed, from elsewhere)"),
      row("checkpoint", "WAY",
          "Who writes it: async, the hosts while training goes on, after a copy to their memory (default), or sync"),
      row("checkpoint-bandwidth", "RATE", "What the storage takes of all nodes together (default 1GB/s of each node)"),
  };
}

}  // namespace tawpipe::v0::detail
