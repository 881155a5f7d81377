// The schedule's JSON: nothing lost, and pleasant by hand.
// Not: files on a disk, nor what is refused (schedule_json_refused_test.cpp).
#include "tawpipe/report/schedule_json.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "schedules.hpp"
#include "support/schedule_text.hpp"
#include "tawpipe/cost/fixed.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/model/transformer_body.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/schedule/expand.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"
#include "tawpipe/verify/check_structure.hpp"

using support::schedule_error;
using support::task_error;
using namespace tawpipe;
using namespace tawpipe::literals;

namespace {

void check_same(const Schedule& a, const Schedule& b) {
  CHECK(a.name() == b.name());
  CHECK(a.options() == b.options());
  CHECK(a.lanes() == b.lanes());
  CHECK(a.ranks() == b.ranks());
  REQUIRE(a.stages().size() == b.stages().size());
  for (std::size_t s = 0; s < a.stages().size(); ++s) {
    const StageWork& x = a.stages()[s];
    const StageWork& y = b.stages()[s];
    CHECK(x.first_layer == y.first_layer);
    CHECK(x.layers == y.layers);
    CHECK(x.share.numerator == y.share.numerator);
    CHECK(x.edge_parameters == y.edge_parameters);
    CHECK(x.saved == y.saved);
    CHECK(x.stash == y.stash);
    CHECK(x.forward == y.forward);
    CHECK(x.recompute == y.recompute);
    CHECK(x.backward_traffic == y.backward_traffic);
  }
  REQUIRE(a.tasks().size() == b.tasks().size());
  for (std::size_t t = 0; t < a.tasks().size(); ++t) {
    const Task& x = a.tasks()[t];
    const Task& y = b.tasks()[t];
    const bool same = x.op == y.op && x.payload == y.payload && x.lane == y.lane && x.peer_lane == y.peer_lane &&
                      x.rank == y.rank && x.partner() == y.partner() && x.bytes == y.bytes && x.stage == y.stage &&
                      x.microbatch == y.microbatch && x.step == y.step && x.bytes == y.bytes && x.split == y.split;
    CHECK_MESSAGE(same, "task " << t);
  }
  const auto same_rows = [](const auto& x, const auto& y) { return x.begins() == y.begins() && x.items() == y.items(); };
  CHECK(same_rows(a.parts().dependencies, b.parts().dependencies));
  CHECK(same_rows(a.parts().program, b.parts().program));
  CHECK(same_rows(a.parts().groups, b.parts().groups));
  CHECK(a.parts().uses.begins() == b.parts().uses.begins());
  for (std::size_t u = 0; u < a.parts().uses.items().size(); ++u) {
    CHECK(a.parts().uses.items()[u].buffer == b.parts().uses.items()[u].buffer);
    CHECK(a.parts().uses.items()[u].access == b.parts().uses.items()[u].access);
  }
  REQUIRE(a.buffers().size() == b.buffers().size());
  for (std::size_t i = 0; i < a.buffers().size(); ++i) {
    const Buffer& x = a.buffers()[i];
    const Buffer& y = b.buffers()[i];
    CHECK((x.rank == y.rank && x.content == y.content && x.bytes == y.bytes && x.persistent == y.persistent && x.copy == y.copy &&
           x.host == y.host));
  }
  CHECK(same_rows(a.parts().pieces, b.parts().pieces));
  CHECK(same_rows(a.parts().splits, b.parts().splits));
  CHECK(a.workload().is_abstract() == b.workload().is_abstract());
  CHECK(a.workload().microbatches() == b.workload().microbatches());
  CHECK(a.workload().split(1)[0].share.numerator == b.workload().split(1)[0].share.numerator);
}

}  // namespace

TEST_CASE("every schedule of the catalogue is written and read without loss, and again to the same bytes") {
  const auto model = models::named("llama-8x1024");
  Workload real{model, Batch{.sequence = 512, .microbatch_size = 2, .global_batch = 16}, Recompute::selective};
  real.over_devices(4);
  for (const auto& info : shipped().schedules()) {
    for (const Workload& workload : {Workload::abstract(4, 8), real}) {
      CAPTURE(info.name);
      const Schedule schedule = build_schedule(info.name, {workload, DeviceGroups::even(4, 2), {}});
      const std::string text = schedule_json(schedule);
      const Schedule read = parse_schedule_json(text);
      check_same(schedule, read);
      CHECK(schedule_json(read) == text);
    }
  }
}

