// Maps a published run to the problem that it poses.
// Not: its table (truth_tables.cpp) nor the predictions (reproduce_truth.cpp).
#include "truth.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/frameworks/torchtitan.hpp"
#include "tawpipe/search/job_fields.hpp"
#include "tawpipe/topology/cluster_builder.hpp"
#include "tawpipe/topology/devices.hpp"
#include "tawpipe/topology/link_speeds.hpp"
#include "truth_experts.hpp"

namespace tawpipe::sim {

namespace {

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

/// Whether a row ran on PyTorch's FSDP, which shares states over the data and context ranks;
/// torchtitan says torch_compile where it has one rank of either.
bool is_torchtitan(const TruthRow& row) { return row.is_torchtitan(); }
bool is_fsdp(const TruthRow& row) { return has(lower_case(row.zero), "fsdp") || is_torchtitan(row); }

/// What the flags (in lower case) say is captured in CUDA graphs: of MLPerf's configurations, or of
/// Megatron-LM's; those of parts of a layer count for nothing.
CudaGraphs captured_graphs(const std::string& flags) {
  if (has(flags, "full_cuda_graph=1") || has(flags, "cuda_graph_impl=full_iteration")) return CudaGraphs::iteration;
  const bool whole = has(flags, "cuda_graph_scope=full_iteration");
  if (has(flags, "cuda_graph_impl=local")) return whole ? CudaGraphs::iteration : CudaGraphs::layers;
  return has(flags, "mcore_cuda_graph=1") || has(flags, "layer_cuda_graph=1") ? CudaGraphs::layers : CudaGraphs::none;
}

bool is_mpt(const TruthRow& row) { return row.is_mpt(); }

/// Code of 2021: Megatron-LM's of SC'21, and Megatron-DeepSpeed, whose arguments then have no gradient
/// accumulation fusion (microsoft/Megatron-DeepSpeed, megatron/arguments.py, commit 060fb402). And a
/// pipeline with PyTorch's FSDP, whose microbatches autograd adds, Llama 3's in float32
/// (arXiv:2407.21783, section 3.3.2).
bool lacks_accumulation_fusion(const TruthRow& row) {
  return row.row.starts_with("sc21") || row.source.starts_with("vtrain") || (is_fsdp(row) && row.pp > 1);
}

/// The device that a hardware column means: the first name below that it contains.
std::optional<DeviceSpec> device_of(const std::string& hardware) {
  const std::string text = lower_case(hardware);
  struct Known {
    std::string_view part;
    std::string_view device;
  };
  for (const Known known : {Known{"gb300", "GB300-279G"},
                            {"gb200", "GB200-186G"},
                            {"b300", "B300-270G"},
                            {"b200", "B200-180G"},
                            {"h200", "H200-141G"},
                            {"h100 96gb", "H100-96G"},
                            {"h100", "H100-80G"},
                            {"h800", "H800-80G"},
                            {"a100_40", "A100-40G"},
                            {"a100 40", "A100-40G"},
                            {"a100", "A100-80G"},
                            {"a800", "A800-80G"},
                            {"v100", "V100-32G"}}) {
    if (has(text, known.part)) return device_named(known.device);
  }
  return std::nullopt;
}

/// Nodes of 8 GPUs with an adapter each, or as the row says; NVL72, whose hosts have 4 GPUs, is one node of as many as
/// divide the GPUs, and its
/// link to the host is NVLink-C2C of 900 GB/s both ways together (Transformer Engine, docs,
/// features, other_optimizations/cpu_offloading).
Cluster cluster_of(const TruthRow& row, const DeviceSpec& device) {
  const KnownDevice& known = known_device(device.name);
  const bool rack = device.name.starts_with("GB");
  int size = std::min(row.gpus, rack ? 72 : 8);
  while (row.gpus % size != 0) --size;
  const int hosts = rack ? std::max(1, size / 4) : 1;
  const LinkSpeeds speeds = link_speeds(known);
  return ClusterBuilder{}
      .name(concat(row.gpus, " x ", device.name))
      .device(device)
      .nodes(row.gpus / size)
      .devices_per_node(size)
      .adapters_per_node(row.adapters > 0 ? hosts * row.adapters : size)
      .intra_node({speeds.nvlink * usual_nvlinks(known), nccl_latency::nvlink})
      .inter_node({row.adapter_gbits > 0 ? BytesPerSecond{row.adapter_gbits * 1e9 / 8} : speeds.network, nccl_latency::network})
      .host_link({rack ? BytesPerSecond{450e9} : speeds.pcie, speeds.device_pcie_latency})
      .build();
}

/// Megatron-LM's GPT where the row does not say. zero_bubble's published script has a SentencePiece
/// tokenizer, and its models have as many parameters as printed with Llama's 32,000 entries; two of
/// the four have not with 51,200.
int vocabulary_of(const TruthRow& row) {
  if (row.vocab > 0) return row.vocab;
  return row.source == "zero_bubble" ? 32000 : 51200;
}

/// The decoder: its sizes, and whether it has a gate and a tied output by the number of parameters
/// that the row prints (without one: a gate unless the MLP is four times as wide, untied).
std::variant<Transformer, std::string> model_of(const TruthRow& row) {
  std::vector<std::string> missing;
  const auto need = [&](int value, const char* name) {
    if (value < 1) missing.emplace_back(name);
  };
  need(row.layers, "layers");
  need(row.hidden, "hidden");
  need(row.heads, "heads");
  need(row.ffn, "ffn");
  if (row.sequence < 1) missing.emplace_back("sequence");
  if (row.global_batch < 1) missing.emplace_back("global_batch");
  if (!missing.empty()) return concat("the row does not say: ", join(missing, ", "));
  Transformer model{.name = row.model,
                    .layers = row.layers,
                    .hidden = row.hidden,
                    .heads = row.heads,
                    .kv_heads = row.kv_heads > 0 ? row.kv_heads : row.heads,
                    .intermediate = row.ffn,
                    .vocab = vocabulary_of(row),
                    .gated = row.ffn != 4 * row.hidden};
  if (row.hidden % row.heads != 0) model.head_dim = row.hidden / row.heads;
  if (row.experts > 0) {
    if (std::string why = take_experts(row, model); !why.empty()) return why;
  }
  if (row.params_b > 0) {
    double nearest = INFINITY;
    Transformer best = model;
    for (const bool gated : {false, true}) {
      if (row.experts > 0 && !gated) continue;
      for (const bool tied : {true, false}) {
        model.gated = gated;
        model.tied = tied;
        const double off = std::abs(static_cast<double>(model.parameters()) / 1e9 - row.params_b);
        if (off < nearest - 0.002 * row.params_b) {
          nearest = off;
          best = model;
        }
      }
    }
    model = best;
  }
  // A tied one is summed over the first and the last stage, which then wait for each other; with
  // these schedules no all-reduce crosses stages (sail-sg/zero-bubble-pipeline-parallelism#64).
  if (row.is_zero_bubble()) model.tied = false;
  const std::string precision = lower_case(row.precision);
  const bool half = has(precision, "fp16") || has(precision, "float16") || has(precision, "16-bit");
  const bool unsaid = precision.empty() && has(lower_case(row.hardware), "a100");  // Megatron-LM's defaults
  model.dtype = unsaid || (half && !has(precision, "bf16") && !has(precision, "bfloat16")) ? Dtype::f16 : Dtype::bf16;
  model.products = has(precision, "nvfp4")     ? ProductFormat::nvfp4
                   : has(precision, "mx")      ? ProductFormat::mxfp8
                   : has(precision, "rowwise") ? ProductFormat::fp8_rows
                   : has(precision, "fp8")     ? ProductFormat::fp8
                                               : ProductFormat::bits16;
  model.fused_attention = model.dtype != Dtype::f16;  // Megatron-LM of 2021 and 2022
  model.loss_in_float32 = !model.fused_attention;
  if (lacks_accumulation_fusion(row)) model.code = LayerCode::megatron_unfused;
  if (is_mpt(row)) {
    model.code = LayerCode::composer;
    // Its benchmark began with PyTorch 1.13 and bf16, and went on with 2.1, whose checkpoints stop
    // early, and amp_bf16 (mosaicml/llm-foundry, submit_benchmarks.py).
    model.early_stop = precision.starts_with("amp_");
  }
  if (is_torchtitan(row)) model = as_torchtitan_runs(std::move(model), !has(row.overlap, "torch_compile=0"));
  // Elsewhere losses are fused by Transformer Engine. What torchtitan compiles of a loss has in reports of
  // 2025 no tensor of 32 bits any more.
  const bool compiled = model.code == LayerCode::torchtitan && row.file.find("_2025") != std::string::npos;
  if (compiled) model.loss_in_float32 = false;
  model.one_kernel_loss = compiled || (model.code == LayerCode::megatron && !model.loss_in_float32);
  model.fused_swiglu = model.code_fuses_swiglu();
  // fp8_param_gather of NVIDIA's recipes in 8 bits, but not by blocks (Megatron-Bridge, mixed_precision.py).
  const bool recipe = software_of(row) == Software::megatron && !is_fsdp(row);
  model.narrow_weights = recipe && (model.products == ProductFormat::fp8 || model.products == ProductFormat::mxfp8);
  model.fused_experts = has(row.overlap, "cutedsl_fused_grouped_mlp=True") && model.products == ProductFormat::mxfp8;
  model.narrow_gathers = has(precision, "fp8 all-gather");  // off by default: torchtitan, config/job_config.py
  try {
    model.check();
  } catch (const InputError& error) {
    return std::string{error.what()};
  }
  return model;
}

/// The layers whose activations lie in the host, as the row says; nothing where it has no number
/// and its source's recipe offloads some: Megatron-Bridge's with FSDP on GB200 and GB300 all do, 10
/// to 92 (cpu_offloading_num_layers of scripts/performance/configs/llama,
/// llama3{,1}_workload_base_configs.py).
std::optional<int> offloaded_layers(const TruthRow& row) {
  for (const std::string_view flag : split(row.overlap, ';')) {
    constexpr std::string_view key = "cpu_offloading_num_layers=";
    if (flag.starts_with(key)) return to_number<int>(flag.substr(key.size()));
  }
  if (has(row.overlap, "cpu_offload=0")) return 0;
  const bool recipe =
      row.source == "megatron_bridge" && is_fsdp(row) && (has(row.hardware, "GB200") || has(row.hardware, "GB300"));
  if (recipe || has(row.overlap, "cpu_offload")) return std::nullopt;
  return 0;
}

/// The schedule and its options, or why there is none.
std::variant<ScheduleChoice, std::string> schedule_of(const TruthRow& row) {
  const std::string schedule = lower_case(row.schedule);
  if (row.pp == 1) {
    if (is_fsdp(row) && row.cp == 1) return ScheduleChoice{"fsdp", {{"prefetch", "1"}}};
    return ScheduleChoice{"ddp"};  // of one rank, unit by unit; the mesh shares out the states and sums gradients
  }
  if (schedule == "zb-1p" || schedule == "zb-2p") return ScheduleChoice{"zb-auto", {{"memory-limit", schedule.substr(3)}}};
  if (schedule == "zbb" || schedule == "zero-bubble") return ScheduleChoice{"zb-auto", {{"memory-limit", "1p"}}};
  if (schedule == "v-half") return ScheduleChoice{"v-half"};
  if (schedule == "1f1b-i") return ScheduleChoice{"interleaved-1f1b", {{"chunks", std::to_string(row.vp)}}};
  if (row.vp > 1) return ScheduleChoice{"interleaved-1f1b", {{"chunks", std::to_string(row.vp)}}};
  if (schedule.empty() || has(schedule, "1f1b") || has(schedule, "none")) return ScheduleChoice{"1f1b"};
  return concat("no schedule is known as ", quote(row.schedule));
}

/// The parts of a layer that "modules mlp+layernorm" names. Of a mixture, Megatron-LM's moe and moe_act
/// are those of its experts; its mlp (of layers without experts), shared_experts and mla_up_proj are
/// taken as kept. @throws InputError  for others
RecomputeParts parts_of(const std::string& recompute, bool experts) {
  constexpr std::string_view start = "modules ";
  const std::size_t at = recompute.find(start);
  if (at == std::string::npos) return {};
  std::vector<std::string> parts;
  for (const std::string_view module : split(std::string_view{recompute}.substr(at + start.size()), '+')) {
    const bool kept = module == "mlp" || module == "shared_experts" || module == "mla_up_proj";
    if (module.empty() || (experts && kept)) continue;
    parts.emplace_back(!experts ? module : module == "moe" ? "mlp" : module == "moe_act" ? "activation" : module);
  }
  return parts.empty() ? RecomputeParts{} : parse_recompute_parts(join(parts, ","));
}

}  // namespace

std::variant<Problem, std::string> truth_problem(const TruthRow& row, bool with_experts) {
  if (row.experts > 0 && !with_experts) return std::string{"a mixture of experts (predicted with --experts)"};
  if (row.hardware.empty()) return std::string{"the row names no hardware"};
  if (!row.has_layout) return std::string{"the row does not say its layout"};
  const std::optional<DeviceSpec> device = device_of(row.hardware);
  if (!device) return concat("no device is known as ", quote(row.hardware));
  auto model = model_of(row);
  if (auto* why = std::get_if<std::string>(&model)) return std::move(*why);
  auto schedule = schedule_of(row);
  if (auto* why = std::get_if<std::string>(&schedule)) return std::move(*why);
  const std::optional<int> offloaded = offloaded_layers(row);
  if (!offloaded) return std::string{"offloads activations of a number of layers that the row does not say"};
  const std::string zero = lower_case(row.zero);
  const std::string overlap = lower_case(row.overlap);
  const bool fsdp = is_fsdp(row);
  KernelCost cost;
  cost.held_sms = measured_held_sms(*device);  // sends: docs/accuracy.md
  // Megatron-Bridge's moe_hybridep_num_sms (scripts/performance/utils/overrides.py).
  const bool hybrid = sends_by_hybridep(row, overlap);
  if (hybrid) cost.held_sms.expert_ctas = 32;
  const DeviceCurves& curves = curves_of(known_device(device->name).sm);
  double forward = curves.attention;
  double backward = curves.attention_backward;
  if (is_mpt(row)) {  // ALiBi: Triton's, against FlashAttention-2
    const bool hopper = fsdp && curves.generation == "H100";
    forward = (hopper ? 0.42 : forward) / 1.4;
    backward = (hopper ? 0.38 : backward) / 2;
  } else if (fsdp && !is_torchtitan(row)) {  // PyTorch's too, as torchtitan's layers have it
    forward *= curves.pytorch_attention;
    backward *= curves.pytorch_attention_backward;
  }
  if (forward != curves.attention) {
    cost.changes = {{&DeviceCurves::attention, forward}, {&DeviceCurves::attention_backward, backward}};
  }
  const std::string recompute = lower_case(row.recompute);
  RecomputeParts parts;
  try {
    parts = parts_of(recompute, row.experts > 0);
  } catch (const InputError&) {
    return concat("recomputation of modules that are not known: ", row.recompute);
  }
  const std::int64_t size = std::max<std::int64_t>(1, row.micro_batch);
  if (row.global_batch % (row.dp() * size) != 0) {
    return concat(row.global_batch, " sequences are not a whole number of microbatches of ", size, " on ", row.dp(), " replicas");
  }
  Problem problem{.cluster = cluster_of(row, *device), .model = std::get<Transformer>(std::move(model)), .cost = std::move(cost)};
  problem.sequence = row.sequence;
  problem.global_batch = row.global_batch;
  problem.microbatch_sizes = {size};
  problem.schedules = {std::get<ScheduleChoice>(std::move(schedule))};
  problem.recompute = recompute.starts_with("full")                       ? Recompute::full
                      : parts.any() || recompute.starts_with("selective") ? Recompute::selective
                                                                          : Recompute::none;
  // Megatron-LM's selective recomputation without modules: TransformerConfig.__post_init__.
  if (problem.recompute == Recompute::selective && !parts.any() && !is_torchtitan(row)) parts.core_attn = true;
  problem.model->recompute_parts = parts;
  problem.mesh = {.tensor = row.tp,
                  .context = row.cp,
                  .data = problem.schedules.front().schedule == "fsdp" ? 1 : row.dp(),
                  .order = parse_mesh_order(has(row.overlap, "tp_pp_dp_mapping=1") ? "tcsd" : "tcds")};
  if (row.ep > 1) {
    if (const int others = row.tp * row.cp; row.ep % others != 0 || row.dp() % (row.ep / others) != 0)
      return concat("experts among ", row.ep, " ranks, which tensor ", row.tp, " x context ", row.cp, " ranks do not divide");
    problem.mesh.whole_experts = true;
    problem.mesh.expert = row.ep / (row.tp * row.cp);
    problem.mesh.data = row.dp() / problem.mesh.expert;
    // Megatron-Bridge sets delay_wgrad_compute with it (scripts/performance/utils/overrides.py).
    if (has(overlap, "moe_a2a_overlap=true")) set_job_field(problem, "overlap-expert-all-to-all", "delayed");
    if (hybrid || has(overlap, "moe_flex_dispatcher_backend=deepep")) set_job_field(problem, "expert-dispatch", "deepep");
  }
  // Megatron-LM's --cp-comm-type is p2p; PyTorch gathers (_cp_options.rotate_method), as did Llama 3.
  if (!fsdp) problem.context_exchange = ContextExchange::ring;
  problem.sequence_parallel = row.sp;
  problem.parameter_bytes = trained_bytes(problem.model->dtype);
  // grad_reduce_in_fp32 = False: NeMo's recipes in 8 and 4 bits, Megatron-Bridge's (scripts/performance/configs).
  if ((is_narrow(problem.model->products) || row.source == "megatron_bridge") && !fsdp) problem.parameter_bytes.gradient = 2;
  // Composer's gradients in mixed_precision PURE (composer/distributed/mosaic_fsdp_utils.py).
  if (fsdp && has(overlap, "mixed_precision=pure")) problem.parameter_bytes.gradient = 2;
  // Megatron-LM in float16: gradients are float16, and the optimizer has a float32 copy of them
  // (dist_optimizer.md: 20 bytes).
  if (problem.model->dtype == Dtype::f16) problem.parameter_bytes = {.weight = 2, .gradient = 2, .optimizer = 16};
  // What the source says; otherwise as frameworks with a distributed optimizer do since 2023.
  const bool modern = zero != "none" && !has(overlap, "overlap off");
  const auto said = [&](std::string_view flag, bool unsaid) {
    return has(overlap, concat(flag, "=1")) || (unsaid && !has(overlap, concat(flag, "=0")));
  };
  // A row of FSDP may say that weights stay whole.
  problem.sharding = zero == "none"                                         ? StateSharding::none
                     : fsdp && has(zero, "optimizer and gradients sharded") ? StateSharding::gradients
                     : fsdp                                                 ? StateSharding::parameters
                                                                            : StateSharding::optimizer;
  // PyTorch's pipelines sum gradients after the last backward, and so did Llama 3
  // (arXiv:2407.21783, section 3.3.2: accumulated over microbatches, then scattered).
  if (fsdp && row.pp > 1) {
    problem.reshard = Reshard::step;
    problem.bucket = 0;
  }
  problem.overlap_gradients = said("overlap_grad_reduce", modern);
  problem.overlap_gathers = said("overlap_param_gather", modern);
  problem.tensor_overlap =
      fsdp ? has(overlap, "async_tp=1") : said("tp_comm_overlap", modern && overlaps_collectives(problem.model->products));
  const std::int64_t chunks = std::int64_t{row.pp} * row.vp;
  if (row.layers % chunks != 0 && (row.layers + 2) % chunks == 0) problem.model->edges_count_as_layers = true;
  set_graphs(problem.cost, captured_graphs(overlap));
  problem.offload = {.activations = *offloaded > 0, .layers = *offloaded};
  problem.usable_memory = 1;
  return problem;
}

}  // namespace tawpipe::sim
