// Dumps of PyTorch's flight recorder, as JSON or as pickle, joined into one record.
// Not: their analysis (verify/diagnose.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/json/json_reader.hpp"
#include "tawpipe/report/pickle.hpp"
#include "tawpipe/verify/flight_record.hpp"

namespace tawpipe::inline v0 {

/// Collects dumps rank by rank. Only the fields of each call that the diagnosis needs are kept.
class FlightRecorderReader {
 public:
  /// @param bytes  a dump; @param source  its file's name, for messages
  /// @throws InputError  in one line, if it is not a dump, its format is not known, or the rank
  /// already has one.
  void add(std::int32_t rank, std::string_view bytes, std::string_view source) {
    const JsonDocument document = parse(bytes, source);
    for (const FlightDump& dump : record_.dumps) {
      if (dump.rank == rank) document.root().fail(concat("rank ", rank, " has a dump already"));
    }
    read(rank, document.root());
  }

  FlightRecord take() {
    // The default group has all ranks that are known from anywhere; for another that no dump lists,
    // only the ranks that called it are known.
    std::int32_t ranks = 0;
    for (const FlightDump& dump : record_.dumps) ranks = std::max(ranks, dump.rank + 1);
    for (const FlightGroup& group : record_.groups) {
      for (const std::int32_t rank : group.ranks) ranks = std::max(ranks, rank + 1);
    }
    for (const auto& [key, unlisted] : unlisted_) {
      auto& members = record_.groups[static_cast<std::size_t>(unlisted)].ranks;
      if (key.second == "default_pg") {
        members.clear();
        for (std::int32_t rank = 0; rank < ranks; ++rank) members.push_back(rank);
      }
      std::sort(members.begin(), members.end());
    }
    return std::move(record_);
  }

 private:
  using Value = JsonValue;

  /// The numbers of one group's calls so far in the current dump.
  struct Counter {
    std::int64_t collective = -1;   ///< the last collective_seq_id; -1: none so far
    std::int64_t batches = 0;       ///< of sends and receives that collective_seq_id counted
    std::int64_t launch = 0;        ///< the last number of a batch
    std::int64_t last_number = -1;  ///< of a collective
    std::int32_t order = 0;
  };

  static JsonDocument parse(std::string_view bytes, std::string_view source) {
    if (!is_pickle(bytes)) return JsonDocument{bytes, source};
    try {
      return JsonDocument{JsonTree{parse_pickle(bytes)}, source};
    } catch (const InputError& error) {
      throw InputError(one_line(concat(source, ": ", error.what())));
    }
  }

  void read(std::int32_t rank, const Value& root) {
    if (!root.is_object() || !root.has("pg_config")) {
      root.fail("expected a dump of PyTorch's flight recorder, with pg_config and entries");
    }
    check_version(root);
    groups_of_dump_.clear();
    counters_.clear();
    batches_ = 0;
    whole_ = true;
    for (const auto& [key, group] : root.at("pg_config").members()) read_group(key, group);
    FlightDump dump;
    dump.rank = rank;
    const auto entries = root.find("entries");
    if (entries) {
      const auto id = entries->size() > 0 ? (*entries)[0].find("record_id") : std::nullopt;
      if (id) whole_ = dump.whole = id->is_number() && id->number() == 0;
      for (const Value entry : *entries) read_entry(entry, dump);
    }
    if (!entries || entries->size() == 0) dump.recorded = !has_enqueued(root);
    record_.dumps.push_back(std::move(dump));
  }

  /// PyTorch raises the major number when fields change their meaning, the minor one when some are
  /// added (FlightRecorder.hpp).
  static void check_version(const Value& root) {
    const auto stated = root.find("version");
    const std::string shown = stated && stated->is_text() ? one_line(stated->text().substr(0, 20)) : "";
    if (shown == "2" || shown.starts_with("2.")) return;
    root.fail(concat(shown.empty() ? std::string{"it names no version"} : concat("version ", quote(shown), " is not known"),
                     "; dumps of version 2.0 to 2.x are (PyTorch 2.4 on), and the meaning of others is not guessed"));
  }

