// Runs a schedule on labels in place of numbers: which shard a buffer holds, whose gradients, whose activations.
// Not: the order in which tasks may run; it runs them by id, which is right where accesses are ordered (properties/).
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "support/graph_order.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/topology/device_group.hpp"

namespace support {

/// A set of small numbers.
class Labels {
 public:
  bool empty() const {
    return std::all_of(words_.begin(), words_.end(), [](auto word) { return word == 0; });
  }
  bool contains(std::size_t label) const { return label / 64 < words_.size() && ((words_[label / 64] >> (label % 64)) & 1) != 0; }
  void insert(std::size_t label) {
    if (label / 64 >= words_.size()) words_.resize(label / 64 + 1);
    words_[label / 64] |= std::uint64_t{1} << (label % 64);
  }
  /// Adds all of `other` and says whether none was there before.
  bool merge(const Labels& other) {
    bool disjoint = true;
    if (words_.size() < other.words_.size()) words_.resize(other.words_.size());
    for (std::size_t w = 0; w < other.words_.size(); ++w) {
      disjoint = disjoint && (words_[w] & other.words_[w]) == 0;
      words_[w] |= other.words_[w];
    }
    return disjoint;
  }
  /// What also stands in `other`.
  Labels common(const Labels& other) const {
    Labels both;
    for (std::size_t w = 0; w < std::min(words_.size(), other.words_.size()); ++w)
      both.words_.push_back(words_[w] & other.words_[w]);
    return both;
  }
  std::size_t size() const {
    std::size_t count = 0;
    for (std::size_t label = 0; label < 64 * words_.size(); ++label) count += contains(label) ? 1 : 0;
    return count;
  }

 private:
  std::vector<std::uint64_t> words_;
};

/// What a buffer holds. A sum of gradients is the set of its summands; a buffer never written holds nothing of use.
struct Content {
  bool defined = false;
  Labels weights;      ///< (stage, piece)
  Labels gradients;    ///< (edge?, stage, microbatch, piece)
  Labels activations;  ///< (what, stage, microbatch)
};

/// Runs a schedule's tasks by id and collects what goes wrong: a computation without its weights, its saved activations or its
/// input, a message of a shard that is not there, a gradient counted twice or missing at its update.
class ContentCheck {
 public:
  /// @param groups  of a schedule with two-level collectives, the nodes
  ContentCheck(const tawpipe::Schedule& schedule, const tawpipe::DeviceGroups& groups)
      : schedule_{schedule},
        groups_{groups},
        pieces_{pieces_of(schedule)},
        stages_{schedule.stages().size()},
        microbatches_{static_cast<std::size_t>(schedule.workload().microbatches())},
        sharded_{schedule.name() == "fsdp"},
        replicated_{schedule.name() == "tawpipe" || schedule.name().starts_with("weipipe")} {
    for (const auto& buffer : schedule.buffers()) content_.push_back(initial(buffer));
  }

  /// What went wrong, empty if nothing.
  std::vector<std::string> run() {
    for (task_ = 0; task_ < schedule_.tasks().size(); ++task_) {
      const tawpipe::Task& task = schedule_.tasks()[task_];
      check_reads();
      switch (task.op) {
        case tawpipe::Op::idle:
          break;
        case tawpipe::Op::forward:
        case tawpipe::Op::backward:
        case tawpipe::Op::backward_input:
        case tawpipe::Op::backward_weight:
          compute(task);
          break;
        case tawpipe::Op::update:
          update(task);
          break;
        case tawpipe::Op::pass:
        case tawpipe::Op::exchange:
          send(task);
          break;
        case tawpipe::Op::broadcast:
          broadcast(task);
          break;
        case tawpipe::Op::reduce:
          reduce(task);
          break;
        case tawpipe::Op::all_gather:
          all_gather(task);
          break;
        case tawpipe::Op::reduce_scatter:
          reduce_scatter(task);
          break;
        case tawpipe::Op::all_reduce:
          all_reduce(task);
          break;
        case tawpipe::Op::all_to_all:
          found_.push_back(tawpipe::concat("task ", task_, " is an all_to_all, which no schedule of weights has"));
          break;
      }
    }
    for (std::size_t b = 0; b < content_.size(); ++b) {
      if (schedule_.buffers()[b].kind() == BufferKind::weights && !content_[b].weights.empty()) {
        found_.push_back(tawpipe::concat("buffer ", b, " of rank ", number(schedule_.buffers()[b].rank), " is never updated"));
      }
    }
    return std::move(found_);
  }

