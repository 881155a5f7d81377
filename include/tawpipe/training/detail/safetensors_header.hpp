// The JSON header of a safetensors file: parsed, with every claim in it checked against the file's
// size.
// Not: the tensors' numbers (training/safetensors.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/json/json_reader.hpp"
#include "tawpipe/training/number_format.hpp"

namespace tawpipe::inline v0::training {

/// One tensor of a safetensors file.
struct TensorEntry {
  std::string name;
  NumberFormat format = NumberFormat::f32;
  std::vector<std::int64_t> shape = {};  ///< empty for a single number
  std::int64_t begin = 0;                ///< first byte, from the start of the file
  std::int64_t end = 0;                  ///< one past the last byte

  /// The number of its elements.
  std::int64_t count() const { return (end - begin) / size_bytes(format); }
};

/// "[3, 4]".
inline std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::vector<std::string> axes;
  for (const std::int64_t axis : shape) axes.push_back(concat(axis));
  return concat("[", join(axes, ", "), "]");
}

namespace detail {

/// size of the header's length at the start of the file
inline constexpr std::int64_t safetensors_length_bytes = 8;

/// The contents of a safetensors header, in the order of the tensors' bytes.
struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;
  std::map<std::string, std::string> metadata;
};

class SafetensorsHeaderReader {
 public:
  /// @param text  the header, without its length
  /// @param file  the file's name in messages
  /// @param file_size  in bytes
  SafetensorsHeaderReader(std::string_view text, std::string file, std::int64_t file_size)
      : file_{std::move(file)},
        data_begin_{safetensors_length_bytes + static_cast<std::int64_t>(text.size())},
        data_bytes_{file_size - data_begin_} {
    const JsonDocument json{text, concat("safetensors file ", file_), {.depth = 3}};  // header, tensor, shape
    for (const auto& [key, value] : json.root().members()) {
      if (key != "__metadata__") {
        header_.tensors.push_back(entry(key, value));
        continue;
      }
      for (const auto& [name, word] : value.members()) header_.metadata[name] = word.text();
    }
    check_bytes();
  }

  const SafetensorsHeader& header() const { return header_; }

 private:
  [[noreturn]] void fail(std::string_view why) const { throw InputError(concat("safetensors file ", file_, " ", why)); }
  [[noreturn]] void fail(const std::string& tensor, std::string_view why) const {
    fail(concat("has a broken tensor ", shown(tensor), ": ", why));
  }
  static std::string shown(const std::string& name) { return quote(name.size() > 80 ? name.substr(0, 80) + "..." : name); }

  TensorEntry entry(const std::string& name, JsonValue json) const {
    json.only("dtype", "shape", "data_offsets");
    const JsonValue dtype = json.at("dtype");
    const auto format = find_number_format(dtype.text());
    if (!format) dtype.fail(concat("unknown dtype ", shown(dtype.text()), "; known: ", known_formats()));
    TensorEntry entry{.name = name, .format = *format, .shape = whole_numbers(json.at("shape"))};
    std::int64_t bytes = size_bytes(*format);
    const bool empty = std::find(entry.shape.begin(), entry.shape.end(), 0) != entry.shape.end();
    for (const std::int64_t axis : entry.shape) {
      if (!empty && axis > std::numeric_limits<std::int64_t>::max() / bytes) fail(name, "its shape is too large");
      bytes = empty ? 0 : bytes * axis;
    }
    const auto offsets = whole_numbers(json.at("data_offsets").of_size(2, "two numbers"));
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

  static std::vector<std::int64_t> whole_numbers(JsonValue json) {
    std::vector<std::int64_t> numbers;
    for (const JsonValue value : json) numbers.push_back(value.whole());
    return numbers;
  }

  static std::string known_formats() {
    std::vector<std::string> names;
    for (const auto& facts : number_formats) names.emplace_back(facts.name);
    return join(names, ", ");
  }

  /// Tensors are contiguous and fill the file.
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
      fail(concat("has ", data_begin_ + data_bytes_ - at, " bytes after its last tensor that belong to none"));
    }
  }

  std::string file_;
  std::int64_t data_begin_;
  std::int64_t data_bytes_;
  SafetensorsHeader header_;
};

}  // namespace detail

}  // namespace tawpipe::training
