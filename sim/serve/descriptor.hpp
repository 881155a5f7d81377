// An open file descriptor of the system, closed at the end of its life.
// Not: files by path (../output_file.hpp).
#pragma once

#include <unistd.h>

#include <utility>

namespace tawpipe::sim {

class Descriptor {
 public:
  /// @param number  -1: none
  explicit Descriptor(int number = -1) : number_{number} {}
  Descriptor(Descriptor&& other) noexcept : number_{std::exchange(other.number_, -1)} {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() { close(); }

  int number() const { return number_; }
  bool is_open() const { return number_ >= 0; }
  void close() {
    if (is_open()) ::close(std::exchange(number_, -1));
  }

 private:
  int number_;
};

}  // namespace tawpipe::sim
