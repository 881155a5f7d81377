// What transfers and collectives do to the symbols in buffers: copies, gathers and sums.
// Not: computations (contents_walk.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/verify/check_transfers.hpp"  // is_within_stage
#include "tawpipe/verify/detail/contents_walk.hpp"
#include "tawpipe/verify/detail/exchange_walk.hpp"

namespace tawpipe::inline v0::detail {

/// Moves symbols as one communication does.
class TransferWalk {
 public:
  TransferWalk(const Schedule& schedule, ContentsWalk& walk)
      : schedule_{schedule}, walk_{walk}, accesses_(static_cast<std::size_t>(schedule.ranks()), 0) {}

  /// To be called behind the last task.
  void finish() {
    for (const auto& [buffer, pieces] : pieces_) enough(buffer, pieces);
  }

  void run(TaskId t) {
    const Task& task = schedule_.task(t);
    if (is_within_stage(schedule_, task)) return ExchangeWalk{schedule_, walk_}.run(t);
    sources_.clear();
    for (const Use& use : schedule_.uses(t)) {
      if (use.access != Access::read && use.access != Access::read_write) continue;
      const Held& content = walk_.look(t, use);
      sources_.push_back({schedule_.buffer(use.buffer).rank, use, content});
      check_source(t, sources_.back());
    }
    switch (traits(task.op).pattern) {
      case Pattern::none:
        return;
      case Pattern::one_way:
        return copy(t, task.rank, task.peer);
      case Pattern::both_ways:
        copy(t, task.rank, task.peer);
        return copy(t, task.peer, task.rank);
      case Pattern::chain_from_root:
        return copy(t, task.rank, none<Rank>);
      case Pattern::ring_gather:
      case Pattern::all_pairs:  // labels of all members are alike, whichever blocks come
        return gather(t);
      case Pattern::chain_to_root:
      case Pattern::ring_scatter:
      case Pattern::ring_sum:
        return sum(t);
    }
  }

 private:
  struct Source {
    Rank rank;
    Use use;
    Held content;
  };

  static bool fits(Payload payload, Holds holds) {
    switch (payload) {
      case Payload::weights:
        return holds == Holds::weights;
      case Payload::gradients:
      case Payload::edge_gradients:
        return holds == Holds::gradient;
      case Payload::activations:
        return holds == Holds::forward_output || holds == Holds::any;
      case Payload::activation_gradients:
        return holds == Holds::backward_output || holds == Holds::any;
      case Payload::nothing:
      case Payload::scalar:
        break;
    }
    return true;
  }

  /// A source holds what the task says it carries, and all of it fits into the message.
  void check_source(TaskId t, const Source& source) {
    const Task& task = schedule_.task(t);
    const Held& content = source.content;
    if (content.holds == Holds::nothing) return;
    const bool returned = task.op == Op::exchange && source.rank == task.peer;  // the way back has no labels of its own
    const bool activations = content.holds == Holds::forward_output || content.holds == Holds::backward_output;
    bool labelled = returned ? activations || content.holds == Holds::any : fits(task.payload, content.holds);
    const std::int32_t stage = number(task.stage);
    if (!returned && stage >= 0 && content.stage >= 0 && labelled) {
      const std::int32_t other = content.holds == Holds::forward_output    ? stage - 1
                                 : content.holds == Holds::backward_output ? stage + 1
                                                                           : stage;
      const ModelLayout& layout = walk_.layout();
      const bool lent =
          layout.tied && content.holds == Holds::weights && content.stage == layout.embedding && stage == layout.head;
      labelled = content.stage == stage || content.stage == other || lent;
    }
    if (!returned && activations && task.microbatch >= 0) labelled = labelled && content.microbatch == task.microbatch;
    if (!labelled) {
      walk_.error(
          "V507", t, source.rank,
          [&] {
            return concat(describe(schedule_, t), " finds ", content.words(), " in ", describe(schedule_, source.use.buffer));
          },
          "send what the task's payload, stage and microbatch say, or correct them");
    }
    const std::int32_t part = taken(task, source.rank);
    const bool cut = content.part != 0 && !is_piece(task) && (task.op != Op::all_gather || task.split != none<SplitId>);
    if (cut && !walk_.parts().contains(content.part, part)) {
      walk_.error(
          "V507", t, source.rank,
          [&] {
            return concat(describe(schedule_, t), " finds ", walk_.parts().count(content.part), " parameters in ",
                          describe(schedule_, source.use.buffer), ", and not all those that it carries");
          },
          "let each piece arrive before it is sent on, and the task's split name what is there");
    }
    if (carried_bytes(task, source) > task.bytes.value() + walk_.layout().rounding()) {
      walk_.error(
          "V305", t, source.rank,
          [&] {
            return concat(describe(schedule_, t), " moves ", task.bytes.value(), " of ", carried_bytes(task, source),
                          " bytes of ", describe(schedule_, source.use.buffer));
          },
          "let the message be as large as what it carries");
    }
  }

