// What every task of a schedule does to the buffers, spelled out, and what is wrong with it.
// Not: sums of random numbers, nor any shortcut; support/brute_force.hpp runs it in many orders.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/brute_force_state.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace support {

/// Runs tasks one by one on sets of labels.
class BruteContents : private BruteState {
 public:
  BruteContents(const tawpipe::Schedule& schedule, const CopyMap& map)
      : BruteState{schedule, map}, series_{update_series(schedule)} {
    updates_.resize(schedule.buffers().size(), 0);
  }

  void run(std::size_t task) {
    task_ = task;
    const Op op = schedule_.tasks()[task].op;
    for (const Use& use : uses()) {
      if (use.access != Access::write && !at(use).written) report("uses a buffer that nobody has written");
    }
    if (op == Op::idle) return;
    if (op == Op::copy_to_host || op == Op::copy_from_host) return host_copy(op == Op::copy_to_host);
    for (const Use& use : uses()) {
      if (buffer(use).host) report("uses host memory");
    }
    if (op == Op::update) return update();
    if (tawpipe::is_compute(op)) return compute();
    if (tawpipe::is_point_to_point(op) || op == Op::broadcast) return copy();
    if (op == Op::all_gather && payload() == Payload::weights) return gather_weights();
    sum();
  }

  /// What went wrong up to here and at the end.
  std::vector<std::string> finish() {
    check_completeness();
    for (std::size_t b = 0; b < contents_.size(); ++b) {
      const Buffer& buffer = schedule_.buffers()[b];
      const bool states = buffer.kind() == BufferKind::weights || buffer.kind() == BufferKind::optimizer;
      if (!buffer.persistent || !states) continue;
      if (buffer.kind() == BufferKind::optimizer && buffer.bytes == tawpipe::Bytes{}) continue;  // fixed times have none
      if (buffer.kind() == BufferKind::optimizer && !contents_[b].states[b]) {
        found_.push_back(tawpipe::concat("buffer ", b, " ends with old states"));
      }
      const int wanted = buffer.kind() == BufferKind::weights ? std::max(1, series_[b].updates) : 1;
      if (updates_[b] != wanted) found_.push_back(tawpipe::concat("buffer ", b, " is updated ", updates_[b], " times"));
      if (buffer.kind() != BufferKind::weights) continue;
      std::int64_t fresh = 0;
      for (const auto& [origin, bytes] : contents_[b].weights) fresh += origin.updated ? bytes : 0;
      if (fresh + slack < buffer.bytes.value()) found_.push_back(tawpipe::concat("buffer ", b, " ends with old weights"));
    }
    return found_;
  }

 private:
  struct Computation {
    Op op;
    int stage;
    int microbatch;
    int tensor;
    int context;
    auto operator<=>(const Computation&) const = default;
  };

  /// Every stage and microbatch once forward and once backward, on each tensor- and
  /// context-parallel rank.
  void check_completeness() {
    const auto count = [&](Op op, int s, int m, int t, int c) { return computed_[{op, s, m, t, c}]; };
    for (int s = 0; s < layout_.stages; ++s) {
      for (int m = 0; m < static_cast<int>(schedule_.workload().microbatches()); ++m) {
        for (int t = 0; t < map_.tensor; ++t) {
          for (int c = 0; c < map_.context; ++c) {
            const int whole = count(Op::backward, s, m, t, c);
            const int halves = count(Op::backward_input, s, m, t, c);
            const bool once = count(Op::forward, s, m, t, c) == 1 && whole + halves == 1;
            if (once && halves == count(Op::backward_weight, s, m, t, c)) continue;
            found_.push_back(tawpipe::concat("stage ", s, ", microbatch ", m, " is not computed once"));
          }
        }
      }
    }
  }

  void compute() {
    const int s = number(task().stage);
    const bool forward = task().op == Op::forward;
    const tawpipe::MeshPlace& place = map_.of(task().rank);
    std::map<Origin, std::int64_t> weights;
    std::set<Activation> inputs;
    for (const Use& use : uses()) {
      if (!takes(use.access)) continue;
      const Content& content = at(use);
      if (use.access == Access::read) weights.insert(content.weights.begin(), content.weights.end());
      inputs.insert(content.activations.begin(), content.activations.end());
    }
    ++computed_[{task().op, s, task().microbatch, place.tensor, place.context}];
    check_weights(s, weights);
    if (layout_.has_activations) {
      if (forward && s > 0) check_input({true, s - 1, task().microbatch, place.context}, inputs);
      if (!forward && !inputs.contains({true, s, task().microbatch, place.context})) report("has no saved activations");
      const bool needs_gradient = task().op == Op::backward || task().op == Op::backward_input;
      if (needs_gradient && s + 1 < layout_.stages) check_input({false, s + 1, task().microbatch, place.context}, inputs);
    }
    for (const Use& use : uses()) {
      if (use.access == Access::read) continue;
      if (buffer(use).kind() == BufferKind::activations) {
        write_activations(use);
      } else if (is_gradient(buffer(use)) && (task().op == Op::backward || task().op == Op::backward_weight)) {
        add_gradient(use);
      } else if (buffer(use).kind() != BufferKind::workspace) {
        report("changes what is not its to change");
      }
    }
  }

