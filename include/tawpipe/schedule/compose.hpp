// Meshes around a schedule: each of its ranks becomes a tensor- and context-parallel group of real
// ones, and the whole schedule is replicated data-parallel.
// Not: a schedule of its own (any can be composed), nor a stage's steps (schedule/expand.hpp).
#pragma once

#include <cstdint>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/model/shared_stage.hpp"
#include "tawpipe/schedule/buckets.hpp"
#include "tawpipe/schedule/mesh.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/schedule/state_sharding.hpp"

namespace tawpipe::inline v0 {

/// What a mesh adds to a schedule.
struct Composition {
  /// [stage of the schedule] one rank's part; empty: a stage's whole work divided by the ranks that
  /// share it, without exchanges.
  std::vector<SharedStage> stages = {};
  /// Where `stages` is empty: tensor-parallel ranks split norms and residual sums by tokens
  /// (Sharing::sequence_parallel); otherwise each runs all of them.
  bool sequence_parallel = true;
  /// Which model states the ranks that hold the same parameters (data x context) share among
  /// themselves: gradients are then scattered to them and weights gathered from them. What the
  /// schedule itself sends or sums of a stage, such as a tied matrix's gradient, stays whole; so do
  /// all states of a rank with both copies of a tied matrix (zb-v, v-half, dualpipe, chimera).
  /// Source: Rajbhandari et al. 2020, ZeRO, arXiv:1910.02054, section 5; Megatron-LM,
  /// docs/source/api-guide/dist_optimizer.md.
  StateSharding sharding = StateSharding::none;
  /// How often they are gathered and reduced, for sharded gradients or parameters.
  /// Source: pytorch/torchtitan, models/llama3/infra/parallelize.py, apply_fsdp:
  /// reshard_after_forward is off in a pipeline; and PyTorch, distributed/pipelining/stage.py,
  /// backward_maybe_with_nosync: gradients are summed after the last backward.
  Reshard reshard = Reshard::automatic;
  /// A gradient is summed over the ranks that hold its parameters as soon as the last microbatch
  /// has added to it, overlapping the backwards of earlier stages; otherwise in the order of the
  /// updates. Sharded gradients are always summed in this way.
  /// Source: Megatron-LM, --overlap-grad-reduce; Li et al. 2020, PyTorch Distributed,
  /// arXiv:2006.15704, section 3.2.3.
  bool overlap_gradients = false;
  /// New weights, of which each rank has updated its part, are gathered before their first use in
  /// the next iteration, overlapping its first forwards. An iteration then begins with the gathers
  /// of the one before. Sharded weights are always gathered in this way.
  /// Source: Megatron-LM, --overlap-param-gather.
  bool overlap_gathers = false;
  /// The least number of a rank's parameters in an early sum or gather of the first stage: each sum
  /// begins as soon as the last microbatch has the gradient of its layers, and the first microbatch
  /// waits only for the weights of its next layers. 0: the whole stage's, as in other stages.
  std::int64_t bucket = automatic_bucket;
};

/// The logical schedule of one replica, run by the ranks of `mesh`.
/// @param logical  built for mesh.pipeline ranks and the microbatches of one replica
/// @param whole    the work of all replicas together
/// @param mesh     over all ranks (Mesh::over)
/// @throws InputError  if ranks have whole experts, and the model has none, or the schedule itself
/// moves their weights or gradients
TAWPIPE_INLINE Schedule compose(const Schedule& logical, const Workload& whole, const Mesh& mesh, const Composition& with = {});

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/schedule/detail/composed_copies.hpp"
#include "tawpipe/schedule/detail/state_messages.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"
#include "tawpipe/schedule/task_workspace.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// Writes each task of a logical schedule once for each real group that runs it, with what the mesh
/// adds.
///
/// Copies hold and carry the parameters of their logical buffers and tasks. With tensor parallelism
/// a set names whole matrices of which each rank has a part: a part of a matrix is not a range of
/// the model's numbering.
class Composer {
 public:
  /// @param kept  tensor, context and data: how many copies of each are written, the first ones;
  /// the mesh's sizes write all
  Composer(const Schedule& logical, const Workload& whole, const Mesh& mesh, const Composition& with, const Mesh& kept)
      : logical_{logical},
        mesh_{checked(mesh, logical.workload())},
        with_{with},
        copies_{logical, mesh, kept},
        builder_{logical.name(), whole, mesh.ranks(), logical.lanes()},
        states_{logical, builder_, copies_, pieces_, travel(mesh, with)} {
    if (mesh.whole_experts) check_experts();
    for (const auto& [key, value] : logical.options()) builder_.option(key, value);
    builder_.option("tensor", std::to_string(mesh.tensor));
    builder_.option("context", std::to_string(mesh.context));
    if (mesh.whole_experts) builder_.option("experts", std::to_string(mesh.expert_parts()));
    builder_.option("data", std::to_string(mesh.data));
    std::vector<StageWork> stages{logical.stages().begin(), logical.stages().end()};
    for (const StageWork& stage : stages) largest_ = std::max(largest_, stage.workspace());
    for (std::size_t s = 0; s < stages.size(); ++s) {
      if (with_.stages.empty()) {
        split(stages[s]);
      } else {
        stages[s] = with_.stages[s].work;
      }
    }
    builder_.stages(std::move(stages));
    if (!with_.stages.empty()) builder_.bodies(with_.stages);
    builder_.copies_gathered(with_.sharding == StateSharding::parameters);
    if (!(kept == mesh_)) builder_.written_ranks(written());
  }

