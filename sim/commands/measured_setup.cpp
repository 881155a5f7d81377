// Implements what was measured from its flags.
#include "measured_setup.hpp"

#include "tawpipe/core/error.hpp"
#include "tawpipe/model/huggingface_config.hpp"
#include "tawpipe/model/stage_work.hpp"
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
  Workload workload{model, batch, parse_recompute(setup.recompute)};
  ParameterBytes bytes = trained_bytes(model.dtype);
  bytes.gradient = bytes.weight;  // as ranks exchange it
  workload.parameter_bytes(bytes);
  return MeasuredWork::of(workload);
}

int layers_of(const MeasuredSetup& setup) { return model_of(setup).layers; }

}  // namespace tawpipe::sim
