// Conversion between DeepSpeed's configuration and a plan.
// Not: JSON (json_settings.hpp), nor what a program sets by calls: models, pipelines,
// recomputation.
#pragma once

#include <cctype>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/frameworks/deepspeed_log.hpp"
#include "tawpipe/frameworks/detail/deepspeed_skipped.hpp"
#include "tawpipe/frameworks/framework_job.hpp"
#include "tawpipe/frameworks/json_settings.hpp"

namespace tawpipe::inline v0 {

/// The settings that a plan knows, with DeepSpeed's defaults; 0 where DeepSpeed derives the value
/// from others.
/// Source: deepspeedai/DeepSpeed, docs/_pages/config-json.md (0.18).
struct DeepspeedSettings {
  std::int64_t batch = 0;
  std::int64_t microbatch = 0;
  std::int64_t accumulation = 0;
  bool bf16 = false;
  bool fp16 = false;
  std::string accumulated;
  bool bf16_master = false;
  bool bf16_states = false;
  bool fp16_master = false;
  int stage = 0;
  bool overlap = false;
  std::string optimizer_device = "none";
  std::string parameter_device = "none";
  std::string optimizer;
  std::string momentum;
  int tensor = 0;
  bool tensor_overlap = false;
};

inline const SettingsTable<DeepspeedSettings>& deepspeed_table() {
  using S = DeepspeedSettings;
  constexpr std::string_view narrow = "simulated with messages in 16 bits";
  constexpr std::string_view offload = "an old name; it is zero_optimization.offload_optimizer.device now";
  constexpr std::string_view parameters = "an old name; it is zero_optimization.offload_param.device now";
  static const SettingsTable<S> table{
      .kind = "DeepSpeed setting",
      .fields = {{"train_batch_size", &S::batch},
                 {"train_micro_batch_size_per_gpu", &S::microbatch},
                 {"gradient_accumulation_steps", &S::accumulation},
                 {"bf16.enabled", &S::bf16},
                 {"bf16.bf16_master_weights_and_grads", &S::bf16_master},
                 {"bf16.bf16_optimizer_states", &S::bf16_states},
                 {"fp16.enabled", &S::fp16},
                 {"fp16.fp16_master_weights_and_grads", &S::fp16_master},
                 {"data_types.grad_accum_dtype", &S::accumulated, {"fp32", "bf16", "fp16"}},
                 {"zero_optimization.stage", &S::stage},
                 {"zero_optimization.overlap_comm", &S::overlap},
                 {"zero_optimization.offload_optimizer.device", &S::optimizer_device, {"none", "cpu", "nvme"}},
                 {"zero_optimization.offload_param.device", &S::parameter_device, {"none", "cpu", "nvme"}},
                 {"optimizer.type", &S::optimizer},
                 {"optimizer.params.momentum", &S::momentum},
                 {"tensor_parallel.autotp_size", &S::tensor},
                 {"tensor_parallel.tp_overlap_comm", &S::tensor_overlap}},
      .foreign = {{"zero_optimization.cpu_offload", "false", offload},
                  {"zero_optimization.cpu_offload_param", "false", parameters},
                  {"zero_optimization.offload_optimizer.ratio", "1 1.0", "simulated with all of the states in host memory",
                   false},
                  {"torch_autocast.enabled", "false", "simulated with products in float32", false},
                  {"amp.enabled", "false", "simulated with products in float32", false},
                  {"zero_optimization.zero_hpz_partition_size", "1", "a copy of the weights in each node is the schedule hpz"},
                  {"zero_optimization.mics_shard_size", "-1", "shards inside groups are the schedule hsdp"},
                  {"expert_parallel.enabled", "false", "a mixture of experts is not modelled"},
                  {"sequence_parallel_size", "1", "DeepSpeed-Ulysses is --context-parallel with --context-exchange all-to-all"},
                  {"zero_optimization.zero_quantized_weights", "false", narrow, false},
                  {"zero_optimization.zero_quantized_gradients", "false", narrow, false},
                  {"activation_checkpointing.cpu_checkpointing", "false", "simulated with no activations offloaded", false},
                  {"communication_data_type", "null", "simulated with messages in the format in which gradients are kept", false},
                  {"zero_optimization.reduce_scatter", "true",
                   "simulated with each device's part of the gradients sent to it only", false},
                  {"activation_checkpointing.partition_activations", "false",
                   "simulated with kept activations whole on each device", false},
                  {"pipeline.stages", "1 null", "simulated without a pipeline, which the program sets", false},
                  {"elasticity.enabled", "false", "simulated with the batch as given", false}},
      .skipped = detail::deepspeed_skipped,
      .renamed = {{"bfloat16.enabled", "bf16.enabled"}}};
  return table;
}

namespace detail {

/// Takes out the settings that are "auto": the program fills them in.
/// Source: huggingface/transformers, integrations/deepspeed.py, trainer_config_process.
/// @return  their names
inline std::vector<std::string> take_auto(SettingsText& text) {
  std::vector<std::string> names;
  std::erase_if(text.settings, [&](const Setting& setting) {
    const bool is_auto = setting.values == std::vector<std::string>{"auto"};
    if (is_auto) names.push_back(setting.name);
    return is_auto;
  });
  return names;
}

/// Bytes of the optimizer's states: a master copy, and Adam's two moments, one, or none.
/// Source: deepspeedai/DeepSpeed, runtime/engine.py, _configure_basic_optimizer (0.19); other names
/// are those of torch.optim.
inline void read_deepspeed_optimizer(ReadSettings<DeepspeedSettings>& read, FrameworkJob& job) {
  const DeepspeedSettings& s = read.values;
  std::string type = s.optimizer;
  for (char& c : type) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const bool sgd = among(type, "sgd musgd");
  const bool momentum = s.momentum.find_first_of("123456789") != std::string::npos;
  if (sgd || among(type, "lion adagrad")) {
    job.moments = sgd && !momentum ? 0 : 1;
  } else if (!type.empty() && !among(type, "adam adamw muadam muadamw lamb fusedadam cpuadam deepspeedcpuadam")) {
    read.note("optimizer.type", "simulated as Adam, with two moments and whole messages");
  }
  const bool narrow = s.bf16_master || s.fp16_master;
  if (job.moments == 2 && !narrow) return;
  const std::int64_t master = job.dtype == Dtype::f32 ? 0 : narrow ? 2 : 4;
  job.optimizer_bytes = master + job.moments * (s.bf16_states ? 2 : 4);
  if (job.optimizer_bytes > 0) return;
  job.optimizer_bytes = 4;
  read.note("optimizer.type", "simulated with 4 bytes of states a parameter, of which it has none");
}

}  // namespace detail

/// The job that DeepSpeed's settings describe, on that many devices.
/// @param given  taken where the settings are "auto"
/// @throws InputError  naming setting, line and what would be right
inline FrameworkJob deepspeed_job(SettingsText settings, int devices, const GivenJob& given = {}) {
  settings.strict = given.strict;
  const std::vector<std::string> filled_in = detail::take_auto(settings);
  const auto is_auto = [&](std::string_view name) {
    return std::find(filled_in.begin(), filled_in.end(), name) != filled_in.end();
  };
  ReadSettings<DeepspeedSettings> read = read_settings(deepspeed_table(), std::move(settings));
  DeepspeedSettings& s = read.values;
  if (is_auto("train_micro_batch_size_per_gpu")) s.microbatch = given.microbatch;
  if (is_auto("train_batch_size")) s.batch = given.global_batch;
  FrameworkJob job;
  job.model_lacks = "the model, which is the program's";
  job.code = LayerCode::megatron_unfused;  // autograd adds the gradients of microbatches
  for (const auto& [name, value] : {std::pair{"train_batch_size", s.batch},
                                    {"train_micro_batch_size_per_gpu", s.microbatch},
                                    {"gradient_accumulation_steps", s.accumulation}}) {
    detail::check_size(read, name, value, detail::max_sequences / 1000);
  }
  const int tensor = std::max(1, s.tensor);
  const int data =
      detail::left_to_data(read, "tensor_parallel.autotp_size", std::int64_t{tensor}, devices, concat("tensor ", tensor));
  if (read.text.processes > 0 && read.text.processes != devices) {
    read.text.fail(read.text.launch_line, concat(read.text.launched_by, " is ", read.text.processes,
                                                 " processes, and the cluster has ", devices, " devices"));
  }
  if (s.stage < 0 || s.stage > 3) read.fail("zero_optimization.stage", concat(s.stage, " is not 0, 1, 2 or 3"));
  job.mesh = {.tensor = tensor, .data = s.stage >= 2 ? 1 : data};
  job.mesh.order = parse_mesh_order("tcds");
  job.mesh = job.mesh.over(devices);
  job.choice = s.stage == 3 ? ScheduleChoice{"fsdp", {{"prefetch", "1"}, {"reshard", "on"}}}
                            : ScheduleChoice{s.stage == 2 ? "zero2" : "ddp"};
  job.sharding = s.stage >= 1 ? StateSharding::optimizer : StateSharding::none;
  job.overlap_gradients = read.has("zero_optimization.overlap_comm") ? s.overlap : s.stage == 3;  // None there
  job.overlap_gathers = false;
  job.sequence_parallel = false;
  job.tensor_overlap = s.tensor_overlap;
  for (const auto& [name, device] : {std::pair{"zero_optimization.offload_optimizer.device", s.optimizer_device},
                                     {"zero_optimization.offload_param.device", s.parameter_device}}) {
    if (device == "nvme")
      read.fail(name, "drives are not modelled, whose time follows from their number, speed and queues; give cpu");
  }
  job.offload.optimizer = s.optimizer_device == "cpu";
  job.offload.weights = s.parameter_device == "cpu" && s.stage == 3;
  if (s.parameter_device == "cpu" && s.stage < 3)
    read.note("zero_optimization.offload_param.device", "only zero_optimization.stage 3 has it; simulated without");
  if (s.bf16 && s.fp16) read.fail("fp16.enabled", "not with bf16.enabled");
  const bool any_dtype = !s.bf16 && !s.fp16 && (is_auto("bf16.enabled") || is_auto("fp16.enabled"));
  if (any_dtype) {
    read.notes.push_back(
        concat(read.text.source, ": bf16.enabled and fp16.enabled are left to the program; simulated in the model's numbers"));
  } else {
    job.dtype = s.bf16 ? Dtype::bf16 : s.fp16 ? Dtype::f16 : Dtype::f32;
  }
  job.gradient_bytes = s.accumulated == "fp32" || job.dtype == Dtype::f32 ? 4 : 2;
  for (const auto& [name, set] :
       {std::pair{"bf16.bf16_master_weights_and_grads", s.bf16_master}, {"fp16.fp16_master_weights_and_grads", s.fp16_master}}) {
    if (!set) continue;
    if (name[0] == 'b' ? !s.bf16 : !s.fp16) read.fail(name, concat("needs ", std::string_view{name}.substr(0, 4), ".enabled"));
    if (s.stage == 0) read.fail(name, "needs zero_optimization.stage 1, 2 or 3");
    job.gradient_bytes = 2;
  }
  if (s.bf16_states && !s.bf16_master) read.fail("bf16.bf16_optimizer_states", "needs bf16.bf16_master_weights_and_grads");
  detail::read_deepspeed_optimizer(read, job);
  std::int64_t microbatch = s.microbatch;
  std::int64_t batch = s.batch;
  if (microbatch > 0 && batch == 0) batch = microbatch * data * std::max<std::int64_t>(1, s.accumulation);
  if (batch > 0 && microbatch == 0) microbatch = batch / data / std::max<std::int64_t>(1, s.accumulation);
  if ((batch < 1 || microbatch < 1) && (is_auto("train_batch_size") || is_auto("train_micro_batch_size_per_gpu"))) {
    read.fail("train_batch_size", "what is \"auto\" is filled in by the program; give --global-batch and --microbatch");
  }
  if (batch < 1 || microbatch < 1) {
    read.fail("train_batch_size",
              "two of train_batch_size, train_micro_batch_size_per_gpu and gradient_accumulation_steps are needed");
  }
  job.microbatch_size = microbatch;
  job.global_batch = batch;
  detail::check_batch(read, "train_batch_size", job);
  if (s.accumulation > 0 && job.microbatches() != s.accumulation) {
    read.fail("gradient_accumulation_steps", concat(s.accumulation, " x ", microbatch, " x ", data,
                                                    " data-parallel devices is not the ", batch, " of train_batch_size"));
  }
  job.notes = std::move(read.notes);
  return job;
}

/// @param text  its JSON, or a log that has it
inline FrameworkJob deepspeed_job(std::string_view text, std::string_view source, int devices, const GivenJob& given = {}) {
  if (!is_deepspeed_log(text)) return deepspeed_job(json_settings(text, source), devices, given);
  FrameworkJob job = deepspeed_job(deepspeed_log_settings(text, source), devices, given);
  job.measured = measured_by_deepspeed(text, static_cast<double>(job.global_batch));
  return job;
}

/// Why DeepSpeed's configuration cannot express the job; nothing if it can.
inline std::vector<std::string> deepspeed_cannot(const FrameworkJob& job) {
  detail::Reasons reasons;
  const std::string& name = job.choice.schedule;
  const bool sharded = name == "fsdp" || name == "zero2";
  reasons.add_if(
      !sharded && name != "ddp",
      concat("DeepSpeed's configuration has ZeRO's stages; pipelines are set in the program (PipelineModule), and it has no ",
             name));
  reasons.add_if(name == "ddp" && job.mesh.pipeline > 1, "data parallelism is the mesh's: ddp of one device, --data-parallel");
  reasons.add_if(sharded && job.mesh.data > 1, "ZeRO is over all data-parallel devices");
  reasons.add_if(!sharded && job.mesh.data > 1 && job.sharding > StateSharding::optimizer,
                 "ZeRO-2 and ZeRO-3 are zero2 and fsdp over all devices (--shard-states optimizer)");
  reasons.add_if(job.mesh.context > 1, "sequence parallelism is set in the program (DeepSpeed-Ulysses)");
  for (const auto& [key, value] : job.choice.options) {
    reasons.add_if(!(value == "flat" || (key == "prefetch" && value == "1") || (key == "reshard" && value == "on") ||
                     (key == "overlap" && value == "on")),
                   concat("DeepSpeed has no option ", key, "=", value));
  }
  reasons.add_if(name == "fsdp" && detail::option_of(job.choice, "prefetch", "0") != "1", "ZeRO-3 gathers ahead (prefetch=1)");
  reasons.add_if(job.mesh.tensor > 1 && job.sequence_parallel,
                 "its tensor parallelism has no sequence parallelism (--sequence-parallel off)");
  reasons.add_if(job.overlap_gathers && job.shards() && job.mesh.data > 1,
                 "new weights are gathered after the update (--overlap-param-gather off)");
  reasons.add_if(job.offload.activations, "activations are offloaded by the program");
  reasons.add_if(job.offload.weights && name != "fsdp", "weights lie in host memory with ZeRO-3 only");
  reasons.add_if(job.has_experts(), "a mixture of experts is set in the program; it is written for Megatron-LM only");
  reasons.add_if(job.model && job.model->is_latent(),
                 "latent attention is set in the program; it is written for Megatron-LM only");
  reasons.add_if(job.model && job.model->dtype == Dtype::f32 && job.gradient_bytes != 4,
                 "gradients of float32 weights are float32");
  reasons.add_if(job.model && job.model->products != ProductFormat::bits16 && job.model->products != ProductFormat::bits32,
                 "products in 8 bits are set in the program (Transformer Engine)");
  reasons.add_if(job.model && job.model->dtype != Dtype::bf16 && job.model->dtype != Dtype::f16 && job.model->dtype != Dtype::f32,
                 "weights are bfloat16, float16 or float32");
  reasons.add_if(job.recompute_layers > 0 || job.recompute_parts.any(),
                 "DeepSpeed leaves to the model which layers it recomputes (--recompute full)");
  const std::optional<OptimizerBytes> states = optimizer_of(job);
  const bool float32 = states && states->moment == 4 && (states->master == 4 || size_bytes(job_dtype(job)) >= 4);
  const bool moments = states && states->master == 2 && states->moment == 2 && job_dtype(job) == Dtype::bf16;
  const bool master = states && states->master == 2 && states->moment == 4 && job.offload.optimizer;
  reasons.add_if(job.moments == 2 && !float32 && !moments && !master,
                 "moments and master weights are in float32, in bfloat16, or in the host with the latter in 16 bits "
                 "(--moment-dtype, --master-dtype)");
  reasons.add_if((moments || master) && (job.gradient_bytes != 2 || !(sharded || job.shards())),
                 "master weights in 16 bits have gradients of 16 bits, and are sharded (--gradient-dtype, --shard-states)");
  reasons.add_if(job.graphs != CudaGraphs::none, "DeepSpeed captures no CUDA graphs in training (--cuda-graphs none)");
  detail::need_what_all_need(reasons, job);
  return reasons.take();
}

/// The settings with which DeepSpeed runs the job. @pre deepspeed_cannot() is empty
inline DeepspeedSettings deepspeed_settings(const FrameworkJob& job) {
  DeepspeedSettings s;
  s.batch = job.global_batch;
  s.microbatch = job.microbatch_size;
  s.accumulation = job.microbatches();
  const Dtype dtype = job.model ? job.model->dtype : Dtype::bf16;
  s.bf16 = dtype == Dtype::bf16;
  s.fp16 = dtype == Dtype::f16;
  if (job.gradient_bytes == 4 && (s.bf16 || s.fp16)) s.accumulated = "fp32";
  const OptimizerBytes states = optimizer_of(job).value_or(OptimizerBytes{});
  s.bf16_master = s.bf16 && states.master == 2;
  s.fp16_master = s.fp16 && states.master == 2;
  s.bf16_states = s.bf16_master && states.moment == 2;
  s.stage = job.choice.schedule == "fsdp" ? 3 : job.choice.schedule == "zero2" ? 2 : job.shards() ? 1 : 0;
  s.overlap = job.overlap_gradients;
  if (job.offload.optimizer) s.optimizer_device = "cpu";
  if (job.offload.weights) s.parameter_device = "cpu";
  if (job.mesh.tensor > 1) {
    s.tensor = job.mesh.tensor;
    s.tensor_overlap = job.tensor_overlap;
  }
  return s;
}

/// Those that differ from DeepSpeed's defaults. @pre as deepspeed_settings()
inline std::vector<WrittenSetting> deepspeed_written(const FrameworkJob& job) {
  const DeepspeedSettings settings = deepspeed_settings(job);
  std::vector<WrittenSetting> written = written_settings(deepspeed_table(), settings);
  if (settings.stage == 3 && !settings.overlap) written.push_back({"zero_optimization.overlap_comm", "false"});
  return written;
}

/// The settings as JSON, with `comments` as "_comment". @pre as deepspeed_settings()
inline std::string deepspeed_text(const FrameworkJob& job, const std::vector<std::string>& comments) {
  return json_text(deepspeed_written(job), comments);
}

}  // namespace tawpipe
