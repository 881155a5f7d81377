// A communicator for tests of the CUDA executors: passes its calls to an emulation or to a log.
// Not: what becomes of them (emulated_meeting.hpp, nccl_rules.hpp).
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/execute/cuda/device_api.hpp"

namespace support {

/// A call of a communicator, by one member.
struct CommunicatorCall {
  enum class Kind { send, receive, broadcast, reduce, all_gather, reduce_scatter, all_reduce };
  Kind kind = Kind::send;
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::int64_t count = 0;
  tawpipe::Dtype type = tawpipe::Dtype::f32;
  int peer = 0;  ///< or root
  tawpipe::cuda::Reduction reduction = tawpipe::cuda::Reduction::sum;

  bool is_pair() const { return kind == Kind::send || kind == Kind::receive; }
};

/// CommunicatorApi whose calls go to
/// `Sink::communicate(communicator, member, calls, stream number)`, those of a group together. Keys
/// of a split number its members from 0 without gaps; all members have split before any of them
/// calls: members that are threads wait for each other in a split of the communicator of all ranks.
template <class Sink, class Stream>
class TestCommunicator {
 public:
  /// Communicator 0, of all ranks. @param family  shared by all ranks' communicators of a test
  struct Family {
    std::map<std::tuple<int, int, int>, int> children;  ///< parent, number of the split, colour
    int communicators = 1;
    bool threads = false;                      ///< members are threads
    const std::atomic<bool>* stop = nullptr;   ///< as NcclOptions::stop
    std::map<std::pair<int, int>, int> split;  ///< parent, number of the split: members that have come
    std::mutex mutex;
    std::condition_variable came;
    std::atomic<int> aborted{0};              ///< communicators
    std::vector<std::string>* log = nullptr;  ///< of what comes of a failure
    bool zero_cta = false;                    ///< members want windows
    /// [communicator, number of a gather in its window] where the first member's went to
    std::map<std::pair<int, int>, std::ptrdiff_t> places;
    std::map<int, std::size_t> windows;  ///< [communicator] bytes
  };
  TestCommunicator(Sink& sink, std::shared_ptr<Family> family, int rank, int ranks)
      : TestCommunicator{sink, std::move(family), 0, rank, ranks} {}

  int ranks() const { return ranks_; }
  int rank() const { return member_; }
  std::optional<TestCommunicator> split(int colour, int key, tawpipe::cuda::Traffic = tawpipe::cuda::Traffic::collectives) {
    const int number = splits_++;
    std::unique_lock lock{family_->mutex};
    std::optional<TestCommunicator> made;
    if (colour >= 0) {
      const auto found = family_->children.try_emplace({communicator_, number, colour}, family_->communicators);
      if (found.second) ++family_->communicators;
      made = TestCommunicator{*sink_, family_, found.first->second, key, 0};
    }
    int& come = family_->split[{communicator_, number}];
    ++come;
    family_->came.notify_all();
    while (family_->threads && come < ranks_) {
      family_->came.wait_for(lock, std::chrono::milliseconds{1});
      check();
    }
    return made;
  }

