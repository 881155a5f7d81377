// Rewrites a schedule with copies to and from the memory of its devices' hosts.
// Not: what may lie there (schedule/offload.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/schedule/early_messages.hpp"
#include "tawpipe/schedule/offload.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// Rewrites a schedule with copies to and from the host.
class Offloader {
 public:
  Offloader(const Schedule& schedule, const Offload& offload)
      : from_{schedule}, offload_{offload}, builder_{schedule}, ranks_(static_cast<std::size_t>(schedule.ranks())) {
    if (offload.ahead < 1) throw InputError(concat("copies that start ", offload.ahead, " computations ahead; at least 1"));
    builder_.option("offload", name(offload));
    to_host_ = builder_.lane("to_host");
    from_host_ = builder_.lane("from_host");
    const std::vector<Found> found = find_buffers();
    cut_states(found);
    number_steps();
    add_values(found);
    if (offload.weights) add_weights();
  }

  Schedule build() {
    std::vector<Buffer> buffers{from_.buffers().begin(), from_.buffers().end()};
    for (auto value = values_.rbegin(); value != values_.rend(); ++value) {  // the first piece takes the place of the whole
      if (value->states) buffers[index(value->old)] = hosted(*value);
    }
    for (std::size_t b = 0; b < buffers.size(); ++b) buffers[b].host = buffers[b].host || lies_in_host(id<BufferId>(b));
    for (const Buffer& buffer : buffers) now_.push_back(builder_.buffer(buffer));
    host_ = now_;
    for (std::size_t v = 0; v < values_.size(); ++v) {
      if (values_[v].weights) values_[v].host = host_[index(values_[v].old)];
      if (!values_[v].states) continue;
      const bool first = v == 0 || values_[v - 1].old != values_[v].old;
      values_[v].host = first ? now_[index(values_[v].old)] : builder_.buffer(hosted(values_[v]));
    }
    added_.assign(from_.tasks().size(), none<TaskId>);
    for (std::size_t t = 0; t < added_.size(); ++t) {
      if (first_step_[t] == first_step_[t + 1]) add(id<TaskId>(t), nullptr);
      for (std::size_t s = first_step_[t]; s < first_step_[t + 1]; ++s) {
        if (!steps_[s].fetched) fetch_for(steps_[s], {});  // too early for any other
        add(id<TaskId>(t), &steps_[s]);
        for (const std::size_t next : steps_[s].triggers) fetch_for(steps_[next], added_[t]);
      }
    }
    return builder_.build();
  }

 private:
  /// The computations that use a buffer which may be offloaded.
  struct Found {
    TaskId made = none<TaskId>;  ///< the forward that saves it; none for states
    TaskId used = none<TaskId>;  ///< the first that reads it; for states the update
    bool states = false;
  };
  /// Something that a rank keeps for a later computation: saved activations, or a piece of an
  /// optimizer's states.
  struct Value {
    BufferId old;   ///< that it is, or is a piece of
    Buffer buffer;  ///< as it is on the device
    bool states = false;
    bool weights = false;         ///< of the one step that needs them
    std::int64_t parameters = 0;  ///< of a piece
    BufferId device = none<BufferId>;
    BufferId host = none<BufferId>;
  };
  /// A computation, or the update of one piece.
  struct Step {
    std::size_t place = 0;                   ///< among its rank's
    bool first = true;                       ///< of its task
    bool fetched = false;                    ///< its inputs are fetched after an earlier step
    std::vector<std::size_t> triggers = {};  ///< the steps whose inputs are fetched after it
    std::vector<std::size_t> makes = {};     ///< values
    std::vector<std::size_t> needs = {};     ///< values
    std::vector<std::size_t> changes = {};   ///< weights, by the last step of their update
  };
  struct OfRank {
    std::vector<std::size_t> steps;  ///< in order
    std::vector<TaskId> copies_out;  ///< of the new schedule, in order
    std::vector<TaskId> gathers;     ///< of it, those that read weights from the host, in order
    /// that lie within its first layers, where not all are offloaded
    std::vector<StageId> stages;
  };

