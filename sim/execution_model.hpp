// The executed model, and its number format.
// Not: its execution (execution.hpp, modules.hpp).
#pragma once

#include <string>

#include "execution_request.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/layers/adamw.hpp"
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/decoder_constants.hpp"
#include "tawpipe/model/dtype.hpp"
#include "tawpipe/model/shared_stage.hpp"
#include "tawpipe/model/transformer.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/timeline/timeline.hpp"
#include "tawpipe/topology/device_group.hpp"

namespace tawpipe::sim {

/// A model, its batch and its training constants.
struct ExecutionModel {
  Transformer model;
  Batch batch;
  DecoderConstants constants;
  layers::AdamW optimizer;
};

/// The number format of weights and activations: on a CPU f32 or f64, on GPUs f32, bf16 or f16.
/// @throws InputError  for any other.
inline Dtype execution_dtype(const ExecutionRequest& request) {
  const Dtype dtype = parse_dtype(request.dtype);
  if (request.backend == "cuda") {
    if (dtype == Dtype::f32 || dtype == Dtype::bf16 || dtype == Dtype::f16) return dtype;
    throw InputError(concat("--dtype ", request.dtype, " cannot be executed on a GPU; choose f32, bf16 or f16"));
  }
  if (dtype == Dtype::f32 || dtype == Dtype::f64) return dtype;
  throw InputError(concat("--dtype ", request.dtype, " cannot be executed on a CPU; choose f32 or f64"));
}

/// The ranks of each node of a cluster as given to --cluster.
DeviceGroups resolve_groups(const std::string& cluster);

/// The batch of a schedule whose microbatches are those of all expert-parallel ranks together.
/// @param each  with a rank's own
/// @throws InputError  if they are no whole number of microbatches
Batch executed_batch(const ExecutionRequest& request, Batch each);

/// How ranks share a stage.
/// @throws InputError  naming what no executor runs, with what would be right.
Sharing executed_sharing(const ExecutionRequest& request);

/// Builds and validates the schedule of `request` for `model`, in its number format, with the mesh
/// around it: the task graph that simulate times for the same flags.
/// @throws InputError  if it cannot be built, or no executor runs such a mesh; ScheduleError  if it
/// is not valid.
Schedule execution_schedule(const ExecutionRequest& request, ExecutionModel& model, const DeviceGroups& nodes);

/// @throws InputError  if weights, gradients and both moments of the ranks of this host, with those
/// of all replicas, are more than its memory, or `ranks` cannot be divided into replicas.
/// @param here  ranks of this host
void check_host_memory(const ExecutionRequest& request, const ExecutionModel& model, int here, int ranks);

/// The execution's flags that must be equal on all ranks, before `request.identity`.
RunIdentity identity_of(const ExecutionRequest& request);

/// Before a run over several ranks: if one cannot start, or was started with different flags from
/// rank 0, none starts. Collective. @param prepare  this rank's part, may throw. @throws InputError
/// on all ranks, with the lowest such rank's reason.
template <class Session, class Prepare>
void agree_on_run(Session& session, const ExecutionRequest& request, Prepare&& prepare) {
  std::string problem = request.problem;
  try {
    if (problem.empty()) prepare();
  } catch (const Error& error) {
    problem = error.what();
  }
  session.agree(problem);
  const RunIdentity own = identity_of(request);
  session.agree(difference(own, session.from_root(to_text(own)), session.rank()));
}

/// When each task of the schedule runs on the request's cluster according to the simulator: the same on all
/// ranks.
Timeline expected_timeline(const ExecutionRequest& request, const Schedule& schedule);

}  // namespace tawpipe::sim
