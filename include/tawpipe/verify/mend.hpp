// The smallest change of an order that removes a hang: calls swapped, moved or joined into one
// group.
// Not: the verdict (verify/prove.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "tawpipe/verify/prove.hpp"

namespace tawpipe::inline v0 {

/// A change of one rank's order. Items are the movable parts: units of a program, cells of a row.
struct OrderEdit {
  enum class Kind : std::uint8_t {
    swap,    ///< the two items are exchanged
    move,    ///< the second is moved before the first
    join,    ///< both become one group, at the place of the first
    remove,  ///< the first is removed
  };
  Kind kind = Kind::swap;
  std::int32_t rank = 0;
  std::int32_t first = 0;
  std::int32_t second = 0;
};

/// An order that ends, and its difference from the original.
template <class Order>
struct Mend {
  std::string text;  ///< in one line
  Order order;
};

/// A program of calls as an order to be fixed; its items are its units.
class ProgramOrder {
 public:
  explicit ProgramOrder(CommProgram program) : program_{std::move(program)} {
    const detail::CommUnits units{program_};
    for (std::size_t r = 0; r < program_.ranks.size(); ++r) {
      auto& begins = begins_.emplace_back();
      for (std::int32_t u = units.first_unit(r); u < units.first_unit(r + 1); ++u) begins.push_back(units.unit(u).begin);
      begins.push_back(static_cast<std::int32_t>(program_.ranks[r].size()));
    }
  }

  const CommProgram& program() const { return program_; }
  std::int32_t items(std::int32_t rank) const { return static_cast<std::int32_t>(begins_[at(rank)].size()) - 1; }
  std::int32_t item_of(CallRef call) const {
    const auto& begins = begins_[at(call.rank)];
    return static_cast<std::int32_t>(std::upper_bound(begins.begin(), begins.end(), call.call) - begins.begin()) - 1;
  }
  bool communicates(std::int32_t rank, std::int32_t item) const {
    return !is_local(call_at(program_, {rank, begins_[at(rank)][at(item)]}).op);
  }
  std::string text(std::int32_t rank, std::int32_t item) const {
    std::string all;
    for (std::int32_t c = begin(rank, item); c < begin(rank, item + 1); ++c) {
      all += (all.empty() ? "" : " + ") + call_at(program_, {rank, c}).id;
    }
    return all;
  }
  std::string_view group_word() const { return "group"; }
  bool takes_groups() const { return true; }

  /// The order with the change; nothing if a call would come before one that it waits for.
  std::optional<ProgramOrder> edited(const OrderEdit& edit) const {
    using Kind = OrderEdit::Kind;
    std::vector<std::int32_t> order;
    for (std::int32_t i = 0; i < items(edit.rank); ++i) order.push_back(i);
    const auto first = order.begin() + edit.first;
    const auto second = order.begin() + edit.second;
    if (edit.kind == Kind::swap) std::iter_swap(first, second);
    if (edit.kind == Kind::move) std::rotate(first, second, second + 1);
    if (edit.kind == Kind::remove) order.erase(first);
    if (edit.kind == Kind::join) {
      const CommCall& a = call_at(program_, {edit.rank, begin(edit.rank, edit.first)});
      const CommCall& b = call_at(program_, {edit.rank, begin(edit.rank, edit.second)});
      if (!is_point_to_point(a.op) || !is_point_to_point(b.op) || a.stream != b.stream || a.stream < 0) return std::nullopt;
      std::rotate(first + 1, second, second + 1);
    }
    std::vector<std::int32_t> calls;
    for (const std::int32_t item : order) {
      for (std::int32_t c = begin(edit.rank, item); c < begin(edit.rank, item + 1); ++c) calls.push_back(c);
    }
    CommProgram program = program_;
    if (!reorder(program.ranks[at(edit.rank)], calls)) return std::nullopt;
    if (edit.kind == Kind::join) {
      auto& rank = program.ranks[at(edit.rank)];
      std::int32_t group = -1;
      for (const CommCall& call : rank) group = std::max(group, call.group);
      const std::int32_t size = begin(edit.rank, edit.first + 1) - begin(edit.rank, edit.first) +
                                begin(edit.rank, edit.second + 1) - begin(edit.rank, edit.second);
      const std::int32_t from = begin(edit.rank, edit.first);
      for (std::int32_t c = from; c < from + size; ++c) {
        for (const std::int32_t earlier : rank[at(c)].waits_for) {
          if (earlier >= from) return std::nullopt;
        }
        rank[at(c)].group = group + 1;
      }
    }
    return ProgramOrder{std::move(program)};
  }

