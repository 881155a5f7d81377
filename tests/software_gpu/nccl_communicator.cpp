// Meetings and streams of communicators. Not: NCCL's functions (nccl.cpp).
#include "software_gpu/nccl_communicator.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <utility>

#include "software_gpu/inside.hpp"
#include "tawpipe/execute/cuda/pause.hpp"

#ifdef __SANITIZE_THREAD__
extern "C" void __tsan_acquire(void* at);
extern "C" void __tsan_release(void* at);
#endif

namespace software_gpu {
namespace {

/// What one member has done before it gave its part comes before what another does once it has that
/// part, and nothing more does: the thread sanitizer sees no order in sockets, and so finds memory
/// that ranks of one process use at once.
void mark_order([[maybe_unused]] const std::string& meeting, [[maybe_unused]] bool gives) {
#ifdef __SANITIZE_THREAD__
  static char marks[1 << 20];
  char* const mark = &marks[std::hash<std::string>{}(meeting) % sizeof marks];
  gives ? __tsan_release(mark) : __tsan_acquire(mark);
#endif
}

/// Whether all operations of a process on one GPU start in the order of their calls. Source: NCCL
/// 2.26, src/enqueue.cc.
bool ordered() {
  static const bool value = [] {
    const char* const text = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    return text != nullptr && std::atoi(text) != 0;
  }();
  return value;
}

/// The entry of [address] that is the last to begin at or before `at`; null: none.
template <class Value>
const std::pair<const char* const, Value>* around(const std::map<const char*, Value>& all, const char* at) {
  const auto after = all.upper_bound(at);
  return after == all.begin() ? nullptr : &*std::prev(after);
}

std::atomic<long> copied{0};

}  // namespace

long copied_gathers() { return copied; }

Communicator::Communicator(Place place) : place_{std::move(place)} {
  cudaSetDevice(place_.device);
  cudaMalloc(&memory_, std::size_t{1} << 20);
}
Communicator::~Communicator() { software_gpu_free(memory_); }

// ---- the state of calls -----------------------------------------------------------------------------------------------------

ncclResult_t Communicator::state() const {
  const std::lock_guard lock{mutex_};
  return state_;
}
Communicator::Life Communicator::life() const {
  const std::lock_guard lock{mutex_};
  return life_;
}
std::string Communicator::words() const {
  const std::lock_guard lock{mutex_};
  return words_;
}
ncclResult_t Communicator::ready(const char* call) {
  const std::lock_guard lock{mutex_};
  if (state_ == ncclInProgress) {
    words_ = std::string{call} + " while an earlier call on this communicator is in progress";
    return ncclInvalidUsage;
  }
  if (life_ == Life::finalized) {
    words_ = std::string{call} + " after ncclCommFinalize";
    return ncclInvalidUsage;
  }
  return state_;
}
void Communicator::begin() {
  const std::lock_guard lock{mutex_};
  if (state_ == ncclSuccess) state_ = ncclInProgress;  // an operation may have failed meanwhile
}
void Communicator::set_failed(ncclResult_t why, const std::string& words) {
  if (state_ == ncclSuccess || state_ == ncclInProgress) {  // the first failure stays
    state_ = why;
    words_ = words;
  }
  changed_.notify_all();
}
void Communicator::fail(ncclResult_t why, const std::string& words) {
  const std::lock_guard lock{mutex_};
  set_failed(why, words);
}
void Communicator::abort() {
  const std::lock_guard lock{mutex_};
  life_ = Life::aborted;
  for (const int socket : sockets_) ::shutdown(socket, SHUT_RDWR);
  changed_.notify_all();
}
void Communicator::await_gone() {
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [&] { return running_ == 0 && captured_ == 0; });
}
void Communicator::finalize() {
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [&] { return (running_ == 0 && captured_ == 0) || life_ == Life::aborted; });
  if (life_ == Life::alive) life_ = Life::finalized;
}
void Communicator::destroy() {
  finalize();
  const std::lock_guard lock{mutex_};
  life_ = Life::destroyed;
  if (last_ != nullptr) cudaEventDestroy(last_);
}

// ---- memory that members have registered ------------------------------------------------------------------------------------

