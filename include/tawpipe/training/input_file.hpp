// A file for random access.
// Not: memory mapping, where a file truncated meanwhile would kill the program instead of giving an
// error.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::inline v0::training {

/// A regular file open for reading. read_at() may be called by several threads at once.
class InputFile {
 public:
  /// @throws InputError  if the file cannot be opened or is not a regular file.
  explicit InputFile(std::string path) : path_{std::move(path)}, descriptor_{::open(path_.c_str(), O_RDONLY | O_CLOEXEC)} {
    if (descriptor_ < 0) throw InputError(concat("cannot read ", shown_path(), ": ", std::strerror(errno)));
    struct stat status = {};
    const bool known = ::fstat(descriptor_, &status) == 0;
    if (!known || !S_ISREG(status.st_mode)) {
      ::close(descriptor_);
      throw InputError(concat("cannot read ", shown_path(), ": it must be a file, not a folder or device"));
    }
    size_ = status.st_size;
  }
  ~InputFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  InputFile(InputFile&& other) noexcept
      : path_{std::move(other.path_)}, descriptor_{std::exchange(other.descriptor_, -1)}, size_{other.size_} {}
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  /// Its size in bytes when it was opened.
  std::int64_t size() const { return size_; }
  /// The path as shown in messages.
  std::string shown_path() const { return quote(path_); }

  /// Bytes `begin` .. `begin + bytes.size()` - 1.
  /// @throws InputError  if the system refuses, or the file has become shorter than that.
  void read_at(std::int64_t begin, std::span<std::byte> bytes) const {
    constexpr std::size_t most = std::size_t{1} << 30;  // Linux reads less than 2 GiB at once
    while (!bytes.empty()) {
      const ssize_t got = ::pread(descriptor_, bytes.data(), std::min(bytes.size(), most), begin);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw InputError(concat("cannot read ", shown_path(), ": ", std::strerror(errno)));
      if (got == 0) throw InputError(concat(shown_path(), " ends at byte ", begin, "; it was longer when it was opened"));
      bytes = bytes.subspan(static_cast<std::size_t>(got));
      begin += got;
    }
  }

 private:
  std::string path_;
  int descriptor_;
  std::int64_t size_ = 0;
};

}  // namespace tawpipe::training
