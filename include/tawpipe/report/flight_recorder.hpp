// Dumps of PyTorch's flight recorder, as JSON or as pickle, joined into one record.
// Not: their analysis (verify/flight_record.hpp).
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
  /// @throws InputError  in one line, if it is not a dump, or the rank already has one.
  void add(std::int32_t rank, std::string_view bytes, std::string_view source) {
    const JsonDocument document = parse(bytes, source);
    for (const FlightDump& dump : record_.dumps) {
      if (dump.rank == rank) document.root().fail(concat("rank ", rank, " has a dump already"));
    }
    read(rank, document.root());
  }

  FlightRecord take() {
    // The default group has all ranks; for another that no dump lists, only the ranks that called
    // it are known.
    for (const auto& [key, unlisted] : unlisted_) {
      auto& ranks = record_.groups[static_cast<std::size_t>(unlisted)].ranks;
      if (key.second == "default_pg") {
        ranks.clear();
        for (const FlightDump& dump : record_.dumps) ranks.push_back(dump.rank);
      }
      std::sort(ranks.begin(), ranks.end());
    }
    return std::move(record_);
  }

 private:
  using Value = JsonValue;

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
    groups_of_dump_.clear();
    for (const auto& [key, group] : root.at("pg_config").members()) read_group(key, group);
    FlightDump dump;
    dump.rank = rank;
    if (const auto entries = root.find("entries")) {
      const auto id = entries->size() > 0 ? (*entries)[0].find("record_id") : std::nullopt;
      if (id) dump.whole = id->is_number() && id->number() == 0;
      for (const Value entry : *entries) read_entry(rank, entry, dump.calls);
    }
    record_.dumps.push_back(std::move(dump));
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
    groups_of_dump_[group.name.empty() ? key : group.name] = at->second;
    if (added) record_.groups.push_back(std::move(group));
  }

  static std::string text(const Value& value, std::string_view key) {
    const auto found = value.find(key);
    return found && found->is_text() ? found->text() : "";
  }
  static std::int64_t number(const Value& value, std::string_view key) {
    const auto found = value.find(key);
    return found ? found->whole<std::int64_t>(0, std::int64_t{1} << 60) : 0;
  }

  void read_entry(std::int32_t rank, const Value& entry, std::vector<FlightCall>& calls) {
    FlightCall call;
    const Value group = entry.at("process_group");
    if (group.size() < 1) group.fail("expected a name and a description");
    const std::string group_name = one_line(group[0].text());
    const bool gloo = text(entry, "profiling_name").starts_with("gloo:");
    const auto found = groups_of_dump_.find(group_name);
    if (found != groups_of_dump_.end()) {
      call.group = found->second;
    } else if (gloo) {
      call.group = unlisted_group(rank, group_name, group.size() > 1 ? one_line(group[1].text()) : "");
    } else {
      group.fail(concat("there is no group ", quote(group_name.substr(0, 40)), " in pg_config"));
    }
    const std::string state = gloo ? gloo_state(entry) : text(entry, "state");
    call.state = state == "completed" ? FlightState::completed
                 : state == "started" ? FlightState::started
                                      : FlightState::scheduled;
    const auto is_p2p = entry.find("is_p2p");
    const bool point_to_point = is_p2p && is_p2p->boolean();
    call.number = number(entry, point_to_point ? "p2p_seq_id" : "collective_seq_id");
    read_name(entry.at("profiling_name"), rank, call);
    if (call.kind == "coalesced") {  // closes a batch, and only it has the batch's state
      for (std::size_t i = calls.size(); i-- > 0;) {
        if (calls[i].group != call.group || calls[i].number != call.number || calls[i].is_point_to_point() != point_to_point)
          break;
        calls[i].state = call.state;
      }
      return;
    }
    call.elements = elements(entry);
    const auto types = entry.find("input_dtypes");
    if (types && types->is_list() && types->size() > 0 && (*types)[0].is_text()) call.type = one_line((*types)[0].text());
    calls.push_back(std::move(call));
  }

  /// Gloo's recorder does not see a device: a call that has ended is retired, and stays
  /// "scheduled".
  static std::string gloo_state(const Value& entry) {
    const auto retired = entry.find("retired");
    return retired && retired->boolean() ? "completed" : text(entry, "state");
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
    std::string_view name = value.text();
    if (const auto colon = name.find(':'); colon != std::string_view::npos) name.remove_prefix(colon + 1);
    const auto blank = name.find(' ');
    std::string kind = one_line(std::string{name.substr(0, std::min<std::size_t>(std::min(blank, name.size()), 60))});
    if (kind.starts_with('_')) kind.erase(0, 1);
    for (const std::string_view end : {"_base", "_coalesced", "_tensor"}) {
      if (kind.ends_with(end)) kind.erase(kind.size() - end.size());
    }
    if (kind == "alltoall") kind = "all_to_all";
    call.kind = std::move(kind);
    if (call.kind != "send" && call.kind != "recv") return;
    const auto& ranks = record_.groups[static_cast<std::size_t>(call.group)].ranks;
    const auto other = name.find_last_not_of("0123456789");
    const auto place = to_number<std::size_t>(name.substr(other == std::string_view::npos ? 0 : other + 1));
    if (!place || *place >= ranks.size()) {
      value.fail(concat("expected a rank of the group, such as nccl:send 0->1, not ", quote(name.substr(0, 40))));
    }
    call.peer = ranks[*place];
    if (call.peer == rank) value.fail("a rank sends to itself");
  }

  static std::int64_t elements(const Value& entry) {
    std::int64_t sum = 0;
    const auto sizes = entry.find("input_sizes");
    if (!sizes || !sizes->is_list()) return sum;
    for (const Value tensor : *sizes) {
      std::int64_t product = 1;
      for (const Value axis : tensor) {
        const auto size = axis.whole<std::int64_t>(0, max_elements);
        if (size > 0 && product > max_elements / size) axis.fail(concat("a tensor has more than ", max_elements, " elements"));
        product *= size;
      }
      sum = std::min(max_elements, sum + product);
    }
    return sum;
  }

  static constexpr std::int32_t max_ranks = 1 << 20;
  static constexpr std::int64_t max_elements = std::int64_t{1} << 50;

  FlightRecord record_;
  std::map<std::pair<std::string, std::vector<std::int32_t>>, std::int32_t> groups_;
  /// by name and description
  std::map<std::pair<std::string, std::string>, std::int32_t> unlisted_;
  /// by the name in the current dump
  std::map<std::string, std::int32_t> groups_of_dump_;
};

}  // namespace tawpipe
