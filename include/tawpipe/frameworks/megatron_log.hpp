// What Megatron-LM prints: the arguments with which a run began, whatever started it, the time of its
// steps and its memory.
// Not: what the arguments mean for a plan (megatron.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/frameworks/detail/megatron_arguments.hpp"
#include "tawpipe/frameworks/framework_job.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// The dots between an argument's name and its value.
inline constexpr std::string_view log_dots = " ..";

inline bool begins_arguments(std::string_view line) { return line.find("--- arguments ---") != std::string_view::npos; }
inline bool ends_arguments(std::string_view line) { return line.find("--- end of arguments ---") != std::string_view::npos; }

/// `name ........ value`, after whatever a launcher puts before it; nothing if the line is no argument.
inline std::optional<std::pair<std::string, std::string>> logged_argument(std::string_view line) {
  const std::size_t dots = line.find(log_dots);
  if (dots == std::string_view::npos) return std::nullopt;
  const std::string_view before = trimmed(line.substr(0, dots));
  const std::size_t space = before.rfind(' ');
  const std::string_view name = space == std::string_view::npos ? before : before.substr(space + 1);
  const std::size_t value = line.find_first_not_of('.', dots + 1);
  if (name.empty() || value == std::string_view::npos) return std::nullopt;
  return std::pair{std::string{name}, std::string{trimmed(line.substr(value))}};
}

/// The words of a value: `['a', 'b']`, `AttnBackend.auto`, `24`.
inline std::vector<std::string> logged_words(std::string_view value) {
  std::string plain;
  for (const char c : value) plain += std::string_view{"[](),'\""}.find(c) == std::string_view::npos ? c : ' ';
  std::vector<std::string> words;
  for (const std::string_view word : split(plain, ' ')) {
    if (word.empty()) continue;
    const bool member = word.starts_with("AttnBackend.");
    words.emplace_back(member ? word.substr(word.find('.') + 1) : word);
  }
  return words;
}

}  // namespace detail

/// Whether a text has the block of arguments that Megatron-LM prints.
inline bool is_megatron_log(std::string_view text) {
  const std::size_t at = text.find("--- arguments ---");
  return at != std::string_view::npos && text.find(detail::log_dots, at) != std::string_view::npos;
}

/// The arguments of a log as flags. Those that are None or off are left out; names that are no flag
/// change nothing, and are noted if they are switched on.
/// @pre is_megatron_log(text)
inline SettingsText megatron_log_settings(std::string_view text, std::string_view source) {
  detail::MegatronArguments all;
  SettingsText found{.source = std::string{source}, .settings = {}, .launched_by = "world_size"};
  bool inside = false;
  int line = 0;
  for (const std::string_view each : split(text, '\n')) {
    ++line;
    if (!inside) {
      inside = all.empty() && detail::begins_arguments(each);
    } else if (detail::ends_arguments(each)) {
      inside = false;
    } else if (const auto argument = detail::logged_argument(each)) {
      const auto& [name, value] = *argument;
      if (name == "world_size") {
        found.processes = to_number<std::int32_t>(value).value_or(0);
        found.launch_line = line;
      } else {
        all.push_back({name, detail::logged_words(value), line});
      }
    }
  }
  const std::vector<std::string> unknown = detail::take_megatron_arguments(all, found, true);
  if (found.settings.empty()) found.fail(1, "its block of arguments has none that is known");
  if (!unknown.empty())
    found.notes.push_back(one_line(concat(source, ": switched on and not known to change the layout: ", join(unknown, ", "))));
  return found;
}

/// What a log says of the run: the middle of its steps' times but the first, and the most memory that
/// a rank's tensors took. Source: training_log() and report_memory() of Megatron-LM.
inline LoggedRun measured_by_megatron(std::string_view text) {
  const auto after = [](std::string_view line, std::string_view name) -> std::optional<double> {
    const std::size_t at = line.find(name);
    if (at == std::string_view::npos) return std::nullopt;
    const std::string_view rest = trimmed(line.substr(at + name.size()));
    return to_number<double>(rest.substr(0, rest.find_first_of(" |\r")));
  };
  LoggedRun run;
  std::vector<double> steps;
  for (const std::string_view line : split(text, '\n')) {
    if (const auto milliseconds = after(line, "elapsed time per iteration (ms):"); milliseconds && *milliseconds > 0)
      steps.push_back(*milliseconds * 1e-3);
    if (const auto megabytes = after(line, "max allocated:"); megabytes && *megabytes > 0 && *megabytes < 1e8)
      run.allocated_bytes = std::max(run.allocated_bytes, static_cast<std::int64_t>(*megabytes * 1024 * 1024));
  }
  if (steps.size() > 1) steps.erase(steps.begin());  // it compiles, connects and allocates
  std::sort(steps.begin(), steps.end());
  if (!steps.empty()) run.step_seconds = steps[steps.size() / 2];
  return run;
}

}  // namespace tawpipe
