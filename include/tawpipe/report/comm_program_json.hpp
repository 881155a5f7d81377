// Programs of calls as JSON: the neutral form in which any framework can ask whether its order ends.
// Not: what it means (verify/prove.hpp). The keys: docs/hangs.md.
#pragma once

#include <algorithm>
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
#include "tawpipe/verify/comm_program.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// Reads a program; every error names the path of the value.
class CommProgramReader {
 public:
  CommProgram read(const JsonValue& root) {
    static constexpr std::string_view keys[]{"name", "comms", "ranks", "semantics"};
    root.expect_object(keys);
    root.if_has("name", [&](const JsonValue& name) { program_.name = name.text(); });
    root.with("ranks", [&](const JsonValue& ranks) {
      program_.ranks.resize(ranks.list_size());
      if (program_.ranks.empty()) ranks.fail("expected the calls of at least one rank");
    });
    root.with("comms", [&](const JsonValue& comms) { read_communicators(comms); });
    root.if_has("semantics", [&](const JsonValue& semantics) {
      static constexpr std::string_view known[]{"slots", "cold"};
      semantics.expect_object(known);
      semantics.if_has("slots",
                       [&](const JsonValue& slots) { program_.slots = static_cast<std::int32_t>(slots.whole(1, 1024)); });
      semantics.if_has("cold", [&](const JsonValue& cold) { program_.cold = cold.boolean(); });
    });
    root.with("ranks", [&](const JsonValue& ranks) {
      ranks.for_each([&](const JsonValue& rank, std::size_t r) {
        static constexpr std::string_view known[]{"ops"};
        rank.expect_object(known);
        rank.with("ops", [&](const JsonValue& list) { read_calls(list, program_.ranks[r]); });
      });
    });
    return std::move(program_);
  }

 private:
  std::int32_t rank(const JsonValue& value) const { return value.id(program_.ranks.size(), "rank"); }

  void read_communicators(const JsonValue& comms) {
    if (!comms.json().is_object()) comms.fail(concat("expected an object of rank lists, not ", shown(comms.json())));
    for (const auto& item : comms.json().items()) {
      comms.with(item.key(), [&](const JsonValue& ranks) {
        CommGroup one{item.key(), {}};
        ranks.for_each([&](const JsonValue& member, std::size_t) {
          const std::int32_t number = rank(member);
          if (std::find(one.ranks.begin(), one.ranks.end(), number) != one.ranks.end()) {
            member.fail(concat("rank ", number, " stands twice"));
          }
          one.ranks.push_back(number);
        });
        communicators_.emplace(one.name, static_cast<std::int32_t>(program_.communicators.size()));
        program_.communicators.push_back(std::move(one));
      });
    }
  }

  void read_calls(const JsonValue& list, std::vector<CommCall>& calls) {
    std::map<std::string, std::int32_t> ids;
    std::map<std::string, std::int32_t> groups;
    std::int32_t last_group = -1;
    list.for_each([&](const JsonValue& op, std::size_t place) {
      static constexpr std::string_view known[]{"id",    "op",        "peer",        "comm", "stream", "group",
                                                "bytes", "waits_for", "blocks_host", "tag",  "data"};
      op.expect_object(known);
      CommCall call;
      op.with("op", [&](const JsonValue& text) { call.op = text.enumerator<CommOp>(comm_ops, "op"); });
      op.with("id", [&](const JsonValue& id) {
        call.id = one_line(id.text());
        if (!ids.emplace(call.id, static_cast<std::int32_t>(place)).second) id.fail(concat(quote(call.id), " stands twice"));
      });
      if (is_point_to_point(call.op)) op.with("peer", [&](const JsonValue& peer) { call.peer = rank(peer); });
      if (!is_local(call.op)) {
        op.with("comm", [&](const JsonValue& comm) {
          const auto found = communicators_.find(comm.text());
          if (found == communicators_.end()) comm.fail(concat("there is no communicator ", quote(comm.text().substr(0, 40))));
          call.communicator = found->second;
        });
      }
      op.if_has("stream", [&](const JsonValue& stream) { call.stream = stream_of(stream.text()); });
      op.if_has("group", [&](const JsonValue& group) {
        const auto [at, added] = groups.try_emplace(group.text(), static_cast<std::int32_t>(groups.size()));
        if (!added && last_group != at->second) group.fail(concat("the calls of ", quote(group.text()), " are not neighbours"));
        call.group = at->second;
      });
      last_group = call.group;
      op.if_has("bytes", [&](const JsonValue& bytes) { call.bytes = bytes.whole(0, std::int64_t{1} << 60); });
      op.if_has("tag", [&](const JsonValue& tag) { call.tag = tag.whole(0, std::int64_t{1} << 60); });
      op.if_has("data", [&](const JsonValue& data) { call.data = data.text(); });
      op.if_has("blocks_host", [&](const JsonValue& blocks) { call.blocks_host = blocks.boolean(); });
      op.if_has("waits_for", [&](const JsonValue& waits) {
        waits.for_each([&](const JsonValue& one, std::size_t) {
          const auto found = ids.find(one.text());
          if (found == ids.end() || found->second == static_cast<std::int32_t>(place)) {
            one.fail(concat("no call ", quote(one.text().substr(0, 40)), " stands before this one"));
          }
          call.waits_for.push_back(found->second);
        });
      });
      calls.push_back(std::move(call));
    });
  }

