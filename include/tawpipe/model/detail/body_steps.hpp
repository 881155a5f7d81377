// The steps of a body as they are added: computations that follow each other are one.
// Not: which steps a stage has (model/detail/operator_body.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "tawpipe/model/kernel.hpp"
#include "tawpipe/model/shared_stage.hpp"

namespace tawpipe::inline v0::detail {

/// What one rank computes: operations, memory-bound bytes, and the kernels that do them.
struct StepWork {
  double flops = 0;
  double traffic = 0;
  std::vector<StepKernels> kernels = {};

  StepWork& operator+=(const StepWork& other) {
    flops += other.flops;
    traffic += other.traffic;
    kernels.insert(kernels.end(), other.kernels.begin(), other.kernels.end());
    return *this;
  }
  /// Adds those of a stage's kernels that a step runs.
  void take(const std::vector<Kernel>& all, const StepKernels& own) {
    bool any = false;
    for (const Kernel& kernel : all) {
      if (!own.has(kernel)) continue;
      any = true;
      if (kernel.kind == Kernel::Kind::traffic && !kernel.of_weights) traffic += kernel.count * kernel.bytes;
    }
    if (any) kernels.push_back(own);
  }
  bool is_some() const { return flops > 0 || traffic > 0 || !kernels.empty(); }
  /// One of so many equal parts.
  StepWork part(int parts) const {
    StepWork one = *this;
    one.flops /= parts;
    one.traffic /= parts;
    for (StepKernels& kernels_of : one.kernels) kernels_of.share /= parts;
    return one;
  }
};

class BodySteps {
 public:
  using Kind = BodyStep::Kind;
  using Axis = BodyStep::Axis;

  /// The first and the last step are computations, of zero time if need be.
  StageBody take() {
    if (!body_.back().is_compute()) compute({});
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
  std::int32_t compute(const StepWork& work, std::initializer_list<std::int32_t> after) {
    const auto waits = [&](std::int32_t earlier) { return earlier >= 0 && earlier != last(); };
    if (!body_.empty() && body_.back().is_compute() && body_.back().pieces == 1 &&
        std::none_of(after.begin(), after.end(), waits)) {
      body_.back().flops = body_.back().flops + Flops{work.flops};
      body_.back().traffic += bytes(work.traffic);
      body_.back().kernels.insert(body_.back().kernels.end(), work.kernels.begin(), work.kernels.end());
      return last();
    }
    BodyStep step{.flops = Flops{work.flops}, .traffic = bytes(work.traffic), .kernels = work.kernels};
    std::size_t count = 0;
    for (const std::int32_t earlier : after) {
      if (earlier >= 0) step.after[count++] = earlier;
    }
    body_.push_back(std::move(step));
    return last();
  }
  std::int32_t compute(const StepWork& work) { return compute(work, {last()}); }

  std::int32_t collective(Kind kind, Axis axis, bool gradients, double size, std::int32_t after) {
    body_.push_back({.kind = kind, .axis = axis, .gradients = gradients, .bytes = bytes(size), .after = {after, -1}});
    return last();
  }
  /// Adds a computation that is not merged with the one before it.
  void compute_apart(const StepWork& work, std::int32_t after) {
    body_.push_back({.flops = Flops{work.flops}, .traffic = bytes(work.traffic), .after = {after, -1}, .kernels = work.kernels});
  }

  StageBody body_ = StageBody(1);
};

}  // namespace tawpipe::detail
