// Ranks find each other by TCP: all introduce themselves to rank 0, and each learns all
// introductions.
// Not: which rank this process is (execute/cuda/launcher.hpp); training data; encryption: tokens
// travel in clear text.
#pragma once

#include <netdb.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
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
#include "tawpipe/execute/detail/strangers.hpp"
#include "tawpipe/execute/watch.hpp"

namespace tawpipe::inline v0::cuda {

/// The data that a rank sends about itself.
struct Introduction {
  std::string host;  ///< its name for people; two hosts may have the same name
  /// together with the name equal exactly for the ranks of one host; empty if unknown
  std::string boot;
  std::string software;  ///< versions that must be the same on all ranks
  std::string token;     ///< any bytes, at most 60,000; rank 0's is NCCL's unique id
};

/// The result of the rendezvous on each rank.
struct Meeting {
  std::vector<Introduction> ranks;  ///< [rank]
  /// connections that stay open: from rank 0 to every other rank, from another to rank 0
  std::vector<WatchPeer> peers;
};

namespace detail {

/// kinds that another program is unlikely to send by chance
inline constexpr std::uint32_t introduce = 0x7461'7701;
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

/// The limit on the length of an introduction.
inline constexpr std::size_t max_introduction_bytes = 65'536;

/// The introduction of a process that has connected to rank 0.
struct Caller {
  int rank = -1;
  int ranks = 0;
  std::string job;
  std::string token;  ///< of the run
  Introduction told;
};

/// @return false if the text is not an introduction of a rank
inline bool read(std::string_view text, Caller& caller) {
  std::string numbers;
  if (!take(text, numbers) || numbers.size() != 2 * sizeof(std::int32_t)) return false;
  std::int32_t both[2];
  std::memcpy(both, numbers.data(), sizeof both);
  caller.rank = both[0];
  caller.ranks = both[1];
  if (caller.rank < 0 || caller.rank >= caller.ranks) return false;
  Introduction& told = caller.told;
  return take(text, caller.job) && take(text, caller.token) && take(text, told.host) && take(text, told.boot) &&
         take(text, told.software) && take(text, told.token) && text.empty();
}

/// In a time that does not reveal where they differ.
inline bool same_secret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return difference == 0;
}

/// Rank 0: listens, and answers when all have arrived.
class Host {
 public:
  Host(const ProcessPlace& place, Introduction own, double seconds) : place_{place}, seconds_{seconds} {
    known_.resize(static_cast<std::size_t>(place.ranks));
    connections_.resize(known_.size());
    known_[0] = std::move(own);
  }

  Meeting meet() {
    const std::int64_t deadline = tawpipe::detail::now() + static_cast<std::int64_t>(seconds_ * 1e9);
    int error = 0;
    tawpipe::detail::Descriptor listener = tawpipe::detail::listen_on(place_.port, tawpipe::detail::Strangers::backlog, error);
    if (!listener.open()) {
      throw DeviceError(concat("rank 0 cannot listen on port ", place_.port, " of this host (", std::strerror(error),
                               "); set MASTER_PORT to a free port, the same for all ranks"));
    }
    tawpipe::detail::Strangers strangers{listener.get(), max_introduction_bytes};
    while (!missing().empty()) {
      if (tawpipe::detail::now() >= deadline) fail(concat("after ", static_cast<std::int64_t>(seconds_), " s ", absent()));
      await_any(strangers);
      strangers.listen([&](const tawpipe::detail::Frame& frame, tawpipe::detail::Connection& connection) {
        Caller caller;  // or a port scanner
        if (frame.kind == introduce && read(frame.text, caller)) admit(caller, connection);
      });
      watch_admitted();
    }
    std::string all;
    for (const Introduction& one : known_) {
      for (const std::string* field : {&one.host, &one.boot, &one.software, &one.token}) put(all, *field);
    }
    Meeting meeting;
    for (std::size_t r = 1; r < known_.size(); ++r) {
      if (!connections_[r].send_whole(welcome, all, 5000)) {
        fail(concat("rank ", r, " on ", known_[r].host, " ended before it began"));
      }
      connections_[r].limit_frames(tawpipe::detail::max_frame_bytes);
      meeting.peers.push_back({static_cast<int>(r), std::move(connections_[r])});
    }
    meeting.ranks = std::move(known_);
    return meeting;
  }

 private:
  std::vector<std::size_t> missing() const {
    std::vector<std::size_t> ranks;
    for (std::size_t r = 1; r < connections_.size(); ++r) {
      if (!connections_[r].open()) ranks.push_back(r);
    }
    return ranks;
  }

  void await_any(const tawpipe::detail::Strangers& strangers) {
    std::vector<pollfd> all;
    strangers.add_to(all);
    for (const tawpipe::detail::Connection& one : connections_) {
      if (one.open()) all.push_back({one.fd(), POLLIN, 0});
    }
    ::poll(all.data(), all.size(), 50);
  }

  void watch_admitted() {
    for (std::size_t r = 1; r < connections_.size(); ++r) {
      if (!connections_[r].open() || connections_[r].receive()) continue;
      connections_[r].close();
      fail(concat("rank ", r, " on ", known_[r].host, " ended before all ranks had come"));
    }
  }

