// Locks for files and folders that only one process at a time may write: the system releases them
// however the process ends.
// Not: a lock between threads.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::inline v0::training {

/// Opens a file for reading and writing that no other process has open in this way; created if
/// missing, never through a link, and not truncated. The lock belongs to the descriptor.
/// @return the descriptor, or -1 with the reason in errno: EWOULDBLOCK where another process holds
/// the file
inline int open_locked(const std::string& path) {
  while (true) {
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (descriptor < 0) return -1;
    struct stat opened = {};
    struct stat named = {};
    const bool locked = ::flock(descriptor, LOCK_EX | LOCK_NB) == 0;
    const int reason = errno;
    // Its holder may have renamed or removed it in between: then the name refers to another file
    // now.
    const bool same = ::fstat(descriptor, &opened) == 0 && ::lstat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
                      opened.st_ino == named.st_ino;
    if (locked && same) return descriptor;
    ::close(descriptor);
    if (locked) continue;
    errno = reason;
    return -1;
  }
}

/// Locks a folder during its lifetime: other processes that try to lock it are refused. For two
/// processes on different hosts this works if the file system has locks between hosts (NFS 4,
/// Lustre with flock).
class FolderLock {
 public:
  /// @param folder  must exist
  /// @throws InputError  if another process holds it, naming it, or if the lock cannot be made.
  explicit FolderLock(const std::string& folder) : path_{folder + "/lock"}, descriptor_{open_locked(path_)} {
    const int reason = errno;
    if (descriptor_ < 0 && reason == EWOULDBLOCK) {
      throw InputError(
          concat("folder ", quote(folder), " is in use by ", holder(), "; wait for its end, or give another folder"));
    }
    if (descriptor_ < 0) throw InputError(concat("cannot lock folder ", quote(folder), ": ", std::strerror(reason)));
    char first[8] = {};
    if (const auto size = ::read(descriptor_, first, sizeof first);
        size > 0 && std::memcmp(first, "process ", sizeof first) != 0) {
      ::close(descriptor_);
      throw InputError(concat("cannot lock folder ", quote(folder), ": its file 'lock' is something else; rename it"));
    }
    char host[256] = {};
    ::gethostname(host, sizeof host - 1);
    const std::string text = concat("process ", ::getpid(), " on ", host, "\n");
    // Its text is only for people: a full disk does not matter.
    if (::ftruncate(descriptor_, 0) != 0 || ::pwrite(descriptor_, text.data(), text.size(), 0) < 0) return;
  }
  ~FolderLock() {
    ::unlink(path_.c_str());
    ::close(descriptor_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  std::string holder() const {
    char text[300] = {};
    const int descriptor = ::open(path_.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    const auto size = descriptor < 0 ? 0 : ::read(descriptor, text, sizeof text - 1);
    if (descriptor >= 0) ::close(descriptor);
    std::string name = size > 0 ? one_line(text) : std::string{};
    while (!name.empty() && (name.back() == '\n' || name.back() == ' ')) name.pop_back();
    return name.empty() ? "another process" : concat("another run (", name, ")");
  }

  std::string path_;
  int descriptor_;
};

}  // namespace tawpipe::training