  /// Whether the process groups of a dump without calls count some, so that the recorder was off.
  static bool has_enqueued(const Value& root) {
    const auto groups = root.find("pg_status");
    if (!groups || !groups->is_object()) return false;
    for (const auto& [key, status] : groups->members()) {
      const auto last = status.is_object() ? status.find("last_enqueued_collective") : std::nullopt;
      if (!last) continue;
      const auto count = last->is_text() ? to_number<std::int64_t>(last->text()) : std::optional{last->whole<std::int64_t>(-1)};
      if (count && *count > 0) return true;
    }
    return false;
  }

  void read_group(const std::string& key, const Value& value) {
    FlightGroup group;
    group.name = one_line(text(value, "name"));
    group.description = one_line(text(value, "desc"));
    const Value ranks = value.at("ranks");
    for (std::string_view left = ranks.text();;) {  // "[0, 1]"
      left.remove_prefix(std::min(left.find_first_of("0123456789"), left.size()));
      if (left.empty()) break;
      const auto rank = take_number<std::int32_t>(left);
      if (!rank || *rank > max_ranks) ranks.fail(concat("a rank is larger than ", max_ranks));
      group.ranks.push_back(*rank);
    }
    const auto [at, added] = groups_.try_emplace({group.name, group.ranks}, static_cast<std::int32_t>(record_.groups.size()));
    if (!group.ranks.empty()) groups_of_dump_[group.name.empty() ? key : group.name] = at->second;
    if (added) record_.groups.push_back(std::move(group));
  }

  static std::string text(const Value& value, std::string_view key) {
    const auto found = value.find(key);
    return found && found->is_text() ? found->text() : "";
  }
  /// 0 if the key is absent or null, as a pickle has times that are not known.
  static std::int64_t number(const Value& value, std::string_view key) {
    const auto found = value.find_given(key);
    return found ? found->whole<std::int64_t>(0, std::int64_t{1} << 62) : 0;
  }
  static bool flag(const Value& value, std::string_view key) {
    const auto found = value.find(key);
    return found && found->boolean();
  }

  void read_entry(const Value& entry, FlightDump& dump) {
    FlightCall call;
    const Value group = entry.at("process_group");
    if (group.size() < 1) group.fail("expected a name and a description");
    const std::string group_name = one_line(group[0].text());
    const std::string profiling_name = text(entry, "profiling_name");
    // Without events of a device a call that has returned is retired, and stays "scheduled":
    // ProcessGroupGloo, and FlightRecorderHook of releases that call every back end c10d.
    const bool host_only = profiling_name.starts_with("gloo:") || profiling_name.starts_with("c10d:");
    const auto found = groups_of_dump_.find(group_name);
    if (found != groups_of_dump_.end()) {
      call.group = found->second;
    } else if (host_only) {
      call.group = unlisted_group(dump.rank, group_name, group.size() > 1 ? one_line(group[1].text()) : "");
    } else {
      group.fail(concat("there is no group ", quote(group_name.substr(0, 40)), " in pg_config"));
    }
    FlightGroup& whose = record_.groups[static_cast<std::size_t>(call.group)];
    whose.host_only = whose.host_only || host_only;
    read_progress(entry, host_only, call, dump);
    read_name(entry.at("profiling_name"), dump.rank, call);
    const bool point_to_point = call.is_point_to_point() || flag(entry, "is_p2p");
    Counter& counter = counters_[call.group];
    const std::int64_t collective = number(entry, entry.has("collective_seq_id") ? "collective_seq_id" : "seq_id");
    const std::int64_t launch = number(entry, "p2p_seq_id");
    if (call.kind == "coalesced") {
      close_batch(call, point_to_point, collective, launch, dump.calls);
      counter.collective = std::max(counter.collective, collective);
      return;
    }
    call.number = point_to_point ? launch : collective - counter.batches;
    if (!point_to_point) {
      counter.order = call.number == counter.last_number ? counter.order + 1 : 0;
      counter.last_number = call.number;
      call.order = counter.order;
      counter.collective = std::max(counter.collective, collective);
    }
    raw_.resize(dump.calls.size());
    raw_.emplace_back(collective, launch);
    read_sizes(entry, whose.ranks.size(), call);
    call.place = place(entry);
    dump.calls.push_back(std::move(call));
  }

