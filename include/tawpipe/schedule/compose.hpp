// Three-dimensional layouts: each logical device of a schedule becomes a tensor- and context-parallel group of real ones, and
// the whole schedule is replicated data-parallel. Not: a schedule of its own; any schedule can be composed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tawpipe/schedule/layout.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// Writes each task of a logical schedule once for each real group that runs it, with what the layout adds.
///
/// Copies hold and carry the parameters of their logical buffers and tasks. With tensor parallelism a set names the whole
/// matrices of which a rank has its part: a part of a matrix is no range of the model's numbering.
class Composer {
 public:
  /// @param kept  tensor, context and data: that many of each are written, the first ones; the layout's own where all are
  Composer(const Schedule& logical, const Workload& whole, const Layout& layout, const RankMap& map, const Layout& kept)
      : logical_{logical}, layout_{layout}, kept_{kept}, map_{map}, builder_{logical.name(), whole, ranks(), logical.lanes()} {
    for (const auto& [key, value] : logical.options()) builder_.option(key, value);
    builder_.option("tensor", std::to_string(layout.tensor));
    builder_.option("context", std::to_string(layout.context));
    builder_.option("data", std::to_string(layout.data));
    std::vector<StageWork> stages{logical.stages().begin(), logical.stages().end()};
    for (StageWork& stage : stages) split(stage);
    builder_.stages(std::move(stages));
    if (!(kept_ == layout_)) builder_.written_ranks(written());
  }

  Schedule build() {
    builder_.layout(layout_);
    copies_.assign(logical_.tasks().size() * copies(), none<TaskId>);
    add_sets();
    add_buffers();
    for (std::size_t t = 0; t < logical_.tasks().size(); ++t) {
      const TaskId id = tawpipe::id<TaskId>(t);
      if (logical_.task(id).op == Op::update) add_gradient_sums(id);
      for (int copy = 0; copy < static_cast<int>(copies()); ++copy) add_copy(id, copy);
      add_layer_collectives(id);
    }
    copies_ = std::vector<TaskId>{};  // no longer needed: its memory goes back
    return builder_.build();
  }

 private:
  std::size_t copies() const { return static_cast<std::size_t>(kept_.tensor * kept_.context * kept_.data); }
  int ranks() const { return logical_.ranks() * layout_.tensor * layout_.context * layout_.data; }
  /// [rank] whether its copy is kept
  std::vector<char> written() const {
    std::vector<char> written(static_cast<std::size_t>(ranks()), 0);
    for (int logical = 0; logical < logical_.ranks(); ++logical) {
      for (int copy = 0; copy < static_cast<int>(copies()); ++copy) written[index(real(Rank{logical}, copy))] = 1;
    }
    return written;
  }
  /// Copy number -> place: tensor fastest, then context, then data; of those kept.
  int copy_at(int tensor, int context, int data) const { return tensor + kept_.tensor * (context + kept_.context * data); }
  Rank real(Rank logical, int copy) const {
    return map_.rank(
        {copy % kept_.tensor, copy / kept_.tensor % kept_.context, number(logical), copy / kept_.per_logical_rank()});
  }
  /// Replica d works on the d-th part of the microbatches.
  std::int32_t microbatch(std::int32_t logical, int copy) const {
    return logical + static_cast<std::int32_t>(logical_.workload().microbatches()) * (copy / kept_.per_logical_rank());
  }
  std::size_t copy_of(TaskId task, int copy) const { return index(task) * copies() + static_cast<std::size_t>(copy); }

