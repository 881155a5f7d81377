// Meshes around a schedule: each of its ranks becomes a tensor- and context-parallel group of real ones, and the whole schedule
// is replicated data-parallel. Not: a schedule of its own (any can be composed), nor a stage's steps (schedule/expand.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/model/shared_stage.hpp"
#include "tawpipe/schedule/detail/update_shards.hpp"
#include "tawpipe/schedule/early_messages.hpp"
#include "tawpipe/schedule/mesh.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"

namespace tawpipe::inline v0 {

/// What a mesh adds to a schedule.
struct Composition {
  /// [stage of the schedule] one rank's part; empty: all that a stage weighs divided by the ranks that share it, without
  /// exchanges.
  std::vector<SharedStage> stages = {};
  /// The ranks that hold the same parameters (data x context) each keep a part of the optimizer's states and update that part of
  /// the parameters: gradients are scattered to them and weights gathered from them. Otherwise each keeps and updates all.
  /// Source: Rajbhandari et al. 2020, ZeRO, arXiv:1910.02054, section 5.1; Megatron-LM, docs/source/api-guide/dist_optimizer.md.
  bool shard_optimizer = false;
  /// A gradient is summed over the ranks that hold its parameters as soon as the last microbatch has added to it, beside the
  /// backwards of earlier stages; otherwise in the order of the updates.
  /// Source: Megatron-LM, --overlap-grad-reduce; Li et al. 2020, PyTorch Distributed, arXiv:2006.15704, section 3.2.3.
  bool overlap_gradients = false;
  /// With shard_optimizer: new weights are gathered before their first use in the next iteration, beside its first forwards. An
  /// iteration then begins with the gathers of the one before, and ends with weights of which each rank has renewed its part.
  /// Source: Megatron-LM, --overlap-param-gather; FSDP inside a pipeline without resharding does the same.
  bool overlap_gathers = false;
};

namespace detail {

/// Writes each task of a logical schedule once for each real group that runs it, with what the mesh adds.
///
/// Copies hold and carry the parameters of their logical buffers and tasks. With tensor parallelism a set names the whole
/// matrices of which a rank has its part: a part of a matrix is not a range of the model's numbering.
class Composer {
 public:
  /// @param kept  tensor, context and data: that many of each are written, the first ones; the mesh's own where all are
  Composer(const Schedule& logical, const Workload& whole, const Mesh& mesh, const Composition& with, const Mesh& kept)
      : logical_{logical}, mesh_{mesh}, with_{with}, kept_{kept}, builder_{logical.name(), whole, mesh.ranks(), logical.lanes()} {
    for (const auto& [key, value] : logical.options()) builder_.option(key, value);
    builder_.option("tensor", std::to_string(mesh.tensor));
    builder_.option("context", std::to_string(mesh.context));
    builder_.option("data", std::to_string(mesh.data));
    std::vector<StageWork> stages{logical.stages().begin(), logical.stages().end()};
    for (const StageWork& stage : stages) largest_ = std::max({largest_, stage.forward_workspace, stage.backward_workspace});
    for (std::size_t s = 0; s < stages.size(); ++s) {
      if (with_.stages.empty()) {
        split(stages[s]);
      } else {
        stages[s] = with_.stages[s].work;
      }
    }
    builder_.stages(std::move(stages));
    if (!with_.stages.empty()) builder_.bodies(with_.stages);
    if (!(kept_ == mesh_)) builder_.written_ranks(written());
  }

