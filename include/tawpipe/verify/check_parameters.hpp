// Findings about sets of parameters (V102, V112, V305): they exist, are inside the model, and fit
// buffers, groups and messages.
// Not: whether a buffer holds the parameters that a task needs (verify/check_contents.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tawpipe/schedule/describe.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/verify/diagnostics.hpp"

namespace tawpipe::inline v0 {

namespace detail {

class ParametersCheck {
 public:
  ParametersCheck(const Schedule& schedule, Diagnostics& out) : schedule_{schedule}, parts_{schedule.parts()}, out_{out} {}

  void run() {
    const std::size_t errors = out_.errors();
    if (!rows_fit(parts_.pieces) || !rows_fit(parts_.splits)) {
      finding(
          "V101", none<TaskId>,
          [] { return std::string{"the rows of sets of parameters do not cover their items one after another"}; },
          "row offsets start at 0, never fall and end at the number of items");
      return;
    }
    for (std::size_t p = 0; p < parts_.pieces.size(); ++p) count(p);
    for (std::size_t s = 0; s < parts_.splits.size(); ++s) add_up(s);
    if (out_.errors() != errors) return;
    find_gathered();
    find_largest();
    for (std::size_t b = 0; b < parts_.buffers.size(); ++b) buffer(id<BufferId>(b));
    for (std::size_t t = 0; t < parts_.tasks.size(); ++t) {
      if (parts_.tasks[t].split != none<SplitId> && !is_all_pairs(parts_.tasks[t].op)) message(id<TaskId>(t));
      if (parts_.tasks[t].op == Op::update) update(id<TaskId>(t));
    }
  }

 private:
  template <class T>
  static bool rows_fit(const Rows<T>& rows) {
    const auto& begins = rows.begins();
    bool fits = begins.empty() ? rows.items().empty() : begins.front() == 0 && begins.back() == rows.items().size();
    for (std::size_t i = 1; i < begins.size(); ++i) fits = fits && begins[i - 1] <= begins[i];
    return fits;
  }
  template <class Id>
  static bool below(Id id, std::size_t size) {
    return number(id) >= 0 && index(id) < size;
  }
  template <class Message>
  void finding(std::string_view code, TaskId task, Message&& message, std::string_view help) {
    out_.error(code, task, task == none<TaskId> ? none<Rank> : schedule_.task(task).rank, message, help);
  }

  void count(std::size_t set) {
    const Workload& workload = schedule_.workload();
    // Without a model, parameters are numbered stage by stage.
    std::int64_t all = workload.is_abstract() ? 0 : workload.model().parameters();
    for (const StageWork& stage : schedule_.stages()) all += workload.is_abstract() ? stage.parameters * parts_.mesh.tensor : 0;
    std::vector<ParameterRange> sorted(parts_.pieces[set].begin(), parts_.pieces[set].end());
    std::sort(sorted.begin(), sorted.end());
    std::int64_t reached = 0;
    bool fits = true;
    for (const ParameterRange& range : sorted) {
      fits = fits && range.begin >= reached && range.end > range.begin &&
             (range.end <= all || (range.begin > all && range.end <= all + 1 + parts_.padding));
      reached = range.end;
    }
    sizes_.push_back(fits ? count_of(sorted) : Count{});
    if (fits) return;
    finding(
        "V112", none<TaskId>,
        [&] {
          return concat("set ", set, " names a parameter twice, or one that is not among the model's ", all,
                        parts_.padding > 0 ? concat(" and ", parts_.padding, " of padding") : "");
        },
        "ranges of a set are not empty, do not overlap, and count from 0 up to the model's parameters");
  }
  void add_up(std::size_t split) {
    constexpr std::int64_t most = std::int64_t{1} << 55;  // whatever a file contains, its bytes do not overflow
    Count sum;
    for (const PiecesId set : parts_.splits[split]) {
      if (below(set, sizes_.size())) {
        const Count& size = sizes_[index(set)];
        sum = {std::min(sum.all + size.all, most), std::min(sum.experts + size.experts, most),
               std::min(sum.edges + size.edges, most)};
        continue;
      }
      finding(
          "V102", none<TaskId>, [&] { return concat("split ", split, " names a set of parameters that does not exist"); },
          "sets of parameters count from 0");
    }
    carried_.push_back(sum);
  }

