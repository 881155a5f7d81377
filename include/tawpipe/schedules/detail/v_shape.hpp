// Two chunks a rank, laid down the ranks and back up: stage s and stage 2p-1-s share rank s.
// Not: the order of a particular schedule of that shape (schedules/zero_bubble_v.hpp,
// v_schedules.hpp, dualpipe.hpp).
#pragma once

#include <cstdint>
#include <vector>

#include "tawpipe/schedules/pipeline_program.hpp"

namespace tawpipe::inline v0::schedules::detail {

inline void place_v(PipelineProgram& program, int ranks) {
  for (int s = 0; s < 2 * ranks; ++s) program.rank_of_stage.push_back(s < ranks ? s : 2 * ranks - 1 - s);
}

/// Writes the actions of one rank that has two stages, in order: each call takes the next
/// microbatch of its kind. Side 0 is the stage that a microbatch meets first, side 1 the other.
/// Microbatch number n is `offset + n * stride`.
class TwoStageRank {
 public:
  struct Side {
    std::int32_t stage = 0;
    std::int32_t offset = 0;
    std::int32_t stride = 1;
  };
  TwoStageRank(Side first, Side second) : sides_{first, second} {}

  void forward(int side) { add(Op::forward, side, forwards_[side]++); }
  void backward(int side) { add(Op::backward, side, backwards_[side]++); }
  /// The first half of a backward; the second is written by weight() or weight_of().
  void input(int side) {
    waiting_.push_back({Op::backward_weight, sides_[side].stage, microbatch(side, backwards_[side])});
    add(Op::backward_input, side, backwards_[side]++);
  }
  /// The backward_weight that has waited longest.
  void weight() { take(0); }
  /// The one of this side that has waited longest. @return false if none waits
  bool weight_of(int side) {
    for (std::size_t i = taken_; i < waiting_.size(); ++i) {
      if (waiting_[i].stage != sides_[side].stage) continue;
      take(i - taken_);
      return true;
    }
    return false;
  }
  /// A forward of one side and a whole backward of the other as one block.
  void block(int forward_side, int backward_side) {
    forward(forward_side);
    actions_.back().joined = true;
    backward(backward_side);
  }

  int forwards(int side) const { return forwards_[side]; }
  std::vector<Action>& actions() { return actions_; }

 private:
  std::int32_t microbatch(int side, int count) const { return sides_[side].offset + sides_[side].stride * count; }
  void add(Op op, int side, int count) { actions_.push_back({op, sides_[side].stage, microbatch(side, count)}); }
  void take(std::size_t place) {
    const auto at = waiting_.begin() + static_cast<std::ptrdiff_t>(taken_ + place);
    actions_.push_back(*at);
    if (place == 0) {
      ++taken_;
    } else {
      waiting_.erase(at);
    }
  }

  Side sides_[2];
  int forwards_[2] = {0, 0};
  int backwards_[2] = {0, 0};
  std::vector<Action> waiting_;  ///< backward_weights not yet written, from taken_ on
  std::size_t taken_ = 0;
  std::vector<Action> actions_;
};

}  // namespace tawpipe::schedules::detail
