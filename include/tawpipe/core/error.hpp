// The exceptions of the library: bad input, an impossible request, a failing device.
// Not: findings about a schedule (verify/diagnostics.hpp), nor the caller's own bugs
// (core/config.hpp).
#pragma once

#include <stdexcept>
#include <string>

namespace tawpipe::inline v0 {

/// Base of everything the library throws on purpose. The message is one line and names what is
/// wrong and what would be right.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A file, flag, name or size that cannot be used as given.
class InputError : public Error {
 public:
  using Error::Error;
};

/// A schedule that cannot be built, or is not well formed (a cycle, a task without a rank).
class ScheduleError : public Error {
 public:
  using Error::Error;
};

/// A device, communicator or process that failed while running.
class DeviceError : public Error {
 public:
  using Error::Error;
};

}  // namespace tawpipe
