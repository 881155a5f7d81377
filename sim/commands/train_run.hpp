// The model and data of `tawpipe train`, from its flags and files: before there is an executor.
// Not: the training itself (train.cpp).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "../execution_model.hpp"
#include "tawpipe/layers/learning_rate.hpp"
#include "tawpipe/training/checkpoint.hpp"
#include "tawpipe/training/huggingface_weights.hpp"
#include "tawpipe/training/token_windows.hpp"
#include "train.hpp"

namespace tawpipe::sim {

/// Everything that the flags specify, before there is an executor.
struct Run {
  ExecutionModel model;
  layers::LearningRate learning_rate;
  training::TrainingState state;  ///< at the start
  std::shared_ptr<const training::TokenFile> file;
  std::optional<training::Checkpoint> checkpoint;
  std::optional<training::HuggingFaceWeights> weights;

  training::TokenWindows source() const {
    return {file,
            {0, file->count()},
            {.microbatch_size = static_cast<std::int32_t>(model.batch.microbatch_size),
             .sequence = static_cast<std::int32_t>(model.batch.sequence),
             .microbatches = static_cast<std::int32_t>(model.batch.microbatches()),
             .vocab = model.model.vocab,
             .seed = state.data.seed,
             .order = state.data.order}};
  }
};

/// @throws InputError  for missing, unreadable or contradictory input.
Run resolve_run(const TrainRequest& request);

/// The values that must be equal on all ranks, or they would train something unintended.
RunIdentity identity_of(const TrainRequest& request, const Run& run);

}  // namespace tawpipe::sim
