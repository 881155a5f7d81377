// Implements files that are whole or absent.
#include "output_file.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/training/folder_lock.hpp"

namespace tawpipe::sim {

namespace {

/// Unfinished files, which a signal must remove. Those beyond the limit are left in place.
std::array<std::atomic<const char*>, 8> unfinished{};
constexpr std::array signals{SIGHUP, SIGINT, SIGPIPE, SIGTERM};

void remove_unfinished(int signal) {
  remove_unfinished_files();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

using Handler = void (*)(int);
Handler handler_of(int signal) {
  struct sigaction now {};
  return ::sigaction(signal, nullptr, &now) == 0 ? now.sa_handler : SIG_ERR;
}

/// Handles those signals that have no other handler.
void remember(const char* path) {
  for (auto& place : unfinished) {
    const char* empty = nullptr;
    if (place.compare_exchange_strong(empty, path)) break;
  }
  for (const int signal : signals) {
    if (handler_of(signal) == SIG_DFL) std::signal(signal, remove_unfinished);
  }
}

void forget(const char* path) {
  for (auto& place : unfinished) {
    const char* known = path;
    place.compare_exchange_strong(known, nullptr);
  }
  if (std::any_of(unfinished.begin(), unfinished.end(), [](const auto& place) { return place.load() != nullptr; })) return;
  for (const int signal : signals) {
    if (handler_of(signal) == remove_unfinished) std::signal(signal, SIG_DFL);
  }
}

}  // namespace

void remove_unfinished_files() {
  for (const auto& place : unfinished) {
    if (const char* path = place.load()) ::unlink(path);
  }
}

OutputFile::OutputFile(const std::string& path) : path_{path} {
  if (is_standard_output(path)) {
    file_ = stdout;
    return;
  }
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::is_directory(status)) fail(EISDIR);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    // A device or pipe must not be replaced by a file.
    file_ = std::fopen(path.c_str(), "wb");
  } else {
    target_ = fs::exists(status) ? fs::canonical(path, ignored).string() : path;  // for a link, its target
    written_ = target_ + ".part";
    remember(written_.c_str());  // before it exists: no signal can intervene
    const int descriptor = training::open_locked(written_);
    const bool taken = descriptor < 0 && errno == EWOULDBLOCK;
    if (descriptor >= 0) {
      if (::ftruncate(descriptor, 0) == 0) file_ = ::fdopen(descriptor, "wb");  // an interrupted command may have left one
      if (file_ == nullptr) ::close(descriptor);
    }
    if (taken) {
      forget(written_.c_str());
      throw InputError(concat("cannot write ", quote(path_), ": another process is writing it"));
    }
  }
  if (file_ != nullptr) return;
  const int reason = errno;
  if (!written_.empty()) forget(written_.c_str());
  fail(reason);
}

OutputFile::~OutputFile() {
  if (file_ == nullptr || file_ == stdout) return;
  std::fclose(file_);
  if (target_.empty()) return;
  std::remove(written_.c_str());
  forget(written_.c_str());
}

void OutputFile::operator()(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), file_) != text.size()) fail(errno);
}

void OutputFile::finish() {
  if (std::fflush(file_) != 0) fail(errno);
  if (file_ == stdout) return;
  const int held = ::dup(::fileno(file_));  // until the file has its name, no other process may use it
  const int closed = std::fclose(std::exchange(file_, nullptr));
  const bool whole = closed == 0 && (target_.empty() || std::rename(written_.c_str(), target_.c_str()) == 0);
  const int reason = errno;
  if (!whole && !target_.empty()) std::remove(written_.c_str());
  ::close(held);
  if (!target_.empty()) forget(written_.c_str());
  if (!whole) fail(reason);
}

void OutputFile::fail(int reason) const {
  throw InputError(concat("cannot write ", path_ == "-" ? "standard output" : quote(path_), ": ", std::strerror(reason)));
}

bool is_standard_output(const std::string& path) { return path == "-" || path == "/dev/stdout"; }

bool any_standard_output(std::initializer_list<OutputFlag> outputs) {
  return std::any_of(outputs.begin(), outputs.end(), [](const OutputFlag& output) { return is_standard_output(output.second); });
}

void check_outputs(std::initializer_list<OutputFlag> outputs) {
  for (const auto& [flag, path] : outputs) {
    for (const auto& [other_flag, other] : outputs) {
      if (flag == other_flag || path.empty()) continue;
      if (path == other || (is_standard_output(path) && is_standard_output(other))) {
        throw InputError(concat(flag, " and ", other_flag, " would both write to ", quote(path), "; give each its own file"));
      }
    }
  }
}

void write_output(const std::string& path, std::string_view text) {
  OutputFile file{path};
  file(text);
  file.finish();
}

}  // namespace tawpipe::sim
