// All schedules by name, with their options as text: what the command line, files and sweeps build from.
// Not: the builders (schedule/schedules/).
#pragma once

#include <charconv>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/core/parse_units.hpp"
#include "tawpipe/schedule/schedules/fully_sharded.hpp"
#include "tawpipe/schedule/schedules/gpipe.hpp"
#include "tawpipe/schedule/schedules/one_f_one_b.hpp"
#include "tawpipe/schedule/schedules/tawpipe.hpp"
#include "tawpipe/schedule/schedules/weipipe.hpp"

namespace tawpipe {

/// Options as a user writes them: `{"order", "paper"}`.
using ScheduleOptions = std::map<std::string, std::string>;

/// What a schedule is built for. The ranks are those of `nodes`.
struct ScheduleRequest {
  Workload workload;
  DeviceGroups nodes;  ///< the ranks of each node
  ScheduleOptions options;
  Bytes device_memory{};  ///< of the smallest device; 0 where memory is not counted
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
      throw InputError(concat("option groups=", count, " of ", schedule_, ": there are only ", nodes.ranks(), " ranks"));
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

inline Schedule build_tawpipe(const ScheduleRequest& request, OptionReader& options) {
  const schedules::TawpipeOptions chosen{.order = options.order(schedules::Order::eager),
                                         .overlap = options.on("overlap", true),
                                         .buffers = options.count("buffers", 1, 2),
                                         .shards = options.count("shards", 1, 0),
                                         .cache = options.node_cache(),
                                         .device_memory = request.device_memory};
  const DeviceGroups groups = options.groups("groups", request.nodes);
  options.finish();
  return schedules::tawpipe(request.workload, groups, chosen);
}

inline Schedule build_weipipe(const ScheduleRequest& request, OptionReader& options) {
  // Fixed times are for checking closed forms, which are those of the drawn turns.
  const schedules::Order standard = request.workload.is_abstract() ? schedules::Order::paper : schedules::Order::eager;
  const schedules::WeipipeOptions chosen{.order = options.order(standard), .overlap = options.on("overlap", true)};
  options.finish();
  return schedules::weipipe(request.workload, request.nodes.ranks(), chosen);
}

inline Schedule build_fsdp(const ScheduleRequest& request, OptionReader& options) {
  const schedules::FullyShardedOptions chosen{
      .two_level = options.choice("collectives", {"flat", "two-level"}, "flat") == "two-level",
      .prefetch = options.count("prefetch", 0, 0),
      .reshard = options.on("reshard", true),
      .overlap = options.on("overlap", true)};
  options.finish();
  return schedules::fully_sharded(request.workload, request.nodes, chosen);
}

/// Megatron-LM's sends and receives hold the compute stream unless asked otherwise; closed forms let them overlap.
inline bool pipeline_overlap(const ScheduleRequest& request, OptionReader& options) {
  return options.on("overlap", request.workload.is_abstract());
}

inline Schedule build_gpipe(const ScheduleRequest& request, OptionReader& options) {
  const schedules::PipelineOptions chosen{.overlap = pipeline_overlap(request, options)};
  options.finish();
  return schedules::gpipe(request.workload, request.nodes.ranks(), chosen);
}

inline Schedule build_one_f_one_b(const ScheduleRequest& request, OptionReader& options) {
  const schedules::PipelineOptions chosen{.overlap = pipeline_overlap(request, options)};
  options.finish();
  return schedules::one_f_one_b(request.workload, request.nodes.ranks(), chosen);
}

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

/// Every schedule there is.
inline const std::vector<ScheduleInfo>& catalogue() {
  static const OptionInfo overlap{"overlap", "on|off", "on", "off: communication takes the compute lane's time"};
  static const OptionInfo blocking{"overlap", "on|off", "off (on with fixed times)",
                                   "off: sends and receives hold the compute lane, as in Megatron-LM by default"};
  static const std::vector<ScheduleInfo> all{
      {"tawpipe",
       "weights move: one shard a device for good, broadcast in the node, sent once to each other node",
       "arXiv:2511.09741",
       {{"order", "eager|paper", "eager", "each task when its inputs are there, or the turns as the paper draws them"},
        {"groups", "nodes|flat|N", "nodes", "what shares a broadcast: each node, all devices, or N equal groups"},
        overlap,
        {"buffers", "N", "2", "shards a device can hold beside its own"},
        {"shards", "N", "one a device", "pieces the model is cut into"},
        {"node-cache", "N|SIZE|all|auto", "0",
         "shards of other nodes kept once fetched: how many, how much a device, or what fits"}},
       {},
       detail::build_tawpipe},
      {"weipipe",
       "weights move: forward weights, backward weights and gradients go round a ring (interleaved, correct form)",
       "WeiPipe, PPoPP 2025",
       {{"order", "eager|paper", "eager (paper with fixed times)", "each task when its inputs are there, or lock-step turns"},
        overlap},
       {},
       detail::build_weipipe},
      {"fsdp",
       "data parallel, everything sharded (ZeRO-3): each layer gathered before use, its gradient scattered after",
       "arXiv:1910.02054, arXiv:2304.11277",
       {{"collectives", "flat|two-level", "flat", "one ring over all devices, or between nodes first and then inside"},
        {"prefetch", "N", "0", "layers gathered ahead of the one computed; 0 gathers when needed"},
        {"reshard", "on|off", "on", "off: keep a layer from its forward to its backward"},
        overlap},
       {{"prefetch", "1"}},
       detail::build_fsdp},
      {"1f1b",
       "activations move: a pipeline that alternates one forward and one backward",
       "arXiv:2104.04473",
       {blocking},
       {{"overlap", "on"}},
       detail::build_one_f_one_b},
      {"gpipe",
       "activations move: all forwards, then all backwards",
       "arXiv:1811.06965",
       {blocking},
       {{"overlap", "on"}},
       detail::build_gpipe},
  };
  return all;
}

/// The schedule of that name. @throws InputError  naming the nearest if there is none.
inline const ScheduleInfo& schedule_info(std::string_view name) {
  std::vector<std::string> names;
  for (const auto& info : catalogue()) {
    if (info.name == name) return info;
    names.push_back(info.name);
  }
  throw InputError(unknown_name("schedule", name, names));
}

/// Builds the schedule of that name.
/// @throws InputError  for an unknown name or option, or a size that the schedule cannot have.
inline Schedule build_schedule(std::string_view name, const ScheduleRequest& request) {
  const ScheduleInfo& info = schedule_info(name);
  // Each rank or stage meets each microbatch in each direction; beyond 2^28 such tasks the graph does not fit common memory.
  const double stages =
      request.workload.is_abstract() ? request.nodes.ranks() : std::max(request.nodes.ranks(), request.workload.model().layers);
  const double tasks = 2.0 * stages * static_cast<double>(request.workload.microbatches());
  if (tasks > 268435456.0) {
    throw InputError(concat("a ", name, " iteration of ", request.workload.microbatches(), " microbatches on ",
                            request.nodes.ranks(),
                            " ranks has more than 2^28 tasks; choose a larger microbatch size or a smaller batch"));
  }
  detail::OptionReader options{info.name, request.options};
  return info.make(request, options);
}

}  // namespace tawpipe
