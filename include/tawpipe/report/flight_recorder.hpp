// Dumps of PyTorch's flight recorder, as JSON or as pickle, joined into one record.
// Not: what they tell (verify/flight_record.hpp).
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/report/detail/json_reader.hpp"
#include "tawpipe/report/pickle.hpp"
#include "tawpipe/verify/flight_record.hpp"

namespace tawpipe::inline v0 {

/// Collects dumps rank by rank. Of each call only what the diagnosis needs is kept.
class FlightRecorderReader {
 public:
  /// @param bytes  a dump; @param source  its file's name, for messages
  /// @throws InputError  in one line, if it is no dump, or the rank has one already.
  void add(std::int32_t rank, std::string_view bytes, std::string_view source) {
    try {
      for (const FlightDump& dump : record_.dumps) {
        if (dump.rank == rank) throw InputError(concat("rank ", rank, " has a dump already"));
      }
      const nlohmann::json json = is_pickle(bytes) ? parse_pickle(bytes) : detail::parse_json_strictly(bytes);
      const detail::JsonPath path;
      read(rank, detail::JsonValue{json, path});
    } catch (const InputError& error) {
      throw InputError(one_line(concat(source, ": ", error.what())));
    }
  }

  FlightRecord take() { return std::move(record_); }

 private:
  using Value = detail::JsonValue;

  void read(std::int32_t rank, const Value& root) {
    if (!root.json().is_object() || !root.has("pg_config")) {
      root.fail("expected a dump of PyTorch's flight recorder, with pg_config and entries");
    }
    groups_of_dump_.clear();
    root.with("pg_config", [&](const Value& groups) {
      if (!groups.json().is_object()) groups.fail("expected an object of groups");
      for (const auto& item : groups.json().items()) {
        groups.with(item.key(), [&](const Value& group) { read_group(item.key(), group); });
      }
    });
    FlightDump dump;
    dump.rank = rank;
    root.if_has("entries", [&](const Value& entries) {
      entries.for_each([&](const Value& entry, std::size_t i) {
        if (i == 0) entry.if_has("record_id", [&](const Value& id) { dump.whole = id.json() == 0; });
        read_entry(rank, entry, dump.calls);
      });
    });
    record_.dumps.push_back(std::move(dump));
  }

  void read_group(const std::string& key, const Value& value) {
    FlightGroup group;
    group.name = one_line(text(value, "name"));
    group.description = one_line(text(value, "desc"));
    value.with("ranks", [&](const Value& ranks) {
      std::string_view left = ranks.text();  // "[0, 1]"
      while (!left.empty()) {
        const auto digit = left.find_first_of("0123456789");
        if (digit == std::string_view::npos) break;
        left.remove_prefix(digit);
        std::int32_t rank = 0;
        const auto [end, status] = std::from_chars(left.data(), left.data() + left.size(), rank);
        if (status != std::errc{} || rank > most_ranks) ranks.fail(concat("a rank is larger than ", most_ranks));
        group.ranks.push_back(rank);
        left.remove_prefix(static_cast<std::size_t>(end - left.data()));
      }
    });
    const auto [at, added] = groups_.try_emplace({group.name, group.ranks}, static_cast<std::int32_t>(record_.groups.size()));
    groups_of_dump_[group.name.empty() ? key : group.name] = at->second;
    if (added) record_.groups.push_back(std::move(group));
  }

  static std::string text(const Value& value, std::string_view key) {
    std::string found;
    value.if_has(key, [&](const Value& one) {
      if (one.is_text()) found = one.text();
    });
    return found;
  }
  static std::int64_t number(const Value& value, std::string_view key) {
    std::int64_t found = 0;
    value.if_has(key, [&](const Value& one) { found = one.whole(0, std::int64_t{1} << 60); });
    return found;
  }

  void read_entry(std::int32_t rank, const Value& entry, std::vector<FlightCall>& calls) {
    FlightCall call;
    std::string group_name;
    entry.with("process_group", [&](const Value& group) {
      if (group.list_size() < 1) group.fail("expected a name and a description");
      group.for_each([&](const Value& part, std::size_t i) {
        if (i == 0) group_name = one_line(part.text());
      });
      const auto found = groups_of_dump_.find(group_name);
      if (found == groups_of_dump_.end())
        group.fail(concat("there is no group ", quote(group_name.substr(0, 40)), " in pg_config"));
      call.group = found->second;
    });
    const std::string state = text(entry, "state");
    call.state = state == "completed" ? FlightState::completed
                 : state == "started" ? FlightState::started
                                      : FlightState::scheduled;
    bool point_to_point = false;
    entry.if_has("is_p2p", [&](const Value& is) { point_to_point = is.boolean(); });
    call.number = number(entry, point_to_point ? "p2p_seq_id" : "collective_seq_id");
    entry.with("profiling_name", [&](const Value& name) { read_name(name, rank, call); });
    if (call.kind == "coalesced") {  // closes a batch, and alone knows how far it is
      for (std::size_t i = calls.size(); i-- > 0;) {
        if (calls[i].group != call.group || calls[i].number != call.number || calls[i].is_point_to_point() != point_to_point)
          break;
        calls[i].state = call.state;
      }
      return;
    }
    call.elements = elements(entry);
    entry.if_has("input_dtypes", [&](const Value& types) {
      if (!types.is_list()) return;
      types.for_each([&](const Value& type, std::size_t i) {
        if (i == 0 && type.is_text()) call.type = one_line(type.text());
      });
    });
    calls.push_back(std::move(call));
  }

  /// "nccl:all_reduce", "nccl:_all_gather_base", "nccl:send 0->1", "nccl:recv 1<-0" (ranks of the group).
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
    std::size_t place = 0;
    const std::string_view digits = name.substr(other == std::string_view::npos ? 0 : other + 1);
    const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), place);
    if (status != std::errc{} || end == digits.data() || place >= ranks.size()) {
      value.fail(
          concat("expected a rank of the group, such as nccl:send 0->1, not ", quote(one_line(std::string{name.substr(0, 40)}))));
    }
    call.peer = ranks[place];
    if (call.peer == rank) value.fail("a rank sends to itself");
  }

  static std::int64_t elements(const Value& entry) {
    std::int64_t sum = 0;
    entry.if_has("input_sizes", [&](const Value& sizes) {
      if (!sizes.is_list()) return;
      sizes.for_each([&](const Value& tensor, std::size_t) {
        std::int64_t product = 1;
        tensor.for_each([&](const Value& axis, std::size_t) {
          const std::int64_t size = axis.whole(0, most_elements);
          if (size > 0 && product > most_elements / size)
            axis.fail(concat("a tensor has more than ", most_elements, " elements"));
          product *= size;
        });
        sum = std::min(most_elements, sum + product);
      });
    });
    return sum;
  }

  static constexpr std::int32_t most_ranks = 1 << 20;
  static constexpr std::int64_t most_elements = std::int64_t{1} << 50;

  FlightRecord record_;
  std::map<std::pair<std::string, std::vector<std::int32_t>>, std::int32_t> groups_;
  std::map<std::string, std::int32_t> groups_of_dump_;  ///< by the name in the dump at hand
};

}  // namespace tawpipe
