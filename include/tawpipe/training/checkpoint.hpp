// Checkpoints of a training run: weights, moments and state in a folder, for any number of ranks
// under any schedule.
// Not: how folders replace each other (training/checkpoint_folder.hpp), nor weights for other
// programs (huggingface_weights.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/config.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/model/dtype.hpp"
#include "tawpipe/model/parameters.hpp"
#include "tawpipe/model/transformer.hpp"
#include "tawpipe/training/checkpoint_folder.hpp"
#include "tawpipe/training/detail/checkpoint_json.hpp"
#include "tawpipe/training/detail/checksums.hpp"
#include "tawpipe/training/durable_file.hpp"
#include "tawpipe/training/huggingface_config_file.hpp"
#include "tawpipe/training/safetensors.hpp"
#include "tawpipe/training/training_state.hpp"

namespace tawpipe::inline v0::training {

/// The values that a checkpoint keeps for each parameter.
enum class ParameterValue : std::uint8_t { weight, first_moment, second_moment };

/// One part of a checkpoint, within one tensor of the model's order (model/parameters.hpp).
struct CheckpointPart {
  ParameterValue value = ParameterValue::weight;
  ParameterRange range;
};

/// The parts that write_checkpoint() asks for, in its order: other ranks can send theirs
/// accordingly.
/// Complexity: O(tensors + parameters / 2^20).
inline std::vector<CheckpointPart> checkpoint_parts(const Transformer& model) {
  constexpr std::int64_t most = std::int64_t{1} << 20;
  std::vector<CheckpointPart> parts;
  const auto tensors = ParameterOrder{model}.tensors();
  for (const auto value : {ParameterValue::weight, ParameterValue::first_moment, ParameterValue::second_moment}) {
    for (const ParameterTensor& tensor : tensors) {
      for (std::int64_t at = tensor.range.begin; at < tensor.range.end; at += most) {
        parts.push_back({value, {at, std::min(at + most, tensor.range.end)}});
      }
    }
  }
  return parts;
}

namespace detail {

/// The names of RouterRules::bias in checkpoints, one for each layer with experts.
inline std::vector<std::string> bias_names(const Transformer& model) {
  std::vector<std::string> names;
  for (int layer = model.dense_layers; model.is_routed() && layer < model.layers; ++layer) {
    names.push_back(concat("decoders.", layer, ".feed_forward.gate.e_score_correction_bias"));
  }
  return names;
}
/// The same if there are any.
inline std::vector<std::string> bias_names(const Transformer& model, const DecoderConstants& constants) {
  return constants.router.bias.empty() ? std::vector<std::string>{} : bias_names(model);
}

}  // namespace detail

/// Fills the bytes with the numbers of a part, in the dtype of the state: f32 or f64.
using GivePart = std::function<void(const CheckpointPart&, std::span<std::byte>)>;

/// Writes the checkpoint `<run>/step-<N>`, names it in `<run>/latest` and deletes all but the last
/// `keep` of the same run (TrainingState::run). If it fails or is interrupted at any moment, the last
/// good one stays.
///
/// The folder holds model.safetensors (weights by name, and a router's biases of the choice, which are none),
/// optimizer.safetensors (`m/<name>`, `v/<name>`), config.json (the model), state.json, and checksums.json with a sum for each
/// tensor and each value of these. One process calls this; the others can tell from checkpoint_parts() what it requests.
/// @param overwrite  deletes the checkpoints of other runs that are there, too
/// @return the path of the checkpoint
/// @throws InputError  naming file and reason, e.g. a full disk, or if the dtype is neither f32 nor
/// f64; what `give` throws.
inline std::string write_checkpoint(const std::string& run, const Transformer& model, const DecoderConstants& constants,
                                    const TrainingState& state, const GivePart& give, int keep = 2, bool overwrite = false) {
  if (state.dtype != Dtype::f32 && state.dtype != Dtype::f64) {
    throw InputError(concat("a checkpoint of ", name(state.dtype), " is not written; give float32 or float64"));
  }
  Transformer stored = model;
  stored.dtype = state.dtype;
  const std::string config = huggingface_config_text(stored, constants);
  const detail::StateText text = detail::state_text(state, config);

  CheckpointFolder folder{run, state.run, state.step};
  const NumberFormat format = state.dtype == Dtype::f64 ? NumberFormat::f64 : NumberFormat::f32;
  const std::map<std::string, std::string> metadata{{"checkpoint", text.id}};
  std::vector<NewTensor> weights;
  std::vector<NewTensor> moments;
  const auto tensors = ParameterOrder{model}.tensors();
  for (const ParameterTensor& tensor : tensors) weights.push_back({tensor.name, format, tensor.shape});
  const std::vector<std::string> biases = detail::bias_names(model, constants);
  for (const std::string& name : biases) weights.push_back({name, NumberFormat::f64, {model.experts}});
  for (const char* prefix : {"m/", "v/"}) {
    for (const ParameterTensor& tensor : tensors) moments.push_back({prefix + tensor.name, format, tensor.shape});
  }
  SafetensorsWriter model_file{folder.file("model.safetensors"), weights, metadata};
  SafetensorsWriter optimizer_file{folder.file("optimizer.safetensors"), moments, metadata};
  std::vector<detail::Checksum> sums(3 * tensors.size() + biases.size());  // of biases last
  std::vector<std::byte> bytes;
  std::size_t tensor = 0;  // of all three values, as the parts follow each other
  for (const CheckpointPart& part : checkpoint_parts(model)) {
    bytes.resize(static_cast<std::size_t>(part.range.count() * size_bytes(format)));
    give(part, bytes);
    (part.value == ParameterValue::weight ? model_file : optimizer_file).write_bytes(bytes);
    sums[tensor].add(bytes);
    if (part.range.end == tensors[tensor % tensors.size()].range.end) ++tensor;
  }
  for (std::size_t i = 0; i < biases.size(); ++i) {
    const auto bias = std::as_bytes(std::span<const double>{constants.router.bias})
                          .subspan(i * static_cast<std::size_t>(model.experts) * sizeof(double),
                                   static_cast<std::size_t>(model.experts) * sizeof(double));
    model_file.write_bytes(bias);
    sums[3 * tensors.size() + i].add(bias);
  }
  model_file.finish();
  optimizer_file.finish();
  write_durably(folder.file("config.json"), config);
  write_durably(folder.file("state.json"), text.text);
  detail::Checksums checksums;
  const auto keep_sums = [&](const char* name, const std::vector<NewTensor>& written, std::size_t first) {
    detail::FileChecksums kept{{std::string{detail::whole_name}, detail::header_checksum(SafetensorsFile{folder.file(name)})}};
    for (std::size_t i = 0; i < written.size(); ++i) {
      const bool bias = first == 0 && i >= tensors.size();
      kept[written[i].name] = sums[bias ? 2 * tensors.size() + i : first + i].value();
    }
    checksums.set(name, std::move(kept));
  };
  keep_sums("model.safetensors", weights, 0);
  keep_sums("optimizer.safetensors", moments, tensors.size());
  checksums.set("config.json", detail::json_checksums(config, "config.json"));
  checksums.set("state.json", detail::json_checksums(text.text, "state.json"));
  checksums.write(folder.file("checksums.json"));
  folder.commit(keep, overwrite);
  return folder.path();
}

/// A checkpoint open for reading. Any number of ranks may read what they own, at the same time.
class Checkpoint {
 public:
  /// @param path  a checkpoint, or a run's folder for the one that its file `latest` names
  /// (open_checkpoint() takes another one if that, or `latest` itself, is damaged)
  /// @throws InputError  if there is none; a file is missing, cut off or broken; files come from
  /// different checkpoints; or the tensors are not those of the model in its config.json. verify()
  /// checks the tensors' numbers.
  explicit Checkpoint(const std::string& path)
      : path_{find_checkpoint(path)},
        state_{detail::read_state(path_ + "/state.json")},
        config_{read_decoder_config(path_ + "/config.json")},
        tensors_{ParameterOrder{config_.model}.tensors()},
        model_{path_ + "/model.safetensors"},
        optimizer_{path_ + "/optimizer.safetensors"} {
    for (const SafetensorsFile* file : {&model_, &optimizer_}) {
      const auto id = file->metadata().find("checkpoint");
      if (id == file->metadata().end() || id->second != state_.id) {
        throw InputError(concat("file ", quote(file->path()), " belongs to another checkpoint than ",
                                quote(path_ + "/state.json"), "; the folder's files were mixed up"));
      }
    }
    const NumberFormat format = state_.state.dtype == Dtype::f64 ? NumberFormat::f64 : NumberFormat::f32;
    for (const ParameterTensor& tensor : tensors_) {
      check(model_, tensor.name, tensor, format);
      check(optimizer_, "m/" + tensor.name, tensor, format);
      check(optimizer_, "v/" + tensor.name, tensor, format);
    }
    for (const std::string& name : detail::bias_names(config_.model)) {
      if (!config_.constants.router.sigmoid || !model_.contains(name)) break;  // without: all are 0
      model_.tensor(name, {config_.model.experts});
      const std::vector<double> bias = model_.read<double>(name);
      config_.constants.router.bias.insert(config_.constants.router.bias.end(), bias.begin(), bias.end());
    }
    check_count(model_, tensors_.size() + detail::bias_names(config_.model, config_.constants).size());
    check_count(optimizer_, 2 * tensors_.size());
  }

