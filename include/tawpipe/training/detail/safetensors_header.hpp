// The JSON header of a safetensors file: parsed, and every claim in it checked against the file's size.
// Not: the tensors' numbers (training/safetensors.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/training/number_format.hpp"

namespace tawpipe::inline v0::training {

/// One tensor of a safetensors file.
struct TensorEntry {
  std::string name;
  NumberFormat format = NumberFormat::f32;
  std::vector<std::int64_t> shape = {};  ///< empty of a single number
  std::int64_t begin = 0;                ///< first byte, from the start of the file
  std::int64_t end = 0;                  ///< one past the last byte

  /// How many numbers it holds.
  std::int64_t count() const { return (end - begin) / size_bytes(format); }
};

/// "[3, 4]".
inline std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::vector<std::string> axes;
  for (const std::int64_t axis : shape) axes.push_back(concat(axis));
  return concat("[", join(axes, ", "), "]");
}

namespace detail {

inline constexpr std::int64_t safetensors_length_bytes = 8;  ///< of the header's length at the start of the file

/// What a safetensors header says, in the order of the tensors' bytes.
struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;
  std::map<std::string, std::string> metadata;
};

class SafetensorsHeaderReader {
 public:
  using Json = nlohmann::json;

  /// @param text  the header, without its length
  /// @param file  what messages call the file
  /// @param file_size  in bytes
  SafetensorsHeaderReader(std::string_view text, std::string file, std::int64_t file_size)
      : file_{std::move(file)},
        data_begin_{safetensors_length_bytes + static_cast<std::int64_t>(text.size())},
        data_bytes_{file_size - data_begin_} {
    const Json json = parse(text);
    if (!json.is_object()) fail("has a header that is no JSON object");
    for (const auto& [key, value] : json.items()) {
      if (key == "__metadata__") {
        read_metadata(value);
      } else {
        header_.tensors.push_back(entry(key, value));
      }
    }
    check_bytes();
  }

  const SafetensorsHeader& header() const { return header_; }

 private:
  [[noreturn]] void fail(std::string_view why) const { throw InputError(concat("safetensors file ", file_, " ", why)); }
  [[noreturn]] void fail(const std::string& tensor, std::string_view why) const {
    fail(concat("has a broken tensor ", shown(tensor), ": ", why));
  }
  static std::string shown(const std::string& name) {
    return quote(one_line(name.size() > 80 ? name.substr(0, 80) + "..." : name));
  }

  Json parse(std::string_view text) const {
    constexpr int deepest = 3;  // header, tensor, shape
    std::vector<std::set<std::string, std::less<>>> seen(deepest + 1);
    const auto look = [&](int depth, Json::parse_event_t event, Json& parsed) {
      if (depth > deepest) fail("has a header that is nested too deeply");
      if (event == Json::parse_event_t::object_start) {
        seen[static_cast<std::size_t>(depth)].clear();
      } else if (event == Json::parse_event_t::key) {
        const auto& key = parsed.get_ref<const std::string&>();
        if (!seen[static_cast<std::size_t>(depth) - 1].insert(key).second) {
          fail(concat("names ", shown(key), " twice in its header"));
        }
      }
      return true;
    };
    try {
      return Json::parse(text, look);
    } catch (const nlohmann::json::parse_error& error) {
      fail(concat("has a broken header: no JSON at its byte ", error.byte));
    } catch (const nlohmann::json::exception&) {
      fail("has a broken header: a number in it is out of range");
    }
  }

  void read_metadata(const Json& json) {
    if (!json.is_object()) fail("has a '__metadata__' that is no JSON object");
    for (const auto& [key, value] : json.items()) {
      if (!value.is_string()) fail(concat("has an entry ", shown(key), " in '__metadata__' that is no text"));
      header_.metadata[key] = value.get<std::string>();
    }
  }

  TensorEntry entry(const std::string& name, const Json& json) const {
    if (!json.is_object()) fail(name, "its entry is no JSON object");
    for (const auto& [key, value] : json.items()) {
      if (key != "dtype" && key != "shape" && key != "data_offsets") fail(name, concat("unknown key ", shown(key)));
    }
    for (const char* key : {"dtype", "shape", "data_offsets"}) {
      if (!json.contains(key)) fail(name, concat(quote(key), " is missing"));
    }
    TensorEntry entry{.name = name};
    if (!json["dtype"].is_string()) fail(name, "its dtype is no text");
    const auto format = find_number_format(json["dtype"].get_ref<const std::string&>());
    if (!format) fail(name, concat("unknown dtype ", shown(json["dtype"].get<std::string>()), "; known: ", known_formats()));
    entry.format = *format;

    entry.shape = whole_numbers(name, "shape", json["shape"]);
    std::int64_t bytes = size_bytes(*format);
    const bool empty = std::find(entry.shape.begin(), entry.shape.end(), 0) != entry.shape.end();
    for (const std::int64_t axis : entry.shape) {
      if (!empty && axis > std::numeric_limits<std::int64_t>::max() / bytes) fail(name, "its shape is too large");
      bytes = empty ? 0 : bytes * axis;
    }
    const auto offsets = whole_numbers(name, "data_offsets", json["data_offsets"]);
    if (offsets.size() != 2) fail(name, "its data_offsets are not two numbers");
    if (offsets[0] > offsets[1]) fail(name, concat("it ends at byte ", offsets[1], ", before its begin at ", offsets[0]));
    if (offsets[1] > data_bytes_) {
      fail(concat("is cut off: tensor ", shown(name), " ends at byte ", offsets[1], " of the data, the file has ", data_bytes_));
    }
    if (offsets[1] - offsets[0] != bytes) {
      fail(name, concat("shape ", shape_text(entry.shape), " of ", training::name(*format), " takes ", bytes,
                        " bytes, its data_offsets have ", offsets[1] - offsets[0]));
    }
    entry.begin = data_begin_ + offsets[0];
    entry.end = data_begin_ + offsets[1];
    return entry;
  }

  std::vector<std::int64_t> whole_numbers(const std::string& name, const char* key, const Json& json) const {
    if (!json.is_array()) fail(name, concat("its ", key, " is no list"));
    std::vector<std::int64_t> numbers;
    for (const Json& value : json) {
      if (!value.is_number_unsigned() || value.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max()) {
        fail(name, concat("its ", key, " must hold whole numbers from 0 on"));
      }
      numbers.push_back(value.get<std::int64_t>());
    }
    return numbers;
  }

  static std::string known_formats() {
    std::vector<std::string> names;
    for (const auto& facts : number_formats) names.emplace_back(facts.name);
    return join(names, ", ");
  }

  /// Tensors lie one behind the other and fill the file.
  void check_bytes() {
    auto& tensors = header_.tensors;
    std::sort(tensors.begin(), tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
      return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
    });
    std::int64_t at = data_begin_;
    const TensorEntry* before = nullptr;
    for (const TensorEntry& tensor : tensors) {
      if (tensor.begin < at) fail(concat("has overlapping tensors: ", shown(before->name), " and ", shown(tensor.name)));
      if (tensor.begin > at) fail(concat("has a gap of ", tensor.begin - at, " bytes before tensor ", shown(tensor.name)));
      at = tensor.end;
      before = &tensor;
    }
    if (at < data_begin_ + data_bytes_) {
      fail(concat("has ", data_begin_ + data_bytes_ - at, " bytes behind its last tensor that belong to none"));
    }
  }

  std::string file_;
  std::int64_t data_begin_;
  std::int64_t data_bytes_;
  SafetensorsHeader header_;
};

}  // namespace detail

}  // namespace tawpipe::training
