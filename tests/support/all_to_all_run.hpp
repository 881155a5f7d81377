// Two all_to_alls, there and back, between buffers of numbers that executors let a test set and read, and what must come of them.
// Not: any executor.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "support/random.hpp"
#include "tawpipe/model/workload.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"

namespace support {

/// Each rank keeps two runs of parameters, A and B. A's blocks go to the other members' B, then B's blocks to their A, each block
/// to where it is laid by the order of the senders. Numbers of a run that no block covers stay as they are.
class AllToAllRun {
 public:
  /// @param seed  0: even blocks; otherwise sizes drawn from it for each pair and each way, many of them none
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
        const PiecesId set = b.pieces({range(way, static_cast<std::size_t>(r))});
        runs[way].push_back(b.persistent(r, {ContentKind::weights, none<StageId>, set}, Bytes{run() * width}));
      }
    }
    Task task{.op = Op::all_to_all, .payload = Payload::weights, .lane = LaneId{1}};
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

  /// The number of a parameter before.
  static double before(std::int64_t parameter) { return 1.0 + static_cast<double>(parameter); }

  /// The number of each parameter of the runs afterwards, block by block.
  std::map<std::int64_t, double> after() const {
    const std::size_t ranks = members_.size();
    std::map<std::int64_t, double> numbers;
    for (std::int64_t p = 0; p < 2 * run() * static_cast<std::int64_t>(ranks); ++p) numbers[p] = before(p);
    for (int way = 0; way < 2; ++way) {
      const std::map<std::int64_t, double> old = numbers;
      for (std::size_t to = 0; to < ranks; ++to) {
        std::int64_t at = range(1 - way, members_[to]).begin;
        for (std::size_t from = 0; from < ranks; ++from) {
          std::int64_t begin = range(way, members_[from]).begin;
          for (std::size_t earlier = 0; earlier < to; ++earlier) begin += count(way, from, earlier);
          for (std::int64_t i = 0; i < count(way, from, to); ++i) numbers[at++] = old.at(begin + i);
        }
      }
    }
    return numbers;
  }

 private:
  /// Numbers of a run: room for the largest blocks from or to all members.
  std::int64_t run() const { return 6 * static_cast<std::int64_t>(members_.size()); }
  tawpipe::ParameterRange range(int which, std::size_t rank) const {
    const std::int64_t begin =
        (static_cast<std::int64_t>(which) * static_cast<std::int64_t>(members_.size()) + static_cast<std::int64_t>(rank)) * run();
    return {begin, begin + run()};
  }
  /// Numbers of the block between two members, by their places in the group.
  std::int64_t count(int way, std::size_t from, std::size_t to) const { return counts_[way][from * members_.size() + to]; }

  tawpipe::Workload work_;
  std::uint64_t seed_;
  std::vector<std::size_t> members_;     ///< [place in the group] rank
  std::vector<std::int64_t> counts_[2];  ///< [way][from * ranks + to]
};

}  // namespace support
