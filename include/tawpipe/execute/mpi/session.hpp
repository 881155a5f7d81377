// This process as one rank of an MPI job: start and end of MPI, the communicators, the hosts of
// ranks, the watch.
// Not: a schedule's execution (execute/mpi/executor.hpp).
#pragma once

#include <cstddef>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/execute/host_groups.hpp"
#include "tawpipe/execute/mpi/api.hpp"
#include "tawpipe/execute/mpi/watch_peers.hpp"
#include "tawpipe/execute/watch.hpp"
#include "tawpipe/topology/device_group.hpp"

namespace tawpipe::inline v0::mpi {

/// A duplicate of a communicator: its messages match no others, and errors are returned as codes.
class Communicator {
 public:
  Communicator() = default;
  /// Collective over `parent`.
  explicit Communicator(MPI_Comm parent) {
    check(MPI_Comm_dup(parent, &comm_), "MPI_Comm_dup");
    set_errors();
  }
  /// The ranks of `parent` that share a host with this one. Collective over `parent`.
  static Communicator of_host(MPI_Comm parent) {
    Communicator made;
    check(MPI_Comm_split_type(parent, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &made.comm_), "MPI_Comm_split_type");
    made.set_errors();
    return made;
  }
  Communicator(Communicator&& other) noexcept : comm_{std::exchange(other.comm_, MPI_COMM_NULL)} {}
  Communicator& operator=(Communicator&& other) noexcept {
    std::swap(comm_, other.comm_);
    return *this;
  }
  ~Communicator() = default;

  MPI_Comm get() const { return comm_; }
  /// Collective; skipped if the run has failed, since others may be gone.
  void free() {
    if (comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
  }

 private:
  void set_errors() const { check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler"); }
  MPI_Comm comm_ = MPI_COMM_NULL;
};

/// One for each process, created and destroyed by the thread that runs the executor. MPI is used by
/// one thread at a time (MPI_THREAD_SERIALIZED): by this one between iterations, by the executor's
/// own during one.
class Session {
 public:
  /// Starts MPI, or joins it if the program has started it. Collective over all processes of the
  /// job.
  /// @throws DeviceError  if MPI cannot be used from a second thread, or ranks cannot reach rank 0
  /// by TCP.
  explicit Session(const WatchOptions& options = {}) {
    int running = 0;
    check(MPI_Initialized(&running), "MPI_Initialized");
    int level = MPI_THREAD_SINGLE;
    if (running != 0) {
      check(MPI_Query_thread(&level), "MPI_Query_thread");
    } else {
      check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
      own_ = true;
    }
    open(MPI_COMM_WORLD, level, options);
  }
  /// Uses the ranks of `comm`, in a program that has started MPI itself. Collective over `comm`.
  explicit Session(MPI_Comm comm, const WatchOptions& options = {}) {
    int level = MPI_THREAD_SINGLE;
    check(MPI_Query_thread(&level), "MPI_Query_thread");
    open(comm, level, options);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Collective, unless the run has failed: then it does not wait, and the program should end.
  ~Session() {
    if (!together_ && std::uncaught_exceptions() > exceptions_) fail("it ended with an error of its own");
    if (watch_->failed()) return;
    try {
      barrier(control_.get());
      watch_->close();
      control_.free();
      messages_.free();
      notices_.free();
      host_.free();
      if (own_) MPI_Finalize();
    } catch (const Error&) {
      watch_->close();  // MPI itself fails: no orderly end is possible
    }
  }

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  /// The communicator for this library's own use between iterations.
  MPI_Comm control() const { return control_.get(); }
  /// The communicator for a schedule's communications.
  MPI_Comm messages() const { return messages_.get(); }
  /// The communicator for waits that no communication carries.
  MPI_Comm notices() const { return notices_.get(); }
  /// The ranks of this host.
  MPI_Comm host() const { return host_.get(); }
  /// [rank] the lowest rank on its host
  const std::vector<int>& host_of() const { return host_of_; }
  Watch& watch() { return *watch_; }

  /// Before a run: if any rank cannot start, none does. Collective.
  /// @param problem  what prevents this rank from starting, or empty
  /// @throws InputError  on all ranks, with the lowest such rank's problem; the program then ends
  /// normally.
  void agree(const std::string& problem) {
    int first = problem.empty() ? ranks_ : rank_;
    check(MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, control_.get()), "MPI_Allreduce");
    if (first == ranks_) return;
    const std::string words = broadcast(problem, first);
    together_ = true;
    throw InputError(words);
  }
  /// Rank 0's text, on all ranks. Collective. @param own  this rank's text
  std::string from_root(const std::string& own) { return broadcast(own, 0); }

  /// Tells all ranks that this one has failed and why (WatchOptions::failed). To be called if this
  /// rank cannot continue for a local reason, such as a file that cannot be written; the caller
  /// then ends, too.
  void fail(const std::string& why) { watch_->fail(why); }

 private:
  /// The text of `root`, on all ranks. Collective.
  std::string broadcast(std::string words, int root) {
    auto length = static_cast<int>(words.size());
    check(MPI_Bcast(&length, 1, MPI_INT, root, control_.get()), "MPI_Bcast");
    words.resize(static_cast<std::size_t>(length));
    check(MPI_Bcast(words.data(), length, MPI_CHAR, root, control_.get()), "MPI_Bcast");
    return words;
  }
  void open(MPI_Comm comm, int level, const WatchOptions& options) {
    if (level < MPI_THREAD_SERIALIZED) {
      throw DeviceError("MPI was started without support for threads; start it by MPI_Init_thread with MPI_THREAD_SERIALIZED");
    }
    control_ = Communicator{comm};
    messages_ = Communicator{comm};
    notices_ = Communicator{comm};
    check(MPI_Comm_rank(comm, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(comm, &ranks_), "MPI_Comm_size");
    watch_.emplace(rank_, options.on ? watch_peers(control_.get()) : std::vector<WatchPeer>{}, options);
    host_ = Communicator::of_host(control_.get());
    int lowest = rank_;
    check(MPI_Allreduce(MPI_IN_PLACE, &lowest, 1, MPI_INT, MPI_MIN, host_.get()), "MPI_Allreduce");
    host_of_.resize(static_cast<std::size_t>(ranks_));
    check(MPI_Allgather(&lowest, 1, MPI_INT, host_of_.data(), 1, MPI_INT, control_.get()), "MPI_Allgather");
  }

  bool own_ = false;
  bool together_ = false;  ///< all ranks end by the same exception
  int exceptions_ = std::uncaught_exceptions();
  int rank_ = 0;
  int ranks_ = 1;
  Communicator control_;
  Communicator messages_;
  Communicator notices_;
  Communicator host_;
  std::vector<int> host_of_;
  std::optional<Watch> watch_;
};

/// The hosts as device groups. @param host_of  [rank] the lowest rank on its host
/// @throws InputError  if ranks are not numbered host by host, as groups require.
inline DeviceGroups nodes_of(const std::vector<int>& host_of) {
  return host_groups(host_of, "start with mpirun --map-by slot (or ppr:N:node with --rank-by slot)");
}
inline DeviceGroups nodes_of(const Session& session) { return nodes_of(session.host_of()); }

}  // namespace tawpipe::mpi
