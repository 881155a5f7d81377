// Programs of calls as JSON: a neutral form for checking the order of any framework.
// Not: its meaning (verify/prove.hpp). The keys: docs/hangs.md.
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
#include "tawpipe/json/json_reader.hpp"
#include "tawpipe/verify/comm_program.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// Reads a program; every error names the path of the value.
class CommProgramReader {
 public:
  CommProgram read(JsonValue root) {
    root.only("name", "comms", "ranks", "semantics");
    if (const auto name = root.find("name")) program_.name = name->label();
    const JsonValue ranks = root.at("ranks");
    program_.ranks.resize(ranks.size());
    if (program_.ranks.empty()) ranks.fail("expected the calls of at least one rank");
    read_communicators(root.at("comms"));
    if (const auto semantics = root.find("semantics")) {
      semantics->only("slots", "cold");
      if (const auto slots = semantics->find("slots")) program_.slots = slots->whole<std::int32_t>(1, 1024);
      if (const auto cold = semantics->find("cold")) program_.cold = cold->boolean();
    }
    for (std::size_t r = 0; r < ranks.size(); ++r) read_calls(ranks[r].only("ops").at("ops"), program_.ranks[r]);
    return std::move(program_);
  }

 private:
  std::int32_t rank(JsonValue value) const { return value.id(program_.ranks.size(), "rank"); }

  void read_communicators(JsonValue comms) {
    for (const auto& [name, ranks] : comms.members()) {
      CommGroup one{name, {}};
      for (const JsonValue member : ranks) {
        const std::int32_t number = rank(member);
        if (std::find(one.ranks.begin(), one.ranks.end(), number) != one.ranks.end()) {
          member.fail(concat("rank ", number, " stands twice"));
        }
        one.ranks.push_back(number);
      }
      communicators_.emplace(one.name, static_cast<std::int32_t>(program_.communicators.size()));
      program_.communicators.push_back(std::move(one));
    }
  }

  void read_calls(JsonValue list, std::vector<CommCall>& calls) {
    constexpr std::int64_t most = std::int64_t{1} << 60;
    std::map<std::string, std::int32_t> ids;
    std::map<std::string, std::int32_t> groups;
    std::int32_t last_group = -1;
    for (const JsonValue op : list) {
      op.only("id", "op", "peer", "comm", "stream", "group", "bytes", "bytes_to", "bytes_from", "waits_for", "blocks_host", "tag",
              "data");
      const auto place = static_cast<std::int32_t>(calls.size());
      CommCall call;
      call.op = op.at("op").enumerator<CommOp>(comm_ops, "op");
      call.id = one_line(op.at("id").text());
      if (!ids.emplace(call.id, place).second) op.at("id").fail(concat(quote(call.id), " stands twice"));
      if (is_point_to_point(call.op)) call.peer = rank(op.at("peer"));
      if (!is_local(call.op)) {
        const JsonValue comm = op.at("comm");
        const auto found = communicators_.find(comm.text());
        if (found == communicators_.end()) comm.fail(concat("there is no communicator ", quote(comm.text().substr(0, 40))));
        call.communicator = found->second;
      }
      if (const auto stream = op.find("stream")) call.stream = stream_of(stream->text());
      if (const auto group = op.find("group")) {
        const auto [at, added] = groups.try_emplace(group->text(), static_cast<std::int32_t>(groups.size()));
        if (!added && last_group != at->second) group->fail(concat("the calls of ", quote(group->text()), " are not neighbours"));
        call.group = at->second;
      }
      last_group = call.group;
      if (const auto bytes = op.find("bytes")) call.bytes = bytes->whole(std::int64_t{0}, most);
      call.bytes_to = sizes(op, "bytes_to", call);
      call.bytes_from = sizes(op, "bytes_from", call);
      if (const auto tag = op.find("tag")) call.tag = tag->whole(std::int64_t{0}, most);
      if (const auto data = op.find("data")) call.data = data->text();
      if (const auto blocks = op.find("blocks_host")) call.blocks_host = blocks->boolean();
      if (const auto waits = op.find("waits_for")) {
        for (const JsonValue one : *waits) {
          const auto found = ids.find(one.text());
          if (found == ids.end() || found->second == place) {
            one.fail(concat("no call ", quote(one.text().substr(0, 40)), " stands before this one"));
          }
          call.waits_for.push_back(found->second);
        }
      }
      calls.push_back(std::move(call));
    }
  }

  /// The sizes of an all_to_all for each rank of its communicator, in the communicator's order.
  std::vector<std::int64_t> sizes(JsonValue op, std::string_view key, const CommCall& call) const {
    constexpr std::int64_t most = std::int64_t{1} << 40;
    std::vector<std::int64_t> sizes;
    const auto list = op.find(key);
    if (!list) return sizes;
    if (call.op != CommOp::all_to_all) list->fail("only an all_to_all has a size for each rank");
    if (op.has("bytes")) list->fail("it has bytes too, which are spread evenly; leave out one");
    const std::size_t ranks = program_.communicators[static_cast<std::size_t>(call.communicator)].ranks.size();
    if (list->size() != ranks) list->fail(concat("expected a size for each of the communicator's ", ranks, " ranks"));
    for (const JsonValue size : *list) sizes.push_back(size.whole(std::int64_t{0}, most));
    return sizes;
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
inline CommProgram parse_comm_program(std::string_view text, std::string_view source = "program of calls") {
  const JsonDocument document{text, source};
  return detail::CommProgramReader{}.read(document.root());
}

/// Whether a JSON text is a program of calls, rather than a schedule: it has communicators.
inline bool is_comm_program(std::string_view text) {
  if (text.find("\"comms\"") == std::string_view::npos) return false;
  try {
    const JsonDocument document{text, ""};
    return document.root().is_object() && document.root().has("comms");
  } catch (const InputError&) {
    return false;
  }
}

/// Writes the format that parse_comm_program() reads.
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
      if (!call.bytes_to.empty()) op["bytes_to"] = call.bytes_to;
      if (!call.bytes_from.empty()) op["bytes_from"] = call.bytes_from;
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
