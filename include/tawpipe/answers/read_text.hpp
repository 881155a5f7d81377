// A whole file that a question names.
// Not: its contents, nor files that are written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tawpipe::inline v0::answers {

/// Bytes of this machine's memory; not above 0 if unknown.
double machine_memory();

/// A whole file, without a byte order mark; "-" is standard input. @param kind  for messages:
/// "schedule file"
/// @throws InputError  if it cannot be read, or is larger than `mebibytes` or a quarter of this
/// machine's memory
std::string read_text(const std::string& path, std::string_view kind, std::int64_t mebibytes = 1024);

}  // namespace tawpipe::answers
