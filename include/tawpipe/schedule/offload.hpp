// Adds transfers of activations or optimizer states to host memory, while no computation needs
// them, to any schedule. They use the devices' links to their hosts.
// Not: recomputation, which drops activations instead (model/batch.hpp).
#pragma once

#include <string>
#include <string_view>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0 {

/// What lies in host memory between its uses.
struct Offload {
  bool activations = false;  ///< what forwards save for backwards
  bool optimizer = false;    ///< the optimizer's states, copied in for each update and back out after it
  int ahead = 1;             ///< computations before its use at which a copy back starts; also the number of copies out in flight

  bool any() const { return activations || optimizer; }
  bool operator==(const Offload&) const = default;
};

/// "off", "activations", "optimizer", or "activations+optimizer".
inline std::string name(const Offload& offload) {
  if (!offload.any()) return "off";
  return concat(offload.activations ? "activations" : "", offload.activations && offload.optimizer ? "+" : "",
                offload.optimizer ? "optimizer" : "");
}

/// Parses what name() gives, in any order. @throws InputError  naming the valid values.
TAWPIPE_INLINE Offload parse_offload(std::string_view text);

/// `schedule` with copies to and from the host around its existing computations, on two lanes of
/// their own.
///
/// What a forward saves leaves when the forward has ended and comes back `ahead` computations of
/// its rank before the first backward that reads it; what would be gone for less than one
/// computation stays. Optimizer states are kept in host memory and are on the device only for their
/// update. A computation with something to send out waits until all but `ahead` of the rank's
/// earlier ones have left, so that the device holds no more than that of them.
/// @throws InputError  for `ahead` below 1. Complexity: O(tasks + uses).
/// Source: Rajbhandari et al. 2021, ZeRO-Infinity, arXiv:2104.07857, section 5.1 (states); Wan et
/// al. 2025, PipeOffload, arXiv:2503.01328 (activations of pipelines).
/// Example: `const tawpipe::Schedule offloaded = with_offload(schedule, {.activations = true});`
TAWPIPE_INLINE Schedule with_offload(const Schedule& schedule, const Offload& offload);

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tawpipe/schedule/schedule_builder.hpp"

namespace tawpipe::inline v0 {

TAWPIPE_INLINE Offload parse_offload(std::string_view text) {
  Offload offload;
  if (text == "off") return offload;
  for (std::string_view rest = text;;) {
    const std::size_t end = std::min(rest.find('+'), rest.size());
    const std::string_view part = rest.substr(0, end);
    bool& chosen = part == "activations" ? offload.activations : offload.optimizer;
    if ((part != "activations" && part != "optimizer") || chosen) {
      throw InputError(concat(quote(text), " is not what can be offloaded; expected off, activations, optimizer or",
                              " activations+optimizer"));
    }
    chosen = true;
    if (end == rest.size()) return offload;
    rest.remove_prefix(end + 1);
  }
}

namespace detail {

/// Writes a schedule anew, with copies to and from the host.
class Offloader {
 public:
  Offloader(const Schedule& schedule, const Offload& offload)
      : from_{schedule}, offload_{offload}, builder_{schedule}, ranks_(static_cast<std::size_t>(schedule.ranks())) {
    if (offload.ahead < 1) throw InputError(concat("copies that start ", offload.ahead, " computations ahead; at least 1"));
    builder_.option("offload", name(offload));
    to_host_ = builder_.lane("to_host");
    from_host_ = builder_.lane("from_host");
    number_computations();
    find_values();
  }

  Schedule build() {
    std::vector<Buffer> buffers{from_.buffers().begin(), from_.buffers().end()};
    for (const Value& value : values_) buffers[index(value.device)].host = value.states;
    for (const Buffer& buffer : buffers) now_.push_back(builder_.buffer(buffer));
    added_.assign(from_.tasks().size(), none<TaskId>);
    for (std::size_t t = 0; t < added_.size(); ++t) {
      if (place_[t] >= 0 && fetched_with_[t] == none<TaskId>) fetch_for(id<TaskId>(t), {});  // too early for any other task
      add(id<TaskId>(t));
      for (const TaskId next : triggers_[t]) fetch_for(next, added_[t]);
    }
    return builder_.build();
  }

 private:
  /// Something that a rank keeps for a later computation.
  struct Value {
    BufferId device;
    TaskId made = none<TaskId>;  ///< the forward that saves it; none for states
    TaskId used = none<TaskId>;  ///< the first computation that reads it; for states the update
    bool states = false;
    BufferId host = none<BufferId>;
  };
  struct OfRank {
    std::vector<TaskId> computations;  ///< in order
    std::vector<TaskId> copies_out;    ///< of the new schedule, in order
  };

  /// The computations of each rank in order, and after which of them what later ones need may be
  /// fetched.
  void number_computations() {
    const auto tasks = from_.tasks();
    place_.assign(tasks.size(), -1);
    fetched_with_.assign(tasks.size(), none<TaskId>);
    triggers_.resize(tasks.size());
    for (std::size_t t = 0; t < tasks.size(); ++t) {
      if (!is_work(tasks[t].op)) continue;
      std::vector<TaskId>& own = ranks_[index(tasks[t].rank)].computations;
      place_[t] = static_cast<std::int32_t>(own.size());
      own.push_back(id<TaskId>(t));
    }
    for (const OfRank& rank : ranks_) {
      for (std::size_t i = distance(); i < rank.computations.size(); ++i) {
        const TaskId trigger = rank.computations[i - distance()];
        fetched_with_[index(rank.computations[i])] = trigger;
        triggers_[index(trigger)].push_back(rank.computations[i]);
      }
    }
  }
  std::size_t distance() const { return static_cast<std::size_t>(offload_.ahead) + 1; }

