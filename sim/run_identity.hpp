// What all ranks of a run must have alike before they begin: flags, data, model and state.
// Not: what each rank may have for itself, such as the GPU that it uses.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/training/input_file.hpp"

namespace tawpipe::sim {

/// Names as users would say them, and values as text.
using RunIdentity = std::vector<std::pair<std::string, std::string>>;

/// A line for each.
std::string to_text(const RunIdentity& identity);

/// What keeps a rank from training with rank 0: the first value that differs. @param root  rank 0's to_text. @return empty:
/// nothing
std::string difference(const RunIdentity& own, std::string_view root, int rank);

/// A file's size and CRC-32: of a file above 64 MiB, that of 64 pieces of 1 MiB, the first and the last among them.
std::string fingerprint(const training::InputFile& file);

}  // namespace tawpipe::sim
