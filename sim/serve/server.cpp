// The connections of `tawpipe serve`, and the loop that waits for all of them.
#include "server.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../output_file.hpp"
#include "../request.hpp"
#include "http.hpp"
#include "questions.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::sim {

namespace {

using Clock = CommandRun::Clock;

constexpr std::size_t max_connections = 256;  // others wait with the system until one ends
constexpr std::size_t max_waiting = 32;       // questions; more are told to come again
constexpr int come_again = 10;                // seconds
constexpr std::chrono::seconds time_to_ask{10};
constexpr std::chrono::seconds time_to_take{60};  // an answer
constexpr std::chrono::seconds time_to_leave{2};  // for a client that still sends when it has its answer
constexpr std::chrono::seconds time_of_rest{1};   // where the system has no room for a connection

/// An eventfd, for the handler of signals.
volatile std::sig_atomic_t told_to_end = -1;

struct Connection {
  enum class State { asks, waits, takes, leaves, gone };

  explicit Connection(Descriptor accepted) : socket{std::move(accepted)} {}

  Descriptor socket;
  State state = State::asks;
  Clock::time_point until = Clock::now() + time_to_ask;
  std::string received;  ///< asks: so far
  HttpRequest request = {};
  std::vector<std::string> arguments = {};    ///< waits: of its run
  std::unique_ptr<CommandRun> run = nullptr;  ///< waits: once there is room for it
  std::string answer = {};                    ///< takes
  std::size_t taken = 0;

  void answer_with(const HttpAnswer& what) {
    run.reset();
    answer = http_text(what, received);
    state = State::takes;
    until = Clock::now() + time_to_take;
  }
};
using State = Connection::State;

class Server {
 public:
  explicit Server(const ServeRequest& request)
      : limits_{std::chrono::seconds{request.time_limit}, machine_memory() / 2 / request.jobs},
        jobs_{static_cast<std::size_t>(request.jobs)} {
    take_signals();
    listen(request.port);
  }

  /// Until a signal ends it.
  void serve() {
    std::vector<pollfd> polled;
    for (;;) {
      start_runs();
      fill(polled);
      ::poll(polled.data(), polled.size(), milliseconds());
      if (polled[0].revents != 0) return;
      for (std::size_t i = 0; i < connections_.size(); ++i) go_on(connections_[i], &polled[2 + 3 * i]);
      std::erase_if(connections_, [](const Connection& one) { return one.state == State::gone; });
      if (polled[1].revents != 0) accept();
    }
  }

 private:
  /// By handlers, not by a signalfd: a thread of a library may be the one that gets the signal.
  void take_signals() {
    signals_ = Descriptor{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    told_to_end = signals_.number();
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction now {};
      ::sigaction(signal, nullptr, &now);
      if (now.sa_handler == SIG_IGN) continue;
      now = {};
      now.sa_handler = [](int) { ::eventfd_write(told_to_end, 1); };
      ::sigaction(signal, &now, nullptr);
    }
  }

