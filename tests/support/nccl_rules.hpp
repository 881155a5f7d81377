// The calls that ranks make on communicators, checked against the rules without which NCCL hangs or
// mixes up messages.
// Not: an execution of them (emulated_meeting.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "support/test_communicator.hpp"
#include "tawpipe/core/text.hpp"

namespace support {

/// Logs all calls in the order in which each rank makes them. `at(rank)` names the rank whose calls
/// come next.
class NcclLog {
 public:
  struct Entry {
    int communicator;
    int member;
    int stream;
    std::vector<CommunicatorCall> calls;  ///< of one group
  };

  void at(int rank) {
    rank_ = static_cast<std::size_t>(rank);
    if (ranks_.size() <= rank_) ranks_.resize(rank_ + 1);
  }
  void make_member(int communicator, int member) {
    const auto c = static_cast<std::size_t>(communicator);
    if (members_.size() <= c) members_.resize(c + 1);
    const auto m = static_cast<std::size_t>(member);
    if (members_[c].size() <= m) members_[c].resize(m + 1, -1);
    members_[c][m] = static_cast<int>(rank_);
  }
  void communicate(int communicator, int member, std::vector<CommunicatorCall> calls, int stream) {
    ranks_[rank_].push_back({communicator, member, stream, std::move(calls)});
  }

  /// Each rule that is broken, named with the place. Empty: none.
  std::vector<std::string> broken_rules() const {
    std::vector<std::string> found;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (const Entry& entry : ranks_[r]) check_group(static_cast<int>(r), entry, found);
    }
    check_collectives(found);
    check_pairs(found);
    check_streams(found);
    check_one_order(found);
    return found;
  }
  std::size_t calls() const {
    std::size_t all = 0;
    for (const auto& entries : ranks_) all += entries.size();
    return all;
  }
  std::size_t communicators() const { return members_.size(); }
  /// For tests of the rules themselves.
  std::vector<std::vector<Entry>>& entries() { return ranks_; }

 private:
  using Kind = CommunicatorCall::Kind;