  void check_weights(int s, const std::map<Origin, std::int64_t>& weights) {
    std::int64_t own = 0;
    std::size_t shards = 0;
    bool edge = false;
    for (const auto& [origin, bytes] : weights) {
      if (origin.updated) report("computes with updated weights");
      const bool of_none = number(schedule_.buffers()[origin.buffer].stage()) < 0;
      const bool borrowed = layout_.lent && s == layout_.head && origin.stage == layout_.embedding;
      if (origin.stage >= 0 && origin.stage != s && !borrowed) report("computes with another stage's weights");
      shards += of_none ? 1 : 0;
      if (of_none && layout_.edge_copies) edge = true;
      if (!of_none) own += bytes;
    }
    if (layout_.edge_copies && layout_.stage(s).edge_parameters > 0 && !edge) report("computes without embedding and head");
    if (layout_.parameters(s) == 0) return;
    const std::int64_t weight = schedule_.workload().parameter_bytes().weight;
    if (layout_.sharded && !layout_.owned(s)) {
      if (shards != layout_.all_shards())
        report(tawpipe::concat("computes with ", shards, " of ", layout_.all_shards(), " shards"));
    } else if (own + slack < layout_.parameters(layout_.lent && s == layout_.head ? layout_.embedding : s) * weight) {
      report(tawpipe::concat("computes with ", own, " bytes of weights"));
    }
  }
  void check_input(const Activation& wanted, const std::set<Activation>& inputs) {
    if (!inputs.contains(wanted)) report(tawpipe::concat("has no result of stage ", wanted.stage));
  }

  void write_activations(const Use& use) {
    const tawpipe::MeshPlace& place = map_.of(task().rank);
    if (use.access == Access::accumulate) report("adds to activations");
    Content& content = at(use);
    content = {};
    content.written = true;
    content.activations.insert({task().op == Op::forward, number(task().stage), task().microbatch, place.context});
  }

  void add_gradient(const Use& use) {
    const int s = number(task().stage);
    const tawpipe::StageWork& work = layout_.stage(s);
    const tawpipe::MeshPlace& place = map_.of(task().rank);
    const bool edges_alone =
        layout_.edge_copies && buffer(use).kind() == BufferKind::gradients && number(buffer(use).stage()) < 0;
    Content& content = at(use);
    if (use.access == Access::write) content = {};
    content.written = true;
    const auto add_all = [&](int parameters) {
      for (int p = 0; p < layout_.pieces; ++p) {
        ++content.gradient[{parameters, task().microbatch, p, place.tensor, place.context}];
      }
    };
    if (!edges_alone && work.parameters > 0) add_all(s);
    if (work.edge_parameters == 0 || (layout_.edge_copies && !edges_alone)) return;
    if (work.first_edge) add_all(embedding_gradient);
    if (work.last_edge) add_all(head_gradient);
  }

  // ---- transfers ----------------------------------------------------------------------------------------------------

  void put(const Use& use, const Content& content) {
    const Buffer& to = buffer(use);
    Content& held = at(use);
    if (to.persistent && to.kind() == BufferKind::weights) {
      for (const auto& [origin, bytes] : content.weights) {
        if (!origin.updated) report("overwrites an owner's weights");
      }
    }
    if (use.access == Access::accumulate) {
      add(held.gradient, content.gradient);
      if (!content.weights.empty() || !content.activations.empty()) report("adds what is no gradient");
      return;
    }
    held = content;
    held.written = true;
  }