  Schedule build() {
    builder_.mesh(mesh_);
    copies_.assign(logical_.tasks().size() * copies(), none<TaskId>);
    if (holders() > 1) early_ = find_early_messages(logical_, with_.overlap_gradients, with_.overlap_gathers);
    add_sets();
    add_buffers();
    for (std::size_t t = 0; t < logical_.tasks().size(); ++t) {
      const TaskId id = tawpipe::id<TaskId>(t);
      const bool update = logical_.task(id).op == Op::update;
      if (update && !with_.overlap_gradients) add_gradient_sums(id);
      for (const TaskId renewed : early_.gathers.next(id)) add_weight_gather(renewed);
      for (int copy = 0; copy < static_cast<int>(copies()); ++copy) add_copy(id, copy);
      for (const TaskId summed : early_.sums.next(id)) add_gradient_sum(summed);
      if (update && !with_.overlap_gathers) add_weight_gather(id);
    }
    copies_ = std::vector<TaskId>{};  // no longer needed: its memory goes back
    return builder_.build();
  }

 private:
  std::size_t copies() const { return static_cast<std::size_t>(kept_.tensor * kept_.context * kept_.data); }
  /// [rank] whether its copy is kept
  std::vector<char> written() const {
    std::vector<char> written(static_cast<std::size_t>(mesh_.ranks()), 0);
    for (int logical = 0; logical < logical_.ranks(); ++logical) {
      for (int copy = 0; copy < static_cast<int>(copies()); ++copy) written[index(real(Rank{logical}, copy))] = 1;
    }
    return written;
  }
  /// Copy number -> place: tensor fastest, then context, then data; of those kept.
  int copy_at(int tensor, int context, int data) const { return tensor + kept_.tensor * (context + kept_.context * data); }
  Rank real(Rank logical, int copy) const {
    return mesh_.rank({copy % kept_.tensor, copy / kept_.tensor % kept_.context, number(logical), copy / kept_.shared()});
  }
  /// Replica d works on the d-th part of the microbatches.
  std::int32_t microbatch(std::int32_t logical, int copy) const {
    return logical + static_cast<std::int32_t>(logical_.workload().microbatches()) * (copy / kept_.shared());
  }
  std::size_t copy_of(TaskId task, int copy) const { return index(task) * copies() + static_cast<std::size_t>(copy); }

  /// One real rank's part of a stage: matrices over the tensor ranks, tokens over the context ranks.
  void split(StageWork& stage) const {
    const int both = mesh_.shared();
    stage.parameters = part(stage.parameters, mesh_.tensor);
    stage.edge_parameters = part(stage.edge_parameters, mesh_.tensor);
    for (Bytes* bytes : {&stage.saved, &stage.stash, &stage.boundary, &stage.forward_workspace, &stage.backward_workspace,
                         &stage.forward_traffic, &stage.backward_traffic}) {
      *bytes = Bytes{part(bytes->value(), both)};
    }
    for (Kernel& kernel : stage.kernels) kernel = kernel.split(mesh_.tensor, mesh_.context);
    for (Flops* flops : {&stage.forward, &stage.recompute, &stage.backward_input, &stage.backward_weight}) {
      *flops = *flops / static_cast<double>(both);
    }
  }
  static std::int64_t part(std::int64_t whole, int parts) { return (whole + parts - 1) / parts; }

  /// One rank's part of bytes of tokens that are `whole` of a stage, of which the rank has `own`.
  Bytes token_part(Bytes bytes, Bytes whole, Bytes own) const {
    if (with_.stages.empty() || whole <= Bytes{}) return Bytes{part(bytes.value(), mesh_.shared())};
    if (bytes == whole) return own;
    return Bytes{static_cast<std::int64_t>(static_cast<double>(bytes.value()) / static_cast<double>(whole.value()) *
                                           static_cast<double>(own.value()))};
  }
  Bytes part_of(const Buffer& buffer) const {
    const ContentKind kind = buffer.content.kind();
    if (is_of_parameters(kind)) return Bytes{part(buffer.bytes.value(), mesh_.tensor)};
    if (kind == ContentKind::workspace) return token_part(buffer.bytes, largest_, builder_.largest_workspace());
    const StageId stage = buffer.content.stage() == none<StageId> ? StageId{0} : buffer.content.stage();
    const StageWork& whole = logical_.stage(stage);
    const StageWork& own = builder_.stages()[index(stage)];
    if (kind == ContentKind::saved) return token_part(buffer.bytes, whole.saved, own.saved);
    if (kind == ContentKind::stash) return token_part(buffer.bytes, whole.stash, own.stash);
    return token_part(buffer.bytes, whole.boundary, own.boundary);
  }
  Messages part_of(const Task& task) const {
    if (!is_of_tokens(task.payload)) return Bytes{part(task.bytes.value(), mesh_.tensor)};
    const std::size_t stage = task.stage == none<StageId> ? 0 : index(task.stage);
    return token_part(task.bytes, logical_.stages()[stage].boundary, builder_.stages()[stage].boundary);
  }