  /// All communication in one order on all ranks, with its text; nothing if data depends on itself
  /// in a cycle.
  std::optional<Mend<ProgramOrder>> in_one_order() const {
    if (auto found = in_one_order(program_, "")) return found;
    CommProgram eager = program_;
    for (auto& rank : eager.ranks) {
      for (CommCall& call : rank) {
        if (call.op == CommOp::receive) call.waits_for.clear();
      }
    }
    return in_one_order(eager, ", receives as early as that order has them");
  }

  /// Puts calls into a different order. @return false if one would come before a call that it waits
  /// for
  static bool reorder(std::vector<CommCall>& rank, const std::vector<std::int32_t>& order) {
    std::vector<std::int32_t> place(rank.size(), -1);
    std::vector<CommCall> calls;
    for (const std::int32_t call : order) {
      place[at(call)] = static_cast<std::int32_t>(calls.size());
      calls.push_back(rank[at(call)]);
      std::vector<std::int32_t> waits;
      for (const std::int32_t earlier : calls.back().waits_for) {
        if (place[at(earlier)] < 0) {
          if (std::find(order.begin(), order.end(), earlier) != order.end()) return false;
          continue;  // it was removed
        }
        waits.push_back(place[at(earlier)]);
      }
      calls.back().waits_for = std::move(waits);
    }
    rank = std::move(calls);
    return true;
  }

 private:
  static std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }
  std::int32_t begin(std::int32_t rank, std::int32_t item) const { return begins_[at(rank)][at(item)]; }

  static std::optional<Mend<ProgramOrder>> in_one_order(const CommProgram& from, std::string_view how);

  /// [call] for each send the receive that wants its data, and vice versa; matched in order if data
  /// is not named.
  static std::vector<std::int32_t> partners_by_data(const detail::CommUnits& units);

  CommProgram program_;
  std::vector<std::vector<std::int32_t>> begins_;  ///< [rank, item] its first call, then the end
};

inline std::vector<std::int32_t> ProgramOrder::partners_by_data(const detail::CommUnits& units) {
  using Way = std::tuple<std::int32_t, std::int32_t, std::int32_t, std::string>;  // communicator, from, to, data
  std::map<Way, std::deque<std::int32_t>> receives;
  std::vector<std::int32_t> partners(units.calls(), -1);
  const auto count = static_cast<std::int32_t>(units.calls());
  for (std::int32_t c = 0; c < count; ++c) {
    const CommCall& call = units.call(c);
    if (call.op == CommOp::receive) receives[{call.communicator, call.peer, units.ref(c).rank, call.data}].push_back(c);
  }
  for (std::int32_t c = 0; c < count; ++c) {
    const CommCall& call = units.call(c);
    if (call.op != CommOp::send) continue;
    const auto found = receives.find({call.communicator, units.ref(c).rank, call.peer, call.data});
    std::int32_t partner = units.partner(c);
    if (found != receives.end() && !found->second.empty()) {
      partner = found->second.front();
      found->second.pop_front();
    }
    if (partner < 0) continue;
    partners[at(c)] = partner;
    partners[at(partner)] = c;
  }
  return partners;
}