  /// [buffer] what can be offloaded of it; `used` is none for what cannot.
  std::vector<Found> find_buffers() {
    find_stages();
    std::vector<Found> found(from_.buffers().size());
    for (std::size_t t = 0; t < from_.tasks().size(); ++t) {
      const TaskId task = id<TaskId>(t);
      if (!is_work(from_.task(task).op)) continue;
      for (const Use& use : from_.uses(task)) {
        const Buffer& buffer = from_.buffer(use.buffer);
        Found& one = found[index(use.buffer)];
        one.states = buffer.content.kind() == ContentKind::optimizer_state;
        const bool saved = is_saved(buffer);
        if (buffer.host || buffer.bytes <= Bytes{} || !(saved ? offloads(buffer) : one.states && offload_.optimizer)) continue;
        TaskId& place = use.access == Access::write && saved ? one.made : one.used;
        if (place == none<TaskId>) place = task;
      }
    }
    return found;
  }
  static bool is_saved(const Buffer& buffer) { return buffer.content.kind() == ContentKind::saved && !buffer.persistent; }
  bool offloads(const Buffer& saved) const {
    if (!offload_.activations || offload_.layers == 0) return offload_.activations;
    const std::vector<StageId>& within = ranks_[index(saved.rank)].stages;
    return std::find(within.begin(), within.end(), saved.stage()) != within.end();
  }
  /// The stages for which each rank saves something, from its first layer on, as far as they lie
  /// within the layers requested.
  void find_stages() {
    if (offload_.layers == 0) return;
    for (const Buffer& buffer : from_.buffers()) {
      std::vector<StageId>& own = ranks_[index(buffer.rank)].stages;
      if (is_saved(buffer) && std::find(own.begin(), own.end(), buffer.stage()) == own.end()) own.push_back(buffer.stage());
    }
    int least = 0;
    bool any = false;
    for (OfRank& rank : ranks_) {
      std::vector<StageId> own;
      own.swap(rank.stages);
      std::stable_sort(own.begin(), own.end(),
                       [&](StageId a, StageId b) { return from_.stage(a).first_layer < from_.stage(b).first_layer; });
      int layers = 0;
      for (const StageId stage : own) {
        layers += from_.stage(stage).layers;
        if (least == 0 || (layers > 0 && layers < least)) least = layers;
        if (layers > offload_.layers) break;
        if (from_.stage(stage).layers > 0) rank.stages.push_back(stage);
      }
      any = any || !rank.stages.empty();
    }
    if (any) return;
    throw InputError(concat("offload ", name(offload_), ": a stage's layers leave together, and the first has ", least));
  }

  /// Finds how many pieces each update's states are cut into, so that all are of about one size.
  void cut_states(const std::vector<Found>& found) {
    pieces_.assign(from_.tasks().size(), 0);
    std::vector<Bytes> all(ranks_.size());
    for (std::size_t b = 0; b < found.size(); ++b) {
      if (found[b].states && found[b].used != none<TaskId>) all[index(from_.buffers()[b].rank)] += from_.buffers()[b].bytes;
    }
    for (std::size_t b = 0; b < found.size(); ++b) {
      if (!found[b].states || found[b].used == none<TaskId>) continue;
      const Buffer& buffer = from_.buffers()[b];
      const Task& task = from_.task(found[b].used);
      const std::int64_t count = parameters_of(buffer);
      const std::int64_t largest = (all[index(buffer.rank)].value() + state_pieces - 1) / state_pieces;
      const bool even = count > 0 && buffer.bytes.value() % count == 0 && task.bytes.value() % count == 0;
      const std::int64_t pieces =
          even ? std::min<std::int64_t>({(buffer.bytes.value() + largest - 1) / largest, count / pack(), state_pieces}) : 1;
      int& of_update = pieces_[index(found[b].used)];
      of_update = of_update == 0 && task.op == Op::update ? static_cast<int>(pieces) : 1;
    }
  }
  /// Pieces of padded shards begin at multiples of so many, as the shards do.
  std::int64_t pack() const { return from_.parts().padding > 0 ? parameter_pack : 1; }
  std::int64_t parameters_of(const Buffer& states) const {
    return states.content.is_slot() ? 0 : parameters_in(from_.pieces(states.content.parameters()));
  }