  static void read_progress(const Value& entry, bool host_only, FlightCall& call, FlightDump& dump) {
    const std::string state = text(entry, "state");
    const bool retired = flag(entry, "retired");
    call.state = state == "completed" || (host_only && retired) ? FlightState::completed
                 : state == "started"                           ? FlightState::started
                                                                : FlightState::scheduled;
    call.gave_up = retired && call.is_open();  // "a retired but not completed event has timed out" (FlightRecorder.hpp)
    call.created = number(entry, "time_created_ns");
    call.limit = std::min(number(entry, "timeout_ms"), max_limit_ms) * 1'000'000;
    const std::int64_t started = number(entry, "time_discovered_started_ns");
    dump.timed = dump.timed || started > 0 || call.state == FlightState::started;
    dump.latest = std::max({dump.latest, call.created, started, number(entry, "time_discovered_completed_ns"),
                            call.gave_up && call.created > 0 ? call.created + call.limit : 0});
  }

  /// "coalesced" closes a batch, and only it has the batch's progress. ProcessGroupNCCL counts a
  /// batch of sends and receives in collective_seq_id on the ranks that take part in it, and leaves
  /// p2p_seq_id.
  void close_batch(const FlightCall& closes, bool point_to_point, std::int64_t collective, std::int64_t launch,
                   std::vector<FlightCall>& calls) {
    Counter& counter = counters_[closes.group];
    std::size_t begin = calls.size();
    while (begin > 0) {
      const FlightCall& one = calls[begin - 1];
      const bool same = one.group == closes.group && one.is_point_to_point() == point_to_point && one.batch < 0 &&
                        raw_[begin - 1] == std::pair{collective, launch};
      if (!same) break;
      --begin;
    }
    if (begin == calls.size()) return;
    const std::int64_t before = counter.collective < 0 && !whole_ ? collective : std::max<std::int64_t>(0, counter.collective);
    if (point_to_point && collective > before) ++counter.batches;
    if (point_to_point) counter.launch = std::max(launch, counter.launch + 1);
    for (std::size_t i = begin; i < calls.size(); ++i) {
      calls[i].state = closes.state;
      calls[i].gave_up = closes.gave_up;
      if (!point_to_point) continue;
      calls[i].batch = batches_;
      calls[i].number = counter.launch;
    }
    ++batches_;
  }

  /// Gloo's dumps do not list the groups by their names.
  std::int32_t unlisted_group(std::int32_t rank, const std::string& name, const std::string& description) {
    const auto [at, added] = unlisted_.try_emplace({name, description}, static_cast<std::int32_t>(record_.groups.size()));
    if (added) record_.groups.push_back({.name = name, .description = description, .ranks = {}});
    auto& ranks = record_.groups[static_cast<std::size_t>(at->second)].ranks;
    if (ranks.empty() || ranks.back() != rank) ranks.push_back(rank);
    return at->second;
  }

  /// "nccl:all_reduce", "nccl:_all_gather_base", "nccl:send 0->1", "nccl:recv 1<-0" (ranks of the
  /// group).
  void read_name(const Value& value, std::int32_t rank, FlightCall& call) const {
    const std::string whole = value.text();
    std::string_view name = whole;
    if (const auto colon = name.find(':'); colon != std::string_view::npos) name.remove_prefix(colon + 1);
    const auto blank = name.find(' ');
    std::string kind = one_line(std::string{name.substr(0, std::min<std::size_t>(std::min(blank, name.size()), 60))});
    if (kind.starts_with('_')) kind.erase(0, 1);
    for (const std::string_view end : {"_base", "_single", "_coalesced", "_tensor", "_into"}) {
      if (kind.ends_with(end)) kind.erase(kind.size() - end.size());
    }
    constexpr std::pair<std::string_view, std::string_view> spellings[]{
        {"alltoall", "all_to_all"}, {"allreduce", "all_reduce"}, {"allgather", "all_gather"}};
    for (const auto& [spelling, usual] : spellings) {
      if (kind == spelling) kind = usual;
    }
    call.kind = std::move(kind);
    if (call.kind != "send" && call.kind != "recv") return;
    if (name.ends_with("<-?")) value.fail("a receive from any rank has no peer recorded, and cannot be matched with a send");
    const auto& ranks = record_.groups[static_cast<std::size_t>(call.group)].ranks;
    const auto other = name.find_last_not_of("0123456789");
    const auto place = to_number<std::size_t>(name.substr(other == std::string_view::npos ? 0 : other + 1));
    if (!place || *place >= ranks.size()) {
      value.fail(concat("expected a rank of the group, such as nccl:send 0->1, not ", quote(name.substr(0, 40))));
    }
    call.peer = ranks[*place];
    if (call.peer == rank) value.fail("a rank sends to itself");
  }