  void add_sets() {
    const Schedule::Parts& parts = logical_.parts();
    for (std::size_t p = 0; p < parts.pieces.size(); ++p) {
      pieces_.push_back(builder_.pieces({parts.pieces[p].begin(), parts.pieces[p].end()}));
    }
    for (std::size_t s = 0; s < parts.splits.size(); ++s) {
      std::vector<PiecesId> sets;
      for (const PiecesId set : parts.splits[s]) sets.push_back(pieces(set));
      splits_.push_back(builder_.split(sets));
    }
  }

  void add_buffers() {
    for (std::size_t b = 0; b < logical_.buffers().size(); ++b) {
      const Buffer& buffer = logical_.buffers()[b];
      for (int copy = 0; copy < static_cast<int>(copies()); ++copy) {
        Buffer real_buffer = buffer;
        real_buffer.rank = real(buffer.rank, copy);
        real_buffer.bytes = part_of(buffer);
        real_buffer.content = content(buffer.content, copy);
        if (shards_.has(id<BufferId>(b)) && buffer.content.kind() == ContentKind::optimizer_state) {
          const PiecesId set = shards_.parts(buffer.content.parameters())[holder(copy)];
          real_buffer.content = {buffer.content.kind(), buffer.content.stage(), set};
          real_buffer.bytes = bytes_of(buffer.content.parameters(), builder_.workload().parameter_bytes().optimizer, holders());
        }
        builder_.buffer(real_buffer);
      }
    }
  }
  Content content(const Content& logical, int copy) const {
    if (is_of_parameters(logical.kind())) return {logical.kind(), logical.stage(), pieces(logical.parameters())};
    if (logical.microbatch() < 0) return logical;
    return {logical.kind(), logical.stage(), microbatch(logical.microbatch(), copy)};
  }
  PiecesId pieces(PiecesId logical) const { return logical == none<PiecesId> ? logical : pieces_[index(logical)]; }
  SplitId split(SplitId logical) const { return logical == none<SplitId> ? logical : splits_[index(logical)]; }
  SplitId pair_sizes(const Task& logical) {
    if (logical.split == none<SplitId>) return none<SplitId>;
    const auto whole = logical_.pair_sizes(logical.split);
    std::vector<Bytes> sizes;
    for (const Bytes size : whole)
      sizes.push_back(size / (is_of_tokens(logical.payload) ? mesh_.shared()
                                                            : mesh_.tensor));  // down: a member gives no more than the message
    return builder_.pair_sizes(sizes);
  }
  BufferId buffer(BufferId logical, int copy) const {
    return id<BufferId>(index(logical) * copies() + static_cast<std::size_t>(copy));
  }

