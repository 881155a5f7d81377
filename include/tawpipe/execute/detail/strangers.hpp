// Connections to an open port that are not yet identified: none of them delays the others or takes
// much memory.
// Not: the identification (execute/cuda/rendezvous.hpp, execute/mpi/watch_peers.hpp).
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tawpipe/execute/detail/clock.hpp"
#include "tawpipe/execute/detail/socket.hpp"

namespace tawpipe::inline v0::detail {

/// The callers at a listening socket until their first message.
class Strangers {
 public:
  /// The limit on open ones; when more connect, the oldest is closed.
  static constexpr std::size_t max_waiting = 256;
  /// backlog of a listening socket; the system may use less
  static constexpr int backlog = 1024;
  static constexpr std::int64_t patience = 5'000'000'000;  ///< ns until a silent one is closed

  /// @param max_bytes  of a first message
  Strangers(int listener, std::size_t max_bytes) : listener_{listener}, max_bytes_{max_bytes} {}

  /// Adds the descriptors for poll(2).
  void add_to(std::vector<pollfd>& all) const {
    all.push_back({listener_, POLLIN, 0});
    for (const Stranger& one : waiting_) all.push_back({one.connection.fd(), POLLIN, 0});
  }

  /// Accepts connections and reads first messages, without waiting.
  /// @param heard  `(const Frame&, Connection&)`, for each first message; connections not moved
  /// from are closed
  template <class Heard>
  void listen(Heard&& heard) {
    while (true) {
      Descriptor socket{::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
      if (!socket.open()) break;
      if (waiting_.size() >= max_waiting) waiting_.erase(waiting_.begin());
      waiting_.push_back({Connection{std::move(socket)}, now()});
      waiting_.back().connection.limit_frames(max_bytes_);
    }
    for (Stranger& one : waiting_) {
      const bool alive = one.connection.receive();
      Frame frame;
      const bool spoke = one.connection.next(frame);
      if (spoke) heard(frame, one.connection);
      if (spoke || !alive || now() - one.came > patience) one.connection.close();
    }
    std::erase_if(waiting_, [](const Stranger& one) { return !one.connection.open(); });
  }

 private:
  struct Stranger {
    Connection connection;
    std::int64_t came = 0;
  };

  int listener_;
  std::size_t max_bytes_;
  std::vector<Stranger> waiting_;  ///< in the order of connection
};

}  // namespace tawpipe::detail
