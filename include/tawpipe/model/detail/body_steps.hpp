// The steps of a body as they are added: computations that follow each other are one.
// Not: which steps a stage has (model/detail/body_writer.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "tawpipe/model/shared_stage.hpp"

namespace tawpipe::inline v0::detail {

class BodySteps {
 public:
  using Kind = BodyStep::Kind;
  using Axis = BodyStep::Axis;

  /// The first and the last step are computations, of zero time if need be.
  StageBody take() {
    if (!body_.back().is_compute()) compute(0, 0);
    return std::move(body_);
  }

 protected:
  std::int32_t last() const { return static_cast<std::int32_t>(body_.size()) - 1; }
  static Bytes bytes(double value) { return Bytes{static_cast<std::int64_t>(value + 0.5)}; }

  std::int32_t last_compute() const {
    std::int32_t at = last();
    while (at >= 0 && !body_[static_cast<std::size_t>(at)].is_compute()) --at;
    return at;
  }
  /// Adds a computation after `after`. It is merged into the last step if that is a computation and
  /// the only dependency.
  std::int32_t compute(double flops, double traffic, std::initializer_list<std::int32_t> after) {
    const auto waits = [&](std::int32_t earlier) { return earlier >= 0 && earlier != last(); };
    if (!body_.empty() && body_.back().is_compute() && body_.back().pieces == 1 &&
        std::none_of(after.begin(), after.end(), waits)) {
      body_.back().flops = body_.back().flops + Flops{flops};
      body_.back().traffic += bytes(traffic);
      return last();
    }
    BodyStep step{.flops = Flops{flops}, .traffic = bytes(traffic)};
    std::size_t count = 0;
    for (const std::int32_t earlier : after) {
      if (earlier >= 0) step.after[count++] = earlier;
    }
    body_.push_back(step);
    return last();
  }
  std::int32_t compute(double flops, double traffic) { return compute(flops, traffic, {last()}); }

  std::int32_t collective(Kind kind, Axis axis, bool gradients, double size, std::int32_t after) {
    body_.push_back({.kind = kind, .axis = axis, .gradients = gradients, .bytes = bytes(size), .after = {after, -1}});
    return last();
  }
  /// Adds a computation that is not merged with the one before it.
  void compute_apart(double flops, double traffic, std::int32_t after) {
    body_.push_back({.flops = Flops{flops}, .traffic = bytes(traffic), .after = {after, -1}});
  }

  StageBody body_ = StageBody(1);
};

}  // namespace tawpipe::detail
