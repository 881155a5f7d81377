// Jobs from YAML: which program's a file is, by its keys, and the reader of each.
// Not: their keys (megatron_yaml.hpp, nanotron.hpp, trainer.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/core/parse_name.hpp"
#include "tawpipe/frameworks/frameworks.hpp"
#include "tawpipe/frameworks/megatron_yaml.hpp"
#include "tawpipe/frameworks/nanotron.hpp"
#include "tawpipe/frameworks/trainer.hpp"
#include "tawpipe/frameworks/yaml_settings.hpp"

namespace tawpipe::inline v0 {

/// A program whose YAML is read.
enum class YamlKind : std::uint8_t {
  megatron,  ///< MODEL_ARGS of Megatron-LM's functional tests, and of its MoE model zoo
  primus,
  nemo,
  nemo_2,
  bridge,
  accelerate_megatron,
  nanotron,
  llama_factory,
  axolotl,
  accelerate,
  transformers  ///< arguments of the Hugging Face Trainer
};
inline constexpr int yaml_kinds = 11;

/// The program's name: "LLaMA-Factory".
constexpr std::string_view title(YamlKind kind) {
  constexpr std::string_view titles[yaml_kinds] = {
      "Megatron-LM", "Primus",        "NeMo",    "NeMo",       "Megatron-Bridge",     "Accelerate",
      "nanotron",    "LLaMA-Factory", "axolotl", "Accelerate", "Hugging Face Trainer"};
  return titles[static_cast<int>(kind)];
}
/// Its name in files: "llama-factory".
constexpr std::string_view name(YamlKind kind) {
  constexpr std::string_view names[yaml_kinds] = {"megatron",        "primus",     "nemo",        "nemo",
                                                  "megatron-bridge", "accelerate", "nanotron",    "llama-factory",
                                                  "axolotl",         "accelerate", "transformers"};
  return names[static_cast<int>(kind)];
}

/// What a YAML says.
struct YamlJob {
  YamlKind kind = YamlKind::megatron;
  /// whose switches and schedules the job has: the program's own, or those that are nearest
  Framework framework = Framework::megatron;
  FrameworkJob job = {};
};

/// The job that a YAML describes, on that many devices. DeepSpeed's configuration is read from the file
/// that it names: as from the folder of `given.path`, or from there by its name alone, or as from here.
/// @throws InputError  naming setting, line and what would be right; for a YAML of no known kind all kinds
TAWPIPE_INLINE YamlJob yaml_job(std::string_view text, std::string_view source, int devices, const GivenJob& given = {});

/// The model whose sizes a YAML says. @throws InputError  where it does not
TAWPIPE_INLINE Transformer yaml_model(std::string_view text, std::string_view source);

/// The job's settings in the program's terms, as far as it has them; for Megatron-LM's kinds its flags.
/// @pre the job has a model
inline std::vector<WrittenSetting> settings_of(YamlKind kind, const FrameworkJob& job, Framework framework) {
  switch (kind) {
    case YamlKind::nanotron:
      return written_settings(nanotron_table(), nanotron_settings(job));
    case YamlKind::llama_factory:
    case YamlKind::axolotl:
    case YamlKind::transformers:
    case YamlKind::accelerate: {
      const TrainerKind trainer = kind == YamlKind::llama_factory  ? TrainerKind::llama_factory
                                  : kind == YamlKind::axolotl      ? TrainerKind::axolotl
                                  : kind == YamlKind::transformers ? TrainerKind::transformers
                                                                   : TrainerKind::accelerate;
      return trainer_written(trainer, {job, framework == Framework::deepspeed});
    }
    default:
      return settings_of(Framework::megatron, job);
  }
}

/// Whether the program can be told to run the job: its settings read back as the same one.
/// @pre the job has a model, and cannot_run(framework, job) is empty
TAWPIPE_INLINE bool says(YamlKind kind, Framework framework, const FrameworkJob& job, int devices);

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "tawpipe/core/text_file.hpp"
#include "tawpipe/model/huggingface_config.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// Recognizes and reads one file.
class YamlJobReader {
  /// Flags that change nothing of a model, which may be left to a variable.
  static constexpr std::string_view of_layout =
      "--tensor-model-parallel-size --pipeline-model-parallel-size --context-parallel-size --expert-model-parallel-size "
      "--expert-tensor-parallel-size --num-virtual-stages-per-pipeline-rank --num-layers-per-virtual-pipeline-stage "
      "--micro-batch-size --global-batch-size --seq-length --max-position-embeddings --sequence-parallel "
      "--decoder-first-pipeline-num-layers --decoder-last-pipeline-num-layers";