TEST_CASE("host copies and buffers in host memory are written and read without loss") {
  const Transformer model{.name = "m", .layers = 4, .hidden = 64, .heads = 4, .kv_heads = 2, .intermediate = 96, .vocab = 100};
  const Workload work{model, {.sequence = 32, .microbatch_size = 1, .global_batch = 8}, Recompute::selective};
  const Schedule schedule = build_schedule(
      "gpipe",
      {.workload = work, .nodes = DeviceGroups{{2}}, .options = {}, .offload = {.activations = true, .optimizer = true}});
  const std::string text = schedule_json(schedule);
  CHECK(text.find(R"("op":"copy_to_host","rank":0,)") != std::string::npos);
  CHECK(text.find(R"("payload":"optimizer_states")") != std::string::npos);
  CHECK(text.find(R"("persistent":false,"host":true)") != std::string::npos);
  check_same(schedule, parse_schedule_json(text));
  CHECK(task_error(R"({"op": "copy_to_host", "rank": 0, "peer": 1})") == "s.json: tasks[0]: a copy_to_host has no 'peer'");
  CHECK(task_error(R"({"op": "copy_from_host", "rank": 0, "repeat": 2})") ==
        "s.json: tasks[0]: a copy_from_host has no 'repeat'");
}

TEST_CASE("composed schedules keep their layout, and striped ones the parameters that they number without a model") {
  const Mesh mesh = Mesh{.tensor = 2, .data = 2, .order = parse_mesh_order("tsdc")}.over(16);
  for (const char* name : {"1f1b", "fsdp", "tawpipe"}) {
    CAPTURE(name);
    const bool striped = std::string{name} == "tawpipe";
    const Schedule logical = build_schedule(name, {Workload::abstract(4, 4), DeviceGroups::even(4, 2),
                                                   striped ? ScheduleOptions{{"stripe", "on"}} : ScheduleOptions{}});
    const Schedule schedule = compose(logical, Workload::abstract(4, 8), mesh);
    const std::string text = schedule_json(schedule);
    CHECK(text.find(R"("layout":{"tensor":2,"context":1,"data":2,"order":"tsdc"})") != std::string::npos);
    const Schedule read = parse_schedule_json(text);
    check_same(schedule, read);
    CHECK(read.parts().mesh == mesh);
    CHECK(read.parts().splits.size() == schedule.parts().splits.size());
    CHECK(schedule_json(read) == text);
  }
}

TEST_CASE("the buckets of a stage are kept, and checked") {
  const Transformer model{.name = "m", .layers = 4, .hidden = 64, .heads = 4, .kv_heads = 4, .intermediate = 96, .vocab = 100};
  const Workload work{model, {.sequence = 32, .microbatch_size = 1, .global_batch = 2}, Recompute::none};
  const Schedule logical = build_schedule("1f1b", {.workload = work, .nodes = DeviceGroups{{1}}, .options = {}});
  const Schedule schedule = compose(logical, Workload{model, {32, 1, 4}, Recompute::none}, Mesh{.data = 2}.over(2),
                                    {.stages = {}, .overlap_gradients = true, .bucket = 1});
  REQUIRE(schedule.parts().buckets.size() == 5);  // the head and four layers; the embedding is last
  const std::string text = schedule_json(schedule);
  const Schedule read = parse_schedule_json(text);
  CHECK(schedule_json(read) == text);
  CHECK(read.parts().buckets[0].layer == 4);
  const auto with_buckets = [](const std::string& buckets) {
    return schedule_error(R"({"ranks": 1, "tasks": [{"op": "forward", "rank": 0, "stage": 0, "microbatch": 0}], "buckets": )" +
                          buckets + "}");
  };
  CHECK(with_buckets("[[0, 0]]").find("a bucket's message is a collective") != std::string::npos);
  CHECK(with_buckets("[[1, 0]]") != "");
}