  void listen(int port) {
    listener_ = Descriptor{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    const int yes = 1;  // a port whose last connections have just ended is free
    ::setsockopt(listener_.number(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    auto* const general = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof address;
    if (::bind(listener_.number(), general, size) != 0 || ::listen(listener_.number(), SOMAXCONN) != 0) {
      const std::string why =
          errno == EADDRINUSE ? "is taken by another program" : concat("cannot be taken: ", std::strerror(errno));
      throw InputError(concat("--port ", port, " ", why, "; give another, or 0 for any that is free"));
    }
    ::getsockname(listener_.number(), general, &size);
    write_output("-",
                 concat("tawpipe serves http://127.0.0.1:", ntohs(address.sin_port), "/ on this machine only; Ctrl-C ends it\n"));
  }

  void start_runs() {
    auto running =
        static_cast<std::size_t>(std::ranges::count_if(connections_, [](const auto& one) { return one.run != nullptr; }));
    for (Connection& one : connections_) {
      if (running >= jobs_) return;
      if (one.state != State::waits || one.run) continue;
      try {
        one.run = std::make_unique<CommandRun>(std::move(one.arguments), limits_);
        ++running;
      } catch (const Error& error) {
        one.answer_with(busy(one.request, error.what()));
      }
    }
  }

  /// The system's signals, new connections, and of each connection its socket and the pipes of its run.
  void fill(std::vector<pollfd>& polled) const {
    const bool accepts = connections_.size() < max_connections && Clock::now() >= rests_until_;
    polled = {{signals_.number(), POLLIN, 0}, {accepts ? listener_.number() : -1, POLLIN, 0}};
    for (const Connection& one : connections_) {
      const short events = one.state == State::takes ? POLLOUT : one.state == State::waits ? POLLRDHUP : POLLIN;
      polled.push_back({one.socket.number(), events, 0});
      polled.push_back({one.run ? one.run->output() : -1, POLLIN, 0});
      polled.push_back({one.run ? one.run->errors() : -1, POLLIN, 0});
    }
  }

  /// Until something is due.
  int milliseconds() const {
    Clock::time_point next = Clock::now() + std::chrono::minutes{1};
    if (rests_until_ > Clock::now()) next = rests_until_;
    for (const Connection& one : connections_) next = std::min(next, one.run ? one.run->until() : one.until);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
    return static_cast<int>(std::max<std::int64_t>(left.count(), 0));
  }

  void accept() {
    while (connections_.size() < max_connections) {
      Descriptor one{::accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
      if (one.is_open()) {
        connections_.emplace_back(std::move(one));
      } else if (errno != EINTR && errno != ECONNABORTED) {
        if (errno != EAGAIN) rests_until_ = Clock::now() + time_of_rest;
        return;
      }
    }
  }

  /// @param polled  its three
  void go_on(Connection& one, const pollfd* polled) {
    const bool is_due = Clock::now() >= one.until;
    const bool has_news = polled[0].revents != 0;
    if (one.state == State::asks && has_news)
      read(one);
    else if (one.state == State::asks && is_due)
      one.answer_with({.status = 408, .text = "No request came within 10 s.\n", .is_page = false});
    else if (one.state == State::waits && has_news)
      one.state = State::gone;  // who asked has left
    else if (one.state == State::waits && one.run && one.run->go_on())
      one.answer_with(answer_of(one.request, one.run->end()));
    else if (one.state == State::waits && !one.run && is_due)
      one.answer_with(busy(one.request, "Others are being answered."));
    if (one.state == State::takes) write(one);
    if (one.state == State::leaves) leave(one);
  }

  static HttpAnswer busy(const HttpRequest& request, const std::string& why) {
    HttpAnswer answer = form_page(request, 503, concat(why, " Ask again in ", come_again, " s."));
    answer.retry_after = come_again;
    return answer;
  }

  /// The next part of a request. @return bytes; 0: its end, -1: nothing yet
  static ssize_t receive(Connection& one, std::array<char, 4096>& some) {
    const ssize_t count = ::recv(one.socket.number(), some.data(), some.size(), 0);
    if (count < 0 && errno != EAGAIN && errno != EINTR) return 0;
    return count;
  }

  void read(Connection& one) {
    std::array<char, 4096> some{};
    const ssize_t count = receive(one, some);
    if (count == 0) one.state = State::gone;
    if (count <= 0) return;
    one.received.append(some.data(), static_cast<std::size_t>(count));
    auto found = read_request(one.received);
    if (!found) return;
    if (const auto* const refused = std::get_if<HttpAnswer>(&*found)) return one.answer_with(*refused);
    one.request = std::get<HttpRequest>(*std::move(found));
    auto asked = arguments_of(one.request);
    if (const auto* const known = std::get_if<HttpAnswer>(&asked)) return one.answer_with(*known);
    if (std::ranges::count(connections_, State::waits, &Connection::state) >= static_cast<std::ptrdiff_t>(max_waiting))
      return one.answer_with(busy(one.request, "Many others wait for an answer."));
    one.arguments = std::get<std::vector<std::string>>(std::move(asked));
    one.state = State::waits;
    one.until = Clock::now() + limits_.time;
  }

  /// As much of the answer as is taken now.
  static void write(Connection& one) {
    while (one.taken < one.answer.size()) {
      const ssize_t count =
          ::send(one.socket.number(), one.answer.data() + one.taken, one.answer.size() - one.taken, MSG_NOSIGNAL);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) {
        if (errno != EAGAIN || Clock::now() >= one.until) one.state = State::gone;
        return;
      }
      one.taken += static_cast<std::size_t>(count);
    }
    // Closed at once, with something unread, the system would take back what the client has not read yet.
    ::shutdown(one.socket.number(), SHUT_WR);
    one.state = State::leaves;
    one.until = Clock::now() + time_to_leave;
  }

  static void leave(Connection& one) {
    std::array<char, 4096> some{};
    if (receive(one, some) == 0 || Clock::now() >= one.until) one.state = State::gone;
  }

  RunLimits limits_;
  std::size_t jobs_;
  Descriptor signals_;
  Descriptor listener_;
  Clock::time_point rests_until_{};
  std::vector<Connection> connections_;  ///< in the order in which they came
};

}  // namespace

int run_serve(const ServeRequest& request) {
  Server{request}.serve();
  return ok;
}

}  // namespace tawpipe::sim