  /// The steps of each rank in order, and after which of them what later ones need may be fetched.
  void number_steps() {
    for (std::size_t t = 0; t < from_.tasks().size(); ++t) {
      first_step_.push_back(steps_.size());
      if (!is_work(from_.tasks()[t].op)) continue;
      std::vector<std::size_t>& own = ranks_[index(from_.tasks()[t].rank)].steps;
      for (int piece = 0; piece < std::max(1, pieces_[t]); ++piece) {
        own.push_back(steps_.size());
        steps_.push_back({.place = own.size() - 1, .first = piece == 0});
      }
    }
    first_step_.push_back(steps_.size());
    for (const OfRank& rank : ranks_) {
      for (std::size_t i = distance(); i < rank.steps.size(); ++i) {
        steps_[rank.steps[i]].fetched = true;
        steps_[rank.steps[i - distance()]].triggers.push_back(rank.steps[i]);
      }
    }
  }
  std::size_t distance() const { return static_cast<std::size_t>(offload_.ahead) + 1; }

  void add_values(const std::vector<Found>& found) {
    for (std::size_t b = 0; b < found.size(); ++b) {
      if (found[b].used == none<TaskId>) continue;
      const Buffer& buffer = from_.buffers()[b];
      const std::size_t used = first_step_[index(found[b].used)];
      if (!found[b].states) {
        if (found[b].made == none<TaskId>) continue;
        const std::size_t made = first_step_[index(found[b].made)];
        if (steps_[used].place <= steps_[made].place + distance() + 1) continue;  // would be gone for less than a step
        steps_[made].makes.push_back(values_.size());
        steps_[used].needs.push_back(values_.size());
        values_.push_back({.old = id<BufferId>(b), .buffer = buffer});
        continue;
      }
      const int pieces = pieces_[index(found[b].used)];
      if (pieces == 1) {
        steps_[used].needs.push_back(values_.size());
        values_.push_back({.old = id<BufferId>(b), .buffer = buffer, .states = true});
        continue;
      }
      const std::int64_t count = parameters_of(buffer);
      const Bytes each{buffer.bytes.value() / count};
      const auto cut = [&](int piece) { return count / pack() * piece / pieces * pack(); };
      for (int piece = 0; piece < pieces; ++piece) {
        const auto own = slice(from_.pieces(buffer.content.parameters()), cut(piece), cut(piece + 1));
        Value value{.old = id<BufferId>(b), .buffer = buffer, .states = true, .parameters = parameters_in(own)};
        value.buffer.content = {buffer.content.kind(), buffer.stage(), builder_.pieces(own)};
        value.buffer.bytes = each * value.parameters;
        steps_[used + static_cast<std::size_t>(piece)].needs.push_back(values_.size());
        values_.push_back(value);
      }
    }
  }
  /// Each computation's own copies of the weights that it reads or changes.
  void add_weights() {
    hosted_.assign(from_.buffers().size(), false);
    for (std::size_t b = 0; b < hosted_.size(); ++b) {
      const Buffer& buffer = from_.buffers()[b];
      hosted_[b] = buffer.persistent && !buffer.copy && !buffer.host && buffer.bytes > Bytes{} &&
                   buffer.content.kind() == ContentKind::weights;
    }
    for (std::size_t t = 0; t < from_.tasks().size(); ++t) {
      if (first_step_[t] == first_step_[t + 1]) continue;
      for (const Use& use : from_.uses(id<TaskId>(t))) {
        if (!lies_in_host(use.buffer)) continue;
        steps_[first_step_[t]].needs.push_back(values_.size());
        if (use.access != Access::read) steps_[first_step_[t + 1] - 1].changes.push_back(values_.size());
        values_.push_back({.old = use.buffer, .buffer = from_.buffer(use.buffer), .weights = true});
      }
    }
  }
  bool lies_in_host(BufferId buffer) const { return !hosted_.empty() && hosted_[index(buffer)]; }

  static Buffer hosted(const Value& value) {
    Buffer buffer = value.buffer;
    buffer.host = true;
    return buffer;
  }

  Task copy(Op op, const Value& value, LaneId lane) const {
    return {.op = op,
            .payload = value.states    ? Payload::optimizer_states
                       : value.weights ? Payload::weights
                                       : Payload::activations,
            .lane = lane,
            .rank = value.buffer.rank,
            .stage = value.buffer.stage(),
            .microbatch = value.buffer.content.microbatch(),
            .bytes = value.buffer.bytes};
  }