  void group_begin() {
    if (grouped_) throw tawpipe::DeviceError("a group within a group");
    grouped_ = true;
  }
  void group_end() {
    if (!grouped_ || calls_.empty()) throw tawpipe::DeviceError("an empty group");
    grouped_ = false;
    sink_->communicate(communicator_, member_, std::exchange(calls_, {}), stream_.number);
  }
  void send(const std::byte* from, std::int64_t count, tawpipe::Dtype type, int peer, Stream stream) {
    call({CommunicatorCall::Kind::send, from, nullptr, count, type, peer}, stream);
  }
  void receive(std::byte* to, std::int64_t count, tawpipe::Dtype type, int peer, Stream stream) {
    call({CommunicatorCall::Kind::receive, nullptr, to, count, type, peer}, stream);
  }
  void broadcast(const std::byte* from, std::byte* to, std::int64_t count, tawpipe::Dtype type, int root, Stream stream) {
    call({CommunicatorCall::Kind::broadcast, from, to, count, type, root}, stream);
  }
  void reduce(const std::byte* from, std::byte* to, std::int64_t count, tawpipe::Dtype type, int root, Stream stream) {
    call({CommunicatorCall::Kind::reduce, from, to, count, type, root}, stream);
  }
  void all_gather(const std::byte* from, std::byte* to, std::int64_t count, tawpipe::Dtype type, Stream stream) {
    call({CommunicatorCall::Kind::all_gather, from, to, count, type}, stream);
  }
  void reduce_scatter(const std::byte* from, std::byte* to, std::int64_t count, tawpipe::Dtype type, Stream stream) {
    call({CommunicatorCall::Kind::reduce_scatter, from, to, count, type}, stream);
  }
  void all_reduce(const std::byte* from, std::byte* to, std::int64_t count, tawpipe::Dtype type,
                  tawpipe::cuda::Reduction reduction, Stream stream) {
    call({CommunicatorCall::Kind::all_reduce, from, to, count, type, 0, reduction}, stream);
  }
  void check() const {
    if (family_->stop != nullptr && family_->stop->load()) throw tawpipe::DeviceError("another rank has failed");
  }
  static constexpr bool enrolls = false;
  std::shared_ptr<std::byte> allocate(std::size_t bytes) const {
    if (!family_->zero_cta) return nullptr;
    constexpr std::align_val_t alignment{256};
    return {static_cast<std::byte*>(std::memset(::operator new(bytes, alignment), 0xff, bytes)),  // not a number
            [](std::byte* memory) { ::operator delete(memory, alignment); }};
  }
  void enroll(std::byte*, std::size_t) {}
  bool zero_cta() const { return family_->zero_cta; }
  void open_window(std::byte* at, std::size_t bytes) {
    const std::lock_guard lock{family_->mutex};
    if (family_->windows.try_emplace(communicator_, bytes).first->second != bytes) {
      throw tawpipe::DeviceError("windows of different sizes");
    }
    window_ = at;
  }
  static void abort_all(std::vector<TestCommunicator> all) {
    if (auto* const log = all.back().family_->log; log != nullptr) {
      log->push_back(tawpipe::concat(all.size(), " communicators aborted"));
    }
    for (const TestCommunicator& one : all) ++one.family_->aborted;
  }

 private:
  /// All members gather, or broadcast uneven parts, within the window and to one place of it.
  void check_window(const CommunicatorCall& one) {
    const std::lock_guard lock{family_->mutex};
    const std::ptrdiff_t place = one.to - window_;
    const bool first = family_->places.try_emplace({communicator_, gathers_++}, place).first->second == place;
    const bool inside = place >= 0 && place < static_cast<std::ptrdiff_t>(family_->windows[communicator_]);
    const bool gathers = one.kind == CommunicatorCall::Kind::all_gather || one.kind == CommunicatorCall::Kind::broadcast;
    if (!gathers || !first || !inside) {
      throw tawpipe::DeviceError("not a gather to one place of a window");
    }
  }
  TestCommunicator(Sink& sink, std::shared_ptr<Family> family, int communicator, int member, int ranks)
      : sink_{&sink}, family_{std::move(family)}, communicator_{communicator}, member_{member}, ranks_{ranks} {
    sink.make_member(communicator, member);
  }
  void call(const CommunicatorCall& one, Stream stream) {
    if (one.count <= 0) throw tawpipe::DeviceError("a communication of nothing");
    if (window_ != nullptr) check_window(one);
    if (!grouped_) return sink_->communicate(communicator_, member_, {one}, stream.number);
    if (!calls_.empty() && stream.number != stream_.number) throw tawpipe::DeviceError("a group on two streams");
    stream_ = stream;
    calls_.push_back(one);
  }

  Sink* sink_;
  std::shared_ptr<Family> family_;
  int communicator_;
  int member_;
  int ranks_;
  int splits_ = 0;
  std::byte* window_ = nullptr;
  int gathers_ = 0;  ///< in the window
  bool grouped_ = false;
  std::vector<CommunicatorCall> calls_;
  Stream stream_;
};

}  // namespace support
