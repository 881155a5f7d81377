// Two all_to_alls, there and back, between buffers of activations, and which numbers they must
// leave.
// Not: any executor.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "support/random.hpp"
#include "tawpipe/model/workload.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"

namespace support {

/// Each rank keeps two buffers of numbers, A and B. A's blocks go to the other members' B, then B's
/// blocks to their A, each block to where it is laid by the order of the senders. Numbers that no
/// block covers stay as they are.
class AllToAllRun {
 public:
  /// @param seed  0: even blocks; otherwise sizes drawn from it for each pair and each way, many of
  /// them none
  AllToAllRun(tawpipe::Workload work, int ranks, std::uint64_t seed) : work_{std::move(work)}, seed_{seed} {
    Random random{seed + 1};
    for (int i = 0; i < ranks; ++i) members_.push_back(static_cast<std::size_t>((2 * ranks - 2 - i) % ranks));  // a mixed order
    for (auto& way : counts_) {
      for (int pair = 0; pair < ranks * ranks; ++pair)
        way.push_back(seed == 0 ? 5 : static_cast<std::int64_t>(random.next() % 6));
    }
  }

  tawpipe::Schedule build() const {
    using namespace tawpipe;
    const int ranks = static_cast<int>(members_.size());
    const std::int64_t width = work_.parameter_bytes().weight;
    ScheduleBuilder b{"all-to-all", work_, ranks, {"compute", "communication"}};
    b.stages(work_.split(1));
    std::vector<BufferId> runs[2];
    for (int way = 0; way < 2; ++way) {
      for (int r = 0; r < ranks; ++r) {
        runs[way].push_back(b.persistent(r, {ContentKind::activation, StageId{0}, 0}, Bytes{run() * width}));
      }
    }
    Task task{.op = Op::all_to_all, .payload = Payload::activations, .lane = LaneId{1}};
    std::vector<Rank> group;
    for (const std::size_t member : members_) group.push_back(Rank{static_cast<std::int32_t>(member)});
    task.group = b.group(group);
    task.rank = group[0];
    for (int way = 0; way < 2; ++way) {
      std::vector<Bytes> sizes;
      std::int64_t most = 0;
      for (int from = 0; from < ranks; ++from) {
        std::int64_t row = 0;
        for (int to = 0; to < ranks; ++to) {
          sizes.push_back(Bytes{count(way, static_cast<std::size_t>(from), static_cast<std::size_t>(to)) * width});
          row += sizes.back().value();
        }
        most = std::max(most, row);
      }
      if (seed_ != 0) task.split = b.pair_sizes(sizes);
      task.bytes = Bytes{most};
      std::vector<Use> uses;
      for (const BufferId buffer : runs[way]) uses.push_back({buffer, Access::read});
      for (const BufferId buffer : runs[1 - way]) uses.push_back({buffer, Access::write});
      b.add(task, uses);
    }
    return b.build();
  }

  /// Numbers of a buffer: room for the largest blocks from or to all members.
  std::int64_t run() const { return 6 * static_cast<std::int64_t>(members_.size()); }
  /// A (0) or B (1) of a rank.
  tawpipe::BufferId buffer(int which, int rank) const {
    return tawpipe::id<tawpipe::BufferId>(static_cast<std::size_t>(which) * members_.size() + static_cast<std::size_t>(rank));
  }
  /// What a buffer holds before.
  template <class T>
  std::vector<T> before(tawpipe::BufferId buffer) const {
    std::vector<T> numbers;
    for (std::int64_t i = 0; i < run(); ++i) numbers.push_back(static_cast<T>(first(buffer) + i + 1));
    return numbers;
  }
  /// What it holds afterwards, block by block.
  template <class T>
  std::vector<T> after(tawpipe::BufferId buffer) const {
    const std::size_t ranks = members_.size();
    std::vector<T> all;  // of all buffers
    for (std::size_t b = 0; b < 2 * ranks; ++b) {
      for (const T number : before<T>(tawpipe::id<tawpipe::BufferId>(b))) all.push_back(number);
    }
    for (int way = 0; way < 2; ++way) {
      const std::vector<T> old = all;
      for (std::size_t to = 0; to < ranks; ++to) {
        std::int64_t at = first(this->buffer(1 - way, static_cast<int>(members_[to])));
        for (std::size_t from = 0; from < ranks; ++from) {
          std::int64_t begin = first(this->buffer(way, static_cast<int>(members_[from])));
          for (std::size_t earlier = 0; earlier < to; ++earlier) begin += count(way, from, earlier);
          for (std::int64_t i = 0; i < count(way, from, to); ++i) {
            all[static_cast<std::size_t>(at++)] = old[static_cast<std::size_t>(begin + i)];
          }
        }
      }
    }
    const auto begin = all.begin() + first(buffer);
    return {begin, begin + run()};
  }

 private:
  std::int64_t first(tawpipe::BufferId buffer) const { return number(buffer) * run(); }
  /// Numbers of the block between two members, by their places in the group.
  std::int64_t count(int way, std::size_t from, std::size_t to) const { return counts_[way][from * members_.size() + to]; }

  tawpipe::Workload work_;
  std::uint64_t seed_;
  std::vector<std::size_t> members_;     ///< [place in the group] rank
  std::vector<std::int64_t> counts_[2];  ///< [way][from * ranks + to]
};

}  // namespace support
