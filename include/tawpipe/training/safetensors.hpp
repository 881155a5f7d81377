// Files of named tensors in the safetensors format: reading any part, writing one tensor after
// another.
// Not: which tensors a model has (model/parameters.hpp) nor folders of several files
// (training/checkpoint.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tawpipe/core/config.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/training/detail/safetensors_header.hpp"
#include "tawpipe/training/durable_file.hpp"
#include "tawpipe/training/input_file.hpp"
#include "tawpipe/training/number_format.hpp"

namespace tawpipe::inline v0::training {

/// A safetensors file, checked as a whole when it is opened. Several threads may read at once.
/// Source of the format: https://github.com/huggingface/safetensors, section "Format".
/// Example: `const auto weights = SafetensorsFile{"model.safetensors"}.read<float>("norm.weight");`
class SafetensorsFile {
 public:
  /// The limit on the header's length, as in the format's own reader.
  static constexpr std::int64_t max_header_bytes = 100'000'000;

  /// @throws InputError  if the file cannot be read, or is not of this format: too short, a header
  /// longer than the file, not JSON, a duplicate name, an unknown dtype, a shape that does not fit
  /// its bytes, tensors that overlap or leave bytes between or after them, or bytes that are
  /// missing. One sentence names the file, the tensor and what is wrong.
  explicit SafetensorsFile(const std::string& path) : file_{path}, header_{read_header(file_)} {
    for (const TensorEntry& tensor : header_.tensors) by_name_.emplace(tensor.name, &tensor);
  }
  SafetensorsFile(SafetensorsFile&&) noexcept = default;
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;
  ~SafetensorsFile() = default;

  const std::string& path() const { return file_.path(); }
  /// All tensors in the order of their bytes.
  const std::vector<TensorEntry>& tensors() const { return header_.tensors; }
  /// Their names, in the same order.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const TensorEntry& tensor : header_.tensors) names.push_back(tensor.name);
    return names;
  }
  /// The contents of "__metadata__".
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  /// The offset of the tensors' numbers.
  std::int64_t data_begin() const { return header_.tensors.empty() ? file_.size() : header_.tensors.front().begin; }
  /// Bytes of the file unchanged. @throws InputError  if it cannot be read, or ends before them.
  void read_bytes(std::int64_t begin, std::span<std::byte> bytes) const { file_.read_at(begin, bytes); }
  bool contains(std::string_view name) const { return by_name_.find(name) != by_name_.end(); }

  /// @throws InputError  naming the nearest name.
  const TensorEntry& tensor(std::string_view name) const {
    const auto found = by_name_.find(name);
    if (found != by_name_.end()) return *found->second;
    const std::string close = nearest(name, names());
    throw InputError(concat("safetensors file ", file_.shown_path(), " has no tensor ", quote(name),
                            close.empty() ? "" : concat("; did you mean ", quote(close), "?")));
  }

  /// The tensor of that name and shape.
  /// @throws InputError  if it is missing or has a different shape.
  const TensorEntry& tensor(std::string_view name, const std::vector<std::int64_t>& shape) const {
    const TensorEntry& entry = tensor(name);
    if (entry.shape == shape) return entry;
    throw InputError(concat("tensor ", quote(entry.name), " in ", file_.shown_path(), " has shape ", shape_text(entry.shape),
                            "; ", shape_text(shape), " is needed"));
  }

  /// Numbers `first` .. `first + numbers.size()` - 1 of a tensor, row-major, converted from the
  /// file's format.
  /// @throws InputError  if the tensor is missing or shorter, or as decode().
  template <class Number>
  void read(std::string_view name, std::int64_t first, std::span<Number> numbers) const {
    static_assert(std::is_arithmetic_v<Number> && !std::is_same_v<Number, bool>);
    const TensorEntry& entry = tensor(name);
    const auto wanted = static_cast<std::int64_t>(numbers.size());
    if (first < 0 || wanted > entry.count() || first > entry.count() - wanted) {
      throw InputError(concat("tensor ", quote(entry.name), " in ", file_.shown_path(), " has ", entry.count(), " numbers; ",
                              wanted, " from ", first, " on are not among them"));
    }
    const std::int64_t width = size_bytes(entry.format);
    const std::int64_t begin = entry.begin + first * width;
    if (entry.format == format_of<Number>()) return file_.read_at(begin, std::as_writable_bytes(numbers));
    constexpr std::size_t block = std::size_t{1} << 16;  // numbers converted at a time
    std::vector<std::byte> bytes(std::min(block, numbers.size()) * static_cast<std::size_t>(width));
    for (std::size_t at = 0; at < numbers.size(); at += block) {
      const std::span<Number> part = numbers.subspan(at, std::min(block, numbers.size() - at));
      const std::span<std::byte> raw = std::span{bytes}.first(part.size() * static_cast<std::size_t>(width));
      file_.read_at(begin + static_cast<std::int64_t>(at) * width, raw);
      try {
        decode<Number>(entry.format, raw, part);
      } catch (const InputError& error) {
        throw InputError(concat("tensor ", quote(entry.name), " in ", file_.shown_path(), " cannot be used: ", error.what()));
      }
    }
  }

  /// A whole tensor.
  template <class Number>
  std::vector<Number> read(std::string_view name) const {
    std::vector<Number> numbers(static_cast<std::size_t>(tensor(name).count()));
    read<Number>(name, 0, numbers);
    return numbers;
  }

