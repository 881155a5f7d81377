// What a run needs to resume, in addition to its parameters: the step, the data, the optimizer's
// settings.
// Not: parameters (training/checkpoint.hpp).
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tawpipe/layers/adamw.hpp"
#include "tawpipe/layers/learning_rate.hpp"
#include "tawpipe/model/dtype.hpp"
#include "tawpipe/training/token_windows.hpp"

namespace tawpipe::inline v0::training {

/// Which microbatches a run sees. They depend only on these and the step, so the step is the
/// position in the data.
struct DataPosition {
  std::string source = {};  ///< path of the data, for people
  DataOrder order = DataOrder::random;
  std::uint64_t seed = 0;
  std::int32_t microbatches = 1;  ///< of a step, over all ranks
  std::int32_t microbatch_size = 1;
  std::int32_t sequence = 1;

  bool operator==(const DataPosition&) const = default;
};

/// A run after `step` steps of the optimizer.
struct TrainingState {
  std::int64_t step = 0;
  /// drawn when the run began (checkpoint_folder.hpp, new_run_name()); "": of no run in particular
  std::string run = {};
  Dtype dtype = Dtype::f32;  ///< of parameters and moments in the files: f32 or f64
  DataPosition data = {};
  layers::AdamW optimizer = {};
  layers::LearningRate learning_rate = {};
  std::map<std::string, std::string> settings = {};  ///< any other values for the trainer

  bool operator==(const TrainingState&) const = default;
};

}  // namespace tawpipe::training
