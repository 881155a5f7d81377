// Decoders in a schedule's JSON: every named model, kinds of layers, those that predict further tokens, and
// what is refused.
// Not: other work (schedule_json_work_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "support/schedule_text.hpp"
#include "tawpipe/model/huggingface_config.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/model/published_models.hpp"
#include "tawpipe/model/transformer_fields.hpp"
#include "tawpipe/report/schedule_json.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"
#include "tawpipe/verify/check_work.hpp"

namespace schedule_json_decoder_test {

namespace {

using namespace tawpipe;
using namespace tawpipe::literals;
using support::schedule_error;

auto facts(const Kernel& of) {
  return std::tuple{of.kind,
                    of.pass,
                    of.format,
                    of.by_tensor,
                    of.by_context,
                    of.count,
                    of.launches,
                    of.singles,
                    of.adds,
                    of.of_weights,
                    of.of_edge,
                    of.of_experts,
                    of.before_blackwell,
                    of.pytorch,
                    of.aligned,
                    of.by_tokens,
                    of.m,
                    of.n,
                    of.k,
                    of.batch,
                    of.bytes,
                    of.op,
                    of.layer_kind};
}
auto facts(const StageWork& of) {
  return std::tuple{of.parameters,
                    of.expert_parameters,
                    of.edge_parameters,
                    of.saved.value(),
                    of.stash.value(),
                    of.boundary.value(),
                    of.forward_workspace.value(),
                    of.backward_workspace.value(),
                    of.stashed_workspace.value(),
                    of.forward.value(),
                    of.recompute.value(),
                    of.backward_input.value(),
                    of.backward_weight.value(),
                    of.forward_traffic.value(),
                    of.backward_traffic.value(),
                    of.kinds};
}

/// Whether two stages have the same numbers and the same kernels.
bool same_work(const StageWork& a, const StageWork& b) {
  return facts(a) == facts(b) && std::equal(a.kernels.begin(), a.kernels.end(), b.kernels.begin(), b.kernels.end(),
                                            [](const Kernel& one, const Kernel& other) { return facts(one) == facts(other); });
}

Schedule schedule_of(const Transformer& model, Recompute recompute) {
  const Workload workload{model, Batch{.sequence = 256, .microbatch_size = 1, .global_batch = 2}, recompute};
  ScheduleBuilder builder{"x", workload, 1, {"compute"}};
  builder.stages(workload.split(2));
  return builder.build();
}

std::string work_findings(const Schedule& schedule) {
  Diagnostics found;
  check_work(schedule, found);
  return found.errors() + found.warnings() == 0 ? "" : found.text();
}

/// The decoder that is read back has the same members, work and kernels. @return the file
std::string check_comes_back(const Transformer& model, Recompute recompute = Recompute::none) {
  CAPTURE(model.name);
  const Schedule schedule = schedule_of(model, recompute);
  std::string text = schedule_json(schedule);
  const Schedule read = parse_schedule_json(text);
  CHECK(schedule_json(read) == text);
  const LayerStack& made = schedule.workload().model();
  const LayerStack& stack = read.workload().model();
  REQUIRE(stack.decoder);
  const Transformer& decoder = *stack.decoder;
  for (const auto& field : detail::ModelFields<Transformer>::rows)
    CHECK_MESSAGE(field.get(decoder) == field.get(model), field.key);
  CHECK(decoder.kinds == model.kinds);
  CHECK(decoder.pattern == model.pattern);
  CHECK(decoder.mtp == model.mtp);
  CHECK((decoder.name == model.name && decoder.layers == model.layers && decoder.tied == model.tied));
  CHECK((decoder.dtype == model.dtype && decoder.utilization == model.utilization));
  CHECK(decoder.parameters() == model.parameters());
  CHECK(stack.parameters() == model.parameters());
  CHECK(stack.has_kernels());
  CHECK(stack.last_edge_experts == made.last_edge_experts);
  std::vector<const StageWork*> parts;
  LayerStack::for_each_part(made, [&](const char*, const StageWork& part) { parts.push_back(&part); });
  std::size_t next = 0;
  LayerStack::for_each_part(stack, [&](const char* what, const StageWork& part) {
    CAPTURE(std::string{what});
    REQUIRE(next < parts.size());
    StageWork same = *parts[next++];
    same.edge_parameters = part.edge_parameters;      // of a part its `parameters` are its own,
    same.expert_parameters = part.expert_parameters;  // and those of experts stand beside it
    CHECK(same_work(part, same));
  });
  CHECK(next == parts.size());
  for (std::size_t s = 0; s < 2; ++s) {
    CHECK(same_work(read.stages()[s], schedule.stages()[s]));
    CHECK(read.stages()[s].recomputed == schedule.stages()[s].recomputed);
  }
  CHECK(work_findings(read).empty());
  return text;
}

/// Windows and full attention by turns, a mixture, a gated delta net and Mamba-2, one of which predicts a further
/// token.
Transformer hybrid() {
  const Attention full{.heads = 4, .kv_heads = 2, .head_dim = 16, .sinks = true, .gate = true, .qk_norm = QkNorm::head};
  Attention window = full;
  window.window = 32;
  const Mixture mixture{.experts = 8, .per_token = 2, .width = 24, .shared_width = 32, .router_bias = true, .shared_gate = true};
  const Mlp mlp{.width = 96, .function = MlpFunction::squared_relu};
  const DeltaNet delta{.key_heads = 2, .value_heads = 4, .key_dim = 8, .value_dim = 8};
  const Mamba2 mamba{.heads = 4, .head_dim = 16, .groups = 2, .state = 8, .bias = true};
  Transformer model = Transformer::of({.name = "hybrid",
                                       .hidden = 64,
                                       .vocab = 100,
                                       .positions = 512,
                                       .final_norm_bias = true,
                                       .kinds = {{.name = "window", .sublayers = {window, mlp}, .norms = NormPlace::both},
                                                 {.name = "full", .sublayers = {full, mixture}, .norm_bias = true},
                                                 {.name = "linear", .sublayers = {delta, mixture}},
                                                 {.name = "mamba", .sublayers = {mamba}}},
                                       .pattern = {0, 2, 2, 1, 3, 3, 0},
                                       .mtp = {1}});
  model.products = ProductFormat::mxfp8;
  model.recompute_layers = 1;
  return model;
}

std::string changed(std::string text, std::string_view from, std::string_view to) {
  REQUIRE(text.find(from) != std::string::npos);
  return text.replace(text.find(from), from.size(), to);
}

}  // namespace

TEST_CASE("every named model comes back from its file, with its work and its kernels") {
  std::set<std::string> names;
  for (const models::ModelPreset& preset : models::all()) names.emplace(preset.name);
  for (const auto& model : detail::published_models) names.emplace(model.name);
  CHECK(names.size() > 100);
  int kinds = 0;
  for (const std::string& name : names) {
    const auto published = find_published_model(name);
    REQUIRE(published);
    const Transformer model = timed_model(*published);
    kinds += model.has_kinds() ? 1 : 0;
    check_comes_back(model);
  }
  CHECK(kinds > 10);
}

TEST_CASE("kinds of layers and those that predict further tokens come back with each recomputation") {
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    const std::string text = check_comes_back(hybrid(), recompute);
    CHECK(text.find(R"("sizes":{"hidden":64,"norm_bias":1,"positions":512,"products":5,"recompute_layers":1,"vocab":100})") !=
          std::string::npos);
    CHECK(text.find(R"({"name":"full","norm_bias":true,"sublayers":[{"attention":{"heads":4,"kv_heads":2,"head_dim":16,)"
                    R"("sinks":true,"gate":true,"qk_norm":"head"}},{"mixture":)") != std::string::npos);
    CHECK(text.find(R"("mtp":[1])") != std::string::npos);
  }
  Transformer model = models::named("deepseek-v2-lite");  // by its sizes, without kinds
  model.mtp = {0, 1};
  check_comes_back(model);
  model.mtp = {2};
  CHECK_THROWS_WITH_AS(model.check(), doctest::Contains("a layer is of kind 2; it has 2 kinds"), InputError);
}