 private:
  using Access = tawpipe::Access;
  using BufferKind = tawpipe::BufferKind;
  using Op = tawpipe::Op;
  enum Activation { saved, output, input_gradient };

  /// Of a stage: one for each rank, or as many as let each cut of TawPipe's shards fall between two of them.
  static std::size_t pieces_of(const tawpipe::Schedule& schedule) {
    if (schedule.name() == "fsdp") return static_cast<std::size_t>(schedule.ranks());
    std::size_t pieces = 1;
    if (schedule.name() != "tawpipe") return pieces;
    for (std::size_t s = 0; s < schedule.parts().splits.size(); ++s) {
      pieces = std::lcm(pieces, schedule.split(tawpipe::id<tawpipe::SplitId>(s)).size());
    }
    return pieces;
  }

  /// Whether a set of parameters has the middle one of a piece of the stage.
  bool has_piece(tawpipe::PiecesId set, std::size_t stage, std::size_t piece) const {
    const tawpipe::Workload& workload = schedule_.workload();
    std::int64_t begin = 0;
    for (std::size_t s = 0; s < stage; ++s) begin += schedule_.stages()[s].parameters;
    if (!workload.is_abstract()) begin += workload.model().embedding_parameters();
    const std::int64_t count = schedule_.stages()[stage].parameters;
    const auto middle = begin + count * static_cast<std::int64_t>(2 * piece + 1) / static_cast<std::int64_t>(2 * pieces_);
    for (const auto& range : schedule_.pieces(set)) {
      if (range.begin <= middle && middle < range.end) return true;
    }
    return false;
  }
  /// The pieces of its stage that a task carries: of a collective, those of one member.
  std::vector<std::size_t> carried(const tawpipe::Task& task, tawpipe::Rank member) const {
    std::vector<std::size_t> pieces;
    for (std::size_t p = 0; p < pieces_; ++p) {
      const bool empty = task.stage >= tawpipe::StageId{0} && schedule_.stage(task.stage).parameters == 0;
      if (empty || task.split == tawpipe::none<tawpipe::SplitId>) {
        pieces.push_back(p);
        continue;
      }
      const auto split = schedule_.split(task.split);
      std::size_t at = 0;
      if (split.size() > 1) {
        const auto members = schedule_.group(task.group);
        at = static_cast<std::size_t>(std::ranges::find(members, member) - members.begin());
      }
      if (has_piece(split[at], tawpipe::index(task.stage), p)) pieces.push_back(p);
    }
    return pieces;
  }
  /// What of a buffer's weights and gradients a task carries.
  Content part_of(const Content& content, const tawpipe::Task& task, tawpipe::Rank member) const {
    if (task.split == tawpipe::none<tawpipe::SplitId> || !replicated_) return content;
    Labels weights;
    Labels gradients;
    for (const std::size_t p : carried(task, member)) {
      weights.insert(weight_label(tawpipe::index(task.stage), p));
      add_piece(gradients, p);
    }
    Content part = content;
    part.weights = content.weights.common(weights);
    part.gradients = content.gradients.common(gradients);
    return part;
  }

  std::size_t weight_label(std::size_t stage, std::size_t piece) const { return stage * pieces_ + piece; }
  std::size_t edge_weights() const { return stages_ * pieces_; }
  std::size_t gradient_label(bool edge, std::size_t stage, std::size_t microbatch, std::size_t piece) const {
    return (((edge ? stages_ : 0) + stage) * microbatches_ + microbatch) * pieces_ + piece;
  }
  std::size_t activation_label(Activation what, std::size_t stage, std::size_t microbatch) const {
    return (static_cast<std::size_t>(what) * stages_ + stage) * microbatches_ + microbatch;
  }