TEST_CASE("the bodies of shared stages are kept") {
  Transformer model{.name = "m", .layers = 4, .hidden = 64, .heads = 4, .kv_heads = 4, .intermediate = 96, .vocab = 100};
  model.code = LayerCode::torchtitan;  // whose products in pieces are timed as such
  const Workload work{model, {.sequence = 32, .microbatch_size = 1, .global_batch = 2}, Recompute::selective};
  const Schedule logical = build_schedule("1f1b", {.workload = work, .nodes = DeviceGroups{{2}}, .options = {}});
  const Sharing sharing{.tensor = 2, .context = 2, .exchange = ContextExchange::two_level, .inner = 2, .overlap = true};
  Composition with;
  with.stages = share_stages(model, work.batch(), work.recompute(), logical.stages(), sharing);
  const Schedule schedule = compose(logical, work, Mesh{.tensor = 2, .context = 2}.over(8), with);
  const std::string text = schedule_json(schedule);
  const Schedule read = parse_schedule_json(text);
  CHECK(schedule_json(read) == text);
  REQUIRE(has_bodies(read));
  CHECK(expand_bodies(read).schedule.tasks().size() == expand_bodies(schedule).schedule.tasks().size());
  CHECK(text.find(R"("inner":2)") != std::string::npos);
  const auto in_pieces = [](const BodyStep& step) { return step.pieces == 2; };
  CHECK(std::any_of(read.parts().bodies[0].forward.begin(), read.parts().bodies[0].forward.end(), in_pieces));
  const auto with_body = [](const std::string& steps) {
    return schedule_error(R"({"ranks": 2, "layout": {"tensor": 2}, "stages": [{}], "bodies": [{"forward": [)" + steps +
                          R"(]}], "tasks": []})");
  };
  CHECK(with_body(R"({"kind": "sum"})").find("unknown kind of step 'sum'") != std::string::npos);
  CHECK(with_body(R"({"kind": "all_gather", "axis": "tensor", "bytes": 1})").find("the first and the last step") !=
        std::string::npos);
  CHECK(with_body(R"({"kind": "compute", "after": [0]})").find("earlier step") != std::string::npos);
}

TEST_CASE("a real model's workload keeps all that it says") {
  Transformer model = models::named("llama-8x1024");
  model.name = "my \"model\"";
  model.tied = true;
  model.dtype = Dtype::f16;
  model.head_dim = 64;
  Workload workload{model, Batch{.sequence = 512, .microbatch_size = 2, .global_batch = 16}, Recompute::full};
  ScheduleBuilder builder{"x", workload.over_devices(3), 1, {"compute"}};
  builder.stages(workload.split(2));
  const Schedule schedule = builder.build();
  const Schedule again = parse_schedule_json(schedule_json(schedule));
  for (std::size_t s = 0; s < 2; ++s) CHECK(again.stages()[s].kernels.size() == schedule.stages()[s].kernels.size());
  CHECK(!again.stages()[0].kernels.empty());
  const Workload read = again.workload();
  CHECK(read.model().name == model.name);
  CHECK(read.model().tied);
  CHECK(read.model().dtype == Dtype::f16);
  CHECK(read.model().decoder.value().head_dim == 64);
  CHECK(read.model().utilization == model.utilization);
  CHECK(read.model().utilization_source == model.utilization_source);
  CHECK(read.batch().global_batch == 16);
  CHECK(read.recompute() == Recompute::full);
  CHECK(read.stage(0, 1, false, false).share.numerator == 3);
  CHECK(read.model_flops() == workload.model_flops());
  CHECK(read.model().names == workload.model().names);
  std::string older = schedule_json(schedule);  // of a version without names
  const std::size_t blocks = older.find(R"("blocks":)");
  older.replace(blocks, older.find("]]", blocks) + 2 - blocks, R"("norm_parameters":1024)");
  CHECK(parse_schedule_json(older).workload().model().names == workload.model().names);
}