  void add_copy(TaskId logical_id, int copy) {
    Task task = logical_.task(logical_id);
    task.bytes = part_of(task);
    if (const PiecesId updated = shards_.of_update(logical_id); updated != none<PiecesId>) {
      const ParameterBytes& sizes = builder_.workload().parameter_bytes();
      task.bytes = bytes_of(updated, sizes.weight + sizes.gradient + sizes.optimizer, holders());
    }
    task.split = is_all_pairs(task.op) ? pair_sizes(task) : split(task.split);
    if (task.microbatch >= 0) task.microbatch = microbatch(task.microbatch, copy);
    std::vector<TaskId> after;
    for (const TaskId earlier : logical_.dependencies(logical_id)) after.push_back(copies_[copy_of(earlier, copy)]);
    for (const Sum& sum : sums_) {
      if (task.op != Op::update || sum.logical != task.rank || sum.tensor != copy % kept_.tensor) continue;
      if (sum.update == logical_id || is_tied(logical_)) after.push_back(sum.task);
    }
    std::vector<Use> uses;
    for (const Use& use : logical_.uses(logical_id)) uses.push_back({buffer(use.buffer, copy), use.access});
    if (is_host_copy(task.op)) task.bytes = builder_.buffers()[index(uses.front().buffer)].bytes;
    task.rank = real(task.rank, copy);
    if (is_point_to_point(task.op)) task.peer = real(task.peer, copy);
    if (is_collective(task.op)) {
      std::vector<Rank> members;
      for (const Rank member : logical_.group(logical_.task(logical_id).group)) members.push_back(real(member, copy));
      task.group = builder_.group(members);
    }
    copies_[copy_of(logical_id, copy)] = builder_.add(task, uses, after);
  }

  // ---- what the ranks that hold the same parameters do together ------------------------------------------------------------

  int holders() const { return mesh_.data * mesh_.context; }
  /// The place of a copy among the ranks that hold its parameters: context fastest.
  std::size_t holder(int copy) const {
    return static_cast<std::size_t>(copy / kept_.tensor % kept_.context + mesh_.context * (copy / kept_.shared()));
  }
  /// Bytes of one of so many equal parts of a logical set, on one tensor-parallel rank. The last are padded.
  Bytes bytes_of(PiecesId logical, std::int64_t each, int parts) const {
    return Bytes{part(part(parameters_in(logical_.pieces(logical)), parts) * each, mesh_.tensor)};
  }

  /// The ranks that hold a logical rank's parameters, for each tensor-parallel one that is kept: `visit(members, copies)`.
  template <class Visit>
  void for_each_holders(Rank logical, Visit&& visit) const {
    for (int t = 0; t < kept_.tensor; ++t) {
      const auto members = mesh_.group({.tensor = t, .pipeline = number(logical)}, {MeshAxis::context, MeshAxis::data});
      std::vector<int> copies;
      for (int d = 0; d < kept_.data; ++d) {
        for (int c = 0; c < kept_.context; ++c) copies.push_back(copy_at(t, c, d));
      }
      visit(members, copies);
    }
  }

  /// A sum over the copies of a logical rank.
  struct Sum {
    Rank logical;
    int tensor;
    TaskId update;  ///< that it is for
    TaskId task;
  };

  /// Before the first of several updates in a row: the sums of all, if a tied matrix may have a copy in two stages of a rank.
  /// Each copy is updated by both gradients.
  void add_gradient_sums(TaskId update) {
    const auto tasks = logical_.tasks();
    std::size_t before = index(update);
    while (before > 0 && is_host_copy(tasks[before - 1].op)) --before;
    const bool tied = is_tied(logical_);
    if (tied && before > 0 && tasks[before - 1].op == Op::update) return;
    sums_.clear();
    if (!tied) return add_gradient_sum(update);
    for (std::size_t t = index(update); t < tasks.size() && (tasks[t].op == Op::update || is_host_copy(tasks[t].op)); ++t) {
      if (tasks[t].op == Op::update) add_gradient_sum(id<TaskId>(t));
    }
  }

