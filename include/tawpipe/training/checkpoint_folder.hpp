// The folders of a run's checkpoints: which one is the last good one, how a new one replaces it,
// and which are deleted.
// Not: what a checkpoint holds (training/checkpoint.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/training/durable_file.hpp"
#include "tawpipe/training/input_file.hpp"

namespace tawpipe::inline v0::training {

/// "step-000123".
inline std::string checkpoint_name(std::int64_t step) {
  std::string digits = concat(step);
  return concat("step-", std::string(digits.size() < 6 ? 6 - digits.size() : 0, '0'), digits);
}

namespace detail {

/// The step in the name of a checkpoint's folder; nothing for any other name.
inline std::optional<std::int64_t> checkpoint_step(std::string_view name) {
  if (!name.starts_with("step-") || name.size() < 11 || name.size() > 5 + 18) return std::nullopt;
  std::int64_t step = 0;
  for (const char c : name.substr(5)) {
    if (c < '0' || c > '9') return std::nullopt;
    step = step * 10 + (c - '0');
  }
  if (checkpoint_name(step) != name) return std::nullopt;
  return step;
}

/// Steps of the complete checkpoints in a folder, unsorted.
inline std::vector<std::int64_t> checkpoint_steps(const std::filesystem::path& folder) {
  std::vector<std::int64_t> steps;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator{folder, ignored}) {
    const auto step = checkpoint_step(entry.path().filename().string());
    if (step && entry.is_directory(ignored)) steps.push_back(*step);
  }
  return steps;
}

/// The step that the file `latest` of a run's folder names; nothing if there is no such file.
/// @throws InputError  if it does not name one.
inline std::optional<std::int64_t> latest_step(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(folder / "latest", ignored)) return std::nullopt;
  const InputFile file{(folder / "latest").string()};
  std::string name(static_cast<std::size_t>(std::min<std::int64_t>(file.size(), 64)), '\0');
  file.read_at(0, std::as_writable_bytes(std::span{name}));
  if (name.ends_with('\n')) name.pop_back();
  if (const auto step = checkpoint_step(name)) return step;
  throw InputError(concat("file ", file.shown_path(), " is broken: it must name a checkpoint, such as step-000100"));
}

inline void throw_folder_error(const char* what, const std::filesystem::path& path, const std::error_code& error) {
  if (error) throw InputError(concat("cannot ", what, " ", quote(path.string()), ": ", error.message()));
}

}  // namespace detail

/// A checkpoint of one step being written into `step-N.partial` of a run's folder. commit() renames
/// it to `step-N`, names it in the file `latest`, and only then deletes older ones. Its destructor
/// removes what was written unless it was committed; killed at any moment, it leaves the last good
/// checkpoint unchanged. One process at a time writes into a run's folder.
class CheckpointFolder {
 public:
  /// Makes the run's folder if there is none, and removes partial files of an interrupted process.
  /// @throws InputError  if a folder cannot be made or removed.
  CheckpointFolder(const std::string& run, std::int64_t step)
      : run_{run}, step_{step}, final_{run_ / checkpoint_name(step)}, partial_{final_.string() + ".partial"} {
    std::error_code error;
    std::filesystem::create_directories(run_, error);
    detail::throw_folder_error("make folder", run_, error);
    remove_all_with(".partial");
    std::filesystem::create_directory(partial_, error);
    detail::throw_folder_error("make folder", partial_, error);
  }
  ~CheckpointFolder() {
    if (complete_) return;
    std::error_code ignored;
    std::filesystem::remove_all(partial_, ignored);
  }
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  /// Path of a file of the checkpoint while it is being written.
  std::string file(std::string_view name) const { return (partial_ / name).string(); }
  /// Path of the checkpoint once it is complete.
  std::string path() const { return final_.string(); }

