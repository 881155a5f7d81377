// Resolves the flags of the mesh. Not: of the rest of a problem (request.cpp).
#include "mesh_request.hpp"

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::sim {

namespace {

/// The mesh's expert axis: what --expert-parallel has beyond tensor x context.
void take_expert_parallel(const MeshRequest& request, Mesh& mesh) {
  if (request.expert_parallel == 0 || request.expert_parallel == 1) return;
  const std::int64_t others = std::int64_t{mesh.tensor} * mesh.context;
  if (request.expert_parallel < 1 || others < 1 || request.expert_parallel % others != 0) {
    throw InputError(concat("--expert-parallel ", request.expert_parallel, " must be a multiple of tensor ", mesh.tensor,
                            " x context ", mesh.context, " devices, which have experts of their own too, or 1"));
  }
  mesh.whole_experts = true;
  mesh.expert = static_cast<int>(request.expert_parallel / others);
}

}  // namespace

bool one_of_two(std::string_view flag, const std::string& text, std::string_view yes, std::string_view no) {
  if (text == yes) return true;
  if (text == no) return false;
  throw InputError(concat(flag, " ", quote(text), " must be ", yes, " or ", no));
}

MeshChoice resolve_mesh(const MeshRequest& request) {
  MeshChoice choice{.mesh = request.mesh};
  take_expert_parallel(request, choice.mesh);
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
