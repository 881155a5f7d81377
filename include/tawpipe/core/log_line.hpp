// Lines of logs as people keep them: without what launchers and mail put before each.
// Not: what the lines say (report/nccl_tests.hpp, topology/).
#pragma once

#include <cstddef>
#include <string_view>

#include "tawpipe/core/text.hpp"

namespace tawpipe::inline v0 {

/// The line without marks of quoting ("> ") and the label of its process: `srun -l` ("12: "),
/// `mpirun --tag-output` ("[1,0]<stdout>: "), MPICH's -prepend-rank ("[0] "), torchrun
/// ("[default0]:").
inline std::string_view without_label(std::string_view line) {
  const auto skip = [&](std::string_view characters) {
    const std::size_t at = line.find_first_not_of(characters);
    return at == std::string_view::npos ? line.size() : at;
  };
  if (const std::size_t at = skip(" \t"); at < line.size() && line[at] == '>') {
    line.remove_prefix(skip(" \t>"));
    return without_label(line);
  }
  const std::size_t begin = skip(" ");
  std::size_t end = begin;
  if (begin < line.size() && line[begin] == '[') {
    const std::size_t bracket = line.find(']', begin);
    if (bracket == std::string_view::npos) return line;
    end = bracket + 1;
    if (end < line.size() && line[end] == '<') end = line.find('>', end);
    if (end == std::string_view::npos) return line;
    if (line[end == line.size() ? end - 1 : end] == '>') ++end;
    if (end < line.size() && line[end] == ':') ++end;
  } else {
    while (end < line.size() && line[end] >= '0' && line[end] <= '9') ++end;
    if (end == begin || end == line.size() || line[end] != ':') return line;
    ++end;
    if (end < line.size() && line[end] != ' ') return line;  // "77:81 [0] NCCL INFO" is no label
  }
  if (end < line.size() && line[end] == ' ') ++end;
  return line.substr(end);
}

}  // namespace tawpipe