  std::int32_t stream_of(const std::string& name) {
    const auto [at, added] = streams_.try_emplace(name, static_cast<std::int32_t>(streams_.size()));
    if (added) program_.streams.push_back(name);
    return at->second;
  }

  CommProgram program_;
  std::map<std::string, std::int32_t> communicators_;
  std::map<std::string, std::int32_t> streams_;
};

}  // namespace detail

/// Reads a program of calls. @param source  the file's name, for messages
/// @throws InputError  in one line, naming the path of the value.
inline CommProgram comm_program_from(const nlohmann::json& json, std::string_view source) {
  try {
    const detail::JsonPath path;
    return detail::CommProgramReader{}.read(detail::JsonValue{json, path});
  } catch (const InputError& error) {
    throw InputError(one_line(concat(source, ": ", error.what())));
  }
}
inline CommProgram parse_comm_program(std::string_view text, std::string_view source = "program of calls") {
  nlohmann::json json;
  try {
    json = detail::parse_json_strictly(text);
  } catch (const InputError& error) {
    throw InputError(one_line(concat(source, ": ", error.what())));
  }
  return comm_program_from(json, source);
}

/// Whether a JSON text is a program of calls, rather than a schedule: it has communicators.
inline bool is_comm_program(std::string_view text) {
  if (text.find("\"comms\"") == std::string_view::npos) return false;
  const auto json = nlohmann::json::parse(text.begin(), text.end(), nullptr, false);
  return json.is_object() && json.contains("comms");
}

/// Writes what parse_comm_program() reads.
inline std::string write_comm_program(const CommProgram& program) {
  nlohmann::ordered_json json;
  json["name"] = program.name;
  json["comms"] = nlohmann::ordered_json::object();
  for (const CommGroup& one : program.communicators) json["comms"][one.name] = one.ranks;
  json["ranks"] = nlohmann::ordered_json::array();
  for (const auto& calls : program.ranks) {
    auto list = nlohmann::ordered_json::array();
    for (const CommCall& call : calls) {
      nlohmann::ordered_json op{{"id", call.id}, {"op", name(call.op)}};
      if (is_point_to_point(call.op)) op["peer"] = call.peer;
      if (!is_local(call.op)) op["comm"] = program.communicators[static_cast<std::size_t>(call.communicator)].name;
      if (call.stream >= 0) op["stream"] = program.streams[static_cast<std::size_t>(call.stream)];
      if (call.group >= 0) op["group"] = concat("g", call.group);
      for (const std::int32_t earlier : call.waits_for) op["waits_for"].push_back(calls[static_cast<std::size_t>(earlier)].id);
      if (call.bytes > 0) op["bytes"] = call.bytes;
      if (call.tag != 0) op["tag"] = call.tag;
      if (!call.data.empty()) op["data"] = call.data;
      if (call.blocks_host) op["blocks_host"] = true;
      list.push_back(std::move(op));
    }
    json["ranks"].push_back({{"ops", std::move(list)}});
  }
  json["semantics"] = nlohmann::ordered_json::object();
  if (program.slots > 0) json["semantics"]["slots"] = program.slots;
  if (program.cold) json["semantics"]["cold"] = true;
  return json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace tawpipe