  Content initial(const tawpipe::Buffer& buffer) const {
    Content content;
    // States are there from the start (a gradient as zeros), and so is the input of the first stage.
    content.defined = buffer.kind() == BufferKind::weights || buffer.kind() == BufferKind::gradients ||
                      buffer.kind() == BufferKind::optimizer || (buffer.kind() == BufferKind::activations && buffer.persistent);
    if (buffer.kind() != BufferKind::weights) return content;
    if (sharded_) {
      for (std::size_t s = 0; s < stages_; ++s) content.weights.insert(weight_label(s, tawpipe::index(buffer.rank)));
    } else if (buffer.stage() == tawpipe::none<tawpipe::StageId>) {
      content.weights.insert(edge_weights());
    } else {
      for (std::size_t p = 0; p < pieces_; ++p) content.weights.insert(weight_label(tawpipe::index(buffer.stage()), p));
    }
    return content;
  }

  void report(const std::string& what) {
    if (found_.size() < 20) found_.push_back(describe(schedule_, task_) + ": " + what);
  }
  std::span<const tawpipe::Use> uses() const { return schedule_.uses(tawpipe::id<tawpipe::TaskId>(task_)); }
  const tawpipe::Buffer& buffer(const tawpipe::Use& use) const { return schedule_.buffer(use.buffer); }
  Content& at(const tawpipe::Use& use) { return content_[tawpipe::index(use.buffer)]; }
  static bool takes(Access access) { return access == Access::read || access == Access::read_write; }
  static bool gives(Access access) { return access != Access::read; }

  void check_reads() {
    for (const auto& use : uses()) {
      if (use.access != Access::write && !at(use).defined) report("uses a buffer that nobody has written");
    }
  }

  void compute(const tawpipe::Task& task) {
    const auto stage = tawpipe::index(task.stage);
    const auto microbatch = static_cast<std::size_t>(task.microbatch);
    const tawpipe::StageWork& work = schedule_.stage(task.stage);
    const bool forward = task.op == Op::forward;
    Content in;
    for (const auto& use : uses()) {
      if (buffer(use).rank != task.rank) report("uses a buffer of another rank");
      if (!takes(use.access)) continue;
      in.activations.merge(at(use).activations);
      if (use.access == Access::read) in.weights.merge(at(use).weights);
    }
    if (!sharded_ || work.parameters + work.edge_parameters > 0) {
      for (std::size_t p = 0; p < pieces_; ++p) {
        if (!in.weights.contains(weight_label(stage, p))) report("computes without its weights");
      }
      const std::size_t edges = touches_edge(work) && replicated_ ? 1 : 0;
      if (edges == 1 && !in.weights.contains(edge_weights())) report("computes without the edge's weights");
      if (!sharded_ && in.weights.size() != pieces_ + edges) report("reads other weights than its own");
    }
    Labels made;
    if (forward) {
      if (stage > 0 && !in.activations.contains(activation_label(output, stage - 1, microbatch))) report("has no input");
      made.insert(activation_label(saved, stage, microbatch));
      made.insert(activation_label(output, stage, microbatch));
    } else {
      if (!in.activations.contains(activation_label(saved, stage, microbatch))) report("has no saved activations");
      if (task.op != Op::backward_weight && stage + 1 < stages_ &&
          !in.activations.contains(activation_label(input_gradient, stage + 1, microbatch))) {
        report("has no gradient of its output");
      }
      made.insert(activation_label(input_gradient, stage, microbatch));
    }
    bool summed = forward || task.op == Op::backward_input;
    for (const auto& use : uses()) {
      if (!gives(use.access)) continue;
      Content& out = at(use);
      if (buffer(use).kind() == BufferKind::activations) {
        out = Content{.defined = true, .weights = {}, .gradients = {}, .activations = made};
      } else {
        if (forward) report("a forward changes something other than activations");
        if (use.access == Access::write) out = Content{.defined = true, .weights = {}, .gradients = {}, .activations = {}};
        const bool edge = replicated_ && buffer(use).kind() == BufferKind::gradients && buffer(use).stage() < tawpipe::StageId{0};
        if (!out.gradients.merge(contributions(edge, task))) report("adds to a gradient a second time");
        summed = summed || !edge;
      }
    }
    if (!summed) report("leaves its gradient nowhere");
  }

