// A Transformer from the config.json that published models come with, or from any text that means a model.
// Not: weights or tokenizers. The only header of the room that needs nlohmann/json.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>

#include <nlohmann/json.hpp>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/model/dtype.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// Foreign text fit for a one-line message or a model's name: at most 60 bytes, anything but printable ASCII as '?'.
inline std::string abbreviated(std::string_view text) {
  std::string out{text.substr(0, 60)};
  for (char& c : out) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text.size() > 60 ? out + "..." : out;
}

/// One config.json: typed access to its keys, with errors that name file and key.
class ConfigFile {
 public:
  /// @param source  what messages call the text: its path
  ConfigFile(std::string_view text, std::string_view source) : source_{one_line(std::string{source})} {
    try {
      json_ = nlohmann::json::parse(text);
    } catch (const nlohmann::json::parse_error& error) {
      const std::string_view read = text.substr(0, error.byte == 0 ? 0 : error.byte - 1);
      const auto line = 1 + std::count(read.begin(), read.end(), '\n');
      const auto column = read.size() - (read.rfind('\n') == std::string_view::npos ? 0 : read.rfind('\n') + 1) + 1;
      fail(concat("is not JSON: line ", line, ", column ", column));
    } catch (const nlohmann::json::exception&) {  // a number beyond double is no parse_error
      fail("holds a number that is out of range");
    }
    if (!json_.is_object()) fail("holds no JSON object; a config.json starts with '{'");
  }

  [[noreturn]] void fail(std::string_view why) const { throw InputError(concat("config ", quote(source_), " ", why)); }

  /// The value of `key`, or nullptr if the key is missing or null.
  const nlohmann::json* find(std::string_view key) const {
    const auto entry = json_.find(key);
    return entry == json_.end() || entry->is_null() ? nullptr : &*entry;
  }

  int integer(std::string_view key) const {
    const auto* value = find(key);
    if (value == nullptr) fail(concat("lacks ", quote(key), ", a whole number"));
    if (!value->is_number_integer()) wrong_type(key, "a whole number", *value);
    const bool fits = value->is_number_unsigned() ? value->get<std::uint64_t>() <= std::numeric_limits<int>::max()
                                                  : value->get<std::int64_t>() >= std::numeric_limits<int>::min();
    if (!fits) fail(concat("has a ", quote(key), " far too large; it must be below 2^31"));
    return value->get<int>();
  }
  bool boolean(std::string_view key, bool otherwise) const {
    const auto* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) wrong_type(key, "true or false", *value);
    return value->get<bool>();
  }
  std::string text(std::string_view key, std::string_view otherwise) const {
    const auto* value = find(key);
    if (value == nullptr) return std::string{otherwise};
    if (!value->is_string()) wrong_type(key, "a string", *value);
    return abbreviated(value->get_ref<const std::string&>());
  }

 private:
  [[noreturn]] void wrong_type(std::string_view key, std::string_view wanted, const nlohmann::json& value) const {
    const std::string_view found = value.is_number_float() ? "floating-point number" : std::string_view{value.type_name()};
    fail(concat("has a wrong ", quote(key), ": it must be ", wanted, " (found: ", found, ")"));
  }

  std::string source_;
  nlohmann::json json_;
};

/// Refuses what `Transformer` does not describe.
inline void check_modelled(const ConfigFile& config) {
  for (const std::string_view key : {"num_local_experts", "num_experts", "n_routed_experts", "moe_intermediate_size"}) {
    const auto* value = config.find(key);
    if (value != nullptr && *value != 0 && *value != 1) {
      config.fail(concat("describes a mixture of experts (", quote(key), "), which is not modelled; give a dense decoder"));
    }
  }
  const std::string type = config.text("model_type", "llama");
  if (type != "llama" && type != "mistral" && type != "qwen2") {
    config.fail(concat("has the model_type ", quote(type), ", which is not modelled; known: llama, mistral, qwen2"));
  }
}

}  // namespace detail

/// The model that the text of a config.json describes.
///
/// Read: hidden_size, num_hidden_layers, num_attention_heads, intermediate_size, vocab_size; num_key_value_heads (default: as
/// many as heads), head_dim (default: hidden_size / heads), tie_word_embeddings (default: false), torch_dtype or dtype
/// (default: bfloat16). model_type must be llama, mistral or qwen2 where given. Left out of account: biases (a Qwen2 has
/// some, less than 0.01 % of its parameters), a sliding window (attention counts as full), quantization.
/// @param source  what messages call the text, e.g. its path
/// @param name    what the model is called
/// @throws InputError  if the text is not JSON (naming line and column), a key is missing or of a wrong type, the model is a
/// mixture of experts or of another type, or Transformer::check refuses its sizes.
inline Transformer parse_huggingface_config(std::string_view text, std::string_view source, std::string_view name) {
  const detail::ConfigFile config{text, source};
  detail::check_modelled(config);
  Transformer model{.name = detail::abbreviated(name),
                    .layers = config.integer("num_hidden_layers"),
                    .hidden = config.integer("hidden_size"),
                    .heads = config.integer("num_attention_heads"),
                    .intermediate = config.integer("intermediate_size"),
                    .vocab = config.integer("vocab_size"),
                    .tied = config.boolean("tie_word_embeddings", false)};
  model.kv_heads = config.find("num_key_value_heads") != nullptr ? config.integer("num_key_value_heads") : model.heads;
  if (config.find("head_dim") != nullptr) model.head_dim = config.integer("head_dim");
  const std::string dtype = config.text("torch_dtype", config.text("dtype", "bfloat16"));  // newer files call it dtype
  try {
    model.dtype = parse_dtype(dtype);
    model.check();
  } catch (const InputError& error) {
    config.fail(concat("cannot be used: ", error.what()));
  }
  return model;
}

/// Reads a config.json, or the one inside a folder. The model takes the folder's name.
/// @throws InputError  if there is no such file, it is larger than 1 MB, or as parse_huggingface_config().
inline Transformer read_huggingface_config(const std::string& path) {
  std::error_code ignored;
  std::filesystem::path file{path};
  if (std::filesystem::is_directory(file, ignored)) file /= "config.json";
  std::ifstream in{file, std::ios::binary};
  if (!in || std::filesystem::is_directory(file, ignored)) {
    throw InputError(concat("cannot read ", quote(one_line(file.string())), "; give a config.json, or a folder with one"));
  }
  constexpr std::size_t most = 1'000'000;  // published ones have a few kB
  std::string text(most + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (text.size() > most) {
    throw InputError(concat("config ", quote(one_line(file.string())), " is larger than 1 MB; give a config.json"));
  }
  const auto parent = std::filesystem::absolute(file, ignored).lexically_normal().parent_path().filename();
  const auto name = file.filename() == "config.json" ? parent : file.stem();
  return parse_huggingface_config(text, file.string(), name.string());
}

/// The model that a user means: a preset, any llama-LxH, or the path of a config.json or of a folder with one (in that order).
/// @throws InputError  as models::named() and read_huggingface_config().
inline Transformer resolve_model(std::string_view text) {
  if (auto model = models::detail::find(text)) return *std::move(model);
  const std::string path{text};
  std::error_code ignored;
  const bool means_path = text.find('/') != std::string_view::npos || text.ends_with(".json");
  if (means_path || (!text.empty() && std::filesystem::exists(path, ignored))) return read_huggingface_config(path);
  throw InputError(models::detail::unknown_model(detail::abbreviated(text),
                                                 "any llama-LxH such as llama-24x512, or the path of a config.json"));
}

}  // namespace tawpipe
