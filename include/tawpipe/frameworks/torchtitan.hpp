// Conversion between torchtitan's configuration and a plan.
// Not: the table of settings (torchtitan_table.hpp), TOML (toml_settings.hpp).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/frameworks/detail/torchtitan_experts.hpp"
#include "tawpipe/frameworks/detail/torchtitan_models.hpp"
#include "tawpipe/frameworks/framework_job.hpp"
#include "tawpipe/frameworks/toml_settings.hpp"
#include "tawpipe/frameworks/torchtitan_command.hpp"
#include "tawpipe/frameworks/torchtitan_log.hpp"
#include "tawpipe/frameworks/torchtitan_table.hpp"
#include "tawpipe/model/models.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// torchtitan's name for a pipeline, ours, and the chunks of a device: 0 if they can be chosen.
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
  model.fused_swiglu = model.code_fuses_swiglu();
  return model;
}

namespace detail {

/// Products in 8 bits, and weights that are gathered in 8 bits.
/// Source: torchtitan, components/quantization/float8.py; torchao, float8/config.py: float8
/// gathers have one scale a tensor.
inline void read_torchtitan_float8(ReadSettings<TorchtitanSettings>& read, FrameworkJob& job) {
  constexpr std::string_view gathers = "quantize.linear.float8.enable_fsdp_float8_all_gather";
  constexpr std::string_view recipe = "quantize.linear.float8.recipe_name";
  const TorchtitanSettings& s = read.values;
  bool converted = false;
  for (const std::string_view converter : split(s.converters, ' ')) {
    if (converter.empty()) continue;
    if (converter == "quantize.linear.float8" || converter == "float8") {  // the latter until 0.2
      converted = true;
    } else {
      read.note("model.converters", concat(converter, " is not modelled; simulated with products in 16 bits"));
    }
  }
  if (!converted) return;
  const bool rows = s.float8_recipe.starts_with("rowwise");
  if (rows && s.float8_gathers) read.fail(gathers, concat("needs one scale a tensor, not ", recipe, " ", s.float8_recipe));
  if (s.float8_recipe == "rowwise_with_gw_hp") read.note(recipe, "simulated with gradients of weights in 8 bits too");
  if (s.float8_kept != "output")
    read.note("model.converters", "simulated with all products of layers in 8 bits, and the output matrix's in 16");
  job.products = rows ? ProductFormat::fp8_rows : ProductFormat::fp8;
  job.narrow_gathers = s.float8_gathers && job.sharding == StateSharding::parameters;
  if (job.model) job.model = with_products(*std::move(job.model), job);
}

}  // namespace detail