  bool touches_edge(const tawpipe::StageWork& work) const {
    return !schedule_.workload().is_abstract() && (work.embedding || work.head);
  }

  /// What a backward adds to its stage's gradient, or to the replicated edge's. Where a stage holds its edge, one with the other.
  Labels contributions(bool edge, const tawpipe::Task& task) const {
    const auto stage = tawpipe::index(task.stage);
    const auto microbatch = static_cast<std::size_t>(task.microbatch);
    Labels labels;
    for (std::size_t p = 0; p < (edge && !sharded_ ? 1 : pieces_); ++p) labels.insert(gradient_label(edge, stage, microbatch, p));
    if (!edge && !replicated_ && !sharded_ && touches_edge(schedule_.stage(task.stage))) {
      labels.insert(gradient_label(true, stage, microbatch, 0));
    }
    return labels;
  }

  /// Each written buffer receives what is read at the other end.
  void send(const tawpipe::Task& task) {
    std::vector<std::pair<const tawpipe::Use*, Content>> arriving;
    for (const auto& to : uses()) {
      if (!gives(to.access)) continue;
      const tawpipe::Use* from = nullptr;
      for (const auto& use : uses()) {
        if (use.access == Access::read && buffer(use).rank != buffer(to).rank) from = from == nullptr ? &use : from;
      }
      if (from == nullptr) {
        report("receives what nobody sends");
        continue;
      }
      if (task.op == Op::pass && (buffer(*from).rank != task.rank || buffer(to).rank != task.peer)) report("travels otherwise");
      arriving.emplace_back(&to, part_of(at(*from), task, buffer(*from).rank));
    }
    if (arriving.size() != (task.op == Op::exchange ? 2u : 1u)) report("has not one receiver for each way");
    for (const auto& [to, content] : arriving) {
      if (task.payload == tawpipe::Payload::weights) check_shard(task, content);
      if (to->access == Access::write) {
        at(*to) = content;
      } else if (!at(*to).gradients.merge(content.gradients)) {
        report("brings a gradient a second time");
      }
      if (task.payload == tawpipe::Payload::gradients) check_gradient(task, content);
    }
  }

  void check_shard(const tawpipe::Task& task, const Content& content) {
    const auto pieces = carried(task, task.rank);
    bool all = content.weights.size() == pieces.size();
    for (const std::size_t p : pieces) all = all && content.weights.contains(weight_label(tawpipe::index(task.stage), p));
    if (!all) report("carries another shard than it says");
  }
  /// A gradient on the move has summands, all of the shard it says.
  void check_gradient(const tawpipe::Task& task, const Content& content) {
    Labels own;
    for (std::size_t m = 0; m < microbatches_; ++m) {
      for (const std::size_t p : carried(task, task.rank)) own.insert(gradient_label(false, tawpipe::index(task.stage), m, p));
    }
    if (content.gradients.empty()) report("carries a gradient that nobody has added to");
    if (content.gradients.common(own).size() != content.gradients.size()) report("carries gradients of another shard");
  }

  void check_gradient_sum(const tawpipe::Task& task, const Labels& sum) {
    Labels own;
    for (std::size_t m = 0; m < microbatches_; ++m) {
      for (std::size_t p = 0; p < pieces_; ++p) own.insert(gradient_label(false, tawpipe::index(task.stage), m, p));
    }
    if (sum.empty() || sum.common(own).size() != sum.size()) report("sums other gradients than those of its shard");
  }

  void check_members(const tawpipe::Task& task, bool every) {
    const auto members = schedule_.group(task.group);
    for (const auto& use : uses()) {
      if (std::ranges::find(members, buffer(use).rank) == members.end()) report("uses a buffer of a rank that takes no part");
    }
    for (const auto rank : members) {
      if (every && std::ranges::none_of(uses(), [&](const auto& use) { return buffer(use).rank == rank; })) {
        report("forgets a member");
      }
    }
  }