  /// Each source to the destinations on the other end, in the order in which they are named.
  void copy() {
    std::map<tawpipe::Rank, std::vector<Content>> sent;
    for (const Use& use : uses()) {
      if (takes(use.access)) sent[buffer(use).rank].push_back(part_of(at(use), buffer(use).rank));
    }
    const bool both = task().op == Op::exchange;
    if (sent.size() != (both ? 2U : 1U) || !sent.contains(task().rank)) return report("does not read at its source");
    std::map<tawpipe::Rank, std::size_t> next;
    for (const Use& use : uses()) {
      const tawpipe::Rank to = buffer(use).rank;
      if (use.access == Access::read) continue;
      if (to == task().rank && !both) return report("writes at its source");
      const auto& messages = sent[to == task().rank ? task().peer : task().rank];
      const Content& message = messages[std::min(next[to]++, messages.size() - 1)];
      check_message(message);
      put(use, message);
    }
    if (next.size() != (task().op == Op::broadcast ? schedule_.group(task().group).size() - 1 : both ? 2U : 1U)) {
      report("does not write at every destination");
    }
  }
  /// A message of the payload it says, and of its stage.
  void check_message(const Content& message) {
    if (payload() == Payload::weights && message.weights.empty()) report("carries no weights");
    for (const auto& [origin, bytes] : message.weights) {
      if (origin.updated) report("carries updated weights");
      if (origin.stage != number(task().stage)) report("carries weights of another stage");
    }
    const bool activations = payload() == Payload::activations || payload() == Payload::activation_gradients;
    if (activations && message.activations.empty()) report("carries no activations");
    for (const auto& [summand, count] : message.gradient) {
      if (summand.parameters >= 0 && summand.parameters != number(task().stage)) report("carries gradients of another stage");
    }
  }

  /// All of one buffer into another, over the border between device and host.
  void host_copy(bool out) {
    if (uses().size() != 2 || uses()[0].access != Access::read || uses()[1].access != Access::write) {
      return report("is not from one buffer to another");
    }
    const Buffer& from = buffer(uses()[0]);
    const Buffer& to = buffer(uses()[1]);
    if (from.host == out || to.host != out) report("copies the wrong way");
    if (task().bytes < from.bytes || to.bytes < from.bytes) report("cuts off what it copies");
    const Content content = at(uses()[0]);
    if (to.persistent && !content.states.contains(index(uses()[1].buffer))) report("overwrites states of another buffer");
    at(uses()[1]) = content;
  }

  void gather_weights() {
    std::map<tawpipe::Rank, bool> keeps;  // whether the rank reads its part from outside of what it fills
    for (const Use& use : uses()) keeps[buffer(use).rank] = keeps[buffer(use).rank] || use.access == Access::read;
    Content gathered;
    for (const Use& use : uses()) {
      if (!takes(use.access) || (use.access == Access::read_write && keeps[buffer(use).rank])) continue;
      for (const auto& [origin, bytes] : part_of(at(use), buffer(use).rank).weights) {
        if (origin.stage >= 0 && origin.stage != number(task().stage)) report("gathers weights of another stage");
        gathered.weights[{origin.buffer, number(task().stage), origin.updated, origin.piece}] = bytes;
      }
    }
    for (const Use& use : uses()) {
      if (use.access == Access::read) continue;
      Content content = gathered;
      if (use.access == Access::read_write) content.weights.insert(at(use).weights.begin(), at(use).weights.end());
      // In place over an owner's buffer, only what has been updated counts.
      if (buffer(use).persistent && buffer(use).kind() == BufferKind::weights) {
        std::erase_if(content.weights, [](const auto& entry) { return !entry.first.updated; });
      }
      put(use, content);
    }
  }

  /// Sums of gradients, of all their pieces or of one rail's, and gathers of summed pieces.
  void sum() {
    const std::vector<int> rail = layout_.rail_of(task());
    const bool edge = payload() == Payload::edge_gradients;
    const auto moves = [&](const Summand& summand) {
      return (!edge || summand.parameters < 0) && (rail.empty() || summand.piece == layout_.rails.at(rail));
    };
    std::map<Summand, int> total;
    for (const Use& use : uses()) {
      if (!takes(use.access)) continue;
      for (const auto& [summand, count] : at(use).gradient) {
        if (!edge && summand.parameters >= 0 && number(task().stage) >= 0 && summand.parameters != number(task().stage)) {
          report("sums gradients of another stage");
        }
        if (moves(summand)) total[summand] += count;
      }
    }
    for (const Use& use : uses()) {
      if (use.access == Access::read) continue;
      if (task().op == Op::reduce && buffer(use).rank != task().rank) report("leaves its sum elsewhere than at its root");
      const auto& held = layout_.holds[static_cast<std::size_t>(map_.of(buffer(use).rank).pipeline)];
      std::map<Summand, int> result;
      for (const auto& [summand, count] : total) {
        const bool kept =
            layout_.striped ? layout_.carries(task(), buffer(use).rank, summand.piece) : held.contains(summand.piece);
        if (task().op != Op::reduce_scatter || kept) result[summand] = count;
      }
      Content& content = at(use);
      content.written = true;
      if (use.access == Access::write)
        content = {.written = true, .gradient = {}, .weights = {}, .activations = {}, .states = {}};
      if (use.access == Access::read_write) {
        std::erase_if(content.gradient, [&](const auto& entry) { return moves(entry.first); });
      }
      add(content.gradient, result);
    }
  }