  static std::string describe(const CommunicatorCall& call) {
    static const char* const names[] = {"send", "receive", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_reduce"};
    return tawpipe::concat(names[static_cast<int>(call.kind)], "(", call.count, " ", name(call.type), ", ", call.peer, ")");
  }
  /// All-reduces in place are calls of their own: NCCL does not use their registered memory.
  static bool same(const CommunicatorCall& a, const CommunicatorCall& b) {
    const bool in_place = a.kind != Kind::all_reduce || (a.from == a.to) == (b.from == b.to);
    return a.kind == b.kind && a.count == b.count && a.type == b.type && a.peer == b.peer && a.reduction == b.reduction &&
           in_place;
  }
  std::size_t size(int communicator) const { return members_[static_cast<std::size_t>(communicator)].size(); }

  /// Collectives have both addresses on all members. What is in a group starts in any order: no
  /// collective together with a pair, nothing written that another call reads or writes.
  void check_group(int rank, const Entry& entry, std::vector<std::string>& found) const {
    const auto complain = [&](const std::string& what) {
      found.push_back(tawpipe::concat("rank ", rank, ", a group on communicator ", entry.communicator, ": ", what));
    };
    for (const CommunicatorCall& a : entry.calls) {
      // Or NCCL 2.24 to 2.28 uses registered memory on other members only, and hangs.
      if (!a.is_pair() && (a.from == nullptr || a.to == nullptr)) complain(describe(a) + " lacks a source or a destination");
      for (const CommunicatorCall& b : entry.calls) {
        if (&a == &b) continue;
        if (a.is_pair() != b.is_pair()) complain("a collective beside a send or receive");
        if (a.is_pair() && a.kind == b.kind && a.peer == b.peer) complain("two messages one way");
        const bool meets =
            overlap(written(a, entry), read(b, entry)) || (&a < &b && overlap(written(a, entry), written(b, entry)));
        if (meets) complain(describe(a) + " writes what " + describe(b) + " uses");
      }
    }
  }
  using Range = std::pair<const std::byte*, const std::byte*>;
  static bool overlap(Range a, Range b) {
    return a.first != nullptr && b.first != nullptr && a.first < b.second && b.first < a.second;
  }
  Range range(const std::byte* at, std::int64_t count, tawpipe::Dtype type) const {
    return {at, at == nullptr ? nullptr : at + count * tawpipe::size_bytes(type)};
  }
  Range read(const CommunicatorCall& call, const Entry& entry) const {
    const bool all = call.kind == Kind::reduce_scatter;
    if (call.kind == Kind::broadcast && call.peer != entry.member) return {};
    return range(call.from, all ? call.count * static_cast<std::int64_t>(size(entry.communicator)) : call.count, call.type);
  }
  Range written(const CommunicatorCall& call, const Entry& entry) const {
    const bool all = call.kind == Kind::all_gather;
    if (call.kind == Kind::reduce && call.peer != entry.member) return {};
    return range(call.to, all ? call.count * static_cast<std::int64_t>(size(entry.communicator)) : call.count, call.type);
  }

  /// All members of a communicator call the same collectives in the same order.
  void check_collectives(std::vector<std::string>& found) const {
    std::map<std::pair<int, int>, std::vector<CommunicatorCall>> by_member;
    for (const auto& entries : ranks_) {
      for (const Entry& entry : entries) {
        for (const CommunicatorCall& call : entry.calls) {
          if (!call.is_pair()) by_member[{entry.communicator, entry.member}].push_back(call);
        }
      }
    }
    for (std::size_t c = 0; c < members_.size(); ++c) {
      const auto& first = by_member[{static_cast<int>(c), 0}];
      for (std::size_t m = 1; m < members_[c].size(); ++m) {
        const auto& other = by_member[{static_cast<int>(c), static_cast<int>(m)}];
        if (first.size() != other.size() || !std::equal(first.begin(), first.end(), other.begin(), same)) {
          found.push_back(tawpipe::concat("communicator ", c, ": members 0 and ", m, " call different collectives"));
        }
      }
    }
  }

  /// Sends and receives of each pair match in order, count and type; where two ranks send to each
  /// other, in one group.
  void check_pairs(std::vector<std::string>& found) const {
    std::map<std::tuple<int, int, int>, std::pair<std::vector<CommunicatorCall>, std::vector<CommunicatorCall>>> ways;
    std::map<std::pair<int, int>, std::pair<bool, bool>> alone;  // communicator, member: an ungrouped send, an ungrouped receive
    for (const auto& entries : ranks_) {
      for (const Entry& entry : entries) {
        for (const CommunicatorCall& call : entry.calls) {
          if (!call.is_pair()) continue;
          const bool sends = call.kind == Kind::send;
          auto& way = ways[{entry.communicator, sends ? entry.member : call.peer, sends ? call.peer : entry.member}];
          (sends ? way.first : way.second).push_back(call);
          if (entry.calls.size() == 1) {
            auto& one = alone[{entry.communicator, entry.member}];
            (sends ? one.first : one.second) = true;
          }
        }
      }
    }
    for (const auto& [key, way] : ways) {
      const auto fits = [](const CommunicatorCall& a, const CommunicatorCall& b) {
        return a.count == b.count && a.type == b.type;
      };
      if (way.first.size() == way.second.size() && std::equal(way.first.begin(), way.first.end(), way.second.begin(), fits)) {
        continue;
      }
      found.push_back(tawpipe::concat("communicator ", std::get<0>(key), ": sends from ", std::get<1>(key), " to ",
                                      std::get<2>(key), " do not match their receives"));
    }
    for (const auto& [key, one] : alone) {
      if (!one.first || !one.second || size(key.first) > 2) continue;
      found.push_back(tawpipe::concat("communicator ", key.first, ": member ", key.second,
                                      " sends to and receives from its peer outside of a group"));
    }
  }

  /// Each rank uses a communicator on one stream, or lanes would wait for each other.
  void check_streams(std::vector<std::string>& found) const {
    std::map<std::pair<int, int>, int> streams;
    for (const auto& entries : ranks_) {
      for (const Entry& entry : entries) {
        const auto known = streams.try_emplace({entry.communicator, entry.member}, entry.stream);
        if (known.first->second == entry.stream && entry.stream >= 0) continue;
        found.push_back(tawpipe::concat("communicator ", entry.communicator, ": member ", entry.member,
                                        " uses it on two streams, or on the default stream"));
        known.first->second = entry.stream;
      }
    }
  }

  /// One order for all communicators: even if every call blocked its rank until all its peers have
  /// come, all would end.
  void check_one_order(std::vector<std::string>& found) const {
    std::vector<std::size_t> next(ranks_.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        while (next[r] < ranks_[r].size() && can_end(r, next)) {
          for (const std::size_t peer : peers(ranks_[r][next[r]])) ++next[peer];
          moved = true;
        }
      }
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (next[r] == ranks_[r].size()) continue;
      found.push_back(tawpipe::concat("rank ", r, " hangs at its call ", next[r], ", ", describe(ranks_[r][next[r]].calls[0]),
                                      " on communicator ", ranks_[r][next[r]].communicator));
    }
  }
  /// The ranks that take part in a group of calls, itself among them.
  std::vector<std::size_t> peers(const Entry& entry) const {
    const auto& all = members_[static_cast<std::size_t>(entry.communicator)];
    std::vector<std::size_t> ranks;
    for (std::size_t m = 0; m < all.size(); ++m) {
      const bool collective = !entry.calls[0].is_pair();
      const bool peer = std::any_of(entry.calls.begin(), entry.calls.end(),
                                    [&](const CommunicatorCall& call) { return call.peer == static_cast<int>(m); });
      if (collective || peer || static_cast<int>(m) == entry.member) ranks.push_back(static_cast<std::size_t>(all[m]));
    }
    return ranks;
  }
  bool can_end(std::size_t rank, const std::vector<std::size_t>& next) const {
    const Entry& entry = ranks_[rank][next[rank]];
    const std::vector<std::size_t> all = peers(entry);
    return std::all_of(all.begin(), all.end(), [&](std::size_t peer) {
      if (next[peer] == ranks_[peer].size()) return false;
      const Entry& other = ranks_[peer][next[peer]];
      const bool alike = other.calls.size() == entry.calls.size() || all.size() > 2;  // of several some pairs may have nothing
      // Two that both send, or both receive, wait for each other.
      const bool crossed = entry.calls.size() == 1 && other.calls.size() == 1 && peer != rank && entry.calls[0].is_pair() &&
                           entry.calls[0].kind == other.calls[0].kind;
      return other.communicator == entry.communicator && alike && !crossed && peers(other) == all;
    });
  }

  std::size_t rank_ = 0;
  std::vector<std::vector<Entry>> ranks_;  ///< [rank]
  std::vector<std::vector<int>> members_;  ///< [communicator, member] rank
};

}  // namespace support