  void find_values() {
    std::vector<Value> of_buffer(from_.buffers().size());
    for (std::size_t t = 0; t < from_.tasks().size(); ++t) {
      const TaskId task = id<TaskId>(t);
      if (place_[t] < 0) continue;
      for (const Use& use : from_.uses(task)) {
        const Buffer& buffer = from_.buffer(use.buffer);
        Value& value = of_buffer[index(use.buffer)];
        value.device = use.buffer;
        value.states = buffer.content.kind() == ContentKind::optimizer_state;
        const bool saved = buffer.content.kind() == ContentKind::saved && !buffer.persistent;
        if (buffer.host || buffer.bytes <= Bytes{} || !(saved ? offload_.activations : value.states && offload_.optimizer))
          continue;
        TaskId& found = use.access == Access::write && saved ? value.made : value.used;
        if (found == none<TaskId>) found = task;
      }
    }
    makes_.resize(from_.tasks().size());
    needs_.resize(from_.tasks().size());
    for (const Value& value : of_buffer) {
      if (value.used == none<TaskId> || !(value.states || is_worth(value))) continue;
      if (value.made != none<TaskId>) makes_[index(value.made)].push_back(values_.size());
      needs_[index(value.used)].push_back(values_.size());
      values_.push_back(value);
    }
  }
  /// Whether a value is off the device for at least one computation.
  bool is_worth(const Value& value) const {
    if (value.made == none<TaskId>) return false;
    return place_[index(value.used)] - place_[index(value.made)] > static_cast<std::int32_t>(distance()) + 1;
  }

  Task copy(Op op, const Value& value, LaneId lane) const {
    const Buffer& buffer = from_.buffer(value.device);
    return {.op = op,
            .payload = value.states ? Payload::optimizer_states : Payload::activations,
            .lane = lane,
            .rank = buffer.rank,
            .stage = buffer.content.stage(),
            .microbatch = buffer.content.microbatch(),
            .bytes = buffer.bytes};
  }

  /// What a computation needs from the host, into device buffers. @param after  what must have
  /// ended first, or none
  void fetch_for(TaskId task, TaskId after) {
    for (const std::size_t v : needs_[index(task)]) {
      Value& value = values_[v];
      Buffer buffer = from_.buffer(value.device);
      if (value.states) value.host = now_[index(value.device)];
      buffer.copy = buffer.copy || value.states;
      buffer.persistent = false;
      now_[index(value.device)] = builder_.buffer(buffer);
      builder_.add(copy(Op::copy_from_host, value, from_host_),
                   {{value.host, Access::read}, {now_[index(value.device)], Access::write}}, std::span{&after, 1});
    }
  }

  /// A task as it was, with copies to the host of what it leaves for later. It waits for the rank's
  /// earlier copies but the last.
  void add(TaskId task) {
    const Task& old = from_.task(task);
    std::vector<TaskId> after;
    for (const TaskId earlier : from_.dependencies(task)) after.push_back(added_[index(earlier)]);
    std::vector<TaskId>& out = ranks_[index(old.rank)].copies_out;
    std::vector<std::size_t> leaving = makes_[index(task)];
    for (const std::size_t v : needs_[index(task)]) {
      if (values_[v].states) leaving.push_back(v);
    }
    const auto kept = static_cast<std::size_t>(offload_.ahead) * leaving.size();
    if (!leaving.empty() && out.size() >= kept + 1) after.push_back(out[out.size() - kept - 1]);
    uses_.clear();
    for (const Use& use : from_.uses(task)) uses_.push_back({now_[index(use.buffer)], use.access});
    added_[index(task)] = builder_.add(old, uses_, after);
    for (const std::size_t v : leaving) {
      Value& value = values_[v];
      if (!value.states) {
        Buffer buffer = from_.buffer(value.device);
        buffer.host = true;
        value.host = builder_.buffer(buffer);
      }
      out.push_back(builder_.add(copy(Op::copy_to_host, value, to_host_),
                                 {{now_[index(value.device)], Access::read}, {value.host, Access::write}}));
    }
  }

  const Schedule& from_;
  Offload offload_;
  ScheduleBuilder builder_;
  LaneId to_host_{};
  LaneId from_host_{};
  std::vector<OfRank> ranks_;
  std::vector<std::int32_t> place_;              ///< [task] among its rank's computations; -1: not a computation
  std::vector<TaskId> fetched_with_;             ///< [computation] the one after which its inputs are fetched
  std::vector<std::vector<TaskId>> triggers_;    ///< [computation] whose inputs are fetched after it
  std::vector<Value> values_;                    ///< that are offloaded
  std::vector<std::vector<std::size_t>> makes_;  ///< [task] values
  std::vector<std::vector<std::size_t>> needs_;  ///< [task] values
  std::vector<BufferId> now_;                    ///< [old buffer] its current replacement in the new schedule
  std::vector<TaskId> added_;                    ///< [old task]
  std::vector<Use> uses_;
};

}  // namespace detail

TAWPIPE_INLINE Schedule with_offload(const Schedule& schedule, const Offload& offload) {
  return offload.any() ? detail::Offloader{schedule, offload}.build() : schedule;
}

}  // namespace tawpipe
#endif