  /// The number of parameters, and of those of whole experts.
  struct Count {
    std::int64_t all = 0;
    std::int64_t experts = 0;
    std::int64_t edges = 0;  ///< of the model's edges
  };
  Count count_of(const std::vector<ParameterRange>& ranges) const {
    Count count{.all = parameters_in(ranges)};
    if (schedule_.workload().is_abstract()) return count;
    const ParameterBlocks blocks = schedule_.workload().model().blocks();
    if (parts_.mesh.whole_experts) count.experts = parameters_in(blocks.part_of(ranges, true));
    for (const ParameterRange& range : ranges) {
      for (const ParameterRange& edge : {blocks.first_edge(), blocks.last_edge()})
        count.edges += std::max<std::int64_t>(0, std::min(range.end, edge.end) - std::max(range.begin, edge.begin));
    }
    return count;
  }
  /// Bytes of a rank's part of matrices and experts.
  std::int64_t part(const Count& count, std::int64_t each) const {
    const auto up = [](std::int64_t whole, int parts) { return (whole + parts - 1) / parts; };
    return up((count.all - count.experts) * each, parts_.mesh.tensor) + up(count.experts * each, parts_.mesh.expert_parts());
  }
  std::int64_t bytes_each(ContentKind kind) const {
    const ParameterBytes& bytes = schedule_.workload().parameter_bytes();
    return kind == ContentKind::weights ? bytes.weight : kind == ContentKind::gradients ? bytes.gradient : bytes.optimizer;
  }
  /// The weights that a gather brings for a while: those of layers may be in fewer bits.
  void find_gathered() {
    gathered_.resize(parts_.buffers.size(), 0);
    for (std::size_t t = 0; t < parts_.tasks.size(); ++t) {
      if (!gathers(parts_.tasks[t].op)) continue;
      for (const Use& use : parts_.uses[t]) {
        const Buffer& buffer = parts_.buffers[index(use.buffer)];
        const bool kept = buffer.persistent || buffer.content.kind() != ContentKind::weights;
        if (!kept && use.access != Access::read) gathered_[index(use.buffer)] = 1;
      }
    }
  }
  /// Bytes of a rank's part of weights that are gathered: those of layers may be in fewer bits.
  std::int64_t gathered(const Count& count) const {
    const std::int64_t each = schedule_.workload().gathered_bytes({}, 1).value();
    const std::int64_t more = schedule_.workload().parameter_bytes().weight - each;
    const auto up = [](std::int64_t whole, int parts) { return (whole + parts - 1) / parts; };
    return up((count.all - count.experts) * each + count.edges * more, parts_.mesh.tensor) +
           up(count.experts * each, parts_.mesh.expert_parts());
  }
  /// Where ranks share states, each has buffers as large as the largest of their parts: finds it for
  /// all that are kept of a kind, stage and rank of the schedule around which the layout is.
  void find_largest() {
    if (parts_.mesh.copies() == 1) return;
    const Mesh mesh = parts_.mesh.over(parts_.ranks);
    for (const Buffer& buffer : parts_.buffers) {
      const PiecesId set = buffer.content.parameters();
      if (!buffer.persistent || set == none<PiecesId> || !below(set, sizes_.size())) continue;
      Count& largest = largest_[key(mesh, buffer)];
      if (sizes_[index(set)].all > largest.all) largest = sizes_[index(set)];
    }
  }
  static std::array<std::int32_t, 3> key(const Mesh& mesh, const Buffer& buffer) {
    return {static_cast<std::int32_t>(buffer.content.kind()), number(buffer.stage()), mesh.place(buffer.rank).pipeline};
  }
  /// The bytes of the largest of the parts that ranks share; -1 if they share none.
  std::int64_t shared(const Buffer& buffer, std::int64_t each) const {
    if (largest_.empty()) return -1;
    const auto found = largest_.find(key(parts_.mesh.over(parts_.ranks), buffer));
    return found == largest_.end() ? -1 : part(found->second, each);
  }
  void too_large(TaskId task, const std::string& what, std::int64_t bytes, std::int64_t needed) {
    finding(
        "V116", task, [&] { return concat(what, " has ", bytes, " bytes, and its parameters take ", needed); },
        "let a buffer or message be as large as what it holds or carries");
  }
  void buffer(BufferId id) {
    const Buffer& buffer = schedule_.buffer(id);
    const PiecesId set = buffer.content.parameters();
    if (set == none<PiecesId>) return;
    if (!below(set, sizes_.size())) {
      finding(
          "V102", none<TaskId>, [&] { return concat(describe(schedule_, id), " names a set of parameters that does not exist"); },
          "sets of parameters count from 0; -1 means a slot");
      return;
    }
    const std::int64_t each = bytes_each(buffer.content.kind());
    const std::int64_t whole = part(sizes_[index(set)], each);
    const std::int64_t needed = gathered_[index(id)] != 0 ? gathered(sizes_[index(set)]) : whole;
    const std::int64_t bytes = buffer.bytes.value();
    if (bytes > needed && bytes != whole && bytes != shared(buffer, each))
      too_large(none<TaskId>, describe(schedule_, id), bytes, needed);
    if (bytes >= needed) return;
    finding(
        "V112", none<TaskId>,
        [&] { return concat(describe(schedule_, id), " has ", buffer.bytes.value(), " bytes; its parameters take ", needed); },
        "make the buffer as large as what it holds");
  }

