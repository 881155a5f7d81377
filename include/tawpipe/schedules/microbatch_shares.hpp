// How many microbatches each rank runs in one round, according to its speed, and which.
// Not: what a round is (schedules/tawpipe.hpp).
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/topology/device_group.hpp"

namespace tawpipe::inline v0::schedules {

/// How fast devices are relative to each other.
struct Speeds {
  std::vector<double> each{};  ///< for each group or each rank; empty: all equal
  bool known = false;          ///< use the known speeds of the devices

  Speeds() = default;
  Speeds(std::initializer_list<double> of_each) : each{of_each} {}
  Speeds(std::vector<double> of_each) : each{std::move(of_each)} {}

  static std::string values() { return "equal|auto|N+N"; }
  static std::string expected() { return "equal, auto, or a number above zero for each group or rank, such as 1+2"; }
  std::string text() const {
    if (known) return "auto";
    std::string text;
    for (const double speed : each) {
      char digits[32];
      const auto written = std::to_chars(digits, digits + sizeof digits, speed);
      text += concat(text.empty() ? "" : "+", std::string_view{digits, static_cast<std::size_t>(written.ptr - digits)});
    }
    return text.empty() ? "equal" : text;
  }
  static std::optional<Speeds> parse(std::string_view text) {
    Speeds speeds;
    speeds.known = text == "auto";
    if (speeds.known || text == "equal") return speeds;
    for (;; text.remove_prefix(1)) {
      const auto speed = take_number<double>(text);
      if (!speed || !(*speed > 0)) return std::nullopt;
      speeds.each.push_back(*speed);
      if (text.empty()) return speeds;
      if (text.front() != '+') return std::nullopt;
    }
  }
};

/// Whole numbers in about the ratio of `speeds`, the lowest 1 or slightly more: the smallest that
/// keep at least 95 % of the total speed busy where ranks wait for each other after a round; if the
/// lowest would exceed 8, the best up to that.
///
/// Speeds 1 and 2 give 1 and 2, 1 and 1.5 give 2 and 3, 312 and 989 give 1 and 3.
/// @param speeds  [rank] microbatches in any fixed time
/// @throws InputError  if a speed is not above zero, or one is over 64 times another.
inline std::vector<int> microbatches_by_speed(const std::vector<double>& speeds) {
  std::vector<int> best;
  if (speeds.empty()) return best;
  const auto [slowest, fastest] = std::minmax_element(speeds.begin(), speeds.end());
  if (!(*slowest > 0) || !(*fastest <= 64 * *slowest)) {
    throw InputError("speeds of devices must be above zero, and none over 64 times another's");
  }
  double all = 0;
  for (const double speed : speeds) all += speed;
  double max_busy = 0;
  for (int least = 1; least <= 8 && max_busy < 0.95; ++least) {
    std::vector<int> counts;
    double longest = 0;
    double done = 0;
    for (const double speed : speeds) {
      counts.push_back(std::max(1, static_cast<int>(least * speed / *slowest + 0.5)));
      longest = std::max(longest, counts.back() / speed);
      done += counts.back();
    }
    const double busy = done / (longest * all);
    if (busy <= max_busy + 1e-9) continue;
    max_busy = busy;
    best = std::move(counts);
  }
  return best;
}

/// [rank] microbatches of a round. @param speeds  for each group or for each rank, or none: one
/// each
/// @throws InputError  as above, or for a wrong number of speeds.
inline std::vector<int> microbatches_by_speed(const std::vector<double>& speeds, const DeviceGroups& groups) {
  const auto ranks = static_cast<std::size_t>(groups.ranks());
  if (speeds.empty()) return std::vector<int>(ranks, 1);
  if (speeds.size() == ranks) return microbatches_by_speed(speeds);
  if (speeds.size() != static_cast<std::size_t>(groups.count())) {
    throw InputError(concat("tawpipe: ", speeds.size(), " speeds are given; give one for each of the ", groups.count(),
                            " groups or of the ", ranks, " ranks"));
  }
  std::vector<double> of_ranks;
  for (int r = 0; r < groups.ranks(); ++r) of_ranks.push_back(speeds[static_cast<std::size_t>(groups.group_of(r))]);
  return microbatches_by_speed(of_ranks);
}

/// The microbatches of an iteration in rounds: in each, every rank takes one, then all ranks with a
/// second one, and so on. A last round may be short.
class MicrobatchShares {
 public:
  /// @param counts  [rank] microbatches in one round
  MicrobatchShares(std::vector<int> counts, std::int64_t microbatches)
      : counts_{std::move(counts)}, places_(counts_.size()), microbatches_{microbatches} {
    const int most = *std::max_element(counts_.begin(), counts_.end());
    for (int i = 0; i < most; ++i) {
      for (std::size_t r = 0; r < counts_.size(); ++r) {
        if (i < counts_[r]) places_[r].push_back(in_round_++);
      }
    }
  }

  int count(int rank) const { return counts_[static_cast<std::size_t>(rank)]; }
  const std::vector<int>& counts() const { return counts_; }
  bool are_equal() const {
    return std::all_of(counts_.begin(), counts_.end(), [](int count) { return count == 1; });
  }
  std::int64_t rounds() const { return (microbatches_ + in_round_ - 1) / in_round_; }
  /// The rank's microbatch `i` of a round; -1 if the last round is too short for it.
  std::int64_t microbatch(int rank, int i, std::int64_t round) const {
    const std::int64_t number = round * in_round_ + places_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(i)];
    return number < microbatches_ ? number : -1;
  }
  bool has_microbatch(int rank, std::int64_t round) const { return microbatch(rank, 0, round) >= 0; }

  /// The counts as speeds: one number a group if ranks within groups are equal, otherwise one a
  /// rank; none if all are equal.
  Speeds speeds(const DeviceGroups& groups) const {
    Speeds speeds;
    if (are_equal()) return speeds;
    bool by_group = true;
    for (int r = 0; r < groups.ranks(); ++r) by_group = by_group && count(r) == count(groups.first(groups.group_of(r)));
    for (int i = 0; i < (by_group ? groups.count() : groups.ranks()); ++i) {
      speeds.each.push_back(count(by_group ? groups.first(i) : i));
    }
    return speeds;
  }

 private:
  std::vector<int> counts_;
  std::vector<std::vector<std::int64_t>> places_;  ///< [rank][i] in a round
  std::int64_t in_round_ = 0;
  std::int64_t microbatches_;
};

}  // namespace tawpipe::schedules
