// The offset of this host's clock from rank 0's, so that times measured on different hosts can be
// compared.
// Not: the measured times (timeline/timeline.hpp).
#pragma once

#include <cstdint>

#include "tawpipe/execute/mpi/api.hpp"
#include "tawpipe/execute/mpi/session.hpp"

namespace tawpipe::inline v0::mpi {

/// Nanoseconds to add to `now()` for rank 0's. Collective. Exactly 0 on rank 0's host, whose
/// processes share one clock. The lowest rank of each other host queries rank 0 eight times and
/// uses the quickest answer: rank 0 read its clock half of that round trip ago, so the error is at
/// most half of it (D. L. Mills, RFC 958). Clocks drift by about 10 us a second, so this is done
/// for every iteration.
inline std::int64_t clock_offset(const Session& session) {
  constexpr int asked = 8;
  constexpr int tag = 1;
  const MPI_Comm comm = session.control();
  std::int64_t offset = 0;
  const auto& host_of = session.host_of();
  for (int rank = 0; rank < session.ranks(); ++rank) {
    const bool asks = host_of[static_cast<std::size_t>(rank)] == rank && host_of[0] != rank;
    if (!asks || (session.rank() != 0 && session.rank() != rank)) continue;
    std::int64_t best = -1;
    for (int i = 0; i < asked; ++i) {
      std::int64_t time = now();
      if (session.rank() == 0) {
        check(MPI_Recv(&time, 1, MPI_INT64_T, rank, tag, comm, MPI_STATUS_IGNORE), "MPI_Recv");
        time = now();
        check(MPI_Send(&time, 1, MPI_INT64_T, rank, tag, comm), "MPI_Send");
        continue;
      }
      const std::int64_t before = time;
      check(MPI_Send(&time, 1, MPI_INT64_T, 0, tag, comm), "MPI_Send");
      check(MPI_Recv(&time, 1, MPI_INT64_T, 0, tag, comm, MPI_STATUS_IGNORE), "MPI_Recv");
      const std::int64_t after = now();
      if (best >= 0 && after - before >= best) continue;
      best = after - before;
      offset = time - (before + best / 2);
    }
  }
  check(MPI_Bcast(&offset, 1, MPI_INT64_T, 0, session.host()), "MPI_Bcast");
  return offset;
}

}  // namespace tawpipe::mpi