TEST_CASE("a model that is no decoder comes back with its parts' costs") {
  LayerStack model{.name = "perceptrons", .layers = 4, .dtype = Dtype::f64};
  model.first_edge = {.parameters = 88, .stash = 48_B};
  model.layer = {.parameters = 128, .saved = 48_B, .boundary = 48_B, .forward = Flops{10}};
  model.last_edge = {.parameters = 100, .saved = 96_B};
  model.sizes = {{"width", 8}, {"inner", 8}};
  model.names = {.layer = "perceptron", .last_edge = {{"scale", 12}, {"symbols", 88}}};
  const Workload workload{model, Batch{.sequence = 6, .microbatch_size = 1, .global_batch = 8}};
  const std::string text =
      schedule_json(build_schedule("1f1b", {.workload = workload, .nodes = DeviceGroups{{2}}, .options = {}}));
  CHECK(text.starts_with(R"({"tawpipe_schedule":2,)"));
  CHECK(text.find("heads") == std::string::npos);
  CHECK(text.find(R"("blocks":[["perceptron"],["scale",12],["symbols",88]])") != std::string::npos);
  const Schedule read = parse_schedule_json(text);
  CHECK(schedule_json(read) == text);
  CHECK(read.workload().model().names == model.names);
  CHECK(read.workload().model().size("width") == 8);
  CHECK(read.workload().model_flops() == workload.model_flops());
  CHECK(read.workload().split(3)[2].saved == workload.split(3)[2].saved);
  const auto with = [&](std::string_view from, std::string_view to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    return changed;
  };
  CHECK_THROWS_WITH_AS(parse_schedule_json(with(R"(["symbols",88])", R"(["symbols",87])")),
                       doctest::Contains("the named blocks of its last edge must have its 100 parameters together"), InputError);
  CHECK_THROWS_WITH_AS(parse_schedule_json(with(R"(["perceptron"])", R"(["perceptron",0])")),
                       doctest::Contains(R"(no entry names the layers, as ["layer"] does)"), InputError);
}

TEST_CASE("sets of parameters come back: every way of sharding, tied, on unequal nodes, with other bytes a parameter") {
  Transformer model = models::named("llama-8x1024");
  model.tied = true;
  Workload work{model, Batch{.sequence = 512, .microbatch_size = 1, .global_batch = 6}};
  work.parameter_bytes({.weight = 4, .gradient = 4, .optimizer = 8});
  for (const char* name : {"ddp", "zero1", "zero2", "fsdp", "hpz", "hsdp", "hfsdp"}) {
    CAPTURE(name);
    ScheduleOptions options;
    if (std::string{name} == "ddp") options["collectives"] = "two-level";
    const Schedule schedule = build_schedule(name, {work, DeviceGroups{{4, 2}}, options});
    CHECK(schedule.parts().splits.size() > 0);
    const std::string text = schedule_json(schedule);
    const Schedule read = parse_schedule_json(text);
    check_same(schedule, read);
    CHECK(read.workload().parameter_bytes() == work.parameter_bytes());
    CHECK(schedule_json(read) == text);
  }
}

TEST_CASE("a decoder by its sizes says whose code runs its layers, and where recomputation stops") {
  const auto decoder = [](const std::string& more) {
    const std::string model = R"("layers": 1, "hidden": 8, "heads": 2, "intermediate": 16, "vocab": 12)" + more;
    const std::string text =
        R"({"tasks": [], "workload": {"model": {)" + model + R"(}, "batch": {"sequence": 4, "global_batch": 2}}})";
    return parse_schedule_json(text).workload().model().decoder.value();
  };
  CHECK(decoder(R"(, "early_stop": true)").early_stop == true);
  CHECK(decoder(R"(, "code": "torchtitan")").code == LayerCode::torchtitan);
  CHECK(decoder(R"(, "code": 1)").code == LayerCode::torchtitan);  // as in written files
}

