// The JSON of schedules whose ranks have whole experts: nothing lost, and what is refused.
// Not: other schedules (schedule_json_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "schedules.hpp"
#include "support/schedule_text.hpp"
#include "tawpipe/model/transformer_body.hpp"
#include "tawpipe/report/schedule_json.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/schedule/expand.hpp"
#include "tawpipe/verify/validate.hpp"

using support::schedule_error;
using namespace tawpipe;

namespace {

const Transformer mixture{.name = "mixture",
                          .layers = 4,
                          .hidden = 64,
                          .heads = 4,
                          .kv_heads = 4,
                          .intermediate = 32,
                          .vocab = 100,
                          .experts = 8,
                          .experts_per_token = 2,
                          .shared_width = 16};

bool sends_to_experts(const BodyStep& step) { return step.axis == BodyStep::Axis::all; }

}  // namespace

TEST_CASE("layout, experts and steps of a mixture are written and read without loss") {
  for (const Mesh& axes : {Mesh{.tensor = 2, .data = 2, .expert = 2, .whole_experts = true},
                           Mesh{.tensor = 2, .order = parse_mesh_order("stcd"), .whole_experts = true}}) {
    const Mesh mesh = axes.over(2 * axes.copies());
    const auto of = [&](std::int64_t microbatches) {
      return Workload{mixture,
                      {.sequence = 32, .microbatch_size = mesh.expert, .global_batch = microbatches * mesh.expert},
                      Recompute::selective};
    };
    const Workload one = of(2);
    const Schedule logical = build_schedule("1f1b", {.workload = one, .nodes = DeviceGroups{{2}}, .options = {}});
    Composition with{.stages = share_stages(mixture, one.batch(), one.recompute(), logical.stages(),
                                            {.tensor = mesh.tensor,
                                             .expert = mesh.expert,
                                             .whole_experts = true,
                                             .dispatch = mesh.expert > 1 ? ExpertDispatch::deepep : ExpertDispatch::all_to_all,
                                             .neighbours = 2}),
                     .sharding = StateSharding::optimizer};
    const Schedule schedule = compose(logical, of(2 * mesh.data), mesh, with);
    const std::string text = schedule_json(schedule);
    CHECK(text.find(mesh.expert > 1 ? R"("order":"tcesd","expert":2,"whole_experts":true})"
                                    : R"("order":"stcd","expert":1,"whole_experts":true})") != std::string::npos);
    CHECK(text.find(R"("axis":"all")") != std::string::npos);
    CHECK((text.find(R"("inner":2,"relayed":)") != std::string::npos) == (mesh.expert > 1));
    const Schedule read = parse_schedule_json(text);
    CHECK(schedule_json(read) == text);
    CHECK(read.parts().mesh == mesh);
    CHECK(read.workload().model().experts == schedule.workload().model().experts);
    const StageBody& body = read.parts().bodies[0].forward;
    CHECK(std::count_if(body.begin(), body.end(), sends_to_experts) == 4);
    CHECK(expand_bodies(read).schedule.tasks().size() == expand_bodies(schedule).schedule.tasks().size());
    const Diagnostics found = validate(read);
    CHECK_MESSAGE(found.errors() + found.warnings() == 0, found.text());
  }
}

TEST_CASE("the experts of a model of any kind are kept") {
  LayerStack stack = layer_stack(mixture, Batch{32, 1, 2}, Recompute::none);
  stack.decoder.reset();
  const Workload work{stack, Batch{32, 1, 2}, Recompute::none};
  const Schedule logical = build_schedule("gpipe", {.workload = work, .nodes = DeviceGroups{{2}}, .options = {}});
  const Schedule schedule = compose(logical, work, Mesh{.tensor = 2, .whole_experts = true}.over(4));
  const std::string text = schedule_json(schedule);
  const Schedule read = parse_schedule_json(text);
  CHECK(schedule_json(read) == text);
  CHECK(read.workload().model().experts == stack.experts);
  const Diagnostics found = validate(read);
  CHECK_MESSAGE(found.errors() + found.warnings() == 0, found.text());
  const auto with_experts = [](const std::string& experts) {
    return schedule_error(R"({"workload": {"model": {"layers": 2, "layer": {"parameters": 8, "boundary": 1}, "experts": )" +
                          experts + R"(}, "batch": {"sequence": 2, "global_batch": 2}}, "ranks": 1, "tasks": []})");
  };
  CHECK(with_experts("[0, 8]") == "no error");
  CHECK(with_experts("[2, 9]") ==
        "s.json: workload: model '(unnamed)': the parameters of its experts, 2 to 9, are not among a layer's 8");
  CHECK(with_experts("[3, 2]").find("the parameters of its experts, 3 to 2") != std::string::npos);
  CHECK(with_experts("[-1, 2]").find("experts[0]: expected a whole number") != std::string::npos);
  CHECK(with_experts("[1]").find("the first of a layer's parameters that is of experts") != std::string::npos);
}

