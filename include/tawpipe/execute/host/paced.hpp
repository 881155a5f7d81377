// Layers slowed to the speed of a slower device, so that ranks that share processor cores do not
// slow each other down.
// Not: what the layers compute, nor a model of a device's time (cost/).
#pragma once

#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>

#include "tawpipe/backend/layer_compute.hpp"
#include "tawpipe/backend/shared_compute.hpp"
#include "tawpipe/core/units.hpp"

namespace tawpipe::inline v0::host {

/// `Layer`, each of whose computations takes at least its floating-point operations over `speed`:
/// it sleeps for the rest. For measuring schedules on fewer cores than ranks; a computation that
/// takes longer is not shortened.
template <LayerCompute Layer>
class Paced {
 public:
  /// @param speed  0: as fast as possible
  Paced(Layer layer, FlopsPerSecond speed) : layer_{std::move(layer)}, speed_{speed} {}

  void forward(const ForwardArgs& args) {
    const Pause pause{*this, args.stage->forward};
    layer_.forward(args);
  }
  void backward(const BackwardArgs& args) {
    const Pause pause{*this, args.stage->recompute + args.stage->backward_input + args.stage->backward_weight};
    layer_.backward(args);
  }
  void backward_input(const BackwardArgs& args) {
    const Pause pause{*this, args.stage->recompute + args.stage->backward_input};
    layer_.backward_input(args);
  }
  void backward_weight(const BackwardArgs& args) {
    const Pause pause{*this, args.stage->backward_weight};
    layer_.backward_weight(args);
  }

  // The steps of stages that ranks share, if the layer computes such.
  StepPlan plan(const Passes& passes, const StageWork& stage, const StageBody& body,
                const SharedPart& part) const requires SharedLayerCompute<Layer> {
    return layer_.plan(passes, stage, body, part);
  }
  template <class Args>
  void run(const StepPlan& plan, std::size_t step, const Args& args) requires SharedLayerCompute<Layer> {
    const Pause pause{*this, plan.flops[step]};
    layer_.run(plan, step, args);
  }
  template <class Args>
  ExchangeArgs exchange(const StepPlan& plan, std::size_t step, const Args& args) const requires SharedLayerCompute<Layer> {
    return layer_.exchange(plan, step, args);
  }

 private:
  /// Its destructor sleeps until the operations would be done.
  class Pause {
   public:
    Pause(const Paced& paced, Flops work) : begin_{Clock::now()}, seconds_{0} {
      if (paced.speed_.value() > 0) seconds_ = std::chrono::duration<double>{work.value() / paced.speed_.value()};
    }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;
    ~Pause() {
      if (seconds_.count() > 0) std::this_thread::sleep_until(begin_ + std::chrono::duration_cast<Clock::duration>(seconds_));
    }

   private:
    using Clock = std::chrono::steady_clock;
    Clock::time_point begin_;
    std::chrono::duration<double> seconds_;
  };

  Layer layer_;
  FlopsPerSecond speed_;
};

}  // namespace tawpipe::host