TEST_CASE("sets of parameters by hand: listed, or written where they are used; the same set is the same") {
  // 12 * 8 = 96 parameters of the embedding, layer 8 * 8 * 4 + 3 * 8 * 16 + 16 = 656, norm and
  // output 104: 856
  const std::string workload = R"("workload": {"model": {"layers": 1, "hidden": 8, "heads": 2, "intermediate": 16, "vocab": 12},
      "batch": {"sequence": 4, "global_batch": 2}})";
  const auto text = [&](const std::string& rest) { return "{" + workload + ", " + rest + "}"; };
  const Schedule schedule = parse_schedule_json(text(R"("pieces": [[[0, 96]], []], "splits": [[0, 1]],
      "buffers": [{"rank": 0, "kind": "weights", "bytes": 192, "pieces": 0},
                  {"rank": 1, "kind": "weights", "bytes": 1520, "pieces": [[96, 752], [752, 856]]},
                  {"rank": 1, "kind": "gradients", "bytes": 192, "pieces": [[0, 96]]}],
      "tasks": [{"op": "all_gather", "group": [0, 1], "split": 0},
                {"op": "reduce_scatter", "group": [0, 1], "split": [1, [[0, 96]]]},
                {"op": "all_reduce", "group": [0, 1], "split": [0]}])"));
  CHECK(schedule.buffer(BufferId{2}).content.parameters() == schedule.buffer(BufferId{0}).content.parameters());
  REQUIRE(schedule.pieces(schedule.buffer(BufferId{1}).content.parameters()).size() == 2);
  CHECK(schedule.pieces(schedule.buffer(BufferId{1}).content.parameters())[1] == ParameterRange{752, 856});
  CHECK(schedule.split(schedule.task(TaskId{1}).split)[1] == schedule.buffer(BufferId{0}).content.parameters());
  CHECK(schedule.split(schedule.task(TaskId{2}).split).size() == 1);
  const std::string written = schedule_json(schedule);
  CHECK(schedule_json(parse_schedule_json(written)) == written);

  const std::string tasks = R"("tasks": [])";
  const auto error = [&](const std::string& rest) { return schedule_error(text(rest)); };
  CHECK(error(R"("pieces": [[[0, 857]]], )" + tasks) ==
        "s.json: pieces[0][0][1]: expected a whole number from 1 to 856, not 857");
  CHECK(error(R"("pieces": [[[856, 857]]], )" + tasks) ==
        "s.json: pieces[0][0][0]: expected a whole number from 0 to 855, not 856");
  CHECK(error(R"("pieces": [[[5, 5]]], )" + tasks) == "s.json: pieces[0][0][1]: expected a whole number from 6 to 856, not 5");
  CHECK(error(R"("pieces": [[[0, 9], [8, 10]]], )" + tasks) == "s.json: pieces[0]: parameter 8 stands twice");
  CHECK(error(R"("pieces": [[[0]]], )" + tasks) ==
        "s.json: pieces[0][0]: expected the first parameter and the one after the last, such as [0, 512], not a list of 1");
  CHECK(error(R"("splits": [[0]], )" + tasks) == "s.json: splits[0][0]: there is no set of parameters 0; there are none");
  CHECK(error(R"("pieces": [[]], "splits": [[1]], )" + tasks) ==
        "s.json: splits[0][0]: there is no set of parameters 1; they are 0 to 0");
  CHECK(error(R"("buffers": [{"rank": 0, "kind": "weights", "bytes": 0, "pieces": 3}], )" + tasks) ==
        "s.json: buffers[0].pieces: there is no set of parameters 3; there are none");
  CHECK(error(R"("tasks": [{"op": "all_gather", "group": [0, 1], "split": 0}])") ==
        "s.json: tasks[0].split: there is no split 0; there are none");
  CHECK(error(R"("tasks": [{"op": "all_gather", "group": [0, 1], "split": [[]]}])") ==
        "s.json: tasks[0].split: has 1 set of parameters, not 2");
  CHECK(error(R"("tasks": [{"op": "all_reduce", "group": [0, 1], "split": [[], []]}])") ==
        "s.json: tasks[0].split: has 2 sets of parameters, not 1");
  CHECK(error(R"("tasks": [{"op": "update", "rank": 0, "split": [[]]}])") == "s.json: tasks[0]: a update has no 'split'");
  // Without a model a stage of one of one device counts as 1 MB: 10^6 parameters of a byte.
  CHECK(schedule_error(R"({"pieces": [[[0, 1000001]]], "tasks": []})") ==
        "s.json: pieces[0][0][1]: expected a whole number from 1 to 1000000, not 1000001");
}

TEST_CASE("a file needs its tasks alone") {
  const Schedule schedule = parse_schedule_json(support::schedule_file("minimal.json"));
  CHECK(schedule.name() == "custom");
  CHECK(schedule.ranks() == 2);
  CHECK(schedule.lanes() == std::vector<std::string>{"compute", "communication"});
  CHECK(schedule.stages().size() == 2);
  CHECK(schedule.workload().is_abstract());
  CHECK(schedule.workload().microbatches() == 1);
  REQUIRE(schedule.tasks().size() == 6);
  const Task& pass = schedule.tasks()[1];
  CHECK(pass.payload == Payload::activations);
  CHECK(pass.lane == LaneId{1});
  CHECK(pass.peer_lane == LaneId{1});
  CHECK(pass.bytes == 1_MB);  // what any share's activation weighs where there is no model
  CHECK(schedule.dependencies(TaskId{2})[0] == TaskId{1});
  CHECK(schedule.tasks()[4].payload == Payload::activation_gradients);
  CHECK(schedule.program(Rank{1}, 0).size() == 2);
  CHECK(schedule.program(Rank{1}, 1).size() == 2);
  Diagnostics found;
  check_structure(schedule, found);
  CHECK(found.ok());
}

