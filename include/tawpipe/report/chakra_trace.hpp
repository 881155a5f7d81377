// Execution traces of MLCommons Chakra as values: each rank's nodes with their dependencies, and
// the groups of ranks.
// Not: their file (chakra_file.hpp), nor their conversion (chakra_import.hpp, chakra_export.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tawpipe::inline v0 {

/// The kind of a node. The numbers are those of the format.
enum class ChakraType : std::int32_t {
  invalid = 0,
  metadata = 1,
  load = 2,   ///< from memory outside the device
  store = 3,  ///< to memory outside the device
  compute = 4,
  send = 5,
  receive = 6,
  collective = 7,
};

/// The kind of a collective (`comm_type`). The numbers are those of the format.
enum class ChakraCollective : std::int64_t {
  all_reduce = 0,
  reduce = 1,
  all_gather = 2,
  gather = 3,
  scatter = 4,
  broadcast = 5,
  all_to_all = 6,
  reduce_scatter = 7,
  reduce_scatter_block = 8,
  barrier = 9,
};

/// The attributes that are read and written; others are ignored. Those from `task` on are tawpipe's
/// own, from which a schedule is restored: other programs ignore them.
enum class ChakraKey : std::uint8_t {
  is_cpu_op,
  num_ops,
  tensor_size,
  comm_type,
  comm_size,
  comm_src,
  comm_dst,
  comm_tag,
  pg_name,
  involved_dim,  ///< as text, a 0 or 1 for each dimension of the network
  task,          ///< its id in the schedule
  op,
  payload,
  lane,
  root,  ///< the task's rank
  stage,
  microbatch,
  step,
  bytes,
  repeat,
  picoseconds,
};
inline constexpr int chakra_keys = 21;

/// The attribute's name in files.
constexpr std::string_view name(ChakraKey key) {
  constexpr std::string_view names[chakra_keys] = {
      "is_cpu_op",    "num_ops",       "tensor_size",        "comm_type",    "comm_size",     "comm_src",        "comm_dst",
      "comm_tag",     "pg_name",       "involved_dim",       "tawpipe_task", "tawpipe_op",    "tawpipe_payload", "tawpipe_lane",
      "tawpipe_root", "tawpipe_stage", "tawpipe_microbatch", "tawpipe_step", "tawpipe_bytes", "tawpipe_repeat",  "tawpipe_ps"};
  return names[static_cast<std::size_t>(key)];
}

/// `tawpipe_op` of a message that only represents a wait between ranks.
inline constexpr std::string_view chakra_wait = "wait";

/// An attribute: a number, or a text if `is_text`.
struct ChakraAttribute {
  ChakraKey key = ChakraKey::is_cpu_op;
  bool is_text = false;
  std::int64_t number = 0;
  std::string text;

  bool operator==(const ChakraAttribute&) const = default;
};

/// An operation of one rank.
struct ChakraNode {
  std::uint64_t id = 0;
  std::string name;
  std::int32_t type = 0;                    ///< a ChakraType, or a later one
  std::vector<std::uint64_t> control_deps;  ///< ids of the same rank
  std::vector<std::uint64_t> data_deps;
  std::uint64_t start_us = 0;
  std::uint64_t duration_us = 0;
  std::string inputs;  ///< in a metadata node of PyTorch: its process groups
  std::vector<ChakraAttribute> attributes;

  bool is(ChakraType wanted) const { return type == static_cast<std::int32_t>(wanted); }
  const ChakraAttribute* find(ChakraKey key) const {
    for (const ChakraAttribute& one : attributes) {
      if (one.key == key) return &one;
    }
    return nullptr;
  }
  std::optional<std::int64_t> number(ChakraKey key) const {
    const ChakraAttribute* const found = find(key);
    return found == nullptr || found->is_text ? std::nullopt : std::optional{found->number};
  }
  std::string_view text(ChakraKey key) const {
    const ChakraAttribute* const found = find(key);
    return found == nullptr || !found->is_text ? std::string_view{} : std::string_view{found->text};
  }
  void set(ChakraKey key, std::int64_t number) { attributes.push_back({key, false, number, {}}); }
  void set(ChakraKey key, std::string text) { attributes.push_back({key, true, 0, std::move(text)}); }

  bool operator==(const ChakraNode&) const = default;
};

/// The nodes of one rank.
struct ChakraRank {
  std::string source;  ///< the file, for messages
  std::vector<ChakraNode> nodes;
};

/// A trace of all ranks.
struct ChakraTrace {
  std::vector<ChakraRank> ranks;
  /// by pg_name; a missing one, or "" and "0": all ranks
  std::map<std::string, std::vector<std::int32_t>> groups;
};

}  // namespace tawpipe
