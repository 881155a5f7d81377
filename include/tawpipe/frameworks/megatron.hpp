// Conversion between Megatron-LM's flags and a plan.
// Not: the table of flags (megatron_flags.hpp), its parts as read (detail/megatron_reading.hpp),
// nor scripts (shell_script.hpp).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/frameworks/detail/megatron_kinds_written.hpp"
#include "tawpipe/frameworks/detail/megatron_reading.hpp"
#include "tawpipe/frameworks/detail/megatron_sharding.hpp"
#include "tawpipe/frameworks/detail/tokenizers.hpp"
#include "tawpipe/frameworks/framework_job.hpp"
#include "tawpipe/frameworks/megatron_flags.hpp"
#include "tawpipe/frameworks/megatron_log.hpp"
#include "tawpipe/frameworks/shell_settings.hpp"

namespace tawpipe::inline v0 {

/// @throws InputError  naming flag, line and what would be right
inline ReadSettings<MegatronFlags> read_megatron(SettingsText found, const GivenJob& given) {
  found.strict = given.strict;
  ReadSettings<MegatronFlags> read = read_settings(megatron_table(), std::move(found));
  if (read.values.partition.find("embedding") != std::string::npos) read.values.embedding_counts = read.values.loss_counts = true;
  detail::count_hybrid_layers(read);
  if (!given.model) detail::assume_vocabulary(read, given.vocab);
  return read;
}

/// The flags in a script, or in a log. @throws InputError
inline SettingsText megatron_settings(std::string_view text, std::string_view source, const GivenJob& given) {
  return is_megatron_log(text) ? megatron_log_settings(text, source)
                               : shell_settings(megatron_table(), text, source, given.script);
}

/// The model that Megatron-LM's flags describe. @throws InputError  naming the flags that are
/// missing
inline Transformer megatron_model(std::string_view text, std::string_view source) {
  const ReadSettings<MegatronFlags> read = read_megatron(megatron_settings(text, source, {}), {});
  FrameworkJob job;
  detail::read_megatron_model(read, job);
  if (!job.model) throw SettingError(one_line(concat(source, " ", said_of_model(job))));
  job.model->edges_count_as_layers = read.values.embedding_counts && read.values.loss_counts;
  return *std::move(job.model);
}

/// The job that Megatron-LM's flags describe, on that many devices.
/// @throws InputError  naming flag, line and what would be right
inline FrameworkJob megatron_job(SettingsText found, int devices, const GivenJob& given = {}) {
  ReadSettings<MegatronFlags> read = read_megatron(std::move(found), given);
  MegatronFlags& flags = read.values;
  FrameworkJob job;
  for (const auto& [name, value] : {std::pair{"--micro-batch-size", flags.microbatch},
                                    {"--global-batch-size", flags.global_batch},
                                    {"--seq-length", flags.sequence}}) {
    detail::check_size(read, name, value, detail::max_sequences);
  }
  for (const auto& [name, value] : {std::pair{"--tensor-model-parallel-size", flags.tensor},
                                    {"--pipeline-model-parallel-size", flags.pipeline},
                                    {"--context-parallel-size", flags.context},
                                    {"--expert-model-parallel-size", flags.expert_parallel}}) {
    if (value < 1 || value > devices) read.fail(name, concat(value, " is not a number of devices from 1 to ", devices));
  }
  if (read.text.processes > 0 && read.text.processes != devices) {
    read.text.fail(read.text.launch_line, concat(read.text.launched_by, " is ", read.text.processes,
                                                 " processes, and the cluster has ", devices, " devices"));
  }
  job.edges_count_as_layers = flags.embedding_counts && flags.loss_counts;
  job.stage_cut = detail::megatron_stage_cut(read);
  if (flags.bf16 && flags.fp16) read.fail("--fp16", "not with --bf16");
  detail::read_megatron_model(read, job);
  if (job.model) job.model->edges_count_as_layers = job.edges_count_as_layers;
  job.dtype = flags.bf16 ? Dtype::bf16 : flags.fp16 ? Dtype::f16 : Dtype::f32;
  const int data = detail::left_to_data(
      read, "--tensor-model-parallel-size", detail::product_of({flags.tensor, flags.pipeline, flags.context}, devices), devices,
      concat("tensor ", flags.tensor, " x pipeline ", flags.pipeline, " x context ", flags.context));
  job.mesh = {.tensor = flags.tensor, .context = flags.context, .data = data};
  job.mesh.order = parse_mesh_order(flags.tp_pp_dp ? "tcsd" : "tcds");
  detail::share_megatron_experts(read, job.mesh);

  const int slots = flags.layers + (flags.embedding_counts ? 1 : 0) + (flags.loss_counts ? 1 : 0);
  const bool cut_given = !job.stage_cut.layers.empty();
  if (flags.layers > 0 && !cut_given && slots % flags.pipeline != 0) {
    read.fail("--pipeline-model-parallel-size", concat(slots, " layers cannot be shared equally by ", flags.pipeline, " stages"));
  }
  const int layers_a_stage = slots / flags.pipeline;
  int chunks =
      cut_given ? static_cast<int>(std::ssize(job.stage_cut.layers)) / flags.pipeline : std::max(1, flags.virtual_stages);
  if (flags.virtual_layers > 0) {
    if (flags.virtual_stages > 0)
      read.fail("--num-virtual-stages-per-pipeline-rank", "not with --num-layers-per-virtual-pipeline-stage");
    if (flags.layers == 0) read.fail("--num-layers-per-virtual-pipeline-stage", "needs --num-layers in the same file");
    if (layers_a_stage % flags.virtual_layers != 0) {
      read.fail("--num-layers-per-virtual-pipeline-stage",
                concat(flags.virtual_layers, " does not divide the ", layers_a_stage, " layers of a stage"));
    }
    chunks = layers_a_stage / flags.virtual_layers;
  }
  if (chunks > 1 && flags.pipeline == 1) {
    read.fail(cut_given                  ? "--pipeline-model-parallel-layout"
              : flags.virtual_layers > 0 ? "--num-layers-per-virtual-pipeline-stage"
                                         : "--num-virtual-stages-per-pipeline-rank",
              "needs --pipeline-model-parallel-size above 1");
  }
  job.recompute = detail::megatron_recompute(read, detail::has_dense_first(job), job.recompute_layers, job.recompute_parts);

  detail::read_megatron_sharding(read, job, chunks);
  job.mesh = job.mesh.over(devices);
  job.sequence_parallel = flags.sequence_parallel;
  job.overlap_gradients = flags.overlap_gradients || flags.torch_fsdp2;
  job.overlap_gathers = flags.overlap_gathers || flags.torch_fsdp2;
  if (flags.bucket > 0) job.bucket = flags.bucket;
  job.tensor_overlap = flags.tensor_overlap;
  job.graphs = detail::megatron_graphs(read);
  job.code = flags.code();
  job.fused_attention = flags.fused_attention();
  job.context_exchange = flags.context_exchange == "p2p"       ? ContextExchange::ring
                         : flags.context_exchange == "a2a"     ? ContextExchange::all_to_all
                         : flags.context_exchange == "a2a+p2p" ? ContextExchange::two_level
                                                               : ContextExchange::all_gather;
  job.context_inner = detail::megatron_context_inner(read);
  detail::read_megatron_dispatch(read, chunks, job);
  job.offload.optimizer = flags.optimizer_offload || flags.chunked_offload;
  if (flags.offloaded_layers != 0) {  // as TransformerConfig.__post_init__ checks it
    const std::string_view flag = "--cpu-offloading-num-layers";
    if (flags.offloaded_layers < 0 || (flags.layers > 0 && flags.offloaded_layers >= flags.layers))
      read.fail(flag, "is of fewer layers than --num-layers");
    if (flags.pipeline > 1) read.fail(flag, "not with --pipeline-model-parallel-size above 1");
    if (job.recompute.value_or(Recompute::none) != Recompute::none) read.fail(flag, "not with recomputation");
    job.offload.activations = true;
    job.offload.layers = flags.offloaded_layers;
  }
  job.optimizer_bytes = detail::megatron_optimizer(read, flags.bf16 ? Dtype::bf16 : flags.fp16 ? Dtype::f16 : Dtype::f32);
  job.gradient_bytes = flags.gradients_fp32 || (!flags.gradients_bf16 && !flags.fp16) ? 4 : 2;
  job.sequence = flags.sequence;
  job.microbatch_size = flags.microbatch;
  if (flags.microbatch < 1) read.fail("--micro-batch-size", "is missing, or below 1");
  job.global_batch = read.has("--global-batch-size") ? flags.global_batch : job.microbatch_size * job.batch_parts();
  detail::check_batch(read, "--global-batch-size", job);
  if (read.has("--max-position-embeddings") && flags.positions < flags.sequence)
    read.fail("--max-position-embeddings", concat(flags.positions, " is less than the ", flags.sequence, " of --seq-length"));
  detail::note_megatron_dropout(read);
  detail::note_megatron_latent(read);
  detail::note_megatron_experts(read);
  detail::check_megatron_kinds(read, job);
  if (flags.narrow_gathers && flags.fp8.empty()) read.fail("--fp8-param-gather", "needs --fp8-format");
  if (flags.narrow_gathers && !job.shards()) read.fail("--fp8-param-gather", "needs --use-distributed-optimizer");
  if (flags.narrow_gathers && job.model && !job.model->narrow_gathers)
    read.note("--fp8-param-gather",
              concat("simulated with weights gathered in 16 bits, as products are in ", name(job.model->products)));
  job.notes = std::move(read.notes);
  return job;
}

/// The same of a script or a log; of a log, with what it measured. @throws InputError
inline FrameworkJob megatron_job(std::string_view text, std::string_view source, int devices, const GivenJob& given = {}) {
  FrameworkJob job = megatron_job(megatron_settings(text, source, given), devices, given);
  if (is_megatron_log(text)) job.measured = measured_by_megatron(text);
  return job;
}

/// Why Megatron-LM cannot run the job; nothing if it can.
inline std::vector<std::string> megatron_cannot(const FrameworkJob& job) {
  detail::Reasons reasons;
  const std::string& name = job.choice.schedule;
  const bool pipeline = job.is_one_of({"1f1b", "interleaved-1f1b"});
  const bool sharded = detail::is_megatron_fsdp(job);
  reasons.add_if(!pipeline && !sharded && name != "ddp",
                 concat("Megatron-LM has 1F1B, interleaved 1F1B, data parallelism and FSDP; it has no ", name));
  reasons.add_if(pipeline && job.mesh.pipeline == 1, concat(name, " of one device is ddp"));
  reasons.add_if(name == "1f1b" && detail::option_of(job.choice, "overlap", "off") != "off",
                 "Megatron-LM's 1F1B has no sends and receives that overlap computation (overlap=off)");
  reasons.add_if(name == "interleaved-1f1b" && job.chunks() == 1, "interleaved 1F1B of one chunk is 1f1b");
  reasons.add_if(name == "ddp" && job.mesh.pipeline > 1, "data parallelism is the mesh's: ddp of one device, --data-parallel");
  for (const auto& [key, value] : job.choice.options) {
    reasons.add_if(!(key == "chunks" || key == "prefetch" || key == "reshard" || value == "flat" ||
                     (key == "overlap" && (value == "off") == (name == "1f1b")) || (key == "p2p" && value == "pair")),
                   concat("Megatron-LM has no option ", key, "=", value));
  }
  detail::need_for_megatron_sharding(reasons, job);
  reasons.add_if(job.graphs == CudaGraphs::layers && job.recompute == Recompute::full,
                 "CUDA graphs of layers are without full recomputation (--cuda-graphs iteration, --recompute selective)");
  reasons.add_if(job.graphs != CudaGraphs::none && job.offload.activations,
                 "activations are offloaded without CUDA graphs only (--cuda-graphs none)");
  const bool pipeline_first = job.mesh.expert == 1 && !sharded && detail::lies_as(job.mesh, "tcsd");
  reasons.add_if(!detail::lies_as(job.mesh, "tceds") && !pipeline_first,
                 concat("Megatron-LM does not lay out devices as ", mesh_order_text(job.mesh.order)));
  const int stages = pipeline ? job.mesh.pipeline * job.chunks() : 1;
  const auto given = std::ssize(job.stage_cut.layers);
  reasons.add_if(pipeline && given > 0 && given != stages,
                 concat("layers are given for ", given, " stages, and there are ", stages));
  reasons.add_if(name == "interleaved-1f1b" && job.microbatches() % job.mesh.pipeline != 0,
                 concat("interleaved 1F1B needs microbatches in multiples of ", job.mesh.pipeline));
  reasons.add_if(job.mesh.context > 1 && job.sequence % (2 * job.mesh.context) != 0,
                 concat("the sequence must be a multiple of ", 2 * job.mesh.context, ", twice the context-parallel devices"));
  reasons.add_if(job.mesh.tensor > 1 && job.tensor_overlap && !job.sequence_parallel,
                 "--tp-comm-overlap needs --sequence-parallel");
  reasons.add_if(job.overlap_gathers && !job.overlap_gradients && job.shards(),
                 "--overlap-param-gather needs --overlap-grad-reduce");
  reasons.add_if(job.offload.activations && (job.offload.layers == 0 || (job.model && job.offload.layers >= job.model->layers)),
                 "activations are offloaded of some layers, not of all (--offload activations:LAYERS)");
  reasons.add_if(job.offload.weights, "weights are not offloaded in training (--offload optimizer)");
  reasons.add_if(job.offload.activations && pipeline, "activations are offloaded without pipelines only");
  reasons.add_if(job.offload.activations && job.recompute.value_or(Recompute::none) != Recompute::none,
                 "activations are offloaded without recomputation only");
  reasons.add_if(job.model && job.model->narrow_gathers && !job.shards() && !sharded,
                 "weights are gathered in 8 bits with the distributed optimizer only (--shard-states optimizer)");
  reasons.add_if(job.model && job.model->products == ProductFormat::fp8_rows,
                 "Transformer Engine has no 8 bits with a scale for each row; choose fp8 or fp8-block");
  reasons.add_if(
      job.recompute == Recompute::selective && !job.recompute_parts.any() && !(job.model && !job.model->fused_attention),
      "selective recomputation is of named parts (--recompute selective:core_attn)");
  reasons.add_if(job.recompute_parts.activation && !job.has_experts(),
                 "only the MLP's function is recomputed in mixtures of experts only (--recompute selective:mlp)");
  reasons.add_if(job.model && job.model->dtype == Dtype::f32 && job.gradient_bytes != 4,
                 "gradients of float32 weights are float32");
  reasons.add_if(job.model && job.model->dtype != Dtype::bf16 && job.model->dtype != Dtype::f16 && job.model->dtype != Dtype::f32,
                 "weights are bfloat16, float16 or float32");
  const std::optional<OptimizerBytes> states = optimizer_of(job);
  reasons.add_if(states && states->master == 0 && job.model && size_bytes(job.model->dtype) < 4,
                 "weights of 16 bits have master copies (--master-dtype float32, float16)");
  const bool narrow = states && (states->moment == 2 || states->master == 2);
  reasons.add_if(!states || states->moment == 8, "the optimizer's moments are in 16 or 32 bits (--moment-dtype)");
  reasons.add_if(narrow && !job.shards() && !sharded,
                 "an optimizer whose states are not all in float32 is the distributed one (--shard-states optimizer)");
  reasons.add_if(narrow && detail::is_torch_fsdp2(job),
                 "--use-torch-fsdp2 has no distributed optimizer, whose states may be in 16 bits");
  reasons.add_if(job.model && (job.model->output_bias || job.model->mlp_bias),
                 "biases of attention's output and of the MLP alone are not written");
  reasons.add_if(job.model && job.model->qk_norm == QkNorm::width, "norms of queries and keys are of each head");
  reasons.add_if(job.model && job.model->shared_gate, "the gate of a shared expert is not written");
  detail::need_for_megatron_latent(reasons, job);
  detail::need_for_megatron_experts(reasons, job);
  detail::need_for_megatron_kinds(reasons, job);
  // --pipeline-model-parallel-layout, --window-attn-skip-freq
  detail::need_what_all_need(reasons, job, {.cuts = true, .kinds = true});
  return reasons.take();
}

/// The flags with which Megatron-LM runs the job. @pre megatron_cannot() is empty, the job has a model, and
/// the weights of a balanced cut are known, as those of written_job() are
inline MegatronFlags megatron_flags(const FrameworkJob& job) {
  const Transformer model = detail::equal_layers_of(*job.model);
  const std::string& name = job.choice.schedule;
  MegatronFlags flags;
  const bool pipeline = name == "1f1b" || name == "interleaved-1f1b";
  flags.tensor = job.mesh.tensor;
  flags.context = job.mesh.context;
  flags.pipeline = pipeline ? job.mesh.pipeline : 1;
  const StageCut& cut = job.stage_cut;
  const int stages = flags.pipeline * job.chunks();
  const auto is_count = [](double weight) { return weight == 0 || weight == 1; };
  const bool weighs = cut.balanced || !is_count(cut.embedding) || !is_count(cut.head);
  const bool as_given = pipeline && (!cut.layers.empty() || weighs || detail::slots_of(job) % stages != 0);
  if (as_given) {
    flags.layout = stage_layout({.layers = layers_of(cut, model.layers, stages, job.edges_count_as_layers)});
    flags.layout.insert(flags.layout.size() - 1, std::string(model.mtp.size(), 'm'));  // before L
  } else if (name == "interleaved-1f1b") {
    flags.virtual_layers = detail::slots_of(job) / (job.mesh.pipeline * job.chunks());
  }
  if (flags.context > 1) {
    constexpr const char* words[] = {"all_gather", "p2p", "a2a", "a2a+p2p"};
    flags.context_exchange = words[static_cast<int>(job.context_exchange)];
    if (job.context_exchange == ContextExchange::two_level) {
      const int inner = std::max(1, job.context_inner);
      flags.context_levels = concat(inner, " ", flags.context / inner);
    }
  }
  flags.embedding_counts = !as_given && (job.edges_count_as_layers || (pipeline && cut.embedding == 1));
  flags.loss_counts = !as_given && (job.edges_count_as_layers || (pipeline && cut.head == 1));
  flags.tp_pp_dp = pipeline && job.mesh.data > 1 && !detail::lies_as(job.mesh, "tceds");
  flags.sequence_parallel = job.sequence_parallel && flags.tensor > 1;
  flags.tensor_overlap = job.tensor_overlap && flags.tensor > 1;
  flags.graph_random_numbers = job.graphs != CudaGraphs::none;
  flags.unchecked_losses = job.graphs == CudaGraphs::iteration;
  if (flags.graph_random_numbers) flags.graphs = "local";
  if (flags.unchecked_losses) flags.graph_scope = "full_iteration";
  constexpr std::int64_t whole = 1'000'000'000'000;  // more than any stage has
  flags.bucket = job.bucket == 0 ? whole : std::max<std::int64_t>(0, job.bucket);
  detail::write_megatron_sharding(job, flags);
  flags.optimizer_offload = job.offload.optimizer;
  flags.offloaded_layers = job.offload.activations ? job.offload.layers : 0;
  const OptimizerBytes states = optimizer_of(job).value_or(OptimizerBytes{});
  if (states.master == 2) flags.main_parameters = "fp16";
  if (states.moment == 2) flags.momentum = flags.variance = "bf16";
  flags.precision_aware = job.offload.optimizer || states.master == 2 || states.moment == 2;
  flags.microbatch = job.microbatch_size;
  flags.global_batch = job.global_batch;
  flags.sequence = flags.positions = job.sequence;
  const Recompute recompute = job.recompute.value_or(Recompute::none);
  if (recompute != Recompute::none) flags.granularity = tawpipe::name(recompute);
  flags.recompute_modules = detail::megatron_modules(job);
  if (recompute == Recompute::full) {
    flags.method = job.recompute_layers > 0 ? "block" : "uniform";
    flags.recompute_layers = std::max(1, job.recompute_layers);
  }
  flags.layers = model.layers;
  flags.mtp_layers = static_cast<int>(model.mtp.size());
  flags.hidden = model.hidden;
  flags.ffn = model.intermediate;
  flags.heads = model.heads;
  if (model.head_dim && *model.head_dim * model.heads != model.hidden) flags.head_size = *model.head_dim;
  flags.grouped = model.kv_heads != model.heads;
  if (flags.grouped) flags.groups = model.kv_heads;
  flags.vocab = model.vocab;
  flags.qkv_bias = model.qkv_bias;
  flags.query_norms = model.qk_norm == QkNorm::head;
  detail::write_megatron_latent(model, flags);
  detail::write_megatron_experts(job, model, flags);
  flags.swiglu = model.gated;
  flags.unfused_swiglu = model.gated && !model.fused_swiglu;
  flags.unfused_accumulation = !model.fuses_accumulation();
  flags.untied = !model.tied;
  if (model.gated) {
    flags.normalization = "RMSNorm";
    flags.positions_kind = "rope";
    flags.no_bias = true;
  }
  detail::write_megatron_kinds(*job.model, flags);
  flags.bf16 = model.dtype == Dtype::bf16;
  flags.fp16 = model.dtype == Dtype::f16;
  if (model.products == ProductFormat::nvfp4) flags.fp4 = "e2m1";
  if (model.products == ProductFormat::fp8 || model.products == ProductFormat::fp8_block ||
      model.products == ProductFormat::mxfp8) {
    flags.fp8 = "hybrid";
    if (model.products != ProductFormat::fp8) flags.fp8_recipe = model.products == ProductFormat::mxfp8 ? "mxfp8" : "blockwise";
  }
  flags.narrow_gathers = model.narrow_gathers;
  flags.loss_fusion = !model.loss_in_float32;
  if (flags.loss_fusion) flags.loss_fusion_by = "te";
  flags.gradients_bf16 = flags.bf16 && job.gradient_bytes == 2;
  flags.gradients_fp32 = flags.fp16 && job.gradient_bytes == 4;
  if (model.fused_attention) {
    flags.attention_dropout = flags.hidden_dropout = "0";
  } else {  // which is simulated with dropout
    flags.attention = "unfused";
  }
  return flags;
}

/// The flags as an array of a shell script, after `comments`. @pre as megatron_flags()
inline std::string megatron_text(const FrameworkJob& job, const std::vector<std::string>& comments) {
  std::string text;
  for (const std::string& comment : comments) text += concat("# ", comment, "\n");
  text += "MEGATRON_ARGS=(\n";
  for (const WrittenSetting& flag : written_settings(megatron_table(), megatron_flags(job))) {
    const std::string quotes = flag.value.find_first_of("|*") == std::string::npos ? "" : "'";
    const bool alone = flag.value == "true" && !flag.is_text;
    text += concat("  ", flag.name, alone ? std::string{} : concat(" ", quotes, flag.value, quotes), "\n");
  }
  return text + ")\n";
}

}  // namespace tawpipe
