// Reads the settings of --today, and fills the flags of the problem that are not given.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tawpipe/answers/plan_frameworks.hpp"
#include "tawpipe/answers/read_text.hpp"
#include "tawpipe/frameworks/trainer_log.hpp"
#include "tawpipe/frameworks/yaml_job.hpp"
#include "tawpipe/model/huggingface_config.hpp"
#include "tawpipe/topology/cluster_file.hpp"

namespace tawpipe::inline v0::answers {

namespace {

/// A model with the formats of another, and its stages cut as there.
Transformer with_numbers_of(Transformer model, const Transformer& other) {
  set_dtype(model, other.dtype);
  model.products = other.products;
  model.narrow_gathers = other.narrow_gathers;
  model.edges_count_as_layers = other.edges_count_as_layers;
  model.loss_in_float32 = other.loss_in_float32;
  if (model.mtp.empty() && !model.has_kinds()) model.mtp = other.mtp;
  return model;
}

/// What sets a model apart from others, in words.
std::string sizes_text(const Transformer& model) {
  std::string text = concat(model.layers, " layers of hidden size ", model.hidden, ", ", model.heads, " heads");
  if (model.is_latent()) {
    text += concat(" of ", model.head_size(), " numbers (", model.rope_width, " turned) and values of ", model.value_size,
                   ", latent attention of rank ", model.key_value_rank);
    if (model.query_rank > 0) text += concat(" (", model.query_rank, " of queries)");
  } else {
    text += concat(" (", model.kv_heads, " of keys and values)");
  }
  text += concat(", intermediate size ", model.intermediate);
  if (model.is_routed()) text += concat(", ", model.experts, " experts, ", model.experts_per_token, " a token");
  if (model.shared_width > 0) text += concat(", a shared one of ", model.shared_width);
  if (model.dense_layers > 0) {
    text += concat(", before them ", model.dense_layers, model.dense_layers == 1 ? " layer" : " layers", " with one MLP of ",
                   model.dense_width);
  }
  return text + concat(", vocabulary ", model.vocab, model.tied ? ", tied" : ", untied");
}

/// The model of the flags and of the file: from one, or the same in both.
void take_model(PlanQuestion& question, const FrameworkJob& job) {
  JobQuestion& base = question.job;
  const auto take = [&](bool said, std::string_view field, std::string_view text) {
    if (said && !base.has(field)) base.set(field, std::string{text}, false);
  };
  if (job.products && !base.has("gemm-format")) {
    take(job.narrow_gathers, "gathered-weights", "gemm");
    take(true, "gemm-format", name(*job.products));
  }
  take(job.model && job.model->gated && !job.model->fused_swiglu, "swiglu", "unfused");
  take(!job.fused_attention, "attention", "unfused");
  take(job.code != LayerCode::megatron && question.emit.empty(), "layer-code", name(job.code));
  if (job.model && job.model->early_stop) take(true, "early-stop", *job.model->early_stop ? "on" : "off");
  take(!base.has_model() && !job.model, "model", job.model_name);
  if (!base.has_model()) {
    if (!job.model)
      throw InputError(concat(one_line(question.today), " ", said_of_model(job), job.model_lacks.starts_with("--") ? ", or" : ";",
                              " give --model"));
    const std::optional<Transformer> known = models::detail::find(job.model->name);
    const bool plain = known && (job.products || job.model->products == ProductFormat::bits16) &&
                       !job.model->edges_count_as_layers && job.model->loss_in_float32;
    base.set("model", plain ? job.model->name : question.today, false);
    base.model_value = known ? with_numbers_of(*known, *job.model) : *job.model;
    return;
  }
  Transformer model = base.model_value ? *base.model_value : resolve_model(base.text("model"));
  if (job.model || job.dtype) set_dtype(model, model.dtype);
  if (!job.model) {
    if (job.dtype) base.model_value = with_dtype(model, *job.dtype);
    return;
  }
  if (!detail::same_sizes(model, *job.model)) {
    throw InputError(one_line(concat("--model ", model.name, " is not the model of ", question.today, ": ",
                                     sizes_text(*job.model), "; leave out --model")));
  }
  base.model_value = with_numbers_of(model, *job.model);
}

/// `--args "a b"` is two arguments, as `--args a b` is.
ScriptInputs script_inputs(const PlanQuestion& question) {
  ScriptInputs inputs;
  for (const std::string& text : question.args) {
    for (const std::string_view word : split(text, ' ')) {
      if (!word.empty()) inputs.arguments.emplace_back(word);
    }
  }
  for (const std::string& text : question.env) {
    const std::size_t equals = text.find('=');
    if (equals == 0 || equals == std::string::npos) {
      throw InputError(concat("--env ", quote(text.substr(0, 60)), " is not a variable and its value; write --env TP=4"));
    }
    inputs.environment.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return inputs;
}

/// Asks for all at once that a file leaves to the program and no flag gives.
/// @throws InputError
void ask_for_the_rest(const PlanQuestion& question, const FrameworkJob& job) {
  const JobQuestion& base = question.job;
  const bool model = job.model || !job.model_name.empty() || base.has_model();
  const bool sequence = job.sequence > 0 || base.has("sequence");
  if (model || sequence || job.model_lacks.empty() || job.model_lacks.starts_with("--")) return;
  throw InputError(
      concat(one_line(question.today), " ", said_of_model(job), ", nor the sequence length; give --model and --sequence"));
}

}  // namespace

TodayFile read_today(PlanQuestion& question) {
  JobQuestion& base = question.job;
  if (!base.has_cluster()) throw InputError("--cluster is missing: --today needs to know the number of devices");
  const Cluster cluster = base.cluster_value ? *base.cluster_value : resolve_cluster(base.text("cluster"), base.text("device"));
  const std::string text = read_text(question.today, "file of settings", 16);
  if (question.tokens > 0) {
    base.set("global-batch", concat(batch_of_tokens(question)));
    question.tokens = 0;
  }
  const GivenJob asked{.layers = base.model_value     ? base.model_value->layers
                                 : !base.has("model") ? 0
                                                      : resolve_model(base.text("model")).layers,
                       .global_batch = base.count("global-batch"),
                       .microbatch = base.count("microbatch"),
                       .sequence = base.count("sequence"),
                       .model = base.has_model(),
                       .vocab = static_cast<int>(std::min<std::int64_t>(question.vocab_size, Transformer::max_vocab)),
                       .script = script_inputs(question),
                       .path = question.today,
                       .node_devices = static_cast<int>(cluster.kinds().front().devices.size()),
                       .strict = question.strict};
  const std::string source = one_line(question.today);
  TodayFile file;
  if (is_yaml(text, question.today)) {
    if (!question.args.empty()) throw InputError(concat(source, " is no script; leave out --args"));
    YamlJob yaml = yaml_job(text, source, cluster.ranks(), asked);
    file = {.framework = yaml.framework, .job = std::move(yaml.job), .kind = yaml.kind};
  } else if (is_trainer_log(text)) {
    if (!(question.args.empty() && question.env.empty()))
      throw InputError(concat(source, " is no script; leave out --args and --env"));
    YamlJob logged = trainer_log_job(text, source, cluster.ranks(), asked);
    file = {.framework = logged.framework, .job = std::move(logged.job), .kind = logged.kind};
  } else {
    file.framework = framework_of(text, question.today);
    const bool script =
        file.framework == Framework::megatron ? !is_megatron_log(text) : is_torchtitan_script(text) && !is_torchtitan_log(text);
    if (!script && !(question.args.empty() && question.env.empty()))
      throw InputError(concat(source, " is no script; leave out --args and --env"));
    file.job = read_job(file.framework, text, source, cluster.ranks(), asked);
    if (is_deepspeed_log(text)) take_trainer_lines(file.job, text, source, asked);
  }
  if (question.vocab_size > 0 && (asked.model || !file.has_megatron_flags()))
    throw InputError("--vocab-size is for a model that Megatron-LM's flags say; leave it out");
  FrameworkJob& job = file.job;
  if (!question.step_time.empty()) {
    job.measured.step_seconds = to_seconds(parse_duration(question.step_time));
    if (job.measured.step_seconds <= 0) throw InputError("--step-time 0 is no step; give the time that one was measured to take");
  }
  const auto agree = [&](std::string_view field, std::int64_t said) {
    if (const std::int64_t given = base.count(field); given > 0 && said > 0 && given != said) {
      throw InputError(
          concat("--", field, " ", given, " is not what ", one_line(question.today), " says, ", said, "; leave out --", field));
    }
    if (!base.has(field) && said > 0) base.set(field, concat(said), false);
  };
  ask_for_the_rest(question, job);
  agree("sequence", job.sequence);
  agree("global-batch", job.global_batch);
  if (base.has("layer-code")) job.code = parse_layer_code(base.text("layer-code"));
  if (base.text("attention") == "fused") job.fused_attention = true;
  take_model(question, job);
  if (!base.is_given("cuda-graphs") && base.text("cost").starts_with("kernels"))
    base.set("cuda-graphs", std::string{name(job.graphs)}, false);
  if (!job.recompute) {
    const std::string given = base.text("recompute");
    const bool any = given.empty() || given == "any" || given == "auto";
    job.recompute = any ? Recompute::none : parse_recompute_text(given).policy;
    if (any)
      job.notes.push_back(
          concat(one_line(question.today), " does not say what is computed again; simulated as nothing (--recompute)"));
  }
  return file;
}

}  // namespace tawpipe::answers
