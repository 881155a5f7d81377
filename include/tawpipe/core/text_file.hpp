// The text of a file, up to a given size.
// Not: random access to large files (training/input_file.hpp), nor what the text means.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::inline v0 {

/// The rest of a stream, without a byte order mark; nothing where it cannot be read (errno says
/// why).
/// @param what  for messages: "the schedule file 'a.json'"
/// @throws InputError  if it is larger than `mebibytes`.
inline std::optional<std::string> read_stream(std::FILE* stream, std::string_view what, std::int64_t mebibytes) {
  const auto most = static_cast<std::size_t>(mebibytes) << 20;
  std::string text;
  char buffer[65536];
  for (std::size_t got = 0; text.size() <= most && (got = std::fread(buffer, 1, sizeof buffer, stream)) > 0;) {
    text.append(buffer, got);
  }
  if (std::ferror(stream) != 0) return std::nullopt;  // a folder opens, and fails to read
  if (text.size() > most) throw InputError(concat(what, " is larger than ", mebibytes, " MiB"));
  text.erase(0, text.size() - without_byte_order_mark(text).size());
  return text;
}

/// As read_text_file(), but nothing where there is no file to read.
inline std::optional<std::string> find_text_file(const std::string& path, std::string_view kind, std::int64_t mebibytes) {
  struct File {
    std::FILE* stream;
    ~File() {
      if (stream != nullptr) std::fclose(stream);
    }
  };
  const File file{std::fopen(path.c_str(), "rb")};
  if (file.stream == nullptr) return std::nullopt;
  return read_stream(file.stream, concat("the ", kind, " ", quote(path)), mebibytes);
}

/// The text of a whole file. @param kind  for messages: "cluster file"
/// @throws InputError  if it cannot be read, or is larger than `mebibytes`.
inline std::string read_text_file(const std::string& path, std::string_view kind, std::int64_t mebibytes) {
  if (auto text = find_text_file(path, kind, mebibytes)) return *std::move(text);
  throw InputError(concat("the ", kind, " ", quote(path), " cannot be read: ", std::strerror(errno)));
}

}  // namespace tawpipe
