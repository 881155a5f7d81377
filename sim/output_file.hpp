// Whole files: one being written that is whole or absent, and one read.
// Not: what is in them.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace tawpipe::sim {

/// A file being written, or standard output for "-". A regular file is written beside its place and renamed when finished,
/// so it is whole or absent; what is none (a pipe, a device) is written in place. Every function throws InputError naming
/// the file and the system's reason.
class OutputFile {
 public:
  /// Opens at once, so that a path that cannot be written is found before anything is computed.
  explicit OutputFile(const std::string& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void operator()(std::string_view text);
  void finish();

 private:
  [[noreturn]] void fail(int reason) const;

  std::string path_;     ///< for messages
  std::string target_;   ///< what is renamed to; "" where it is written in place
  std::string written_;  ///< what is renamed
  std::FILE* file_ = nullptr;
};

/// A whole file of at most 1 GiB; "-" is standard input. @param kind  for messages: "schedule file"
/// @throws InputError  if it cannot be read
std::string read_text(const std::string& path, std::string_view kind);

/// Writes a whole text at once.
void write_output(const std::string& path, std::string_view text);

}  // namespace tawpipe::sim
