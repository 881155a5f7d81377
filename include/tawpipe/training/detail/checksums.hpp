// checksums.json of a checkpoint: checksums of each tensor and of each value of its other files.
// Not: protection against deliberate changes (CRC-32).
#pragma once

#include <algorithm>
#include <boost/crc.hpp>
#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/json/json_reader.hpp"
#include "tawpipe/training/durable_file.hpp"
#include "tawpipe/training/safetensors.hpp"

namespace tawpipe::inline v0::training::detail {

/// CRC-32 of bytes that come in parts, as in zlib and Ethernet.
class Checksum {
 public:
  void add(std::span<const std::byte> bytes) { crc_.process_bytes(bytes.data(), bytes.size()); }
  std::uint32_t value() const { return crc_.checksum(); }

 private:
  boost::crc_32_type crc_;
};

inline std::uint32_t checksum_of(std::string_view text) {
  Checksum sum;
  sum.add(std::as_bytes(std::span{text.data(), text.size()}));
  return sum.value();
}

/// The checksums of a file's parts by name: tensors, or paths of a JSON's values.
using FileChecksums = std::map<std::string, std::uint32_t>;

/// The name of the checksum of a whole text, or of all of a tensor file before its numbers.
inline constexpr std::string_view whole_name = "(all)";

/// A checksum for each value of a JSON text, by its path, and one for the whole text.
/// @param source  the file's name, for messages @throws InputError  if it is not JSON
inline FileChecksums json_checksums(std::string_view text, std::string_view source) {
  FileChecksums sums;
  const JsonDocument document{text, source, {.depth = 32}};  // as config.json may have
  const nlohmann::json flat = document.json().flatten();
  for (const auto& [path, value] : flat.items()) sums[path] = checksum_of(value.dump());
  sums[std::string{whole_name}] = checksum_of(text);
  return sums;
}

/// The part of a tensor file before its tensors' numbers.
inline std::uint32_t header_checksum(const SafetensorsFile& file) {
  Checksum sum;
  std::vector<std::byte> header(static_cast<std::size_t>(file.data_begin()));
  file.read_bytes(0, header);
  sum.add(header);
  return sum.value();
}

/// The checksum of a tensor's numbers as stored in the file.
inline std::uint32_t tensor_checksum(const SafetensorsFile& file, const TensorEntry& tensor, std::vector<std::byte>& block) {
  constexpr std::int64_t most = std::int64_t{1} << 22;
  Checksum sum;
  const std::int64_t end = tensor.begin + tensor.count() * size_bytes(tensor.format);
  for (std::int64_t at = tensor.begin; at < end; at += most) {
    block.resize(static_cast<std::size_t>(std::min(most, end - at)));
    file.read_bytes(at, block);
    sum.add(block);
  }
  return sum.value();
}

/// The checksums of all files of a checkpoint.
class Checksums {
 public:
  Checksums() = default;
  /// @throws InputError  if the file is missing, not JSON, or of a different format.
  explicit Checksums(const std::string& path) : path_{path} {
    const JsonDocument document = read_json_file(path, "file", 256);
    const JsonValue json = document.root();
    if (json.at("algorithm").text() != "crc32") json.at("algorithm").expected("'crc32'");
    for (const auto& [file, sums] : json.at("files").members()) {
      for (const auto& [name, sum] : sums.members()) files_[file][name] = sum.template whole<std::uint32_t>();
    }
  }

  void set(const std::string& file, FileChecksums sums) { files_[file] = std::move(sums); }
  void write(const std::string& path) const {
    const nlohmann::ordered_json json = {{"algorithm", "crc32"}, {"files", files_}};
    write_durably(path, json.dump(1) + "\n");
  }

  /// @throws InputError  naming the value of the JSON file that has changed.
  void check_json(const std::string& folder, const std::string& file) const {
    const std::string path = concat(folder, "/", file);
    const FileChecksums found = json_checksums(read_text_file(path, "file", 1), concat("file ", quote(path)));
    const FileChecksums& kept = of(file);
    for (const auto& [name, sum] : kept) {
      if (name == whole_name) continue;
      const auto now = found.find(name);
      if (now == found.end() || now->second != sum) changed(path, concat("its value ", quote(name)));
    }
    if (found != kept) changed(path, "its text");
  }

  /// Reads the whole file. @throws InputError  naming the tensor whose numbers have changed.
  void check_tensors(const SafetensorsFile& file, const std::string& name) const {
    const FileChecksums& kept = of(name);
    std::vector<std::byte> block;
    for (const TensorEntry& tensor : file.tensors()) {
      const auto sum = kept.find(tensor.name);
      if (sum == kept.end() || sum->second != tensor_checksum(file, tensor, block)) {
        changed(file.path(), concat("tensor ", quote(tensor.name)));
      }
    }
    const auto header = kept.find(std::string{whole_name});
    if (header == kept.end() || header->second != header_checksum(file)) changed(file.path(), "its header");
    if (kept.size() != file.tensors().size() + 1) changed(path_, concat("the list of ", name));
  }

 private:
  const FileChecksums& of(const std::string& file) const {
    const auto found = files_.find(file);
    if (found == files_.end()) throw InputError(concat("file ", quote(path_), " has no checksums of ", file));
    return found->second;
  }

  [[noreturn]] static void changed(const std::string& path, const std::string& what) {
    throw InputError(concat("file ", quote(path), " is damaged: ", what, " is not what was written (its checksum differs)"));
  }

  std::string path_;
  std::map<std::string, FileChecksums> files_;
};

}  // namespace tawpipe::training::detail
