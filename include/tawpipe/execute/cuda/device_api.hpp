// The interface of devices and communicators for CUDA executors: concepts modelled by CUDA and
// NCCL, and by an emulation.
// Not: their implementations (cuda_api.hpp, nccl_api.hpp) nor their users (virtual_executor.hpp,
// nccl_executor.hpp).
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tawpipe/backend/device_compute.hpp"
#include "tawpipe/execute/cuda/peer_error.hpp"
#include "tawpipe/execute/message.hpp"
#include "tawpipe/model/dtype.hpp"

namespace tawpipe::inline v0::cuda {

/// Which of two streams with work a device serves first. Running work is not interrupted.
enum class Priority : std::uint8_t { normal, high };

/// A device: memory, in-order streams, events between them, and the few kernels that executors need
/// in addition to layers.
///
/// - Stream, Event and Graph are small handles, copied freely. The device owns what its `make_`,
///   `allocate_` and `end_capture` functions returned and frees it when it is destroyed; foreign
///   handles (a framework's stream) are only used.
/// - Work on one stream runs in the order in which it was enqueued; work on different streams in
///   any order except for events. `record` puts a mark into a stream; `wait` makes all later work
///   of a stream start after the last mark recorded before the call. A wait for an event never
///   recorded waits for nothing. Streams never wait for the legacy default stream.
/// - Only some functions may block the host: those that create and allocate, and `use`. Executors
///   call them before an iteration and never during one. All others enqueue work in a stream and
///   return.
/// - Memory is not cleared. Copies and additions are of memory that does not overlap, or is the
///   same.
/// - Between `begin_capture` and `end_capture` on its first stream, work enqueued in this stream,
///   and into streams that wait for events recorded in it, becomes part of a graph instead of
///   running. The first stream must have waited for all of them when the capture ends. Timed events
///   are recorded again by every launch of the graph and can be read after it.
/// - A stream holds a limited number of work items (CUDA: about 1,000); then the next call blocks
///   the host.
/// - Every function throws DeviceError if the device fails; work that failed earlier may be
///   reported by a later call.
/// - One host thread at a time uses a device, after calling `use()` in it. A second one may call
///   `finished` and `seconds_between` at the same time.
/// - After a failure, `drop_graphs` ends a capture and drops all graphs, running ones included;
///   `settle` gives streams some seconds to finish. If they do not, nothing on the device is freed
///   any more, since that would wait for them.
template <class D>
concept DeviceApi = std::movable<D> &&
    requires(D& device, typename D::Stream stream, typename D::Event event, typename D::Graph graph, std::byte* to,
             const std::byte* from, std::size_t bytes, std::int64_t count, Dtype type, float* sum, const StepScalars* scalars) {
  requires std::semiregular<typename D::Stream> && std::semiregular<typename D::Event> && std::semiregular<typename D::Graph>;
  { device.use() } -> std::same_as<void>;  ///< makes it the calling thread's current device
  { device.make_stream(Priority::high) } -> std::same_as<typename D::Stream>;
  { device.make_event(true) } -> std::same_as<typename D::Event>;  ///< true: with its time
  { device.allocate(bytes) } -> std::same_as<std::byte*>;          ///< aligned to 256 bytes
  /// page-locked host memory, for upload and download
  { device.allocate_host(bytes) } -> std::same_as<std::byte*>;

  { device.record(event, stream) } -> std::same_as<void>;
  { device.wait(stream, event) } -> std::same_as<void>;
  /// whether its last mark was reached; true: never recorded
  { device.finished(event) } -> std::same_as<bool>;
  /// from one timed event to another; none: not known yet, which may last beyond the end of the
  /// graph that has recorded them
  { device.seconds_between(event, event) } -> std::same_as<std::optional<double>>;

  { device.clear(to, bytes, stream) } -> std::same_as<void>;  ///< to zero
  /// on the device, or to or from page-locked memory
  { device.copy(to, from, bytes, stream) } -> std::same_as<void>;
  /// page-locked `from` is read when the copy runs
  { device.upload(to, from, bytes, stream) } -> std::same_as<void>;
  /// page-locked `to` is written when the copy runs
  { device.download(to, from, bytes, stream) } -> std::same_as<void>;
  /// to[i] += from[i] (f32, bf16, f16, f64)
  { device.add(to, from, count, type, stream) } -> std::same_as<void>;
  /// *sum += the sum of the squares, in an order that is the same in every run. Calls on one stream
  /// only.
  { device.add_squares(sum, from, count, type, stream) } -> std::same_as<void>;
  /// *scale = min(1, clip / sqrt(*square)), where clip is scalars->gradient_clip; 1 if clip is 0; 0
  /// for an infinite norm, NaN for a NaN. Arguments: scale, square.
  { device.clip_scale(sum, sum, scalars, stream) } -> std::same_as<void>;

  { device.begin_capture(stream) } -> std::same_as<void>;
  /// may block; the graph is ready to launch
  { device.end_capture(stream) } -> std::same_as<typename D::Graph>;
  { device.launch(graph, stream) } -> std::same_as<void>;

  { device.free_memory() } -> std::same_as<std::size_t>;  ///< bytes
  { device.drop_graphs() } -> std::same_as<void>;         ///< throws nothing
  /// whether all streams have finished; throws nothing
  { device.settle(double{}) } -> std::same_as<bool>;
};

/// The reduction of an all-reduce.
enum class Reduction : std::uint8_t { sum, maximum };

/// The purpose of a communicator: one that is only for sends and receives needs fewer device
/// resources.
enum class Traffic : std::uint8_t { pairs, collectives };

/// A communicator of some ranks, including this process's (or object's). Modelled on NCCL's.
///
/// - All functions but `split`, `allocate`, `enroll`, `open_window`, `check` and `abort_all` enqueue a
///   communication in `stream` and return; the first use of a peer or collective may block the host
///   until its peers use it too. On one communicator all members call the same collectives in the
///   same order with the same count, type and root; sends and receives of peers are matched in
///   order, without tags; calls on one communicator run in order, whatever their streams.
/// - Calls between `group_begin` and `group_end` (of any communicator of the process) start
///   together and must not depend on each other. A send and a receive that each wait for the
///   other's peer belong in one group.
/// - Pointers are device memory. `from` equal to `to` works in place; for all_gather with `from` at
///   the member's place in `to`, for reduce_scatter with `to` at the member's place in `from`. A
///   count of 0 is never passed.
/// - Sums of bf16 and f16 are rounded to the type. Members are numbered from 0 by `split`'s key.
/// - Every function throws DeviceError, possibly PeerError, if the communicator fails; it can then
///   only be aborted and destroyed.
/// - `check` may be called from a thread other than the one that makes all other calls.
template <class C, class S>
concept CommunicatorApi = std::movable<C> &&
    requires(C& comm, S stream, std::byte* to, const std::byte* from, std::int64_t count, Dtype type, int member) {
  { comm.ranks() } -> std::same_as<int>;
  { comm.rank() } -> std::same_as<int>;
  /// Collective, blocks: a new communicator for each colour of 0 or more, its members in the order
  /// of their keys (the same lane limits and time limit as this one's); nothing for a negative
  /// colour.
  /// colour, key
  { comm.split(member, member, Traffic::pairs) } -> std::same_as<std::optional<C>>;
  { comm.group_begin() } -> std::same_as<void>;
  { comm.group_end() } -> std::same_as<void>;
  { comm.send(from, count, type, member, stream) } -> std::same_as<void>;
  { comm.receive(to, count, type, member, stream) } -> std::same_as<void>;
  /// `from` is read at the root only; all others pass `to` for it
  { comm.broadcast(from, to, count, type, member, stream) } -> std::same_as<void>;
  /// `to` is written at the root only; all others pass `from` for it
  { comm.reduce(from, to, count, type, member, stream) } -> std::same_as<void>;
  /// count: of each member's part
  { comm.all_gather(from, to, count, type, stream) } -> std::same_as<void>;
  /// count: of each member's part
  { comm.reduce_scatter(from, to, count, type, stream) } -> std::same_as<void>;
  { comm.all_reduce(from, to, count, type, Reduction::sum, stream) } -> std::same_as<void>;
  /// Memory of the current device, aligned to 256 bytes, which messages may use without
  /// intermediate copies; freed with its last owner. Null if there is no such memory: then any
  /// device memory is used.
  { C::enrolls } -> std::convertible_to<bool>;  ///< whether such memory exists at all
  { comm.allocate(std::size_t{}) } -> std::same_as<std::shared_ptr<std::byte>>;
  /// From now on messages of this communicator use only such memory, on all members. It stays until
  /// the communicator is gone.
  { comm.enroll(to, std::size_t{}) } -> std::same_as<void>;
  /// whether all-gathers should take none of the device's processors: for that they need a window
  { comm.zero_cta() } -> std::same_as<bool>;
  /// Collective, blocks: from now on this communicator only gathers within such memory, of one size
  /// on all members, to a place that is the same on all of them.
  { comm.open_window(to, std::size_t{}) } -> std::same_as<void>;
  /// throws if a communication under way has failed; does not wait
  { comm.check() } -> std::same_as<void>;
  /// Ends all communication in progress, unfinished; blocks until it has ended, and until no graph
  /// has any of it: aborted one by one they would wait for each other. Throws nothing.
  { C::abort_all(std::vector<C>{}) } -> std::same_as<void>;
};

/// A move with resolved addresses.
struct ResolvedMove {
  Move::Kind kind;
  std::byte* to;
  const std::byte* from;
  std::int64_t count;
};

/// Enqueues a move of numbers of `type` in a stream.
template <DeviceApi Device>
void carry_out(const ResolvedMove& move, Dtype type, Device& device, typename Device::Stream stream) {
  const auto bytes = static_cast<std::size_t>(move.count * size_bytes(type));
  switch (move.kind) {
    case Move::Kind::clear:
      return device.clear(move.to, bytes, stream);
    case Move::Kind::copy:
      return device.copy(move.to, move.from, bytes, stream);
    case Move::Kind::add:
      return device.add(move.to, move.from, move.count, type, stream);
  }
}

}  // namespace tawpipe::cuda