void* Communicator::add_memory(const void* at, std::size_t bytes) {
  const std::lock_guard lock{mutex_};
  const auto* const begin = static_cast<const char*>(at);
  return registered_.emplace(begin, bytes).second ? const_cast<char*>(begin) : nullptr;
}
bool Communicator::remove_memory(void* handle) {
  const std::lock_guard lock{mutex_};
  return registered_.erase(static_cast<const char*>(handle)) == 1;
}
bool Communicator::has_memory(const void* at, std::size_t bytes) const {
  const std::lock_guard lock{mutex_};
  const auto* const begin = static_cast<const char*>(at);
  const auto* const window = around(windows_, begin);
  if (window != nullptr && begin + bytes <= window->first + window->second.bytes) return true;  // registered too
  const auto* const known = around(registered_, begin);
  return known != nullptr && begin + bytes <= known->first + known->second;
}
void* Communicator::add_window(const void* at, std::size_t bytes, bool symmetric) {
  const std::lock_guard lock{mutex_};
  const auto* const begin = static_cast<const char*>(at);
  windows_[begin] = {bytes, symmetric};
  return const_cast<char*>(begin);
}
bool Communicator::remove_window(void* window) {
  const std::lock_guard lock{mutex_};
  return windows_.erase(static_cast<const char*>(window)) == 1;
}
std::optional<std::size_t> Communicator::place_in_window(const void* at, std::size_t bytes) const {
  const std::lock_guard lock{mutex_};
  const auto* const begin = static_cast<const char*>(at);
  const auto* const window = around(windows_, begin);
  if (window == nullptr || !window->second.symmetric || begin + bytes > window->first + window->second.bytes) return {};
  return static_cast<std::size_t>(begin - window->first);
}

// ---- meetings of members ----------------------------------------------------------------------------------------------------

void Communicator::attend(std::vector<Call>& calls) {
  for (Call& call : calls) {
    Seat seat = call.seat;
    seat.meeting = place_.name + "/" + seat.meeting;
    call.socket = software_gpu::attend(place_.broker, seat, call.own);
    const std::lock_guard lock{mutex_};
    if (call.socket < 0) continue;
    sockets_.insert(call.socket);
    if (life_ == Life::aborted) ::shutdown(call.socket, SHUT_RDWR);
  }
}
bool Communicator::collect(std::vector<Call>& calls) {
  bool all = true;
  for (Call& call : calls) {
    all = all && call.socket >= 0 && await_parts(call.socket, call.seat.members, call.all);
  }
  std::unique_lock lock{mutex_};
  if (!all && life_ != Life::aborted && std::getenv("SOFTWARE_GPU_NCCL_TELLS") != nullptr) {
    set_failed(ncclRemoteError, "a member's process has ended");
  }
  if (!all) changed_.wait(lock, [&] { return life_ == Life::aborted; });
  for (const Call& call : calls) {
    sockets_.erase(call.socket);
    if (call.socket >= 0) ::close(call.socket);
  }
  return all;
}
void Communicator::number(Seat& seat) {
  const std::lock_guard lock{mutex_};
  seat.meeting += "/" + std::to_string(meetings_[seat.meeting]++);
}
std::vector<std::string> Communicator::exchange(const std::string& purpose, const std::string& head) {
  std::vector<Call> calls(1);
  calls[0].seat = {purpose, place_.ranks, place_.rank, false};
  number(calls[0].seat);
  calls[0].own.head = head;
  attend(calls);
  std::vector<std::string> heads;
  if (!collect(calls)) return heads;
  for (Part& part : calls[0].all) heads.push_back(std::move(part.head));
  return heads;
}

// ---- operations -------------------------------------------------------------------------------------------------------------

Communicator::Call Communicator::next_meeting(const std::string& purpose, const Operation& operation) {
  Call call;
  call.seat = {purpose + "/all", place_.ranks, place_.rank, true};
  if (operation.between_two()) {
    const bool sends = operation.kind == Kind::send;
    const int from = sends ? place_.rank : operation.peer;
    const int to = sends ? operation.peer : place_.rank;
    call.seat = {purpose + "/" + std::to_string(from) + ">" + std::to_string(to), 2, sends ? 0 : 1, !sends};
  } else if (operation.kind == Kind::reduce) {
    call.seat.takes_data = operation.peer == place_.rank;
  }
  number(call.seat);
  return call;
}

std::vector<Communicator::Call> Communicator::connections(const std::vector<Operation>& operations) {
  std::vector<Call> calls;
  for (const Operation& one : operations) {
    const std::string what =
        std::to_string(static_cast<int>(one.kind)) + (one.between_two() ? ":" + std::to_string(one.peer) : "");
    if (!connected_.insert(what).second) continue;  // by one call at a time
    calls.push_back(next_meeting("connect", one));
    calls.back().own.head = head_of(one);
  }
  cudaStreamCaptureStatus captured = cudaStreamCaptureStatusNone;
  if (!calls.empty()) cudaStreamIsCapturing(operations.front().stream, &captured);
  if (captured == cudaStreamCaptureStatusNone) return calls;
  fail(ncclInvalidUsage, "the first " + describe(calls.front().own.head) + " must connect, and is being captured");
  return {};
}

void Communicator::compare(const std::vector<Call>& calls) {
  for (const Call& call : calls) {
    for (std::size_t i = 1; i < call.all.size(); ++i) {
      const std::string& first = call.all.front().head;
      if (fit(first, call.all[i].head)) continue;
      fail(ncclInternalError, "members have made different calls: " + describe(first) + " and " + describe(call.all[i].head));
    }
  }
}

