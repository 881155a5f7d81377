// Sockets and threads of the meetings. Not: their clients (nccl_communicator.cpp).
#include "software_gpu/nccl_broker.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

namespace software_gpu {
namespace {

bool send_all(int to, const void* from, std::size_t bytes) {
  const char* at = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t sent = ::send(to, at, bytes, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    at += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
  return true;
}
bool receive_all(int from, void* to, std::size_t bytes) {
  char* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::recv(from, at, bytes, MSG_WAITALL);
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}
bool send_text(int to, const std::string& text) {
  const std::uint64_t size = text.size();
  return send_all(to, &size, sizeof size) && send_all(to, text.data(), text.size());
}
bool receive_text(int from, std::string& text) {
  std::uint64_t size = 0;
  if (!receive_all(from, &size, sizeof size)) return false;
  text.resize(size);
  return receive_all(from, text.data(), text.size());
}
bool send_part(int to, const Part& part, bool with_data) {
  return send_text(to, part.head) && send_text(to, with_data ? part.data : std::string{});
}
bool receive_part(int from, Part& part) { return receive_text(from, part.head) && receive_text(from, part.data); }

struct Numbers {  // of a seat
  std::int32_t members;
  std::int32_t index;
  std::int32_t takes_data;
};

socklen_t address_of(const std::string& name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;  // and a path that begins with a zero: abstract
  std::memcpy(address.sun_path + 1, name.data(), std::min(name.size(), sizeof address.sun_path - 1));
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}
sockaddr* generic(sockaddr_un& address) { return reinterpret_cast<sockaddr*>(&address); }

/// Never destroyed: its threads run until the process ends.
class Broker {
 public:
  Broker() : name_{"software-nccl-" + std::to_string(::getpid()) + "-" + std::to_string(std::random_device{}())} {
    sockaddr_un address;
    const socklen_t size = address_of(name_, address);
    const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || ::bind(listener, generic(address), size) != 0 || ::listen(listener, 1024) != 0) {
      std::perror("software NCCL: cannot listen");
      std::abort();
    }
    std::thread([this, listener] {
      for (;;) {
        const int member = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
        if (member >= 0) std::thread([this, member] { serve(member); }).detach();
      }
    }).detach();
  }

  const std::string& name() const { return name_; }
  /// Blocks until members of complete meetings have been answered; not for those that do not read.
  void drain() {
    std::unique_lock lock{mutex_};
    answered_.wait_for(lock, std::chrono::seconds{60}, [&] { return unanswered_ == 0; });
  }

 private:
  struct Meeting {
    std::vector<Part> parts;
    int come = 0;
    std::condition_variable complete;
  };

  void serve(int member) {
    std::string name;
    Numbers seat{};
    Part own;
    if (receive_text(member, name) && receive_all(member, &seat, sizeof seat) && receive_part(member, own)) {
      const std::shared_ptr<const Meeting> all = join(name, seat, std::move(own));
      bool told = true;
      for (const Part& part : all->parts) told = told && send_part(member, part, seat.takes_data != 0);
      const std::lock_guard lock{mutex_};
      if (--unanswered_ == 0) answered_.notify_all();
    }
    ::close(member);
  }
  std::shared_ptr<const Meeting> join(const std::string& name, const Numbers& seat, Part&& own) {
    std::unique_lock lock{mutex_};
    std::shared_ptr<Meeting>& known = meetings_[name];
    if (!known) known = std::make_shared<Meeting>();
    const std::shared_ptr<Meeting> meeting = known;
    meeting->parts.resize(static_cast<std::size_t>(seat.members));
    meeting->parts.at(static_cast<std::size_t>(seat.index)) = std::move(own);
    if (++meeting->come == seat.members) {
      meetings_.erase(name);
      unanswered_ += seat.members;
      meeting->complete.notify_all();
    }
    meeting->complete.wait(lock, [&] { return meeting->come == seat.members; });
    return meeting;
  }

  std::string name_;
  std::mutex mutex_;
  std::condition_variable answered_;
  std::map<std::string, std::shared_ptr<Meeting>> meetings_;  ///< incomplete ones
  int unanswered_ = 0;                                        ///< members of complete ones
};

Broker& broker() {
  static Broker* const one = [] {
    std::atexit([] { broker().drain(); });
    return new Broker;
  }();
  return *one;
}

}  // namespace

const std::string& broker_name() { return broker().name(); }

int attend(const std::string& broker, const Seat& seat, const Part& own) {
  sockaddr_un address;
  const socklen_t size = address_of(broker, address);
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const Numbers numbers{seat.members, seat.index, seat.takes_data ? 1 : 0};
  if (socket >= 0 && ::connect(socket, generic(address), size) == 0 && send_text(socket, seat.meeting) &&
      send_all(socket, &numbers, sizeof numbers) && send_part(socket, own, true)) {
    return socket;
  }
  if (socket >= 0) ::close(socket);
  return -1;
}

bool await_parts(int socket, int members, std::vector<Part>& parts) {
  parts.resize(static_cast<std::size_t>(members));
  return std::all_of(parts.begin(), parts.end(), [&](Part& part) { return receive_part(socket, part); });
}

}  // namespace software_gpu