 private:
  static detail::SafetensorsHeader read_header(const InputFile& file) {
    const auto fail = [&](const std::string& why) { throw InputError(concat("safetensors file ", file.shown_path(), " ", why)); };
    constexpr std::int64_t prefix = detail::safetensors_length_bytes;
    if (file.size() < prefix) fail(concat("has ", file.size(), " bytes; the length of its header takes 8"));
    std::uint64_t length = 0;
    file.read_at(0, std::as_writable_bytes(std::span{&length, 1}));
    if (length > static_cast<std::uint64_t>(file.size() - prefix)) {
      fail(concat("claims a header of ", length, " bytes, but has ", file.size(), " in all: it is cut off, or of another kind"));
    }
    if (length > max_header_bytes) fail(concat("has a header of ", length, " bytes; at most ", max_header_bytes, " are read"));
    std::string text(length, '\0');
    file.read_at(prefix, std::as_writable_bytes(std::span{text}));
    if (text.empty() || text.front() != '{') fail("has a header that does not start with '{': it is of another kind");
    return detail::SafetensorsHeaderReader{text, file.shown_path(), file.size()}.header();
  }

  InputFile file_;
  detail::SafetensorsHeader header_;
  std::map<std::string, const TensorEntry*, std::less<>> by_name_;
};

/// A tensor to be written.
struct NewTensor {
  std::string name;
  NumberFormat format = NumberFormat::f32;
  std::vector<std::int64_t> shape = {};

  std::int64_t count() const {
    std::int64_t count = 1;
    for (const std::int64_t axis : shape) count *= axis;
    return count;
  }
};

/// Writes a safetensors file, tensors contiguous in the order given. The file is whole or absent
/// (DurableFile); every function throws InputError naming the file if the system refuses, and the
/// previous file is then untouched.
class SafetensorsWriter {
 public:
  /// @throws InputError  if a name is empty, is a duplicate or is "__metadata__", or the file
  /// cannot be made.
  SafetensorsWriter(const std::string& path, std::vector<NewTensor> tensors,
                    const std::map<std::string, std::string>& metadata = {})
      : tensors_{std::move(tensors)}, file_{path} {
    std::string text = "{";
    if (!metadata.empty()) text += concat("\"__metadata__\":", json_text(metadata), ",");
    std::int64_t at = 0;
    std::set<std::string> seen;
    for (const NewTensor& tensor : tensors_) {
      if (tensor.name.empty() || tensor.name == "__metadata__" || !seen.insert(tensor.name).second) {
        throw InputError(concat("cannot write ", quote(path), ": the tensor name ", quote(tensor.name),
                                " is reserved, empty or stands twice"));
      }
      const std::int64_t end = at + tensor.count() * size_bytes(tensor.format);
      text += concat(json_text(tensor.name), ":{\"dtype\":\"", name(tensor.format), "\",\"shape\":", json_text(tensor.shape),
                     ",\"data_offsets\":[", at, ",", end, "]},");
      at = end;
    }
    if (text.size() > 1) text.pop_back();  // the last comma
    text += '}';
    text.append((8 - text.size() % 8) % 8, ' ');  // so that the data begins at a multiple of 8
    const std::uint64_t length = text.size();
    file_.write(std::as_bytes(std::span{&length, 1}));
    file_.write(text);
  }

  /// Appends numbers, converted to the format of the tensor they belong to. A call stays within one
  /// tensor.
  template <class Number>
  void write(std::span<const Number> numbers) {
    skip_complete();
    if (numbers.empty()) return;
    TAWPIPE_ASSERT(at_ < tensors_.size(), "the numbers go beyond the last tensor");
    const NumberFormat format = tensors_[at_].format;
    if (format == format_of<Number>()) return write_bytes(std::as_bytes(numbers));
    constexpr std::size_t block = std::size_t{1} << 16;  // numbers converted at a time
    const auto width = static_cast<std::size_t>(size_bytes(format));
    std::vector<std::byte> bytes(std::min(block, numbers.size()) * width);
    for (std::size_t first = 0; first < numbers.size(); first += block) {
      const std::span<const Number> part = numbers.subspan(first, std::min(block, numbers.size() - first));
      const std::span<std::byte> raw = std::span{bytes}.first(part.size() * width);
      encode<Number>(format, part, raw);
      write_bytes(raw);
    }
  }

  /// Appends numbers that already have the format of their tensor.
  void write_bytes(std::span<const std::byte> bytes) {
    skip_complete();
    if (bytes.empty()) return;
    TAWPIPE_ASSERT(at_ < tensors_.size() && static_cast<std::int64_t>(bytes.size()) <=
                                                (tensors_[at_].count() - written_) * size_bytes(tensors_[at_].format),
                   "the bytes go beyond the tensor");
    written_ += static_cast<std::int64_t>(bytes.size()) / size_bytes(tensors_[at_].format);
    file_.write(bytes);
  }

  /// Syncs the file to disk and moves it to its target.
  /// @pre every tensor is completely written
  void finish() {
    skip_complete();
    TAWPIPE_ASSERT(at_ == tensors_.size(), "tensors are missing");
    file_.commit();
  }

 private:
  static std::string json_text(const nlohmann::json& value) {
    return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }

  void skip_complete() {
    while (at_ < tensors_.size() && written_ == tensors_[at_].count()) {
      ++at_;
      written_ = 0;
    }
  }

  std::vector<NewTensor> tensors_;
  DurableFile file_;
  std::size_t at_ = 0;        ///< the tensor being written
  std::int64_t written_ = 0;  ///< numbers of it
};

}  // namespace tawpipe::training
