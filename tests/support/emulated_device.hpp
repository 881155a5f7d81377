// A device over host memory, for tests of the CUDA executors where there is no GPU.
// Not: the order in which its streams run (emulated_machine.hpp); layers on it
// (emulated_layers.hpp).
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "support/emulated_machine.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/execute/cuda/device_api.hpp"

namespace support {

/// DeviceApi over an EmulatedMachine. f32 (and f64) only.
class EmulatedDevice {
 public:
  struct Stream {
    int number = -1;
  };
  struct Event {
    int number = -1;
  };
  struct Graph {
    int number = -1;
  };

  EmulatedDevice(EmulatedMachine& machine, int number) : machine_{&machine}, number_{number} {}

  void use() {}
  Stream make_stream(tawpipe::cuda::Priority) { return {machine_->make_stream(number_)}; }
  Event make_event(bool) { return {machine_->make_event()}; }
  std::byte* allocate(std::size_t bytes) {
    ++machine_->allocations;
    memory_.emplace_back(bytes + 256);
    std::memset(memory_.back().data(), 0xff, memory_.back().size());  // not a number
    void* at = memory_.back().data();
    std::size_t room = bytes + 256;
    return static_cast<std::byte*>(std::align(256, bytes, at, room));
  }
  std::byte* allocate_host(std::size_t bytes) { return allocate(bytes); }

  void record(Event event, Stream stream) { machine_->record(event.number, stream.number); }
  void wait(Stream stream, Event event) { machine_->wait(stream.number, event.number); }
  bool finished(Event event) { return machine_->finished(event.number); }
  std::optional<double> seconds_between(Event from, Event to) const {
    const std::optional<double> begin = machine_->time(from.number);
    const std::optional<double> end = machine_->time(to.number);
    if (!begin || !end) return std::nullopt;
    return *end - *begin;
  }

  void clear(std::byte* to, std::size_t bytes, Stream stream) {
    machine_->enqueue(stream.number, [=] { std::memset(to, 0, bytes); });
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes, Stream stream) {
    machine_->enqueue(stream.number, [=] { std::memmove(to, from, bytes); });
  }
  void upload(std::byte* to, const std::byte* from, std::size_t bytes, Stream stream) { copy(to, from, bytes, stream); }
  void download(std::byte* to, const std::byte* from, std::size_t bytes, Stream stream) { copy(to, from, bytes, stream); }
  void add(std::byte* to, const std::byte* from, std::int64_t count, tawpipe::Dtype type, Stream stream) {
    check(type);
    machine_->enqueue(stream.number, [=] {
      for (std::int64_t i = 0; i < count; ++i) reinterpret_cast<float*>(to)[i] += reinterpret_cast<const float*>(from)[i];
    });
  }
  void add_squares(float* sum, const std::byte* from, std::int64_t count, tawpipe::Dtype type, Stream stream) {
    check(type);
    machine_->enqueue(stream.number, [=] {
      double own = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        const double value = reinterpret_cast<const float*>(from)[i];
        own += value * value;
      }
      *sum += static_cast<float>(own);
    });
  }
  void clip_scale(float* scale, const float* square, const tawpipe::StepScalars* scalars, Stream stream) {
    machine_->enqueue(stream.number, [=] {
      const double norm = std::sqrt(static_cast<double>(*square));
      const double clip = scalars->gradient_clip;
      *scale = std::isnan(norm) ? std::nanf("") : clip > 0 && norm > clip ? static_cast<float>(clip / norm) : 1.0F;
    });
  }

  void begin_capture(Stream stream) { machine_->begin_capture(stream.number); }
  Graph end_capture(Stream stream) { return {machine_->end_capture(stream.number)}; }
  void launch(Graph graph, Stream stream) { machine_->launch(graph.number, stream.number); }
  std::size_t free_memory() const { return 0; }
  void drop_graphs() {}
  bool settle(double) const { return true; }  // its streams run only while somebody waits

 private:
  static void check(tawpipe::Dtype type) {
    if (type != tawpipe::Dtype::f32) throw tawpipe::DeviceError("the emulated device adds in f32 only");
  }

  EmulatedMachine* machine_;
  int number_;
  std::deque<std::vector<std::byte>> memory_;
};

}  // namespace support