  void broadcast(const tawpipe::Task& task) {
    check_members(task, true);
    std::optional<Content> content;
    for (const auto& use : uses()) {
      if (use.access != Access::read) continue;
      if (buffer(use).rank != task.rank) report("is read elsewhere than at its root");
      content = at(use);
    }
    if (!content) return report("has nothing to send");
    check_shard(task, *content);
    for (const auto& use : uses()) {
      if (use.access != Access::read && use.access != Access::write) report("changes what it should overwrite");
      if (use.access == Access::write) at(use) = *content;
    }
  }

  /// A member that names no buffer adds zeros.
  void reduce(const tawpipe::Task& task) {
    check_members(task, false);
    Labels sum;
    Content* total = nullptr;
    for (const auto& use : uses()) {
      if (use.access != Access::write && !sum.merge(at(use).gradients)) report("counts a gradient twice");
      if (use.access == Access::read) continue;
      if (buffer(use).rank != task.rank || total != nullptr) report("has not one result, at its root");
      total = &at(use);
    }
    if (total == nullptr) return report("has no result");
    *total = Content{.defined = true, .weights = {}, .gradients = sum, .activations = {}};
    check_gradient(task, *total);
  }

  void all_gather(const tawpipe::Task& task) {
    check_members(task, true);
    Labels all;
    for (const auto& use : uses()) {
      if (takes(use.access)) all.merge(part_of(at(use), task, buffer(use).rank).weights);
    }
    Labels own;
    for (std::size_t p = 0; p < pieces_; ++p) own.insert(weight_label(tawpipe::index(task.stage), p));
    for (const auto& use : uses()) {
      if (!gives(use.access)) continue;
      if (use.access == Access::write) at(use) = Content{.defined = true, .weights = {}, .gradients = {}, .activations = {}};
      at(use).weights.merge(all.common(own));
    }
  }

  /// The pieces of each rank: with flat collectives its own; on two levels first, inside the node, those of the ranks at like
  /// places in all nodes, then its own, in the rail of its place.
  void reduce_scatter(const tawpipe::Task& task) {
    check_members(task, false);
    const auto members = schedule_.group(task.group);
    Labels sum;
    if (replicated_) {  // a striped shard's: each member keeps its piece
      for (const auto& use : uses()) {
        if (takes(use.access) && !sum.merge(at(use).gradients)) report("counts a gradient twice");
      }
      check_gradient_sum(task, sum);
      for (const auto& use : uses()) {
        const Content whole{.defined = true, .weights = {}, .gradients = sum, .activations = {}};
        at(use) = part_of(whole, task, buffer(use).rank);
      }
      return;
    }
    int place = 0;
    for (const auto rank : members) place = std::max(place, local(number(rank)));
    const bool all = members.size() == static_cast<std::size_t>(schedule_.ranks());
    const bool inside = groups_.group_of(number(members.front())) == groups_.group_of(number(members.back()));
    for (const auto& use : uses()) {
      if (!takes(use.access)) continue;
      Labels kept = all ? at(use).gradients : at(use).gradients.common(pieces_of_place(place, members));
      if (!sum.merge(kept)) report("counts a gradient twice");
    }
    for (const auto& use : uses()) {
      if (!gives(use.access)) continue;
      const int rank = number(buffer(use).rank);
      if (inside && !all) {
        at(use).defined = true;
        at(use).gradients = sum.common(pieces_like(local(rank), static_cast<int>(members.size())));
      } else if (all || local(rank) == place) {
        if (!at(use).gradients.merge(sum.common(pieces_like(-1 - rank, 1)))) report("brings a gradient a second time");
      }
    }
  }

  int local(int rank) const { return rank - groups_.first(groups_.group_of(rank)); }