  static void read_sizes(const Value& entry, std::size_t ranks, FlightCall& call) {
    const std::vector<std::int64_t> inputs = elements(entry, "input_sizes");
    const std::vector<std::int64_t> outputs = elements(entry, "output_sizes");
    for (const std::int64_t size : inputs) call.elements = std::min(max_elements, call.elements + size);
    for (const std::int64_t size : outputs) call.outputs = std::min(max_elements, call.outputs + size);
    if (call.kind == "all_to_all" && ranks > 1 && inputs.size() == ranks && outputs.size() == ranks) {
      call.pairs = inputs;
      call.pairs.insert(call.pairs.end(), outputs.begin(), outputs.end());
    }
    const auto types = entry.find("input_dtypes");
    if (types && types->is_list() && types->size() > 0 && (*types)[0].is_text()) call.type = one_line((*types)[0].text());
  }

  /// Of each tensor.
  static std::vector<std::int64_t> elements(const Value& entry, std::string_view key) {
    std::vector<std::int64_t> all;
    const auto sizes = entry.find(key);
    if (!sizes || !sizes->is_list()) return all;
    for (const Value tensor : *sizes) {
      std::int64_t product = 1;
      for (const Value axis : tensor) {
        const auto size = axis.whole<std::int64_t>(0, max_elements);
        if (size > 0 && product > max_elements / size) axis.fail(concat("a tensor has more than ", max_elements, " elements"));
        product *= size;
      }
      all.push_back(product);
    }
    return all;
  }

  static bool is_of_pytorch(const std::string& file) {
    for (const std::string_view part :
         {"-packages/torch/", "/torch/distributed/", "/torch/nn/", "/torch/autograd/", "/torch/utils/", "/torch/_"}) {
      if (file.find(part) != std::string::npos) return true;
    }
    return file.starts_with("torch/");
  }

  /// The innermost frame outside PyTorch itself; -1 if there are no frames, as in JSON.
  std::int32_t place(const Value& entry) {
    const auto frames = entry.find("frames");
    if (!frames || !frames->is_list()) return -1;
    for (const Value frame : *frames) {
      if (!frame.is_object()) continue;
      const std::string file = text(frame, "filename");
      if (!file.ends_with(".py") || is_of_pytorch(file)) continue;
      const std::string function = text(frame, "name");
      std::string shown = one_line(concat(file, ":", number(frame, "line"), function.empty() ? "" : concat(" (", function, ")")));
      const auto [at, added] = places_.try_emplace(std::move(shown), static_cast<std::int32_t>(record_.places.size()));
      if (added) record_.places.push_back(at->first);
      return at->second;
    }
    return -1;
  }

  static constexpr std::int32_t max_ranks = 1 << 20;
  static constexpr std::int64_t max_elements = std::int64_t{1} << 50;
  static constexpr std::int64_t max_limit_ms = std::int64_t{1} << 40;  // 35 years

  FlightRecord record_;
  std::map<std::pair<std::string, std::vector<std::int32_t>>, std::int32_t> groups_;
  /// by name and description
  std::map<std::pair<std::string, std::string>, std::int32_t> unlisted_;
  std::map<std::string, std::int32_t> places_;
  // Of the current dump:
  std::map<std::string, std::int32_t> groups_of_dump_;  ///< by name
  std::map<std::int32_t, Counter> counters_;            ///< by group
  std::int32_t batches_ = 0;
  bool whole_ = true;
  std::vector<std::pair<std::int64_t, std::int64_t>> raw_;  ///< [call] collective_seq_id, p2p_seq_id
};

}  // namespace tawpipe