  /// The parameters that a communication takes from a rank's buffer; 0: all of its stage's.
  std::int32_t taken(const Task& task, Rank rank) {
    if (task.split == none<SplitId> || is_all_pairs(task.op)) return 0;
    const auto split = schedule_.split(task.split);
    if (task.op == Op::all_gather) return walk_.part_of(task.stage, split[place_of(task, rank)]);
    return split.size() == 1 ? walk_.part_of(task.stage, split[0]) : 0;
  }
  std::size_t place_of(const Task& task, Rank rank) const {
    const auto members = schedule_.group(task.group);
    return static_cast<std::size_t>(std::find(members.begin(), members.end(), rank) - members.begin());
  }
  std::int64_t bytes_of(const Held& content, std::int32_t part) {
    return walk_.layout().part(walk_.parts().count(part)) *
           (content.holds == Holds::weights ? walk_.layout().weight : walk_.layout().gradient);
  }

  /// The least that a message must have to carry what is in the source; 0 where that cannot be told.
  std::int64_t carried_bytes(const Task& task, const Source& source) {
    const Held& content = source.content;
    const Pattern pattern = traits(task.op).pattern;
    // gather() counts pieces, enough() and check_pieces() those of sums, check_transfers() blocks.
    if (pattern == Pattern::ring_gather || pattern == Pattern::ring_scatter || pattern == Pattern::all_pairs) return 0;
    if (pattern == Pattern::ring_sum) {
      if (task.payload == Payload::gradients && sums_copies(task)) {
        return content.scattered ? 0 : std::min(content.bytes, schedule_.buffer(source.use.buffer).bytes.value());
      }
      if (task.payload == Payload::gradients && task.stage != none<StageId>) return 0;  // check_pieces
      if (task.payload != Payload::edge_gradients || content.holds != Holds::gradient) return content.bytes;
      if (walk_.layout().edge_copies) return schedule_.buffer(source.use.buffer).bytes.value();
      if (schedule_.workload().is_abstract()) return 0;
      return walk_.layout().part(schedule_.workload().model().embedding_parameters()) * walk_.layout().gradient;
    }
    const bool parameters = content.holds == Holds::weights || content.holds == Holds::gradient;
    const std::int32_t part = parameters ? taken(task, source.rank) : 0;
    return part != 0 ? bytes_of(content, part) : content.bytes;
  }

  /// Copies the sources of `from` to the destinations of `to`, or of all other ranks, one by one in the order of the uses.
  void copy(TaskId t, Rank from, Rank to) {
    const Task& task = schedule_.task(t);
    std::vector<const Held*>& sent = sent_;
    sent.clear();
    for (Source& source : sources_) {
      if (source.rank != from) continue;
      Held& content = source.content;
      const bool parameters = content.holds == Holds::weights || content.holds == Holds::gradient;
      const std::int32_t part = parameters ? taken(task, from) : 0;
      if (part != 0) {
        content.part = part;
        content.bytes = bytes_of(content, part);
      }
      sent.push_back(&content);
    }
    if (sent.empty()) return;  // check_transfers has reported it
    Rank last = none<Rank>;
    std::size_t next = 0;
    for (const Use& use : schedule_.uses(t)) {
      const Rank rank = schedule_.buffer(use.buffer).rank;
      if (use.access == Access::read || rank == from || (to != none<Rank> && rank != to)) continue;
      if (rank != last) next = 0;
      last = rank;
      deliver(t, use, *sent[std::min(next++, sent.size() - 1)]);
    }
  }

  void deliver(TaskId t, const Use& use, const Held& content) {
    const Buffer& buffer = schedule_.buffer(use.buffer);
    if (content.holds == Holds::weights && content.updated && !(buffer.persistent && buffer.kind() == BufferKind::weights)) {
      after_update(t, buffer.rank);
    }
    walk_.put(t, use, content);
  }
  void after_update(TaskId t, Rank rank) {
    walk_.error(
        "V504", t, rank, [&] { return concat(describe(schedule_, t), " sends weights after their update"); },
        "move the update behind the last transfer of its weights");
  }