  Schedule build() {
    builder_.mesh(mesh_);
    const Schedule::Parts& parts = logical_.parts();
    const auto copies = static_cast<std::size_t>(copies_.count());
    groups_.assign(parts.groups.size() * copies, none<GroupId>);
    builder_.reserve({parts.tasks.size() * copies, parts.uses.items().size() * copies, parts.buffers.size() * copies});
    add_sets();
    add_buffers();
    for (std::size_t t = 0; t < logical_.tasks().size(); ++t) {
      const TaskId id = tawpipe::id<TaskId>(t);
      states_.before(id);
      for (int copy = 0; copy < copies_.count(); ++copy) add_copy(id, copy);
      states_.after(id);
    }
    copies_.forget();
    return builder_.build();
  }

 private:
  static StateTravel travel(const Mesh& mesh, const Composition& with) {
    const bool usual = with.sharding == StateSharding::gradients || mesh.pipeline == 1;
    const bool each = with.reshard == Reshard::automatic ? usual : with.reshard == Reshard::microbatch;
    return {.sharding = with.sharding,
            .each_microbatch = each,
            .early_sums = with.overlap_gradients,
            .early_gathers = with.overlap_gathers && with.sharding != StateSharding::none,
            .bucket = bucket_size(with.bucket, mesh.batch_parts()) * mesh.tensor};
  }
  /// [rank] whether its copy is kept
  std::vector<char> written() const {
    std::vector<char> written(static_cast<std::size_t>(mesh_.ranks()), 0);
    for (int logical = 0; logical < logical_.ranks(); ++logical) {
      for (int copy = 0; copy < copies_.count(); ++copy) written[index(copies_.real(Rank{logical}, copy))] = 1;
    }
    return written;
  }
  /// Replica d works on the d-th part of the microbatches.
  std::int32_t microbatch(std::int32_t logical, int copy) const {
    return logical + static_cast<std::int32_t>(logical_.workload().microbatches()) * copies_.data(copy);
  }

  /// One real rank's part of a stage: matrices over the tensor ranks, tokens over the context
  /// ranks.
  void split(StageWork& stage) const {
    const int both = mesh_.shared();
    const std::int64_t experts = mesh_.whole_experts ? stage.expert_parameters : 0;
    stage.parameters = part(stage.parameters - experts, mesh_.tensor) + part(experts, mesh_.expert_parts());
    stage.edge_parameters = part(stage.edge_parameters, mesh_.tensor);
    for (Bytes* bytes : {&stage.saved, &stage.stash, &stage.boundary, &stage.forward_workspace, &stage.backward_workspace,
                         &stage.stashed_workspace, &stage.forward_traffic, &stage.backward_traffic}) {
      *bytes = Bytes{part(bytes->value(), both)};
    }
    for (Kernel& kernel : stage.kernels) {
      kernel = kernel.split({.tensor = mesh_.tensor,
                             .context = mesh_.context,
                             .expert = mesh_.expert,
                             .whole_experts = mesh_.whole_experts,
                             .sequence_parallel = with_.sequence_parallel});
    }
    for (Flops* flops : {&stage.forward, &stage.recompute, &stage.backward_input, &stage.backward_weight}) {
      *flops = *flops / static_cast<double>(both);
    }
  }
  static std::int64_t part(std::int64_t whole, int parts) { return (whole + parts - 1) / parts; }

