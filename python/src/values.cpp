// Clusters, models, requests, schedules and timelines for Python.
#include "values.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "commands/exchange.hpp"
#include "convert.hpp"
#include "tawpipe/answers/job_question.hpp"
#include "tawpipe/model/huggingface_config.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/report/findings_json.hpp"
#include "tawpipe/report/pytorch_pipeline.hpp"
#include "tawpipe/report/schedule_json.hpp"
#include "tawpipe/topology/cluster_file.hpp"
#include "tawpipe/topology/clusters.hpp"
#include "tawpipe/verify/validate.hpp"

namespace tawpipe::python {

namespace {

using namespace nb::literals;

/// numpy.dtype of Task: its fields by name, where they lie in its 40 bytes. `messages` holds a size
/// and a count (Messages).
nb::object task_dtype() {
  static_assert(std::is_standard_layout_v<Task>);
  nb::list names;
  nb::list formats;
  nb::list offsets;
  const auto field = [&](const char* name, const char* format, std::size_t offset) {
    names.append(name);
    formats.append(format);
    offsets.append(offset);
  };
  field("op", "u1", offsetof(Task, op));
  field("payload", "u1", offsetof(Task, payload));
  field("lane", "u1", offsetof(Task, lane));
  field("peer_lane", "u1", offsetof(Task, peer_lane));
  field("rank", "i4", offsetof(Task, rank));
  field("peer", "i4", offsetof(Task, peer));
  field("group", "i4", offsetof(Task, group));
  field("stage", "i4", offsetof(Task, stage));
  field("microbatch", "i4", offsetof(Task, microbatch));
  field("step", "i4", offsetof(Task, step));
  field("split", "i4", offsetof(Task, split));
  field("messages", "i8", offsetof(Task, bytes));
  nb::dict layout;
  layout["names"] = names;
  layout["formats"] = formats;
  layout["offsets"] = offsets;
  layout["itemsize"] = sizeof(Task);
  return nb::module_::import_("numpy").attr("dtype")(layout);
}

std::string_view name_of(FieldKind kind) {
  constexpr std::string_view names[] = {"text", "count", "tokens", "fraction", "number", "flag"};
  return names[static_cast<int>(kind)];
}

Diagnostics validated(const Schedule& schedule, const Cluster* cluster) {
  return cluster != nullptr ? validate(schedule, *cluster) : validate(schedule);
}

}  // namespace

void bind_problem(nb::module_& module) {
  nb::class_<Cluster>(module, "Cluster", "Nodes, devices, links and routes. Made by tawpipe.cluster().")
      .def_static("named", &resolve_cluster, "text"_a, "device"_a = "", "inter_node"_a = "",
                  nb::call_guard<nb::gil_scoped_release>())
      .def_static(
          "from_json", [](const std::string& text) { return cluster_from_json(text, "cluster"); }, "text"_a)
      .def("to_json", &write_cluster_json, "The cluster as the JSON that cluster() reads (docs/topology.md).")
      .def_prop_ro("name", &Cluster::name)
      .def_prop_ro("nodes", &Cluster::nodes)
      .def_prop_ro("ranks", &Cluster::ranks, "Devices of all nodes.")
      .def(
          "device",
          [](const Cluster& cluster, int rank) {
            if (rank < 0 || rank >= cluster.ranks()) throw nb::index_error("no such rank");
            const DeviceSpec& device = cluster.device(Rank{rank});
            return to_python({{"name", device.name},
                              {"memory_bytes", device.memory.value()},
                              {"peak_flops", device.peak.value()},
                              {"memory_bandwidth", device.memory_bandwidth.value()},
                              {"node", number(cluster.node_of(Rank{rank}))}});
          },
          "rank"_a, "Name, memory (bytes), dense 16-bit peak (FLOP/s), memory bandwidth (bytes/s) and node of a device.");

  nb::class_<Transformer>(module, "Model", "The sizes of a decoder. Made by tawpipe.model().")
      .def_static("named", &resolve_model, "text"_a)
      .def_static(
          "from_config",
          [](const std::string& text, const std::string& name) { return timed_model(parse_huggingface_config(text, name, name)); }, "text"_a,
          "name"_a)
      .def_ro("name", &Transformer::name)
      .def_ro("layers", &Transformer::layers)
      .def_ro("hidden", &Transformer::hidden)
      .def_ro("heads", &Transformer::heads)
      .def_ro("kv_heads", &Transformer::kv_heads)
      .def_ro("intermediate", &Transformer::intermediate)
      .def_ro("vocab", &Transformer::vocab)
      .def_prop_ro("dtype", [](const Transformer& model) { return std::string{name(model.dtype)}; })
      .def_ro("window", &Transformer::window, "Tokens that a token attends to at most; 0: all before it.")
      .def_ro("notes", &Transformer::notes, "What was assumed or left out when it was read.")
      .def_prop_ro("parameters", &Transformer::parameters, "A tied matrix counts once.");

  nb::class_<answers::JobQuestion>(module, "JobQuestion")
      .def(nb::init<>())
      .def_rw("cluster_value", &answers::JobQuestion::cluster_value)
      .def_rw("model_value", &answers::JobQuestion::model_value)
      .def_rw("schedule", &answers::JobQuestion::schedule)
      .def_rw("options", &answers::JobQuestion::options)
      .def_rw("fold", &answers::JobQuestion::fold)
      .def_rw("step_time", &answers::JobQuestion::step_time)
      .def(
          "set",
          [](answers::JobQuestion& job, const std::string& name, const std::string& text) {
            const JobField* const found = find_job_field(name);
            if (found == nullptr) throw InputError(concat("no field of a job is called ", quote(name)));
            const JobField& field = *found;
            check_number(field, field.kind == FieldKind::tokens ? plain_tokens(text) : text, name);
            job.set(field.name, text);
          },
          "field"_a, "text"_a, "Sets a field of a job (fields()) to a text, as its flag does. Raises InputError.");
  module.def("fields", [] {
    nb::list all;
    for (const JobField& field : job_fields()) {
      std::string name{field.name};
      std::replace(name.begin(), name.end(), '-', '_');
      nb::dict row;
      row["name"] = nb::cast(name);
      row["group"] = nb::cast(field.group);
      row["type"] = nb::cast(field.type);
      row["meaning"] = nb::cast(field.meaning);
      row["standard"] = nb::cast(field.standard);
      row["searched"] = nb::cast(field.searched);
      row["kind"] = nb::cast(name_of(field.kind));
      row["words"] = nb::cast(field.value.words);
      row["bounds"] = nb::cast(!field.is(of_plan));
      all.append(row);
    }
    return all;
  });
}

void bind_schedule(nb::module_& module) {
  nb::class_<Schedule>(
      module, "Schedule",
      "One training iteration as a task graph. Its arrays are views of the schedule's memory: nothing is copied.")
      .def_static(
          "from_json", [](const std::string& text) { return parse_schedule_json(text, "schedule"); }, "text"_a,
          nb::call_guard<nb::gil_scoped_release>(), "The schedule that to_json wrote. Raises InputError.")
      .def("to_json", &schedule_json, nb::call_guard<nb::gil_scoped_release>(),
           "The schedule as JSON (docs/interchange.md); `tawpipe validate --schedule-file` and from_json read it.")
      .def(
          "to_pytorch_csv",
          [](const Schedule& schedule, bool communication, bool waits) {
            sim::require_runnable(schedule);
            return write_pytorch_csv(pytorch_schedule(schedule, {.communication = communication, .waits = waits}));
          },
          "communication"_a = false, "waits"_a = false, nb::call_guard<nb::gil_scoped_release>(),
          "The rows that torch.distributed.pipelining reads; with communication, also SEND and RECV; with waits, also the\n"
          "WAIT_SEND that PyTorch asks for from 2.15 on. Raises InputError for a schedule that is not a pipeline.")
      .def_prop_ro("name", &Schedule::name)
      .def_prop_ro("options",
                   [](const Schedule& schedule) {
                     nb::dict all;
                     for (const auto& [key, value] : schedule.options()) all[nb::cast(key)] = nb::cast(value);
                     return all;
                   })
      .def_prop_ro("ranks", &Schedule::ranks)
      .def_prop_ro("lanes", &Schedule::lanes, "Names of the in-order queues of each rank; lane 0 computes.")
      .def("__len__", [](const Schedule& schedule) { return schedule.tasks().size(); })
      .def_prop_ro(
          "tasks", [](nb::handle self) { return records(nb::cast<const Schedule&>(self).tasks(), self, task_dtype()); },
          "[tasks] records: op and payload (indices into OPS and PAYLOADS), lane, rank, peer, group, stage, microbatch, step.\n"
          "-1 where a field does not apply. A view.")
      .def_prop_ro(
          "task_bytes",
          [](const Schedule& schedule) {
            std::vector<std::int64_t> bytes;
            bytes.reserve(schedule.tasks().size());
            for (const Task& task : schedule.tasks()) bytes.push_back(task.bytes.total().value());
            return array_of(std::move(bytes));
          },
          "[tasks] bytes that each task carries or touches.")
      .def_prop_ro(
          "dependencies",
          [](nb::handle self) {
            const auto& rows = nb::cast<const Schedule&>(self).parts().dependencies;
            return nb::make_tuple(view<std::uint32_t>(std::span{rows.begins()}, self),
                                  view<std::int32_t>(std::span{rows.items()}, self));
          },
          "What each task waits for besides its lanes' order: (begin [tasks + 1], tasks); task t waits for\n"
          "tasks[begin[t]:begin[t + 1]]. Views.")
      .def(
          "program",
          [](nb::handle self, int rank, int lane) {
            const auto& schedule = nb::cast<const Schedule&>(self);
            if (rank < 0 || rank >= schedule.ranks() || lane < 0 || lane >= static_cast<int>(schedule.lanes().size())) {
              throw nb::index_error("no such rank or lane");
            }
            return view<std::int32_t>(schedule.program(Rank{rank}, lane), self);
          },
          "rank"_a, "lane"_a = 0, "The tasks of one lane of one rank, in order. A view.")
      .def(
          "group",
          [](nb::handle self, int group) {
            const auto& schedule = nb::cast<const Schedule&>(self);
            if (group < 0 || group >= schedule.groups()) throw nb::index_error("no such group");
            return view<std::int32_t>(schedule.group(GroupId{group}), self);
          },
          "group"_a, "The ranks of a group. A view.")
      .def_prop_ro(
          "buffers",
          [](const Schedule& schedule) {
            std::vector<std::int32_t> ranks;
            std::vector<std::int32_t> stages;
            std::vector<std::uint8_t> kinds;
            std::vector<std::int64_t> bytes;
            for (const Buffer& buffer : schedule.buffers()) {
              ranks.push_back(number(buffer.rank));
              stages.push_back(number(buffer.stage()));
              kinds.push_back(static_cast<std::uint8_t>(buffer.kind()));
              bytes.push_back(buffer.bytes.value());
            }
            nb::dict all;
            all["rank"] = array_of(std::move(ranks));
            all["stage"] = array_of(std::move(stages));
            all["kind"] = array_of(std::move(kinds));
            all["bytes"] = array_of(std::move(bytes));
            return all;
          },
          "Device memory: arrays [buffers] of rank, stage, kind (an index into BUFFER_KINDS) and bytes.")
      .def(
          "findings",
          [](const Schedule& schedule, const Cluster* cluster) {
            nlohmann::ordered_json json;
            {
              const nb::gil_scoped_release released;
              json = to_json(validated(schedule, cluster));
            }
            return to_python(json);
          },
          "cluster"_a.none() = nb::none());

  nb::class_<Timeline>(module, "Timeline", "When each task starts and ends. Views: nothing is copied.")
      .def_prop_ro(
          "start", [](nb::handle self) { return view<std::int64_t>(std::span{nb::cast<const Timeline&>(self).start}, self); },
          "[tasks] picoseconds.")
      .def_prop_ro(
          "end", [](nb::handle self) { return view<std::int64_t>(std::span{nb::cast<const Timeline&>(self).end}, self); },
          "[tasks] picoseconds.")
      .def_prop_ro(
          "makespan_s", [](const Timeline& timeline) { return to_seconds(timeline.makespan()); }, "Seconds of an iteration.");
}

}  // namespace tawpipe::python
