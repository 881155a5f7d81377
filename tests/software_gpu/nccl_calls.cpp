// Handles, background threads, groups and splits. Not: NCCL's functions (nccl.cpp).
#include "software_gpu/nccl_calls.hpp"

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "software_gpu/nccl_registration.hpp"

namespace software_gpu {
namespace {

struct Handles {
  std::mutex mutex;
  std::uintptr_t last = 0;
  std::map<ncclComm_t, Shared> known;
};
Handles& handles() {
  static auto* const all = new Handles;  // threads may use it until the process ends
  return *all;
}

/// As calls of non-blocking communicators come about: a little later.
void dawdle() {
  static std::mutex mutex;
  static std::mt19937 random{[] {
    const char* const seed = std::getenv("SOFTWARE_GPU_SEED");
    return static_cast<std::mt19937::result_type>(seed != nullptr ? std::atoi(seed) : 1);
  }()};
  std::unique_lock lock{mutex};
  const auto time = std::chrono::microseconds{random() % 300};
  lock.unlock();
  std::this_thread::sleep_for(time);
}

/// Here, or by a thread a little later. @return what the call returns
template <class Work>
ncclResult_t carry_out(const Shared& by, Work&& work) {
  by->begin();
  if (by->place().blocking) {
    work();
    return by->state() == ncclSuccess ? ncclSuccess : refuse(by->state(), by->words());
  }
  std::thread([work = std::forward<Work>(work)]() mutable {
    dawdle();
    work();
  }).detach();
  return ncclInProgress;
}

// ---- groups

struct Batch {  // of one group
  Shared by;
  std::vector<Operation> operations;
};
struct Group {  // of one thread
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<Batch> batches;
  std::vector<ncclComm_t> aborted;
};
thread_local Group group;

/// Once a process, at its first send or receive: SOFTWARE_GPU_CONNECT_SECONDS, as where a network
/// is slow to come up.
void connect_slowly() {
  static std::once_flag once;
  std::call_once(once, [] {
    const char* const seconds = std::getenv("SOFTWARE_GPU_CONNECT_SECONDS");
    if (seconds != nullptr) std::this_thread::sleep_for(std::chrono::seconds{std::atoi(seconds)});
  });
}

void launch(std::vector<Batch>& batches) {
  std::vector<std::vector<Communicator::Call>> calls;
  for (const Batch& one : batches) {
    if (one.operations.front().between_two()) connect_slowly();
    calls.push_back(one.by->connections(one.operations));
    one.by->attend(calls.back());
  }
  for (std::size_t i = 0; i < batches.size(); ++i) {
    if (batches[i].by->collect(calls[i])) batches[i].by->compare(calls[i]);
  }
  for (Batch& one : batches) one.by->put(std::move(one.operations));
  for (const Batch& one : batches) one.by->end([] {});
}

ncclResult_t problem_of(const Operation& what, const Communicator::Place& place) {
  const bool root = what.peer == place.rank;
  const bool reads = what.kind != Kind::receive && (what.kind != Kind::broadcast || root);
  const bool writes = what.kind != Kind::send && (what.kind != Kind::reduce || root);
  const std::string name = describe(head_of(what));
  if (size_of(what.type) == 0) return refuse(ncclInvalidArgument, name + ": no such type");
  if (what.reduces() && !can_reduce(what.op, what.type)) {
    return refuse(ncclInvalidArgument, name + ": neither sum nor maximum of floats");
  }
  if (what.peer < 0 || what.peer >= place.ranks) {
    return refuse(ncclInvalidArgument, name + ": rank " + std::to_string(what.peer) + " of " + std::to_string(place.ranks));
  }
  if (what.count > 0 && ((reads && what.from == nullptr) || (writes && what.to == nullptr))) {
    return refuse(ncclInvalidArgument, name + " of null");
  }
  return ncclSuccess;
}

/// Where any member's memory of an operation is registered, all members' must be (NCCL's manual,
/// user buffer registration), and be used by the kernels of all or of none.
Operation with_registration(Operation what, const Communicator& by) {
  const auto ranks = static_cast<std::size_t>(by.place().ranks);
  const bool root = what.peer == by.place().rank;
  const std::size_t bytes = what.count * size_of(what.type);
  const bool reads = what.kind != Kind::receive && (what.kind != Kind::broadcast || root);
  const bool writes = what.kind != Kind::send && (what.kind != Kind::reduce || root);
  const std::vector<std::string>& hosts = by.hosts();
  const auto elsewhere = [&](const std::string& host) { return host != hosts[static_cast<std::size_t>(by.place().rank)]; };
  cudaStreamCaptureStatus captured = cudaStreamCaptureStatusNone;
  cudaStreamIsCapturing(what.stream, &captured);
  const std::size_t given = what.kind == Kind::reduce_scatter ? bytes * ranks : bytes;
  const std::size_t taken = what.kind == Kind::all_gather ? bytes * ranks : bytes;
  const CallMemory memory{by.has_memory(what.from, given),
                          by.has_memory(what.to, taken),
                          captured != cudaStreamCaptureStatusNone,
                          what.between_two() ? elsewhere(hosts.at(static_cast<std::size_t>(what.peer)))
                                             : std::any_of(hosts.begin(), hosts.end(), elsewhere),
                          by.place_in_window(what.from, given),
                          by.place_in_window(what.to, taken)};
  what.registered = (!reads || memory.from) && (!writes || memory.to);
  what.places = places_of(what, memory);
  what.copied = is_copied(what, memory, by.place().policy);
  what.direct = !what.copied && used_directly(what, memory, by.place().ranks);
  return what;
}

ncclResult_t add_to_group(const Operation& what, const Shared& by, const char* call) {
  if (const ncclResult_t state = by->ready(call); state != ncclSuccess) return refuse(state, by->words());
  if (const ncclResult_t problem = problem_of(what, by->place()); problem != ncclSuccess) return problem;
  if (what.count == 0 && !what.between_two()) return ncclSuccess;  // NCCL, too, discards it
  const auto known = std::find_if(group.batches.begin(), group.batches.end(), [&](const Batch& one) { return one.by == by; });
  if (known == group.batches.end()) {
    group.batches.push_back({by, {with_registration(what, *by)}});
  } else if (known->operations.front().stream != what.stream) {
    return refuse(ncclInvalidUsage, "a communicator on two streams of one group, which this stand-in cannot do");
  } else {
    known->operations.push_back(with_registration(what, *by));
  }
  return ncclSuccess;
}

// ---- new communicators

std::string own_gpu(int device) {
  std::array<char, 256> host{};
  std::array<char, 32> bus{};
  const char* const given = std::getenv("NCCL_HOSTID");
  if (given == nullptr) ::gethostname(host.data(), host.size() - 1);
  cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device);
  return std::string{given != nullptr ? given : host.data()} + " " + bus.data();
}

struct Wish {  // of a member in a split
  int colour;
  int key;
  std::array<char, 128> broker;
  std::array<char, 64> name;
};

void carry_out_split(const Shared& parent, int colour, int key, const Communicator::Place& as, ncclComm_t* made) {
  Wish own{colour, key, {}, {}};
  broker_name().copy(own.broker.data(), own.broker.size() - 1);
  new_name().copy(own.name.data(), own.name.size() - 1);
  std::string head(sizeof own, '\0');
  std::memcpy(head.data(), &own, sizeof own);
  std::vector<std::pair<int, int>> members;  // key, rank in the parent
  std::vector<Wish> wishes;
  for (const std::string& text : parent->exchange("split", head)) {
    std::memcpy(&wishes.emplace_back(), text.data(), sizeof own);
    if (wishes.back().colour == colour) members.emplace_back(wishes.back().key, static_cast<int>(wishes.size()) - 1);
  }
  std::sort(members.begin(), members.end());
  parent->end([&] {
    if (colour == NCCL_SPLIT_NOCOLOR) return;
    const Wish& first = wishes.at(static_cast<std::size_t>(members.front().second));
    const auto rank = std::find(members.begin(), members.end(), std::pair{key, as.rank}) - members.begin();
    Communicator::Place place = as;
    place.broker = first.broker.data();
    place.name = first.name.data();
    place.rank = static_cast<int>(rank);
    place.ranks = static_cast<int>(members.size());
    const auto child = std::make_shared<Communicator>(place);
    std::vector<std::string> hosts;
    for (const auto& [unused, member] : members) hosts.push_back(parent->hosts().at(static_cast<std::size_t>(member)));
    child->set_hosts(std::move(hosts));
    *made = add_handle(child);
  });
}

}  // namespace

