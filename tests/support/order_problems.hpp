// Questions of orders for tests: stages laid on devices in every way that pipelines lay them, and
// the published generators'.
// Not: their answers (tawpipe/schedules/order_search.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tawpipe/core/csv.hpp"
#include "tawpipe/core/text_file.hpp"
#include "tawpipe/schedules/order_problem.hpp"
#include "tawpipe/schedules/v_schedules.hpp"
#include "tawpipe/schedules/zero_bubble.hpp"
#include "tawpipe/schedules/zero_bubble_auto.hpp"
#include "tawpipe/schedules/zero_bubble_v.hpp"

namespace support {

/// [stage] its device. Places are line (one a device), loop (round and round), v (down and up again
/// and again; with four a device a W), pairs (neighbours together).
inline std::vector<int> lay_stages(const std::string& place, int devices, int a_device) {
  std::vector<int> laid;
  for (int s = 0; s < devices * a_device; ++s) {
    const int way = s / devices;
    const int at = s % devices;
    if (place == "pairs") {
      laid.push_back(s / a_device);
    } else {
      laid.push_back(place == "v" && way % 2 == 1 ? devices - 1 - at : at);
    }
  }
  return laid;
}

/// Equal stages, messages of `hop` between different devices, limits that hold `held` stages'
/// activations.
inline tawpipe::schedules::OrderProblem equal_stages(const std::vector<int>& laid, std::int32_t microbatches,
                                                     const tawpipe::schedules::OrderStage& stage, std::int64_t hop,
                                                     std::int64_t held) {
  tawpipe::schedules::OrderProblem problem;
  problem.microbatches = microbatches;
  for (std::size_t s = 0; s < laid.size(); ++s) {
    problem.stages.push_back(stage);
    problem.stages.back().device = laid[s];
    problem.stages.back().hop = s + 1 < laid.size() && laid[s] != laid[s + 1] ? hop : 0;
  }
  problem.limits.assign(static_cast<std::size_t>(*std::max_element(laid.begin(), laid.end())) + 1, held * stage.saved);
  return problem;
}

/// A row of tests/data/zero_bubble/generators.csv. Its times are doubled, so that a stage's share
/// of them is whole.
struct PublishedOrder {
  std::string name, size, times, memory;  ///< as published: memory in microbatches' activations
  tawpipe::schedules::OrderProblem problem;
  std::vector<std::vector<std::vector<tawpipe::schedules::Action>>> starts;  ///< the orders that tawpipe draws by hand
  double span = 0;
  double makespan = 0;
};

/// @param path  of that file
inline std::vector<PublishedOrder> published_orders(const std::string& path) {
  namespace schedules = tawpipe::schedules;
  const tawpipe::CsvTable table{path, tawpipe::read_text_file(path, "the published orders", 1), "schedule"};
  std::vector<PublishedOrder> orders;
  for (std::size_t r = 0; r < table.rows(); ++r) {
    std::map<std::string, std::string> row;
    for (std::size_t c = 0; c < table.columns().size(); ++c) row[table.columns()[c]] = table.text(r, c);
    const int ranks = std::stoi(row["ranks"]);
    const int chunks = std::stoi(row["chunks"]);
    const auto microbatches = static_cast<std::int32_t>(std::stoi(row["microbatches"]));
    const std::int64_t share = row["times_are_per"] == "rank" ? chunks : 1;
    const auto time = [&](const char* column) { return 2 * std::stoll(row[column]) / share; };
    const std::int64_t kept = row["released"] == "half" ? 1 : 2;  // by backward_input
    const schedules::OrderStage stage{.forward = time("forward"),
                                      .backward_input = time("backward_input"),
                                      .backward_weight = time("backward_weight"),
                                      .saved = 2,
                                      .kept = kept};
    PublishedOrder& order = orders.emplace_back();
    order.name = row["schedule"];
    order.size = row["ranks"] + " x " + row["microbatches"];
    order.times = row["forward"] + ":" + row["backward_input"] + ":" + row["backward_weight"] + ":" + row["transfer"];
    order.memory = row["memory"];
    order.problem =
        equal_stages(lay_stages(row["place"], ranks, chunks), microbatches, stage, 2 * std::stoll(row["transfer"]), 1);
    for (auto& limit : order.problem.limits) limit = std::llround(std::stod(row["memory"]) * 2 * chunks);
    order.span = 2 * std::stod(row["span"]);
    order.makespan = 2 * std::stod(row["makespan"]);
    if (row["place"] == "v") {
      order.starts = {schedules::zb_v_program(ranks, microbatches).actions,
                      schedules::v_half_program(ranks, microbatches).actions,
                      schedules::v_min_program(ranks, microbatches).actions};
    } else {
      order.starts = {schedules::interleaved_zero_bubble_program(ranks, microbatches, chunks).actions};
    }
  }
  return orders;
}

}  // namespace support
