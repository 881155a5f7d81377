// Implements what was measured from its flags.
#include "measured_setup.hpp"

#include <algorithm>

#include "tawpipe/core/error.hpp"
#include "tawpipe/model/huggingface_config.hpp"
#include "tawpipe/model/workload.hpp"

namespace tawpipe::sim {

namespace {

Transformer model_of(const MeasuredSetup& setup) {
  if (setup.model.empty())
    throw InputError(
        "--model is missing; measured times hold for one model: give a name (tawpipe list models) or its config.json");
  return resolve_model(setup.model);
}

}  // namespace

MeasuredWork work_of(const MeasuredSetup& setup) {
  const Transformer model = model_of(setup);
  if (setup.sequence < 1) throw InputError("--sequence is missing; give the tokens of one sequence in the measured run");
  const Batch batch{.sequence = setup.sequence, .microbatch_size = setup.microbatch, .global_batch = setup.microbatch};
  const std::int64_t number = size_bytes(model.dtype);
  Workload workload{model, batch, parse_recompute(setup.recompute)};
  // Adam's two moments, and a master copy of weights of 16 bits.
  workload.parameter_bytes(
      {.weight = number, .gradient = number, .optimizer = (number < 4 ? 4 : 0) + 2 * std::max<std::int64_t>(number, 4)});
  return MeasuredWork::of(workload);
}

int layers_of(const MeasuredSetup& setup) { return model_of(setup).layers; }

}  // namespace tawpipe::sim
