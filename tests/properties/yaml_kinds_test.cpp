// Properties of frameworks/yaml_job.hpp: drawn jobs, written as a YAML of each kind, read back as the
// same jobs.
// Not: what single keys mean (unit/frameworks).
#include "tawpipe/frameworks/yaml_job.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/random.hpp"

using namespace tawpipe;

namespace yaml_kinds {

namespace {

constexpr int devices = 32;

/// Flags of Megatron-LM that fit each other.
MegatronFlags draw_flags(support::Random& random) {
  const auto coin = [&] { return random.between(0, 1) == 0; };
  MegatronFlags flags;
  flags.tensor = 1 << random.between(0, 2);
  flags.pipeline = 1 << random.between(0, 2);
  flags.context = coin() ? 1 : 2;
  flags.layers = 16 * random.between(1, 3);
  if (flags.pipeline > 1 && coin()) flags.virtual_stages = 2;
  flags.sequence_parallel = flags.tensor > 1 && coin();
  flags.tensor_overlap = flags.sequence_parallel && coin();
  flags.distributed_optimizer = coin();
  flags.overlap_gradients = coin();
  flags.overlap_gathers = flags.distributed_optimizer && flags.overlap_gradients;
  flags.microbatch = random.between(1, 2);
  flags.global_batch = 128 * flags.microbatch;
  flags.sequence = 2048 << random.between(0, 2);
  flags.hidden = 1024 * random.between(1, 4);
  flags.heads = flags.hidden / 128;
  flags.ffn = 3 * flags.hidden;
  flags.vocab = 32000 + 128 * random.between(0, 9);
  flags.grouped = coin();
  if (flags.grouped) flags.groups = 4;
  flags.swiglu = flags.no_bias = coin();
  flags.unfused_accumulation = coin();
  flags.untied = coin();
  flags.normalization = flags.swiglu ? "RMSNorm" : "LayerNorm";
  flags.bf16 = true;
  if (coin()) flags.fp8 = "hybrid";
  if (!flags.fp8.empty() && coin()) flags.fp8_recipe = "mxfp8";
  flags.attention_dropout = flags.hidden_dropout = "0";
  if (coin()) {
    flags.granularity = coin() ? "full" : "selective";
    if (flags.granularity == "full") {
      flags.method = coin() ? "uniform" : "block";
      flags.recompute_layers = 1;
    } else {
      flags.recompute_modules = "core_attn mlp";
    }
  }
  return flags;
}

struct Line {
  std::string name;
  std::string value;
};
std::string indented(const std::vector<Line>& lines, const std::string& before, const std::string& head) {
  std::string text = head;
  for (const Line& line : lines) text += concat(before, line.name, ": ", line.value, "\n");
  return text;
}
/// `--tensor-model-parallel-size` as `tensor_model_parallel_size`.
std::vector<Line> arguments(const std::vector<WrittenSetting>& written) {
  std::vector<Line> lines;
  for (const WrittenSetting& one : written) {
    std::string name{one.name.substr(2)};
    std::replace(name.begin(), name.end(), '-', '_');
    std::string value = one.value;
    if (name == "disable_bias_linear") name = "add_bias_linear", value = "false";
    if (name == "no_gradient_accumulation_fusion") name = "gradient_accumulation_fusion", value = "false";
    if (name == "fp8_format") name = "fp8";
    if (name == "num_virtual_stages_per_pipeline_rank") name = "virtual_pipeline_model_parallel_size";
    lines.push_back({name, value});
  }
  return lines;
}
/// The same by Megatron Core's names, and the batch in a section of its own.
std::pair<std::vector<Line>, std::vector<Line>> of_core(const std::vector<Line>& lines) {
  std::vector<Line> model{{"share_embeddings_and_output_weights", "true"}};
  std::vector<Line> batch;
  for (Line line : lines) {
    if (line.name == "untie_embeddings_and_output_weights") {
      model.front().value = "false";
      continue;
    }
    if (line.name == "group_query_attention") continue;
    if (line.name == "swiglu") line.name = "gated_linear_unit";
    const bool of_batch = line.name == "micro_batch_size" || line.name == "global_batch_size";
    (of_batch ? batch : model).push_back(line);
  }
  return {model, batch};
}

/// The text of a kind. @pre its keys are Megatron-LM's arguments
std::string text_of(YamlKind kind, const MegatronFlags& flags) {
  const std::vector<WrittenSetting> written = written_settings(megatron_table(), flags);
  const std::vector<Line> named = arguments(written);
  const auto [model, batch] = of_core(named);
  const std::string optimizer = flags.distributed_optimizer ? "true" : "false";
  switch (kind) {
    case YamlKind::primus:
      return indented(named, "      ",
                      concat("modules:\n  pre_trainer:\n    framework: megatron\n    overrides:\n",
                             flags.sequence_parallel ? "" : "      sequence_parallel: false\n",
                             flags.distributed_optimizer ? "" : "      use_distributed_optimizer: false\n"));
    case YamlKind::nemo_2:
      return indented(
          model, "    ",
          indented(batch, "  ", "trainer: {devices: 8, num_nodes: 4, strategy: {seed: 1}}\ndata:\n") + "model:\n  config:\n");
    case YamlKind::bridge:
      return indented(model, "  ",
                      indented(batch, "  ", concat("ddp: {use_distributed_optimizer: ", optimizer, "}\ntrain:\n")) + "model:\n");
    default: {
      std::vector<Line> lines;
      for (const WrittenSetting& one : written) lines.push_back({std::string{one.name}, one.value});
      return indented(lines, "  ", "MODEL_ARGS:\n");
    }
  }
}

}  // namespace

TEST_CASE("drawn flags are the same job in each kind whose keys are Megatron-LM's arguments") {
  support::Random random{5};
  for (int draw = 0; draw < support::draws(100); ++draw) {
    const MegatronFlags flags = draw_flags(random);
    std::string script = "p.py";
    for (const WrittenSetting& one : written_settings(megatron_table(), flags))
      script += concat(" ", one.name, one.value == "true" && !one.is_text ? std::string{} : concat(" ", one.value));
    const FrameworkJob expected = megatron_job(script, "run.sh", devices);
    for (const YamlKind kind : {YamlKind::megatron, YamlKind::primus, YamlKind::nemo_2, YamlKind::bridge}) {
      const std::string text = text_of(kind, flags);
      CAPTURE(script);
      CAPTURE(text);
      const YamlJob back = yaml_job(text, "written.yaml", devices);
      CHECK(back.kind == kind);
      REQUIRE(megatron_text(back.job, {}) == megatron_text(expected, {}));
    }
  }
}

TEST_CASE("drawn jobs of nanotron and of trainers are read back") {
  support::Random random{6};
  const auto coin = [&] { return random.between(0, 1) == 0; };
  for (int draw = 0; draw < support::draws(100); ++draw) {
    for (const YamlKind kind : {YamlKind::nanotron, YamlKind::llama_factory, YamlKind::axolotl}) {
      const bool trainer = kind != YamlKind::nanotron;
      FrameworkJob job;
      job.model = models::named(coin() ? "llama-3-8b" : "qwen2.5-7b");
      job.dtype = job.model->dtype;
      job.sequence = 1024 * random.between(1, 8);
      job.microbatch_size = random.between(1, 4);
      job.recompute = coin() ? Recompute::full : Recompute::none;
      job.gradient_bytes = coin() ? 4 : 2;
      job.sequence_parallel = !trainer && coin();
      job.overlap_gathers = false;
      job.mesh.order = parse_mesh_order("tcds");
      Framework framework = trainer ? (coin() ? Framework::deepspeed : Framework::torchtitan) : Framework::megatron;
      if (!trainer) {
        job.mesh.tensor = 1 << random.between(0, 2);
        const int stages = 1 << random.between(0, 2);
        job.mesh.data = devices / job.mesh.tensor / stages;
        job.choice = stages == 1 ? ScheduleChoice{"ddp"} : ScheduleChoice{coin() ? "1f1b" : "gpipe", {{"overlap", "off"}}};
        job.sharding = coin() ? StateSharding::optimizer : StateSharding::none;
        job.tensor_overlap = job.sequence_parallel && coin();
        if (job.gradient_bytes == 2) job.master_copies = false, job.optimizer_bytes = 4;
        if (stages > 1) job.stage_cut = detail::nanotron_cut(*job.model, stages);
      } else if (framework == Framework::deepspeed) {
        const int stage = random.between(0, 3);
        job.choice = stage == 3 ? ScheduleChoice{"fsdp", {{"prefetch", "1"}, {"reshard", "on"}}}
                                : ScheduleChoice{stage == 2 ? "zero2" : "ddp"};
        job.mesh.data = stage >= 2 ? 1 : devices;
        job.sharding = stage > 0 ? StateSharding::optimizer : StateSharding::none;
        job.overlap_gradients = coin();
        job.offload.optimizer = stage > 0 && coin();
      } else {
        const bool sharded = coin();
        job.choice =
            sharded ? ScheduleChoice{"fsdp", {{"prefetch", "1"}, {"reshard", coin() ? "on" : "off"}}} : ScheduleChoice{"ddp"};
        job.mesh.data = sharded ? 1 : devices;
        job.mesh.order = parse_mesh_order(sharded ? "tcsd" : "tcds");
        job.sharding = sharded ? StateSharding::parameters : StateSharding::none;
        job.gradient_bytes = sharded ? 2 : 4;
      }
      job.mesh = job.mesh.over(devices);
      job.global_batch = job.microbatch_size * job.batch_parts() * random.between(1, 8);
      const std::string text = yaml_text(settings_of(kind, job, framework), {"a comment"});
      CAPTURE(text);
      const YamlJob back = yaml_job(text, "written.yaml", devices);
      CHECK(back.kind == kind);
      CHECK(back.framework == framework);
      FrameworkJob same = back.job;
      if (trainer) same.model = job.model;
      REQUIRE(same.model);
      CHECK(detail::same_sizes(*same.model, *job.model));
      REQUIRE(yaml_text(settings_of(kind, same, framework), {"a comment"}) == text);
      CHECK(same.mesh.tensor == job.mesh.tensor);
      CHECK(same.mesh.pipeline == job.mesh.pipeline);
      CHECK(same.mesh.data == job.mesh.data);
      CHECK(same.choice.schedule == job.choice.schedule);
      CHECK(same.choice.options == job.choice.options);
      CHECK(same.global_batch == job.global_batch);
      CHECK(same.recompute == job.recompute);
      CHECK(same.sharding == job.sharding);
      CHECK(same.offload == job.offload);
      CHECK(same.gradient_bytes == job.gradient_bytes);
      CHECK(same.overlap_gradients == job.overlap_gradients);
      CHECK(name(same.stage_cut) == name(job.stage_cut));
    }
  }
}

}  // namespace yaml_kinds
