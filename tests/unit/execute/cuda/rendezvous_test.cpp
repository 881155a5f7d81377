// Ranks are threads here; what they meet by is the same as between hosts.
#include "tawpipe/execute/cuda/rendezvous.hpp"

#include <doctest/doctest.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace tawpipe;
using cuda::Introduction;
using cuda::Meeting;
using cuda::ProcessPlace;

namespace {

std::uint16_t free_port() {
  std::uint16_t port = 0;
  const detail::Descriptor socket = detail::listen_anywhere(1, port);
  REQUIRE(socket.open());
  return port;
}

ProcessPlace place(int rank, int ranks, std::uint16_t port) {
  ProcessPlace one;
  one.rank = rank;
  one.ranks = ranks;
  one.port = port;
  return one;
}

Introduction tell(int rank) { return {concat("host", rank / 2), "boot", "tawpipe 1", concat("token", rank)}; }

/// Connects to the rank 0 that will listen there.
detail::Connection knock(std::uint16_t port) {
  std::string why;
  return detail::Connection{cuda::detail::reach(place(1, 2, port), detail::now() + 100'000'000'000, why)};
}

/// What each guest of a run has met, or the words of its error.
struct Outcome {
  std::vector<Meeting> meetings;
  std::vector<std::string> errors;
};

/// Runs each in a separate thread.
Outcome meet_all(const std::vector<std::pair<ProcessPlace, Introduction>>& who, double seconds) {
  Outcome outcome;
  outcome.meetings.resize(who.size());
  outcome.errors.resize(who.size());
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < who.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        outcome.meetings[i] = cuda::meet(who[i].first, who[i].second, seconds);
      } catch (const DeviceError& error) {
        outcome.errors[i] = error.what();
      }
    });
  }
  threads.clear();
  return outcome;
}

}  // namespace

TEST_CASE("all ranks learn what all have told, and stay connected") {
  const std::uint16_t port = free_port();
  std::vector<std::pair<ProcessPlace, Introduction>> who;
  for (const int rank : {3, 1, 4, 0, 2}) who.push_back({place(rank, 5, port), tell(rank)});
  const Outcome outcome = meet_all(who, 120);
  for (std::size_t i = 0; i < who.size(); ++i) {
    CHECK(outcome.errors[i].empty());
    const Meeting& meeting = outcome.meetings[i];
    REQUIRE(meeting.ranks.size() == 5);
    for (int rank = 0; rank < 5; ++rank) {
      CHECK(meeting.ranks[static_cast<std::size_t>(rank)].host == tell(rank).host);
      CHECK(meeting.ranks[static_cast<std::size_t>(rank)].token == tell(rank).token);
    }
    REQUIRE(meeting.peers.size() == (who[i].first.rank == 0 ? 4U : 1U));
    for (const WatchPeer& peer : meeting.peers) CHECK(peer.connection.open());
  }
}

