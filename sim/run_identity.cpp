// Compares the flags and files of ranks. Not: their exchange (execution.hpp, cuda_run.cpp).
#include "run_identity.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "tawpipe/core/text.hpp"
#include "tawpipe/training/detail/checksums.hpp"

namespace tawpipe::sim {

std::string to_text(const RunIdentity& identity) {
  std::string text;
  for (const auto& [name, value] : identity) text += concat(name, "\t", one_line(value), "\n");
  return text;
}

std::string difference(const RunIdentity& own, std::string_view root, int rank) {
  for (const auto& [name, value] : own) {
    const auto end = root.find('\n');
    const std::string_view line = root.substr(0, end);
    root.remove_prefix(end == std::string_view::npos ? root.size() : end + 1);
    if (line == concat(name, "\t", one_line(value))) continue;
    const std::string_view other = line.starts_with(name + "\t") ? line.substr(name.size() + 1) : "none";
    return concat("rank ", rank, " was started with ", name, " ", one_line(value), ", and rank 0 with ", other,
                  "; start all ranks with the same");
  }
  return {};
}

std::string fingerprint(const training::InputFile& file) {
  constexpr std::int64_t piece = std::int64_t{1} << 20;
  constexpr std::int64_t pieces = 64;
  training::detail::Checksum sum;
  std::vector<std::byte> block;
  const auto add = [&](std::int64_t begin, std::int64_t bytes) {
    block.resize(static_cast<std::size_t>(bytes));
    file.read_at(begin, block);
    sum.add(block);
  };
  const std::int64_t size = file.size();
  if (size <= pieces * piece) {
    for (std::int64_t at = 0; at < size; at += piece) add(at, std::min(piece, size - at));
  } else {
    for (std::int64_t i = 0; i < pieces; ++i) add((size - piece) / (pieces - 1) * i, piece);
    add(size - piece, piece);
  }
  return fmt::format("{} bytes, CRC-32 {:08x}", size, sum.value());
}

}  // namespace tawpipe::sim
