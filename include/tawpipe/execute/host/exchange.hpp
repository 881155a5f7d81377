// The collectives of stages that ranks share, where all ranks' memory is in one process.
// Not: messages between processes (execute/mpi/lanes.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tawpipe/backend/shared_compute.hpp"
#include "tawpipe/schedule/op_traits.hpp"

namespace tawpipe::inline v0::host {

/// to[i] = to[i] combined with from[i]. @pre for Combine::softmax `count` is a multiple of 3
template <class T>
void combine(Combine how, T* to, const T* from, std::int64_t count) {
  if (how == Combine::sum) {
    for (std::int64_t i = 0; i < count; ++i) to[i] += from[i];
    return;
  }
  for (std::int64_t i = 0; i < count; i += 3) {
    const T most = std::max(to[i], from[i]);
    to[i + 1] = to[i + 1] * std::exp(to[i] - most) + from[i + 1] * std::exp(from[i] - most);
    to[i + 2] += from[i + 2];
    to[i] = most;
  }
}

/// What a member sends in an all_to_all, with what is added.
template <class T>
void add_to_sent(const ExchangeArgs& end, T* sent) {
  if (end.added == nullptr) return;
  const T* const added = reinterpret_cast<const T*>(end.added);
  for (std::int64_t i = end.added_begin; i < end.count; ++i) sent[i] += added[i - end.added_begin];
}

/// An all_to_all. @param begin  [from * members + to] of a block among all
template <class T>
void exchange_blocks(std::span<const ExchangeArgs> ends, std::span<const std::int64_t> begin, std::vector<T>& area) {
  const std::size_t n = ends.size();
  area.resize(std::max(area.size(), static_cast<std::size_t>(begin[n * n])));
  for (std::size_t from = 0; from < n; ++from) {
    T* const sent = area.data() + begin[from * n];
    std::copy_n(reinterpret_cast<const T*>(ends[from].from), begin[(from + 1) * n] - begin[from * n], sent);
    add_to_sent(ends[from], sent);
  }
  for (std::size_t to = 0; to < n; ++to) {
    T* at = reinterpret_cast<T*>(ends[to].to);
    for (std::size_t from = 0; from < n; ++from) {
      const std::int64_t block = begin[from * n + to];
      at = std::copy_n(area.data() + block, begin[from * n + to + 1] - block, at);
    }
  }
}

/// An all_to_all of as many rows as its ends say. @return [member] numbers that it sent to others
template <class T>
std::vector<std::int64_t> exchange_rows(std::span<const ExchangeArgs> ends) {
  std::vector<std::int64_t> sent(ends.size(), 0);
  std::vector<const T*> from;
  for (const ExchangeArgs& end : ends) from.push_back(reinterpret_cast<const T*>(end.from));
  for (std::size_t to = 0; to < ends.size(); ++to) {
    T* at = reinterpret_cast<T*>(ends[to].to);
    const auto groups = static_cast<std::size_t>(ends[to].groups);
    for (std::size_t f = 0; f < ends.size(); ++f) {
      const std::int64_t count = ends[f].numbers(ends[f].rows, to);
      at = std::copy_n(from[f], count, at);
      from[f] += count;
      std::copy_n(ends[f].rows + to * groups, groups, ends[to].arrived + f * groups);
      if (f != to) sent[f] += count;
    }
  }
  return sent;
}

/// One all_gather, reduce_scatter or all_reduce; sums are formed in the order of the members.
/// @param ends  by member. @param area  memory that is lost
template <class T>
void exchange(Op op, std::span<const ExchangeArgs> ends, std::vector<T>& area) {
  const auto from = [&](std::size_t m) { return reinterpret_cast<const T*>(ends[m].from); };
  const auto to = [&](std::size_t m) { return reinterpret_cast<T*>(ends[m].to); };
  const std::int64_t count = ends.front().count;
  const auto begin = [&](std::size_t m) { return count * static_cast<std::int64_t>(m) / std::ssize(ends); };
  if (!is_sum(op)) {
    for (std::size_t m = 0; m < ends.size(); ++m) {
      for (std::size_t other = 0; other < ends.size(); ++other)
        std::copy_n(from(other), begin(other + 1) - begin(other), to(m) + begin(other));
    }
    return;
  }
  area.resize(std::max(area.size(), static_cast<std::size_t>(count)));
  std::copy_n(from(0), count, area.data());
  for (std::size_t m = 1; m < ends.size(); ++m) combine(ends[m].combine, area.data(), from(m), count);
  for (std::size_t m = 0; m < ends.size(); ++m) {
    const std::int64_t first = scatters(op) ? begin(m) : 0;
    std::copy_n(area.data() + first, scatters(op) ? begin(m + 1) - first : count, to(m));
  }
}

}  // namespace tawpipe::host
