// A device that does nothing: for what executors cost the host, and for logs of what they call.
// Not: an emulation (emulated_device.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tawpipe/backend/device_compute.hpp"
#include "tawpipe/execute/cuda/device_api.hpp"

namespace support {

/// DeviceApi that counts and does nothing. Memory is there, untouched.
class NullDevice {
 public:
  struct Stream {
    int number = -1;
  };
  struct Event {
    int number = -1;
  };
  struct Graph {};

  void use() {}
  Stream make_stream(tawpipe::cuda::Priority priority) {
    if (priorities != nullptr) priorities->push_back(priority);
    return {streams_++};
  }
  Event make_event(bool) { return {events_++}; }
  std::byte* allocate(std::size_t bytes) {
    memory_.emplace_back(new std::byte[bytes + 256]);
    void* at = memory_.back().get();
    std::size_t room = bytes + 256;
    return static_cast<std::byte*>(std::align(256, bytes, at, room));
  }
  std::byte* allocate_host(std::size_t bytes) { return allocate(bytes); }
  void record(Event, Stream) { ++calls; }
  void wait(Stream, Event) { ++calls; }
  bool finished(Event) const { return true; }
  std::optional<double> seconds_between(Event, Event) const { return 0; }
  void clear(std::byte*, std::size_t, Stream) { ++calls; }
  void copy(std::byte*, const std::byte*, std::size_t, Stream) { ++calls; }
  void upload(std::byte*, const std::byte*, std::size_t, Stream) { ++calls; }
  void download(std::byte*, const std::byte*, std::size_t, Stream) { ++calls; }
  void add(std::byte*, const std::byte*, std::int64_t, tawpipe::Dtype, Stream) { ++calls; }
  void add_squares(float*, const std::byte*, std::int64_t, tawpipe::Dtype, Stream) { ++calls; }
  void clip_scale(float*, const float*, const tawpipe::StepScalars*, Stream) { ++calls; }
  void begin_capture(Stream) {}
  Graph end_capture(Stream) { return {}; }
  void launch(Graph, Stream) {}
  std::size_t free_memory() const { return 0; }
  void drop_graphs() {
    if (log != nullptr) log->emplace_back("graphs dropped");
  }
  bool settle(double) const { return true; }

  std::int64_t calls = 0;
  std::vector<tawpipe::cuda::Priority>* priorities = nullptr;  ///< where those of streams are noted
  std::vector<std::string>* log = nullptr;                     ///< of what comes of a failure

 private:
  int streams_ = 0;
  int events_ = 0;
  std::deque<std::unique_ptr<std::byte[]>> memory_;
};

/// Layer and optimizer that do nothing.
struct NullLayer {
  void use_stream(auto) {}
  void forward(const tawpipe::ForwardArgs&) {}
  void backward(const tawpipe::BackwardArgs&) {}
  void backward_input(const tawpipe::BackwardArgs&) {}
  void backward_weight(const tawpipe::BackwardArgs&) {}
};
struct NullUpdate {
  void update(const tawpipe::DeviceUpdateArgs&, auto) const {}
};

}  // namespace support