inline std::optional<Mend<ProgramOrder>> ProgramOrder::in_one_order(const CommProgram& from, std::string_view how) {
  // A node is a call with all calls that match it. It follows the calls it waits for, those before
  // it between the same two ranks or on the same communicator, and a computation follows those
  // before it on its stream.
  const detail::CommUnits units{from};
  const auto count = static_cast<std::int32_t>(units.calls());
  const std::vector<std::int32_t> partners = partners_by_data(units);
  std::vector<std::int32_t> node(at(count), -1);
  std::int32_t nodes = 0;
  for (std::int32_t c = 0; c < count; ++c) {
    if (node[at(c)] >= 0) continue;
    node[at(c)] = nodes;
    const CommOp op = units.call(c).op;
    if (partners[at(c)] >= 0) node[at(partners[at(c)])] = nodes;
    if (is_meeting(op)) {
      for (const std::int32_t other : units.meeting(c).calls) {
        if (other >= 0) node[at(other)] = nodes;
      }
    }
    ++nodes;
  }
  std::vector<std::set<std::int32_t>> after(at(nodes));
  std::vector<std::int32_t> before(at(nodes), 0);
  const auto follows = [&](std::int32_t later, std::int32_t earlier) {
    const std::int32_t a = node[at(earlier)];
    const std::int32_t b = node[at(later)];
    if (a != b && after[at(a)].insert(b).second) ++before[at(b)];
  };
  for (std::size_t r = 0; r < from.ranks.size(); ++r) {
    const auto rank = static_cast<std::int32_t>(r);
    std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> last;  // by kind of order that must stay
    for (std::size_t c = 0; c < from.ranks[r].size(); ++c) {
      const CommCall& call = from.ranks[r][c];
      const std::int32_t here = units.number(rank, static_cast<std::int32_t>(c));
      for (const std::int32_t earlier : call.waits_for) follows(here, units.number(rank, earlier));
      // The order of receives follows from that of the sends.
      if (call.op == CommOp::receive) continue;
      const std::pair<std::int32_t, std::int32_t> key = is_local(call.op)         ? std::pair{-1, call.stream}
                                                        : call.op == CommOp::send ? std::pair{call.communicator, call.peer}
                                                                                  : std::pair{call.communicator, -1};
      const auto [at_last, added] = last.try_emplace(key, here);
      if (!added) follows(here, std::exchange(at_last->second, here));
    }
  }
  std::set<std::int32_t> open;
  for (std::int32_t n = 0; n < nodes; ++n) {
    if (before[at(n)] == 0) open.insert(n);
  }
  std::vector<std::int32_t> place(at(nodes), -1);
  for (std::int32_t placed = 0; !open.empty(); ++placed) {
    const std::int32_t next = *open.begin();
    open.erase(open.begin());
    place[at(next)] = placed;
    for (const std::int32_t later : after[at(next)]) {
      if (--before[at(later)] == 0) open.insert(later);
    }
  }
  CommProgram program = from;
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    std::vector<std::int32_t> order;
    for (std::size_t c = 0; c < program.ranks[r].size(); ++c) order.push_back(static_cast<std::int32_t>(c));
    const auto where = [&](std::int32_t c) { return place[at(node[at(units.number(static_cast<std::int32_t>(r), c))])]; };
    for (const std::int32_t c : order) {
      if (where(c) < 0) return std::nullopt;
    }
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return where(a) < where(b); });
    if (!reorder(program.ranks[r], order)) return std::nullopt;
    std::int32_t earlier = -1;
    for (std::size_t c = 0; c < program.ranks[r].size(); ++c) {
      CommCall& call = program.ranks[r][c];
      call.group = -1;
      if (program.slots == 0 || is_local(call.op)) continue;
      if (earlier >= 0) call.waits_for.push_back(earlier);
      earlier = static_cast<std::int32_t>(c);
    }
  }
  const char* const text = program.slots > 0 ? "all communication in one order on all ranks, each after the one before it"
                                             : "all communication in one order on all ranks";
  return Mend<ProgramOrder>{concat(text, how), ProgramOrder{std::move(program)}};
}

namespace detail {

/// Searches for a fix: single changes first, then combinations of several.
template <class Order>
class MendSearch {
 public:
  /// The limit on orders checked.
  static constexpr int max_proofs = 400;

