// Host layers and optimizers as work in the streams of an emulated device.
// Not: the device (emulated_device.hpp).
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <utility>

#include "support/emulated_device.hpp"
#include "tawpipe/backend/device_compute.hpp"

namespace support {

/// A host's layer (LayerCompute) that computes when its stream comes to it.
template <tawpipe::LayerCompute Layer>
class EmulatedLayer {
 public:
  EmulatedLayer(EmulatedMachine& machine, Layer layer) : machine_{&machine}, layer_{std::move(layer)} {}

  void use_stream(EmulatedDevice::Stream stream) { stream_ = stream; }
  void forward(const tawpipe::ForwardArgs& args) {
    machine_->enqueue(stream_.number, [this, args] { layer_.forward(args); });
  }
  void backward(const tawpipe::BackwardArgs& args) {
    machine_->enqueue(stream_.number, [this, args] { layer_.backward(args); });
  }
  void backward_input(const tawpipe::BackwardArgs& args) {
    machine_->enqueue(stream_.number, [this, args] { layer_.backward_input(args); });
  }
  void backward_weight(const tawpipe::BackwardArgs& args) {
    machine_->enqueue(stream_.number, [this, args] { layer_.backward_weight(args); });
  }

 private:
  EmulatedMachine* machine_;
  Layer layer_;
  EmulatedDevice::Stream stream_;
};

/// A host's optimizer in f32 (ParameterUpdate) on an emulated device.
template <tawpipe::ParameterUpdate Optimizer>
class EmulatedUpdate {
 public:
  /// Sees each gradient that an update uses, before clipping.
  using Observer = std::function<void(tawpipe::ParameterRange, std::span<const float>)>;

  EmulatedUpdate(EmulatedMachine& machine, Optimizer optimizer, Observer observe = {})
      : machine_{&machine}, optimizer_{std::move(optimizer)}, observe_{std::move(observe)} {}

  void update(const tawpipe::DeviceUpdateArgs& device, EmulatedDevice::Stream stream) const {
    machine_->enqueue(stream.number, [this, device] {
      const auto count = static_cast<std::size_t>(device.parameters.count());
      if (observe_) observe_(device.parameters, {reinterpret_cast<const float*>(device.gradients.data()), count});
      tawpipe::UpdateArgs args;
      args.parameters = device.parameters;
      args.weights = device.weights;
      args.gradients = device.gradients;
      args.first_moment = std::as_writable_bytes(std::span{device.first_moment, count});
      args.second_moment = std::as_writable_bytes(std::span{device.second_moment, count});
      args.step = device.scalars->step;
      args.learning_rate = device.scalars->learning_rate;
      args.gradient_scale = device.gradient_scale == nullptr ? 1.0 : static_cast<double>(*device.gradient_scale);
      optimizer_.update(args);
    });
  }

 private:
  EmulatedMachine* machine_;
  Optimizer optimizer_;
  Observer observe_;
};

}  // namespace support