/// The job that torchtitan's settings describe, on that many devices.
/// @param text  a TOML, a script that starts torchtitan, or its log
/// @throws InputError  naming setting, line and what would be right
inline FrameworkJob torchtitan_job(std::string_view text, std::string_view source, int devices, const GivenJob& given = {}) {
  const bool logged = is_torchtitan_log(text);
  SettingsText found = logged                       ? torchtitan_log_settings(text, source, given)
                       : is_torchtitan_script(text) ? torchtitan_command_settings(text, source, given.script)
                                                    : toml_settings(text, source);
  found.strict = given.strict;
  int layers = given.layers;
  ReadSettings<TorchtitanSettings> read = read_settings(torchtitan_table(), std::move(found));
  const TorchtitanSettings& s = read.values;
  FrameworkJob job;
  const bool compiled = s.compiles_model();
  job.code = compiled ? LayerCode::torchtitan : LayerCode::torchtitan_eager;
  if (s.dtype == "bfloat16") {  // weights, gradients and moments
    if (s.parameters != "bfloat16") read.fail("training.dtype", "bfloat16 needs training.mixed_precision_param bfloat16");
    job.gradient_bytes = 2;
    job.optimizer_bytes = 4;
    job.master_copies = false;
  }
  for (const auto& known : detail::torchtitan_models) {
    if (known.name == s.model && known.flavor == s.flavor) job.model = as_torchtitan_runs(models::named(known.ours), compiled);
  }
  detail::run_torchtitan_experts(read, job);
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
  detail::check_size(read, "training.local_batch_size", s.local_batch, detail::max_sequences);
  detail::check_size(read, "training.seq_len", s.sequence, detail::max_sequences);
  detail::check_size(read, "parallelism.pipeline_parallel_layers_per_stage", s.layers_a_stage, Transformer::max_layers);
  if (s.global_batch != -1) detail::check_size(read, "training.global_batch_size", s.global_batch, detail::max_sequences);
  if (s.microbatch < 1) read.fail("parallelism.pipeline_parallel_microbatch_size", "must be 1 or more");
  if (s.local_batch < 1) read.fail("training.local_batch_size", "must be 1 or more");
  job.mesh = {.tensor = s.tensor, .context = s.context, .data = s.replicate * left};
  detail::share_torchtitan_experts(read, job);
  job.sequence = s.sequence;
  job.sequence_parallel = true;
  job.tensor_overlap = s.async_tensor && compiled;
  if (s.async_tensor && !compiled && s.tensor > 1) {
    read.note("parallelism.enable_async_tensor_parallel", "without compile.enable of the model it has no effect; simulated so");
  }
  job.context_exchange = s.rotate == "alltoall" ? ContextExchange::ring : ContextExchange::all_gather;
  const bool shards = left > 1 || s.context > 1 || s.expert > 1;  // over context-parallel devices too
  job.sharding = shards ? StateSharding::parameters : StateSharding::none;
  detail::read_torchtitan_float8(read, job);
  job.reshard = s.reshard == "never" ? Reshard::step : s.reshard == "always" ? Reshard::microbatch : Reshard::automatic;
  if (s.context > 1 && s.replicate > 1) {
    read.fail("parallelism.data_parallel_replicate_degree",
              "replicas of states sharded over context-parallel devices are not modelled");
  }
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
    job.mesh.order = parse_mesh_order(s.expert > 1 ? "tceds" : "tcds");
    if (job.global_batch > s.local_batch * job.mesh.batch_parts()) {
      read.note("training.global_batch_size",
                "the pipeline is emptied after each training.local_batch_size; simulated as if not");
    }
  } else if (left > 1 && s.context == 1 && s.expert == 1) {
    job.reshard = Reshard::automatic;
    detail::run_by_fsdp(job, s.replicate, s.reshard == "never");
  } else {
    detail::run_by_ddp(job);
    if (s.expert > 1) job.mesh.order = parse_mesh_order("tceds");
  }
  if (s.cpu_offload) {
    job.offload.weights = job.choice.schedule == "fsdp";
    read.note("training.enable_cpu_offload", job.offload.weights ? "simulated with gradients, and the update, on the devices"
                                                                 : "simulated with weights and gradients on the devices");
  }
  job.mesh = job.mesh.over(devices);
  detail::check_batch(read, read.has("training.global_batch_size") ? "training.global_batch_size" : "training.local_batch_size",
                      job);
  job.recompute = s.recompute == "none" ? Recompute::none : s.recompute == "full" ? Recompute::full : Recompute::selective;
  if (job.model && s.early_stop) job.model->early_stop = true;
  if (s.recompute == "memory_budget") read.note("activation_checkpoint.mode", "simulated as selective");
  if (s.recompute == "selective" && s.selective == "1") job.recompute = Recompute::full;
  if (s.recompute == "selective" && s.selective != "1" && s.selective != "op") {
    read.note("activation_checkpoint.selective_ac_option",
              concat("each ", s.selective, "th layer is computed again; simulated as op"));
  }
  job.notes = std::move(read.notes);
  if (logged) job.measured = measured_by_torchtitan(text, static_cast<double>(job.global_batch * job.sequence), devices);
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
                 "PyTorch's 1F1B and GPipe have no sends and receives that overlap computation (overlap=off)");
  for (const auto& [key, value] : job.choice.options) {
    reasons.add_if(!(key == "chunks" || key == "prefetch" || key == "reshard" || key == "overlap" ||
                     (key == "p2p" && value == "pair") || value == "flat"),
                   concat("torchtitan has no option ", key, "=", value));
  }
  reasons.add_if(fsdp && detail::option_of(job.choice, "prefetch", "0") != "1", "FSDP gathers one layer ahead (prefetch=1)");
  reasons.add_if(fsdp && job.mesh.pipeline == 1, "fsdp of one device is ddp");
  const bool all = job.sharding == StateSharding::parameters;
  const bool shares_experts = job.mesh.whole_experts;
  const bool copies = job.mesh.data * job.mesh.context * job.mesh.expert > 1;
  reasons.add_if(fsdp && job.mesh.data > 1 && job.shards(),
                 "FSDP in groups keeps the optimizer's states in each group (--shard-states none)");
  reasons.add_if(fsdp && job.mesh.context > 1,
                 "FSDP over context-parallel devices too is ddp of one device (--shard-states parameters)");
  reasons.add_if(!fsdp && copies && job.shards() && !all, "states are sharded all or not at all (--shard-states parameters)");
  reasons.add_if(!fsdp && job.mesh.context > 1 && !all, "states are sharded over context-parallel devices");
  reasons.add_if(name == "ddp" && all && job.mesh.data > 1 && job.mesh.context == 1 && !shares_experts, "that is fsdp");
  reasons.add_if(pipeline != nullptr && all && copies && job.reshard == Reshard::microbatch,
                 "PyTorch's pipelines sum gradients once a step (--reshard auto)");
  reasons.add_if(!detail::lies_as(job.mesh, fsdp             ? "tcsd"
                                            : shares_experts ? "tceds"
                                                             : "tcds"),
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
  const std::optional<OptimizerBytes> states = optimizer_of(job);
  const bool wide = size_bytes(job_dtype(job)) >= 4;
  const bool float32 = states && states->moment == 4 && (states->master == 4 || wide);
  const bool narrow = states && *states == OptimizerBytes{0, 2} && !wide;
  reasons.add_if(!float32 && !narrow,
                 "moments and master weights are in float32, or all is in bfloat16 without master weights "
                 "(--moment-dtype bfloat16 --master-dtype none)");
  reasons.add_if((float32 && job.gradient_bytes != 4) || (narrow && job.gradient_bytes != 2),
                 "gradients are kept in float32, or in bfloat16 with the optimizer's states (--gradient-dtype)");
  reasons.add_if(!(job.overlap_gradients && (job.overlap_gathers || !job.shards())) && copies,
                 "sums of gradients and gathers of weights overlap computation (--overlap-grad-reduce, --overlap-param-gather)");
  const bool fsdp_states = fsdp && job.offload == Offload{.weights = true, .optimizer = true};
  reasons.add_if(job.offload.any() && !fsdp_states,
                 "FSDP's offload is of weights and optimizer states together (--offload weights+optimizer)");
  reasons.add_if(job.model && (job.model->dtype == Dtype::f64 || job.model->dtype == Dtype::f8),
                 "weights are bfloat16 or float32");
  reasons.add_if(job.model && is_narrow(job.model->products) && job.model->products != ProductFormat::fp8 &&
                     job.model->products != ProductFormat::fp8_rows,
                 "products in 8 bits have one scale a tensor or one a row (--gemm-format fp8, fp8-rows)");
  reasons.add_if(job.model && job.model->narrow_gathers && !fsdp && !all,
                 "weights in 8 bits are gathered where they are sharded");
  reasons.add_if(job.recompute_layers > 0 || job.recompute_parts.any(),
                 "torchtitan recomputes every layer, every second one or what it chooses (--recompute full, selective)");
  const bool known = job.model && detail::torchtitan_model(*job.model) != nullptr;
  reasons.add_if(job.has_experts() && !known,
                 "of mixtures of experts those of qwen3 and deepseek_v3 are written, by their names");
  reasons.add_if(job.model && job.model->is_latent() && !known, "latent attention is written of deepseek_v3, by its name");
  reasons.add_if(job.model && !job.model->mtp.empty(), "layers that predict further tokens are written for Megatron-LM only");
  reasons.add_if(shares_experts && (fsdp || !all),
                 "experts on devices of their own have FSDP around them (ddp or a pipeline, --shard-states parameters)");
  reasons.add_if(job.has_experts() && job.code != LayerCode::megatron_unfused,
                 "a mixture's layers are simulated as Megatron-LM's without gradient accumulation fusion (--layer-code "
                 "megatron-unfused)");
  reasons.add_if(job.graphs != CudaGraphs::none, "torchtitan captures no CUDA graphs in training (--cuda-graphs none)");
  detail::need_what_all_need(reasons, job);
  return reasons.take();
}