  /// Reads all of it and compares it with the stored checksums. Complexity: O(bytes).
  /// @throws InputError  naming the file, and the tensor or value in it, that differs.
  void verify() const {
    const detail::Checksums sums{path_ + "/checksums.json"};
    sums.check_json(path_, "state.json");
    sums.check_json(path_, "config.json");
    sums.check_tensors(model_, "model.safetensors");
    sums.check_tensors(optimizer_, "optimizer.safetensors");
  }

  const std::string& path() const { return path_; }
  /// Of what state.json and config.json say: copies of a checkpoint have the same id.
  const std::string& id() const { return state_.id; }
  const TrainingState& state() const { return state_.state; }
  const Transformer& model() const { return config_.model; }
  const DecoderConstants& constants() const { return config_.constants; }

  /// @throws InputError  if the checkpoint is of a model with different sizes, naming the first
  /// that differs, or constants.
  void expect(const Transformer& wanted, const DecoderConstants& constants) const {
    const Transformer& found = config_.model;
    const auto compare = [&](std::string_view what, std::int64_t there, std::int64_t here) {
      if (there == here) return;
      throw InputError(concat("checkpoint ", quote(path_), " has ", what, " ", there, ", the model has ", here,
                              "; give the model it was written with"));
    };
    compare("layers", found.layers, wanted.layers);
    compare("hidden size", found.hidden, wanted.hidden);
    compare("heads", found.heads, wanted.heads);
    compare("key-value heads", found.kv_heads, wanted.kv_heads);
    compare("head size", found.head_size(), wanted.head_size());
    compare("intermediate size", found.intermediate, wanted.intermediate);
    compare("experts", found.experts, wanted.experts);
    compare("experts a token", found.experts_per_token, wanted.experts_per_token);
    compare("shared width", found.shared_width, wanted.shared_width);
    compare("first layers without experts", found.dense_layers, wanted.dense_layers);
    compare("the width of these", found.dense_width, wanted.dense_width);
    compare("groups of experts", found.expert_groups, wanted.expert_groups);
    compare("groups a token", found.groups_per_token, wanted.groups_per_token);
    compare("q_lora_rank", found.query_rank, wanted.query_rank);
    compare("kv_lora_rank", found.key_value_rank, wanted.key_value_rank);
    compare("qk_rope_head_dim", found.rope_width, wanted.rope_width);
    compare("v_head_dim", found.value_size, wanted.value_size);
    compare("vocabulary", found.vocab, wanted.vocab);
    compare("tied embedding", found.tied ? 1 : 0, wanted.tied ? 1 : 0);
    compare("window", found.window, wanted.window);
    compare("biases of query, key and value", found.qkv_bias ? 1 : 0, wanted.qkv_bias ? 1 : 0);
    compare("bias of the output", found.output_bias ? 1 : 0, wanted.output_bias ? 1 : 0);
    compare("biases of the MLP", found.mlp_bias ? 1 : 0, wanted.mlp_bias ? 1 : 0);
    compare("norms of query and key", static_cast<int>(found.qk_norm), static_cast<int>(wanted.qk_norm));
    DecoderConstants computed = constants;
    computed.positions = config_.constants.positions;                                        // compute nothing
    if (computed.router.bias.empty()) computed.router.bias = config_.constants.router.bias;  // a config.json has none
    if (computed == config_.constants) return;
    throw InputError(concat("checkpoint ", quote(path_),
                            " has other constants (rope_theta, rms_norm_eps, rope_scaling, the router's) than the ",
                            "model; give the model it was written with"));
  }