  /// Gradients of the pieces of ranks whose place is `place` modulo `size`, or of the piece -1 - place alone.
  Labels pieces_like(int place, int size) const {
    Labels labels;
    for (std::size_t p = 0; p < pieces_; ++p) {
      const int rank = static_cast<int>(p);
      if (place < 0 ? rank != -1 - place : local(rank) % size != place) continue;
      add_piece(labels, p);
    }
    return labels;
  }
  /// Gradients of the pieces that travel in a collective: inside a node all, in the rail of `place` those of that place.
  Labels pieces_of_place(int place, std::span<const tawpipe::Rank> members) const {
    const bool inside = groups_.group_of(number(members.front())) == groups_.group_of(number(members.back()));
    Labels labels;
    for (std::size_t p = 0; p < pieces_; ++p) {
      if (inside || local(static_cast<int>(p)) == place) add_piece(labels, p);
    }
    return labels;
  }
  void add_piece(Labels& labels, std::size_t piece) const {
    for (std::size_t s = 0; s < stages_; ++s) {
      for (std::size_t m = 0; m < microbatches_; ++m) labels.insert(gradient_label(false, s, m, piece));
    }
  }

  /// Only gradients of embedding and head are summed over all: all of a replicated buffer, a part of a stage's.
  void all_reduce(const tawpipe::Task& task) {
    check_members(task, true);
    if (task.payload != tawpipe::Payload::edge_gradients) report("sums something other than the edges' gradients");
    Labels edges;
    for (std::size_t s = 0; s < stages_; ++s) {
      for (std::size_t m = 0; m < microbatches_; ++m) edges.insert(gradient_label(true, s, m, 0));
    }
    Labels sum;
    for (const auto& use : uses()) {
      if (!sum.merge(at(use).gradients.common(edges))) report("counts a gradient twice");
    }
    for (const auto& use : uses()) at(use).gradients.merge(sum);
  }

  /// Before its weights change, a gradient holds each microbatch's contribution (once: no sum ever counts one twice).
  void update(const tawpipe::Task& task) {
    Labels expected;
    const auto expect = [&](bool edge, std::size_t stage, std::size_t piece) {
      for (std::size_t m = 0; m < microbatches_; ++m) expected.insert(gradient_label(edge, stage, m, piece));
    };
    Content* weights = nullptr;
    const Content* gradients = nullptr;
    for (const auto& use : uses()) {
      if (buffer(use).rank != task.rank) report("uses a buffer of another rank");
      if (buffer(use).kind() == BufferKind::weights && use.access == Access::read_write) weights = &at(use);
      if (use.access == Access::read) gradients = &at(use);
    }
    if (weights == nullptr || gradients == nullptr) return report("updates nothing, or from nothing");
    for (std::size_t s = 0; s < stages_; ++s) {
      const tawpipe::StageWork& work = schedule_.stages()[s];
      if (sharded_) {
        if (work.parameters + work.edge_parameters > 0) expect(false, s, tawpipe::index(task.rank));
      } else if (task.stage == tawpipe::none<tawpipe::StageId>) {
        if (touches_edge(work)) expect(true, s, 0);
      } else if (tawpipe::index(task.stage) == s) {
        for (std::size_t p = 0; p < pieces_; ++p) expect(false, s, p);
        const bool tied = !schedule_.workload().is_abstract() && schedule_.workload().model().tied;
        if (!replicated_ && touches_edge(work)) {
          for (std::size_t other = 0; other < stages_; ++other) {
            if (other == s || (tied && touches_edge(schedule_.stages()[other]))) expect(true, other, 0);
          }
        }
      }
    }
    const std::size_t present = expected.common(gradients->gradients).size();
    if (present < expected.size()) report(tawpipe::concat("lacks ", expected.size() - present, " gradients"));
    if (gradients->gradients.size() > present) report("has gradients that are not its own");
    if (weights->weights.empty()) report("updates a second time");
    weights->weights = {};  // the old ones, which everybody still had to compute with
  }

  const tawpipe::Schedule& schedule_;
  tawpipe::DeviceGroups groups_;
  std::size_t pieces_;
  std::size_t stages_;
  std::size_t microbatches_;
  bool sharded_;
  bool replicated_;
  std::size_t task_ = 0;
  std::vector<Content> content_;
  std::vector<std::string> found_;
};

}  // namespace support