TEST_CASE("names, groups in place, sizes with units and lanes by name") {
  const Schedule schedule = parse_schedule_json(support::schedule_file("by_hand.json"));
  CHECK(schedule.name() == "by hand");
  CHECK(schedule.options()[0] == std::pair<std::string, std::string>{"note", "two ranks share a layer"});
  CHECK(schedule.workload().model().layers == 8);
  CHECK(schedule.stages().size() == 10);  // "units": embedding, 8 layers, head
  CHECK(schedule.groups() == 1);
  REQUIRE(schedule.tasks().size() == 5);
  CHECK(schedule.tasks()[0].op == Op::all_gather);
  // The whole layer, of 4·1024² attention and 3·1024·2816 SwiGLU parameters and two norms, in bf16.
  CHECK(schedule.tasks()[0].bytes == Bytes{2 * schedule.stages()[1].parameters});
  CHECK(schedule.tasks()[0].lane == LaneId{1});
  CHECK(schedule.tasks()[3].group == GroupId{0});  // the same ranks are the same group
  CHECK(schedule.tasks()[3].bytes == 3_MB);
  CHECK(schedule.buffers()[2].bytes == 80_MB);
  REQUIRE(schedule.uses(TaskId{1}).size() == 2);
  CHECK(schedule.uses(TaskId{1})[0].buffer == BufferId{0});
  CHECK(schedule.uses(TaskId{1})[1].access == Access::write);
  CHECK(schedule.program(Rank{0}, 0)[0] == TaskId{2});  // as "program" says
  const std::string text = schedule_json(schedule);
  CHECK(text.find("\"program\"") != std::string::npos);
  CHECK(schedule_json(parse_schedule_json(text)) == text);
}

TEST_CASE("a size that is not given is that of what is carried") {
  // Abstract: each of 2 devices holds parameters of 1 000 000; 1 byte a weight, 1 a gradient, none
  // for the optimizer.
  const Schedule schedule = parse_schedule_json(R"({"ranks": 2, "stages": 2, "tasks": [
      {"op": "broadcast", "group": [0, 1], "stage": 1},
      {"op": "reduce", "group": [1, 0], "stage": 1},
      {"op": "all_reduce", "group": [0, 1]},
      {"op": "update", "rank": 1, "stage": 1},
      {"op": "pass", "rank": 0, "peer": 1, "bytes": 0}]})");
  CHECK(schedule.tasks()[0].bytes == 1_MB);
  CHECK(schedule.tasks()[0].rank == Rank{0});
  CHECK(schedule.tasks()[1].rank == Rank{1});  // the first member
  CHECK(schedule.tasks()[1].payload == Payload::gradients);
  CHECK(schedule.tasks()[2].bytes == 0_B);  // of no stage
  CHECK(schedule.tasks()[3].bytes == 2_MB);
  CHECK(schedule.tasks()[4].bytes == 0_B);
  CHECK(schedule.groups() == 2);
}

TEST_CASE("texts of any kind come back, and long lists are written in pieces") {
  ScheduleBuilder builder{"a \"b\" \\ \xc3\xa9", Workload::abstract(1, 1), 1, {"comp,ute"}};
  builder.option("k\"", "v\\");
  for (int i = 0; i < 5000; ++i) builder.add({.op = Op::idle, .rank = Rank{0}}, {});
  const Schedule schedule = builder.build();
  std::string text;
  int pieces = 0;
  write_schedule_json(schedule, [&](std::string_view piece) {
    text += piece;
    ++pieces;
  });
  CHECK(pieces > 1);
  const Schedule read = parse_schedule_json(text);
  CHECK(read.name() == schedule.name());
  CHECK(read.options() == schedule.options());
  CHECK(read.lanes() == schedule.lanes());
  CHECK(read.tasks().size() == 5000);
}