 public:
  YamlJobReader(std::string_view text, std::string_view source, int devices, const GivenJob& given)
      : text_{yaml_settings(text, source, given.script.environment)}, devices_{devices}, given_{given} {
    text_.strict = given.strict;
    constexpr std::string_view container = "ConfigContainer.";  // of Megatron-Bridge's performance scripts
    for (Setting& setting : text_.settings) {
      if (setting.name.starts_with(container)) setting.name.erase(0, container.size());
    }
  }

  Transformer model() {
    const YamlKind of = kind();
    if (of == YamlKind::nanotron) {
      std::erase_if(text_.settings, [](const Setting& one) { return !one.unknown.empty() && !one.name.starts_with("model."); });
      return nanotron_model(read_settings(nanotron_table(), std::move(text_)));
    }
    const YamlArguments arguments = of == YamlKind::megatron ? megatron_test_kind()
                                    : of == YamlKind::primus ? primus_kind(overrides().section)
                                    : of == YamlKind::nemo   ? nemo_kind()
                                    : of == YamlKind::nemo_2 ? nemo_2_kind()
                                                             : bridge_kind();
    FrameworkJob job;
    if (of < YamlKind::accelerate_megatron) {
      SettingsText flags = megatron_yaml(arguments, text_).flags;
      std::erase_if(flags.settings,
                    [](const Setting& one) { return !one.unknown.empty() && detail::among(one.name, of_layout); });
      const ReadSettings<MegatronFlags> read = read_megatron(std::move(flags), given_);
      read_megatron_model(read, job);
      if (job.model) job.model->edges_count_as_layers = read.values.embedding_counts && read.values.loss_counts;
    }
    if (!job.model) throw SettingError(one_line(concat(text_.source, " does not say the sizes of a model")));
    return *std::move(job.model);
  }

  YamlJob read() {
    YamlJob found{.kind = kind()};
    switch (found.kind) {
      case YamlKind::megatron:
        found.job = by_arguments(megatron_test_kind());
        break;
      case YamlKind::primus:
        found.job = by_arguments(primus());
        break;
      case YamlKind::nemo:
        found.job = by_arguments(nemo_kind());
        break;
      case YamlKind::nemo_2:
        found.job = by_arguments(nemo_2_kind());
        break;
      case YamlKind::bridge:
        found.job = by_arguments(bridge_kind());
        break;
      case YamlKind::accelerate_megatron:
        found.job = accelerate_megatron();
        break;
      case YamlKind::nanotron:
        found.job = nanotron_job(std::move(text_), devices_, given_);
        break;
      case YamlKind::llama_factory:
        found = trained(found.kind, TrainerKind::llama_factory);
        break;
      case YamlKind::axolotl:
        found = trained(found.kind, TrainerKind::axolotl);
        break;
      case YamlKind::accelerate:
        found = trained(found.kind, TrainerKind::accelerate);
        break;
      case YamlKind::transformers:
        found = trained(found.kind, TrainerKind::transformers);
        break;
    }
    return found;
  }

