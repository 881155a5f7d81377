// The text of a file, up to a given size; what has no size of its own, up to 512 MiB.
// Not: random access to large files (training/input_file.hpp), nor what the text means.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// Bytes that a regular file has from here on; 0: none, or unknown, as of a pipe or a device.
inline std::int64_t rest_of(std::FILE* stream) {
  const long at = std::ftell(stream);
  if (at < 0 || std::fseek(stream, 0, SEEK_END) != 0) return 0;
  const long end = std::ftell(stream);
  const bool back = std::fseek(stream, at, SEEK_SET) == 0;
  const bool folder = end == std::numeric_limits<long>::max();  // it opens, and fails to read
  return back && !folder && end > at ? end - at : 0;
}

}  // namespace detail

/// The rest of a stream, without a byte order mark; nothing where it cannot be read (errno says
/// why).
/// @param what  for messages: "the schedule file 'a.json'"
/// @throws InputError  if it is larger than `mebibytes`; a pipe or a device, which may never end,
/// than 512 MiB; or if it begins with 64 KiB of zeros, as no file with contents does.
inline std::optional<std::string> read_stream(std::FILE* stream, std::string_view what, std::int64_t mebibytes) {
  constexpr std::int64_t most_without_size = 512;
  const auto size = static_cast<std::size_t>(detail::rest_of(stream));
  const std::int64_t limit = size > 0 ? mebibytes : std::min(mebibytes, most_without_size);
  const std::size_t most = static_cast<std::size_t>(limit) << 20;
  const auto too_large = [&] {
    return InputError(concat(what, " is larger than ", limit, " MiB",
                             limit < mebibytes ? ", the most that is read of a pipe or device; give a file" : ""));
  };
  if (size > most) throw too_large();
  std::string text;
  text.reserve(size);
  char buffer[65536];
  for (std::size_t got = 0; text.size() <= most && (got = std::fread(buffer, 1, sizeof buffer, stream)) > 0;) {
    if (text.empty() && got == sizeof buffer && std::all_of(buffer, buffer + got, [](char c) { return c == 0; })) {
      throw InputError(concat(what, " begins with 64 KiB of zeros; give a file with contents"));
    }
    text.append(buffer, got);
  }
  if (std::ferror(stream) != 0) return std::nullopt;  // a folder opens, and fails to read
  if (text.size() > most) throw too_large();
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
