// Recorded calls that meet and differ in kind, size or type.
// Not: calls without a counterpart (verify/diagnose.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tawpipe/core/text.hpp"
#include "tawpipe/verify/detail/flight_calls.hpp"
#include "tawpipe/verify/flight_record.hpp"

namespace tawpipe::inline v0::detail {

class FlightMismatch {
 public:
  FlightMismatch(const FlightCalls& calls, FlightDiagnosis& out) : calls_{calls}, out_{out} {
    for (const FlightDump& dump : calls.record().dumps) {
      whole_ = whole_ && dump.whole;
      for (const FlightCall& call : dump.calls) {
        if (call.batch >= 0) batched_.insert(call.group);
      }
    }
  }

  /// Tells the first mismatch; later ones follow from it. @return whether there is one
  bool run() {
    for (const auto& [meeting, made] : calls_.meetings()) {
      // Where batches count as collectives (PyTorch's NCCL), numbers of ranks that dropped some
      // cannot be compared.
      const bool comparable = whole_ || !batched_.contains(std::get<0>(meeting));
      if (!comparable && calls_.has_ended(*made[0].call)) continue;
      if (differs_in_form(made) || differs_in_pairs(made)) return true;
    }
    for (const auto& [way, ends] : calls_.ways()) {
      if (differs_on_way(way, ends)) return true;
    }
    return false;
  }

 private:
  static std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

  void blame(std::int32_t rank, const FlightCall& call, std::string why) {
    out_.verdict = FlightVerdict::mismatch;
    out_.culprits.push_back(
        {rank, calls_.group_of(call).shown(), FlightCalls::number_text(call), std::move(why), calls_.place(call)});
  }

  /// Calls of one number in one group that differ in kind, size or type. The minority differs from
  /// the majority.
  bool differs_in_form(const std::vector<FlightMade>& made) {
    std::map<std::tuple<std::string, std::int64_t, std::string>, std::vector<FlightMade>> forms;
    for (const FlightMade& one : made) {
      // The sizes of these may differ between ranks.
      const std::string& kind = one.call->kind;
      const bool uneven = kind == "all_to_all" || kind == "gather" || kind == "scatter" || kind == "barrier" ||
                          kind.find("sparse") != std::string::npos;
      forms[{kind, uneven ? 0 : one.call->elements, uneven ? "" : one.call->type}].push_back(one);
    }
    if (forms.size() < 2) return false;
    const auto usual = std::max_element(forms.begin(), forms.end(),
                                        [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    const bool clear = usual->second.size() * 2 > made.size();
    for (const auto& [form, ranks] : forms) {
      if (clear && form == usual->first) continue;
      const auto& [kind, elements, type] = form;
      const auto& [usual_kind, usual_elements, usual_type] = usual->first;
      for (const FlightMade& one : ranks) {
        std::string why = concat("calls ", kind, " of ", elements, " ", type, " elements");
        if (clear) why += concat(" where others call ", usual_kind, " of ", usual_elements, " ", usual_type);
        blame(one.rank, *one.call, std::move(why));
      }
    }
    return true;
  }

  /// An all_to_all in which a rank sends another what that one does not expect; where only sums are
  /// recorded, in which more is sent than received.
  bool differs_in_pairs(const std::vector<FlightMade>& made) {
    const std::vector<std::int32_t>& ranks = calls_.group_of(*made[0].call).ranks;
    if (made[0].call->kind != "all_to_all" || made.size() != ranks.size()) return false;
    std::int64_t sent = 0;
    std::int64_t received = 0;
    std::map<std::int32_t, const FlightCall*> by_rank;
    for (const FlightMade& one : made) {
      sent += one.call->elements;
      received += one.call->outputs;
      if (one.call->pairs.size() == 2 * ranks.size()) by_rank[one.rank] = one.call;
    }
    if (std::all_of(ranks.begin(), ranks.end(), [&](std::int32_t rank) { return by_rank.contains(rank); })) {
      for (std::size_t i = 0; i < ranks.size(); ++i) {
        for (std::size_t j = 0; j < ranks.size(); ++j) {
          const FlightCall& from = *by_rank.at(ranks[i]);
          const FlightCall& to = *by_rank.at(ranks[j]);
          const std::int64_t expected = to.pairs[ranks.size() + i];
          if (from.pairs[j] == expected) continue;
          blame(ranks[i], from, concat("sends ", from.pairs[j], " elements to rank ", ranks[j], ", which expects ", expected));
          blame(ranks[j], to, concat("expects ", expected, " elements from rank ", ranks[i], ", which sends ", from.pairs[j]));
          return true;
        }
      }
      return false;
    }
    if (received == 0 || sent == received) return false;
    out_.verdict = FlightVerdict::mismatch;
    out_.note = concat("the ranks of ", calls_.text(*made[0].call), " send ", sent, " elements in all, and expect ", received);
    return true;
  }

  /// A send and its receive that differ in size or type: the n-th of each, counted from the first
  /// call, or from the first open one.
  bool differs_on_way(const FlightCalls::Way& way, const FlightCalls::Ends& ends) {
    const auto [group, from, to] = way;
    std::vector<const FlightCall*> matched[2];
    const bool whole = calls_.is_whole(from) && calls_.is_whole(to);
    for (std::size_t e = 0; e < 2; ++e) {
      for (const FlightCall* call : ends[e]) {
        if (whole || !calls_.has_ended(*call)) matched[e].push_back(call);
      }
    }
    for (std::size_t i = 0; i < std::min(matched[0].size(), matched[1].size()); ++i) {
      const FlightCall& send = *matched[0][i];
      const FlightCall& receive = *matched[1][i];
      const bool known = send.elements > 0 && receive.elements > 0;
      if (!known || (send.elements == receive.elements && send.type == receive.type)) continue;
      blame(from, send,
            concat("sends ", send.elements, " ", send.type, " elements where rank ", to, " receives ", receive.elements, " ",
                   receive.type));
      blame(to, receive,
            concat("receives ", receive.elements, " ", receive.type, " elements where rank ", from, " sends ", send.elements, " ",
                   send.type));
      return true;
    }
    return false;
  }

  const FlightCalls& calls_;
  FlightDiagnosis& out_;
  bool whole_ = true;               ///< all dumps go back to their first call
  std::set<std::int32_t> batched_;  ///< groups with batches of sends and receives
};

/// @return whether calls that meet differ; then the verdict and culprits are in `out`
inline bool find_flight_mismatch(const FlightCalls& calls, FlightDiagnosis& out) { return FlightMismatch{calls, out}.run(); }

}  // namespace tawpipe::detail
