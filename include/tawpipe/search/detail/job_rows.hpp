// The rows of a job's fields. A new one is a row here, and a member of Problem (or of its model) that it reads into.
// Not: what a row is (search/job_field.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/search/detail/field_values.hpp"
#include "tawpipe/search/job_field.hpp"
#include "tawpipe/search/recompute_text.hpp"

namespace tawpipe::inline v0::detail {

/// --context-exchange: how, and for all-to-all+ring:INNER the inner size (0: not given).
/// @throws InputError  for anything else
inline void read_context_exchange(const JobField&, const std::string& text, Problem& problem) {
  const std::string_view two_level = name(ContextExchange::two_level);
  const bool inner = text.starts_with(concat(two_level, ":"));
  problem.context_exchange = inner ? ContextExchange::two_level : parse_context_exchange(text);
  problem.context_inner =
      inner ? parse_whole<int>(text.substr(two_level.size() + 1), concat("--context-exchange ", two_level, ":INNER"), 1) : 0;
}
inline std::string print_context_exchange(const JobField&, const Problem& problem) {
  const std::string text{name(problem.context_exchange)};
  const bool inner = problem.context_exchange == ContextExchange::two_level && problem.context_inner > 0;
  return inner ? concat(text, ":", problem.context_inner) : text;
}

/// The mesh's expert axis: what --expert-parallel has beyond tensor x context.
inline void read_expert_parallel(const JobField&, const std::string& text, Problem& problem) {
  take_expert_parallel(parse_whole<std::int64_t>(text, "--expert-parallel", 1), problem.mesh);
}

inline void read_bucket(const JobField&, const std::string& text, Problem& problem) {
  const auto parameters = to_number<std::int64_t>(text);
  if (!parameters || *parameters < automatic_bucket)
    throw InputError("--bucket must be a number of parameters, or 0 for a whole stage");
  problem.bucket = *parameters;
}

inline void read_dtype(const JobField&, const std::string& text, Problem& problem) {
  const Dtype dtype = parse_dtype(text);
  if (dtype == Dtype::f8 || dtype == Dtype::f64)
    throw InputError(concat("--dtype ", name(dtype), " is not predicted; give bfloat16, float16 or float32"));
  set_dtype(*problem.model, dtype);
}

inline void read_products(const JobField&, const std::string& text, Problem& problem) {
  problem.model->products = parse_product_format(text);
  if (problem.model->products != ProductFormat::fp8) problem.model->narrow_gathers = false;
}

inline void read_swiglu(const JobField& field, const std::string& text, Problem& problem) {
  if (!problem.model->gated) throw InputError(concat("--swiglu: ", one_line(problem.model->name), " has no gate; leave it out"));
  problem.model->fused_swiglu = one_of_two("--swiglu", text, field.value.words[0], field.value.words[1]);
}

inline void read_loss_chunk(const JobField&, const std::string& text, Problem& problem) {
  const std::int64_t entries = parse_whole<std::int64_t>(text, "--loss-chunk", 1);
  problem.model->loss_chunk = static_cast<int>(std::min<std::int64_t>(entries, Transformer::max_vocab + 1));
}

/// --account-for-embedding-in-pipeline-split, which counts as one layer.
template <double StageCut::*part>
FieldValue edge_is_layer() {
  return {
      .read =
          [](const JobField&, const std::string&, Problem& problem) {
            StageCut& cut = problem.stage_cut;
            if (cut.balanced || !cut.layers.empty()) {
              throw InputError(concat("--layers-per-stage ", name(cut), " says already how embedding and loss count; leave out ",
                                      "--account-for-...-in-pipeline-split"));
            }
            cut.*part = 1;
          },
      .print = [](const JobField&, const Problem& problem) { return std::string{problem.stage_cut.*part == 1 ? "on" : ""}; }};
}

/// @param rest  its other members
inline JobField row(std::string_view name, std::string_view group, std::string_view type, std::string meaning,
                    JobField rest = {}) {
  rest.name = name;
  rest.group = group;
  rest.type = type;
  rest.meaning = std::move(meaning);
  return rest;
}

inline std::vector<JobField> make_job_fields() {
  constexpr std::string_view problem = "Problem";
  constexpr std::string_view layout = "Layout";
  constexpr std::string_view times = "Times";
  constexpr std::string_view noise = "Noise";
  constexpr std::uint64_t most_ranks = std::numeric_limits<int>::max();
  return {
      row("cluster", problem, "CLUSTER",
          "A name (tawpipe list clusters), NAME*NODES, a sum of these, NxM (N nodes of M devices), 64xH100,\n"
          "8+8+4, or a file: JSON, the output of nvidia-smi topo -m or rocm-smi --showtopo, or NCCL's topology XML"),
      row("device", problem, "NAME",
          "The GPU by name, such as H100-80G, where the cluster names none (NxM, nvidia-smi, some XML), or another than\n"
          "it names"),
      row("inter-node", problem, "SPEED", "Of each network adapter, such as 100Gbps, in place of what the cluster has"),
      row("model", problem, "MODEL",
          "A name (tawpipe list models), llama-LxH, a Hugging Face config.json, or a script (.sh) with\n"
          "Megatron-LM's flags"),
      row("sequence", problem, "TOKENS", "Tokens of one sequence, such as 8192 or 8k",
          {.kind = FieldKind::tokens, .aliases = "seq-length seq-len"}),
      row("global-batch", problem, "N", "Sequences of one iteration, over all devices",
          {.kind = FieldKind::tokens, .aliases = "gbs global-batch-size"}),
      row("microbatches", problem, "N", "Microbatches of one iteration, in place of --global-batch",
          {.kind = FieldKind::tokens, .traits = of_plan}),
      row("microbatch", problem, "N|auto", "Sequences of one microbatch, or auto: the fastest that fits (default {})",
          {.value = {.words = {"auto"},
                     .print =
                         [](const JobField&, const Problem& p) {
                           return p.microbatch_sizes.size() == 1 ? concat(p.microbatch_sizes[0]) : std::string{"auto"};
                         }},
           .aliases = "mbs micro-batch-size",
           .searched = "auto",
           .traits = of_plan}),
      row("recompute", problem, "POLICY",
          "Activations computed again in the backward: none, selective, full, full:N (of the first N layers of each\n"
          "stage), selective:PART,... (of core_attn, mlp, layernorm, activation), or auto: as is fastest and fits\n"
          "(default {})",
          {.value = {.words = names_of<Recompute, recompute_policies>(),
                     .print = [](const JobField&, const Problem& p) { return recompute_text(p); }},
           .searched = "any",
           .traits = of_plan}),
      row("tensor-parallel", layout, "N", "Devices that split each matrix product (default {})",
          {.kind = FieldKind::count,
           .standard = "1",
           .value = numeric<&Mesh::tensor>(),
           .aliases = "tp tensor-model-parallel-size",
           .searched = "any",
           .traits = of_plan,
           .most = most_ranks}),
      row("context-parallel", layout, "N", "Devices that split each sequence (default {})",
          {.kind = FieldKind::count,
           .standard = "1",
           .value = numeric<&Mesh::context>(),
           .aliases = "cp context-parallel-size",
           .searched = "any",
           .traits = of_plan,
           .most = most_ranks}),
      row("expert-parallel", layout, "N",
          "Devices among which each layer's experts are divided, whole, tensor x context or a multiple, whose other\n"
          "devices have sequences of their own; 1: tensor-parallel devices split all of them (default {})",
          {.kind = FieldKind::count,
           .standard = "1",
           .value = {.read = read_expert_parallel,
                     .print = [](const JobField&,
                                 const Problem& p) { return concat(p.mesh.whole_experts ? p.mesh.expert_parts() : 1); }},
           .aliases = "ep expert-model-parallel-size",
           .searched = "any",
           .traits = of_plan,
           .most = most_ranks}),
      row("data-parallel", layout, "N", "Replicas of the schedule, each with its part of the batch (default {})",
          {.kind = FieldKind::count,
           .standard = "1",
           .value = numeric<&Mesh::data>(),
           .aliases = "dp",
           .searched = "any",
           .traits = of_plan,
           .most = most_ranks}),
      row("layout", layout, "ORDER",
          "Which devices lie next to each other, nearest first: tensor, context, schedule, data, or by names,\n"
          "tp-cp-pp-dp (default {}, and tcesd for tcsd where --expert-parallel adds devices)",
          {.standard = "tcsd",
           .value = {.read = [](const JobField&, const std::string& text, Problem& p) { p.mesh.order = parse_mesh_order(text); },
                     .print = [](const JobField&, const Problem& p) { return mesh_order_text(p.mesh.order); }},
           .searched = "any of tcsd and tcds",
           .traits = of_plan}),
      row("usable-memory", problem, "FRACTION",
          "Part of each device's memory that a schedule may need; the rest is for CUDA, NCCL and\n"
          "what an allocator wastes (default {})",
          {.kind = FieldKind::fraction}),
      row("sequence-parallel", layout, "on|off",
          "Tensor-parallel devices split norms and residuals by tokens: on (default) or off",
          {.standard = "on", .value = two_words<&Problem::sequence_parallel>(), .traits = of_plan | of_framework}),
      row("context-exchange", layout, "HOW",
          "How context-parallel devices share keys and values: all-gather (default), ring, all-to-all, or\n"
          "all-to-all+ring: all-to-all in each node and a ring of these groups, all-to-all+ring:N of N devices",
          {.standard = "all-gather",
           .value = {.words = names_of<ContextExchange, context_exchanges>(),
                     .read = read_context_exchange,
                     .print = print_context_exchange},
           .traits = of_plan | of_framework,
           .json = "context_exchange"}),
      row("expert-dispatch", layout, "HOW",
          "How tokens get to experts of other devices: all-to-all (default), a copy for each expert, or deepep, as DeepEP and\n"
          "HybridEP send them: one to each node, and one to each device there",
          {.standard = "all-to-all",
           .value = named<&Problem::expert_dispatch>("dispatch to experts"),
           .traits = of_plan | of_framework | of_experts,
           .json = "expert_dispatch",
           .tried = {"deepep", "tokens sent to experts by DeepEP"}}),
      row("overlap-expert-all-to-all", layout, "HOW",
          "All-to-alls of experts run under another microbatch's computation: off (default), on, or delayed, with gradients of\n"
          "weights after the all-to-all that they do not hold up (Megatron-LM's --overlap-moe-expert-parallel-comm and\n"
          "--delay-wgrad-compute); with interleaved-1f1b, ddp, dualpipe and dualpipe-v",
          {.standard = "off",
           .value = parsed<&Problem::expert_overlap, parse_expert_overlap>(names_of<ExpertOverlap, expert_overlaps>()),
           .traits = of_plan | of_framework | of_experts,
           .json = "expert_overlap",
           .tried = {"delayed", "all-to-alls of experts under another microbatch"}}),
      row("loss-chunk", problem, "ENTRIES",
          "Entries of the vocabulary that the loss is computed of at a time (default: all, kept for the backward)",
          {.kind = FieldKind::tokens,
           .value = {.read = read_loss_chunk,
                     .print = [](const JobField&, const Problem& p) { return concat(p.model->loss_chunk); },
                     .of_model = true},
           .json = "loss_chunk"}),
      row("shard-states", layout, "STATES",
          "What data- and context-parallel devices share out: none, optimizer (ZeRO-1), gradients too\n"
          "(ZeRO-2) or parameters too (FSDP) (default {})",
          {.standard = "optimizer",
           .value = parsed<&Problem::sharding, parse_state_sharding>(names_of<StateSharding, state_shardings>()),
           .searched = "any but none",
           .traits = of_plan | of_framework,
           .json = "shard_states"}),
      row("reshard", layout, "step|microbatch|auto",
          "Parameters are gathered and gradients summed once a step, for each microbatch, or auto (default):\n"
          "step in a pipeline",
          {.standard = "auto",
           .value = parsed<&Problem::reshard, parse_reshard>(names_of<Reshard, reshards>()),
           .traits = of_plan | of_framework}),
      row("overlap-grad-reduce", layout, "on|off",
          "Gradients are summed over data- and context-parallel devices while backwards go on: on or off (default {})",
          {.standard = "off",
           .value = two_words<&Problem::overlap_gradients>(),
           .searched = "on",
           .traits = of_plan | of_framework}),
      row("overlap-param-gather", layout, "on|off",
          "New weights are gathered while the next iteration's forwards begin: on or off (default {})",
          {.standard = "off",
           .value = two_words<&Problem::overlap_gathers>(),
           .searched = "on",
           .traits = of_plan | of_framework}),
      row("bucket", layout, "PARAMETERS",
          "Parameters of a device that sums and gathers of the first stage carry at least where they overlap\n"
          "computation, in whole layers; 0: the stage's all (default 40,000,000, or 1,000,000 a replica if that is more)",
          {.kind = FieldKind::count,
           .standard = "-1",
           .value = {.read = read_bucket, .print = [](const JobField&, const Problem& p) { return concat(p.bucket); }},
           .traits = of_plan | of_framework,
           .least = 0}),
      row("offload", problem, "WHAT",
          "What lies in host memory between its uses: off, activations (activations:20: of each device's\n"
          "first 20 layers), weights, optimizer, or several with + (default {})",
          {.standard = "off",
           .value = parsed<&Problem::offload, parse_offload>(
               {"off", "activations", "weights", "optimizer", "activations+optimizer", "weights+optimizer"}),
           .searched = "off, optimizer or activations+optimizer",
           .traits = of_framework,
           .json = "offload"}),
      row("layers-per-stage", layout, "LAYERS",
          "Layers of each stage, such as 7,8,8,7, or Megatron-LM's layout, such as Et*7|t*8|t*8|t*7L; auto: balanced with\n"
          "embedding, head and loss; or even (default {})",
          {.standard = "even",
           .value = parsed<&Problem::stage_cut, parse_stage_cut>({"even", "auto"}),
           .searched = "even or auto"}),
      row("account-for-embedding-in-pipeline-split", layout, "", "Where layers are cut into stages, the embedding counts as one",
          {.kind = FieldKind::flag, .value = edge_is_layer<&StageCut::embedding>()}),
      row("account-for-loss-in-pipeline-split", layout, "", "So does the head with its loss",
          {.kind = FieldKind::flag, .value = edge_is_layer<&StageCut::head>()}),
      row("tp-comm-overlap", layout, "on|off",
          "Collectives of tensor parallelism overlap the GEMMs before and after them: on or off (default {})",
          {.standard = "off",
           .value = two_words<&Problem::tensor_overlap>(),
           .searched = "on, where their format allows it",
           .traits = of_plan | of_framework}),
      row("gemm-format", problem, "FORMAT",
          "Format of the layers' GEMMs: 16bit (default), fp8, fp8-rows, fp8-block, mxfp8 or nvfp4; of several\n"
          "(plan: with commas between) the fastest",
          {.value = {.words = names_of<ProductFormat, product_formats>(),
                     .read = read_products,
                     .print = [](const JobField&, const Problem& p) { return std::string{name(p.model->products)}; },
                     .of_model = true},
           .aliases = "precision"}),
      row("gathered-weights", problem, "model|gemm",
          "Ranks that gather weights gather them in the model's numbers (default), or those of layers in the GEMMs' 8\n"
          "bits: model or gemm",
          {.value = two_words<&Transformer::narrow_gathers>("gemm", "model")}),
      row("attention", problem, "fused|unfused",
          "Attention is one kernel, or writes the scores of all pairs of tokens as before 2022: fused (default) or\n"
          "unfused",
          {.value = two_words<&Transformer::fused_attention>("fused", "unfused")}),
      row("layer-code", problem, "NAME",
          "Whose kernels run the layers: megatron (default), megatron-unfused (without gradient accumulation fusion),\n"
          "torchtitan, torchtitan-eager, composer or tawpipe (as `train` runs them)",
          {.value = parsed<&Transformer::code, parse_layer_code>(names_of<LayerCode, layer_codes>())}),
      row("early-stop", problem, "on|off",
          "Full recomputation leaves out a layer's last product, as PyTorch's checkpoints that are not reentrant: on or off\n"
          "(default: on with the layer code torchtitan, composer or tawpipe)",
          {.value = two_words<&Transformer::early_stop>()}),
      row("swiglu", problem, "fused|unfused",
          "SwiGLU is one kernel that keeps no silu(gate), or several: fused (default, but for\n"
          "torchtitan-eager and tawpipe) or unfused",
          {.value = {.words = {"fused", "unfused"},
                     .read = read_swiglu,
                     .print = [](const JobField& f, const Problem& p) { return f.value.words[p.model->fused_swiglu ? 0 : 1]; },
                     .of_model = true}}),
      row("fused-experts", problem, "on|off",
          "Experts' gate, up and SwiGLU are one kernel (Transformer Engine's fused grouped MLP), with --gemm-format mxfp8 on\n"
          "Blackwell: on or off (default)",
          {.value = two_words<&Transformer::fused_experts>()}),
      row("dtype", problem, "DTYPE",
          "Numbers of weights and activations: bfloat16, float16 or float32 (default: the model's; a config.json's where it is\n"
          "16 bits wide, else bfloat16)",
          {.value = {.words = {"bfloat16", "float16", "float32"},
                     .read = read_dtype,
                     .print = [](const JobField&, const Problem& p) { return std::string{name(p.model->dtype)}; },
                     .of_model = true}}),
      row("loss-dtype", problem, "float32|model",
          "Cross entropy of logits copied to float32 (default), or in the model's numbers, as fused kernels run it:\n"
          "float32 or model",
          {.value = two_words<&Transformer::loss_in_float32>("float32", "model")}),
      row("gradient-dtype", problem, "DTYPE", "In which gradients are kept and summed, such as float32 (default: the model's)",
          {.value = {.print = [](const JobField&,
                                 const Problem& p) { return std::string{p.parameter_bytes.gradient == 4 ? "float32" : ""}; }},
           .traits = of_framework}),
      row("moment-dtype", problem, "DTYPE", "In which Adam's two moments are kept, such as bfloat16 (default float32)"),
      row("master-dtype", problem, "DTYPE|none",
          "In which the optimizer keeps its copy of weights of 16 bits, such as float16 (default float32), or none: weights\n"
          "are updated themselves"),
      row("cost", times, "COST",
          "kernels (default): each kernel by its shape, as measured for the device's generation (docs/accuracy.md), with\n"
          "figures replaced as kernels:KEY=VALUE,...\n"
          "  products=0.7  products-fp8  attention  attention-backward  memory  host-layer  ...\n"
          "  file=gpu.json            those that tawpipe measure has written\n"
          "or roofline: one fraction of the peak, with parameters as roofline:KEY=VALUE,...\n"
          "  utilization=0.45         fraction of the matrix peak (default: the model's, or 0.5)\n"
          "  memory-utilization=0.8   fraction of the memory bandwidth\n"
          "  overhead=8.4us           of starting a transfer\n"
          "  all-reduce=ring|tree     (default ring)\n"
          "  collectives=simple|nccl  NCCL's Simple protocol (default), or the fastest of its table for each size\n"
          "or given times of one stage and microbatch, with no model needed:\n"
          "  fixed:forward=18522us,backward_input=18086us,backward_weight=9337us,transfer=601us\n"
          "or times measured on a machine, as tawpipe calibrate writes them: measured:FILE",
          {.standard = "kernels", .value = {.words = {"kernels", "roofline", "fixed:", "measured:"}}}),
      row("cuda-graphs", times, "none|layers|iteration",
          "What is launched as CUDA graphs, with --cost kernels: none (default), layers (one for each layer's forward and\n"
          "backward) or iteration (one for all forwards and backwards)",
          {.standard = "none",
           .value = {.print = [](const JobField&, const Problem& p) { return std::string{name(graphs_of(p.cost))}; }},
           .traits = of_framework}),
      row("hold-sms", times, "on|off|...",
          "Communications hold SMs of their devices while they wait and move data, and slow computations there:\n"
          "nccl (collectives that move data, as measured; default with --cost kernels), on, off or [on,|nccl,]KEY=VALUE,...\n"
          "  ctas=8               SMs that a message between two devices holds at each\n"
          "  collective-ctas=16   and a collective at each member\n"
          "  state-ctas=N         and one of weights or gradients (default: as of others)\n"
          "  state-rate=224GBps   where its ring moves as much, else in proportion (default: at any bandwidth)\n"
          "  waiting=on|off       also while they wait for other devices (default on)\n"
          "  copy-engines=node    all-gathers and even all-to-alls inside a node hold none (NCCL 2.28: NCCL_CTA_POLICY_ZERO);\n"
          "                       network: between nodes too (NCCL 2.30.6); off (default)\n"
          "  puts=node|network    nor do messages (NCCL 2.29: ncclPutSignal); off (default)\n"
          "  launch-order=implicit  a device's communications start in the order of their calls (NCCL 2.26:\n"
          "                       NCCL_LAUNCH_ORDER_IMPLICIT); off (default)\n"
          "  sms=N                of each device (default: the cluster's)\n"
          "  speeds=FILE          computing speeds measured by bench_gpu_beside (default: in proportion to the rest)\n"
          "  priority=high|low    of communication, in that file (default high)",
          {.traits = of_plan}),
      row("limit", problem, "SIZE",
          "Memory that the simulation may take; larger iterations are refused\n(default 4GiB, or half of this machine's)"),
      row("jitter", noise, "FRACTION", "Standard deviation of each computation's and route's time, such as 0.03",
          {.kind = FieldKind::number, .value = numeric<&Noise::jitter>(), .traits = of_noise}),
      row("stragglers", noise, "PxN", "Slow devices: their probability and how much slower, such as 0.01x2",
          {.value = {.read = [](const JobField&, const std::string& text, Problem& p) { parse_stragglers(text, p.noise); }},
           .traits = of_noise}),
      row("interference", noise, "FRACTION", "How much longer a computation takes while its device communicates, such as 0.05",
          {.kind = FieldKind::number, .value = numeric<&Noise::interference>(), .traits = of_noise}),
      row("seed", noise, "N", "Of jitter and stragglers (default 1)",
          {.kind = FieldKind::count,
           .value = numeric<&Noise::seed>(),
           .traits = of_noise,
           .least = 0,
           .most = std::numeric_limits<std::uint64_t>::max()}),
  };
}

}  // namespace tawpipe::v0::detail
