// What events of a PyTorch profiler trace say about collectives: operation, size and members.
// Not: which events of several ranks are one (kineto_meetings.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/ids.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/units.hpp"
#include "tawpipe/report/detail/kineto_events.hpp"
#include "tawpipe/schedule/op_traits.hpp"

namespace tawpipe::inline v0::detail {

inline bool is_communication(const KinetoKernel& kernel) {
  return kernel.name.starts_with("nccl") || kernel.collective.has_value();
}

/// The collective recorded on a kernel or on the operator that launched it.
inline const std::optional<KinetoCollective>& collective_of(const KinetoEvents& events, const KinetoKernel& kernel) {
  const auto launched = events.by_external.find(kernel.external);
  if (kernel.collective || launched == events.by_external.end()) return kernel.collective;
  return events.host[static_cast<std::size_t>(launched->second)].collective;
}

/// The op of a PyTorch collective; none: no counterpart (all_to_all, barrier, send, recv).
inline std::optional<Op> op_of(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c != '_') plain += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  if (plain.starts_with("allreduce")) return Op::all_reduce;
  if (plain.starts_with("allgather")) return Op::all_gather;
  if (plain.starts_with("reducescatter")) return Op::reduce_scatter;
  if (plain.starts_with("broadcast")) return Op::broadcast;
  if (plain == "reduce") return Op::reduce;
  return std::nullopt;
}

inline std::int64_t bytes_of(std::string_view dtype) {
  constexpr std::pair<std::string_view, std::int64_t> sizes[] = {
      {"Double", 8}, {"Long", 8}, {"ComplexFloat", 8}, {"Float", 4}, {"Int", 4},           {"Half", 2},       {"BFloat16", 2},
      {"Short", 2},  {"Byte", 1}, {"Char", 1},         {"Bool", 1},  {"Float8_e4m3fn", 1}, {"Float8_e5m2", 1}};
  for (const auto& [name, size] : sizes) {
    if (dtype == name) return size;
  }
  return 0;
}

inline std::int64_t bytes_of(const KinetoCollective& collective) {
  return saturating_multiply(collective.elements, bytes_of(collective.dtype));
}

/// The group's ranks: as written, with a truncated list continued by the step of its first two; or
/// the process group's; or all. None if one is impossible or named twice.
inline std::vector<Rank> members_of(const KinetoEvents& events, const KinetoCollective& collective) {
  std::vector<std::int64_t> ranks;
  for (std::string_view text = collective.ranks; !text.empty();) {
    const auto rank = take_number<std::int64_t>(text);
    if (rank && *rank >= 0 && *rank < KinetoReader::max_ranks) ranks.push_back(*rank);
    if (!rank) text.remove_prefix(1);
  }
  const auto size = static_cast<std::size_t>(std::clamp<std::int64_t>(collective.group_size, 0, 1 << 20));
  const auto group = events.groups.find(collective.group);
  if (ranks.size() != size && group != events.groups.end()) ranks = group->second;
  if (ranks.empty() && collective.group_size == events.world_size) ranks = {0, 1};
  if (ranks.size() < 2 || ranks.size() > size) return {};
  while (ranks.size() < size) ranks.push_back(ranks.back() + ranks[1] - ranks[0]);
  std::vector<Rank> members;
  for (const std::int64_t rank : ranks) {
    if (rank < 0 || rank >= KinetoReader::max_ranks) return {};
    members.push_back(Rank{static_cast<int>(rank)});
  }
  std::vector<Rank> sorted = members;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) return {};
  return members;
}

}  // namespace tawpipe::detail
