// Reads a schedule from JSON: strictly, with defaults for values that a hand-written file leaves
// out.
// Not: public; report/schedule_json.hpp is the public interface.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/parse_units.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/json/json_reader.hpp"
#include "tawpipe/report/detail/schedule_json_bodies.hpp"
#include "tawpipe/report/detail/schedule_json_defaults.hpp"
#include "tawpipe/report/detail/schedule_json_parameters.hpp"
#include "tawpipe/report/detail/schedule_json_work.hpp"
#include "tawpipe/report/detail/schedule_json_writer.hpp"  // for_each_program_place
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0::detail {

class ScheduleJsonReader {
 public:
  explicit ScheduleJsonReader(JsonValue root) : root_{root} {}

  /// @throws InputError  with the path of the error.
  Schedule read() {
    root_.only("tawpipe_schedule", "name", "options", "workload", "ranks", "lanes", "stages", "layout", "bodies", "groups",
               "padding", "pieces", "splits", "pair_sizes", "buffers", "tasks", "buckets", "program");
    if (const auto value = root_.find("tawpipe_schedule")) value->whole(1, 2);
    parts_.name = "custom";
    if (const auto value = root_.find("name")) parts_.name = value->label();
    if (const auto value = root_.find("options")) read_options(*value);
    read_sizes();
    if (const auto value = root_.find("layout")) read_layout(*value);
    if (const auto value = root_.find("bodies")) parts_.bodies = read_bodies(*value, parts_);
    read_groups();
    if (const auto value = root_.find("padding")) {
      parts_.padding = value->whole<std::int64_t>(0, workload_->is_abstract() ? 0 : max_json_parameters);
    }
    parameters_.read_lists(root_, *workload_, parts_);
    if (const auto lists = root_.find("pair_sizes")) {
      for (const JsonValue sizes : *lists) add_sizes(sizes);
    }
    read_buffers();
    read_tasks(root_.at("tasks"));
    if (const auto value = root_.find("buckets")) parts_.buckets = read_buckets(*value, parts_);
    parts_.dependencies = Rows<TaskId>{std::move(after_begin_), std::move(after_)};
    parts_.uses = Rows<Use>{std::move(use_begin_), std::move(uses_)};
    parts_.groups = Rows<Rank>{std::move(group_begin_), std::move(group_members_)};
    parts_.pair_sizes = Rows<Bytes>{std::move(size_begin_), std::move(sizes_)};
    parameters_.finish(parts_);
    if (const auto program = root_.find("program")) {
      read_program(*program);
    } else {
      default_program();
    }
    return Schedule{std::move(*workload_), std::move(parts_)};
  }

 private:
  /// Pairs in order, as written by the writer; or an object, whose order is lost.
  void read_options(JsonValue value) {
    if (value.is_object()) {
      for (const auto& [key, option] : value.members()) parts_.options.emplace_back(key, option.label());
      return;
    }
    if (!value.is_list()) value.expected("an object {...} or a list of pairs");
    for (const JsonValue pair : value) {
      pair.of_size(2, "an option and its value, such as [\"overlap\", \"on\"]");
      parts_.options.emplace_back(pair[0].label(), pair[1].label());
    }
  }

  // ---- sizes ----

  /// The largest number under `key` in each object of a list, or in each element if there is no
  /// key; -1 if there is none.
  std::int64_t largest(std::string_view list, std::string_view key, std::int64_t limit) const {
    std::int64_t found = -1;
    const auto look = [&](JsonValue value) { found = std::max(found, value.whole<std::int64_t>(0, limit - 1)); };
    const auto items = root_.find(list);
    if (!items) return found;
    for (const JsonValue item : *items) {
      const auto value = key.empty() ? item : item.find(key);
      if (value && value->is_list()) {
        for (const JsonValue member : *value) look(member);
      } else if (value && key != "group") {  // a group's number does not imply ranks
        look(*value);
      }
    }
    return found;
  }

  void read_sizes() {
    std::int64_t ranks = 1;
    if (const auto value = root_.find("ranks")) {
      ranks = value->whole<std::int64_t>(1, max_json_ranks);
    } else {
      for (const auto& [list, key] :
           {std::pair{"tasks", "rank"}, {"tasks", "peer"}, {"tasks", "group"}, {"groups", ""}, {"buffers", "rank"}}) {
        ranks = std::max(ranks, largest(list, key, max_json_ranks) + 1);
      }
    }
    parts_.ranks = static_cast<int>(ranks);
    parts_.lanes = {"compute", "communication"};
    if (const auto value = root_.find("lanes")) read_lanes(*value);
    if (ranks * static_cast<std::int64_t>(parts_.lanes.size()) > max_json_programs) {
      root_.fail(concat(ranks, " ranks with ", parts_.lanes.size(), " lanes each are too many"));
    }
    if (const auto value = root_.find("workload")) {
      workload_ = read_workload(*value, parts_.ranks);
    } else {
      workload_ =
          Workload::abstract(parts_.ranks, std::max<std::int64_t>(largest("tasks", "microbatch", max_json_microbatches) + 1, 1));
    }
    if (const auto value = root_.find("stages")) {
      parts_.stages = read_stages(*value, *workload_);
    } else {
      const auto last = std::max(largest("tasks", "stage", max_json_stages), largest("buffers", "stage", max_json_stages));
      parts_.stages = workload_->split(static_cast<int>(std::max<std::int64_t>(last + 1, 1)));
    }
  }

  void read_lanes(JsonValue value) {
    if (value.size() < 1 || std::cmp_greater(value.size(), max_json_lanes)) {
      value.fail(concat("expected 1 to ", max_json_lanes, " names"));
    }
    parts_.lanes.clear();
    for (const JsonValue lane : value) {
      const bool twice = std::find(parts_.lanes.begin(), parts_.lanes.end(), lane.text()) != parts_.lanes.end();
      if (twice) lane.fail(concat(quote(lane.text().substr(0, 40)), " stands twice"));
      parts_.lanes.push_back(lane.label());
    }
  }

  void read_layout(JsonValue value) {
    value.only("tensor", "context", "expert", "data", "whole_experts", "order");
    const auto read = [&](std::string_view key, int& size) {
      if (const auto number = value.find(key)) size = number->whole<int>(1, max_json_ranks);
    };
    read("tensor", parts_.mesh.tensor);
    read("context", parts_.mesh.context);
    read("expert", parts_.mesh.expert);
    read("data", parts_.mesh.data);
    if (const auto whole = value.find("whole_experts")) parts_.mesh.whole_experts = whole->boolean();
    try {
      if (const auto order = value.find("order")) parts_.mesh.order = parse_mesh_order(order->text());
      parts_.mesh = parts_.mesh.over(parts_.ranks);
    } catch (const InputError& error) {
      value.fail(error.what());
    }
  }

  // ---- groups and buffers ----

  /// Ranks in order; the same ranks written in a task are the same group.
  GroupId add_group(JsonValue value) {
    std::vector<Rank> members;
    if (value.size() == 0) value.fail("a group has at least one rank");
    for (const JsonValue rank : value) members.push_back(Rank{rank.id(rank_count(), "rank")});
    group_members_.insert(group_members_.end(), members.begin(), members.end());
    group_begin_.push_back(static_cast<std::uint32_t>(group_members_.size()));
    const GroupId added = id<GroupId>(group_begin_.size() - 2);
    group_ids_.try_emplace(std::move(members), added);
    return added;
  }
  GroupId read_group(JsonValue value) {
    if (!value.is_list()) return GroupId{value.id(group_begin_.size() - 1, "group")};
    std::vector<Rank> members;
    for (const JsonValue rank : value) members.push_back(Rank{rank.id(rank_count(), "rank")});
    const auto found = group_ids_.find(members);
    return found != group_ids_.end() ? found->second : add_group(value);
  }
  void read_groups() {
    const auto groups = root_.find("groups");
    if (!groups) return;
    for (const JsonValue group : *groups) add_group(group);
  }

  SplitId add_sizes(JsonValue value) {
    for (const JsonValue size : value) sizes_.push_back(read_bytes(size));
    size_begin_.push_back(static_cast<std::uint32_t>(sizes_.size()));
    return id<SplitId>(size_begin_.size() - 2);
  }

  void read_buffers() {
    const auto buffers = root_.find("buffers");
    if (!buffers) return;
    for (const JsonValue item : *buffers) {
      item.only("name", "rank", "kind", "bytes", "stage", "pieces", "microbatch", "persistent", "copy", "host");
      Buffer buffer;
      buffer.rank = Rank{item.at("rank").id(rank_count(), "rank")};
      buffer.content = read_content(item);
      buffer.bytes = read_bytes(item.at("bytes"));
      if (const auto persistent = item.find("persistent")) buffer.persistent = persistent->boolean();
      if (const auto copy = item.find("copy")) buffer.copy = copy->boolean();
      if (const auto host = item.find("host")) buffer.host = host->boolean();
      if (const auto name = item.find("name")) add_name(buffer_names_, *name, parts_.buffers.size());
      parts_.buffers.push_back(buffer);
    }
  }

  Content read_content(JsonValue item) {
    const auto kind = item.at("kind").enumerator<ContentKind>(content_kinds, "kind");
    const auto in_stage = item.find("stage");
    const StageId stage = in_stage ? read_stage_id(*in_stage) : none<StageId>;
    const auto unfit = [&](std::string_view key, bool fits) {
      if (!fits && item.has(key)) item.fail(concat("a buffer of kind ", quote(name(kind)), " has no ", quote(key)));
    };
    unfit("pieces", is_of_parameters(kind));
    unfit("microbatch", is_of_microbatch(kind));
    if (is_of_parameters(kind)) {
      const auto pieces = item.find("pieces");
      return {kind, stage, pieces ? parameters_.read_pieces(*pieces) : none<PiecesId>};
    }
    const auto microbatch = item.find("microbatch");
    const auto microbatches = static_cast<std::size_t>(workload_->microbatches());
    return {kind, stage, microbatch ? microbatch->id(microbatches, "microbatch") : -1};
  }

  // ---- names ----

  using Names = std::map<std::string_view, std::int32_t>;  // texts of root_

  static void add_name(Names& names, JsonValue value, std::size_t item) {
    const auto [at, added] = names.try_emplace(value.text(), static_cast<std::int32_t>(item));
    if (!added) value.fail(concat(quote(value.text().substr(0, 40)), " is the name of number ", at->second, " already"));
  }
  /// A number, or a name.
  static std::int32_t refer(const Names& names, JsonValue value, std::size_t count, std::string_view what) {
    if (!value.is_text()) return value.id(count, what);
    const auto found = names.find(value.text());
    if (found == names.end()) value.fail(concat("there is no ", what, " named ", quote(value.text().substr(0, 40))));
    return found->second;
  }

  // ---- tasks ----

  std::size_t rank_count() const { return static_cast<std::size_t>(parts_.ranks); }
  StageId read_stage_id(JsonValue value) const { return StageId{value.id(parts_.stages.size(), "stage")}; }
  LaneId read_lane(JsonValue value) const {
    if (!value.is_text()) return id<LaneId>(value.id(parts_.lanes.size(), "lane"));
    const auto found = std::find(parts_.lanes.begin(), parts_.lanes.end(), value.text());
    if (found == parts_.lanes.end()) value.fail(unknown_name("lane", value.text().substr(0, 40), parts_.lanes));
    return id<LaneId>(found - parts_.lanes.begin());
  }

  void read_tasks(JsonValue tasks) {
    task_count_ = tasks.size();
    std::size_t t = 0;
    for (const JsonValue task : tasks) {  // names first, so that a task may wait for a later one's
      task.only("name", "op", "rank", "peer", "group", "lane", "peer_lane", "payload", "stage", "microbatch", "step", "bytes",
                "after", "uses", "split", "repeat", "pair_sizes");
      if (const auto name = task.find("name")) add_name(task_names_, *name, t);
      ++t;
    }
    parts_.tasks.reserve(task_count_);
    for (const JsonValue task : tasks) read_task(task);
  }

  void read_task(JsonValue value) {
    Task task;
    task.op = value.at("op").enumerator<Op>(ops, "op");
    const auto unfit = [&](std::string_view key, bool fits) {
      if (!fits && value.has(key)) value.fail(concat("a ", name(task.op), " has no ", quote(key)));
    };
    unfit("peer", is_point_to_point(task.op));
    unfit("peer_lane", is_point_to_point(task.op));
    unfit("group", is_collective(task.op));
    unfit("split", has_split(task.op) && !is_all_pairs(task.op));
    unfit("pair_sizes", is_all_pairs(task.op));
    unfit("repeat", !is_local(task.op));
    if (is_collective(task.op)) {
      task.group = read_group(value.at("group"));
      task.rank = group_members_[group_begin_[index(task.group)]];
      if (const auto rank = value.find("rank")) task.rank = Rank{rank->id(rank_count(), "rank")};
    } else {
      task.rank = Rank{value.at("rank").id(rank_count(), "rank")};
    }
    task.lane = default_lane(task.op, parts_.lanes.size());
    if (const auto lane = value.find("lane")) task.lane = read_lane(*lane);
    if (is_point_to_point(task.op)) {
      task.peer = Rank{value.at("peer").id(rank_count(), "rank")};
      task.peer_lane = task.lane;
      if (const auto lane = value.find("peer_lane")) task.peer_lane = read_lane(*lane);
    }
    task.payload = traits(task.op).payload;
    if (const auto payload = value.find("payload")) task.payload = payload->enumerator<Payload>(payloads, "payload");
    if (const auto stage = value.find("stage")) task.stage = read_stage_id(*stage);
    if (const auto microbatch = value.find("microbatch")) {
      task.microbatch = microbatch->id(static_cast<std::size_t>(workload_->microbatches()), "microbatch");
    }
    if (const auto split = value.find("split")) {
      const bool each = has_own_parts(task.op);
      const std::size_t group = each ? index(task.group) : 0;
      task.split = parameters_.read_split(*split, each ? group_begin_[group + 1] - group_begin_[group] : 1);
    }
    if (const auto sizes = value.find("pair_sizes")) {
      task.split = sizes->is_list() ? add_sizes(*sizes) : SplitId{sizes->id(size_begin_.size() - 1, "list of sizes")};
    }
    if (const auto step = value.find("step")) task.step = step->whole<std::int32_t>(0, max_json_microbatches);
    const auto size = value.find("bytes");
    const Bytes bytes = size ? read_bytes(*size) : default_bytes(task, parts_.stages, *workload_);
    if (bytes > max_json_message) value.fail(concat("a message has at most ", max_json_message.value(), " bytes"));
    const auto repeat = value.find("repeat");
    task.bytes = {bytes, repeat ? repeat->whole<std::int32_t>(1, Messages::max_repeat) : 1};
    read_after(value);
    read_uses(value);
    parts_.tasks.push_back(task);
  }

  void read_after(JsonValue task) {
    const auto add = [&](JsonValue earlier) { after_.push_back(TaskId{refer(task_names_, earlier, task_count_, "task")}); };
    const auto after = task.find("after");
    if (after && !after->is_list()) {
      add(*after);  // a single one, without brackets
    } else if (after) {
      for (const JsonValue earlier : *after) add(earlier);
    }
    after_begin_.push_back(static_cast<std::uint32_t>(after_.size()));
  }

  void read_uses(JsonValue task) {
    if (const auto uses = task.find("uses")) {
      for (const JsonValue use : *uses) {
        use.only(access_key(Access::read), access_key(Access::write), access_key(Access::read_write),
                 access_key(Access::accumulate));
        if (use.members().size() != 1) use.fail("expected one access with its buffer, such as {\"read\": 0}");
        for (int a = 0; a < accesses; ++a) {
          const auto access = static_cast<Access>(a);
          if (const auto buffer = use.find(access_key(access))) {
            uses_.push_back({BufferId{refer(buffer_names_, *buffer, parts_.buffers.size(), "buffer")}, access});
          }
        }
      }
    }
    use_begin_.push_back(static_cast<std::uint32_t>(uses_.size()));
  }

  // ---- the order of each lane ----

  void default_program() {
    std::vector<std::uint32_t> begin(rank_count() * parts_.lanes.size() + 1);
    std::size_t items = 0;
    for_each_program_place(parts_, [&](std::size_t row, TaskId) {
      ++begin[row + 1];
      if (++items > max_json_program_items)
        root_.at("tasks").fail(concat("the tasks have more than ", max_json_program_items, " ends"));
    });
    for (std::size_t row = 1; row < begin.size(); ++row) begin[row] += begin[row - 1];
    std::vector<std::uint32_t> next(begin.begin(), begin.end() - 1);
    std::vector<TaskId> tasks(begin.back());
    for_each_program_place(parts_, [&](std::size_t row, TaskId task) { tasks[next[row]++] = task; });
    parts_.program = Rows<TaskId>{std::move(begin), std::move(tasks)};
  }

  void read_program(JsonValue value) {
    value.of_size(rank_count(), concat("a list for each of the ", parts_.ranks, " ranks"));
    std::vector<std::uint32_t> begin{0};
    std::vector<TaskId> tasks;
    for (const JsonValue rank : value) {
      for (const JsonValue lane :
           rank.of_size(parts_.lanes.size(), concat("a list for each of the ", parts_.lanes.size(), " lanes"))) {
        for (const JsonValue task : lane) tasks.push_back(TaskId{refer(task_names_, task, task_count_, "task")});
        begin.push_back(static_cast<std::uint32_t>(tasks.size()));
      }
    }
    parts_.program = Rows<TaskId>{std::move(begin), std::move(tasks)};
  }

  JsonValue root_;
  Schedule::Parts parts_;
  std::optional<Workload> workload_;
  std::size_t task_count_ = 0;
  Names task_names_;
  Names buffer_names_;
  ParameterSetsReader parameters_;
  std::map<std::vector<Rank>, GroupId> group_ids_;
  std::vector<std::uint32_t> group_begin_{0};
  std::vector<std::uint32_t> size_begin_{0};
  std::vector<Bytes> sizes_;  ///< of pairs
  std::vector<Rank> group_members_;
  std::vector<std::uint32_t> after_begin_{0};
  std::vector<TaskId> after_;
  std::vector<std::uint32_t> use_begin_{0};
  std::vector<Use> uses_;
};

}  // namespace tawpipe::detail