 private:
  const Setting* find(std::string_view name) const {
    for (const Setting& setting : text_.settings) {
      if (setting.name == name) return &setting;
    }
    return nullptr;
  }
  bool has(std::string_view name) const { return find(name) != nullptr; }
  bool has_any(std::string_view before) const {
    return std::any_of(text_.settings.begin(), text_.settings.end(),
                       [&](const Setting& one) { return one.name.starts_with(before); });
  }
  YamlKind kind() const {
    if (has_any("MODEL_ARGS.") || has_any("ARGS.")) return YamlKind::megatron;
    if (has_any("modules.")) return YamlKind::primus;
    if (has_any("parallelism.") && has_any("model.model_config.")) return YamlKind::nanotron;
    if (const Setting* distribution = find("distributed_type"))
      return distribution->values == std::vector<std::string>{"MEGATRON_LM"} ? YamlKind::accelerate_megatron
                                                                             : YamlKind::accelerate;
    if (has("base_model")) return YamlKind::axolotl;
    if (has("model_name_or_path")) return YamlKind::llama_factory;
    if (has("per_device_train_batch_size")) return YamlKind::transformers;
    if (has_any("trainer.strategy.")) return YamlKind::nemo_2;
    if (has_any("trainer.") && has_any("model.")) return YamlKind::nemo;
    if (has_any("model.") && (has_any("train.") || has_any("ddp.") || has_any("_target_"))) return YamlKind::bridge;
    throw SettingError(one_line(concat(
        text_.source,
        ": a YAML of no kind that is read. Read are those with MODEL_ARGS (Megatron-LM), modules (Primus), parallelism and "
        "model.model_config (nanotron), model_name_or_path (LLaMA-Factory), per_device_train_batch_size (the Trainer), "
        "base_model (axolotl), "
        "distributed_type (Accelerate), trainer and model (NeMo), model and train (Megatron-Bridge)")));
  }

  /// The text with which --model names the model of that name or path; "": it is not known.
  std::string known(const std::string& named) const {
    if (named.empty()) return {};
    std::error_code ignored;
    for (const std::filesystem::path& folder :
         {std::filesystem::path{given_.path}.parent_path() / named, std::filesystem::path{named}}) {
      if (!given_.path.empty() && std::filesystem::exists(folder / "config.json", ignored)) return folder.string();
    }
    const std::string last = named.substr(std::min(named.find_last_of('/') + 1, named.size()));
    if (find_published_model(last)) return last;
    // "llama3.1_70B": families before a number have a hyphen.
    std::string spaced;
    for (const char c : last) {
      const bool digit = c >= '0' && c <= '9';
      const bool letters = !spaced.empty() && spaced.find_first_of("0123456789-") == std::string::npos;
      if (digit && letters) spaced += '-';
      spaced += c == '_' ? '-' : c;
    }
    return find_published_model(spaced) ? spaced : std::string{};
  }
  void name_model(FrameworkJob& job, const std::string& named, std::string_view otherwise) const {
    if (job.model || given_.model) return;
    job.model_name = known(named);
    job.model_lacks = named.empty() ? std::string{otherwise}
                                    : one_line(concat("the sizes of ", named.substr(0, 60), ", which is no known model"));
  }

  FrameworkJob by_arguments(const YamlArguments& kind) {
    MegatronYaml yaml = megatron_yaml(kind, text_);
    if (yaml.model.ends_with(".yaml")) yaml.model.resize(yaml.model.size() - std::string_view{".yaml"}.size());
    GivenJob given = given_;
    const std::string name = known(yaml.model);
    given.model = given.model || !name.empty();
    FrameworkJob job = megatron_job(std::move(yaml.flags), devices_, given);
    name_model(job, yaml.model, job.model_lacks.empty() ? "the model" : job.model_lacks);
    return job;
  }
  /// The names before the keys of Primus's module of megatron.
  struct Overrides {
    std::string before;
    std::string section;
  };
  const Overrides& overrides() {
    const auto module = std::find_if(text_.settings.begin(), text_.settings.end(), [](const Setting& one) {
      return one.name.starts_with("modules.") && one.name.ends_with(".framework");
    });
    if (module == text_.settings.end()) text_.fail(1, "modules: none says its framework");
    if (module->values != std::vector<std::string>{"megatron"}) {
      text_.fail(module->line, concat(module->name, ": only Primus's modules of megatron are read, not ",
                                      join(module->values, " ").substr(0, 40)));
    }
    overrides_.before = module->name.substr(0, module->name.size() - std::string_view{"framework"}.size());
    overrides_.section = overrides_.before + "overrides.";
    return overrides_;
  }
  /// Primus names a file of a model.
  YamlArguments primus() {
    const auto& [before, section] = overrides();
    YamlArguments kind = primus_kind(section);
    model_key_ = before + "model";
    kind.rules.push_back({model_key_, "", "@model"});
    return kind;
  }
  FrameworkJob accelerate_megatron() {
    MegatronYaml yaml = megatron_yaml(accelerate_megatron_kind(), text_);
    if (given_.microbatch < 1 || given_.global_batch < 1)
      throw SettingError(concat(text_.source, " leaves the batch to the program; give --global-batch and --microbatch"));
    yaml.flags.settings.push_back({"--micro-batch-size", {std::to_string(given_.microbatch)}, 0});
    yaml.flags.settings.push_back({"--global-batch-size", {std::to_string(given_.global_batch)}, 0});
    FrameworkJob job = megatron_job(std::move(yaml.flags), devices_, given_);
    name_model(job, {}, "the model, which is the program's");
    return job;
  }