TEST_CASE("tokens of many bytes arrive whole") {
  const std::uint16_t port = free_port();
  std::vector<std::pair<ProcessPlace, Introduction>> who;
  for (int rank = 0; rank < 40; ++rank) {
    who.push_back({place(rank, 40, port), tell(rank)});
    who.back().second.token = std::string(60'000, static_cast<char>(rank));
  }
  const Outcome outcome = meet_all(who, 120);
  for (std::size_t i = 0; i < who.size(); ++i) {
    CHECK(outcome.errors[i].empty());
    REQUIRE(outcome.meetings[i].ranks.size() == who.size());
    for (std::size_t r = 0; r < who.size(); ++r) CHECK(outcome.meetings[i].ranks[r].token == who[r].second.token);
  }
}

TEST_CASE("a rank alone meets nobody and needs no port") {
  CHECK(cuda::meet(place(0, 1, 1), tell(0)).ranks[0].token == "token0");
}

TEST_CASE("a world size, a number or a version that does not fit is told to all") {
  const std::uint16_t port = free_port();
  SUBCASE("world size") {
    const Outcome outcome = meet_all({{place(0, 2, port), tell(0)}, {place(1, 3, port), tell(1)}}, 120);
    CHECK(outcome.errors[0] ==
          "rank 1 on host0 was started as one of 3 ranks, and rank 0 on host0 as one of 2; give all the same world size");
    CHECK(outcome.errors[1] == outcome.errors[0]);
  }
  SUBCASE("number") {
    const Outcome outcome =
        meet_all({{place(0, 3, port), tell(0)}, {place(2, 3, port), tell(2)}, {place(2, 3, port), tell(2)}}, 120);
    CHECK(outcome.errors[0] == "two processes are rank 2, on host1 and on host1; give each its own number");
    CHECK(outcome.errors[1] == outcome.errors[0]);
    CHECK(outcome.errors[2] == outcome.errors[0]);
  }
  SUBCASE("version") {
    Introduction other = tell(1);
    other.software = "tawpipe 2";
    const Outcome outcome = meet_all({{place(0, 2, port), tell(0)}, {place(1, 2, port), other}}, 120);
    CHECK(outcome.errors[0] ==
          "rank 1 on host0 runs tawpipe 2, and rank 0 on host0 runs tawpipe 1; install the same on all hosts");
    CHECK(outcome.errors[1] == outcome.errors[0]);
  }
}

TEST_CASE("a rank of another run is sent away, and the run goes on") {
  const std::uint16_t port = free_port();
  ProcessPlace first = place(0, 2, port);
  ProcessPlace second = place(1, 2, port);
  first.job = second.job = "mine";
  ProcessPlace stranger = second;
  stranger.job = "yours";
  Outcome outcome;
  std::jthread host{[&] { outcome = meet_all({{first, tell(0)}}, 120); }};
  const Outcome sent_away = meet_all({{stranger, tell(1)}}, 120);
  CHECK(sent_away.errors[0] == concat("rank 1 on host0 belongs to the run 'yours', and port ", port,
                                      " of rank 0 to 'mine'; give each run its own MASTER_PORT"));
  CHECK(meet_all({{second, tell(1)}}, 120).errors[0].empty());
  host.join();
  CHECK(outcome.errors[0].empty());
}

TEST_CASE("ranks that do not come in time are named") {
  const std::uint16_t port = free_port();
  const Outcome outcome = meet_all({{place(0, 4, port), tell(0)}, {place(2, 4, port), tell(2)}}, 5);
  CHECK(outcome.errors[0] ==
        "after 5 s 2 of 4 ranks have not come: 1, 3; start them all, and let MASTER_ADDR and MASTER_PORT name rank 0's host for "
        "each");
  CHECK(outcome.errors[1] == outcome.errors[0]);
}

TEST_CASE("a rank that ends before all have come is named") {
  const std::uint16_t port = free_port();
  std::string text;
  const std::int32_t both[2] = {1, 3};
  cuda::detail::put(text, {reinterpret_cast<const char*>(both), sizeof both});
  for (const char* const field : {"", "", "host9", "boot", "tawpipe 1", ""}) cuda::detail::put(text, field);
  Outcome outcome;
  std::jthread host{[&] { outcome = meet_all({{place(0, 3, port), tell(0)}}, 120); }};
  REQUIRE(knock(port).send_whole(cuda::detail::introduce, text, 100000));
  host.join();
  CHECK(outcome.errors[0] == "rank 1 on host9 ended before all ranks had come");
}

TEST_CASE("a taken port, nobody there, an unknown host and a stranger are told apart") {
  std::uint16_t port = 0;
  const detail::Descriptor taken = detail::listen_anywhere(1, port);
  REQUIRE(taken.open());
  CHECK(meet_all({{place(0, 2, port), tell(0)}}, 1).errors[0] ==
        concat("rank 0 cannot listen on port ", port,
               " of this host (Address already in use); set MASTER_PORT to a free port, the same for all ranks"));

  const std::uint16_t nobody = free_port();
  CHECK(meet_all({{place(1, 2, nobody), tell(1)}}, 0.1).errors[0] ==
        concat("rank 1 has not reached rank 0 at 127.0.0.1 port ", nobody,
               " within 0 s (Connection refused); is rank 0 started, MASTER_ADDR its host and the port open?"));
  ProcessPlace lost = place(1, 2, nobody);
  lost.master = "no-such-host.invalid";
  const std::string unknown = meet_all({{lost, tell(1)}}, 0.1).errors[0];
  CAPTURE(unknown);
  CHECK(unknown.find("rank 1 has not reached rank 0 at no-such-host.invalid port") == 0);

  std::jthread stranger{[&] {
    REQUIRE(detail::await(taken.get(), POLLIN, 100000));
    detail::Connection guest{detail::Descriptor{::accept4(taken.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)}};
    guest.send_whole(42, "HTTP/1.1 400", 100000);
    detail::Frame frame;
    guest.await_frame(frame, 100000);
  }};
  CHECK(meet_all({{place(1, 2, port), tell(1)}}, 100).errors[0] ==
        concat("what listens where rank 0 at 127.0.0.1 port ", port, " should be is not such a rank; set another MASTER_PORT"));
}

TEST_CASE("who knocks without an introduction neither joins nor holds up the others") {
  const std::uint16_t port = free_port();
  Outcome outcome;
  std::jthread host{[&] { outcome = meet_all({{place(0, 2, port), tell(0)}}, 120); }};
  std::vector<detail::Connection> strangers;
  strangers.push_back(knock(port));  // silent
  strangers.push_back(knock(port));
  strangers.back().send_whole(7, "GET / HTTP/1.1", 100000);
  strangers.push_back(knock(port));  // says that it will say 4 GB: nothing of it is waited for
  const std::uint32_t endless[2] = {cuda::detail::introduce, 0xffff'ffff};
  REQUIRE(::send(strangers.back().fd(), endless, sizeof endless, MSG_NOSIGNAL) == sizeof endless);
  CHECK(detail::await(strangers.back().fd(), POLLIN, 100000));
  CHECK_FALSE(strangers.back().receive());
  for (std::size_t i = 0; i < 2 * detail::Strangers::max_waiting; ++i) strangers.push_back(knock(port));
  CHECK(meet_all({{place(1, 2, port), tell(1)}}, 120).errors[0].empty());
  host.join();
  CHECK(outcome.errors[0].empty());
}

TEST_CASE("who does not know the run's token is sent away, and the run goes on") {
  const std::uint16_t port = free_port();
  ProcessPlace first = place(0, 2, port);
  ProcessPlace second = place(1, 2, port);
  first.token = second.token = "open sesame";
  Outcome outcome;
  std::jthread host{[&] { outcome = meet_all({{first, tell(0)}}, 120); }};
  ProcessPlace wrong = second;
  wrong.token = "open barley";
  CHECK(meet_all({{wrong, tell(1)}}, 120).errors[0] ==
        "rank 1 on host0 has another TAWPIPE_TOKEN than rank 0; set it to the same text for all ranks of the run");
  wrong.token.clear();
  CHECK(meet_all({{wrong, tell(1)}}, 120).errors[0] ==
        "rank 1 on host0 has no TAWPIPE_TOKEN; set it to the same text for all ranks of the run");
  CHECK(meet_all({{second, tell(1)}}, 120).errors[0].empty());
  host.join();
  CHECK(outcome.errors[0].empty());
}

TEST_CASE("hosts of one name are told apart by their boot ids") {
  std::vector<Introduction> ranks(5, {"node", "a", "", ""});
  ranks[1].boot = ranks[3].boot = "b";
  ranks[4] = {"other", "b", "", ""};
  CHECK(cuda::host_names(ranks) == std::vector<std::string>{"node", "node#2", "node", "node#2", "other"});
}

TEST_CASE("what each says afterwards all learn, and one that has ended is named") {
  const std::uint16_t port = free_port();
  Outcome outcome = meet_all({{place(0, 3, port), tell(0)}, {place(1, 3, port), tell(1)}, {place(2, 3, port), tell(2)}}, 120);
  std::vector<std::string> heard(3);
  const auto say = [&](int rank) {
    Meeting& meeting = outcome.meetings[static_cast<std::size_t>(rank)];
    try {
      for (const std::string& one : cuda::exchange(meeting, rank, concat("I am ", rank), 100)) {
        heard[static_cast<std::size_t>(rank)] += one + ";";
      }
    } catch (const DeviceError& error) {
      heard[static_cast<std::size_t>(rank)] = error.what();
    }
  };
  const auto all_say = [&](int ranks) {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([&, rank] { say(rank); });
  };
  all_say(3);
  for (const std::string& one : heard) CHECK(one == "I am 0;I am 1;I am 2;");
  outcome.meetings[2].peers.clear();
  all_say(2);
  CHECK(heard[0] == "rank 2 on host1 ended, or said nothing for 100 s, before all ranks had begun");
  CHECK(heard[1] == heard[0]);
}
