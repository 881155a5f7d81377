// Flags of the commands that execute schedules.
#include "execution_flags.hpp"

#include "flags.hpp"

namespace tawpipe::sim {

namespace {

/// The schedule and its ranks.
void add_execution_flags(CLI::App& app, ExecutionRequest& request) {
  add_text(app, "--backend", request.backend,
           "host (default): ranks are threads of this process; mpi: processes that mpirun started;\ncuda: a GPU for each "
           "process of torchrun, srun or mpirun, or by itself for each thread (--gpus)",
           "NAME", "Execution");
  add_count(app, "--gpus", request.gpus,
            "cuda without a launcher: so many GPUs, a rank and thread each (default: one for each rank\nof --cluster, else all); "
            "1: all ranks on one GPU",
            "N", "Execution");
  add_text(app, "--cluster", request.cluster,
           "Ranks of each node: NxM (N nodes of M ranks), 3+2+1, or as simulate takes it\n(default 1x1; mpi: the "
           "hosts of the ranks; cuda: those that NVLink connects)",
           "CLUSTER", "Execution");
  add_inter_node_flag(app, request.inter_node, "Execution");
  add_axis_flags(app, request);
  add_sequence_parallel_flag(app, request);
  add_context_exchange_flag(app, request);
  add_state_flags(app, request);
  add_text(app, "--schedule", request.schedule, "Which schedule (tawpipe list schedules; default tawpipe)", "NAME", "Execution");
  app.add_option("--option", request.options, "An option of the schedule; may be repeated")
      ->type_name("KEY=VALUE")
      ->group("Execution")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_text(app, "--dtype", request.dtype, "Numbers that everything is computed in: f32 (default) or f64; cuda: f32, bf16 or f16",
           "DTYPE", "Execution");
  add_text(app, "--recompute", request.recompute, "Activations computed again in the backward: none (default), selective or full",
           "POLICY", "Execution");
  add_offload_flag(app, request.offload, "Execution");
  add_count(app, "--loss-chunk", request.loss_chunk,
            "Compute the loss of so many entries of the vocabulary at a time, in less memory (default: all)", "ENTRIES",
            "Execution");
  add_count(app, "--task-limit", request.task_seconds, "mpi, cuda: give up a task that takes longer, and name it (default 60)",
            "SECONDS", "Execution");
  add_count(app, "--connect-limit", request.connect_seconds,
            "cuda: give up communicators that take longer to connect, as all do in the first step (default 600);\nmpi: give up "
            "MPI's start (default 120)",
            "SECONDS", "Execution");
  add_count(app, "--max-ctas", request.max_ctas,
            "cuda: GPU processors that a communication takes at most (default: 8 for a message between two\nranks, 16 for a "
            "collective)",
            "N", "Execution");
  app.add_flag("--zero-cta", request.zero_cta,
               "cuda: all-gathers by copy engines, without GPU processors, where NCCL can (NCCL 2.28 and later)")
      ->group("Execution");
  add_text(app, "--pace", request.pace,
           "Hold every computation to a device of so many operations a second, such as 5GFLOPS,\nso that ranks that share "
           "cores do not slow each other down (for measurements)",
           "SPEED", "Execution");
  add_count(app, "--chaos", request.chaos_microseconds,
            "Delay every task at random by up to so many microseconds, to bring out races", "US", "Execution");
  add_count<0>(app, "--chaos-seed", request.chaos_seed, "Seed of those delays (default 0)", "N", "Execution");
}

}  // namespace

void ExecutionCommands::add_to(CLI::App& app) {
  add_train(app);
  add_check_numerics(app);
}

bool ExecutionCommands::parsed() const { return check_numerics_->parsed() || train_->parsed(); }

int ExecutionCommands::run() const { return train_->parsed() ? run_train(training_) : run_check_numerics(numerics_); }

void ExecutionCommands::add_train(CLI::App& app) {
  train_ = add_command(app, "train", "Train a model for real under any schedule");
  CLI::App& train = *train_;
  TrainRequest& request = training_;
  const auto number = [&](const std::string& name, auto& value, const std::string& what, const std::string& group) {
    train.add_option(name, value, what)->type_name("X")->group(group);
  };
  add_text(train, "--model", request.model, "A name such as llama-4x128, a config.json, or a folder of published weights",
           "MODEL", "Problem");
  add_text(train, "--data", request.data, "A text, trained on byte by byte, or 16-bit tokens (.bin of nanoGPT or llm.c)", "FILE",
           "Problem");
  add_text(train, "--data-order", request.data_order, "random (default) or sequential", "ORDER", "Problem");
  add_count(train, "--steps", request.steps, "Steps of the optimizer in all", "N", "Problem");
  add_tokens(train, "--sequence", request.sequence, "Tokens of one sequence", "Problem");
  add_count(train, "--global-batch", request.global_batch, "Sequences of one step, over all ranks", "N", "Problem");
  add_count(train, "--microbatch", request.microbatch, "Sequences of one microbatch (default 1)", "N", "Problem");
  add_count<0>(train, "--seed", request.seed, "Of initial weights and of the data's order (default 0)", "N", "Problem");
  number("--learning-rate", request.learning_rate, "Its peak (default 1e-3)", "Optimizer");
  number("--min-learning-rate", request.min_learning_rate, "At the end of the cosine (default 1e-4)", "Optimizer");
  add_count<0>(train, "--warmup", request.warmup, "Steps in which it rises (default 100)", "N", "Optimizer");
  add_count(train, "--decay-steps", request.decay_steps, "Step at which the cosine ends (default --steps)", "N", "Optimizer");
  number("--weight-decay", request.weight_decay, "Of matrices (default 0.1)", "Optimizer");
  number("--clip", request.clip, "Largest norm of the whole gradient (default 1; 0: any)", "Optimizer");
  add_execution_flags(train, request.execution);
  train.add_flag("--graph", request.execution.graph, "cuda: every step but the first is one launch of a CUDA graph")
      ->group("Execution");
  train
      .add_flag("--try-gemms", request.execution.try_products,
                "cuda: try several algorithms of each matrix product and take the fastest; the last bits may then\n"
                "differ from run to run")
      ->group("Execution");
  add_text(train, "--save", request.save, "Keep checkpoints in this folder, the last two of them", "FOLDER", "Output");
  add_count(train, "--save-every", request.save_every, "Steps from one to the next (default: at the end only)", "N", "Output");
  add_text(train, "--resume", request.resume, "Go on from a checkpoint, or from the last good one of a folder", "FOLDER",
           "Problem");
  add_text(train, "--save-huggingface", request.save_huggingface, "At the end, write the weights as transformers reads them",
           "FOLDER", "Output");
  train.add_flag("--overwrite", request.overwrite, "--save, --save-huggingface: replace what another run has saved there")
      ->group("Output");
  add_count(train, "--log-every", request.log_every, "Steps from one line to the next (default 10)", "N", "Output");
  add_json_flag(train, request.json, "losses, speed and traffic");
  add_report_flag(train, request.report, "losses, times of steps, and the last step's timeline above its prediction");
  add_text(train, "--timeline", request.timeline, "Write when each task of the last step started and ended, as CSV", "FILE|-",
           "Output");
  add_text(train, "--schedule-out", request.schedule_out, "Write the schedule that is run, as JSON (for calibrate, simulate)",
           "FILE|-", "Output");
  add_text(train, "--trace", request.trace, "The same as a trace for chrome://tracing or Perfetto", "FILE|-", "Output");
  add_config_flag(train);
  finish(train,
         "Example:\n"
         "  tawpipe train --model llama-4x128 --data examples/data/new_testament.txt --sequence 128 --global-batch 12 \\\n"
         "    --steps 500 --schedule tawpipe --cluster 2x1 --save run");
}

void ExecutionCommands::add_check_numerics(CLI::App& app) {
  check_numerics_ = add_command(app, "check-numerics", "Train a recorded run for real and compare every number");
  add_text(*check_numerics_, "--reference", numerics_.reference, "A folder with the recorded run (docs/training.md)", "FOLDER",
           "Problem");
  add_execution_flags(*check_numerics_, numerics_.execution);
  add_json_flag(*check_numerics_, numerics_.json, "the differences");
  add_config_flag(*check_numerics_);
  finish(*check_numerics_,
         "Exit code 1 if a tolerance is exceeded.\n\n"
         "Example:\n"
         "  tawpipe check-numerics --reference tests/data/llama_golden/A --schedule tawpipe --cluster 2x3 --dtype f64");
}

}  // namespace tawpipe::sim
