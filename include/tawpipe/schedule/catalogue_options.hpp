// What the catalogue's entries are made of: requests, options as text, descriptions.
// Not: the entries (schedule/shipped.hpp, catalogue_pipelines.hpp).
#pragma once

#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/parse_units.hpp"
#include "tawpipe/schedule/schedules/common.hpp"
#include "tawpipe/schedule/schedules/tawpipe.hpp"

namespace tawpipe::inline v0 {

/// Options as a user writes them: `{"order", "paper"}`.
using ScheduleOptions = std::map<std::string, std::string>;

/// What a schedule is built for. The ranks are those of `nodes`.
struct ScheduleRequest {
  Workload workload;
  DeviceGroups nodes;  ///< the ranks of each node
  ScheduleOptions options;
  Bytes device_memory{};         ///< of the smallest device; 0 where memory is not counted
  std::vector<double> speeds{};  ///< [rank] of its device beside others'; empty where they are not known
  bool own_adapters = false;     ///< every device has a network adapter that its node's other devices do not use
};

namespace detail {

/// Reads options, and finds fault with those that nothing reads.
class OptionReader {
 public:
  OptionReader(std::string_view schedule, const ScheduleOptions& options) : schedule_{schedule}, options_{options} {}

  std::string choice(const std::string& key, const std::vector<std::string>& values, std::string otherwise) {
    known_.push_back(key);
    const auto at = options_.find(key);
    if (at == options_.end()) return otherwise;
    for (const auto& value : values) {
      if (at->second == value) return value;
    }
    throw InputError(
        concat("option ", key, "=", at->second, " of ", schedule_, ": the value must be one of ", join(values, ", ")));
  }
  std::string text(const std::string& key, std::string otherwise) {
    known_.push_back(key);
    const auto at = options_.find(key);
    return at == options_.end() ? std::move(otherwise) : at->second;
  }
  bool on(const std::string& key, bool otherwise) { return choice(key, {"on", "off"}, otherwise ? "on" : "off") == "on"; }
  int count(const std::string& key, int least, int otherwise) {
    known_.push_back(key);
    const auto at = options_.find(key);
    return at == options_.end() ? otherwise : parse_count(key, at->second, least);
  }
  /// `nodes`, `flat` (one group of all ranks) or a number of equal groups.
  DeviceGroups groups(const std::string& key, const DeviceGroups& nodes) {
    known_.push_back(key);
    const auto at = options_.find(key);
    if (at == options_.end() || at->second == "nodes") return nodes;
    if (at->second == "flat") return DeviceGroups::even(nodes.ranks(), 1);
    const int count = parse_count(key, at->second, 1);
    if (count > nodes.ranks()) {
      throw InputError(concat("option ", key, "=", count, " of ", schedule_, ": there are only ", nodes.ranks(), " ranks"));
    }
    return DeviceGroups::even(nodes.ranks(), count);
  }
  /// A number of shards, a size a device, `all`, or `auto` (what fits).
  schedules::NodeCache node_cache() {
    known_.push_back("node-cache");
    const auto at = options_.find("node-cache");
    if (at == options_.end()) return {};
    const std::string& value = at->second;
    using Limit = schedules::NodeCache::Limit;
    if (value == "all") return {.limit = Limit::all};
    if (value == "auto") return {.limit = Limit::fit};
    if (value.find_first_not_of("0123456789") == std::string::npos) return {.shards = parse_count("node-cache", value, 0)};
    try {
      return {.limit = Limit::bytes, .bytes = parse_bytes(value)};
    } catch (const InputError&) {
      throw InputError(concat("option node-cache=", value, " of ", schedule_,
                              ": the value must be a number of shards, a size a device such as 4GiB, all, or auto"));
    }
  }
  /// `equal` (none), `auto` (those of the request) or numbers such as 1+2.
  std::vector<double> speeds(const std::vector<double>& known) {
    known_.push_back("speeds");
    const auto at = options_.find("speeds");
    if (at == options_.end() || at->second == "equal") return {};
    if (at->second == "auto") return known;
    std::vector<double> speeds;
    const char* next = at->second.data();
    const char* const end = next + at->second.size();
    while (next != nullptr) {
      double speed = 0;
      const auto [rest, status] = std::from_chars(next, end, speed);
      if (status != std::errc{} || !(speed > 0) || (rest != end && *rest != '+')) {
        throw InputError(concat("option speeds=", at->second, " of ", schedule_,
                                ": the value must be equal, auto, or a number above zero for each group or rank, such as 1+2"));
      }
      speeds.push_back(speed);
      next = rest == end ? nullptr : rest + 1;
    }
    return speeds;
  }
  schedules::Order order(schedules::Order otherwise) {
    return choice("order", {"eager", "paper"}, schedules::detail::text(otherwise)) == "paper" ? schedules::Order::paper
                                                                                              : schedules::Order::eager;
  }
  /// @throws InputError  if an option was given that the schedule does not have.
  void finish() const {
    for (const auto& [key, value] : options_) {
      if (std::find(known_.begin(), known_.end(), key) == known_.end()) {
        throw InputError(unknown_name(concat("option of ", schedule_), key, known_));
      }
    }
  }

 private:
  int parse_count(const std::string& key, const std::string& value, int least) const {
    int number = 0;
    const auto [end, status] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (status != std::errc{} || end != value.data() + value.size() || number < least) {
      throw InputError(
          concat("option ", key, "=", value, " of ", schedule_, ": the value must be a whole number, ", least, " or more"));
    }
    return number;
  }

  std::string_view schedule_;
  const ScheduleOptions& options_;
  std::vector<std::string> known_;
};

}  // namespace detail

/// An option as a list of schedules shows it.
struct OptionInfo {
  std::string name;
  std::string values;
  std::string standard;  ///< its value where none is given
  std::string meaning;
};

/// A schedule as the catalogue knows it.
struct ScheduleInfo {
  std::string name;
  std::string description;
  std::string source;
  std::vector<OptionInfo> options;
  /// What lets communication overlap computation where the standard, the form in which it is used as a baseline, does not.
  ScheduleOptions overlapped;
  Schedule (*make)(const ScheduleRequest&, detail::OptionReader&);
};

}  // namespace tawpipe