  /// @param keep  how many checkpoints are kept, including this one; later steps, of a run that was
  /// rolled back, are not counted
  /// @pre every file is complete and on disk (DurableFile)
  /// @throws InputError  if the system refuses.
  void commit(int keep) {
    // One of the same step is renamed first, to a name that find_checkpoint() knows in case the
    // process ends here.
    const std::filesystem::path replaced = final_.string() + ".replaced";
    std::error_code error;
    if (std::filesystem::exists(final_, error)) {
      remove(replaced);
      rename(final_, replaced);
    }
    rename(partial_, final_);
    complete_ = true;
    sync_folder(run_.string());
    write_durably((run_ / "latest").string(), checkpoint_name(step_) + "\n");
    remove_all_with(".replaced");
    remove_older(keep);
  }

 private:
  static void rename(const std::filesystem::path& from, const std::filesystem::path& to) {
    std::error_code error;
    std::filesystem::rename(from, to, error);
    detail::throw_folder_error("make folder", to, error);
  }
  static void remove(const std::filesystem::path& path) {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    detail::throw_folder_error("remove folder", path, error);
  }

  /// Removes folders named "step-N" + ending.
  void remove_all_with(std::string_view ending) const {
    std::error_code error;
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::directory_iterator{run_, error}) {
      const std::string name = entry.path().filename().string();
      if (!name.ends_with(ending)) continue;
      if (detail::checkpoint_step(std::string_view{name}.substr(0, name.size() - ending.size()))) found.push_back(entry.path());
    }
    detail::throw_folder_error("read folder", run_, error);
    for (const auto& path : found) remove(path);
  }

  void remove_older(int keep) const {
    std::vector<std::int64_t> older;
    for (const std::int64_t step : detail::checkpoint_steps(run_)) {
      if (step < step_) older.push_back(step);
    }
    std::sort(older.begin(), older.end());
    const std::size_t stay = keep > 1 ? static_cast<std::size_t>(keep) - 1 : 0;
    for (std::size_t i = 0; i + stay < older.size(); ++i) {
      // Renamed first: a half-deleted folder must not look like a checkpoint.
      const std::filesystem::path doomed = run_ / checkpoint_name(older[i]);
      const std::filesystem::path renamed = doomed.string() + ".partial";
      rename(doomed, renamed);
      remove(renamed);
    }
  }

  std::filesystem::path run_;
  std::int64_t step_;
  std::filesystem::path final_;
  std::filesystem::path partial_;
  bool complete_ = false;
};

/// The candidate checkpoints of a path, the newest first: itself if it is one, otherwise those of a
/// run's folder, from the one that its file `latest` names. A just replaced one counts if the new
/// one is missing.
/// @throws InputError  if there is none.
inline std::vector<std::string> checkpoint_candidates(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path folder{path};
  if (fs::exists(folder / "state.json", ignored)) return {path};
  if (!fs::is_directory(folder, ignored)) {
    throw InputError(concat("there is no folder ", quote(path), "; give a checkpoint or a run's folder of them"));
  }
  std::vector<std::int64_t> steps = detail::checkpoint_steps(folder);
  std::sort(steps.begin(), steps.end(), std::greater<>{});
  std::vector<std::string> found;
  // `latest` is missing if the process ended just after the first rename. A run that was rolled
  // back has later steps.
  if (const std::optional<std::int64_t> latest = detail::latest_step(folder)) {
    std::erase_if(steps, [&](std::int64_t step) { return step >= *latest; });
    const std::string named = (folder / checkpoint_name(*latest)).string();
    const bool replaced = !fs::is_directory(named, ignored) && fs::is_directory(named + ".replaced", ignored);
    found.push_back(replaced ? named + ".replaced" : named);
  }
  for (const std::int64_t step : steps) found.push_back((folder / checkpoint_name(step)).string());
  if (!found.empty()) return found;
  throw InputError(concat("folder ", quote(path), " holds no checkpoint (no 'latest', no 'step-...')"));
}

/// The first of checkpoint_candidates(). @throws InputError  if there is none, or `latest` names
/// one that does not exist.
inline std::string find_checkpoint(const std::string& path) {
  const std::string found = checkpoint_candidates(path).front();
  std::error_code ignored;
  if (std::filesystem::is_directory(found, ignored)) return found;
  throw InputError(concat("file ", quote(path + "/latest"), " names ", quote(std::filesystem::path{found}.filename().string()),
                          ", which is not there; name another checkpoint"));
}

}  // namespace tawpipe::training
