// Writes a schedule as JSON, a line for each stage, buffer and task, in pieces of text.
// Not: public; report/schedule_json.hpp is the public interface.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/report/chrome_trace.hpp"  // json_string
#include "tawpipe/report/detail/schedule_json_bodies.hpp"
#include "tawpipe/report/detail/schedule_json_decoder.hpp"
#include "tawpipe/report/detail/schedule_json_defaults.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0::detail {

/// For each rank and lane the tasks in the order of their ids: the default program, which a file
/// need not list. Calls `visit(row, task)`. @pre ids, lanes and groups exist
template <class Visit>
void for_each_program_place(const Schedule::Parts& parts, Visit&& visit) {
  const auto row = [&](Rank rank, int lane) { return index(rank) * parts.lanes.size() + static_cast<std::size_t>(lane); };
  for (std::size_t t = 0; t < parts.tasks.size(); ++t) {
    const Task& task = parts.tasks[t];
    if (is_collective(task.op)) {
      for (const Rank member : parts.groups[index(task.group)]) visit(row(member, number(task.lane)), id<TaskId>(t));
      continue;
    }
    visit(row(task.rank, number(task.lane)), id<TaskId>(t));
    if (is_point_to_point(task.op)) visit(row(task.peer, number(task.peer_lane)), id<TaskId>(t));
  }
}

template <class Sink>
class ScheduleJsonWriter {
 public:
  ScheduleJsonWriter(const Schedule& schedule, Sink& sink) : schedule_{schedule}, parts_{schedule.parts()}, sink_{sink} {}

  void write() {
    check();
    add(R"({{"tawpipe_schedule":2,"name":{})", json_string(parts_.name));
    write_options();
    write_workload();
    add(",\n\"ranks\":{},\"lanes\":[", parts_.ranks);
    for (const auto& lane : parts_.lanes) add("{}{}", &lane == parts_.lanes.data() ? "" : ",", json_string(lane));
    add("]");
    write_layout();
    write_list("stages", parts_.stages.size(), [&](std::size_t s) { write_stage(parts_.stages[s]); });
    if (!parts_.bodies.empty()) {
      write_list("bodies", parts_.bodies.size(), [&](std::size_t s) { write_bodies(parts_.bodies[s], buffer_); });
    }
    if (parts_.groups.size() > 0) {
      write_list("groups", parts_.groups.size(), [&](std::size_t g) { write_ids(parts_.groups[g]); });
    }
    if (parts_.padding > 0) add(",\n\"padding\":{}", parts_.padding);
    if (parts_.pieces.size() > 0) {
      write_list("pieces", parts_.pieces.size(), [&](std::size_t p) { write_ranges(parts_.pieces[p]); });
    }
    if (parts_.splits.size() > 0) {
      write_list("splits", parts_.splits.size(), [&](std::size_t p) { write_ids(parts_.splits[p]); });
    }
    if (parts_.pair_sizes.size() > 0) {
      write_list("pair_sizes", parts_.pair_sizes.size(), [&](std::size_t p) { write_sizes(parts_.pair_sizes[p]); });
    }
    if (!parts_.buffers.empty()) {
      write_list("buffers", parts_.buffers.size(), [&](std::size_t b) { write_buffer(parts_.buffers[b]); });
    }
    write_list("tasks", parts_.tasks.size(), [&](std::size_t t) { write_task(t); });
    if (!parts_.buckets.empty()) {
      write_list("buckets", parts_.buckets.size(),
                 [&](std::size_t b) { add("[{},{}]", number(parts_.buckets[b].message), parts_.buckets[b].layer); });
    }
    if (!has_default_program()) write_program();
    add("}}\n");
    sink_(std::string_view{buffer_});
  }

