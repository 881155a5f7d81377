// Declares the shared flags to CLI11.
#include "flags.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <limits>

namespace tawpipe::sim {

std::string plain_tokens(const std::string& text) {
  if (text.size() < 2 || text.find_first_not_of("0123456789") != text.size() - 1) return text;
  const std::int64_t unit = text.back() == 'k' || text.back() == 'K'   ? 1 << 10
                            : text.back() == 'M' || text.back() == 'm' ? 1 << 20
                                                                       : 0;
  const std::int64_t most = std::numeric_limits<std::int64_t>::max() >> 20;
  const std::int64_t count = to_number<std::int64_t>(text.substr(0, text.size() - 1)).value_or(most + 1);
  return unit == 0 || count > most ? text : std::to_string(count * unit);
}

void add_text(CLI::App& app, const std::string& name, std::string& value, const std::string& text, const std::string& type,
              const std::string& group) {
  app.add_option(name, value, text)->type_name(type)->group(group);
}

void add_device_flag(CLI::App& app, std::string& device, const std::string& group) {
  add_text(app, "--device", device,
           "The GPU by name, such as H100-80G, where the cluster names none (NxM, nvidia-smi, some XML), or another than\n"
           "it names",
           "NAME", group);
}

void add_inter_node_flag(CLI::App& app, std::string& speed, const std::string& group) {
  add_text(app, "--inter-node", speed, "Of each network adapter, such as 100Gbps, in place of what the cluster has", "SPEED",
           group);
}

CLI::App* add_command(CLI::App& parent, const std::string& name, const std::string& text) {
  CLI::App* command = parent.add_subcommand(name, text);
  command->group("Commands");
  return command;
}

void add_usable_memory(CLI::App& app, double& fraction, const std::string& default_text) {
  app.add_option("--usable-memory", fraction,
                 "Part of each device's memory that a schedule may need; the rest is for CUDA, NCCL and\n"
                 "what an allocator wastes (default " +
                     default_text + ")")
      ->type_name("FRACTION")
      ->group("Problem")
      ->check(check_by(parse_fraction));
}

void add_offload_flag(CLI::App& app, std::string& offload, const std::string& group) {
  add_text(app, "--offload", offload,
           "What lies in host memory between its uses: off (default), activations (activations:20: of each\n"
           "device's first 20 layers), weights, optimizer, or several with +",
           "WHAT", group);
}

void add_json_flag(CLI::App& app, std::string& json, const std::string& what) {
  add_text(app, "--json", json, "Write " + what + " as JSON to a file, or - for standard output", "FILE|-", "Output");
}

void add_report_flag(CLI::App& app, std::string& report, const std::string& what) {
  add_text(app, "--report", report, "Write a page that shows " + what + ", to open in a browser", "FILE.html", "Output");
}

void add_chart_flag(CLI::App& app, std::string& chart, const std::string& what) {
  add_text(app, "--chart", chart, "Draw " + what + ", as SVG or PNG", "FILE.svg|.png", "Output");
}

void add_axis_flags(CLI::App& app, MeshRequest& request) {
  add_count(app, "--tensor-parallel", request.mesh.tensor, "Devices that split each matrix product (default 1)", "N", "Layout");
  add_count(app, "--context-parallel", request.mesh.context, "Devices that split each sequence (default 1)", "N", "Layout");
  add_count(app, "--expert-parallel", request.expert_parallel,
            "Devices among which each layer's experts are divided, whole (default 1: tensor-parallel devices split all of\n"
            "them): tensor x context, or a multiple, whose other devices have sequences of their own",
            "N", "Layout");
  add_count(app, "--data-parallel", request.mesh.data, "Replicas of the schedule, each with its part of the batch (default 1)",
            "N", "Layout");
  add_text(app, "--layout", request.layout,
           "Which devices lie next to each other, nearest first: tensor, context, schedule, data (default tcsd, and\n"
           "tcesd where --expert-parallel adds devices),\n"
           "or by names, tp-cp-pp-dp",
           "ORDER", "Layout");
}

void add_sequence_parallel_flag(CLI::App& app, MeshRequest& request) {
  add_text(app, "--sequence-parallel", request.sequence_parallel,
           "Tensor-parallel devices split norms and residuals by tokens: on (default) or off", "on|off", "Layout");
}

void add_state_flags(CLI::App& app, MeshRequest& request) {
  add_text(app, "--shard-states", request.shard_states,
           "What data- and context-parallel devices share out: none, optimizer (default; ZeRO-1), gradients\n"
           "too (ZeRO-2) or parameters too (FSDP)",
           "STATES", "Layout");
  add_text(app, "--reshard", request.reshard,
           "Parameters are gathered and gradients summed once a step, for each microbatch, or auto (default):\n"
           "step in a pipeline",
           "step|microbatch|auto", "Layout");
  add_text(app, "--overlap-grad-reduce", request.overlap_gradients,
           "Gradients are summed over data- and context-parallel devices while backwards go on: on or off (default)", "on|off",
           "Layout");
  add_text(app, "--overlap-param-gather", request.overlap_gathers,
           "New weights are gathered while the next iteration's forwards begin: on or off (default)", "on|off", "Layout");
  add_count<0>(app, "--bucket", request.bucket,
               "Parameters of a device that sums and gathers of the first stage carry at least where they overlap\n"
               "computation, in whole layers; 0: the stage's all (default 40,000,000, or 1,000,000 a replica if that is more)",
               "PARAMETERS", "Layout");
}

void add_problem_flags(CLI::App& app, Request& request, const std::string& microbatch_default,
                       const std::string& recompute_default) {
  add_text(app, "--cluster", request.cluster,
           "A name (tawpipe list clusters), NAME*NODES, a sum of these, NxM (N nodes of M devices), 64xH100,\n"
           "8+8+4, or a file: JSON, the output of nvidia-smi topo -m or rocm-smi --showtopo, or NCCL's topology XML",
           "CLUSTER", "Problem");
  add_device_flag(app, request.device);
  add_inter_node_flag(app, request.inter_node);
  add_text(app, "--model", request.model,
           "A name (tawpipe list models), llama-LxH, a Hugging Face config.json, or a script (.sh) with\n"
           "Megatron-LM's flags",
           "MODEL", "Problem");
  add_tokens(app, "--sequence", request.sequence, "Tokens of one sequence", "Problem");
  add_count(app, "--global-batch", request.global_batch, "Sequences of one iteration, over all devices", "N", "Problem");
  add_count(app, "--microbatches", request.microbatches, "Microbatches of one iteration, in place of --global-batch", "N",
            "Problem");
  add_text(app, "--microbatch", request.microbatch,
           "Sequences of one microbatch, or auto: the fastest that fits (default " + microbatch_default + ")", "N|auto",
           "Problem");
  add_usable_memory(app, request.usable_memory,
                    fmt::format("{} where --microbatch is auto, 1 where it is a number", usable_memory_share));
  add_text(app, "--recompute", request.recompute,
           "Activations computed again in the backward: none, selective, full, full:N (of the first N layers of each\n"
           "stage), selective:PART,... (of core_attn, mlp, layernorm, activation), or auto: as is fastest and fits\n"
           "(default " +
               recompute_default + ")",
           "POLICY", "Problem");
  add_offload_flag(app, request.offload, "Problem");
  add_count(app, "--loss-chunk", request.loss_chunk,
            "Entries of the vocabulary that the loss is computed of at a time (default: all, kept for the backward)", "ENTRIES",
            "Problem");
  add_text(app, "--gemm-format", request.products,
           "Format of the layers' GEMMs: 16bit (default), fp8, fp8-rows, fp8-block, mxfp8 or nvfp4", "FORMAT", "Problem");
  add_text(app, "--gathered-weights", request.gathered_weights,
           "Ranks that gather weights gather them in the model's numbers (default), or those of layers in the GEMMs' 8\n"
           "bits: model or gemm",
           "model|gemm", "Problem");
  add_text(app, "--attention", request.attention,
           "Attention is one kernel, or writes the scores of all pairs of tokens as before 2022: fused (default) or\n"
           "unfused",
           "fused|unfused", "Problem");
  add_text(app, "--layer-code", request.layer_code,
           "Whose kernels run the layers: megatron (default), megatron-unfused (without gradient accumulation fusion),\n"
           "torchtitan, torchtitan-eager, composer or tawpipe (as `train` runs them)",
           "NAME", "Problem");
  add_text(app, "--early-stop", request.early_stop,
           "Full recomputation leaves out a layer's last product, as PyTorch's checkpoints that are not reentrant: on or off\n"
           "(default: on with the layer code torchtitan, composer or tawpipe)",
           "on|off", "Problem");
  add_text(app, "--swiglu", request.swiglu,
           "SwiGLU is one kernel that keeps no silu(gate), or several: fused (default, but for\n"
           "torchtitan-eager and tawpipe) or unfused",
           "fused|unfused", "Problem");
  add_text(app, "--dtype", request.dtype,
           "Numbers of weights and activations: bfloat16, float16 or float32 (default: the model's; a config.json's where it is\n"
           "16 bits wide, else bfloat16)",
           "DTYPE", "Problem");
  add_text(app, "--loss-dtype", request.loss_dtype,
           "Cross entropy of logits copied to float32 (default), or in the model's numbers, as fused kernels run it:\n"
           "float32 or model",
           "float32|model", "Problem");
  add_text(app, "--gradient-dtype", request.gradient_dtype,
           "In which gradients are kept and summed, such as float32 (default: the model's)", "DTYPE", "Problem");
  add_text(app, "--moment-dtype", request.moment_dtype,
           "In which Adam's two moments are kept, such as bfloat16 (default float32)", "DTYPE", "Problem");
  add_text(app, "--master-dtype", request.master_dtype,
           "In which the optimizer keeps its copy of weights of 16 bits, such as float16 (default float32), or none: weights\n"
           "are updated themselves",
           "DTYPE|none", "Problem");
  add_axis_flags(app, request);
  add_text(app, "--layers-per-stage", request.layers_per_stage,
           "Layers of each stage, such as 7,8,8,7, or Megatron-LM's layout, such as Et*7|t*8|t*8|t*7L; auto: balanced with\n"
           "embedding, head and loss; even (default)",
           "LAYERS", "Layout");
  app.add_flag("--account-for-embedding-in-pipeline-split", request.embedding_is_layer,
               "Where layers are cut into stages, the embedding counts as one")
      ->group("Layout");
  app.add_flag("--account-for-loss-in-pipeline-split", request.loss_is_layer, "So does the head with its loss")->group("Layout");
  add_sequence_parallel_flag(app, request);
  add_text(app, "--context-exchange", request.context_exchange,
           "How context-parallel devices share keys and values: all-gather (default), ring, all-to-all, or\n"
           "all-to-all+ring: all-to-all in each node and a ring of these groups, all-to-all+ring:N of N devices",
           "HOW", "Layout");
  add_text(app, "--expert-dispatch", request.expert_dispatch,
           "How tokens get to experts of other devices: all-to-all (default), a copy for each expert, or deepep, as DeepEP and\n"
           "HybridEP send them: one to each node, and one to each device there",
           "HOW", "Layout");
  add_text(app, "--overlap-expert-all-to-all", request.expert_overlap,
           "All-to-alls of experts run under another microbatch's computation: off (default), on, or delayed, with gradients of\n"
           "weights after the all-to-all that they do not hold up (Megatron-LM's --overlap-moe-expert-parallel-comm and\n"
           "--delay-wgrad-compute); with interleaved-1f1b, ddp, dualpipe and dualpipe-v",
           "HOW", "Layout");
  add_state_flags(app, request);
  add_text(app, "--tp-comm-overlap", request.tensor_overlap,
           "Collectives of tensor parallelism overlap the GEMMs before and after them: on or off (default)", "on|off", "Layout");
  add_text(app, "--limit", request.limit,
           "Memory that the simulation may take; larger iterations are refused\n(default 4GiB, or half of this machine's)",
           "SIZE", "Problem");
  add_text(app, "--cost", request.cost,
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
           "COST", "Times");
  add_text(app, "--cuda-graphs", request.cuda_graphs,
           "What is launched as CUDA graphs, with --cost kernels: none (default), layers (one for each layer's forward and\n"
           "backward) or iteration (one for all forwards and backwards)",
           "none|layers|iteration", "Times");
  add_text(app, "--hold-sms", request.hold_sms,
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
           "on|off|...", "Times");
}

void add_noise_flags(CLI::App& app, Request& request) {
  app.add_option("--jitter", request.noise.jitter, "Standard deviation of each computation's and route's time, such as 0.03")
      ->type_name("FRACTION")
      ->group("Noise");
  add_text(app, "--stragglers", request.stragglers, "Slow devices: their probability and how much slower, such as 0.01x2", "PxN",
           "Noise");
  app.add_option("--interference", request.noise.interference,
                 "How much longer a computation takes while its device communicates, such as 0.05")
      ->type_name("FRACTION")
      ->group("Noise");
  add_count<0>(app, "--seed", request.noise.seed, "Of jitter and stragglers (default 1)", "N", "Noise");
}

void add_run_flags(CLI::App& app, RunFlags& run) {
  const auto add = [&](const std::string& name, std::string& value, const std::string& text, const std::string& type) {
    add_text(app, name, value, text, type, "Training run");
  };
  add("--train-tokens", run.tokens, "Of a whole run, such as 15T: its days, device-hours, price, energy, and what failures take",
      "TOKENS");
  add("--price", run.price, "Of a device's hour, with a currency's letters or without: 2.5USD", "PRICE");
  add("--power", run.power, "Of a device, such as 700W (default the most that its data sheet says)", "POWER");
  add("--pue", run.pue, "Power of the site over that of its computers (default 1.54)", "FACTOR");
  add("--mtbf", run.mtbf, "Mean time between failures of one device that stop the run, such as 50000h (default Llama 3's)",
      "TIME");
  add("--restart-time", run.restart_time, "From a failure until training goes on, with other nodes (default 10min)", "TIME");
  add("--repair-time", run.repair_time, "Until a failed node is back (default 1d)", "TIME");
  add("--spare-nodes", run.spare_nodes,
      "That wait for others to fail, and are paid for (default as many as needed, from elsewhere)", "N");
  add("--checkpoint", run.checkpoint,
      "Who writes it: async, the hosts while training goes on, after a copy to their memory (default), or sync", "WAY");
  add("--checkpoint-bandwidth", run.checkpoint_bandwidth,
      "What the storage takes of all nodes together (default 1GB/s of each node)", "RATE");
}

void add_option_flag(CLI::App& app, Request& request, const std::string& whose) {
  app.add_option("--option", request.options, "An option of " + whose + " (tawpipe list schedules), or KEY=auto; may be repeated")
      ->type_name("KEY=VALUE")
      ->group("Schedule")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void add_schedule_flags(CLI::App& app, Request& request) {
  add_text(app, "--schedule", request.schedule, "Which schedule (tawpipe list schedules)", "NAME", "Schedule");
  add_text(app, "--schedule-file", request.schedule_file,
           "A schedule from a file: JSON, PyTorch's pipeline CSV, or NAME.0.et of a Chakra trace\n(docs/interchange.md)",
           "FILE|-", "Schedule");
  add_text(app, "--comm-groups", request.comm_groups, "The process groups of a Chakra trace (default NAME.json, where it is)",
           "FILE", "Schedule");
  add_option_flag(app, request, "the schedule");
}

void add_config_flag(CLI::App& app) {
  const std::string text = "Read flags from a file of lines such as sequence = 4096 (TOML; a section [" + app.get_name() +
                           "]\nholds for this command only). The command line wins";
  app.add_option("--config", text)->type_name("FILE")->group("Other");
}

void finish(CLI::App& app, const std::string& example) {
  app.set_help_flag("-h,--help", "Show this help");
  app.get_help_ptr()->group("Other");
  app.footer(example);
  for (CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() == 1 && option->get_multi_option_policy() == CLI::MultiOptionPolicy::Throw) {
      option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    }
  }
}

}  // namespace tawpipe::sim
