// The values that must be equal on all ranks of a run before it starts: flags, data, model and
// state.
// Not: values of single ranks, such as their GPU.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/training/input_file.hpp"

namespace tawpipe::sim {

/// Names in users' terms, and values as text.
using RunIdentity = std::vector<std::pair<std::string, std::string>>;

/// A line for each.
std::string to_text(const RunIdentity& identity);

/// Why a rank cannot train with rank 0: the first value that differs. @param root  rank 0's
/// to_text. @return empty: no difference
std::string difference(const RunIdentity& own, std::string_view root, int rank);

/// A file's size and CRC-32: for a file above 64 MiB, that of 64 pieces of 1 MiB, including the
/// first and the last.
std::string fingerprint(const training::InputFile& file);

}  // namespace tawpipe::sim