  /// The gradient that an update reads, summed over the ranks that hold the same parameters; to each its part where they share
  /// the update.
  void add_gradient_sum(TaskId update) {
    if (holders() == 1) return;
    BufferId gradient = none<BufferId>;
    PiecesId updated = none<PiecesId>;
    for (const Use& use : logical_.uses(update)) {
      const Content& content = logical_.buffer(use.buffer).content;
      if (content.kind() == ContentKind::optimizer_state) updated = content.parameters();
      if (use.access == Access::read && content.kind() == ContentKind::gradients) gradient = use.buffer;
    }
    if (gradient == none<BufferId>) return;
    const Task& task = logical_.task(update);
    const ParameterBytes& sizes = builder_.workload().parameter_bytes();
    const std::int64_t states = sizes.weight + sizes.gradient + sizes.optimizer;
    const bool sharded = shards_.of_update(update) != none<PiecesId>;
    const SplitId split = sharded                     ? builder_.split(shards_.parts(updated))
                          : updated == none<PiecesId> ? none<SplitId>
                                                      : builder_.split({pieces(updated)});
    for_each_holders(task.rank, [&](const std::vector<Rank>& members, const std::vector<int>& copies) {
      std::vector<Use> uses;
      std::vector<TaskId> after;
      for (const int copy : copies) {
        uses.push_back({buffer(gradient, copy), Access::read_write});
        for (const TaskId earlier : logical_.dependencies(update)) {
          if (!is_host_copy(logical_.task(earlier).op)) after.push_back(copies_[copy_of(earlier, copy)]);
        }
      }
      const TaskId sum = builder_.add({.op = sharded ? Op::reduce_scatter : Op::all_reduce,
                                       .payload = Payload::gradients,
                                       .lane = data_lane_,
                                       .rank = members[0],
                                       .group = builder_.group(members),
                                       .stage = task.stage,
                                       .split = split,
                                       .bytes = Bytes{part(task.bytes.value() / states * sizes.gradient, mesh_.tensor)}},
                                      uses, after);
      sums_.push_back({task.rank, copies[0] % kept_.tensor, update, sum});
    });
  }

  /// After a shared update, or before the next iteration's use: the new weights, of each rank its part, to all that hold them.
  void add_weight_gather(TaskId update) {
    const PiecesId updated = shards_.of_update(update);
    if (updated == none<PiecesId>) return;
    const Task& task = logical_.task(update);
    for_each_holders(task.rank, [&](const std::vector<Rank>& members, const std::vector<int>& copies) {
      std::vector<Use> uses;
      for (const int copy : copies) {
        for (const Use& use : logical_.uses(update)) {
          if (logical_.buffer(use.buffer).content.kind() == ContentKind::weights) {
            uses.push_back({buffer(use.buffer, copy), Access::read_write});
          }
        }
      }
      builder_.add({.op = Op::all_gather,
                    .payload = Payload::weights,
                    .lane = data_lane_,
                    .rank = members[0],
                    .group = builder_.group(members),
                    .stage = task.stage,
                    .split = builder_.split(shards_.parts(updated)),
                    .bytes = bytes_of(updated, builder_.workload().parameter_bytes().weight, 1)},
                   uses);
    });
  }

  const Schedule& logical_;
  Mesh mesh_;
  const Composition& with_;
  Mesh kept_;
  ScheduleBuilder builder_;
  LaneId data_lane_ = builder_.lane("data_parallel");  ///< sums over replicas
  Bytes largest_{};                                    ///< workspace of the logical schedule's stages
  UpdateShards shards_{logical_, builder_, with_.shard_optimizer ? holders() : 1};
  std::vector<PiecesId> pieces_;  ///< [logical set]
  std::vector<SplitId> splits_;   ///< [logical split]
  std::vector<Sum> sums_;         ///< of the updates that come next, or all so far that came early
  EarlyMessages early_;
  std::vector<TaskId> copies_;  ///< [logical task, copy]
};

}  // namespace detail

/// The logical schedule of one replica, run by the ranks of `mesh`.
/// @param logical  built for mesh.pipeline ranks and the microbatches of one replica
/// @param whole    the work of all replicas together
/// @param mesh     over all ranks (Mesh::over)
inline Schedule compose(const Schedule& logical, const Workload& whole, const Mesh& mesh, const Composition& with = {}) {
  return detail::Composer{logical, whole, mesh, with, mesh}.build();
}

}  // namespace tawpipe