  // ---- updates ------------------------------------------------------------------------------------------------------

  void update() {
    std::map<Summand, int> gradient;
    const Use* weights = nullptr;
    for (const Use& use : uses()) {
      const BufferKind kind = buffer(use).kind();
      if (takes(use.access) && is_gradient(buffer(use))) add(gradient, at(use).gradient);
      for (auto& [owner, updated] : at(use).states) {
        if (use.access == Access::read) continue;
        ++updates_[owner];
        updated = true;
      }
      if (use.access == Access::read || kind != BufferKind::weights) continue;
      ++updates_[index(use.buffer)];
      if (kind == BufferKind::weights) weights = &use;
    }
    if (weights == nullptr) return report("updates no weights");
    const auto& sizes = schedule_.workload().parameter_bytes();
    const std::int64_t all = sizes.weight + sizes.gradient + sizes.optimizer;
    UpdateSeries& series = series_[index(weights->buffer)];
    check_sum(number(buffer(*weights).stage()), series.bytes / all, series.padding / map_.tensor, gradient);
    Content& content = at(*weights);
    series.done += task().bytes.value();
    if (updates_[index(weights->buffer)] == 1) content.weights.clear();
    content.weights[{index(weights->buffer), number(buffer(*weights).stage()), true}] = series.done / all * sizes.weight;
  }

  /// The gradient that an update of weights of stage `s` sees against each microbatch's, once.
  /// @param updated  numbers, those of padding included; of `padding` in all shards
  void check_sum(int s, std::int64_t updated, std::int64_t padding, std::map<Summand, int> gradient) {
    const tawpipe::MeshPlace& place = map_.of(task().rank);
    std::set<int> wanted;
    std::int64_t all = padding;
    for (int i = 0; i < layout_.stages; ++i) {
      const bool covered = s == i || (s < 0 && layout_.sharded && !layout_.owned(i));
      const bool edges = layout_.edge_copies ? s < 0 : covered;
      if (covered && layout_.stage(i).parameters > 0) wanted.insert(i);
      if (edges && layout_.stage(i).edge_parameters > 0 && layout_.stage(i).first_edge) wanted.insert(embedding_gradient);
      if (edges && layout_.stage(i).edge_parameters > 0 && layout_.stage(i).last_edge) wanted.insert(head_gradient);
      all += (covered ? layout_.parameters(i) : 0) + (edges && layout_.edge_copies ? layout_.stage(i).edge_parameters : 0);
    }
    // A tied matrix has two gradients. Two copies on different ranks need both; on one rank it is
    // one matrix.
    const std::int64_t matrix = layout_.tied ? schedule_.workload().model().first_edge.parameters / map_.tensor : 0;
    if (wanted.contains(embedding_gradient) && wanted.contains(head_gradient)) all -= matrix;  // held once
    const bool has_edge = wanted.contains(embedding_gradient) || wanted.contains(head_gradient);
    if (layout_.tied && has_edge && (layout_.lent || !layout_.on_one_rank)) wanted.insert({embedding_gradient, head_gradient});
    const bool whole = updated * 4 > all * 3 || all == padding;
    const auto& kept = layout_.keeps[static_cast<std::size_t>(place.pipeline)];
    std::size_t missing = 0;
    for (const int parameters : wanted) {
      for (int m = 0; m < static_cast<int>(schedule_.workload().microbatches()); ++m) {
        for (int p = 0; p < layout_.pieces; ++p) {
          if (!whole && !kept.contains(p)) continue;
          for (int c = 0; c < map_.context; ++c) {
            const auto found = gradient.find({parameters, m, p, place.tensor, c});
            if (found == gradient.end()) {
              ++missing;
              continue;
            }
            if (found->second != 1) report(tawpipe::concat("sees a contribution ", found->second, " times"));
            gradient.erase(found);
          }
        }
      }
    }
    if (missing > 0) report(tawpipe::concat("lacks ", missing, " contributions"));
    if (!gradient.empty()) {
      const Summand& summand = gradient.begin()->first;
      report(tawpipe::concat("sees ", gradient.size(), " contributions too many, such as of ", summand.parameters,
                             ", microbatch ", summand.microbatch, ", piece ", summand.piece));
    }
  }

  std::map<Computation, int> computed_;
  std::vector<int> updates_;
  std::vector<UpdateSeries> series_;  ///< [buffer]
};

}  // namespace support
