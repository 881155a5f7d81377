// The folders of a run's checkpoints: which one is the last good one, how a new one replaces it,
// and which are deleted: of this run's only.
// Not: what a checkpoint holds (training/checkpoint.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/training/detail/checkpoint_json.hpp"
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

/// The files of a checkpoint.
inline constexpr std::array<std::string_view, 5> checkpoint_files{"model.safetensors", "optimizer.safetensors", "config.json",
                                                                  "state.json", "checksums.json"};

/// Whether a folder, not a link to one, holds nothing but a checkpoint's files, whole or partial.
inline bool holds_only_checkpoint(const std::filesystem::path& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(std::filesystem::symlink_status(folder, error))) return false;
  for (const auto& entry : std::filesystem::directory_iterator{folder, error}) {
    std::string name = entry.path().filename().string();
    if (constexpr std::string_view partial = ".partial"; name.ends_with(partial)) name.resize(name.size() - partial.size());
    const bool known = std::find(checkpoint_files.begin(), checkpoint_files.end(), name) != checkpoint_files.end();
    if (!known || !std::filesystem::is_regular_file(entry.symlink_status(error))) return false;
  }
  return !error;
}

/// The run that wrote a checkpoint with nothing else in its folder; nothing if that is unknown.
inline std::optional<std::string> run_of_checkpoint(const std::filesystem::path& folder) {
  if (!holds_only_checkpoint(folder)) return std::nullopt;
  try {
    return read_state((folder / "state.json").string()).state.run;
  } catch (const InputError&) {
    return std::nullopt;
  }
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
/// @throws InputError  if it cannot be read, or does not name one.
inline std::optional<std::int64_t> latest_step(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (!std::filesystem::exists(std::filesystem::symlink_status(folder / "latest", ignored))) return std::nullopt;
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
///
/// It deletes only what write_checkpoint() wrote: complete checkpoints of the same run, and what was
/// left unfinished. A folder of the step's name that is something else is renamed.
class CheckpointFolder {
 public:
  /// Makes the run's folder if there is none, and removes partial files of an interrupted process.
  /// @param name  of the run (TrainingState::run)
  /// @throws InputError  if a folder cannot be made or removed, or something else has its name.
  CheckpointFolder(const std::string& run, std::string name, std::int64_t step)
      : run_{run},
        name_{std::move(name)},
        step_{step},
        final_{run_ / checkpoint_name(step)},
        partial_{final_.string() + ".partial"} {
    std::error_code error;
    std::filesystem::create_directories(run_, error);
    detail::throw_folder_error("make folder", run_, error);
    remove_all_with(".partial", detail::holds_only_checkpoint);
    if (!std::filesystem::create_directory(partial_, error) && !error) error = std::make_error_code(std::errc::file_exists);
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
  /// @param overwrite  deletes the checkpoints of other runs, too
  /// @pre every file is complete and on disk (DurableFile)
  /// @throws InputError  if the system refuses.
  void commit(int keep, bool overwrite = false) {
    const auto is_ours = [&](const std::filesystem::path& path) {
      const std::optional<std::string> of = detail::run_of_checkpoint(path);
      return of && (overwrite || *of == name_);
    };
    std::error_code error;
    const auto is_old = [&](const std::filesystem::path& path) {
      return is_ours(path) || (std::filesystem::is_directory(path, error) && std::filesystem::is_empty(path, error));
    };
    const auto is_there = [&](const std::filesystem::path& path) {
      return std::filesystem::exists(std::filesystem::symlink_status(path, error));
    };
    // One of the same step is renamed first, to a name that find_checkpoint() knows in case the
    // process ends here.
    if (is_there(final_)) {
      std::filesystem::path aside = final_.string() + ".replaced";
      if (is_old(aside)) remove(aside);
      const bool kept = !is_old(final_) || is_there(aside);
      for (int i = 1; kept && (i == 1 || is_there(aside)); ++i) aside = concat(final_.string(), ".other", i);
      rename(final_, aside);
    }
    rename(partial_, final_);
    complete_ = true;
    sync_folder(run_.string());
    write_durably((run_ / "latest").string(), checkpoint_name(step_) + "\n");
    remove_all_with(".replaced", is_old);
    remove_older(keep, overwrite);
  }

 private:
  static void rename(const std::filesystem::path& from, const std::filesystem::path& to) {
    std::error_code error;
    std::filesystem::rename(from, to, error);
    detail::throw_folder_error("make folder", to, error);
  }
  /// What names its run goes last: whatever a killed process leaves is known as that run's.
  static void remove(const std::filesystem::path& path) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator{path, error}) {
      if (entry.path().filename() != "state.json") std::filesystem::remove(entry.path(), error);
    }
    std::filesystem::remove_all(path, error);
    detail::throw_folder_error("remove folder", path, error);
  }

  /// Removes folders named "step-N" + ending that are as `may` says.
  template <class May>
  void remove_all_with(std::string_view ending, const May& may) const {
    std::error_code error;
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::directory_iterator{run_, error}) {
      const std::string name = entry.path().filename().string();
      if (!name.ends_with(ending) || !detail::checkpoint_step(std::string_view{name}.substr(0, name.size() - ending.size())))
        continue;
      if (entry.is_directory() && may(entry.path())) found.push_back(entry.path());
    }
    detail::throw_folder_error("read folder", run_, error);
    for (const auto& path : found) remove(path);
  }

  void remove_older(int keep, bool overwrite) const {
    std::vector<std::int64_t> older;
    std::vector<std::int64_t> doomed;
    for (const std::int64_t step : detail::checkpoint_steps(run_)) {
      const std::optional<std::string> of = detail::run_of_checkpoint(run_ / checkpoint_name(step));
      if (!of || step == step_) continue;
      if (*of != name_ && overwrite) doomed.push_back(step);
      if (*of == name_ && step < step_) older.push_back(step);
    }
    std::sort(older.begin(), older.end());
    const std::size_t stay = keep > 1 ? static_cast<std::size_t>(keep) - 1 : 0;
    if (older.size() > stay) doomed.insert(doomed.end(), older.begin(), older.end() - static_cast<std::ptrdiff_t>(stay));
    for (const std::int64_t step : doomed) {
      // Renamed first: a half-deleted folder must not look like a checkpoint.
      const std::filesystem::path renamed = (run_ / checkpoint_name(step)).string() + ".partial";
      std::error_code error;
      if (std::filesystem::exists(std::filesystem::symlink_status(renamed, error))) continue;  // not ours
      rename(run_ / checkpoint_name(step), renamed);
      remove(renamed);
    }
  }

  std::filesystem::path run_;
  std::string name_;
  std::int64_t step_;
  std::filesystem::path final_;
  std::filesystem::path partial_;
  bool complete_ = false;
};

