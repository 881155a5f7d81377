// Ranks find each other by TCP: all tell rank 0 of themselves, and each learns what all have told.
// Not: which rank this process is (execute/cuda/launcher.hpp); training data; a secret: whoever can reach the port can join.
#pragma once

#include <netdb.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/execute/cuda/launcher.hpp"
#include "tawpipe/execute/detail/clock.hpp"
#include "tawpipe/execute/detail/socket.hpp"
#include "tawpipe/execute/watch.hpp"

namespace tawpipe::inline v0::cuda {

/// What a rank tells of itself.
struct Introduction {
  std::string host;      ///< a name that is equal for the ranks of one host, and for no others
  std::string software;  ///< versions that must be the same on all ranks
  std::string token;     ///< any bytes; rank 0's is NCCL's unique id
};

/// What a rank knows when all have met.
struct Meeting {
  std::vector<Introduction> ranks;  ///< [rank]
  std::vector<WatchPeer> peers;     ///< connections that stay open: of rank 0 to every other rank, of another to rank 0
};

namespace detail {

inline constexpr std::uint32_t introduce = 0x7461'7701;  ///< these kinds are no numbers that another program sends by chance
inline constexpr std::uint32_t welcome = 0x7461'7702;
inline constexpr std::uint32_t refuse = 0x7461'7703;

inline void put(std::string& out, std::string_view field) {
  const auto size = static_cast<std::uint32_t>(field.size());
  out.append(reinterpret_cast<const char*>(&size), sizeof size);
  out += field;
}
inline bool take(std::string_view& in, std::string& field) {
  std::uint32_t size = 0;
  if (in.size() < sizeof size) return false;
  std::memcpy(&size, in.data(), sizeof size);
  in.remove_prefix(sizeof size);
  if (in.size() < size) return false;
  field = in.substr(0, size);
  in.remove_prefix(size);
  return true;
}

/// A guest: one that has connected to rank 0.
struct Guest {
  tawpipe::detail::Connection connection;
  std::int64_t came = 0;
  int rank = -1;  ///< not known before it has told
  int ranks = 0;
  std::string job;
  Introduction told;
};

/// @return false if the text is no introduction of a rank
inline bool read(std::string_view text, Guest& guest) {
  std::string numbers;
  if (!take(text, numbers) || numbers.size() != 2 * sizeof(std::int32_t)) return false;
  std::int32_t both[2];
  std::memcpy(both, numbers.data(), sizeof both);
  guest.rank = both[0];
  guest.ranks = both[1];
  if (guest.rank < 0 || guest.rank >= guest.ranks) return false;
  return take(text, guest.job) && take(text, guest.told.host) && take(text, guest.told.software) &&
         take(text, guest.told.token) && text.empty();
}

/// Rank 0: listens, and answers when all have come.
class Host {
 public:
  Host(const ProcessPlace& place, Introduction own, double seconds) : place_{place}, seconds_{seconds} {
    known_.resize(static_cast<std::size_t>(place.ranks));
    known_[0] = std::move(own);
    guest_of_.assign(known_.size(), -1);
  }

  Meeting meet() {
    const std::int64_t deadline = tawpipe::detail::now() + static_cast<std::int64_t>(seconds_ * 1e9);
    int error = 0;
    tawpipe::detail::Descriptor listener = tawpipe::detail::listen_on(place_.port, place_.ranks, error);
    if (!listener.open()) {
      throw DeviceError(concat("rank 0 cannot listen on port ", place_.port, " of this host (", std::strerror(error),
                               "); set MASTER_PORT to a free port, the same for all ranks"));
    }
    while (missing() > 0) {
      if (tawpipe::detail::now() >= deadline) fail(concat("after ", static_cast<std::int64_t>(seconds_), " s ", absent()));
      await_any(listener.get());
      greet(listener.get());
      for (std::size_t g = 0; g < guests_.size(); ++g) listen(g);
    }
    std::string all;
    for (const Introduction& one : known_) {
      put(all, one.host);
      put(all, one.software);
      put(all, one.token);
    }
    Meeting meeting;
    for (std::size_t r = 1; r < known_.size(); ++r) {
      tawpipe::detail::Connection& connection = guest(r).connection;
      if (!connection.send_whole(welcome, all, 5000)) fail(concat("rank ", r, " on ", known_[r].host, " ended before it began"));
      meeting.peers.push_back({static_cast<int>(r), std::move(connection)});
    }
    meeting.ranks = std::move(known_);
    return meeting;
  }

 private:
  Guest& guest(std::size_t rank) { return guests_[static_cast<std::size_t>(guest_of_[rank])]; }
  std::ptrdiff_t missing() const { return std::count(guest_of_.begin() + 1, guest_of_.end(), -1); }

