// Checkpoints of a small decoder whose numbers say which parameter they are.
// Not: what is checked of them (unit/training/checkpoint_test.cpp).
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/scratch_folder.hpp"
#include "support/small_decoder.hpp"
#include "tawpipe/training/checkpoint.hpp"

namespace support {

/// Weights count up from `first`, first moments from 10000, second moments from 20000.
inline double value_at(tawpipe::training::ParameterValue value, std::int64_t parameter, double first) {
  return static_cast<double>(parameter) +
         (value == tawpipe::training::ParameterValue::weight ? first : 10000.0 * static_cast<int>(value));
}

template <class Number>
void fill(const tawpipe::training::CheckpointPart& part, std::span<std::byte> bytes, double first) {
  REQUIRE(static_cast<std::int64_t>(bytes.size() / sizeof(Number)) == part.range.count());
  for (std::int64_t i = 0; i < part.range.count(); ++i) {
    const auto number = static_cast<Number>(value_at(part.value, part.range.begin + i, first));
    std::memcpy(bytes.data() + static_cast<std::size_t>(i) * sizeof(Number), &number, sizeof(Number));
  }
}

inline tawpipe::training::TrainingState state_of(std::int64_t step) {
  tawpipe::training::TrainingState state{.step = step, .dtype = tawpipe::Dtype::f32, .settings = {{"schedule", "tawpipe"}}};
  state.data = {.source = "a \"text\".txt", .seed = 0xffffffffffffffff, .microbatches = 8, .microbatch_size = 2, .sequence = 16};
  state.learning_rate = {.peak = 0.1 + 0.2, .minimum = 1e-5, .warmup_steps = 10, .decay_steps = 2000};  // 17 digits
  state.optimizer.weight_decay = 0.01;
  return state;
}

inline std::string write(const std::string& run, const tawpipe::training::TrainingState& state, double first,
                         const tawpipe::Transformer& model, bool overwrite) {
  return tawpipe::training::write_checkpoint(
      run, model, {}, state,
      [&](const tawpipe::training::CheckpointPart& part, std::span<std::byte> bytes) { fill<float>(part, bytes, first); }, 2,
      overwrite);
}
inline std::string write(const std::string& run, std::int64_t step, double first = 0,
                         const tawpipe::Transformer& model = small_decoder()) {
  return write(run, state_of(step), first, model, false);
}
/// Of the run of that name.
inline std::string write(const std::string& run, std::int64_t step, double first, const std::string& name,
                         bool overwrite = false) {
  tawpipe::training::TrainingState state = state_of(step);
  state.run = name;
  return write(run, state, first, small_decoder(), overwrite);
}

inline std::vector<double> read(const tawpipe::training::Checkpoint& checkpoint, tawpipe::training::ParameterValue value,
                                tawpipe::ParameterRange range) {
  std::vector<double> numbers(static_cast<std::size_t>(range.count()));
  checkpoint.read<double>(value, range, numbers);
  return numbers;
}

/// Whether a range comes back as it was written.
inline bool holds(const tawpipe::training::Checkpoint& checkpoint, tawpipe::training::ParameterValue value,
                  tawpipe::ParameterRange range, double first = 0) {
  const std::vector<double> numbers = read(checkpoint, value, range);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] != value_at(value, range.begin + static_cast<std::int64_t>(i), first)) return false;
  }
  return true;
}

inline std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator{folder}) names.insert(entry.path().filename().string());
  return names;
}

/// Replaces the first `from` of a file.
inline void edit(const std::string& path, std::string_view from, std::string_view to) {
  std::string text = file_bytes(path);
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  put_file(path, text.replace(at, from.size(), to));
}

}  // namespace support
