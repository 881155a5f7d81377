// Resolves the model and data of training. Not: the flags' declaration (execution_flags.cpp).
#include "train_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/model/huggingface_config.hpp"
#include "tawpipe/training/detail/checksums.hpp"

namespace tawpipe::sim {

namespace {

/// Whether a --model is the path of a config.json or of a folder with one, not a name.
bool is_described(const std::string& model) {
  std::error_code ignored;
  return model.find('/') != std::string::npos || model.ends_with(".json") || std::filesystem::exists(model, ignored);
}

bool is_named_llama(const std::string& model) { return !is_described(model) && model.starts_with("llama-"); }

/// The model and constants of a --model.
HuggingFaceConfig described_model(const std::string& model) {
  if (!is_described(model)) return {.model = resolve_model(model)};
  return training::read_decoder_config(model);
}

/// The model to train, and the source of its parameters.
void resolve_model_of(const TrainRequest& request, Run& run) {
  if (!request.resume.empty()) {
    training::OpenedCheckpoint opened = training::open_checkpoint(request.resume);
    for (const std::string& why : opened.passed_over) {
      std::fputs(fmt::format("tawpipe: note: {}\n", why).c_str(), stderr);
    }
    if (!opened.passed_over.empty()) {
      std::fputs(fmt::format("tawpipe: note: goes on from {}, which is whole\n", one_line(opened.checkpoint.path())).c_str(),
                 stderr);
    }
    run.checkpoint.emplace(std::move(opened.checkpoint));
    run.model.model = run.checkpoint->model();
    run.model.constants = run.checkpoint->constants();
    if (!request.model.empty()) {
      HuggingFaceConfig given = described_model(request.model);
      if (is_named_llama(request.model)) given.model.vocab = run.model.model.vocab;  // a checkpoint has that of its data
      run.checkpoint->expect(given.model, given.constants);
    }
    run.state = run.checkpoint->state();
    if (run.state.step >= request.steps) {
      throw InputError(
          concat("--steps ", request.steps, " are done already: the checkpoint is of step ", run.state.step, "; give more"));
    }
    return;
  }
  if (request.model.empty())
    throw InputError("--model is missing; give a name such as llama-4x128, a config.json or a folder of weights");
  const std::filesystem::path path{request.model};
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored) && !std::filesystem::exists(path / "state.json", ignored)) {
    run.weights.emplace(request.model);
    run.model.model = run.weights->model();
    run.model.constants = run.weights->constants();
    return;
  }
  const HuggingFaceConfig given = described_model(request.model);
  run.model.model = given.model;
  run.model.constants = given.constants;
  // A named model has the vocabulary of its own tokenizer; trained from scratch, it uses that of
  // the data.
  if (is_named_llama(request.model)) run.model.model.vocab = std::min(run.model.model.vocab, run.file->max_tokens());
}

}  // namespace

