// Weights under the names and in the layout that Hugging Face's `transformers` uses for LLaMA:
// writing, and reading any range.
// Not: checkpoints to resume from (training/checkpoint.hpp), nor config.json by itself
// (training/huggingface_config_file.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "tawpipe/core/config.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/model/parameters.hpp"
#include "tawpipe/model/transformer.hpp"
#include "tawpipe/training/durable_file.hpp"
#include "tawpipe/training/huggingface_config_file.hpp"
#include "tawpipe/training/safetensors.hpp"
#include "tawpipe/training/training_state.hpp"

namespace tawpipe::inline v0::training {

/// One of our tensors, and how Hugging Face stores it.
struct HuggingFaceTensor {
  ParameterTensor ours;
  std::string name;
  /// Number of rows of a head, for query and key, whose order differs; 0 for all others. See
  /// rotated_row().
  std::int64_t head_rows = 0;

  /// Numbers of a row: 1 of biases and norms.
  std::int64_t width() const { return ours.shape.size() > 1 ? ours.shape.back() : 1; }
};

/// Our row that is row `row` of theirs, in one head of `head_rows` rows.
///
/// Rotary embedding rotates pairs of a head's coordinates by one angle each. Ours are adjacent (0,
/// 1), (2, 3), .. as in Meta's LLaMA; theirs are half a head apart, (0, h/2), (1, h/2 + 1), .. So
/// their rows 0 .. h/2 - 1 are our even ones, the others our odd ones. Source: transformers,
/// models/llama/convert_llama_weights_to_hf.py, `permute`.
constexpr std::int64_t rotated_row(std::int64_t row, std::int64_t head_rows) {
  const std::int64_t half = head_rows / 2;
  return row < half ? 2 * row : 2 * (row - half) + 1;
}
/// The reverse: the index of our row `row` in theirs.
constexpr std::int64_t unrotated_row(std::int64_t row, std::int64_t head_rows) {
  return row % 2 == 0 ? row / 2 : head_rows / 2 + row / 2;
}

/// All tensors of a model in our order, with their names in huggingface_type(model).
/// @throws InputError  if the head size is odd, if no type has such a decoder, or if there is a shared
/// expert: what is published scales its result by a gate of its own.
inline std::vector<HuggingFaceTensor> huggingface_tensors(const Transformer& model, const DecoderConstants& constants) {
  const std::string_view type = huggingface_type(model, constants);
  if (!model.is_latent() && model.head_size() % 2 != 0) {
    throw InputError(
        concat("model ", quote(model.name), " has heads of ", model.head_size(), "; rotary embedding needs an even head size"));
  }
  if (type == "qwen2_moe") {
    throw InputError(concat("model ", quote(model.name), " has a shared expert of width ", model.shared_width,
                            ", which transformers computes in no model as it is computed here"));
  }
  static constexpr std::pair<std::string_view, std::string_view> of_layer[] = {
      {"attention.wq", "self_attn.q_proj"},  {"attention.wk", "self_attn.k_proj"},     {"attention.wv", "self_attn.v_proj"},
      {"attention.wo", "self_attn.o_proj"},  {"attention.q_norm", "self_attn.q_norm"}, {"attention.k_norm", "self_attn.k_norm"},
      {"attention_norm", "input_layernorm"}, {"ffn_norm", "post_attention_layernorm"},
  };
  static constexpr std::pair<std::string_view, std::string_view> of_latent[] = {
      {"attention.wq", "self_attn.q_proj"},
      {"attention.wq_a", "self_attn.q_a_proj"},
      {"attention.q_norm", "self_attn.q_a_layernorm"},
      {"attention.wq_b", "self_attn.q_b_proj"},
      {"attention.wkv_a", "self_attn.kv_a_proj_with_mqa"},
      {"attention.kv_norm", "self_attn.kv_a_layernorm"},
      {"attention.wkv_b", "self_attn.kv_b_proj"},
      {"attention.wo", "self_attn.o_proj"},
  };
  static constexpr std::pair<std::string_view, std::string_view> of_mlp[] = {
      {"w1", "gate_proj"}, {"w2", "down_proj"}, {"w3", "up_proj"}};
  const auto renamed = [](const auto& names, std::string_view part) {
    const auto* found = std::find_if(std::begin(names), std::end(names), [&](const auto& p) { return p.first == part; });
    TAWPIPE_ASSERT(found != std::end(names), "a tensor without a Hugging Face name");
    return found->second;
  };
  const bool mixtral = type == "mixtral";
  std::vector<HuggingFaceTensor> tensors;
  for (ParameterTensor& ours : ParameterOrder{model}.tensors()) {
    HuggingFaceTensor tensor{.ours = std::move(ours), .name = {}};
    const std::string_view name = tensor.ours.name;
    if (name == "embedding.weight") {
      tensor.name = "model.embed_tokens.weight";
    } else if (name == "norm.weight") {
      tensor.name = "model.norm.weight";
    } else if (name == "output.weight") {
      tensor.name = "lm_head.weight";
    } else {  // decoders.<layer>.<part>.weight or .bias
      const std::size_t dot = name.find('.', std::string_view{"decoders."}.size());
      const std::size_t kind = name.rfind('.');
      const std::string_view layer = name.substr(9, dot - 9);
      const std::string_view part = name.substr(dot + 1, kind - dot - 1);
      constexpr std::string_view mlp = "feed_forward.";
      std::string theirs;
      if (model.is_latent() && part.starts_with("attention.")) {
        theirs = renamed(of_latent, part);  // its turned pairs are adjacent there too
      } else if (!part.starts_with(mlp)) {
        theirs = renamed(of_layer, part);
        const bool turned = part.starts_with("attention.") && part != "attention.wv" && part != "attention.wo";
        if (turned) tensor.head_rows = model.head_size();
      } else if (mixtral) {  // gate, experts.<e>.w1, w2, w3
        theirs = concat("block_sparse_moe.", part.substr(mlp.size()));
      } else if (part == "feed_forward.gate") {
        theirs = "mlp.gate";
      } else {  // w1, or experts.<e>.w1
        const std::size_t last = part.rfind('.') + 1;
        theirs = concat("mlp.", part.substr(mlp.size(), last - mlp.size()), renamed(of_mlp, part.substr(last)));
      }
      tensor.name = concat("model.layers.", layer, ".", theirs, name.substr(kind));
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

/// The names of the biases by which sigmoid scores are chosen, one for each layer with experts: no
/// parameters, but stored with them.
inline std::vector<std::string> huggingface_biases(const Transformer& model, const DecoderConstants& constants) {
  std::vector<std::string> names;
  for (int layer = model.dense_layers; constants.router.sigmoid && layer < model.layers; ++layer) {
    names.push_back(concat("model.layers.", layer, ".mlp.gate.e_score_correction_bias"));
  }
  return names;
}

/// Fills numbers with a range of the model's parameters.
using GiveNumbers = std::function<void(ParameterRange, std::span<double>)>;

/// Writes model.safetensors and config.json into a folder, which is created if missing.
/// @param format  F64, F32, F16 or BF16
/// @throws InputError  as SafetensorsWriter, huggingface_tensors() and `give`, or for any other
/// format.
inline void write_huggingface(const std::string& folder, const Transformer& model, const DecoderConstants& constants,
                              NumberFormat format, const GiveNumbers& give) {
  Transformer stored = model;
  if (format != NumberFormat::f64 && format != NumberFormat::f32 && format != NumberFormat::f16 && format != NumberFormat::bf16) {
    throw InputError(concat("weights cannot be written as ", name(format), "; give F64, F32, F16 or BF16"));
  }
  stored.dtype = format == NumberFormat::f64   ? Dtype::f64
                 : format == NumberFormat::f32 ? Dtype::f32
                 : format == NumberFormat::f16 ? Dtype::f16
                                               : Dtype::bf16;
  const auto tensors = huggingface_tensors(model, constants);
  const std::vector<std::string> biases = huggingface_biases(model, constants);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw InputError(concat("cannot make folder ", quote(folder), ": ", error.message()));

  std::vector<NewTensor> files_tensors;
  for (const HuggingFaceTensor& tensor : tensors) files_tensors.push_back({tensor.name, format, tensor.ours.shape});
  for (const std::string& bias : biases) files_tensors.push_back({bias, format, {model.experts}});
  // `transformers` refuses files that do not name their framework.
  SafetensorsWriter file{folder + "/model.safetensors", std::move(files_tensors), {{"format", "pt"}}};
  constexpr std::int64_t most = std::int64_t{1} << 20;
  std::vector<double> numbers;
  std::vector<double> rotated;
  for (const HuggingFaceTensor& tensor : tensors) {
    const std::int64_t width = tensor.width();
    const std::int64_t piece = tensor.head_rows > 0 ? tensor.head_rows * width : most;  // one head, or as much as fits
    for (std::int64_t at = tensor.ours.range.begin; at < tensor.ours.range.end; at += piece) {
      const std::int64_t end = std::min(at + piece, tensor.ours.range.end);
      numbers.resize(static_cast<std::size_t>(end - at));
      give({at, end}, numbers);
      if (tensor.head_rows > 0) {
        rotated.resize(numbers.size());
        for (std::int64_t row = 0; row < tensor.head_rows; ++row) {
          std::copy_n(numbers.begin() + rotated_row(row, tensor.head_rows) * width, width, rotated.begin() + row * width);
        }
        numbers.swap(rotated);
      }
      file.write<double>(numbers);
    }
  }
  for (std::size_t layer = 0; layer < biases.size(); ++layer) {
    numbers.assign(static_cast<std::size_t>(model.experts), 0.0);
    if (!constants.router.bias.empty()) {
      std::copy_n(constants.router.bias.begin() + static_cast<std::ptrdiff_t>(layer) * model.experts, model.experts,
                  numbers.begin());
    }
    file.write<double>(numbers);
  }
  file.finish();
  write_durably(folder + "/config.json", huggingface_config_text(stored, constants));
}

/// Published weights of a decoder, in one file or in several with an index; any number of ranks may
/// read at once.
class HuggingFaceWeights {
 public:
  /// @param folder  with config.json, and model.safetensors or model.safetensors.index.json
  /// @throws InputError  if one is missing or broken, a key is not computed, a tensor of the model is
  /// missing or has a different shape, there are tensors that the model lacks, or experts are weighted
  /// in another way.
  explicit HuggingFaceWeights(const std::string& folder)
      : folder_{folder}, config_{read_decoder_config(folder + "/config.json")} {
    tensors_ = huggingface_tensors(config_.model, config_.constants);
    std::map<std::string, std::size_t> file_of = open_files();
    for (const std::string& name : huggingface_biases(config_.model, config_.constants)) {
      const auto found = file_of.find(name);
      if (found == file_of.end()) fail(concat("lack the tensor ", quote(name)));
      const SafetensorsFile& file = files_[found->second];
      file.tensor(name, {config_.model.experts});
      const std::vector<double> bias = file.read<double>(name);
      config_.constants.router.bias.insert(config_.constants.router.bias.end(), bias.begin(), bias.end());
      file_of.erase(found);
    }
    for (const HuggingFaceTensor& tensor : tensors_) {
      const auto found = file_of.find(tensor.name);
      if (found == file_of.end()) fail(concat("lack the tensor ", quote(tensor.name)));
      file_index_.push_back(found->second);
      files_[found->second].tensor(tensor.name, tensor.ours.shape);
      file_of.erase(found);
    }
    for (const auto& [name, file] : file_of) {
      const bool derived = name.ends_with("rotary_emb.inv_freq");  // older files store what rope_theta defines
      if (derived || (config_.model.tied && name == "lm_head.weight")) continue;
      fail(concat("have a tensor that is not computed: ", quote(name)));
    }
  }

  const Transformer& model() const { return config_.model; }
  const DecoderConstants& constants() const { return config_.constants; }

  /// Any range of our numbering (model/parameters.hpp), converted to `Number`.
  /// @pre the range is within the model, and `numbers` has its size
  /// @throws InputError  if a file can no longer be read, or holds 8-bit floats.
  template <class Number>
  void read(ParameterRange range, std::span<Number> numbers) const {
    TAWPIPE_ASSERT(range.begin >= 0 && range.end <= tensors_.back().ours.range.end &&
                       static_cast<std::int64_t>(numbers.size()) == range.count(),
                   "the range lies outside the model, or the numbers have another size");
    auto tensor = std::upper_bound(tensors_.begin(), tensors_.end(), range.begin,
                                   [](std::int64_t at, const HuggingFaceTensor& t) { return at < t.ours.range.end; });
    for (std::int64_t at = range.begin; at < range.end; ++tensor) {
      const std::int64_t begin = tensor->ours.range.begin;
      const std::int64_t end = std::min(range.end, tensor->ours.range.end);
      const SafetensorsFile& file = files_[file_index_[static_cast<std::size_t>(tensor - tensors_.begin())]];
      const std::int64_t width = tensor->width();
      while (at < end) {  // at once, or row by row if rows are reordered
        const std::int64_t row = (at - begin) / width;
        const std::int64_t next = tensor->head_rows > 0 ? std::min(end, begin + (row + 1) * width) : end;
        const std::int64_t theirs =
            tensor->head_rows == 0
                ? at - begin
                : (row - row % tensor->head_rows + unrotated_row(row % tensor->head_rows, tensor->head_rows)) * width +
                      (at - begin) % width;
        file.read<Number>(tensor->name, theirs,
                          numbers.subspan(static_cast<std::size_t>(at - range.begin), static_cast<std::size_t>(next - at)));
        at = next;
      }
    }
  }

 private:
  [[noreturn]] void fail(std::string_view why) const { throw InputError(concat("the weights in ", quote(folder_), " ", why)); }

  /// @return the file of each tensor
  std::map<std::string, std::size_t> open_files() {
    std::map<std::string, std::size_t> file_of;
    const std::string path = folder_ + "/model.safetensors.index.json";
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) {
      files_.emplace_back(folder_ + "/model.safetensors");
      for (const TensorEntry& entry : files_.front().tensors()) file_of[entry.name] = 0;
      return file_of;
    }
    const JsonDocument index = read_json_file(path, "file", SafetensorsFile::max_header_bytes >> 20);
    std::map<std::string, std::size_t> opened;
    for (const auto& [tensor, file] : index.root().at("weight_map").members()) {
      const std::string& name = file.text();
      if (name.empty() || name.find('/') != std::string::npos) file.expected("the name of a file in the same folder");
      const auto [at, fresh] = opened.emplace(name, files_.size());
      if (fresh) files_.emplace_back(folder_ + "/" + name);
      if (!files_[at->second].contains(tensor)) {
        file.fail(concat("the file ", quote(name), " has no such tensor"));
      }
      file_of[tensor] = at->second;
    }
    return file_of;
  }

  std::string folder_;
  HuggingFaceConfig config_;
  std::vector<HuggingFaceTensor> tensors_;
  std::vector<SafetensorsFile> files_;
  std::vector<std::size_t> file_index_;  ///< for each of `tensors_`
};

}  // namespace tawpipe::training