TEST_CASE("kinds of layers are written by hand, too") {
  const auto model = [](std::string_view kinds, std::string_view rest = "") {
    return concat(R"({"workload": {"model": {"layers": 3, "hidden": 64, "vocab": 100, "kinds": )", kinds,
                  R"(, "pattern": [[1, 1], [0, 2]])", rest,
                  R"(}, "batch": {"sequence": 8, "global_batch": 2}}, "ranks": 1, "tasks": []})");
  };
  const std::string mlp =
      R"({"sublayers": [{"attention": {"heads": 4, "kv_heads": 2, "head_dim": 16}}, {"mlp": {"width": 96}}]})";
  const std::string window = changed(mlp, R"("head_dim": 16)", R"("head_dim": 16, "window": 4)");
  const auto of = [&](std::string_view one, std::string_view rest = "") { return model(concat("[", mlp, ", ", one, "]"), rest); };
  const LayerStack read =
      parse_schedule_json(of(window, R"(, "products": "mxfp8", "mtp": [1], "fused_swiglu": true)")).workload().model();
  REQUIRE(read.decoder);
  CHECK((read.decoder->heads == 4 && read.decoder->kv_heads == 2 && read.decoder->intermediate == 96));
  CHECK((read.decoder->products == ProductFormat::mxfp8 && read.decoder->fused_swiglu));
  CHECK(read.pattern == LayerPattern{1, 0, 0});
  CHECK(read.others[0].layer.forward < read.layer.forward);  // a token sees fewer

  const auto error = [](const std::string& text) { return schedule_error(text); };
  CHECK(error(model("[]")) == "s.json: workload.model.kinds: expected 1 to 256 kinds of layers");
  CHECK(error(of(changed(mlp, "mlp", "mpl"))).find("sublayers[1]: unknown key 'mpl'; did you mean 'mlp'?") != std::string::npos);
  CHECK(error(of(R"({"sublayers": [{}]})")).find(R"(expected one sublayer, such as {"mlp": {"width": 4096}})") !=
        std::string::npos);
  CHECK(error(of(changed(mlp, "\"width\": 96", "\"width\": 0"))).find("mlp.width: expected a whole number from 1 to") !=
        std::string::npos);
  CHECK(error(of(changed(mlp, "\"width\": 96", "\"function\": \"silu\""))).find("unknown function 'silu'") != std::string::npos);
  CHECK(error(of(changed(mlp, "\"width\": 96", "\"bias\": 1.5"))).find("mlp.bias: expected true or false") != std::string::npos);
  CHECK(error(of(changed(mlp, "\"width\": 96", "\"bias\": true"))).find("an MLP needs a width") != std::string::npos);
  CHECK(error(of(changed(mlp, "\"kv_heads\": 2", "\"kv_heads\": 3"))).find("do not divide 4 heads") != std::string::npos);
  CHECK(error(of(changed(mlp, R"(4, "kv_heads": 2, "head_dim": 16)", R"(8, "kv_heads": 8, "head_dim": 131072)")))
            .find("have 1048576 numbers of a token side by side; the most is 524288") != std::string::npos);
  CHECK(error(of(window, R"(, "mtp": [2])")).find("mtp[0]: there is no kind of layers 2; they are 0 to 1") != std::string::npos);
  CHECK(error(of(window, R"(, "products": "fp7")")).find("model.products: unknown products 'fp7'") != std::string::npos);
  CHECK(error(of(window, R"(, "heads": 3)")).find("key-value heads do not divide the 3 heads") != std::string::npos);
  CHECK(error(changed(of(window), "[0, 2]", "[0, 1]")).find("its pattern has 2 layers, not 3") != std::string::npos);
  CHECK(error(changed(of(window), "[0, 2]", "[2, 2]")).find("pattern[1][0]: expected a whole number from 0 to 1") !=
        std::string::npos);
  CHECK(error(changed(of(window), "\"hidden\": 64, ", "")).find("model: 'hidden' is missing") != std::string::npos);
  CHECK(error(changed(of(window), "\"kinds\"", "\"kind\"")).find("unknown key 'kind'; did you mean 'kinds'?") !=
        std::string::npos);
}