  /// The settings of DeepSpeed's file, wherever it lies.
  SettingsText zero_of(const Setting& named) const {
    const std::string path = join(named.values, " ");
    const std::filesystem::path folder = std::filesystem::path{given_.path}.parent_path();
    const std::string beside = (folder / std::filesystem::path{path}.filename()).string();
    if (!given_.path.empty()) {
      for (const std::string& one : {(folder / path).string(), beside, path}) {
        if (const auto found = find_text_file(one, "DeepSpeed configuration", 1)) return json_settings(*found, one_line(one));
      }
    }
    text_.fail(named.line, concat(named.name, ": there is no ", one_line(path.substr(0, 100)),
                                  "; put that DeepSpeed configuration at ", one_line(given_.path.empty() ? path : beside)));
  }
  YamlJob trained(YamlKind kind, TrainerKind trainer) {
    SettingsText zero = take_inner_deepspeed(text_);
    check_trainer(trainer, text_);
    const Setting* const named = find(detail::trainer_key(trainer, &TrainerSettings::deepspeed));
    if (named != nullptr && zero.settings.empty()) zero = zero_of(*named);
    TrainerJob found = trainer_job(trainer, std::move(text_), std::move(zero), devices_, given_);
    const std::string model = std::exchange(found.job.model_name, {});
    name_model(found.job, model, found.job.model_lacks);
    return {kind, found.deepspeed ? Framework::deepspeed : Framework::torchtitan, std::move(found.job)};
  }

  SettingsText text_;
  int devices_;
  const GivenJob& given_;
  std::string model_key_ = {};  ///< Primus's
  Overrides overrides_ = {};
};

}  // namespace detail

TAWPIPE_INLINE YamlJob yaml_job(std::string_view text, std::string_view source, int devices, const GivenJob& given) {
  return detail::YamlJobReader{text, source, devices, given}.read();
}

TAWPIPE_INLINE Transformer yaml_model(std::string_view text, std::string_view source) {
  const GivenJob given;
  return detail::YamlJobReader{text, source, 1, given}.model();
}

TAWPIPE_INLINE bool says(YamlKind kind, Framework framework, const FrameworkJob& job, int devices) {
  if (kind < YamlKind::nanotron) return true;  // flags
  const GivenJob given{
      .layers = job.model->layers, .global_batch = job.global_batch, .microbatch = job.microbatch_size, .model = true};
  try {
    YamlJob back = yaml_job(yaml_text(settings_of(kind, job, framework)), "written", devices, given);
    if (back.framework != framework || back.kind != kind) return false;
    back.job.model = job.model;
    if (!cannot_run(framework, back.job).empty()) return false;
    return changed_settings(framework, job, back.job).empty() &&
           back.job.recompute.value_or(Recompute::none) == job.recompute.value_or(Recompute::none);
  } catch (const InputError&) {
    return false;
  }
}

}  // namespace tawpipe
#endif
