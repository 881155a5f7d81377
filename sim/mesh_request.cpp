// Resolves the flags of a mesh that is executed. Not: of a problem (request.cpp).
#include "mesh_request.hpp"

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/search/detail/field_values.hpp"

namespace tawpipe::sim {

MeshChoice resolve_mesh(const MeshRequest& request) {
  MeshChoice choice{.mesh = request.mesh};
  detail::take_expert_parallel(request.expert_parallel, choice.mesh);
  choice.mesh.order = parse_mesh_order(request.layout);
  choice.sequence_parallel = one_of_two("--sequence-parallel", request.sequence_parallel, "on", "off");
  choice.sharding = parse_state_sharding(request.shard_states);
  choice.reshard = parse_reshard(request.reshard);
  choice.overlap_gradients = one_of_two("--overlap-grad-reduce", request.overlap_gradients, "on", "off");
  choice.overlap_gathers = one_of_two("--overlap-param-gather", request.overlap_gathers, "on", "off");
  if (request.bucket < automatic_bucket) throw InputError("--bucket must be a number of parameters, or 0 for a whole stage");
  choice.bucket = request.bucket;
  return choice;
}

void refuse_idle_sharding(StateSharding sharding, const Mesh& mesh) {
  if (sharding < StateSharding::gradients || mesh.data * mesh.token_ranks() > 1) return;
  throw InputError(concat("--shard-states ", name(sharding),
                          " shares states out over data- and context-parallel devices, and there are none; give "
                          "--data-parallel N, or a schedule that shares them out itself, such as fsdp, zero1 and zero2"));
}

}  // namespace tawpipe::sim