Run resolve_run(const TrainRequest& request) {
  if (request.data.empty()) throw InputError("--data is missing; give a text, or a .bin file of 16-bit tokens");
  if (request.steps < 1) throw InputError("--steps is missing; give how many steps to train");
  if (request.sequence < 1) throw InputError("--sequence is missing; give the tokens of one sequence, such as 128");
  if (request.global_batch < 1) throw InputError("--global-batch is missing; give the sequences of one step");
  if (request.overwrite && request.save.empty() && request.save_huggingface.empty()) {
    throw InputError("--overwrite is of --save and --save-huggingface; give one of them");
  }
  if (!(request.clip >= 0 && std::isfinite(request.clip))) {
    throw InputError(concat("--clip ", request.clip, " is impossible; it must be a number of at least 0 (0: any norm)"));
  }
  Run run;
  run.file = std::make_shared<const training::TokenFile>(request.data);
  resolve_model_of(request, run);
  for (const std::string& note : run.model.model.notes) {
    if (note.starts_with("torch_dtype: ") || note.starts_with("dtype: ")) continue;  // the format is --dtype's
    std::fputs(fmt::format("tawpipe: note: {}\n", one_line(note)).c_str(), stderr);
  }
  run.model.batch =
      executed_batch(request.execution,
                     {.sequence = request.sequence, .microbatch_size = request.microbatch, .global_batch = request.global_batch});
  if (run.model.batch.microbatches() > std::numeric_limits<std::int32_t>::max()) {
    throw InputError(concat("--global-batch ", request.global_batch, " makes ", run.model.batch.microbatches(),
                            " microbatches a step; give a smaller one, or a larger --microbatch"));
  }
  run.model.optimizer.weight_decay = request.weight_decay;
  run.model.optimizer.check();
  if (!request.save_huggingface.empty())
    training::huggingface_tensors(run.model.model, run.model.constants);  // whether they have names
  run.file->check_vocabulary(run.model.model.vocab);
  run.learning_rate = {.peak = request.learning_rate,
                       .minimum = std::min(request.min_learning_rate, request.learning_rate),
                       .warmup_steps = request.warmup,
                       .decay_steps = std::max(request.decay_steps > 0 ? request.decay_steps : request.steps, request.warmup)};
  run.learning_rate.check();
  const training::DataPosition data{.source = request.data,
                                    .order = training::parse_data_order(request.data_order),
                                    .seed = request.seed,
                                    .microbatches = static_cast<std::int32_t>(run.model.batch.microbatches()),
                                    .microbatch_size = static_cast<std::int32_t>(run.model.batch.microbatch_size),
                                    .sequence = static_cast<std::int32_t>(request.sequence)};
  if (run.checkpoint && !(run.state.data == data)) {
    std::fputs("tawpipe: note: the checkpoint was trained with other data, batch or seed; the run goes on with those given now\n",
               stderr);
  }
  run.state.data = data;
  run.state.dtype = execution_dtype(request.execution) == Dtype::f64 ? Dtype::f64 : Dtype::f32;
  run.state.optimizer = run.model.optimizer;
  run.state.learning_rate = run.learning_rate;
  return run;
}

RunIdentity identity_of(const TrainRequest& request, const Run& run) {
  const auto number = [](auto value) { return fmt::format("{}", value); };
  RunIdentity identity{
      {"--steps", number(request.steps)},
      {"--sequence", number(request.sequence)},
      {"--global-batch", number(request.global_batch)},
      {"--microbatch", number(request.microbatch)},
      {"--seed", number(request.seed)},
      {"--data-order", request.data_order},
      {"--learning-rate", number(request.learning_rate)},
      {"--min-learning-rate", number(request.min_learning_rate)},
      {"--warmup", number(request.warmup)},
      {"--decay-steps", number(request.decay_steps)},
      {"--weight-decay", number(request.weight_decay)},
      {"--clip", number(request.clip)},
      {"--save", request.save.empty() ? "off" : "on"},
      {"--save-every", number(request.save_every)},
      {"--overwrite", request.overwrite ? "on" : "off"},
      {"--save-huggingface", request.save_huggingface.empty() ? "off" : "on"},
      {"--resume", run.checkpoint ? concat("step ", run.state.step, ", checkpoint ", run.checkpoint->id()) : "off"},
      {"--data", fingerprint(run.file->file())}};
  const Transformer& model = run.model.model;
  std::string sizes =
      fmt::format("{} layers, hidden {}, {} heads, {} of keys, MLP {}, vocabulary {}, {} parameters", model.layers, model.hidden,
                  model.heads, model.kv_heads, model.intermediate, model.vocab, model.parameters());
  if (model.is_routed()) {
    sizes += fmt::format(", {} of {} experts, shared {}", model.experts_per_token, model.experts, model.shared_width);
  }
  Transformer unnamed = model;  // folders may have different names
  unnamed.name.clear();
  const std::string config = training::huggingface_config_text(unnamed, run.model.constants);  // all that is not a size too
  training::detail::Checksum of_config;
  of_config.add(std::as_bytes(std::span{config}));
  sizes += fmt::format(", config {:08x}", of_config.value());
  if (run.weights) {  // of numbers that are read by position a thousand
    std::vector<float> numbers(1000);
    training::detail::Checksum sum;
    for (std::int64_t i = 0; i < 16; ++i) {
      const std::int64_t begin = std::max<std::int64_t>(model.parameters() - 1000, 0) / 15 * i;
      const ParameterRange range{begin, std::min(begin + 1000, model.parameters())};
      run.weights->read(range, std::span<float>{numbers}.first(static_cast<std::size_t>(range.count())));
      sum.add(std::as_bytes(std::span{numbers}));
    }
    sizes += fmt::format(", weights {:08x}", sum.value());
  }
  identity.emplace_back("--model", std::move(sizes));
  return identity;
}

}  // namespace tawpipe::sim
