// Reads a schedule from JSON: strictly, with defaults for what a hand-written file leaves out.
// Not: public; report/schedule_json.hpp is the door.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/parse_units.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/report/detail/json_reader.hpp"
#include "tawpipe/report/detail/schedule_json_defaults.hpp"
#include "tawpipe/report/detail/schedule_json_parameters.hpp"
#include "tawpipe/report/detail/schedule_json_work.hpp"
#include "tawpipe/report/detail/schedule_json_writer.hpp"  // for_each_program_place
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0::detail {

class ScheduleJsonReader {
 public:
  explicit ScheduleJsonReader(const nlohmann::json& json) : root_{json, top_} {}
  ScheduleJsonReader(const ScheduleJsonReader&) = delete;  // root_ refers to top_
  ScheduleJsonReader& operator=(const ScheduleJsonReader&) = delete;

  /// @throws InputError  with the path of what is wrong.
  Schedule read() {
    static constexpr std::string_view keys[] = {
        "tawpipe_schedule", "name",   "options", "workload", "ranks",   "lanes", "stages",
        "layout",           "groups", "pieces",  "splits",   "buffers", "tasks", "program"};
    root_.expect_object(keys);
    root_.if_has("tawpipe_schedule", [](JsonValue value) { value.whole(1, 1); });
    parts_.name = "custom";
    root_.if_has("name", [&](JsonValue value) { parts_.name = value.text(); });
    root_.if_has("options", [&](JsonValue value) { read_options(value); });
    read_sizes();
    root_.if_has("layout", [&](JsonValue value) { read_layout(value); });
    read_groups();
    parameters_.read_lists(root_, *workload_, parts_);
    read_buffers();
    root_.with("tasks", [&](JsonValue tasks) { read_tasks(tasks); });
    parts_.dependencies = Rows<TaskId>{std::move(after_begin_), std::move(after_)};
    parts_.uses = Rows<Use>{std::move(use_begin_), std::move(uses_)};
    parts_.groups = Rows<Rank>{std::move(group_begin_), std::move(group_members_)};
    parameters_.finish(parts_);
    if (!root_.if_has("program", [&](JsonValue value) { read_program(value); })) default_program();
    return Schedule{std::move(*workload_), std::move(parts_)};
  }

 private:
  /// Pairs in order, as the writer leaves them; or an object, whose order is lost.
  void read_options(JsonValue value) {
    if (value.is_list()) {
      value.for_each([&](JsonValue pair, std::size_t) {
        if (pair.list_size() != 2) pair.fail("expected an option and its value, such as [\"overlap\", \"on\"]");
        std::string texts[2];
        pair.for_each([&](JsonValue text, std::size_t i) { texts[i] = text.text(); });
        parts_.options.emplace_back(std::move(texts[0]), std::move(texts[1]));
      });
      return;
    }
    if (!value.json().is_object()) value.fail(concat("expected an object {...} or a list of pairs, not ", shown(value.json())));
    for (const auto& item : value.json().items()) {
      const JsonPath path{value.path(), item.key()};
      parts_.options.emplace_back(item.key(), JsonValue{item.value(), path}.text());
    }
  }

  // ---- how much there is of everything ----

  /// Calls `visit(value)` for what stands under `key` in each object of a list, or for each element if there is no key.
  template <class Visit>
  void scan(std::string_view list, std::string_view key, Visit&& visit) const {
    const auto items = root_.json().find(list);
    if (items == root_.json().end() || !items->is_array()) return;
    for (const auto& item : *items) {
      if (key.empty()) visit(item);
      if (key.empty() || !item.is_object()) continue;
      if (const auto value = item.find(key); value != item.end()) visit(*value);
    }
  }
  /// The largest number there, or -1. What is no such number is left for its reader to refuse.
  std::int64_t largest(std::string_view list, std::string_view key, std::int64_t limit) const {
    std::int64_t found = -1;
    const auto look = [&](const nlohmann::json& value) {
      if (!value.is_number_unsigned() || value.get<std::uint64_t>() >= static_cast<std::uint64_t>(limit)) return;
      found = std::max(found, value.get<std::int64_t>());
    };
    scan(list, key, [&](const nlohmann::json& value) {
      const bool members = value.is_array();
      if (members) {
        for (const auto& member : value) look(member);
      }
      if (!members && key != "group") look(value);  // a group's number says nothing of ranks
    });
    return found;
  }

  void read_sizes() {
    std::int64_t ranks = 1;
    if (!root_.if_has("ranks", [&](JsonValue value) { ranks = value.whole(1, max_json_ranks); })) {
      for (const auto& [list, key] :
           {std::pair{"tasks", "rank"}, {"tasks", "peer"}, {"tasks", "group"}, {"groups", ""}, {"buffers", "rank"}}) {
        ranks = std::max(ranks, largest(list, key, max_json_ranks) + 1);
      }
    }
    parts_.ranks = static_cast<int>(ranks);
    parts_.lanes = {"compute", "communication"};
    root_.if_has("lanes", [&](JsonValue value) { read_lanes(value); });
    if (ranks * static_cast<std::int64_t>(parts_.lanes.size()) > max_json_programs) {
      throw InputError(concat(ranks, " ranks with ", parts_.lanes.size(), " lanes each are too many"));
    }
    if (!root_.if_has("workload", [&](JsonValue value) { workload_ = read_workload(value, parts_.ranks); })) {
      workload_ =
          Workload::abstract(parts_.ranks, std::max<std::int64_t>(largest("tasks", "microbatch", max_json_microbatches) + 1, 1));
    }
    if (!root_.if_has("stages", [&](JsonValue value) { parts_.stages = read_stages(value, *workload_); })) {
      const auto last = std::max(largest("tasks", "stage", max_json_stages), largest("buffers", "stage", max_json_stages));
      parts_.stages = workload_->split(static_cast<int>(std::max<std::int64_t>(last + 1, 1)));
    }
  }

  void read_lanes(JsonValue value) {
    const std::size_t count = value.list_size();
    if (count < 1 || count > static_cast<std::size_t>(max_json_lanes))
      value.fail(concat("expected 1 to ", max_json_lanes, " names"));
    parts_.lanes.clear();
    value.for_each([&](JsonValue lane, std::size_t) {
      const bool twice = std::find(parts_.lanes.begin(), parts_.lanes.end(), lane.text()) != parts_.lanes.end();
      if (twice) lane.fail(concat(quote(lane.text().substr(0, 40)), " stands twice"));
      parts_.lanes.push_back(lane.text());
    });
  }

  void read_layout(JsonValue value) {
    static constexpr std::string_view keys[] = {"tensor", "context", "data", "order"};
    value.expect_object(keys);
    const auto read = [&](std::string_view key, int& size) {
      value.if_has(key, [&](JsonValue number) { size = static_cast<int>(number.whole(1, max_json_ranks)); });
    };
    read("tensor", parts_.layout.tensor);
    read("context", parts_.layout.context);
    read("data", parts_.layout.data);
    value.if_has("order", [&](JsonValue order) { parts_.layout.order = order.text(); });
    try {
      RankMap{parts_.layout, parts_.ranks};
    } catch (const InputError& error) {
      value.fail(error.what());
    }
  }

  // ---- groups and buffers ----

  /// Ranks in order; the same ranks written in a task are the same group.
  GroupId add_group(JsonValue value) {
    std::vector<Rank> members;
    if (value.list_size() == 0) value.fail("a group has at least one rank");
    value.for_each([&](JsonValue rank, std::size_t) { members.push_back(Rank{rank.id(rank_count(), "rank")}); });
    group_members_.insert(group_members_.end(), members.begin(), members.end());
    group_begin_.push_back(static_cast<std::uint32_t>(group_members_.size()));
    const GroupId added = id<GroupId>(group_begin_.size() - 2);
    group_ids_.try_emplace(std::move(members), added);
    return added;
  }
  GroupId read_group(JsonValue value) {
    if (!value.is_list()) return GroupId{value.id(group_begin_.size() - 1, "group")};
    std::vector<Rank> members;
    value.for_each([&](JsonValue rank, std::size_t) { members.push_back(Rank{rank.id(rank_count(), "rank")}); });
    const auto found = group_ids_.find(members);
    return found != group_ids_.end() ? found->second : add_group(value);
  }
  void read_groups() {
    root_.if_has("groups", [&](JsonValue value) { value.for_each([&](JsonValue group, std::size_t) { add_group(group); }); });
  }

  void read_buffers() {
    static constexpr std::string_view keys[] = {"name",   "rank",       "kind",       "bytes", "stage",
                                                "pieces", "microbatch", "persistent", "copy"};
    root_.if_has("buffers", [&](JsonValue value) {
      value.for_each([&](JsonValue item, std::size_t b) {
        item.expect_object(keys);
        Buffer buffer;
        item.with("rank", [&](JsonValue rank) { buffer.rank = Rank{rank.id(rank_count(), "rank")}; });
        buffer.content = read_content(item);
        item.with("bytes", [&](JsonValue bytes) { buffer.bytes = read_bytes(bytes); });
        item.if_has("persistent", [&](JsonValue persistent) { buffer.persistent = persistent.boolean(); });
        item.if_has("copy", [&](JsonValue copy) { buffer.copy = copy.boolean(); });
        item.if_has("name", [&](JsonValue name) { add_name(buffer_names_, name, b); });
        parts_.buffers.push_back(buffer);
      });
    });
  }

  Content read_content(JsonValue item) {
    ContentKind kind{};
    StageId stage = none<StageId>;
    item.with("kind", [&](JsonValue value) { kind = value.enumerator<ContentKind>(content_kinds, "kind"); });
    item.if_has("stage", [&](JsonValue value) { stage = read_stage_id(value); });
    const auto unfit = [&](std::string_view key, bool fits) {
      if (!fits && item.has(key)) item.fail(concat("a buffer of kind ", quote(name(kind)), " has no ", quote(key)));
    };
    unfit("pieces", is_of_parameters(kind));
    unfit("microbatch", is_of_microbatch(kind));
    if (is_of_parameters(kind)) {
      PiecesId set = none<PiecesId>;
      item.if_has("pieces", [&](JsonValue pieces) { set = parameters_.read_pieces(pieces); });
      return {kind, stage, set};
    }
    std::int32_t microbatch = -1;
    item.if_has("microbatch", [&](JsonValue value) {
      microbatch = value.id(static_cast<std::size_t>(workload_->microbatches()), "microbatch");
    });
    return {kind, stage, microbatch};
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
  std::uint8_t read_lane(JsonValue value) const {
    if (!value.is_text()) return static_cast<std::uint8_t>(value.id(parts_.lanes.size(), "lane"));
    const auto found = std::find(parts_.lanes.begin(), parts_.lanes.end(), value.text());
    if (found == parts_.lanes.end()) value.fail(unknown_name("lane", value.text().substr(0, 40), parts_.lanes));
    return static_cast<std::uint8_t>(found - parts_.lanes.begin());
  }

  void read_tasks(JsonValue tasks) {
    static constexpr std::string_view keys[] = {"name",  "op",         "rank", "peer",  "group", "lane", "peer_lane", "payload",
                                                "stage", "microbatch", "step", "bytes", "after", "uses", "split",     "repeat"};
    task_count_ = tasks.list_size();
    tasks.for_each([&](JsonValue task, std::size_t t) {  // names first, so that a task may wait for a later one's
      task.expect_object(keys);
      task.if_has("name", [&](JsonValue name) { add_name(task_names_, name, t); });
    });
    parts_.tasks.reserve(task_count_);
    tasks.for_each([&](JsonValue task, std::size_t) { read_task(task); });
  }

  void read_task(JsonValue value) {
    Task task;
    value.with("op", [&](JsonValue op) { task.op = op.enumerator<Op>(ops, "op"); });
    const auto unfit = [&](std::string_view key, bool fits) {
      if (!fits && value.has(key)) value.fail(concat("a ", name(task.op), " has no ", quote(key)));
    };
    unfit("peer", is_point_to_point(task.op));
    unfit("peer_lane", is_point_to_point(task.op));
    unfit("group", is_collective(task.op));
    unfit("split", has_split(task.op));
    unfit("repeat", !is_compute(task.op));
    if (is_collective(task.op)) {
      value.with("group", [&](JsonValue group) { task.group = read_group(group); });
      task.rank = group_members_[group_begin_[index(task.group)]];
      value.if_has("rank", [&](JsonValue rank) { task.rank = Rank{rank.id(rank_count(), "rank")}; });
    } else {
      value.with("rank", [&](JsonValue rank) { task.rank = Rank{rank.id(rank_count(), "rank")}; });
    }
    task.lane = default_lane(task.op, parts_.lanes.size());
    value.if_has("lane", [&](JsonValue lane) { task.lane = read_lane(lane); });
    if (is_point_to_point(task.op)) {
      value.with("peer", [&](JsonValue rank) { task.peer = Rank{rank.id(rank_count(), "rank")}; });
      task.peer_lane = task.lane;
      value.if_has("peer_lane", [&](JsonValue lane) { task.peer_lane = read_lane(lane); });
    }
    task.payload = traits(task.op).payload;
    value.if_has("payload", [&](JsonValue payload) { task.payload = payload.enumerator<Payload>(payloads, "payload"); });
    value.if_has("stage", [&](JsonValue stage) { task.stage = read_stage_id(stage); });
    value.if_has("microbatch", [&](JsonValue microbatch) {
      task.microbatch = microbatch.id(static_cast<std::size_t>(workload_->microbatches()), "microbatch");
    });
    value.if_has("split", [&](JsonValue split) {
      const bool each = task.op == Op::all_gather || task.op == Op::reduce_scatter;
      const std::size_t group = each ? index(task.group) : 0;
      task.split = parameters_.read_split(split, each ? group_begin_[group + 1] - group_begin_[group] : 1);
    });
    value.if_has("step", [&](JsonValue step) { task.step = static_cast<std::int32_t>(step.whole(0, max_json_microbatches)); });
    Bytes bytes;
    if (!value.if_has("bytes", [&](JsonValue size) { bytes = read_bytes(size); })) {
      bytes = default_bytes(task, parts_.stages, *workload_);
    }
    std::int32_t repeat = 1;
    value.if_has("repeat", [&](JsonValue times) { repeat = static_cast<std::int32_t>(times.whole(1, Messages::max_repeat)); });
    if (bytes > max_json_message) value.fail(concat("a message has at most ", max_json_message.value(), " bytes"));
    task.bytes = {bytes, repeat};
    read_after(value);
    read_uses(value);
    parts_.tasks.push_back(task);
  }

  void read_after(JsonValue task) {
    task.if_has("after", [&](JsonValue value) {
      const auto add = [&](JsonValue earlier) { after_.push_back(TaskId{refer(task_names_, earlier, task_count_, "task")}); };
      if (!value.is_list()) return add(value);  // one, without brackets
      value.for_each([&](JsonValue earlier, std::size_t) { add(earlier); });
    });
    after_begin_.push_back(static_cast<std::uint32_t>(after_.size()));
  }

  void read_uses(JsonValue task) {
    static constexpr std::string_view keys[] = {access_key(Access::read), access_key(Access::write),
                                                access_key(Access::read_write), access_key(Access::accumulate)};
    task.if_has("uses", [&](JsonValue value) {
      value.for_each([&](JsonValue use, std::size_t) {
        use.expect_object(keys);
        if (use.json().size() != 1) use.fail("expected one access with its buffer, such as {\"read\": 0}");
        for (int a = 0; a < accesses; ++a) {
          const auto access = static_cast<Access>(a);
          use.if_has(access_key(access), [&](JsonValue buffer) {
            uses_.push_back({BufferId{refer(buffer_names_, buffer, parts_.buffers.size(), "buffer")}, access});
          });
        }
      });
    });
    use_begin_.push_back(static_cast<std::uint32_t>(uses_.size()));
  }

  // ---- the order of each lane ----

  void default_program() {
    std::vector<std::uint32_t> begin(rank_count() * parts_.lanes.size() + 1);
    std::size_t items = 0;
    for_each_program_place(parts_, [&](std::size_t row, TaskId) {
      ++begin[row + 1];
      if (++items > max_json_program_items)
        throw InputError(concat("the tasks have more than ", max_json_program_items, " ends"));
    });
    for (std::size_t row = 1; row < begin.size(); ++row) begin[row] += begin[row - 1];
    std::vector<std::uint32_t> next(begin.begin(), begin.end() - 1);
    std::vector<TaskId> tasks(begin.back());
    for_each_program_place(parts_, [&](std::size_t row, TaskId task) { tasks[next[row]++] = task; });
    parts_.program = Rows<TaskId>{std::move(begin), std::move(tasks)};
  }

  void read_program(JsonValue value) {
    if (value.list_size() != rank_count()) value.fail(concat("expected a list for each of the ", parts_.ranks, " ranks"));
    std::vector<std::uint32_t> begin{0};
    std::vector<TaskId> tasks;
    value.for_each([&](JsonValue rank, std::size_t) {
      if (rank.list_size() != parts_.lanes.size())
        rank.fail(concat("expected a list for each of the ", parts_.lanes.size(), " lanes"));
      rank.for_each([&](JsonValue lane, std::size_t) {
        lane.for_each(
            [&](JsonValue task, std::size_t) { tasks.push_back(TaskId{refer(task_names_, task, task_count_, "task")}); });
        begin.push_back(static_cast<std::uint32_t>(tasks.size()));
      });
    });
    parts_.program = Rows<TaskId>{std::move(begin), std::move(tasks)};
  }

  JsonPath top_;
  JsonValue root_;
  Schedule::Parts parts_;
  std::optional<Workload> workload_;
  std::size_t task_count_ = 0;
  Names task_names_;
  Names buffer_names_;
  ParameterSetsReader parameters_;
  std::map<std::vector<Rank>, GroupId> group_ids_;
  std::vector<std::uint32_t> group_begin_{0};
  std::vector<Rank> group_members_;
  std::vector<std::uint32_t> after_begin_{0};
  std::vector<TaskId> after_;
  std::vector<std::uint32_t> use_begin_{0};
  std::vector<Use> uses_;
};

}  // namespace tawpipe::detail
