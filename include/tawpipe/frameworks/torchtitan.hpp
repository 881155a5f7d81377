// Conversion between torchtitan's configuration and a plan.
// Not: TOML (toml_settings.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/frameworks/framework_job.hpp"
#include "tawpipe/frameworks/toml_settings.hpp"
#include "tawpipe/model/models.hpp"

namespace tawpipe::inline v0 {

/// The settings that a plan knows, with torchtitan's defaults.
/// Source: pytorch/torchtitan, torchtitan/config/job_config.py (0.2.2, the last version whose
/// configuration is TOML).
struct TorchtitanSettings {
  std::string model = "llama3";
  std::string flavor = "debugmodel";
  std::int64_t local_batch = 8;
  std::int64_t global_batch = -1;
  std::int64_t sequence = 2048;
  bool cpu_offload = false;
  std::string parameters = "bfloat16";
  int replicate = 1;
  int shard = -1;
  std::string reshard = "default";
  int tensor = 1;
  bool async_tensor = false;
  int pipeline = 1;
  std::string schedule = "1F1B";
  std::int64_t microbatch = 1;
  int layers_a_stage = 0;
  int first_less = 1;
  int last_less = 1;
  int context = 1;
  std::string rotate = "allgather";
  std::string recompute = "selective";
  std::string selective = "2";
  bool compile = false;
};

inline const SettingsTable<TorchtitanSettings>& torchtitan_table() {
  using S = TorchtitanSettings;
  constexpr std::string_view experts = "a mixture of experts is not modelled";
  constexpr std::string_view cut = "stages of given modules are not modelled";
  static const SettingsTable<S> table{
      .kind = "torchtitan setting",
      .fields = {{"model.name", &S::model},
                 {"model.flavor", &S::flavor},
                 {"training.local_batch_size", &S::local_batch},
                 {"training.global_batch_size", &S::global_batch},
                 {"training.seq_len", &S::sequence},
                 {"training.enable_cpu_offload", &S::cpu_offload},
                 {"training.mixed_precision_param", &S::parameters, {"bfloat16", "float32"}},
                 {"parallelism.data_parallel_replicate_degree", &S::replicate},
                 {"parallelism.data_parallel_shard_degree", &S::shard},
                 {"parallelism.fsdp_reshard_after_forward", &S::reshard, {"default", "always", "never"}},
                 {"parallelism.tensor_parallel_degree", &S::tensor},
                 {"parallelism.enable_async_tensor_parallel", &S::async_tensor},
                 {"parallelism.pipeline_parallel_degree", &S::pipeline},
                 {"parallelism.pipeline_parallel_schedule", &S::schedule},
                 {"parallelism.pipeline_parallel_microbatch_size", &S::microbatch},
                 {"parallelism.pipeline_parallel_layers_per_stage", &S::layers_a_stage},
                 {"parallelism.pipeline_parallel_first_stage_less_layers", &S::first_less},
                 {"parallelism.pipeline_parallel_last_stage_less_layers", &S::last_less},
                 {"parallelism.context_parallel_degree", &S::context},
                 {"parallelism.context_parallel_rotate_method", &S::rotate, {"allgather", "alltoall"}},
                 {"activation_checkpoint.mode", &S::recompute, {"selective", "full", "none", "memory_budget"}},
                 {"activation_checkpoint.selective_ac_option", &S::selective},
                 {"compile.enable", &S::compile}},
      .foreign = {{"parallelism.expert_parallel_degree", "1", experts},
                  {"parallelism.expert_tensor_parallel_degree", "1", experts},
                  {"parallelism.module_fqns_per_model_part", "[]", cut},
                  {"parallelism.pipeline_parallel_split_points", "[]", cut},
                  {"parallelism.pipeline_parallel_schedule_csv", "[]",
                   "a schedule of a file is simulated by simulate --schedule-file"},
                  {"parallelism.disable_loss_parallel", "false", "simulated with the loss in parts of the vocabulary", false},
                  {"model.converters", "[]", "simulated with products in 16 bits", false},
                  {"optimizer.early_step_in_backward", "false", "simulated with the update after all backwards", false},
                  {"fault_tolerance.enable", "false", "simulated without", false}},
      .skipped =
          "job.* profiling.* metrics.* optimizer.* lr_scheduler.* checkpoint.* comm.* memory_estimation.* experimental.* "
          "validation.* debug.* quantize.* float8.* mx.* fault_tolerance.* compile.components compile.backend "
          "model.hf_assets_path model.tokenizer_path "
          "model.print_after_conversion training.dataset training.dataset_path training.max_norm training.steps training.dtype "
          "training.mixed_precision_reduce training.gc_freq training.gc_debug training.dataloader.* training.seed "
          "training.deterministic training.compile parallelism.enable_compiled_autograd "
          "parallelism.context_parallel_load_balancer parallelism.pipeline_parallel_expert_parallel_overlap "
          "parallelism.expert_parallel_comm_backend activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns "
          "activation_checkpoint.early_stop activation_checkpoint.memory_budget activation_checkpoint.preserve_rng_state "
          "activation_checkpoint.visualize_memory_budget_pareto activation_checkpoint.determinism_check "
          "activation_checkpoint.debug",
      .renamed = {{"training.batch_size", "training.local_batch_size"},
                  {"training.data_parallel_replicate_degree", "parallelism.data_parallel_replicate_degree"},
                  {"training.data_parallel_shard_degree", "parallelism.data_parallel_shard_degree"},
                  {"training.data_parallel_degree", "parallelism.data_parallel_shard_degree"},
                  {"training.tensor_parallel_degree", "parallelism.tensor_parallel_degree"},
                  {"experimental.pipeline_parallel_degree", "parallelism.pipeline_parallel_degree"},
                  {"experimental.pipeline_parallel_schedule", "parallelism.pipeline_parallel_schedule"},
                  {"experimental.pipeline_parallel_microbatches", "parallelism.pipeline_parallel_microbatch_size"},
                  {"experimental.context_parallel_degree", "parallelism.context_parallel_degree"},
                  {"experimental.enable_async_tensor_parallel", "parallelism.enable_async_tensor_parallel"}}};
  return table;
}

namespace detail {

/// torchtitan's name of a pipeline, ours, and the chunks of a device: 0 if they can be chosen.
struct TorchtitanPipeline {
  std::string_view name;
  std::string_view ours;
  int chunks;
};
inline constexpr TorchtitanPipeline torchtitan_pipelines[] = {
    {"1F1B", "1f1b", 1},
    {"GPipe", "gpipe", 1},
    {"Interleaved1F1B", "interleaved-1f1b", 0},
    {"LoopedBFS", "looped-bfs", 0},
    {"InterleavedZeroBubble", "interleaved-zb", 0},
    {"ZBVZeroBubble", "zb-v", 2},
    {"DualPipeV", "dualpipe-v", 2},
};

/// Models known to both, by torchtitan's name and flavor.
struct TorchtitanModel {
  std::string_view name;
  std::string_view flavor;
  std::string_view ours;
};
inline constexpr TorchtitanModel torchtitan_models[] = {
    {"llama3", "8B", "llama-3-8b"}, {"llama3", "70B", "llama-3-70b"}, {"llama3", "405B", "llama-3-405b"}};

inline const TorchtitanPipeline* torchtitan_pipeline(std::string_view ours) {
  for (const TorchtitanPipeline& known : torchtitan_pipelines) {
    if (known.ours == ours) return &known;
  }
  return nullptr;
}

/// The schedule of a pipeline and the chunks of a device.
inline ScheduleChoice read_torchtitan_schedule(const ReadSettings<TorchtitanSettings>& read, int layers) {
  const TorchtitanSettings& settings = read.values;
  constexpr std::string_view key = "parallelism.pipeline_parallel_schedule";
  constexpr std::string_view stage_key = "parallelism.pipeline_parallel_layers_per_stage";
  const TorchtitanPipeline* found = nullptr;
  std::vector<std::string> names;
  for (const TorchtitanPipeline& known : torchtitan_pipelines) {
    names.emplace_back(known.name);
    if (known.name == settings.schedule) found = &known;
  }
  if (found == nullptr) read.fail(key, unknown_name("schedule", settings.schedule, names));
  int chunks = found->chunks == 0 ? 2 : found->chunks;  // its default for several stages a device
  if (settings.layers_a_stage > 0) {
    if (layers == 0) read.fail(stage_key, "needs the model's layers; give --model");
    const int slots = layers + settings.first_less + settings.last_less;
    const int stages = (slots + settings.layers_a_stage - 1) / settings.layers_a_stage;
    const bool divides = stages % settings.pipeline == 0;
    if (!divides || (found->chunks > 0 && stages / settings.pipeline != found->chunks) ||
        (found->chunks == 0 && stages == settings.pipeline)) {
      read.fail(stage_key, concat(settings.layers_a_stage, " makes ", stages, " stages of ", slots, " layers, which ",
                                  found->name, " cannot share among ", settings.pipeline, " devices"));
    }
    chunks = stages / settings.pipeline;
  }
  ScheduleChoice choice{.schedule = std::string{found->ours}};
  if (found->chunks == 0) choice.options["chunks"] = std::to_string(chunks);
  if (found->chunks == 1) choice.options["overlap"] = "off";
  return choice;
}

}  // namespace detail

/// A model as torchtitan runs it: the loss of float32 logits (F.cross_entropy of pred.float()), key
/// and value heads copied for each query head before attention (repeat_kv), selective recomputation
/// by operation (models/llama3/infra/parallelize.py).
inline Transformer as_torchtitan_runs(Transformer model, bool compiled) {
  model.loss_in_float32 = true;
  model.code = compiled ? LayerCode::torchtitan : LayerCode::torchtitan_eager;
  return model;
}

/// The job that torchtitan's settings describe, on that many devices.
/// @param layers  of the model that is given in place of theirs; 0: none
/// @throws InputError  naming setting, line and what would be right
inline FrameworkJob torchtitan_job(std::string_view text, std::string_view source, int devices, int layers) {
  ReadSettings<TorchtitanSettings> read = read_settings(torchtitan_table(), toml_settings(text, source));
  const TorchtitanSettings& s = read.values;
  FrameworkJob job;
  for (const auto& known : detail::torchtitan_models) {
    if (known.name == s.model && known.flavor == s.flavor) job.model = as_torchtitan_runs(models::named(known.ours), s.compile);
  }
  if (!job.model) job.model_lacks = concat("the sizes of ", s.model, " ", s.flavor);
  job.dtype = s.parameters == "float32" ? Dtype::f32 : Dtype::bf16;
  if (job.model) job.model = with_dtype(*std::move(job.model), *job.dtype);
  if (layers == 0 && job.model) layers = job.model->layers;
  for (const auto& [name, value] : {std::pair{"parallelism.tensor_parallel_degree", s.tensor},
                                    {"parallelism.pipeline_parallel_degree", s.pipeline},
                                    {"parallelism.context_parallel_degree", s.context},
                                    {"parallelism.data_parallel_replicate_degree", s.replicate}}) {
    if (value < 1 || value > devices) read.fail(name, concat(value, " is not a number of devices from 1 to ", devices));
  }
  const int left = detail::left_to_data(
      read, "parallelism.tensor_parallel_degree", detail::product_of({s.tensor, s.pipeline, s.context, s.replicate}, devices),
      devices, concat("tensor ", s.tensor, " x pipeline ", s.pipeline, " x context ", s.context, " x replicate ", s.replicate));
  if (s.shard != -1 && s.shard != left) {
    read.fail("parallelism.data_parallel_shard_degree",
              concat(s.shard, " is not what the others leave of the cluster's ", devices, " devices, ", left, "; -1 means that"));
  }
  detail::check_size(read, "training.local_batch_size", s.local_batch, detail::most_sequences);
  detail::check_size(read, "training.seq_len", s.sequence, detail::most_sequences);
  detail::check_size(read, "parallelism.pipeline_parallel_layers_per_stage", s.layers_a_stage, Transformer::max_layers);
  if (s.global_batch != -1) detail::check_size(read, "training.global_batch_size", s.global_batch, detail::most_sequences);
  if (s.microbatch < 1) read.fail("parallelism.pipeline_parallel_microbatch_size", "must be 1 or more");
  if (s.local_batch < 1) read.fail("training.local_batch_size", "must be 1 or more");
  job.mesh = {.tensor = s.tensor, .context = s.context, .data = s.replicate * left};
  job.sequence = s.sequence;
  job.sequence_parallel = true;
  job.tensor_overlap = s.async_tensor && s.compile;
  if (s.async_tensor && !s.compile && s.tensor > 1) {
    read.note("parallelism.enable_async_tensor_parallel", "without compile.enable it has no effect; simulated so");
  }
  job.context_exchange = s.rotate == "alltoall" ? ContextExchange::ring : ContextExchange::all_gather;
  const bool shards = left > 1 || s.context > 1;  // over context-parallel devices too
  job.sharding = shards ? StateSharding::parameters : StateSharding::none;
  job.reshard = s.reshard == "never" ? Reshard::step : s.reshard == "always" ? Reshard::microbatch : Reshard::automatic;
  if (s.context > 1 && s.replicate > 1) {
    read.fail("parallelism.data_parallel_replicate_degree",
              "replicas of states sharded over context-parallel devices are not modelled");
  }
  if (s.cpu_offload) read.note("training.enable_cpu_offload", "simulated with weights and gradients on the devices");
  job.offload.optimizer = s.cpu_offload;
  job.microbatch_size = s.pipeline > 1 ? s.microbatch : s.local_batch;
  job.global_batch = s.global_batch > 0 ? s.global_batch : s.local_batch * s.replicate * left;
  if (s.pipeline > 1) {
    if (left > 1 && s.replicate > 1) {
      read.fail("parallelism.data_parallel_replicate_degree", "states sharded and replicated around a pipeline are not modelled");
    }
    if (s.local_batch % s.microbatch != 0) {
      read.fail("parallelism.pipeline_parallel_microbatch_size",
                concat(s.microbatch, " does not divide training.local_batch_size, ", s.local_batch));
    }
    if (s.reshard == "always" && shards) {
      read.note("parallelism.fsdp_reshard_after_forward", "simulated with gradients summed after each backward too");
    }
    if (s.first_less != s.last_less || s.first_less > 1 || s.first_less < 0) {
      read.fail("parallelism.pipeline_parallel_first_stage_less_layers",
                "embedding and loss are modelled as a layer each (1 and 1) or none (0 and 0)");
    }
    job.edges_count_as_layers = s.first_less == 1;
    job.choice = detail::read_torchtitan_schedule(read, layers);
    job.mesh.order = parse_mesh_order("tcds");
    if (job.global_batch > s.local_batch * job.mesh.data) {
      read.note("training.global_batch_size",
                "the pipeline is emptied after each training.local_batch_size; simulated as if not");
    }
  } else if (left > 1 && s.context == 1) {
    job.reshard = Reshard::automatic;
    job.choice = {"fsdp", {{"prefetch", "1"}, {"reshard", s.reshard == "never" ? "off" : "on"}}};
    job.mesh.data = s.replicate;
    job.mesh.order = parse_mesh_order("tcsd");
    if (s.replicate > 1) job.sharding = StateSharding::none;  // nothing is sharded over the groups
  } else {
    job.choice = {"ddp"};
    job.mesh.order = parse_mesh_order("tcds");
  }
  job.mesh = job.mesh.over(devices);
  detail::check_batch(read, read.has("training.global_batch_size") ? "training.global_batch_size" : "training.local_batch_size",
                      job);
  job.recompute = s.recompute == "none" ? Recompute::none : s.recompute == "full" ? Recompute::full : Recompute::selective;
  if (s.recompute == "memory_budget") read.note("activation_checkpoint.mode", "simulated as selective");
  if (s.recompute == "selective" && s.selective == "1") job.recompute = Recompute::full;
  if (s.recompute == "selective" && s.selective != "1" && s.selective != "op") {
    read.note("activation_checkpoint.selective_ac_option",
              concat("each ", s.selective, "th layer is computed again; simulated as op"));
  }
  job.notes = std::move(read.notes);
  return job;
}

/// Why torchtitan cannot run the job; nothing if it can.
inline std::vector<std::string> torchtitan_cannot(const FrameworkJob& job) {
  detail::Reasons reasons;
  const std::string& name = job.choice.schedule;
  const detail::TorchtitanPipeline* const pipeline = detail::torchtitan_pipeline(name);
  const bool fsdp = name == "fsdp";
  reasons.add_if(pipeline == nullptr && !fsdp && name != "ddp",
                 concat("torchtitan has the pipelines of torch.distributed.pipelining, DDP and FSDP; it has no ", name));
  reasons.add_if(pipeline != nullptr && job.mesh.pipeline == 1, concat(name, " of one device is ddp"));
  reasons.add_if(name == "ddp" && job.mesh.pipeline > 1, "data parallelism is the mesh's: ddp of one device, --data-parallel");
  reasons.add_if(pipeline != nullptr && pipeline->chunks == 0 && job.chunks() == 1,
                 concat(name, " has two chunks a device or more"));
  reasons.add_if(pipeline != nullptr && pipeline->chunks == 1 && detail::option_of(job.choice, "overlap", "off") != "off",
                 "PyTorch's 1F1B and GPipe have no sends and receives beside computation (overlap=off)");
  for (const auto& [key, value] : job.choice.options) {
    reasons.add_if(!(key == "chunks" || key == "prefetch" || key == "reshard" || key == "overlap" || value == "flat"),
                   concat("torchtitan has no option ", key, "=", value));
  }
  reasons.add_if(fsdp && detail::option_of(job.choice, "prefetch", "0") != "1", "FSDP gathers one layer ahead (prefetch=1)");
  reasons.add_if(fsdp && job.mesh.pipeline == 1, "fsdp of one device is ddp");
  const bool all = job.sharding == StateSharding::parameters;
  const bool copies = job.mesh.data * job.mesh.context > 1;
  reasons.add_if(fsdp && job.mesh.data > 1 && job.shards(),
                 "FSDP in groups keeps the optimizer's states in each group (--shard-states none)");
  reasons.add_if(fsdp && job.mesh.context > 1,
                 "FSDP over context-parallel devices too is ddp of one device (--shard-states parameters)");
  reasons.add_if(!fsdp && copies && job.shards() && !all, "states are sharded all or not at all (--shard-states parameters)");
  reasons.add_if(!fsdp && job.mesh.context > 1 && !all, "states are sharded over context-parallel devices");
  reasons.add_if(name == "ddp" && all && job.mesh.data > 1 && job.mesh.context == 1, "that is fsdp");
  reasons.add_if(pipeline != nullptr && all && copies && job.reshard == Reshard::microbatch,
                 "PyTorch's pipelines sum gradients once a step (--reshard auto)");
  reasons.add_if(!detail::lies_as(job.mesh, fsdp ? "tcsd" : "tcds"),
                 concat("torchtitan does not lay out devices as ", mesh_order_text(job.mesh.order)));
  const int stages = pipeline != nullptr ? job.mesh.pipeline * (pipeline->chunks > 0 ? pipeline->chunks : job.chunks()) : 1;
  const int slots = detail::slots_of(job);
  reasons.add_if(slots % stages != 0, concat(slots, " layers are not shared equally by ", stages, " stages"));
  reasons.add_if(
      job.is_one_of({"interleaved-1f1b", "interleaved-zb", "looped-bfs"}) && job.microbatches() % job.mesh.pipeline != 0,
      concat(name, " needs microbatches in multiples of ", job.mesh.pipeline));
  reasons.add_if(name == "dualpipe-v" && job.microbatches() < 2 * job.mesh.pipeline, "DualPipeV needs two microbatches a device");
  const int part = 2 * job.mesh.context * job.mesh.tensor;
  reasons.add_if(job.mesh.context > 1 && job.sequence % part != 0,
                 concat("the sequence must be a multiple of ", part, ", twice context- times tensor-parallel devices"));
  reasons.add_if(job.mesh.context > 1 && job.context_exchange > ContextExchange::ring,
                 "context parallelism is by all-gather or ring (--context-exchange)");
  reasons.add_if(job.mesh.tensor > 1 && !job.sequence_parallel, "tensor parallelism is with sequence parallelism");
  reasons.add_if(job.model && !job.model->loss_in_float32, "the loss is of logits in float32 (--loss-dtype)");
  reasons.add_if(job.gradient_bytes != 4, "gradients are summed in float32 (--gradient-dtype)");
  reasons.add_if(!(job.overlap_gradients && (job.overlap_gathers || !job.shards())) && copies,
                 "sums of gradients and gathers of weights overlap computation (--overlap-grad-reduce, --overlap-param-gather)");
  reasons.add_if(job.offload.any(), "offload moves weights and gradients to the host too, which is not modelled");
  reasons.add_if(job.model && (job.model->dtype == Dtype::f64 || job.model->dtype == Dtype::f8),
                 "weights are bfloat16 or float32");
  reasons.add_if(job.model && job.model->products != ProductFormat::bits16 && job.model->products != ProductFormat::bits32,
                 "products in 8 bits are a converter's, which is not modelled");
  reasons.add_if(job.recompute_layers > 0 || job.recompute_parts.any(),
                 "torchtitan recomputes every layer, every second one or what it chooses (--recompute full, selective)");
  detail::need_float32_states(reasons, job);
  detail::need_what_all_need(reasons, job);
  return reasons.take();
}

/// The settings with which torchtitan runs the job. @pre torchtitan_cannot() is empty
inline TorchtitanSettings torchtitan_settings(const FrameworkJob& job) {
  TorchtitanSettings s;
  const std::string& name = job.choice.schedule;
  const detail::TorchtitanPipeline* const pipeline = detail::torchtitan_pipeline(name);
  for (const auto& known : detail::torchtitan_models) {
    if (!job.model || !detail::same_sizes(models::named(known.ours), *job.model)) continue;
    s.model = known.name;
    s.flavor = known.flavor;
  }
  if (job.model && job.model->dtype == Dtype::f32) s.parameters = "float32";
  s.sequence = job.sequence;
  s.global_batch = job.global_batch;
  s.local_batch = pipeline != nullptr ? job.global_batch / job.mesh.data : job.microbatch_size;
  s.tensor = job.mesh.tensor;
  s.context = job.mesh.context;
  s.async_tensor = job.tensor_overlap && s.tensor > 1;
  s.compile = s.async_tensor || !job.model || job.model->code != LayerCode::torchtitan_eager;
  if (s.context > 1 && job.context_exchange == ContextExchange::ring) s.rotate = "alltoall";
  if (name == "fsdp") {
    s.shard = job.mesh.pipeline;
    s.replicate = job.mesh.data;
    if (detail::option_of(job.choice, "reshard", "on") == "off") s.reshard = "never";
  } else {
    s.shard = job.shards() ? job.mesh.data : 1;
    s.replicate = job.shards() ? 1 : job.mesh.data;
    if (job.reshard != Reshard::automatic) s.reshard = job.reshard == Reshard::step ? "never" : "always";
  }
  if (pipeline != nullptr) {
    s.pipeline = job.mesh.pipeline;
    s.schedule = pipeline->name;
    s.microbatch = job.microbatch_size;
    s.first_less = s.last_less = job.edges_count_as_layers ? 1 : 0;
    if (job.model)
      s.layers_a_stage = detail::slots_of(job) / (job.mesh.pipeline * (pipeline->chunks > 0 ? pipeline->chunks : job.chunks()));
  }
  const Recompute recompute = job.recompute.value_or(Recompute::none);
  s.recompute = tawpipe::name(recompute);
  if (recompute == Recompute::selective) s.selective = "op";
  return s;
}

/// The settings as TOML, after `comments`. @pre as torchtitan_settings()
inline std::string torchtitan_text(const FrameworkJob& job, const std::vector<std::string>& comments) {
  std::string text;
  for (const std::string& comment : comments) text += concat("# ", comment, "\n");
  if (job.model && job.model->dtype == Dtype::f16) text += "# float16 is bfloat16 there, as large and as fast\n";
  const TorchtitanSettings settings = torchtitan_settings(job);
  if (settings.flavor == TorchtitanSettings{}.flavor) {
    text += "# [model] name and flavor are yours to set: torchtitan names no model of these sizes\n";
  }
  return text + toml_text(written_settings(torchtitan_table(), settings));
}

}  // namespace tawpipe