  void admit(const Caller& caller, tawpipe::detail::Connection& connection) {
    const std::string who = concat("rank ", caller.rank, " on ", caller.told.host);
    const auto send_away = [&](const std::string& words) { connection.send_whole(refuse, words, 1000); };
    if (caller.job != place_.job) {  // not one of this run: continue
      return send_away(concat(who, " belongs to the run ", quote(caller.job), ", and port ", place_.port, " of rank 0 to ",
                              quote(place_.job), "; give each run its own MASTER_PORT"));
    }
    if (!same_secret(caller.token, place_.token)) {
      return send_away(concat(who, caller.token.empty() ? " has no TAWPIPE_TOKEN" : " has another TAWPIPE_TOKEN than rank 0",
                              "; set it to the same text for all ranks of the run"));
    }
    const auto rank = static_cast<std::size_t>(caller.rank);
    if (caller.ranks != place_.ranks) {
      send_away_with_all(connection, concat(who, " was started as one of ", caller.ranks, " ranks, and rank 0 on ",
                                            known_[0].host, " as one of ", place_.ranks, "; give all the same world size"));
    }
    if (rank == 0 || connections_[rank].open()) {
      send_away_with_all(connection, concat("two processes are rank ", rank, ", on ", known_[rank].host, " and on ",
                                            caller.told.host, "; give each its own number"));
    }
    if (caller.told.software != known_[0].software) {
      send_away_with_all(connection, concat(who, " runs ", caller.told.software, ", and rank 0 on ", known_[0].host, " runs ",
                                            known_[0].software, "; install the same on all hosts"));
    }
    known_[rank] = caller.told;
    connections_[rank] = std::move(connection);
  }

  std::string absent() const {
    std::vector<std::string> names;
    for (const std::size_t rank : missing()) names.push_back(std::to_string(rank));
    const auto count = names.size();
    if (count > 8) {
      names.resize(8);
      names.push_back("...");
    }
    return concat(count, " of ", place_.ranks, " ranks have not come: ", join(names, ", "),
                  "; start them all, and let MASTER_ADDR and MASTER_PORT name rank 0's host for each");
  }

  [[noreturn]] void send_away_with_all(tawpipe::detail::Connection& last, const std::string& why) {
    last.send_whole(refuse, why, 1000);
    fail(why);
  }
  /// Rejects, so that no rank waits in vain.
  [[noreturn]] void fail(const std::string& why) {
    for (tawpipe::detail::Connection& one : connections_) one.send_whole(refuse, why, 1000);
    throw DeviceError(one_line(why));
  }

  const ProcessPlace& place_;
  double seconds_;
  std::vector<Introduction> known_;  ///< [rank]
  /// [rank] not open: has not arrived; rank 0: never
  std::vector<tawpipe::detail::Connection> connections_;
};

/// Tries all addresses of rank 0's host until one answers. @return not open at the deadline; `why`
/// then has the last error
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
    std::this_thread::sleep_for(std::chrono::milliseconds{50});  // rank 0 may not have started
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
  connection.limit_frames(max_introduction_bytes * static_cast<std::size_t>(place.ranks));
  const std::int32_t both[2] = {place.rank, place.ranks};
  std::string text;
  put(text, {reinterpret_cast<const char*>(both), sizeof both});
  for (const std::string* field : {&place.job, &place.token, &own.host, &own.boot, &own.software, &own.token}) put(text, *field);
  connection.send_whole(introduce, text, 5000);
  tawpipe::detail::Frame answer;
  // Rank 0 itself reports when it gives up waiting; it may have started later than this rank.
  const auto patience = static_cast<int>((seconds + 10) * 1000);
  const bool heard = connection.await_frame(answer, patience);
  if (heard && answer.kind == refuse) throw DeviceError(one_line(answer.text));
  Meeting meeting;
  std::string_view rest = answer.text;
  meeting.ranks.resize(static_cast<std::size_t>(place.ranks));
  bool whole = heard && answer.kind == welcome;
  for (Introduction& one : meeting.ranks) {
    whole = whole && take(rest, one.host) && take(rest, one.boot) && take(rest, one.software) && take(rest, one.token);
  }
  if (whole && rest.empty()) {
    meeting.peers.push_back({0, std::move(connection)});
    return meeting;
  }
  if (heard) throw DeviceError(concat("what listens where ", where, " should be is not such a rank; set another MASTER_PORT"));
  throw DeviceError(concat(where, " took the connection of rank ", place.rank,
                           " and did not answer; it ended, or another program has the port: look at rank 0, or set another "
                           "MASTER_PORT"));
}

}  // namespace detail

/// Connects all ranks of a run. Collective; blocks until the last has arrived.
/// @param seconds  how long ranks wait for each other
/// @throws DeviceError  on all ranks that have arrived, with the same message: a rank is missing,
/// has ended, was started twice or with a different world size or versions; the port is taken or
/// rank 0 cannot be reached.
inline Meeting meet(const ProcessPlace& place, const Introduction& own, double seconds = 120) {
  if (place.ranks == 1) return Meeting{{own}, {}};
  return place.rank == 0 ? detail::Host{place, own, seconds}.meet() : detail::join_host(place, own, seconds);
}

/// The ranks' hosts by unique names: of hosts with the same name that were booted separately (by
/// their boot ids) the second is called "name#2". @return [rank]
inline std::vector<std::string> host_names(const std::vector<Introduction>& ranks) {
  std::map<std::string, std::vector<std::string>> boots;  // of each name, in the order of ranks
  std::vector<std::string> names;
  for (const Introduction& one : ranks) {
    std::vector<std::string>& known = boots[one.host];
    const auto place = std::find(known.begin(), known.end(), one.boot) - known.begin();
    if (place == std::ssize(known)) known.push_back(one.boot);
    names.push_back(place == 0 ? one.host : concat(one.host, "#", place + 1));
  }
  return names;
}

/// Exchanges a text from each rank over the connections of a rendezvous. Collective. @return [rank]
/// @throws DeviceError  naming a rank that has ended or is silent for that long.
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