  /// All-gather: every member gets the union of the pieces that the members bring: what they read, or hold in place.
  void gather(TaskId t) {
    const Task& task = schedule_.task(t);
    if (task.payload != Payload::weights || is_all_pairs(task.op)) {
      if (sources_.empty()) return;
      Held content = sources_.front().content;
      for (const Source& source : sources_) {
        if (same_sums(content, source.content)) continue;
        content.sum = ~source.content.sum;  // some pieces are of another sum: no sum at all
        content.edge_sum = ~source.content.edge_sum;
      }
      content.scattered = false;
      content.part = 0;
      for (const Use& use : schedule_.uses(t)) {
        if (use.access != Access::read) walk_.put(t, use, content);
      }
      return;
    }
    for (const Use& use : schedule_.uses(t)) accesses_[index(schedule_.buffer(use.buffer).rank)] |= access_bit(use.access);
    Held gathered;
    std::int32_t counted = 0;  // pieces that certainly travel: those of members that keep nothing of their own beside them
    bool cut = false;
    std::int32_t part = walk_.parts().find({});
    for (const Source& source : sources_) {
      const std::uint8_t access = accesses_[index(source.rank)];
      const bool keeps = source.use.access == Access::read_write && (access & has_read) != 0;
      const bool other_part = source.content.tensor != walk_.layout().place(task.rank).tensor;
      if (keeps || source.content.holds != Holds::weights || other_part) continue;
      gathered.holds = Holds::weights;
      gathered.updated = gathered.updated || source.content.updated;
      gathered.pieces = walk_.pieces().unite(gathered.pieces, source.content.pieces);
      cut = cut || source.content.part != 0;
      part = walk_.parts().unite(part, task.split == none<SplitId> ? source.content.part : taken(task, source.rank));
      if (source.use.access == Access::read_write || (access & has_read_write) == 0) {
        counted = walk_.pieces().unite(counted, source.content.pieces);
      }
    }
    for (const Use& use : schedule_.uses(t)) accesses_[index(schedule_.buffer(use.buffer).rank)] = 0;
    if (gathered.holds == Holds::nothing) return;
    gathered.stage = number(task.stage);
    if (cut) gathered.part = walk_.part_of(task.stage, part);
    gathered.tensor = walk_.layout().place(task.rank).tensor;
    if (task.stage != none<StageId> && !gathered.updated) check_gathered(t, walk_.pieces().size(counted));
    for (const Use& use : schedule_.uses(t)) {
      if (use.access == Access::read) continue;
      Held content = gathered;
      const Held& held = walk_[use.buffer];
      if (use.access == Access::read_write && held.holds == Holds::weights && held.stage == gathered.stage) {
        content.pieces = walk_.pieces().unite(content.pieces, held.pieces);
        content.part = walk_.part_of(task.stage, walk_.parts().unite(content.part, held.part));
      }
      deliver(t, use, content);
    }
  }

  void check_gathered(TaskId t, std::int64_t pieces) {
    const Task& task = schedule_.task(t);
    const ModelLayout& layout = walk_.layout();
    const bool owned = layout.owned[index(task.stage)] != 0;
    if (!owned && !layout.sharded) return;
    const StageWork& work = schedule_.stage(task.stage);
    const std::int64_t needed = owned ? layout.pieces_needed[index(task.stage)] : layout.shards_needed;
    const std::int64_t whole = (work.parameters + (layout.edge_copies ? 0 : work.edge_parameters)) * layout.weight;
    // Where pieces are whole parameters, a message may lack part of one, and of a second where a tied head's norm is cut apart.
    const std::int64_t least = whole * std::min(pieces, needed) / needed - 2 * layout.weight - layout.rounding();
    if (task.bytes.value() >= least) return;
    walk_.error(
        "V305", t, task.rank,
        [&] {
          return concat(describe(schedule_, t), " moves ", task.bytes.value(), " bytes; its ", pieces, " pieces have ", least);
        },
        "let the message be as large as what it carries");
  }

  /// Reduce, reduce-scatter and all-reduce of gradients. A part of a sum stands for the whole: its pieces travel alike.
  void sum(TaskId t) {
    const Task& task = schedule_.task(t);
    const bool edge = task.payload == Payload::edge_gradients;
    if (!edge && task.payload != Payload::gradients) return;  // sums inside a stage (tensor parallelism) have no symbol
    const bool piece = is_piece(task);
    Held total;
    total.holds = Holds::gradient;
    for (const Source& source : sources_) {
      if (source.content.holds != Holds::gradient) continue;
      const Pieces* pieces = piece && source.use.access == Access::read_write ? other_piece(task, source.use) : nullptr;
      const Held& content = pieces != nullptr ? pieces->before : source.content;
      if (!edge) total.sum += content.sum;
      if (!edge) total.contributions += content.contributions;
      total.edge_sum += content.edge_sum;
      if (task.op != Op::reduce_scatter) total.bytes = std::max(total.bytes, content.bytes);
    }
    for (const Use& use : schedule_.uses(t)) {
      if (use.access == Access::read) continue;
      if (piece && use.access != Access::write) {
        put_piece(t, use, total);
        continue;
      }
      const Held& held = walk_[use.buffer];
      Held content = total;
      if (task.op == Op::reduce_scatter && use.access == Access::read_write) content.scattered = true;
      if (task.op == Op::reduce_scatter && task.split != none<SplitId>) {
        const Rank rank = schedule_.buffer(use.buffer).rank;
        content.part = walk_.part_of(task.stage, schedule_.split(task.split)[place_of(task, rank)]);
        if (content.part != 0) content.bytes = bytes_of(content, content.part);
      }
      if (sums_copies(task)) content.over_copies = task.bytes.value();
      if (edge && use.access == Access::read_write && held.holds == Holds::gradient) {
        content = held;
        content.edge_sum = total.edge_sum;
      }
      walk_.put(t, use, content);
    }
  }