/// The settings with which torchtitan runs the job. @pre torchtitan_cannot() is empty
inline TorchtitanSettings torchtitan_settings(const FrameworkJob& job) {
  TorchtitanSettings s;
  const std::string& name = job.choice.schedule;
  const detail::TorchtitanPipeline* const pipeline = detail::torchtitan_pipeline(name);
  if (const detail::TorchtitanModel* const known = job.model ? detail::torchtitan_model(*job.model) : nullptr) {
    s.model = known->name;
    s.flavor = known->flavor;
  }
  if (job.model && job.model->dtype == Dtype::f32) s.parameters = "float32";
  if (job.gradient_bytes == 2) s.dtype = "bfloat16";
  if (job.model && is_narrow(job.model->products)) {
    s.converters = "quantize.linear.float8";
    if (job.model->products == ProductFormat::fp8_rows) s.float8_recipe = "rowwise";
    s.float8_gathers = job.model->narrow_gathers;
    s.float8_kept = "output";
  }
  s.cpu_offload = job.offload.optimizer;
  s.sequence = job.sequence;
  s.global_batch = job.global_batch;
  s.local_batch = pipeline != nullptr ? job.global_batch / job.mesh.batch_parts() : job.microbatch_size;
  s.tensor = job.mesh.tensor;
  s.context = job.mesh.context;
  if (job.mesh.whole_experts) detail::write_torchtitan_experts(job, s);
  s.async_tensor = job.tensor_overlap && s.tensor > 1;
  s.compile = s.async_tensor || !job.model ||
              (job.has_experts() ? job.model->fused_swiglu : job.model->code != LayerCode::torchtitan_eager);
  s.early_stop = job.model && job.model->early_stop.value_or(false);
  if (s.context > 1 && job.context_exchange == ContextExchange::ring) s.rotate = "alltoall";
  if (name == "fsdp") {
    s.shard = job.mesh.pipeline;
    s.replicate = job.mesh.data;
    if (detail::option_of(job.choice, "reshard", "on") == "off") s.reshard = "never";
  } else {
    const int parts = job.mesh.batch_parts();
    s.shard = job.shards() ? parts : 1;
    s.replicate = job.shards() ? 1 : parts;
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