ncclComm_t add_handle(const Shared& one) {
  const std::lock_guard lock{handles().mutex};
  const auto handle = reinterpret_cast<ncclComm_t>(++handles().last * 16);
  handles().known[handle] = one;
  return handle;
}
Shared find(ncclComm_t handle, const char* call) {
  const std::lock_guard lock{handles().mutex};
  const auto at = handles().known.find(handle);
  if (at != handles().known.end()) return at->second;
  std::fprintf(stderr, "software NCCL: %s on a communicator that is %s\n", call, handle == nullptr ? "null" : "freed");
  std::abort();
}
void remove_handle(ncclComm_t handle) {
  const std::lock_guard lock{handles().mutex};
  handles().known.erase(handle);
}

bool is_registered(const void* at) {
  const std::lock_guard lock{handles().mutex};
  return std::any_of(handles().known.begin(), handles().known.end(),
                     [&](const auto& one) { return one.second->has_memory(at, 1); });
}

std::string& last_words() {
  static thread_local std::string words;
  return words;
}
ncclResult_t refuse(ncclResult_t why, const std::string& words) {
  last_words() = words;
  return why;
}

void begin_group() { ++group.depth; }
ncclResult_t end_group() {
  if (group.depth == 0) return refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--group.depth > 0) return ncclSuccess;
  for (const ncclComm_t one : std::exchange(group.aborted, {})) {
    find(one, "ncclGroupEnd")->await_gone();
    remove_handle(one);
  }
  std::vector<Batch> batches = std::exchange(group.batches, {});
  const ncclResult_t error = std::exchange(group.error, ncclSuccess);
  if (error != ncclSuccess || batches.empty()) return error;
  const Shared first = batches.front().by;
  for (const Batch& one : batches) {
    if (one.by->place().blocking == first->place().blocking) continue;
    return refuse(ncclInvalidArgument, "a group of blocking and of non-blocking communicators");
  }
  for (const Batch& one : batches) one.by->begin();
  return carry_out(first, [batches = std::move(batches)]() mutable { launch(batches); });
}
ncclResult_t abort(ncclComm_t comm) {
  find(comm, "ncclCommAbort")->abort();
  begin_group();
  group.aborted.push_back(comm);
  return end_group();
}
ncclResult_t enqueue(const Operation& what, ncclComm_t comm, const char* call) {
  const Shared by = find(comm, call);
  begin_group();
  const ncclResult_t added = add_to_group(what, by, call);
  if (added != ncclSuccess) group.error = added;
  const ncclResult_t ended = end_group();
  return added != ncclSuccess ? added : ended;
}

