// The diagnosis of a job from its flight recorder dumps: reads the dumps, and writes a page of text
// or JSON (docs/hangs.md).
// Not: the dumps' format (flight_recorder.hpp) nor the search for the cause
// (verify/diagnose.hpp).
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/verify/flight_record.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// A dump's file and its rank: the number at the end of the name, before any extension, as PyTorch
/// names it.
inline std::pair<std::int32_t, std::string> dump_with_rank(const std::filesystem::path& path) {
  std::string stem = path.filename().string();
  for (const std::string_view extension : {".json", ".pickle", ".pkl"}) {
    if (stem.ends_with(extension)) stem.erase(stem.size() - extension.size());
  }
  const auto last = stem.find_last_not_of("0123456789");
  const std::string digits = stem.substr(last == std::string::npos ? 0 : last + 1);
  const auto rank = to_number<std::int32_t>(digits);
  if (!rank || digits.size() > 6) {
    if (!std::filesystem::exists(path)) throw InputError(concat(quote(path.string()), " does not exist"));
    throw InputError(concat(quote(path.string()), " does not end in its rank, such as trace_rank_3 or rank_3.json; rename it"));
  }
  return {*rank, path.string()};
}

inline std::string headline(const FlightDiagnosis& found) {
  switch (found.verdict) {
    case FlightVerdict::ends:
      return found.culprits.empty() ? "no hang: every recorded call has its counterparts"
                                    : "no hang: every recorded call has its counterparts, and a rank is late";
    case FlightVerdict::deadlock:
      return "deadlock: calls wait for each other in a cycle";
    case FlightVerdict::likely_deadlock:
      return "likely deadlock: run one by one in the order of launch, calls wait for each other in a cycle "
             "(which of them have started was not recorded: TORCH_NCCL_ENABLE_TIMING=1)";
    case FlightVerdict::mismatch:
      return "mismatch: calls that meet differ";
    case FlightVerdict::missing:
      return "missing: a rank does not make a call that others wait for";
    case FlightVerdict::stuck:
      return "stuck: the order of calls is right, and one does not end: look at the network and the devices of its ranks";
    case FlightVerdict::not_recorded:
      return "not recorded: what was recorded is in order, and the job may hang in what was not";
    case FlightVerdict::undecided:
      return "undecided: a rank has no dump, and may be the cause";
  }
  return "";
}

}  // namespace detail

/// The dumps by rank; a folder stands for all files in it. @throws InputError  for a name that does
/// not end in a rank, and an empty folder
inline std::vector<std::pair<std::int32_t, std::string>> dump_files(const std::vector<std::string>& paths) {
  std::vector<std::pair<std::int32_t, std::string>> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!std::filesystem::is_directory(path, error)) {
      files.push_back(detail::dump_with_rank(path));
      continue;
    }
    const std::size_t before = files.size();
    for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
      const bool hidden = entry.path().filename().string().starts_with('.');
      if (entry.is_regular_file(error) && !hidden) files.push_back(detail::dump_with_rank(entry.path()));
    }
    if (files.size() == before) throw InputError(concat("folder ", quote(path), " holds no dump"));
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// A page of text. @param dumps  number of dumps read
inline std::string diagnosis_text(const FlightDiagnosis& found, std::size_t dumps) {
  std::string text = fmt::format("{} dumps\n{}\n", dumps, detail::headline(found));
  if (!found.note.empty()) text += fmt::format("  {}\n", found.note);
  constexpr std::size_t most = 24;  // lines of a kind, so that it fits a page
  const auto cut = [&](std::size_t i, std::size_t size) {
    if (i == most) text += fmt::format("  and {} more (--json shows all)\n", size - most);
    return i >= most;
  };
  for (std::size_t i = 0; i < found.circle.size() && !cut(i, found.circle.size()); ++i) {
    text += fmt::format("  {}\n", found.circle[i]);
  }
  if (!found.culprits.empty()) text += "\nculprits\n";
  for (std::size_t i = 0; i < found.culprits.size() && !cut(i, found.culprits.size()); ++i) {
    const FlightCulprit& one = found.culprits[i];
    const std::string call = one.call.empty() ? "" : fmt::format(", {}, {}", one.group, one.call);
    text += fmt::format("  rank {}{}: {}{}\n", one.rank, call, one.why, one.at.empty() ? "" : fmt::format("; {}", one.at));
  }
  if (!found.waits.empty()) text += "\nwaiting\n";
  std::vector<std::pair<std::string, std::set<std::int32_t>>> alike;
  for (const FlightWait& wait : found.waits) {
    const auto same = std::find_if(alike.begin(), alike.end(), [&](const auto& one) { return one.first == wait.text; });
    (same != alike.end() ? *same : alike.emplace_back(wait.text, std::set<std::int32_t>{})).second.insert(wait.rank);
  }
  for (std::size_t i = 0; i < alike.size() && !cut(i, alike.size()); ++i) {
    text += fmt::format("  {} {}: {}\n", alike[i].second.size() == 1 ? "rank" : "ranks", rank_ranges(alike[i].second),
                        alike[i].first);
  }
  return text;
}

/// The same for programs.
inline nlohmann::ordered_json to_json(const FlightDiagnosis& found, std::size_t dumps) {
  nlohmann::ordered_json json;
  json["dumps"] = dumps;
  json["verdict"] = name(found.verdict);
  json["note"] = found.note;
  json["culprits"] = nlohmann::ordered_json::array();
  for (const FlightCulprit& one : found.culprits) {
    json["culprits"].push_back({{"rank", one.rank}, {"group", one.group}, {"call", one.call}, {"why", one.why}, {"at", one.at}});
  }
  json["cycle"] = found.circle;
  json["waits"] = nlohmann::ordered_json::array();
  for (const FlightWait& one : found.waits) json["waits"].push_back({{"rank", one.rank}, {"for", one.text}, {"on", one.on}});
  return json;
}

}  // namespace tawpipe