  /// Any range of the model's parameters, possibly over several tensors, converted to `Number`.
  /// @pre the range is within the model, and `numbers` has its size
  /// @throws InputError  if a file can no longer be read.
  template <class Number>
  void read(ParameterValue value, ParameterRange range, std::span<Number> numbers) const {
    TAWPIPE_ASSERT(
        range.begin >= 0 && range.end <= tensors_.back().range.end && static_cast<std::int64_t>(numbers.size()) == range.count(),
        "the range lies outside the model, or the numbers have another size");
    auto tensor = std::upper_bound(tensors_.begin(), tensors_.end(), range.begin,
                                   [](std::int64_t at, const ParameterTensor& t) { return at < t.range.end; });
    for (std::int64_t at = range.begin; at < range.end; ++tensor) {
      const std::int64_t count = std::min(range.end, tensor->range.end) - at;
      const auto part = numbers.subspan(static_cast<std::size_t>(at - range.begin), static_cast<std::size_t>(count));
      const SafetensorsFile& file = value == ParameterValue::weight ? model_ : optimizer_;
      const char* prefix = value == ParameterValue::weight ? "" : value == ParameterValue::first_moment ? "m/" : "v/";
      file.read<Number>(prefix + tensor->name, at - tensor->range.begin, part);
      at += count;
    }
  }

