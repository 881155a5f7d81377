// Typed fields of a JSON file that this room wrote, with errors that name file and key.
// Not: for files of other programs, whose keys differ in spelling and presence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/training/input_file.hpp"

namespace tawpipe::inline v0::training::detail {

/// The whole of a file that is small by its nature.
/// @throws InputError  if it cannot be read or has more than `most` bytes.
inline std::string read_text(const std::string& path, std::int64_t most) {
  const InputFile file{path};
  if (file.size() > most) {
    throw InputError(concat(file.shown_path(), " has ", file.size(), " bytes; such a file has at most ", most));
  }
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read_at(0, std::as_writable_bytes(std::span{text}));
  return text;
}

class JsonObject {
 public:
  using Json = nlohmann::json;

  /// @throws InputError  if the file cannot be read or holds no JSON object.
  static JsonObject read(const std::string& path, std::int64_t most) {
    const std::string text = read_text(path, most);
    try {
      return JsonObject{Json::parse(text), concat("file ", quote(one_line(path)))};
    } catch (const nlohmann::json::parse_error& error) {
      throw InputError(concat("file ", quote(one_line(path)), " is no JSON: its byte ", error.byte, " cannot be understood"));
    } catch (const nlohmann::json::exception&) {
      throw InputError(concat("file ", quote(one_line(path)), " holds a number that is out of range"));
    }
  }

  bool has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }
  JsonObject object(const char* key) const { return JsonObject{at(key), concat(where_, ", ", key)}; }
  std::string text(const char* key) const {
    if (!at(key).is_string()) fail(key, "must be a text");
    return json_[key].get<std::string>();
  }
  bool boolean(const char* key) const {
    if (!at(key).is_boolean()) fail(key, "must be true or false");
    return json_[key].get<bool>();
  }
  double number(const char* key) const {
    if (!at(key).is_number()) fail(key, "must be a number");
    return json_[key].get<double>();
  }
  /// A whole number from 0 on.
  template <class Number>
  Number count(const char* key) const {
    const Json& value = at(key);
    if (!value.is_number_unsigned() || !std::in_range<Number>(value.get<std::uint64_t>())) {
      fail(key, concat("must be a whole number from 0 to ", std::numeric_limits<Number>::max()));
    }
    return value.get<Number>();
  }
  /// Keys and values of an object of texts.
  std::vector<std::pair<std::string, std::string>> texts() const {
    std::vector<std::pair<std::string, std::string>> entries;
    for (const auto& [key, value] : json_.items()) {
      if (!value.is_string()) fail(key, "must be a text");
      entries.emplace_back(key, value.template get<std::string>());
    }
    return entries;
  }
  [[noreturn]] void fail(std::string_view key, std::string_view why) const {
    throw InputError(concat(where_, ": ", quote(one_line(std::string{key})), " ", why));
  }

 private:
  JsonObject(Json json, std::string where) : json_(std::move(json)), where_{std::move(where)} {
    if (!json_.is_object()) throw InputError(concat(where_, " must be a JSON object {...}"));
  }

  const Json& at(const char* key) const {
    if (!json_.contains(key)) fail(key, "is missing");
    return json_[key];
  }

  Json json_;
  std::string where_;
};

}  // namespace tawpipe::training::detail
