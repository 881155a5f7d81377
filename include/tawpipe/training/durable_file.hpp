// A file that is either complete and on disk, or absent.
// Not: folders of several files (training/checkpoint.hpp).
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::inline v0::training {

/// Makes a folder's list of names survive a power failure: files created, renamed or removed in it.
/// @throws InputError  if the system refuses.
inline void sync_folder(const std::string& folder) {
  const int descriptor = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // A file system that cannot sync folders answers EINVAL: nothing more can be done there.
  const bool done = descriptor >= 0 && (::fsync(descriptor) == 0 || errno == EINVAL);
  const int reason = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (!done) throw InputError(concat("cannot write to folder ", quote(folder), ": ", std::strerror(reason)));
}

/// A file being written as `<path>.partial` next to its target. commit() syncs it to disk and then
/// moves it to its target in one step, so what was at `path` before stays whole until then.
/// Destroyed without commit(), it removes what it wrote.
class DurableFile {
 public:
  /// @throws InputError  if the file cannot be made.
  explicit DurableFile(std::string path) : path_{std::move(path)}, partial_{path_ + ".partial"} {
    descriptor_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (descriptor_ < 0) fail(errno);
  }
  ~DurableFile() {
    if (descriptor_ < 0) return;
    ::close(descriptor_);
    std::remove(partial_.c_str());
  }
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  const std::string& path() const { return path_; }

  /// Appends.
  /// @throws InputError  naming the file and the system's reason, such as a full disk.
  void write(std::span<const std::byte> bytes) {
    constexpr std::size_t most = std::size_t{1} << 30;  // Linux writes less than 2 GiB at once
    while (!bytes.empty()) {
      const ssize_t put = ::write(descriptor_, bytes.data(), std::min(bytes.size(), most));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) fail(errno);
      bytes = bytes.subspan(static_cast<std::size_t>(put));
    }
  }
  void write(std::string_view text) { write(std::as_bytes(std::span{text.data(), text.size()})); }

  /// Syncs it to disk and moves it to its target. Nothing may be written afterwards.
  /// @throws InputError  as write(); what was at the path before is untouched.
  void commit() {
    if (::fsync(descriptor_) != 0) fail(errno);
    const int closed = ::close(std::exchange(descriptor_, -1));
    if (closed != 0 || std::rename(partial_.c_str(), path_.c_str()) != 0) {
      const int reason = errno;
      std::remove(partial_.c_str());
      fail(reason);
    }
    const std::size_t slash = path_.rfind('/');
    sync_folder(slash == std::string::npos ? "." : path_.substr(0, slash + 1));
  }

 private:
  [[noreturn]] void fail(int reason) const {
    throw InputError(concat("cannot write ", quote(path_), ": ", std::strerror(reason)));
  }

  std::string path_;
  std::string partial_;
  int descriptor_ = -1;
};

/// Writes a whole text as a DurableFile.
inline void write_durably(const std::string& path, std::string_view text) {
  DurableFile file{path};
  file.write(text);
  file.commit();
}

}  // namespace tawpipe::training
