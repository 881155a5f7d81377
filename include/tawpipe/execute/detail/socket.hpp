// TCP connections between ranks, separate from their training data: connect and accept with a time
// limit, messages with kind and length.
// Not: their contents (execute/watch.hpp).
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/execute/detail/clock.hpp"

namespace tawpipe::inline v0::detail {

/// An open file descriptor, closed at the end.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_{fd} {}
  Descriptor(Descriptor&& other) noexcept : fd_{std::exchange(other.fd_, -1)} {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { close(); }

  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

/// Waits until `fd` can be read or written. @return false after `milliseconds`
inline bool await(int fd, short events, int milliseconds) {
  pollfd one{fd, events, 0};
  int ready = 0;
  do {
    ready = ::poll(&one, 1, milliseconds);
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

/// A message of the watch.
struct Frame {
  std::uint32_t kind = 0;
  std::string text;
};

/// The default limit on a message's length: rank 0's answer to a million ranks fits.
inline constexpr std::size_t max_frame_bytes = std::size_t{1} << 30U;

/// A connection to one rank.
class Connection {
 public:
  Connection() = default;
  /// From now on a longer message, or one that announces such a length, counts as the end of the
  /// connection.
  void limit_frames(std::size_t bytes) { max_bytes_ = bytes; }
  explicit Connection(Descriptor socket) : socket_{std::move(socket)} {
    const int on = 1;
    ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }

  bool open() const { return socket_.open(); }
  int fd() const { return socket_.get(); }
  void close() { socket_.close(); }

  /// Never waits: messages are few and short, and a peer that does not read them will be given up.
  void send(std::uint32_t kind, std::string_view text) {
    if (!open()) return;
    const std::uint32_t head[2] = {kind, static_cast<std::uint32_t>(text.size())};
    std::string all(reinterpret_cast<const char*>(head), sizeof head);
    all += text;
    const auto sent = ::send(socket_.get(), all.data(), all.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    static_cast<void>(sent);
  }

  /// Waits until all of it is sent. @return false if the other end does not accept it in time, or
  /// is gone
  bool send_whole(std::uint32_t kind, std::string_view text, int milliseconds) {
    if (!open()) return false;
    const std::uint32_t head[2] = {kind, static_cast<std::uint32_t>(text.size())};
    std::string all(reinterpret_cast<const char*>(head), sizeof head);
    all += text;
    for (std::size_t sent = 0; sent < all.size();) {
      const auto part = ::send(socket_.get(), all.data() + sent, all.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (part > 0) {
        sent += static_cast<std::size_t>(part);
      } else if ((errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) || !await(socket_.get(), POLLOUT, milliseconds)) {
        return false;
      }
    }
    return true;
  }

  /// Reads the available data, up to one message of maximum length. @return false once the other
  /// end is closed, or its message is too long
  bool receive() {
    char bytes[4096];
    while (!too_long() && inbox_.size() < sizeof(std::uint32_t[2]) + max_bytes_) {
      const auto got = ::recv(socket_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
      if (got <= 0) return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
      inbox_.append(bytes, static_cast<std::size_t>(got));
    }
    return !too_long();
  }
  /// The next whole message. @return false if there is none
  bool next(Frame& frame) {
    std::uint32_t head[2];
    if (inbox_.size() < sizeof head) return false;
    std::memcpy(head, inbox_.data(), sizeof head);
    if (head[1] > max_bytes_ || inbox_.size() - sizeof head < head[1]) return false;
    frame.kind = head[0];
    frame.text = inbox_.substr(sizeof head, head[1]);
    inbox_.erase(0, sizeof head + head[1]);
    return true;
  }
  /// Waits for one message. @return false if it has not arrived completely in time
  bool await_frame(Frame& frame, int milliseconds) {
    const std::int64_t deadline = now() + std::int64_t{milliseconds} * 1'000'000;
    while (!next(frame)) {
      const std::int64_t left = (deadline - now()) / 1'000'000;
      if (left <= 0 || !await(socket_.get(), POLLIN, static_cast<int>(left))) return next(frame);
      const bool alive = receive();
      if (!alive) return next(frame);
    }
    return true;
  }

 private:
  bool too_long() const {
    std::uint32_t head[2];
    if (inbox_.size() < sizeof head) return false;
    std::memcpy(head, inbox_.data(), sizeof head);
    return head[1] > max_bytes_;
  }

  std::size_t max_bytes_ = max_frame_bytes;
  Descriptor socket_;
  std::string inbox_;
};

/// Listens on any address of this host. @return the socket, not open if that failed; `port` is set
inline Descriptor listen_anywhere(int backlog, std::uint16_t& port) {
  Descriptor socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t size = sizeof address;
  const bool fine = socket.open() && ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                    ::listen(socket.get(), backlog) == 0 &&
                    ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0;
  if (!fine) return {};
  port = ntohs(address.sin_port);
  return socket;
}

/// This host's IPv4 addresses, the loopback's last.
inline std::vector<std::uint32_t> own_addresses() {
  std::vector<std::uint32_t> addresses;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) == 0) {
    for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
      const bool up = (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0;
      if (!up || one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
      sockaddr_in address{};
      std::memcpy(&address, one->ifa_addr, sizeof address);
      addresses.push_back(address.sin_addr.s_addr);
    }
    ::freeifaddrs(all);
  }
  addresses.push_back(htonl(INADDR_LOOPBACK));
  return addresses;
}

/// Listens on `port` of all addresses, IPv6's and IPv4's. @return the socket, not open if that
/// failed for the reason `error`
inline Descriptor listen_on(std::uint16_t port, int backlog, int& error) {
  const int on = 1;
  const int off = 0;
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(port);
  Descriptor socket{::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  bool bound = socket.open() && ::bind(socket.get(), reinterpret_cast<sockaddr*>(&six), sizeof six) == 0;
  if (!bound && errno != EADDRINUSE) {  // a host without IPv6
    sockaddr_in four{};
    four.sin_family = AF_INET;
    four.sin_port = htons(port);
    socket = Descriptor{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    bound = socket.open() && ::bind(socket.get(), reinterpret_cast<sockaddr*>(&four), sizeof four) == 0;
  }
  if (bound && ::listen(socket.get(), backlog) == 0) return socket;
  error = errno;
  return {};
}

/// @return not open if the connection is not established in time; `error` then says why
inline Descriptor connect_to(const sockaddr* address, socklen_t size, int milliseconds, int& error) {
  Descriptor socket{::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  error = 0;
  if (socket.open() && ::connect(socket.get(), address, size) == 0) return socket;
  if (!socket.open() || errno != EINPROGRESS) {
    error = errno;
  } else if (!await(socket.get(), POLLOUT, milliseconds)) {
    error = ETIMEDOUT;
  } else {
    socklen_t length = sizeof error;
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
    if (error == 0) return socket;
  }
  return {};
}
/// Connects to an IPv4 address in network order. @return not open if the connection is not
/// established in time
inline Descriptor connect_to(std::uint32_t host, std::uint16_t port, int milliseconds) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = host;
  int error = 0;
  return connect_to(reinterpret_cast<const sockaddr*>(&address), sizeof address, milliseconds, error);
}

}  // namespace tawpipe::detail