struct Communicator::Launch {
  std::shared_ptr<Communicator> by;
  std::vector<Operation> operations;
  bool captured;                         ///< a graph has it
  std::shared_ptr<const Launch> before;  ///< that must have started as often before this starts; null: none
  std::uint64_t times = 0;               ///< launches of the graph
  std::atomic<std::uint64_t> started{0};
};

void Communicator::put(std::vector<Operation> operations) {
  const cudaStream_t stream = operations.front().stream;
  {
    const std::lock_guard lock{mutex_};
    if (life_ == Life::aborted || state_ != ncclInProgress) return;
    ++running_;  // what is aborted from here on is waited for
  }
  cudaError_t status = cudaSetDevice(place_.device);
  const auto then = [&](auto&& call) {
    if (status == cudaSuccess) status = call();
  };
  const unsigned long long capture = software_gpu_capture(stream);
  auto launch = std::make_shared<Launch>();
  launch->by = shared_from_this();
  launch->operations = std::move(operations);
  launch->captured = capture != 0;
  if (ordered()) {
    static std::mutex mutex;
    static auto* const last = new std::map<std::pair<int, unsigned long long>, std::shared_ptr<const Launch>>;
    const std::lock_guard lock{mutex};
    launch->before = std::exchange((*last)[{place_.device, capture}], launch);
  }
  auto* const kept = new std::shared_ptr<Launch>{launch};
  if (capture != 0) {
    const std::lock_guard lock{mutex_};
    --running_;
    ++captured_;
  } else if (last_ == nullptr) {
    then([&] { return cudaEventCreateWithFlags(&last_, cudaEventDisableTiming); });
  } else if (stream != last_stream_) {  // operations of one communicator run in the order of calls
    then([&] { return cudaStreamWaitEvent(stream, last_, 0); });
  }
  if (capture != 0) software_gpu_hold(stream, forget, kept);
  then([&] { return cudaLaunchHostFunc(stream, run, kept); });
  if (capture == 0) then([&] { return cudaEventRecord(last_, stream); });
  if (capture == 0) last_stream_ = stream;
  if (status != cudaSuccess) fail(ncclUnhandledCudaError, cudaGetErrorString(status));
}

void Communicator::forget(void* data) {
  const std::unique_ptr<std::shared_ptr<Launch>> kept{static_cast<std::shared_ptr<Launch>*>(data)};
  Communicator& by = *(*kept)->by;
  const std::lock_guard lock{by.mutex_};
  --((*kept)->captured ? by.captured_ : by.running_);
  by.changed_.notify_all();
}

void Communicator::await_turn(const Launch& launch, std::uint64_t time) {
  const auto begun = std::chrono::steady_clock::now();
  while (launch.before && launch.before->started < time && life() != Life::aborted) {
    tawpipe::cuda::pause_after(std::chrono::steady_clock::now() - begun, std::chrono::microseconds{20});
  }
}

void CUDART_CB Communicator::run(void* data) {
  const std::shared_ptr<Launch> launch = *static_cast<std::shared_ptr<Launch>*>(data);
  Communicator& by = *launch->by;
  const Life life = by.life();
  if (launch->captured && (life == Life::finalized || life == Life::destroyed)) {
    std::fprintf(stderr, "software NCCL: a graph was launched after a communicator of it was destroyed\n");
    std::abort();
  }
  by.await_turn(*launch, ++launch->times);
  if (!launch->captured) launch->before = nullptr;  // or all that ever were would stay
  const int device = by.place_.device;
  const auto is_copied = [](const Operation& one) { return one.copied; };
  const bool copies = std::all_of(launch->operations.begin(), launch->operations.end(), is_copied);
  const int processors = copies ? 0 : software_gpu_take_processors(device, by.place_.blocks, 1);
  ++launch->started;
  by.carry_out(launch->operations);
  if (!copies) software_gpu_give_processors(device, processors);
  if (!launch->captured) forget(data);
}

void Communicator::carry_out(const std::vector<Operation>& operations) {
  if (life() == Life::aborted) return;
  std::vector<Call> calls;
  for (const Operation& one : operations) {
    calls.push_back(next_meeting("run", one));
    calls.back().own = part_of(one, place_.rank, place_.ranks);
    const bool gives = one.kind != Kind::receive && (one.kind != Kind::broadcast || one.peer == place_.rank);
    if (gives) mark_order(place_.broker + place_.name + calls.back().seat.meeting, true);
  }
  attend(calls);
  if (!collect(calls)) return;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (calls[i].seat.takes_data) mark_order(place_.broker + place_.name + calls[i].seat.meeting, false);
  }
  compare(calls);
  if (const ncclResult_t now = state(); now != ncclSuccess && now != ncclInProgress) return;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    complete(operations[i], place_.rank, calls[i].all);
    if (operations[i].copied) ++copied;
  }
}

}  // namespace software_gpu