  std::optional<Mend<Order>> run(const Order& order, const HangVerdict& verdict) {
    std::deque<Open> open{{order, verdict, ""}};
    while (!open.empty()) {
      const Open here = std::move(open.front());
      open.pop_front();
      for (const OrderEdit& edit : edits(here.order, here.verdict)) {
        std::optional<Order> next = here.order.edited(edit);
        if (!next) continue;
        if (++proofs_ > max_proofs) return std::nullopt;
        HangVerdict found = prove(next->program());
        std::string text = concat(here.text, here.text.empty() ? "" : "; ", words(here.order, edit));
        if (found.is_right()) return Mend<Order>{std::move(text), *std::move(next)};
        open.push_back({*std::move(next), std::move(found), std::move(text)});
      }
    }
    return std::nullopt;
  }

 private:
  struct Open {
    Order order;
    HangVerdict verdict;
    std::string text;
  };

  static std::string words(const Order& order, const OrderEdit& edit) {
    const std::string first = order.text(edit.rank, edit.first);
    const std::string second = edit.kind == OrderEdit::Kind::remove ? "" : order.text(edit.rank, edit.second);
    switch (edit.kind) {
      case OrderEdit::Kind::swap:
        return concat("swap ", first, " and ", second, " of rank ", edit.rank);
      case OrderEdit::Kind::move:
        return concat("move ", second, " before ", first, " on rank ", edit.rank);
      case OrderEdit::Kind::join:
        return concat("put ", first, " and ", second, " of rank ", edit.rank, " in one ", order.group_word());
      case OrderEdit::Kind::remove:
        return concat("leave out ", first, " of rank ", edit.rank, ", or add its counterpart");
    }
    return "";
  }

  /// Changes to items that take part in the hang, or carry the wrong data.
  static std::vector<OrderEdit> edits(const Order& order, const HangVerdict& verdict) {
    using Kind = OrderEdit::Kind;
    std::set<std::pair<std::int32_t, std::int32_t>> items;
    for (const auto& calls : verdict.circle) {
      for (const CallRef& call : calls) items.emplace(call.rank, order.item_of(call));
    }
    for (const auto& [send, receive] : verdict.crossed) {
      if (items.size() >= 16) break;
      items.emplace(send.rank, order.item_of(send));
      items.emplace(receive.rank, order.item_of(receive));
    }
    std::vector<OrderEdit> edits;
    const auto add_pairs = [&](Kind kind, bool within) {
      for (const auto& [rank, item] : items) {
        for (std::int32_t other = item + 1; other < order.items(rank); ++other) {
          const bool both = items.contains({rank, other});
          if (within ? !both : both || other > item + reach) continue;
          if (order.communicates(rank, item) && order.communicates(rank, other)) edits.push_back({kind, rank, item, other});
        }
        if (within) continue;
        for (std::int32_t other = std::max(0, item - reach); other < item; ++other) {
          if (items.contains({rank, other})) continue;
          if (order.communicates(rank, item) && order.communicates(rank, other)) edits.push_back({kind, rank, other, item});
        }
      }
    };
    for (const bool within : {true, false}) {
      for (const Kind kind : {Kind::swap, Kind::join, Kind::move}) {
        if (kind != Kind::join || order.takes_groups()) add_pairs(kind, within);
      }
    }
    for (const CallRef& call : verdict.missing) edits.push_back({Kind::remove, call.rank, order.item_of(call), 0});
    return edits;
  }

  /// number of items around those in the hang that are also tried
  static constexpr std::int32_t reach = 3;

  int proofs_ = 0;
};

}  // namespace detail

/// The smallest change found with which the order ends and each message reaches the right receive.
/// @param verdict  of `order.program()`; @return nothing if it is already right, or no fix is found
/// Complexity: at most a few hundred proofs.
template <class Order>
std::optional<Mend<Order>> mend(const Order& order, const HangVerdict& verdict) {
  if (verdict.is_right()) return std::nullopt;
  if (order.program().slots == 0) {
    if (auto found = detail::MendSearch<Order>{}.run(order, verdict)) return found;
  }
  auto whole = order.in_one_order();
  if (whole && prove(whole->order.program()).is_right()) return whole;
  return std::nullopt;
}

}  // namespace tawpipe
