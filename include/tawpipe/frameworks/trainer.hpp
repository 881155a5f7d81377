// Conversion between the files of LLaMA-Factory, axolotl and Accelerate and a plan: data parallelism by
// DeepSpeed, FSDP or DDP, around a model by its name.
// Not: their keys (detail/trainer_tables.hpp), DeepSpeed's configuration (deepspeed.hpp), YAML.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tawpipe/frameworks/deepspeed.hpp"
#include "tawpipe/frameworks/detail/trainer_tables.hpp"
#include "tawpipe/frameworks/framework_job.hpp"

namespace tawpipe::inline v0 {

enum class TrainerKind : std::uint8_t { llama_factory, axolotl, accelerate, transformers };

inline const SettingsTable<TrainerSettings>& trainer_table(TrainerKind kind) {
  return kind == TrainerKind::llama_factory  ? detail::llama_factory_table()
         : kind == TrainerKind::axolotl      ? detail::axolotl_table()
         : kind == TrainerKind::transformers ? detail::transformers_table()
                                             : detail::accelerate_table();
}

/// How a file distributes a job.
struct TrainerJob {
  FrameworkJob job;
  bool deepspeed = false;  ///< by ZeRO; otherwise by PyTorch's FSDP or DDP
};

namespace detail {

/// The key of a member in that kind's files; "" if it has none.
template <class Member>
std::string_view trainer_key(TrainerKind kind, Member member) {
  for (const SettingField<TrainerSettings>& field : trainer_table(kind).fields) {
    const Member* const found = std::get_if<Member>(&field.member);
    if (found != nullptr && *found == member) return field.name;
  }
  return {};
}

/// @throws SettingError  unless all parameters of one model are trained
inline void check_what_is_trained(TrainerKind kind, const ReadSettings<TrainerSettings>& read) {
  using S = TrainerSettings;
  const S& s = read.values;
  const std::string method = kind == TrainerKind::llama_factory && s.method.empty() ? "lora" : s.method;
  const std::string_view key = trainer_key(kind, &S::method);
  if (method == "freeze") read.fail(key, "only training of all parameters is modelled, not freeze");
  if (!method.empty() && method != "full")
    read.fail(key, concat(s.method.empty() ? "lora where it is not said; " : "", out_of_scope("lora")));
  if (!s.purpose.empty() && !among(s.purpose, "pt sft"))
    read.fail(trainer_key(kind, &S::purpose), concat(s.purpose, ": ", only_sft));
}

class TrainerReader {
 public:
  using S = TrainerSettings;
  /// @param zero  of the file that the settings name, or of their mapping `deepspeed`
  TrainerReader(TrainerKind kind, SettingsText text, SettingsText zero, int devices, const GivenJob& given)
      : kind_{kind},
        read_{read_settings(trainer_table(kind), std::move(text))},
        zero_{std::move(zero)},
        devices_{devices},
        given_{given} {}

  TrainerJob read() {
    check_what_is_trained(kind_, read_);
    take_defaults();
    const bool by_zero = !zero_.settings.empty() || s_.zero_stage >= 0 || s_.distribution == "DEEPSPEED";
    TrainerJob found{.job = by_zero ? zero_job() : torch_job(), .deepspeed = by_zero};
    FrameworkJob& job = found.job;
    job.sequence = s_.sequence;
    const bool said = kind_ == TrainerKind::transformers
                          ? read_.has(key(&S::checkpointing))
                          : kind_ != TrainerKind::accelerate || read_.has(key(&S::fsdp_checkpointing));
    if (said) job.recompute = recomputes() ? Recompute::full : Recompute::none;
    job.model_name = s_.model;
    job.model_lacks = "the model, which is the program's";
    note_the_rest();
    job.notes.insert(job.notes.begin(), read_.notes.begin(), read_.notes.end());
    return found;
  }