  /// Sums of pieces: a rank that stands in several groups of one step (the ranks of a smaller node, where nodes are not
  /// equal) sums another piece of its buffer in each. They count once, if they bring the same.
  struct Pieces {
    Op op = Op::reduce_scatter;
    StageId stage = none<StageId>;
    bool in_place = false;
    std::vector<GroupId> groups;  ///< that have brought their piece
    Held before;                  ///< what the buffer held before the first of them
    Held brought;
    Held after;
    std::int64_t bytes = 0;  ///< of all pieces
    TaskId first = none<TaskId>;
  };

  /// The pieces of one step make up what the buffer held.
  void enough(BufferId buffer, const Pieces& pieces) {
    const auto rounded = static_cast<std::int64_t>(pieces.groups.size());
    if (!pieces.in_place || pieces.bytes + rounded + walk_.layout().rounding() >= pieces.before.bytes) return;
    walk_.error(
        "V305", pieces.first, schedule_.buffer(buffer).rank,
        [&] {
          return concat(describe(schedule_, pieces.first), " and its like move ", pieces.bytes, " of ", pieces.before.bytes,
                        " bytes of ", describe(schedule_, buffer));
        },
        "let the message be as large as what it carries");
  }

  bool is_piece(const Task& task) const {
    if (task.op != Op::reduce_scatter && task.op != Op::all_reduce) return false;
    if (task.payload != Payload::gradients || task.stage == none<StageId> || sums_copies(task)) return false;
    return task.bytes.value() + walk_.layout().rounding() <
           walk_.layout().own_parameters(schedule_.stage(task.stage)) * walk_.layout().gradient;
  }
  /// A sum over replicas and context-parallel ranks, which all hold the same parameters.
  bool sums_copies(const Task& task) const {
    return !schedule_.parts().layout.is_plain() && walk_.layout().one_logical_rank(schedule_.group(task.group));
  }
  static bool same_sums(const Held& a, const Held& b) { return a.sum == b.sum && a.edge_sum == b.edge_sum; }

  /// The step that `task` goes on with in this buffer, or null.
  const Pieces* other_piece(const Task& task, const Use& use) const {
    const auto at = pieces_.find(use.buffer);
    if (at == pieces_.end()) return nullptr;
    const Pieces& pieces = at->second;
    const bool seen = std::find(pieces.groups.begin(), pieces.groups.end(), task.group) != pieces.groups.end();
    const bool goes_on = pieces.op == task.op && pieces.stage == task.stage && !seen;
    return goes_on && same_sums(pieces.after, walk_[use.buffer]) ? &pieces : nullptr;
  }

  void put_piece(TaskId t, const Use& use, const Held& brought) {
    const Task& task = schedule_.task(t);
    if (const Pieces* known = other_piece(task, use); known != nullptr && same_sums(known->brought, brought)) {
      Pieces& pieces = pieces_[use.buffer];
      pieces.groups.push_back(task.group);
      pieces.bytes += task.bytes.value();
      return;
    }
    const Held before = walk_[use.buffer];
    walk_.put(t, use, brought);
    if (use.access == Access::read_write) walk_[use.buffer].scattered = task.op == Op::reduce_scatter || before.scattered;
    const bool in_place = use.access == Access::read_write;
    Pieces& pieces = pieces_[use.buffer];
    enough(use.buffer, pieces);
    pieces = {task.op, task.stage, in_place, {task.group}, before, brought, walk_[use.buffer], task.bytes.value(), t};
  }

  const Schedule& schedule_;
  ContentsWalk& walk_;
  std::vector<Source> sources_;
  std::vector<const Held*> sent_;
  std::map<BufferId, Pieces> pieces_;
  std::vector<std::uint8_t> accesses_;  ///< [rank] AccessBits of the gather looked at; else 0
};

}  // namespace tawpipe::detail