/// 16 hexadecimal digits at random: the name of a run that begins.
inline std::string new_run_name() {
  std::random_device random;
  std::string digits;
  for (int i = 0; i < 16; ++i) digits += "0123456789abcdef"[random() & 15U];
  return digits;
}

/// The name of something in a folder that another run, or another program, keeps its checkpoints by;
/// nothing if there is none: a run that begins, or comes from elsewhere, may save there.
inline std::optional<std::string> other_run_in(const std::filesystem::path& folder) {
  std::error_code ignored;
  std::vector<std::int64_t> steps = detail::checkpoint_steps(folder);
  if (!steps.empty()) return checkpoint_name(*std::max_element(steps.begin(), steps.end()));
  const bool named = std::filesystem::exists(std::filesystem::symlink_status(folder / "latest", ignored));
  return named ? std::optional<std::string>{"latest"} : std::nullopt;
}

/// What may be the last good checkpoint of a path.
struct CheckpointCandidates {
  std::vector<std::string> paths;  ///< the best first
  std::string damage = {};         ///< of the file `latest`; "": none
};

/// A path's checkpoints: itself if it is one, otherwise those of a run's folder, from the one that
/// its file `latest` names. A just replaced one counts if the new one is missing. Where `latest` is
/// damaged, all, those that were written last first.
/// @throws InputError  if there is none.
inline CheckpointCandidates checkpoint_candidates(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path folder{path};
  if (fs::exists(folder / "state.json", ignored)) return {{path}};
  if (!fs::is_directory(folder, ignored)) {
    throw InputError(concat("there is no folder ", quote(path), "; give a checkpoint or a run's folder of them"));
  }
  const auto path_of = [&](std::int64_t step) { return (folder / checkpoint_name(step)).string(); };
  std::vector<std::int64_t> steps = detail::checkpoint_steps(folder);
  std::sort(steps.begin(), steps.end(), std::greater<>{});
  CheckpointCandidates found;
  // `latest` is missing if the process ended just after the first rename. A run that was rolled
  // back has later steps: they come after all others, if the one that `latest` names is gone.
  try {
    if (const std::optional<std::int64_t> latest = detail::latest_step(folder)) {
      const std::string named = path_of(*latest);
      const bool there = fs::is_directory(named, ignored);
      const bool replaced = !there && fs::is_directory(named + ".replaced", ignored);
      found.paths.push_back(replaced ? named + ".replaced" : named);
      const auto later = std::stable_partition(steps.begin(), steps.end(), [&](std::int64_t step) { return step < *latest; });
      if (there || replaced) steps.erase(later, steps.end());
    }
  } catch (const InputError& error) {
    found.damage = error.what();
    const auto written = [&](std::int64_t step) { return fs::last_write_time(path_of(step) + "/state.json", ignored); };
    std::stable_sort(steps.begin(), steps.end(), [&](std::int64_t a, std::int64_t b) { return written(a) > written(b); });
  }
  for (const std::int64_t step : steps) found.paths.push_back(path_of(step));
  if (!found.paths.empty()) return found;
  if (!found.damage.empty()) throw InputError(found.damage);
  throw InputError(concat("folder ", quote(path), " holds no checkpoint (no 'latest', no 'step-...')"));
}

/// The first of checkpoint_candidates(). @throws InputError  if there is none, or `latest` is damaged
/// or names one that does not exist.
inline std::string find_checkpoint(const std::string& path) {
  const CheckpointCandidates found = checkpoint_candidates(path);
  if (!found.damage.empty()) throw InputError(found.damage);
  std::error_code ignored;
  if (std::filesystem::is_directory(found.paths.front(), ignored)) return found.paths.front();
  throw InputError(concat("file ", quote(path + "/latest"), " names ",
                          quote(std::filesystem::path{found.paths.front()}.filename().string()),
                          ", which is not there; name another checkpoint"));
}

}  // namespace tawpipe::training