 private:
  template <class Member>
  std::string_view key(Member member) const {
    return trainer_key(kind_, member);
  }
  /// Source: the programs' own defaults, and those of transformers.TrainingArguments.
  void take_defaults() {
    const bool factory = kind_ == TrainerKind::llama_factory;
    for (const auto& [name, value] : {std::pair{key(&S::sequence), s_.sequence},
                                      {key(&S::microbatch), s_.microbatch},
                                      {key(&S::accumulation), s_.accumulation},
                                      {key(&S::batch), s_.batch}}) {
      check_size(read_, name, value, max_sequences / 1000);
    }
    if (kind_ == TrainerKind::accelerate) {
      s_.microbatch = given_.microbatch;
      return;
    }
    const bool plain = kind_ == TrainerKind::transformers;
    if (s_.sequence == 0 && !plain) s_.sequence = factory ? 2048 : 512;
    if (s_.microbatch == 0) s_.microbatch = factory || plain ? 8 : 1;
    if (s_.accumulation == 0) s_.accumulation = std::max<std::int64_t>(1, s_.batch / s_.microbatch);
    if (!factory && !plain && s_.bf16.empty() && s_.fp16 != "true") s_.bf16 = "auto";
  }
  Dtype dtype() const {
    if (among(s_.bf16, "true auto full") || among(s_.precision, "bf16 fp8")) return Dtype::bf16;
    return s_.fp16 == "true" || s_.precision == "fp16" ? Dtype::f16 : Dtype::f32;
  }
  bool recomputes() const {
    const bool on = kind_ == TrainerKind::llama_factory ? !s_.no_checkpointing
                                                        : !among(s_.checkpointing, "false") && !s_.checkpointing.empty();
    return on || s_.fsdp_checkpointing;
  }

  /// What the Trainer fills into DeepSpeed's configuration.
  /// Source: huggingface/transformers, integrations/deepspeed.py, trainer_config_process.
  void fill(const char* name, std::int64_t value, std::string_view mine) {
    if (value == 0) return;
    for (Setting& setting : zero_.settings) {
      if (setting.name != name) continue;
      if (setting.values != std::vector<std::string>{"auto"}) {
        const std::string said = join(setting.values, " ");
        if (said != std::to_string(value)) {
          read_.fail(mine, concat(value, " is not what ", zero_.source, ", line ", setting.line, ", says: ", name, " ",
                                  said.substr(0, 60)));
        }
        return;
      }
      setting.values = {std::to_string(value)};
      return;
    }
    zero_.settings.push_back({name, {std::to_string(value)}, 0});
  }
  void fill_word(const char* name, const std::string& value) {
    for (Setting& setting : zero_.settings) {
      if (setting.name == name && setting.values == std::vector<std::string>{"auto"}) setting.values = {value};
    }
  }
  FrameworkJob zero_job() {
    if (zero_.settings.empty()) {  // Accelerate's own words
      const std::string stage = std::to_string(s_.zero_stage >= 0 ? s_.zero_stage : 2);
      zero_ = {
          .source = read_.text.source,
          .settings = {{"zero_optimization.stage", {stage}, line_of(key(&S::zero_stage))},
                       {"zero_optimization.offload_optimizer.device", {s_.optimizer_device}, line_of(key(&S::optimizer_device))},
                       {"zero_optimization.offload_param.device", {s_.parameter_device}, line_of(key(&S::parameter_device))},
                       {"train_micro_batch_size_per_gpu", {"auto"}, 0},
                       {"train_batch_size", {"auto"}, 0},
                       {"bf16.enabled", {"auto"}, 0},
                       {"fp16.enabled", {"auto"}, 0}}};
    }
    fill("train_micro_batch_size_per_gpu", s_.microbatch, key(&S::microbatch));
    fill("gradient_accumulation_steps", s_.accumulation, key(&S::accumulation));
    fill_word("bf16.enabled", dtype() == Dtype::bf16 ? "true" : "false");
    fill_word("fp16.enabled", dtype() == Dtype::f16 ? "true" : "false");
    if (s_.microbatch > 0 && s_.accumulation > 0) {  // the batch follows
      std::erase_if(zero_.settings, [](const Setting& one) {
        return one.name == "train_batch_size" && one.values == std::vector<std::string>{"auto"};
      });
    }
    return deepspeed_job(std::move(zero_), devices_, given_);
  }
  int line_of(std::string_view name) const {
    const Setting* const at = read_.find(name);
    return at == nullptr ? 0 : at->line;
  }