TEST_CASE("a part that goes to other neighbours is one of an all-to-all among neighbours") {
  const Workload work{mixture, {.sequence = 32, .microbatch_size = 4, .global_batch = 8}};
  const Schedule logical = build_schedule("1f1b", {.workload = work, .nodes = DeviceGroups{{2}}, .options = {}});
  const Mesh mesh = Mesh{.expert = 4, .whole_experts = true}.over(8);
  Composition with{.stages =
                       share_stages(mixture, work.batch(), work.recompute(), logical.stages(),
                                    {.expert = 4, .whole_experts = true, .dispatch = ExpertDispatch::deepep, .neighbours = 2})};
  const std::string text = schedule_json(compose(logical, work, mesh, with));
  const auto changed = [&](const std::string& key, const std::string& value) {
    std::string wrong = text;
    const std::size_t at = wrong.find(concat("\"", key, "\":"), wrong.find("\"axis\":\"all\"") - 30) + key.size() + 3;
    wrong.replace(at, wrong.find_first_of(",}", at) - at, value);
    return schedule_error(wrong);
  };
  CHECK(changed("relayed", "1099511627776").find("relayed: is a part of the step's ") != std::string::npos);
  CHECK(changed("kind", "\"ring\"").find("relayed: only an all_to_all among neighbours (inner)") != std::string::npos);
  CHECK(changed("inner", "3") == "no error");  // the last two ranks have fewer neighbours
  const Schedule alone = parse_schedule_json([&] {
    std::string wide = text;
    const std::size_t at = wide.find("\"inner\":2");
    return wide.replace(at, 9, "\"inner\":8");
  }());
  CHECK(expand_bodies(alone).schedule.tasks().size() > 0);
}

TEST_CASE("a mixture by its sizes is read as the model is") {
  const auto model = [](const std::string& experts) {
    return R"({"workload": {"model": {"layers": 2, "hidden": 64, "heads": 4, "intermediate": 32, "vocab": 100)" + experts +
           R"(}, "batch": {"sequence": 8, "global_batch": 2}}, "ranks": 1, "tasks": []})";
  };
  const LayerStack read =
      parse_schedule_json(model(R"(, "experts": 8, "experts_per_token": 2, "shared_width": 16)")).workload().model();
  CHECK(read.experts.count() == 3 * 64 * 8 * 32);
  const auto& decoder = read.decoder;
  REQUIRE(decoder);
  CHECK(decoder->experts_per_token == 2);
  CHECK(decoder->shared_width == 16);
  const LayerStack latent = parse_schedule_json(model(R"(, "experts": 8, "experts_per_token": 2, "expert_groups": 4,
      "groups_per_token": 2, "dense_layers": 1, "dense_width": 48, "head_dim": 12, "query_rank": 24, "key_value_rank": 16,
      "rope_width": 4, "value_size": 8)"))
                                .workload()
                                .model();
  const auto& grouped = latent.decoder;
  REQUIRE(grouped);
  CHECK((grouped->expert_groups == 4 && grouped->groups_per_token == 2));
  CHECK((grouped->dense_layers == 1 && grouped->dense_width == 48));
  CHECK((grouped->query_rank == 24 && grouped->key_value_rank == 16 && grouped->rope_width == 4 && grouped->value_size == 8));
  CHECK(schedule_error(model(R"(, "experts": 8)")).find("the number of experts a token must be 1 to 8, not 0") !=
        std::string::npos);
  CHECK(schedule_error(model(R"(, "experts": -1)")).find("experts: expected a whole number from 0") != std::string::npos);
}

TEST_CASE("layouts and axes with experts that cannot be are refused with their place") {
  const auto with_layout = [](const std::string& layout) {
    return schedule_error(R"({"ranks": 4, "layout": )" + layout + R"(, "tasks": []})");
  };
  CHECK(with_layout(R"({"expert": 2})") == "s.json: layout: an expert axis needs whole experts on each rank");
  CHECK(with_layout(R"({"expert": 3, "whole_experts": true})") ==
        "s.json: layout: tensor 1 x context 1 x expert 3 x data 1 = 3 does not divide the cluster's 4 devices");
  CHECK(with_layout(R"({"expert": 0, "whole_experts": true})").starts_with("s.json: layout.expert: expected a whole number"));
  CHECK(with_layout(R"({"whole_experts": 1})").starts_with("s.json: layout.whole_experts: expected"));
  CHECK(with_layout(R"({"experts": 2})").starts_with("s.json: layout: unknown key 'experts'; did you mean 'expert'?"));
  CHECK(with_layout(R"({"expert": 2, "whole_experts": true, "order": "tceesd"})")
            .starts_with("s.json: layout: layout 'tceesd' must name"));
  const auto with_axis = [](const std::string& axis) {
    return schedule_error(R"({"ranks": 2, "layout": {"tensor": 2}, "stages": [{}], "bodies": [{"forward": [{"kind": "compute"},
                             {"kind": "all_to_all", "axis": ")" +
                          axis + R"(", "bytes": 1}, {"kind": "compute", "after": [1]}]}], "tasks": []})");
  };
  CHECK(with_axis("all") == "no error");
  CHECK(with_axis("tensors").find("unknown axis 'tensors'; did you mean 'tensor'?") != std::string::npos);
  CHECK(with_axis("expert").find("bodies[0].forward[1].axis: unknown axis 'expert'") != std::string::npos);
}