  /// One rank's part of `bytes` of tokens, where the whole stage has `whole` and the rank `own`.
  Bytes token_part(Bytes bytes, Bytes whole, Bytes own) const {
    const Bytes even{part(bytes.value(), mesh_.shared())};
    if (with_.stages.empty()) return even;
    if (whole <= Bytes{}) return std::max(even, own);  // only a part needs it, as of what is gathered
    if (bytes == whole) return own;
    return Bytes{static_cast<std::int64_t>(static_cast<double>(bytes.value()) / static_cast<double>(whole.value()) *
                                           static_cast<double>(own.value()))};
  }
  /// [buffer] one rank's part of what is the workspace of a single task; 0 for others.
  std::vector<Bytes> task_workspaces() const {
    std::vector<Bytes> parts(logical_.buffers().size());
    const auto stages = logical_.stages();
    const auto stashes = [](const StageWork& stage) { return stage.stashed_workspace > Bytes{}; };
    for (std::size_t t = 0; std::any_of(stages.begin(), stages.end(), stashes) && t < logical_.tasks().size(); ++t) {
      const Task& task = logical_.tasks()[t];
      if (!is_stage_work(task.op) || task.stage == none<StageId>) continue;
      const Bytes whole = workspace_of(stages[index(task.stage)], task.op);
      const Bytes own = workspace_of(builder_.stages()[index(task.stage)], task.op);
      for (const Use& use : logical_.uses(id<TaskId>(t))) {
        const Buffer& buffer = logical_.buffer(use.buffer);
        if (buffer.content.kind() == ContentKind::workspace && !buffer.persistent)
          parts[index(use.buffer)] = token_part(buffer.bytes, whole, own);
      }
    }
    return parts;
  }
  Bytes part_of(const Buffer& buffer) const {
    const ContentKind kind = buffer.content.kind();
    if (is_of_parameters(kind)) return states_.part(buffer.bytes, buffer.content.parameters());
    const bool any = buffer.content.stage() == none<StageId>;
    if (kind == ContentKind::workspace && any) return token_part(buffer.bytes, largest_, builder_.largest_workspace());
    const StageId stage = any ? StageId{0} : buffer.content.stage();
    const StageWork& whole = logical_.stage(stage);
    const StageWork& own = builder_.stages()[index(stage)];
    if (kind == ContentKind::workspace) return token_part(buffer.bytes, whole.workspace(), own.workspace());
    if (kind == ContentKind::saved) return token_part(buffer.bytes, whole.saved, own.saved);
    if (kind == ContentKind::stash) return token_part(buffer.bytes, whole.stash, own.stash);
    return token_part(buffer.bytes, whole.boundary, own.boundary);
  }
  Messages part_of(TaskId id, const Task& task) const {
    if (!is_of_tokens(task.payload)) return states_.part(Bytes{task.bytes.value()}, parameters_of(id));
    const std::size_t stage = task.stage == none<StageId> ? 0 : index(task.stage);
    return token_part(task.bytes, logical_.stages()[stage].boundary, builder_.stages()[stage].boundary);
  }

  /// The parameters whose states a task updates; none for others.
  PiecesId parameters_of(TaskId task) const {
    if (logical_.task(task).op != Op::update) return none<PiecesId>;
    const auto uses = logical_.uses(task);
    const auto states = std::find_if(uses.begin(), uses.end(), [&](const Use& use) {
      return logical_.buffer(use.buffer).content.kind() == ContentKind::optimizer_state;
    });
    return states == uses.end() ? none<PiecesId> : logical_.buffer(states->buffer).content.parameters();
  }

