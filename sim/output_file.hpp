// Whole files: one being written that is whole or absent, and one read.
// Not: what is in them.
#pragma once

#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace tawpipe::sim {

/// A file being written, or standard output for "-". A regular file is written beside its place and renamed when finished,
/// so it is whole or absent, also where a signal ends the command; what is none (a pipe, a device) is written in place. Every
/// function throws InputError naming the file and the system's reason.
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

bool is_standard_output(const std::string& path);

/// A flag and the path that it was given; "" where it was not.
using OutputFlag = std::pair<const char*, const std::string&>;
/// Whether one of them goes to standard output, where nothing else must go then.
bool any_standard_output(std::initializer_list<OutputFlag> outputs);
/// @throws InputError  if two of them would write to one place
void check_outputs(std::initializer_list<OutputFlag> outputs);

/// A whole file, less a byte order mark; "-" is standard input. @param kind  for messages: "schedule file"
/// @throws InputError  if it cannot be read or is larger than `mebibytes`
std::string read_text(const std::string& path, std::string_view kind, std::int64_t mebibytes = 1024);

/// Removes what is being written, for a process that ends without its destructors. Safe in a signal's handler.
void remove_unfinished_files();

/// Writes a whole text at once.
void write_output(const std::string& path, std::string_view text);

}  // namespace tawpipe::sim