  void await_any(int listener) {
    std::vector<pollfd> all{{listener, POLLIN, 0}};
    for (const Guest& one : guests_) {
      if (one.connection.open()) all.push_back({one.connection.fd(), POLLIN, 0});
    }
    ::poll(all.data(), all.size(), 50);
  }

  void greet(int listener) {
    while (true) {
      tawpipe::detail::Descriptor socket{::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
      if (!socket.open()) return;
      Guest one;
      one.connection = tawpipe::detail::Connection{std::move(socket)};
      one.came = tawpipe::detail::now();
      guests_.push_back(std::move(one));
    }
  }

  void listen(std::size_t g) {
    Guest& one = guests_[g];
    if (!one.connection.open()) return;
    const bool alive = one.connection.receive();
    tawpipe::detail::Frame frame;
    if (one.rank < 0 && one.connection.next(frame)) {
      if (frame.kind != introduce || !read(frame.text, one)) {
        one.rank = -1;
        one.connection.close();  // no rank: something that tries ports
        return;
      }
      admit(g);
    } else if (one.rank < 0 && tawpipe::detail::now() - one.came > 5'000'000'000) {
      one.connection.close();
    }
    if (alive) return;
    one.connection.close();
    if (one.rank > 0) fail(concat("rank ", one.rank, " on ", one.told.host, " ended before all ranks had come"));
  }

  void admit(std::size_t g) {
    Guest& one = guests_[g];
    const std::string who = concat("rank ", one.rank, " on ", one.told.host);
    if (one.job != place_.job) {  // it is not one of us: we go on
      const std::string words = concat(who, " belongs to the run ", quote(one.job), ", and port ", place_.port, " of rank 0 to ",
                                       quote(place_.job), "; give each run its own MASTER_PORT");
      one.connection.send_whole(refuse, words, 1000);
      one.rank = -1;
      one.connection.close();
      return;
    }
    if (one.ranks != place_.ranks) {
      fail(concat(who, " was started as one of ", one.ranks, " ranks, and rank 0 on ", known_[0].host, " as one of ",
                  place_.ranks, "; give all the same world size"));
    }
    if (one.rank == 0 || guest_of_[static_cast<std::size_t>(one.rank)] >= 0) {
      fail(concat("two processes are rank ", one.rank, ", on ", known_[static_cast<std::size_t>(one.rank)].host, " and on ",
                  one.told.host, "; give each its own number"));
    }
    if (one.told.software != known_[0].software) {
      fail(concat(who, " runs ", one.told.software, ", and rank 0 on ", known_[0].host, " runs ", known_[0].software,
                  "; install the same on all hosts"));
    }
    guest_of_[static_cast<std::size_t>(one.rank)] = static_cast<std::ptrdiff_t>(g);
    known_[static_cast<std::size_t>(one.rank)] = one.told;
  }

  std::string absent() const {
    std::vector<std::string> names;
    for (std::size_t r = 1; r < guest_of_.size(); ++r) {
      if (guest_of_[r] < 0) names.push_back(std::to_string(r));
    }
    const auto count = names.size();
    if (count > 8) {
      names.resize(8);
      names.push_back("...");
    }
    return concat(count, " of ", place_.ranks, " ranks have not come: ", join(names, ", "),
                  "; start them all, and let MASTER_ADDR and MASTER_PORT name rank 0's host for each");
  }

  /// Nobody shall wait for what will not come.
  [[noreturn]] void fail(const std::string& why) {
    for (Guest& one : guests_) one.connection.send_whole(refuse, why, 1000);
    throw DeviceError(one_line(why));
  }

  const ProcessPlace& place_;
  double seconds_;
  std::vector<Guest> guests_;             ///< in the order in which they came
  std::vector<Introduction> known_;       ///< [rank]
  std::vector<std::ptrdiff_t> guest_of_;  ///< [rank] -1: has not come
};

/// Tries all addresses of rank 0's host until one answers. @return not open at the deadline; `why` then says what was wrong last
inline tawpipe::detail::Descriptor reach(const ProcessPlace& place, std::int64_t deadline, std::string& why) {
  while (true) {
    addrinfo wanted{};
    wanted.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const std::string port = std::to_string(place.port);
    if (const int error = ::getaddrinfo(place.master.c_str(), port.c_str(), &wanted, &found); error != 0) {
      why = ::gai_strerror(error);
    }
    tawpipe::detail::Descriptor socket;
    for (const addrinfo* one = found; one != nullptr && !socket.open(); one = one->ai_next) {
      int error = 0;
      socket = tawpipe::detail::connect_to(one->ai_addr, one->ai_addrlen, 2000, error);
      if (!socket.open()) why = std::strerror(error);
    }
    if (found != nullptr) ::freeaddrinfo(found);
    if (socket.open() || tawpipe::detail::now() >= deadline) return socket;
    std::this_thread::sleep_for(std::chrono::milliseconds{50});  // rank 0 may not have begun
  }
}

inline Meeting join_host(const ProcessPlace& place, const Introduction& own, double seconds) {
  const std::int64_t deadline = tawpipe::detail::now() + static_cast<std::int64_t>(seconds * 1e9);
  const std::string where = concat("rank 0 at ", one_line(place.master), " port ", place.port);
  std::string why;
  tawpipe::detail::Descriptor socket = reach(place, deadline, why);
  if (!socket.open()) {
    throw DeviceError(concat("rank ", place.rank, " has not reached ", where, " within ", static_cast<std::int64_t>(seconds),
                             " s (", why, "); is rank 0 started, MASTER_ADDR its host and the port open?"));
  }
  tawpipe::detail::Connection connection{std::move(socket)};
  const std::int32_t both[2] = {place.rank, place.ranks};
  std::string text;
  put(text, {reinterpret_cast<const char*>(both), sizeof both});
  for (const std::string* field : {&place.job, &own.host, &own.software, &own.token}) put(text, *field);
  connection.send_whole(introduce, text, 5000);
  tawpipe::detail::Frame answer;
  // Rank 0 says itself when it gives up waiting; it may have begun later than this rank.
  const auto patience = static_cast<int>((seconds + 10) * 1000);
  const bool heard = connection.await_frame(answer, patience);
  if (heard && answer.kind == refuse) throw DeviceError(one_line(answer.text));
  Meeting meeting;
  std::string_view rest = answer.text;
  meeting.ranks.resize(static_cast<std::size_t>(place.ranks));
  bool whole = heard && answer.kind == welcome;
  for (Introduction& one : meeting.ranks)
    whole = whole && take(rest, one.host) && take(rest, one.software) && take(rest, one.token);
  if (whole && rest.empty()) {
    meeting.peers.push_back({0, std::move(connection)});
    return meeting;
  }
  if (heard) throw DeviceError(concat("what listens where ", where, " should be is no such rank; set another MASTER_PORT"));
  throw DeviceError(concat(where, " took the connection of rank ", place.rank,
                           " and did not answer; it ended, or another program has the port: look at rank 0, or set another "
                           "MASTER_PORT"));
}

}  // namespace detail

/// Brings all ranks of a run together. Collective; blocks until the last has come.
/// @param seconds  how long ranks wait for each other
/// @throws DeviceError  on all ranks that have come, with one message: a rank is missing, has ended, was started twice or with
///         another world size or other versions; the port is taken or rank 0 cannot be reached.
inline Meeting meet(const ProcessPlace& place, const Introduction& own, double seconds = 120) {
  if (place.ranks == 1) return Meeting{{own}, {}};
  return place.rank == 0 ? detail::Host{place, own, seconds}.meet() : detail::join_host(place, own, seconds);
}

/// What each rank says, to all, over the connections of a meeting. Collective. @return [rank]
/// @throws DeviceError  naming a rank that has ended or says nothing for so long.
inline std::vector<std::string> exchange(Meeting& meeting, int rank, const std::string& own, double seconds) {
  std::vector<std::string> said(meeting.ranks.size());
  said[static_cast<std::size_t>(rank)] = own;
  const auto patience = static_cast<int>(seconds * 1000);
  tawpipe::detail::Frame frame;
  if (rank != 0) {
    tawpipe::detail::Connection& host = meeting.peers.front().connection;
    host.send_whole(detail::introduce, own, 5000);
    const bool heard = host.await_frame(frame, patience + 10'000);
    if (heard && frame.kind == detail::refuse) throw DeviceError(one_line(frame.text));
    std::string_view rest = frame.text;
    bool whole = heard && frame.kind == detail::welcome;
    for (std::string& one : said) whole = whole && detail::take(rest, one);
    if (!whole) throw DeviceError("rank 0 ended before all ranks had begun");
    return said;
  }
  std::string problem;
  for (WatchPeer& peer : meeting.peers) {
    const bool heard = problem.empty() && peer.connection.await_frame(frame, patience);
    if (heard) said[static_cast<std::size_t>(peer.rank)] = frame.text;
    if (!heard && problem.empty()) {
      problem = concat("rank ", peer.rank, " on ", meeting.ranks[static_cast<std::size_t>(peer.rank)].host,
                       " ended, or said nothing for ", static_cast<std::int64_t>(seconds), " s, before all ranks had begun");
    }
  }
  std::string all;
  for (const std::string& one : said) detail::put(all, one);
  for (WatchPeer& peer : meeting.peers) {
    peer.connection.send_whole(problem.empty() ? detail::welcome : detail::refuse, problem.empty() ? all : problem, 5000);
  }
  if (!problem.empty()) throw DeviceError(one_line(problem));
  return said;
}

}  // namespace tawpipe::cuda