  static const Mesh& checked(const Mesh& mesh, const Workload& workload) {
    if (mesh.whole_experts && (workload.is_abstract() || !workload.model().has_experts())) {
      throw InputError(concat("expert parallelism: ", workload.is_abstract()
                                                          ? "there is no model with experts"
                                                          : concat("model ", quote(workload.model().name), " has no experts")));
    }
    return mesh;
  }
  /// Experts must stay where they are.
  void check_experts() const {
    const ParameterBlocks blocks = logical_.workload().model().blocks();
    const auto has_experts = [&](PiecesId set) { return !blocks.part_of(logical_.pieces(set), true).empty(); };
    for (const Task& task : logical_.tasks()) {
      if (!(is_point_to_point(task.op) || is_collective(task.op)) || is_of_tokens(task.payload)) continue;
      const auto sets = task.split == none<SplitId> ? std::span<const PiecesId>{} : logical_.split(task.split);
      if (task.split != none<SplitId> && std::none_of(sets.begin(), sets.end(), has_experts)) continue;
      throw InputError(concat("schedule ", quote(logical_.name()), " moves experts or their gradients between its ",
                              logical_.ranks(),
                              " ranks; expert parallelism needs one whose ranks keep their weights, such as "
                              "1f1b, interleaved-1f1b or zb-h1, or ddp of one rank with data parallelism around it, which with "
                              "sharded parameters is FSDP"));
    }
  }

  void add_sets() {
    const Schedule::Parts& parts = logical_.parts();
    builder_.padding(parts.padding);
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
    const std::vector<Bytes> workspaces = task_workspaces();
    for (std::size_t b = 0; b < logical_.buffers().size(); ++b) {
      const Buffer& buffer = logical_.buffers()[b];
      for (int copy = 0; copy < copies_.count(); ++copy) {
        Buffer real = buffer;
        real.rank = copies_.real(buffer.rank, copy);
        real.bytes = workspaces[b] > Bytes{} ? workspaces[b] : part_of(buffer);
        real.content = content(buffer.content, copy);
        states_.keep_part(id<BufferId>(b), copy, real);
        builder_.buffer(real);
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

  void add_copy(TaskId logical_id, int copy) {
    Task task = logical_.task(logical_id);
    task.bytes = states_.updated_bytes(logical_id, part_of(logical_id, task));
    task.split = is_all_pairs(task.op) ? pair_sizes(task) : split(task.split);
    if (task.microbatch >= 0) task.microbatch = microbatch(task.microbatch, copy);
    after_.clear();
    for (const TaskId earlier : logical_.dependencies(logical_id)) after_.push_back(copies_.task(earlier, copy));
    states_.waits(logical_id, copy, after_);
    uses_.clear();
    for (const Use& use : logical_.uses(logical_id)) uses_.push_back(states_.use_of(logical_id, use, copy));
    if (is_host_copy(task.op)) task.bytes = builder_.buffers()[index(uses_.front().buffer)].bytes;
    task.rank = copies_.real(task.rank, copy);
    if (is_point_to_point(task.op)) task.peer = copies_.real(task.peer, copy);
    if (is_collective(task.op)) {
      GroupId& group = groups_[index(task.group) * static_cast<std::size_t>(copies_.count()) + static_cast<std::size_t>(copy)];
      if (group == none<GroupId>) group = builder_.group(members(task.group, copy));
      task.group = group;
    }
    copies_.task(logical_id, copy) = builder_.add(task, uses_, after_);
  }

  std::vector<Rank> members(GroupId logical, int copy) const {
    std::vector<Rank> members;
    for (const Rank member : logical_.group(logical)) members.push_back(copies_.real(member, copy));
    return members;
  }

  const Schedule& logical_;
  Mesh mesh_;
  const Composition& with_;
  ComposedCopies copies_;
  ScheduleBuilder builder_;
  Bytes largest_{};               ///< workspace of the logical schedule's stages
  std::vector<PiecesId> pieces_;  ///< [logical set]
  std::vector<SplitId> splits_;   ///< [logical split]
  std::vector<GroupId> groups_;   ///< [logical group, copy], those that are used
  std::vector<TaskId> after_;     ///< of the task that is added
  std::vector<Use> uses_;         ///< of the task that is added
  StateMessages states_;
};

}  // namespace detail

TAWPIPE_INLINE Schedule compose(const Schedule& logical, const Workload& whole, const Mesh& mesh, const Composition& with) {
  return detail::Composer{logical, whole, mesh, with, mesh}.build();
}

}  // namespace tawpipe
#endif