  void message(TaskId id) {
    const Task& task = schedule_.task(id);
    if (!below(task.split, carried_.size())) {
      finding(
          "V102", id, [&] { return concat(describe(schedule_, id), " names a split that does not exist"); },
          "splits count from 0; -1 means none");
      return;
    }
    const bool leaves = leaves_gradients(task.op);
    const std::size_t members = has_own_parts(task.op)         ? schedule_.group(task.group).size()
                                : is_local(task.op) && !leaves ? 0
                                                               : 1;
    const std::size_t found = schedule_.split(task.split).size();
    if (found != members) {
      finding(
          "V112", id, [&] { return concat(describe(schedule_, id), " has ", found, " sets of parameters instead of ", members); },
          "an all_gather and a reduce_scatter have one for each member, other communications and backwards one, other "
          "computations none");
      return;
    }
    if (leaves) return;
    const ParameterBytes& bytes = schedule_.workload().parameter_bytes();
    const bool weights = task.payload == Payload::weights;
    const std::int64_t whole = part(carried_[index(task.split)], weights ? bytes.weight : bytes.gradient);
    const std::int64_t needed = weights && gathers(task.op) ? gathered(carried_[index(task.split)]) : whole;
    if (task.bytes.value() > needed && task.bytes.value() != whole)
      too_large(id, describe(schedule_, id), task.bytes.value(), needed);
    if (task.bytes.value() >= needed) return;
    finding(
        "V305", id,
        [&] { return concat(describe(schedule_, id), " moves ", task.bytes.value(), " bytes; its parameters have ", needed); },
        "let the message be as large as what it carries");
  }

  /// An update touches its states' weights, gradients and optimizer states.
  void update(TaskId id) {
    const ParameterBytes& each = schedule_.workload().parameter_bytes();
    const std::int64_t found = schedule_.task(id).bytes.value();
    for (const Use& use : schedule_.uses(id)) {
      const Buffer& buffer = schedule_.buffer(use.buffer);
      const PiecesId set = buffer.content.parameters();
      if (buffer.content.kind() != ContentKind::optimizer_state || set == none<PiecesId> || !below(set, sizes_.size())) continue;
      const std::int64_t all = each.weight + each.gradient + each.optimizer;
      const std::int64_t needed = part(sizes_[index(set)], all);
      if (found == needed || found == shared(buffer, all)) return;
      finding(
          "V116", id,
          [&] { return concat(describe(schedule_, id), " touches ", found, " bytes, and its model states take ", needed); },
          "let an update's bytes be those of the weights, gradients and optimizer states that it touches");
    }
  }

  const Schedule& schedule_;
  const Schedule::Parts& parts_;
  Diagnostics& out_;
  std::vector<Count> sizes_;                              ///< [set]
  std::vector<Count> carried_;                            ///< [split] of all members
  std::vector<char> gathered_;                            ///< [buffer] find_gathered()
  std::map<std::array<std::int32_t, 3>, Count> largest_;  ///< find_largest()
};

}  // namespace detail

/// Adds findings about the sets of parameters that buffers hold and messages carry.
/// @pre check_structure() finds nothing. Complexity: O(parts).
inline void check_parameters(const Schedule& schedule, Diagnostics& out) { detail::ParametersCheck{schedule, out}.run(); }

}  // namespace tawpipe