std::string new_name() {
  static std::atomic<int> last{0};
  return "communicator" + std::to_string(++last);
}
ncclResult_t initialize(const Shared& one) {
  return carry_out(one, [one] {
    const std::vector<std::string> gpus = one->exchange("init", own_gpu(one->place().device));
    std::vector<std::string> hosts;
    for (const std::string& gpu : gpus) hosts.push_back(gpu.substr(0, gpu.rfind(' ')));
    one->set_hosts(std::move(hosts));
    for (std::size_t r = 0; r < gpus.size(); ++r) {
      const auto first = static_cast<std::size_t>(std::find(gpus.begin(), gpus.end(), gpus[r]) - gpus.begin());
      if (first == r) continue;
      one->fail(ncclInvalidUsage, "Duplicate GPU detected : rank " + std::to_string(first) + " and rank " + std::to_string(r) +
                                      " both on " + gpus[r]);
    }
    one->end([] {});
  });
}
void split(const Shared& parent, int colour, int key, const Communicator::Place& as, ncclComm_t* made) {
  carry_out(parent, [=] { carry_out_split(parent, colour, key, as, made); });
}
void open_window(const Shared& one, void* at, std::size_t bytes, bool symmetric, void** window) {
  carry_out(one, [=] {
    const std::vector<std::string> sizes = one->exchange("window", std::to_string(bytes));
    if (std::adjacent_find(sizes.begin(), sizes.end(), std::not_equal_to<>{}) != sizes.end()) {
      one->fail(ncclUnhandledCudaError, "windows of different sizes: " + sizes.front() + " and others");
    }
    *window = one->add_window(at, bytes, symmetric);
    one->end([] {});
  });
}
ncclResult_t finalize(const Shared& one) {
  return carry_out(one, [one] {
    one->finalize();
    one->end([] {});
  });
}

}  // namespace software_gpu
