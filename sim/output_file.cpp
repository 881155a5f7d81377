// How an OutputFile stays whole or absent.
#include "output_file.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::sim {

OutputFile::OutputFile(const std::string& path) : path_{path} {
  if (path == "-" || path == "/dev/stdout") {
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
    target_ = fs::exists(status) ? fs::canonical(path, ignored).string() : path;  // of a link, what it leads to
    written_ = target_ + ".part";
    file_ = std::fopen(written_.c_str(), "wb");
  }
  if (file_ == nullptr) fail(errno);
}

OutputFile::~OutputFile() {
  if (file_ == nullptr || file_ == stdout) return;
  std::fclose(file_);
  if (!target_.empty()) std::remove(written_.c_str());
}

void OutputFile::operator()(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), file_) != text.size()) fail(errno);
}

void OutputFile::finish() {
  if (std::fflush(file_) != 0) fail(errno);
  if (file_ == stdout) return;
  const int closed = std::fclose(file_);
  file_ = nullptr;
  if (closed == 0 && (target_.empty() || std::rename(written_.c_str(), target_.c_str()) == 0)) return;
  const int reason = errno;
  if (!target_.empty()) std::remove(written_.c_str());
  fail(reason);
}

void OutputFile::fail(int reason) const {
  throw InputError(
      concat("cannot write ", path_ == "-" ? "standard output" : quote(one_line(path_)), ": ", std::strerror(reason)));
}

std::string read_text(const std::string& path, std::string_view kind) {
  constexpr std::size_t largest = std::size_t{1} << 30;
  std::FILE* const file = path == "-" ? stdin : std::fopen(path.c_str(), "rb");
  const auto fail = [&](std::string_view why) { return InputError(one_line(concat("the ", kind, " ", quote(path), why))); };
  if (file == nullptr) throw fail(" cannot be read");
  std::string text;
  char buffer[65536];
  for (std::size_t got = 0; text.size() <= largest && (got = std::fread(buffer, 1, sizeof buffer, file)) > 0;) {
    text.append(buffer, got);
  }
  const bool whole = std::ferror(file) == 0;  // a folder opens, and fails to read
  if (file != stdin) std::fclose(file);
  if (!whole) throw fail(" cannot be read");
  if (text.size() > largest) throw fail(" is larger than 1 GiB");
  return text;
}

void write_output(const std::string& path, std::string_view text) {
  OutputFile file{path};
  file(text);
  file.finish();
}

}  // namespace tawpipe::sim