  /// One real rank's part of a stage: matrices over the tensor ranks, tokens over the context ranks.
  void split(StageWork& stage) const {
    const int both = layout_.per_logical_rank();
    stage.parameters = part(stage.parameters, layout_.tensor);
    stage.edge_parameters = part(stage.edge_parameters, layout_.tensor);
    for (Bytes* bytes : {&stage.saved, &stage.stash, &stage.boundary, &stage.forward_workspace, &stage.backward_workspace,
                         &stage.forward_traffic, &stage.backward_traffic}) {
      *bytes = Bytes{part(bytes->value(), both)};
    }
    for (Flops* flops : {&stage.forward, &stage.recompute, &stage.backward_input, &stage.backward_weight}) {
      *flops = *flops / static_cast<double>(both);
    }
  }
  static std::int64_t part(std::int64_t whole, int parts) { return (whole + parts - 1) / parts; }
  Bytes part_of(const Buffer& buffer) const {
    const bool tokens = !is_of_parameters(buffer.content.kind());
    return Bytes{part(buffer.bytes.value(), tokens ? layout_.per_logical_rank() : layout_.tensor)};
  }
  int parts_of(const Task& task) const { return is_of_tokens(task.payload) ? layout_.per_logical_rank() : layout_.tensor; }
  Bytes part_of(const Task& task) const { return Bytes{part(task.bytes.value(), parts_of(task))}; }

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
    for (const Buffer& buffer : logical_.buffers()) {
      for (int copy = 0; copy < static_cast<int>(copies()); ++copy) {
        Buffer real_buffer = buffer;
        real_buffer.rank = real(buffer.rank, copy);
        real_buffer.bytes = part_of(buffer);
        real_buffer.content = content(buffer.content, copy);
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
    for (const Bytes size : whole) sizes.push_back(size / parts_of(logical));  // down: a member gives no more than the message
    return builder_.pair_sizes(sizes);
  }
  BufferId buffer(BufferId logical, int copy) const {
    return id<BufferId>(index(logical) * copies() + static_cast<std::size_t>(copy));
  }

  void add_copy(TaskId logical_id, int copy) {
    Task task = logical_.task(logical_id);
    task.bytes = part_of(task);
    task.split = is_all_pairs(task.op) ? pair_sizes(task) : split(task.split);
    if (task.microbatch >= 0) task.microbatch = microbatch(task.microbatch, copy);
    std::vector<TaskId> after;
    for (const TaskId earlier : logical_.dependencies(logical_id)) after.push_back(copies_[copy_of(earlier, copy)]);
    for (const Sum& sum : sums_) {
      if (task.op == Op::update && sum.logical == task.rank && sum.tensor == copy % kept_.tensor) after.push_back(sum.task);
    }
    std::vector<Use> uses;
    for (const Use& use : logical_.uses(logical_id)) uses.push_back({buffer(use.buffer, copy), use.access});
    task.rank = real(task.rank, copy);
    if (is_point_to_point(task.op)) task.peer = real(task.peer, copy);
    if (is_collective(task.op)) {
      std::vector<Rank> members;
      for (const Rank member : logical_.group(logical_.task(logical_id).group)) members.push_back(real(member, copy));
      task.group = builder_.group(members);
    }
    copies_[copy_of(logical_id, copy)] = builder_.add(task, uses, after);
  }

  /// What a stage's computation exchanges within a logical rank, behind it on the compute lane: with tensor parallelism two
  /// all-reduces a layer each way (Shoeybi et al. 2019, arXiv:1909.08053; an all-gather and a reduce-scatter with sequence
  /// parallelism move as much), with context parallelism the keys and values, and their gradients on the way back
  /// (all-gather form; Grattafiori et al. 2024, arXiv:2407.21783, section 3.3.2). Again where the forward is recomputed.
  void add_layer_collectives(TaskId logical_id) {
    const Task& task = logical_.task(logical_id);
    if (layout_.per_logical_rank() == 1 || !is_work(task.op) || task.op == Op::update || task.op == Op::backward_weight) return;
    const StageWork& whole = logical_.stage(task.stage);
    if (logical_.workload().is_abstract() || whole.layers == 0) return;
    const Workload& workload = logical_.workload();
    const bool forward = task.op == Op::forward;
    const std::int32_t layers = whole.layers * (forward || workload.recompute() != Recompute::full ? 1 : 2);
    if (2 * layers > Messages::max_repeat) {
      throw InputError(concat("a stage of ", whole.layers, " layers is too long for tensor or context parallelism; at most ",
                              Messages::max_repeat / 4, " fit"));
    }
    const Bytes activations{part(whole.boundary.value(), layout_.context)};
    const Bytes keys{2 * part(workload.model().keys.value(), layout_.tensor)};
    const int p = number(task.rank);
    for (int d = 0; d < kept_.data; ++d) {
      if (layout_.tensor > 1) {
        for (int c = 0; c < kept_.context; ++c) {
          std::vector<Rank> members;
          std::vector<int> copies;
          for (int t = 0; t < layout_.tensor; ++t) members.push_back(map_.rank({t, c, p, d}));
          for (int t = 0; t < kept_.tensor; ++t) copies.push_back(copy_at(t, c, d));
          add_within(logical_id, Op::all_reduce, forward, 2 * layers, activations, members, copies);
        }
      }
      if (layout_.context > 1) {
        for (int t = 0; t < kept_.tensor; ++t) {
          std::vector<Rank> members;
          std::vector<int> copies;
          for (int c = 0; c < layout_.context; ++c) members.push_back(map_.rank({t, c, p, d}));
          for (int c = 0; c < kept_.context; ++c) copies.push_back(copy_at(t, c, d));
          add_within(logical_id, Op::all_gather, forward, layers, keys, members, copies);
          if (!forward) add_within(logical_id, Op::reduce_scatter, forward, layers, keys, members, copies);
        }
      }
    }
  }

  /// The collectives of one kind among copies of a computation; what waited for the computation now waits for them.
  /// @param copies  those of the members that are kept
  void add_within(TaskId logical_id, Op op, bool forward, std::int32_t repeat, Bytes bytes, const std::vector<Rank>& members,
                  const std::vector<int>& copies) {
    const Task& task = logical_.task(logical_id);
    std::vector<Use> uses;
    std::vector<TaskId> after;
    const BufferId changed = exchanged_buffer(logical_id);
    for (const int copy : copies) {
      after.push_back(copies_[copy_of(logical_id, copy)]);
      if (changed != none<BufferId>) uses.push_back({buffer(changed, copy), Access::read_write});
    }
    const TaskId added = builder_.add({.op = op,
                                       .payload = forward ? Payload::activations : Payload::activation_gradients,
                                       .rank = members[0],
                                       .group = builder_.group(members),
                                       .stage = task.stage,
                                       .microbatch = microbatch(task.microbatch, copies[0]),
                                       .bytes = {bytes, repeat}},
                                      uses, after);
    for (const int copy : copies) copies_[copy_of(logical_id, copy)] = added;
  }

  /// The activation buffer that a computation hands on: the one it changes in place, or else the last one it writes. The first
  /// stage's backward hands on none; its collectives are those of the layers within, on what it read.
  BufferId exchanged_buffer(TaskId logical_id) const {
    BufferId written = none<BufferId>;
    BufferId read = none<BufferId>;
    for (const Use& use : logical_.uses(logical_id)) {
      if (!is_of_microbatch(logical_.buffer(use.buffer).content.kind())) continue;
      if (use.access == Access::read_write) return use.buffer;
      (use.access == Access::read ? read : written) = use.buffer;
    }
    return written != none<BufferId> ? written : read;
  }

  /// Before the first of several updates in a row: the sums of all, if a tied matrix may have a copy in two stages of a rank.
  /// Each copy is updated by both gradients.
  void add_gradient_sums(TaskId update) {
    const bool tied = !logical_.workload().is_abstract() && logical_.workload().model().tied;
    if (tied && index(update) > 0 && logical_.tasks()[index(update) - 1].op == Op::update) return;
    sums_.clear();
    if (!tied) return add_gradient_sum(update);
    for (std::size_t t = index(update); t < logical_.tasks().size() && logical_.tasks()[t].op == Op::update; ++t) {
      add_gradient_sum(id<TaskId>(t));
    }
  }

  /// Before an update: the gradient it reads, summed over replicas and context ranks, which all hold the same parameters.
  void add_gradient_sum(TaskId update) {
    if (layout_.data * layout_.context == 1) return;
    BufferId gradient = none<BufferId>;
    PiecesId updated = none<PiecesId>;
    for (const Use& use : logical_.uses(update)) {
      const Content& content = logical_.buffer(use.buffer).content;
      if (content.kind() == ContentKind::optimizer_state) updated = pieces(content.parameters());
      if (use.access == Access::read && content.kind() == ContentKind::gradients) gradient = use.buffer;
    }
    if (gradient == none<BufferId>) return;
    const Task& task = logical_.task(update);
    const ParameterBytes& sizes = builder_.workload().parameter_bytes();
    const std::int64_t states = sizes.weight + sizes.gradient + sizes.optimizer;
    for (int t = 0; t < kept_.tensor; ++t) {
      std::vector<Rank> members;
      std::vector<Use> uses;
      std::vector<TaskId> after;
      for (int d = 0; d < layout_.data; ++d) {
        for (int c = 0; c < layout_.context; ++c) {
          members.push_back(map_.rank({t, c, number(task.rank), d}));
          if (c >= kept_.context || d >= kept_.data) continue;
          const int copy = copy_at(t, c, d);
          uses.push_back({buffer(gradient, copy), Access::read_write});
          for (const TaskId earlier : logical_.dependencies(update)) after.push_back(copies_[copy_of(earlier, copy)]);
        }
      }
      const TaskId sum = builder_.add({.op = Op::all_reduce,
                                       .payload = Payload::gradients,
                                       .lane = data_lane_,
                                       .rank = members[0],
                                       .group = builder_.group(members),
                                       .stage = task.stage,
                                       .split = updated == none<PiecesId> ? none<SplitId> : builder_.split({updated}),
                                       .bytes = Bytes{part(task.bytes.value() / states * sizes.gradient, layout_.tensor)}},
                                      uses, after);
      sums_.push_back({task.rank, t, sum});
    }
  }

  /// A sum over the copies of a logical rank.
  struct Sum {
    Rank logical;
    int tensor;
    TaskId task;
  };

  const Schedule& logical_;
  Layout layout_;
  Layout kept_;
  const RankMap& map_;
  ScheduleBuilder builder_;
  LaneId data_lane_ = builder_.lane("data_parallel");  ///< sums over replicas
  std::vector<PiecesId> pieces_;                       ///< [logical set]
  std::vector<SplitId> splits_;                        ///< [logical split]
  std::vector<Sum> sums_;                              ///< of the updates that come next
  std::vector<TaskId> copies_;  ///< [logical task, copy] what stands for it: the task, or the last collective behind it
};

}  // namespace detail

/// The logical schedule of one replica, run by `layout` of real ranks.
/// @param logical  built for map.logical_ranks() ranks and the microbatches of one replica
/// @param whole    the work of all replicas together
inline Schedule compose(const Schedule& logical, const Workload& whole, const Layout& layout, const RankMap& map) {
  return detail::Composer{logical, whole, layout, map, layout}.build();
}

}  // namespace tawpipe