  bool by_fsdp() const {
    return s_.distribution == "FSDP" || !s_.fsdp_words.empty() ||
           std::any_of(read_.text.settings.begin(), read_.text.settings.end(),
                       [](const Setting& one) { return one.name.starts_with("fsdp_config.") && !one.values.empty(); });
  }
  /// "full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2".
  std::string strategy() const {
    std::string word = s_.sharding;
    for (const std::string_view one : split(s_.fsdp_words, ' ')) {
      if (word.empty() && one.find("shard") != std::string_view::npos) word = one;
    }
    if (word.empty() && s_.reshard.find("SHARD") != std::string::npos) word = s_.reshard;  // of Accelerate since 1.3
    for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    constexpr std::string_view numbered[] = {"full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2"};
    if (word.size() == 1 && word[0] >= '1' && word[0] <= '5') word = numbered[word[0] - '1'];
    if (word.empty()) word = "full_shard";
    const std::vector<std::string> known{std::begin(numbered), std::end(numbered)};
    if (std::find(known.begin(), known.end(), word) == known.end())
      read_.fail(key(&S::sharding), unknown_name("strategy", word, known));
    return word;
  }
  FrameworkJob torch_job() {
    FrameworkJob job;
    for (const auto& [name, value] :
         {std::pair{key(&S::tensor), s_.tensor}, {key(&S::context), s_.context}, {key(&S::replicate), s_.replicate}}) {
      if (value < 1 || value > devices_) read_.fail(name, concat(value, " is not a number of devices from 1 to ", devices_));
    }
    if (s_.processes > 0 && s_.processes != devices_)
      read_.fail(key(&S::processes), concat(s_.processes, " processes, and the cluster has ", devices_, " devices"));
    const int left = left_to_data(read_, key(&S::tensor), product_of({s_.tensor, s_.context, s_.replicate}, devices_), devices_,
                                  concat("tensor ", s_.tensor, " x context ", s_.context, " x replicas ", s_.replicate));
    const bool fsdp = by_fsdp();
    const std::string word = fsdp ? strategy() : "no_shard";
    int replicas = s_.replicate;
    if (word.starts_with("hybrid") && replicas == 1 && given_.node_devices > 0 && left % given_.node_devices == 0)
      replicas = left / given_.node_devices;
    if (s_.shard > 1 && s_.shard != left) {
      read_.fail(key(&S::shard),
                 concat(s_.shard, " is not what the others leave of the cluster's ", devices_, " devices, ", left));
    }
    job.code = among(s_.compile, "true INDUCTOR inductor") ? LayerCode::torchtitan : LayerCode::torchtitan_eager;
    job.dtype = dtype();
    job.mesh = {.tensor = s_.tensor, .context = s_.context, .data = left * s_.replicate};
    job.sequence_parallel = false;
    job.context_exchange =
        among(s_.context_kind, "batch_ring batch_zigzag alltoall") ? ContextExchange::ring : ContextExchange::all_gather;
    const bool kept = s_.reshard == "false" || word == "shard_grad_op" || word == "hybrid_shard_zero2";
    detail::run_by_ddp(job);
    if (word == "no_shard") {
      job.sharding = StateSharding::none;
    } else if (s_.context > 1) {
      if (replicas > 1) read_.fail(key(&S::context), "replicas of states sharded over context-parallel devices are not modelled");
      job.sharding = StateSharding::parameters;
      job.reshard = kept ? Reshard::step : Reshard::microbatch;
    } else {
      detail::run_by_fsdp(job, replicas, kept);
    }
    job.mesh = job.mesh.over(devices_);
    // FSDP sums gradients in the format of products, DDP in that of its float32 parameters.
    // Source: huggingface/accelerate, utils/dataclasses.py, FullyShardedDataParallelPlugin.set_mixed_precision.
    job.gradient_bytes = job.dtype == Dtype::f32 || word == "no_shard" ? 4 : 2;
    if (s_.offload || among("offload", s_.fsdp_words)) {
      job.offload.optimizer = true;
      job.offload.weights = job.choice.schedule == "fsdp";
      read_.note(s_.offload ? key(&S::offload) : key(&S::fsdp_words),
                 job.offload.weights ? "simulated with gradients, and the update, on the devices"
                                     : "simulated with weights and gradients on the devices");
    }
    job.microbatch_size = s_.microbatch;
    job.global_batch = s_.microbatch * s_.accumulation * job.batch_parts();
    if (given_.global_batch > 0 && kind_ == TrainerKind::accelerate) job.global_batch = given_.global_batch;
    if (job.microbatch_size < 1 || job.global_batch < 1)
      throw SettingError(
          one_line(concat(read_.text.source, " leaves the batch to the program; give --global-batch and --microbatch")));
    check_batch(read_, key(&S::microbatch), job);
    return job;
  }
  void note_the_rest() {
    if (s_.optimizer.find("8bit") != std::string::npos)
      read_.note(key(&S::optimizer), "simulated with states in float32, of which it keeps most in 8 bits");
    else if (!s_.optimizer.empty() && s_.optimizer.find("adam") == std::string::npos)
      read_.note(key(&S::optimizer), "simulated as AdamW");
    if (among(s_.checkpointing, "offload offload_disk unsloth"))
      read_.note(key(&S::checkpointing), "simulated with the inputs of layers kept on the devices");
    const bool full = s_.packing || s_.padding || s_.purpose == "pt" || key(&S::packing).empty();
    if (!full)
      read_.notes.push_back(concat(read_.text.source, ": samples are not packed (", key(&S::packing),
                                   "): simulated as if all had ", s_.sequence, " tokens; shorter ones take less"));
  }