 private:
  template <class... Values>
  void add(fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(buffer_), format, std::forward<Values>(values)...);
  }
  [[noreturn]] static void fail(std::string_view what, std::size_t at) {
    throw ScheduleError(
        concat("the schedule cannot be written: ", what, " ", at, " does not fit together with the rest; validate it"));
  }

  // ---- inconsistent parts are not written ----

  template <class Id>
  static bool below(Id id, std::size_t count) {
    return number(id) >= 0 && index(id) < count;
  }
  template <class T>
  static void check_rows(std::string_view what, const Rows<T>& rows, std::size_t expected) {
    const auto& begins = rows.begins();
    bool fits = rows.size() == expected && (begins.empty() || (begins.front() == 0 && begins.back() == rows.items().size()));
    for (std::size_t i = 1; i < begins.size(); ++i) fits = fits && begins[i - 1] <= begins[i];
    if (!fits) fail(what, rows.size());
  }
  void check() const {
    const auto ranks = static_cast<std::size_t>(std::max(parts_.ranks, 0));
    if (ranks == 0 || parts_.lanes.empty() || parts_.lanes.size() > 255) fail("the number of ranks or lanes,", ranks);
    check_rows("the list of dependencies,", parts_.dependencies, parts_.tasks.size());
    check_rows("the list of uses,", parts_.uses, parts_.tasks.size());
    check_rows("the list of programs,", parts_.program, ranks * parts_.lanes.size());
    check_rows("the list of groups,", parts_.groups, parts_.groups.size());
    check_rows("the list of sets of parameters,", parts_.pieces, parts_.pieces.size());
    check_rows("the list of splits,", parts_.splits, parts_.splits.size());
    check_rows("the list of sizes,", parts_.pair_sizes, parts_.pair_sizes.size());
    if (!parts_.bodies.empty() && parts_.bodies.size() != parts_.stages.size()) fail("the list of bodies,", parts_.bodies.size());
    for (std::size_t b = 0; b < parts_.buffers.size(); ++b) {
      const Buffer& buffer = parts_.buffers[b];
      const Content& content = buffer.content;
      const bool kind_fits =
          static_cast<int>(content.kind()) < content_kinds && content.microbatch() < schedule_.workload().microbatches();
      const bool stage_fits = content.stage() == none<StageId> || below(content.stage(), parts_.stages.size());
      const bool pieces_fit = content.parameters() == none<PiecesId> || below(content.parameters(), parts_.pieces.size());
      if (!below(buffer.rank, ranks) || !kind_fits || !stage_fits || !pieces_fit || buffer.bytes < Bytes{}) {
        fail("buffer", b);
      }
    }
    for (const PiecesId set : parts_.splits.items()) {
      if (!below(set, parts_.pieces.size())) fail("a split's set", index(set));
    }
    for (const Rank member : parts_.groups.items()) {
      if (!below(member, ranks)) fail("a group's rank", index(member));
    }
    for (const TaskId task : parts_.program.items()) {
      if (!below(task, parts_.tasks.size())) fail("a program's task", index(task));
    }
    for (std::size_t t = 0; t < parts_.tasks.size(); ++t) {
      if (!fits(parts_.tasks[t], ranks)) fail("task", t);
      for (const TaskId earlier : parts_.dependencies[t]) {
        if (!below(earlier, parts_.tasks.size())) fail("task", t);
      }
      for (const Use& use : parts_.uses[t]) {
        if (!below(use.buffer, parts_.buffers.size()) || static_cast<int>(use.access) >= accesses) fail("task", t);
      }
    }
  }
  bool fits(const Task& task, std::size_t ranks) const {
    if (static_cast<int>(task.op) >= ops || static_cast<int>(task.payload) >= payloads || !below(task.rank, ranks)) return false;
    if (is_collective(task.op) ? !below(task.group, parts_.groups.size()) : task.group != none<GroupId>) return false;
    if (is_point_to_point(task.op) ? !below(task.peer, ranks) : task.peer != none<Rank>) return false;
    if (is_local(task.op) ? task.bytes.repeat() != 1 : task.bytes.repeat() < 1) return false;
    if (index(task.lane) >= parts_.lanes.size() || index(task.peer_lane) >= parts_.lanes.size() || task.bytes < Bytes{})
      return false;
    const std::size_t splits = is_all_pairs(task.op) ? parts_.pair_sizes.size() : parts_.splits.size();
    if (task.split != none<SplitId> && (!has_split(task.op) || !below(task.split, splits))) return false;
    return task.stage == none<StageId> || below(task.stage, parts_.stages.size());
  }

  // ---- before the lists ----

  void write_options() {
    if (parts_.options.empty()) return;
    add(R"(,"options":[)");
    for (const auto& option : parts_.options) {
      add("{}[{},{}]", &option == parts_.options.data() ? "" : ",", json_string(option.first), json_string(option.second));
    }
    add("]");
  }

  void write_workload() {
    const Workload& workload = schedule_.workload();
    add(",\n\"workload\":{{");
    if (workload.is_abstract()) {
      // For a single whole stage the share is that of all devices: no other place shows their
      // number.
      add(R"("devices":{},"microbatches":{}}})", workload.split(1)[0].share.numerator, workload.microbatches());
      return;
    }
    write_model(workload.model());
    const Batch& batch = workload.batch();
    add(R"(,"batch":{{"sequence":{},"microbatch_size":{},"global_batch":{}}},"recompute":"{}","devices":{})", batch.sequence,
        batch.microbatch_size, batch.global_batch, name(workload.recompute()),
        workload.stage(0, 1, false, false).share.numerator);
    const ParameterBytes& bytes = workload.parameter_bytes();
    if (bytes != ParameterBytes{}) add(R"(,"parameter_bytes":[{},{},{}])", bytes.weight, bytes.gradient, bytes.optimizer);
    buffer_ += '}';
  }

  /// A model as seen by schedules: its parts' costs and parameters, and its author's named sizes.
  void write_model(const LayerStack& model) {
    add(R"("model":{{"name":{},"layers":{},"dtype":"{}")", json_string(model.name), model.layers, name(model.dtype));
    if (model.tied) add(R"(,"tied":true)");
    if (model.lookup_waits_in_layer) add(R"(,"lookup_waits_in_layer":true)");
    write_names(model.names);
    if (model.experts.count() > 0) add(R"(,"experts":[{},{}])", model.experts.begin, model.experts.end);
    field("keys", model.keys);
    field("token_ids", model.token_ids);
    if (model.utilization > 0) add(R"(,"utilization":{})", model.utilization);
    if (!model.utilization_source.empty()) add(R"(,"utilization_source":{})", json_string(model.utilization_source));
    auto sizes = model.decoder ? sizes_of(*model.decoder) : model.sizes;
    const auto has = [&](std::string_view key) {
      return std::any_of(sizes.begin(), sizes.end(), [&](const auto& size) { return size.first == key; });
    };
    if (!model.decoder && names_decoder(has)) add(R"(,"decoder":false)");
    const char* separator = R"(,"sizes":{)";
    std::sort(sizes.begin(), sizes.end());
    for (const auto& [key, size] : sizes) {
      add("{}{}:{}", separator, json_string(key), size);
      separator = ",";
    }
    if (!sizes.empty()) buffer_ += '}';
    if (model.decoder) write_kinds(*model.decoder, buffer_);
    if (model.recompute_layers > 0) add(R"(,"recompute_layers":{})", model.recompute_layers);
    write_part(",", "embedding", model.first_edge);
    write_part(",", "layer", model.layer);
    if (model.recompute_layers > 0) write_part(",", "kept_layer", model.kept_layer);
    for (std::size_t kind = 0; kind < model.others.size(); ++kind) {
      const LayerWork& other = model.others[kind];
      write_part(kind == 0 ? R"(,"other_layers":[{)" : ",{", "layer", other.layer);
      if (model.recompute_layers > 0) write_part(",", "kept_layer", other.kept_layer);
      if (other.experts.count() > 0) add(R"(,"experts":[{},{}])", other.experts.begin, other.experts.end);
      buffer_ += kind + 1 == model.others.size() ? "}]" : "}";
    }
    for (std::size_t at = 0; at < model.pattern.size();) {  // runs of equal layers
      std::size_t end = at;
      while (end < model.pattern.size() && model.pattern[end] == model.pattern[at]) ++end;
      add("{}[{},{}]", at == 0 ? R"(,"pattern":[)" : ",", model.pattern[at], end - at);
      at = end;
    }
    if (!model.pattern.empty()) buffer_ += ']';
    write_part(",", "head", model.last_edge);
    buffer_ += '}';
  }
  void write_part(std::string_view before, std::string_view key, const StageWork& part) {
    add(R"({}"{}":{{)", before, key);
    const std::size_t begin = buffer_.size();
    for_each_stage_number(part, [&](std::string_view name, const auto& number) {
      if (name != "edge_parameters") field(name, number);
    });
    if (buffer_.size() > begin) buffer_.erase(begin, 1);  // the comma before the first
    buffer_ += '}';
  }

  void write_names(const ParameterNames& names) {
    if (names == ParameterNames{}) return;
    add(R"(,"blocks":[)");
    for (const ParameterBlock& block : names.first_edge) add("[{},{}],", json_string(block.name), block.count);
    add("[{}]", json_string(names.layer));
    for (const ParameterBlock& block : names.last_edge) add(",[{},{}]", json_string(block.name), block.count);
    buffer_ += ']';
  }

  void write_layout() {
    const Mesh& mesh = parts_.mesh;
    if (mesh == Mesh{}) return;
    add(R"(,"layout":{{"tensor":{},"context":{},"data":{},"order":{})", mesh.tensor, mesh.context, mesh.data,
        json_string(mesh_order_text(mesh.order)));
    if (mesh.whole_experts) add(R"(,"expert":{},"whole_experts":true)", mesh.expert);
    buffer_ += '}';
  }

  // ---- lists ----

  template <class Write>
  void write_list(std::string_view key, std::size_t size, Write&& write_item) {
    add(",\n\"{}\":[", key);
    for (std::size_t i = 0; i < size; ++i) {
      buffer_ += i == 0 ? "\n" : ",\n";
      write_item(i);
      if (buffer_.size() > 60'000) {
        sink_(std::string_view{buffer_});
        buffer_.clear();
      }
    }
    buffer_ += ']';
  }
  template <class Ids>
  void write_ids(const Ids& ids) {
    const char* separator = "[";
    for (const auto id : ids) {
      add("{}{}", separator, number(id));
      separator = ",";
    }
    buffer_ += ids.empty() ? "[]" : "]";
  }

  void write_sizes(std::span<const Bytes> sizes) {
    buffer_ += '[';
    for (std::size_t i = 0; i < sizes.size(); ++i) add("{}{}", i == 0 ? "" : ",", sizes[i].value());
    buffer_ += ']';
  }

  void write_ranges(std::span<const ParameterRange> ranges) {
    buffer_ += '[';
    for (std::size_t i = 0; i < ranges.size(); ++i) add("{}[{},{}]", i == 0 ? "" : ",", ranges[i].begin, ranges[i].end);
    buffer_ += ']';
  }

  /// A key and value of an object, unless the value is the default.
  void field(std::string_view key, std::int64_t value, std::int64_t unsaid = 0) {
    if (value != unsaid) add(R"(,"{}":{})", key, value);
  }
  void field(std::string_view key, Bytes value) { field(key, value.value()); }
  void field(std::string_view key, Flops value) {
    if (!std::isfinite(value.value()) || value < Flops{})
      throw ScheduleError(concat("a stage's ", key, " operations are not a number"));
    if (value > Flops{}) add(R"(,"{}":{})", key, value.value());
  }

  void write_stage(const StageWork& stage) {
    add(R"({{"first_layer":{},"layers":{})", stage.first_layer, stage.layers);
    if (stage.first_edge) add(R"(,"embedding":true)");
    if (stage.last_edge) add(R"(,"head":true)");
    add(R"(,"share":[{},{}])", stage.share.numerator, stage.share.denominator);
    for_each_stage_number(stage, [&](std::string_view key, const auto& number) { field(key, number); });
    buffer_ += '}';
  }

  void write_buffer(const Buffer& buffer) {
    const Content& content = buffer.content;
    add(R"({{"rank":{},"kind":"{}","bytes":{})", number(buffer.rank), name(content.kind()), buffer.bytes.value());
    field("stage", number(content.stage()), -1);
    field("pieces", number(content.parameters()), -1);
    field("microbatch", content.microbatch(), -1);
    if (!buffer.persistent) add(R"(,"persistent":false)");
    if (buffer.copy) add(R"(,"copy":true)");
    if (buffer.host) add(R"(,"host":true)");
    buffer_ += '}';
  }

  void write_task(std::size_t t) {
    const Task& task = parts_.tasks[t];
    add(R"({{"op":"{}","rank":{})", name(task.op), number(task.rank));
    if (!is_compute(task.op)) field(is_collective(task.op) ? "group" : "peer", task.partner(), -1);
    const LaneId lane = default_lane(task.op, parts_.lanes.size());
    field("lane", number(task.lane), number(lane));
    field("peer_lane", number(task.peer_lane), is_point_to_point(task.op) ? number(task.lane) : 0);
    if (task.payload != traits(task.op).payload) add(R"(,"payload":"{}")", name(task.payload));
    field("stage", number(task.stage), -1);
    field("microbatch", task.microbatch, -1);
    field("step", task.step, -1);
    field(is_all_pairs(task.op) ? "pair_sizes" : "split", number(task.split), -1);
    field("repeat", task.bytes.repeat(), 1);
    const bool has_bytes = !is_compute(task.op) || task.op == Op::update;  // has a size by default
    if (has_bytes || task.bytes != Bytes{}) add(R"(,"bytes":{})", task.bytes.value());
    const auto after = parts_.dependencies[t];
    if (!after.empty()) {
      buffer_ += R"(,"after":)";
      write_ids(after);
    }
    const char* separator = R"(,"uses":[)";
    for (const Use& use : parts_.uses[t]) {
      add(R"({}{{"{}":{}}})", separator, access_key(use.access), number(use.buffer));
      separator = ",";
    }
    buffer_ += parts_.uses[t].empty() ? "}" : "]}";
  }

  bool has_default_program() const {
    std::vector<std::uint32_t> next(parts_.program.size());
    bool same = true;
    std::size_t places = 0;
    for_each_program_place(parts_, [&](std::size_t row, TaskId task) {
      const auto program = parts_.program[row];
      same = same && next[row] < program.size() && program[next[row]] == task;
      ++next[row];
      ++places;
    });
    return same && places == parts_.program.items().size();
  }

  void write_program() {
    const std::size_t lanes = parts_.lanes.size();
    write_list("program", static_cast<std::size_t>(parts_.ranks), [&](std::size_t rank) {
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        buffer_ += lane == 0 ? "[" : ",";
        write_ids(parts_.program[rank * lanes + lane]);
      }
      buffer_ += ']';
    });
  }

  const Schedule& schedule_;
  const Schedule::Parts& parts_;
  Sink& sink_;
  std::string buffer_;
};

}  // namespace tawpipe::detail
