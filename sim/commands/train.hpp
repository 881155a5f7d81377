// The request of `tawpipe train`. Not: its implementation (train.cpp).
#pragma once

#include <cstdint>
#include <string>

#include "../execution_request.hpp"

namespace tawpipe::sim {

struct TrainRequest {
  ExecutionRequest execution;
  std::string model;  ///< a name, config.json, or a folder of weights
  std::string data;
  std::string data_order = "random";
  std::int64_t sequence = 0;
  std::int64_t global_batch = 0;
  std::int64_t microbatch = 1;
  std::int64_t steps = 0;
  double learning_rate = 1e-3;
  double min_learning_rate = 1e-4;
  std::int64_t warmup = 100;
  std::int64_t decay_steps = 0;  ///< 0: `steps`
  double weight_decay = 0.1;
  double clip = 1.0;
  std::uint64_t seed = 0;
  std::string save;  ///< a folder
  std::int64_t save_every = 0;
  std::string resume;            ///< a folder
  std::string save_huggingface;  ///< a folder
  bool overwrite = false;        ///< what other runs have saved in these
  std::int64_t log_every = 10;
  std::string json;
  std::string timeline;
  std::string schedule_out;
  std::string trace;
  std::string report;
};

int run_train(const TrainRequest& request);

}  // namespace tawpipe::sim