  TrainerKind kind_;
  ReadSettings<TrainerSettings> read_;
  TrainerSettings& s_ = read_.values;
  SettingsText zero_;
  int devices_;
  const GivenJob& given_;
};

}  // namespace detail

/// The settings inside the mapping `deepspeed` of the text, which they leave.
inline SettingsText take_inner_deepspeed(SettingsText& text) {
  constexpr std::string_view before = "deepspeed.";
  SettingsText inner{.source = text.source, .settings = {}};
  for (Setting& setting : text.settings) {
    if (!setting.name.starts_with(before)) continue;
    inner.settings.push_back(setting);
    inner.settings.back().name.erase(0, before.size());
  }
  std::erase_if(text.settings, [&](const Setting& setting) { return setting.name.starts_with(before); });
  return inner;
}

/// Refuses what is not modelled, before files are looked for. @throws SettingError
inline void check_trainer(TrainerKind kind, const SettingsText& text) {
  detail::check_what_is_trained(kind, read_settings(trainer_table(kind), text));
}

/// The job that such a file describes, on that many devices.
/// @param zero  DeepSpeed's settings, if the file has or names any
/// @throws InputError  naming setting, line and what would be right
inline TrainerJob trainer_job(TrainerKind kind, SettingsText text, SettingsText zero, int devices, const GivenJob& given = {}) {
  text.strict = given.strict;
  return detail::TrainerReader{kind, std::move(text), std::move(zero), devices, given}.read();
}

/// The settings with which the program runs the job, as far as it can. @pre deepspeed: deepspeed_cannot() is empty
inline std::vector<WrittenSetting> trainer_written(TrainerKind kind, const TrainerJob& trainer) {
  using S = TrainerSettings;
  const FrameworkJob& job = trainer.job;
  std::vector<WrittenSetting> written;
  const auto put = [&](std::string_view name, std::string value, bool is_text = false) {
    if (!name.empty()) written.push_back({name, std::move(value), is_text});
  };
  const auto key = [&](auto member) { return detail::trainer_key(kind, member); };
  const auto word = [](bool on) { return std::string{on ? "true" : "false"}; };
  const Dtype dtype = job_dtype(job);
  put(key(&S::model), job.model_name.empty() && job.model ? job.model->name : job.model_name, true);
  if (kind == TrainerKind::llama_factory) put(key(&S::method), "full", true);
  put(key(&S::sequence), std::to_string(job.sequence));
  if (kind != TrainerKind::accelerate) {
    put(key(&S::microbatch), std::to_string(job.microbatch_size));
    put(key(&S::accumulation), std::to_string(job.microbatches()));
    put(key(&S::bf16), word(dtype == Dtype::bf16));
    put(key(&S::fp16), word(dtype == Dtype::f16));
    const bool again = job.recompute == Recompute::full;
    if (kind == TrainerKind::llama_factory) put(key(&S::no_checkpointing), word(!again));
    if (kind != TrainerKind::llama_factory) put(key(&S::checkpointing), word(again));
  } else {
    put(key(&S::precision), dtype == Dtype::bf16 ? "bf16" : dtype == Dtype::f16 ? "fp16" : "no", true);
  }
  const bool fsdp = job.choice.schedule == "fsdp" || (!trainer.deepspeed && job.sharding == StateSharding::parameters);
  if (kind == TrainerKind::accelerate)
    put(key(&S::distribution), trainer.deepspeed ? "DEEPSPEED" : fsdp ? "FSDP" : "MULTI_GPU", true);
  if (trainer.deepspeed && kind == TrainerKind::accelerate) {
    const DeepspeedSettings zero = deepspeed_settings(job);
    put(key(&S::zero_stage), std::to_string(zero.stage));
    put(key(&S::optimizer_device), zero.optimizer_device, true);
    put(key(&S::parameter_device), zero.parameter_device, true);
  } else if (trainer.deepspeed) {
    static constexpr std::pair<std::string_view, std::string_view> inner[] = {
        {"zero_optimization.stage", "deepspeed.zero_optimization.stage"},
        {"zero_optimization.overlap_comm", "deepspeed.zero_optimization.overlap_comm"},
        {"zero_optimization.offload_optimizer.device", "deepspeed.zero_optimization.offload_optimizer.device"},
        {"zero_optimization.offload_param.device", "deepspeed.zero_optimization.offload_param.device"},
        {"bf16.enabled", "deepspeed.bf16.enabled"},
        {"bf16.bf16_master_weights_and_grads", "deepspeed.bf16.bf16_master_weights_and_grads"},
        {"bf16.bf16_optimizer_states", "deepspeed.bf16.bf16_optimizer_states"},
        {"fp16.enabled", "deepspeed.fp16.enabled"},
        {"fp16.fp16_master_weights_and_grads", "deepspeed.fp16.fp16_master_weights_and_grads"},
        {"data_types.grad_accum_dtype", "deepspeed.data_types.grad_accum_dtype"},
        {"tensor_parallel.autotp_size", "deepspeed.tensor_parallel.autotp_size"},
        {"tensor_parallel.tp_overlap_comm", "deepspeed.tensor_parallel.tp_overlap_comm"}};
    for (const auto& [name, mine] : inner) {
      for (const WrittenSetting& setting : deepspeed_written(job)) {
        if (setting.name == name) put(mine, setting.value, setting.is_text);
      }
    }
  } else if (fsdp) {
    const bool kept = detail::option_of(job.choice, "reshard", job.reshard == Reshard::step ? "off" : "on") == "off";
    if (kind == TrainerKind::llama_factory || kind == TrainerKind::transformers) put(key(&S::fsdp_words), "full_shard", true);
    put(key(&S::reshard), word(!kept));
    if (kind == TrainerKind::accelerate) put(key(&S::fsdp_checkpointing), word(job.recompute == Recompute::full));
    if (job.offload.optimizer) put(key(&S::offload), "true");
  }
  if (!trainer.deepspeed && kind != TrainerKind::llama_factory) {
    put(key(&S::tensor), std::to_string(job.mesh.tensor));
    put(key(&S::context), std::to_string(job.mesh.context));
    if (job.context_exchange == ContextExchange::ring)
      put(key(&S::context_kind), kind == TrainerKind::axolotl ? "batch_ring" : "alltoall", true);
    if (fsdp && job.choice.schedule == "fsdp") put(key(&S::replicate), std::to_string(job.mesh.data));
  }
  return written;
}

}  // namespace tawpipe