 private:
  static void check(const SafetensorsFile& file, const std::string& name, const ParameterTensor& tensor, NumberFormat format) {
    const TensorEntry& entry = file.tensor(name, tensor.shape);
    if (entry.format == format) return;
    throw InputError(concat("tensor ", quote(name), " in ", quote(file.path()), " is ", training::name(entry.format),
                            ", state.json says ", training::name(format)));
  }
  static void check_count(const SafetensorsFile& file, std::size_t count) {
    if (file.tensors().size() == count) return;
    throw InputError(concat("file ", quote(file.path()), " has ", file.tensors().size(), " tensors, the model has ", count));
  }

  std::string path_;
  detail::ReadState state_;
  HuggingFaceConfig config_;
  std::vector<ParameterTensor> tensors_;
  SafetensorsFile model_;
  SafetensorsFile optimizer_;
};

/// A verified checkpoint, and the errors of `latest` and of newer ones.
struct OpenedCheckpoint {
  Checkpoint checkpoint;
  std::vector<std::string> passed_over;  ///< a sentence each, the newest first
};

/// Opens and verifies the checkpoint at a path: itself if it is one, otherwise the newest intact
/// one of a run's folder.
/// @throws InputError  if there is none, or naming its error; for a run's folder, the newest one's.
inline OpenedCheckpoint open_checkpoint(const std::string& path) {
  const CheckpointCandidates candidates = checkpoint_candidates(path);
  std::vector<std::string> passed_over;
  if (!candidates.damage.empty()) passed_over.push_back(candidates.damage);
  for (const std::string& candidate : candidates.paths) {
    try {
      Checkpoint checkpoint{candidate};
      checkpoint.verify();
      return {std::move(checkpoint), std::move(passed_over)};
    } catch (const InputError& error) {
      passed_over.emplace_back(error.what());
    }
  }
  throw InputError(passed_over.front());
}

}  // namespace tawpipe::training