  /// What a step needs from the host, into device buffers. @param after  what must have ended
  /// first, or none
  void fetch_for(const Step& step, TaskId after) {
    for (const std::size_t v : step.needs) {
      const bool at_once = values_[v].weights && after == TaskId{};  // nothing is before the first computation
      fetch(values_[v], at_once ? std::span<const TaskId>{} : std::span{&after, 1});
    }
  }
  void fetch(Value& value, std::span<const TaskId> after) {
    Buffer buffer = value.buffer;
    buffer.copy = buffer.copy || value.states || value.weights;
    buffer.persistent = false;
    value.device = builder_.buffer(buffer);
    builder_.add(copy(Op::copy_from_host, value, from_host_), {{value.host, Access::read}, {value.device, Access::write}}, after);
  }
  /// The ranks' parts that a message reads, each while the one before the last is still under way.
  /// @throws InputError  if it changes them
  void fetch_for_message(TaskId task, std::vector<Rank>& readers) {
    for (const Use& use : from_.uses(task)) {
      if (!lies_in_host(use.buffer)) continue;
      if (use.access != Access::read) {
        throw InputError(concat("offload ", name(offload_), ": ", from_.name(),
                                " sends new weights to devices that keep copies of them; choose a schedule that gathers them "
                                "before each use, such as fsdp"));
      }
      Value value{.old = use.buffer, .buffer = from_.buffer(use.buffer), .weights = true, .host = host_[index(use.buffer)]};
      const std::vector<TaskId>& gathers = ranks_[index(value.buffer.rank)].gathers;
      const bool first = gathers.size() < distance();
      fetch(value, first ? std::span<const TaskId>{} : std::span{&gathers[gathers.size() - distance()], 1});
      readers.push_back(value.buffer.rank);
      now_[index(use.buffer)] = value.device;
    }
  }

  /// A task as it was, or a step of it, with copies to the host of what it leaves for later. It
  /// waits for the rank's earlier copies but the last.
  void add(TaskId task, const Step* step) {
    Task one = from_.task(task);
    std::vector<TaskId> after;
    if (step == nullptr || step->first) {
      for (const TaskId earlier : from_.dependencies(task)) after.push_back(added_[index(earlier)]);
    }
    std::vector<std::size_t> leaving;
    std::vector<Rank> readers;
    std::vector<TaskId>& out = ranks_[index(one.rank)].copies_out;
    if (step == nullptr && offload_.weights) fetch_for_message(task, readers);
    if (step != nullptr) {
      leaving = step->makes;
      for (const std::size_t v : step->needs) {
        const Value& value = values_[v];
        now_[index(value.old)] = value.device;
        if (value.states) leaving.push_back(v);
        if (value.parameters > 0) one.bytes = one.bytes / parameters_of(from_.buffer(value.old)) * value.parameters;
      }
      leaving.insert(leaving.end(), step->changes.begin(), step->changes.end());
    }
    const auto kept = static_cast<std::size_t>(offload_.ahead) * leaving.size();
    if (!leaving.empty() && out.size() >= kept + 1) after.push_back(out[out.size() - kept - 1]);
    uses_.clear();
    for (const Use& use : from_.uses(task)) uses_.push_back({now_[index(use.buffer)], use.access});
    added_[index(task)] = builder_.add(one, uses_, after);
    for (const Rank reader : readers) ranks_[index(reader)].gathers.push_back(added_[index(task)]);
    for (const std::size_t v : leaving) {
      Value& value = values_[v];
      if (!value.states && !value.weights) value.host = builder_.buffer(hosted(value));
      out.push_back(builder_.add(copy(Op::copy_to_host, value, to_host_),
                                 {{now_[index(value.old)], Access::read}, {value.host, Access::write}}));
    }
  }

  const Schedule& from_;
  Offload offload_;
  ScheduleBuilder builder_;
  LaneId to_host_{};
  LaneId from_host_{};
  std::vector<OfRank> ranks_;
  /// [task] into which an update's states are cut; 0: no update
  std::vector<int> pieces_;
  std::vector<std::size_t> first_step_;  ///< [task], and after the last task the number of steps
  std::vector<Step> steps_;
  std::vector<Value> values_;   ///< that are offloaded
  std::vector<bool> hosted_;    ///< [old buffer] weights that lie in host memory; empty: none
  std::vector<BufferId> host_;  ///< [old buffer] as it is at the beginning, for weights in host memory
  std::vector<BufferId> now_;   ///< [old buffer] its current replacement in the new schedule
  std::vector<TaskId> added_;   ///< [old task] its last step
  std::vector<Use> uses_;
};

}  // namespace detail

TAWPIPE_INLINE Schedule with_offload(const Schedule& schedule, const Offload& offload) {
  return offload.any() ? detail::Offloader{schedule, offload}.build() : schedule;
}

}  // namespace tawpipe
