// The TCP connections of the watch over an MPI job: from every rank to rank 0, set up through MPI.
// Not: what is sent over them (execute/watch.hpp).
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/execute/detail/socket.hpp"
#include "tawpipe/execute/detail/strangers.hpp"
#include "tawpipe/execute/mpi/api.hpp"
#include "tawpipe/execute/watch.hpp"

namespace tawpipe::inline v0::mpi {

namespace watch_detail {

inline constexpr std::uint32_t hello = 0;

/// Accepts the connections of all other ranks. @return false if they have not all arrived within 10
/// s
inline bool accept_all(int listener, int ranks, std::uint64_t secret, std::vector<WatchPeer>& peers) {
  const std::int64_t deadline = now() + 10'000'000'000;
  constexpr std::size_t bytes = sizeof secret + sizeof(WatchPeer::rank);
  tawpipe::detail::Strangers strangers{listener, bytes};
  while (peers.size() + 1 < static_cast<std::size_t>(ranks)) {
    if (now() >= deadline) return false;
    std::vector<pollfd> all;
    strangers.add_to(all);
    ::poll(all.data(), all.size(), 50);
    strangers.listen([&](const tawpipe::detail::Frame& greeting, tawpipe::detail::Connection& connection) {
      if (greeting.kind != hello || greeting.text.size() != bytes) return;
      if (std::memcmp(greeting.text.data(), &secret, sizeof secret) != 0) return;
      WatchPeer peer;
      std::memcpy(&peer.rank, greeting.text.data() + sizeof secret, sizeof peer.rank);
      connection.send(hello, greeting.text);
      connection.limit_frames(tawpipe::detail::max_frame_bytes);
      peer.connection = std::move(connection);
      peers.push_back(std::move(peer));
    });
  }
  return true;
}

}  // namespace watch_detail

/// Collective over `comm`. @throws DeviceError  if a rank cannot reach rank 0 by TCP.
inline std::vector<WatchPeer> watch_peers(MPI_Comm comm) {
  int rank = 0;
  int ranks = 1;
  check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  check(MPI_Comm_size(comm, &ranks), "MPI_Comm_size");
  struct Door {
    std::uint64_t secret = 0;
    std::uint32_t hosts = 0;
    std::uint16_t port = 0;
    std::array<std::uint32_t, 32> host{};
  } door;
  tawpipe::detail::Descriptor listener;
  if (rank == 0) {
    listener = tawpipe::detail::listen_anywhere(tawpipe::detail::Strangers::backlog, door.port);
    std::random_device random;
    door.secret = std::uint64_t{random()} << 32U | random();
    for (const std::uint32_t host : tawpipe::detail::own_addresses()) {
      if (door.hosts < door.host.size()) door.host[door.hosts++] = host;
    }
  }
  check(MPI_Bcast(&door, sizeof door, MPI_BYTE, 0, comm), "MPI_Bcast");
  std::vector<WatchPeer> peers;
  bool fine = true;
  if (rank == 0) {
    fine = listener.open() && watch_detail::accept_all(listener.get(), ranks, door.secret, peers);
  } else {
    fine = false;
    for (std::uint32_t h = door.hosts; h-- > 0 && !fine;) {  // the loopback first, which fails at once
      tawpipe::detail::Connection connection{tawpipe::detail::connect_to(door.host[h], door.port, 1000)};
      std::string greeting(sizeof door.secret + sizeof rank, '\0');
      std::memcpy(greeting.data(), &door.secret, sizeof door.secret);
      std::memcpy(greeting.data() + sizeof door.secret, &rank, sizeof rank);
      connection.send(watch_detail::hello, greeting);
      tawpipe::detail::Frame answer;
      fine = connection.open() && connection.await_frame(answer, 2000) && answer.text == greeting;
      if (fine) peers.push_back({0, std::move(connection)});
    }
  }
  int all = fine ? 1 : 0;
  check(MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, comm), "MPI_Allreduce");
  if (all == 0) {
    throw DeviceError(concat("rank ", rank, fine ? " is watched, but another" : "",
                             " cannot reach rank 0 by TCP, by which a dead rank would be noticed; open a way between the "
                             "hosts, or switch the watch off"));
  }
  return peers;
}

}  // namespace tawpipe::mpi
