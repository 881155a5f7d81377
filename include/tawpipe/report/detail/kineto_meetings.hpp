// Matches events of PyTorch profiler traces between ranks: which of them are one communication, and
// how far apart their clocks are.
// Not: the work of single ranks (kineto_rank.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/report/detail/kineto_rank.hpp"

namespace tawpipe::inline v0::detail {

class KinetoMeetings {
 public:
  using Place = std::pair<int, int>;  ///< rank, item

  /// Finds them, and aligns the ranks' clocks. @throws InputError  if most communications have no
  /// counterpart.
  KinetoMeetings(std::vector<KinetoRank>& ranks, std::vector<std::string>& notes) : ranks_{ranks} {
    find_meetings();
    align(notes);
    if (unknown_ > 0) {
      notes.push_back(
          concat("Of ", unknown_, " communications the trace does not say who takes part; they take as long as they took."));
    }
    if (unmatched_ > 0) {
      notes.push_back(concat(unmatched_, " communications have no counterpart and take as long as they took: ", example_, "."));
    }
  }

  const KinetoItem& item(Place place) const { return ranks_[at(place.first)].items()[at(place.second)]; }
  /// The sender and the receiver of a message.
  const std::vector<std::vector<Place>>& all() const { return meetings_; }

 private:
  static std::size_t at(int number) { return static_cast<std::size_t>(number); }

  /// Which items of which ranks form a communication. Those that some traced member lacks stay
  /// separate.
  void find_meetings() {
    std::map<std::string, std::vector<Place>> by_name;
    std::map<int, int> place_of;
    for (std::size_t r = 0; r < ranks_.size(); ++r) place_of[ranks_[r].rank()] = static_cast<int>(r);
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const auto& items = ranks_[r].items();
      for (std::size_t i = 0; i < items.size(); ++i) {
        if (items[i].kind != TraceKind::communication) continue;
        if (items[i].meeting.empty()) {
          ++unknown_;
        } else {
          by_name[items[i].meeting].emplace_back(static_cast<int>(r), static_cast<int>(i));
        }
      }
    }
    for (auto& [name, places] : by_name) {
      const KinetoItem& first = item(places.front());
      std::vector<int> lacking;
      std::vector<Place> in_order;
      for (const int member : first.members) {
        const auto traced = place_of.find(member);
        if (traced == place_of.end()) continue;
        const auto found = std::find_if(places.begin(), places.end(), [&](Place p) { return p.first == traced->second; });
        if (found == places.end()) {
          lacking.push_back(member);
        } else {
          in_order.push_back(*found);
        }
      }
      if (!lacking.empty()) {
        if (unmatched_++ == 0) {
          example_ = concat(name, " is in the trace of rank ", ranks_[at(places.front().first)].rank(),
                            " and not in that of rank ", lacking.front());
        }
        continue;
      }
      if (in_order.size() > 1) meetings_.push_back(std::move(in_order));
    }
    if (unmatched_ > meetings_.size()) {
      throw InputError(one_line(concat("the ranks' traces do not match: ", example_, "; profile the same steps on all ranks")));
    }
  }

  /// Moves each rank's clock so that its communications end when those of the others do, by the
  /// median over all of them.
  void align(std::vector<std::string>& notes) {
    for (KinetoRank& rank : ranks_) rank.move(static_cast<double>(rank.base() - ranks_.front().base()) * 1e-3);
    std::vector<std::vector<std::pair<int, double>>> later(ranks_.size());  // [rank] a peer, and how much later it ends
    for (const auto& members : meetings_) {
      for (std::size_t m = 1; m < members.size(); ++m) {  // adjacent members of the group are enough
        const Place a = members[m - 1];
        const Place b = members[m];
        const double difference = item(b).end - item(a).end;
        later[at(b.first)].emplace_back(a.first, difference);
        later[at(a.first)].emplace_back(b.first, -difference);
      }
    }
    std::vector<double> shift(ranks_.size(), 0);
    std::vector<char> known(ranks_.size(), 0);
    known[0] = 1;
    for (std::vector<int> todo{0}; !todo.empty();) {
      const int from = todo.back();
      todo.pop_back();
      std::map<int, std::vector<double>> differences;
      for (const auto& [peer, difference] : later[at(from)]) {
        if (known[at(peer)] == 0) differences[peer].push_back(difference);
      }
      for (auto& [peer, values] : differences) {
        const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
        std::nth_element(values.begin(), middle, values.end());
        // `difference` is how much later `from` ends: the peer's clock is advanced by that.
        shift[at(peer)] = shift[at(from)] + *middle;
        known[at(peer)] = 1;
        todo.push_back(peer);
      }
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (std::abs(shift[r]) <= clock_slack) continue;
      if (!(std::abs(shift[r]) < 1e15))
        throw InputError(one_line(concat(ranks_[r].source(), ": its times are not microseconds")));
      ranks_[r].move(shift[r]);
      notes.push_back(concat("The clock of rank ", ranks_[r].rank(), " was moved by ", std::llround(shift[r]),
                             " us, so that its communications end with those of the others."));
    }
  }

  /// microseconds by which members of one communication may end apart
  static constexpr double clock_slack = 20;

  std::vector<KinetoRank>& ranks_;
  std::vector<std::vector<Place>> meetings_;
  std::size_t unknown_ = 0;
  std::size_t unmatched_ = 0;
  std::string example_;
};

}  // namespace tawpipe::detail