TEST_CASE("a decoder that is not that of a file's numbers is refused or found") {
  const std::string text = schedule_json(schedule_of(hybrid(), Recompute::full));
  const auto found = [&](std::string_view from, std::string_view to) {
    return work_findings(parse_schedule_json(changed(text, from, to)));
  };
  CHECK(found(R"("window":32)", R"("window":33)").find("the model is not that of its sizes") != std::string::npos);
  CHECK(found(R"("experts":8)", R"("experts":9)").find("of its other layer parameters is") != std::string::npos);
  CHECK(found(R"("mtp":[1])", R"("mtp":[2])").find("of its last edge") != std::string::npos);
  CHECK(found(R"("positions":512)", R"("positions":511)").find("of its first edge parameters is") != std::string::npos);
  CHECK(found(R"("kinds":[{"name":"window","norms":"both")", R"("kinds":[{"name":"window")").find("of its layer parameters is") !=
        std::string::npos);
  const auto refused = [&](std::string_view from, std::string_view to) { return schedule_error(changed(text, from, to)); };
  CHECK(refused(R"("hidden":64)", R"("hiden":64)").find("sizes: unknown key 'hiden'; did you mean 'hidden'?") !=
        std::string::npos);
  CHECK(refused(R"("products":5)", R"("products":7)").find("sizes.products: expected a whole number from 0 to 6, not 7") !=
        std::string::npos);
  CHECK(refused(R"("sizes":{)", R"("decoder":false,"sizes":{)").find("is a decoder") != std::string::npos);

  const Transformer plain{.name = "p", .layers = 2, .hidden = 8, .heads = 2, .kv_heads = 1, .intermediate = 12, .vocab = 10};
  const std::string sizes = schedule_json(schedule_of(plain, Recompute::none));
  const std::string key = R"("sizes":{"heads":2,"hidden":8,"intermediate":12,"kv_heads":1,"vocab":10})";
  const std::string other = changed(sizes, key, changed(key, "12", "13"));
  CHECK(work_findings(parse_schedule_json(other)).find("of its layer parameters is") != std::string::npos);
  CHECK(schedule_error(changed(sizes, key, changed(key, "12", "0")))
            .find("sizes.intermediate: expected a whole number from 1 to") != std::string::npos);
  CHECK_FALSE(parse_schedule_json(changed(sizes, R"("heads":2,)", "")).workload().model().decoder);  // sizes of its author
}

TEST_CASE("a model of another kind may name the sizes of a decoder") {
  LayerStack model{.name = "perceptrons", .layers = 4, .layer = {.parameters = 128, .boundary = 48_B, .forward = Flops{10}}};
  model.sizes = {{"hidden", 8}, {"heads", 2}, {"kv_heads", 0}, {"intermediate", 9}, {"vocab", 5}, {"depth", 3}};
  const Workload workload{model, Batch{.sequence = 6, .microbatch_size = 1, .global_batch = 8}};
  ScheduleBuilder builder{"x", workload, 1, {"compute"}};
  builder.stages(workload.split(2));
  const std::string text = schedule_json(builder.build());
  CHECK(text.find(R"("decoder":false,"sizes":{)") != std::string::npos);
  const Schedule read = parse_schedule_json(text);
  CHECK(schedule_json(read) == text);
  CHECK_FALSE(read.workload().model().decoder);
  CHECK(read.workload().model().size("depth") == 3);
  CHECK(work_findings(read).empty());
}

}  // namespace schedule_json_decoder_test
