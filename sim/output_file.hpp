// A file being written that is whole or absent.
// Not: their contents.
#pragma once

#include <cstdio>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace tawpipe::sim {

/// A file being written, or standard output for "-". A regular file is written under a temporary
/// name next to its target and renamed when finished, so it is whole or absent, even if a signal
/// ends the command; others (a pipe, a device) are written in place. Every function throws
/// InputError naming the file and the system's reason.
class OutputFile {
 public:
  /// Opens at once, so that an unwritable path is detected before anything is computed.
  explicit OutputFile(const std::string& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void operator()(std::string_view text);
  void finish();

 private:
  [[noreturn]] void fail(int reason) const;

  std::string path_;     ///< for messages
  std::string target_;   ///< the final name; "" if written in place
  std::string written_;  ///< the temporary name
  std::FILE* file_ = nullptr;
};

bool is_standard_output(const std::string& path);

/// A flag and its path; "" if not given.
using OutputFlag = std::pair<const char*, const std::string&>;
/// Whether one of them goes to standard output, which must then have no other output.
bool any_standard_output(std::initializer_list<OutputFlag> outputs);
/// @throws InputError  if two of them would write to the same file
void check_outputs(std::initializer_list<OutputFlag> outputs);

/// Removes unfinished files, for a process that ends without its destructors. Safe in a signal's
/// handler.
void remove_unfinished_files();

/// Writes a whole text at once.
void write_output(const std::string& path, std::string_view text);

}  // namespace tawpipe::sim
