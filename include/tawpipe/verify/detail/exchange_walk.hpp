// What exchanges among the tensor- and context-parallel ranks of a logical rank do to the symbols in buffers.
// Not: transfers and sums of the schedule itself (transfer_walk.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tawpipe/schedule/describe.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/verify/detail/contents_walk.hpp"

namespace tawpipe::inline v0::detail {

class ExchangeWalk {
 public:
  ExchangeWalk(const Schedule& schedule, ContentsWalk& walk) : schedule_{schedule}, walk_{walk} {}

  /// What the tensor- or context-parallel ranks of one logical rank have computed of an activation is put together.
  void run(TaskId t) {
    const Task& task = schedule_.task(t);
    const WholeModel& layout = walk_.model();
    const std::uint8_t bit = task.op == Op::all_reduce ? lacks_sum : task.op == Op::all_gather ? lacks_keys : lacks_key_gradients;
    const auto fail = [&](Rank rank, const std::string& what) {
      walk_.error(
          "V512", t, rank, [&] { return concat(describe(schedule_, t), what); },
          "sum over the tensor-parallel, or gather and scatter over the context-parallel ranks of one computation, all of them");
    };
    const auto members = schedule_.group(task.group);
    const LayoutPlace& first = layout.place(members[0]);
    bool fits = members.size() == static_cast<std::size_t>(bit == lacks_sum ? layout.tensor : layout.context);
    for (const Rank member : members) {
      const LayoutPlace& place = layout.place(member);
      fits = fits && place.logical == first.logical && place.data == first.data;
      fits = fits && (bit == lacks_sum ? place.context == first.context : place.tensor == first.tensor);
    }
    if (!fits) return fail(members[0], " is not among the ranks of one logical rank that share its computation so");
    std::size_t parts = 0;
    Rank last = none<Rank>;
    const bool gradients = task.payload == Payload::activation_gradients;
    for (const Use& use : schedule_.uses(t)) {
      const Rank rank = schedule_.buffer(use.buffer).rank;
      if (!walk_.is_activation(use.buffer)) return fail(rank, concat(" combines ", describe(schedule_, use.buffer)));
      const Activation& content = walk_.activation(use.buffer);
      if (content.made == Made::nothing) {
        walk_.unwritten(t, use);
        continue;
      }
      const bool made =
          content.is_of_forward() || content.made == Made::backward_output || (content.made == Made::stash && gradients);
      const bool same = content.stage == number(task.stage) && content.microbatch == task.microbatch;
      // A first stage's backward hands on nothing: what it exchanges are its layers' gradients, from the forward's result that it
      // works on.
      const bool way = content.is_of_forward() ? !gradients || content.used : gradients;
      if (!made || !same || !way || content.tensor != layout.place(rank).tensor) {
        fail(rank, concat(" finds ", content.words(), " in ", describe(schedule_, use.buffer)));
        continue;
      }
      if (rank != last) ++parts;
      last = rank;
    }
    if (parts != members.size()) return fail(members[0], concat(" has parts of ", parts, " of its ", members.size(), " ranks"));
    for (const Use& use : schedule_.uses(t)) {
      Activation& content = walk_.activation(use.buffer);
      const Rank rank = schedule_.buffer(use.buffer).rank;
      const bool own = gradients ? content.made == Made::backward_output : content.is_of_forward();
      if ((own ? content.lacks & bit : ~content.backward & bit) == 0) {
        fail(rank, " combines for the second time what its ranks have computed");
      } else if (own ? content.used : content.finished) {
        fail(rank, " combines what its backward has used before");
      }
      std::uint8_t& bits = own ? content.lacks : content.backward;
      bits = static_cast<std::uint8_t>(own ? bits & ~bit : bits | bit);
    }
  }

 private:
  const Schedule& schedule_;
  ContentsWalk& walk_;
};

}  // namespace tawpipe::detail
