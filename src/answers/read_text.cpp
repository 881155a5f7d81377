// A whole file that a question names.
#include "tawpipe/answers/read_text.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text_file.hpp"

namespace tawpipe::inline v0::answers {

double machine_memory() { return static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE)); }

std::string read_text(const std::string& path, std::string_view kind, std::int64_t mebibytes) {
  // What is made of a text takes several times its size.
  const auto quarter = static_cast<std::int64_t>(machine_memory() / 4 / (1 << 20));
  if (quarter > 0) mebibytes = std::min(mebibytes, quarter);
  if (path != "-") return read_text_file(path, kind, mebibytes);
  if (auto text = read_stream(stdin, "standard input", mebibytes)) return *std::move(text);
  throw InputError("standard input cannot be read");
}

}  // namespace tawpipe::answers
