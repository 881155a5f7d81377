// Builds schedules task by task: dependencies follow from the buffers each task reads and writes.
// Not: the schedules themselves (schedules/).
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/growing_array.hpp"
#include "tawpipe/core/prefetch.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/model/parameter_space.hpp"
#include "tawpipe/schedule/detail/distinct_rows.hpp"
#include "tawpipe/schedule/detail/gathered_copies.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0 {

/// Collects tasks in a sequential order in which they would be right if run one by one; from the
/// buffers they use, it derives which task must wait for which when they run concurrently (read
/// after write, write after read, write after write). Tasks of one lane keep the order in which
/// they are added.
class ScheduleBuilder {
 public:
  /// @param lanes  names; lane 0 computes
  ScheduleBuilder(std::string name, Workload workload, int ranks, std::vector<std::string> lanes = {"compute"});

  /// Starts with all that the tasks of `schedule` name except buffers, under the same ids: to
  /// rewrite it. Its messages are not buckets unless marked again.
  explicit ScheduleBuilder(const Schedule& schedule);

  /// How much a schedule will hold, as far as it is known.
  struct Sizes {
    std::size_t tasks = 0;
    std::size_t uses = 0;
    std::size_t buffers = 0;
  };
  /// Makes room for that much: if exactly that much is added, nothing is copied. @pre there
  /// are no tasks or buffers yet
  void reserve(const Sizes& sizes) {
    tasks_.reserve(sizes.tasks);
    dependency_begin_.reserve(sizes.tasks + 1);
    use_begin_.reserve(sizes.tasks + 1);
    use_items_.reserve(sizes.uses);
    parts_.buffers.reserve(sizes.buffers);
    state_.reserve(sizes.buffers);
  }
  /// Makes room for a schedule of `all` parts, of which the first `done` were added: what grows step
  /// by step is moved several times. @pre 0 < done
  void expect_all(std::int64_t done, std::int64_t all) {
    if (done >= all) return;
    const double times = static_cast<double>(all) / static_cast<double>(done) * 1.02;
    const auto of_all = [times](const auto& items) {
      return static_cast<std::size_t>(static_cast<double>(items.size()) * times);
    };
    const auto expect = [&](auto&... arrays) { (arrays.expect(of_all(arrays)), ...); };
    expect(tasks_, dependency_begin_, dependency_items_, use_begin_, use_items_);
    parts_.buffers.reserve(of_all(parts_.buffers));
    state_.reserve(of_all(state_));
  }
  /// Loads what add() needs to know of a buffer, or none, that a task will soon use.
  void prefetch(BufferId buffer) const {
    if (buffer != none<BufferId>) detail::prefetch(&state_[index(buffer)]);
  }

  const Workload& workload() const { return workload_; }
  void option(std::string key, std::string value) { parts_.options.emplace_back(std::move(key), std::move(value)); }
  /// Adds them all, in the given order.
  void options(const std::vector<std::pair<std::string, std::string>>& more) {
    parts_.options.insert(parts_.options.end(), more.begin(), more.end());
  }
  /// Ranks marked 0 get no program: groups may name them, and nothing else does. @param written
  /// [rank]
  void written_ranks(std::vector<char> written) { written_ = std::move(written); }
  /// Sets what each rank stands for.
  void mesh(const Mesh& mesh) { parts_.mesh = mesh; }
  /// Computations copy weights gathered for them and gradients to be scattered, as the model's code
  /// does (LayerStack::shard_copies).
  ScheduleBuilder& copies_gathered(bool shared) {
    shard_copies_ = shared && !workload_.is_abstract() ? workload_.model().shard_copies : ShardCopies::none;
    return *this;
  }
  /// @throws ScheduleError  beyond max_stages.
  void stages(std::vector<StageWork> stages);
  const std::vector<StageWork>& stages() const { return parts_.stages; }
  /// The steps of each stage's passes. @param bodies  [stage]
  void bodies(std::vector<SharedStage> bodies) { parts_.bodies = std::move(bodies); }
  /// Adds a part of a stage's computation for tasks to name as their split.
  SplitId step(const StageWork& work) {
    parts_.steps.push_back(work);
    return id<SplitId>(parts_.steps.size() - 1);
  }
  /// Sets name parameters of parts.
  void slices(TensorSlices slices) { parts_.slices = std::move(slices); }
  /// The workspace that the largest task of any stage needs.
  Bytes largest_workspace() const { return workspace_; }
  const StageWork& stage(int stage) const { return parts_.stages[static_cast<std::size_t>(stage)]; }
  /// The parameters of the stages.
  const ParameterSpace& space() const { return space_; }

  /// So many numbers of padding (Schedule::Parts::padding). @pre stages() of a model
  ParameterRange padding(std::int64_t count) {
    const std::int64_t begin = space_.count() + 1 + parts_.padding;
    parts_.padding += count;
    return {begin, begin + count};
  }

  /// The lane of that name, which every rank has, added if it does not exist. @throws ScheduleError
  /// beyond 256 lanes.
  LaneId lane(std::string_view name) {
    const auto at = std::find(parts_.lanes.begin(), parts_.lanes.end(), name) - parts_.lanes.begin();
    if (at == std::ssize(parts_.lanes)) {
      if (at == 256) throw ScheduleError("a schedule holds at most 256 lanes");
      parts_.lanes.emplace_back(name);
    }
    return id<LaneId>(at);
  }

  /// A group of ranks that communicate together; the same members give the same group.
  GroupId group(const std::vector<Rank>& members);

  /// A set of parameters; the same ranges give the same set.
  PiecesId pieces(const std::vector<ParameterRange>& ranges);
  /// What each member of a collective contributes or keeps; the same sets give the same split.
  SplitId split(const std::vector<PiecesId>& members);
  /// What each member of an all_to_all sends to each: [from * members + to].
  SplitId pair_sizes(const std::vector<Bytes>& sizes);

  /// @throws ScheduleError  beyond max_buffers.
  BufferId buffer(const Buffer& buffer) {
    if (state_.size() == max_buffers) throw ScheduleError(concat("a schedule holds at most ", max_buffers, " buffers"));
    parts_.buffers.push_back(buffer);
    state_.push_back({.rank = buffer.rank});
    return id<BufferId>(parts_.buffers.size() - 1);
  }
  /// A buffer held for the whole iteration.
  BufferId persistent(int rank, const Content& content, Bytes bytes) {
    return buffer({.rank = Rank{rank}, .content = content, .bytes = bytes});
  }
  /// A buffer held for the whole iteration, with a copy of what another one keeps.
  BufferId persistent_copy(int rank, const Content& content, Bytes bytes) {
    return buffer({.rank = Rank{rank}, .content = content, .copy = true, .bytes = bytes});
  }
  /// A buffer held from its first use to its last; parameters in it are copies.
  BufferId transient(int rank, const Content& content, Bytes bytes) {
    return buffer(
        {.rank = Rank{rank}, .content = content, .persistent = false, .copy = is_of_parameters(content.kind()), .bytes = bytes});
  }

  /// Adds a task after all earlier ones of its lanes. @param after  tasks to wait for in addition
  /// to those that buffers imply
  TaskId add(const Task& task, std::span<const Use> uses, std::span<const TaskId> after = {});
  TaskId add(const Task& task, std::initializer_list<Use> uses, std::span<const TaskId> after = {});

  /// Marks the message that was added last. @param layer  as Bucket::layer
  void bucket(std::int32_t layer) { parts_.buckets.push_back({id<TaskId>(tasks_.size() - 1), layer}); }

  std::size_t size() const { return tasks_.size(); }
  const std::vector<Buffer>& buffers() const { return parts_.buffers; }

  /// The builder is empty afterwards. Its peak memory is little more than that of the schedule.
  Schedule build();

 private:
  /// Who wrote a buffer last, and who read it since (a list in readers_, one entry a lane), with
  /// their lanes on its rank: each look at a buffer or an earlier task itself is a cache miss.
  struct State {
    Rank rank = none<Rank>;
    TaskId writer = none<TaskId>;
    std::int32_t first_reader = -1;
    std::uint8_t writer_lane = 0;
  };
  struct Reader {
    TaskId task;
    std::int32_t next;
    std::uint8_t lane;
  };

  template <class T>
  static Rows<T> take_rows(GrowingArray<std::uint32_t>& begin, GrowingArray<T>& items) {
    std::vector<std::uint32_t> row_begins = begin.take();
    return Rows<T>{std::move(row_begins), items.take()};
  }

  void order(TaskId added, const Task& task, const Use& use);

  /// An entry in readers_ for it, a free one if there is any.
  std::int32_t reader(const Reader& reader) {
    const std::int32_t place = free_reader_;
    if (place < 0) {
      readers_.push_back(reader);
      return static_cast<std::int32_t>(readers_.size() - 1);
    }
    free_reader_ = readers_[static_cast<std::size_t>(place)].next;
    readers_[static_cast<std::size_t>(place)] = reader;
    return place;
  }

  /// The tasks of each lane in the order in which they were added: a counting sort over
  /// parts_.tasks. A row's end counter first counts its tasks, then holds where the next task goes,
  /// and finally the next row's start.
  Rows<TaskId> program() const;

  /// Calls `visit(rank * lanes + lane)` for each end of the task whose rank has a program.
  template <class Visit>
  void for_each_lane(const Task& task, Visit&& visit) const {
    for_each_end(task, groups_, [&](Rank rank, int lane) {
      if (!written_.empty() && written_[index(rank)] == 0) return;
      visit(index(rank) * parts_.lanes.size() + static_cast<std::size_t>(lane));
    });
  }

  Workload workload_;
  ParameterSpace space_;
  Bytes workspace_;
  ShardCopies shard_copies_ = ShardCopies::none;
  Schedule::Parts parts_;
  std::vector<char> written_;  ///< [rank]; empty: all
  GrowingArray<Task> tasks_;
  GrowingArray<std::uint32_t> dependency_begin_;
  GrowingArray<TaskId> dependency_items_;
  GrowingArray<std::uint32_t> use_begin_;
  GrowingArray<Use> use_items_;
  detail::DistinctRows<Rank> groups_;
  detail::DistinctRows<ParameterRange> pieces_;
  detail::DistinctRows<PiecesId> splits_;
  detail::DistinctRows<Bytes> pair_sizes_;
  std::vector<State> state_;
  std::vector<Reader> readers_;
  std::int32_t free_reader_ = -1;  ///< list of free entries in readers_
  std::vector<TaskId> wanted_;
};

}  // namespace tawpipe

#if TAWPIPE_BODIES
namespace tawpipe::inline v0 {

TAWPIPE_INLINE ScheduleBuilder::ScheduleBuilder(std::string name, Workload workload, int ranks, std::vector<std::string> lanes)
    : workload_{std::move(workload)} {
  parts_.name = std::move(name);
  parts_.ranks = ranks;
  parts_.lanes = std::move(lanes);
  dependency_begin_.push_back(0);
  use_begin_.push_back(0);
}

TAWPIPE_INLINE ScheduleBuilder::ScheduleBuilder(const Schedule& schedule)
    : ScheduleBuilder{schedule.name(), schedule.workload(), schedule.ranks(), schedule.lanes()} {
  const Schedule::Parts& parts = schedule.parts();
  options(parts.options);
  stages(parts.stages);
  bodies(parts.bodies);
  mesh(parts.mesh);
  parts_.padding = parts.padding;
  parts_.slices = parts.slices;
  groups_.take(parts.groups);
  pieces_.take(parts.pieces);
  splits_.take(parts.splits);
  pair_sizes_.take(parts.pair_sizes);
}

TAWPIPE_INLINE void ScheduleBuilder::stages(std::vector<StageWork> stages) {
  if (stages.size() > static_cast<std::size_t>(max_stages))
    throw ScheduleError(concat("a schedule has at most ", max_stages, " stages"));
  parts_.stages = std::move(stages);
  space_ = ParameterSpace{workload_, parts_.stages};
  workspace_ = Bytes{};
  for (const auto& stage : parts_.stages) workspace_ = std::max(workspace_, stage.workspace());
}

TAWPIPE_INLINE TaskId ScheduleBuilder::add(const Task& task, std::span<const Use> uses, std::span<const TaskId> after) {
  const TaskId added = id<TaskId>(tasks_.size());
  tasks_.push_back(task);
  wanted_.clear();
  for (const Use& use : uses) prefetch(use.buffer);
  for (const TaskId earlier : after) {
    if (earlier != none<TaskId>) wanted_.push_back(earlier);
  }
  for (const Use& use : uses) {
    use_items_.push_back(use);
    order(added, task, use);
  }
  use_begin_.push_back(static_cast<std::uint32_t>(use_items_.size()));
  std::sort(wanted_.begin(), wanted_.end());
  wanted_.erase(std::unique(wanted_.begin(), wanted_.end()), wanted_.end());
  for (const TaskId earlier : wanted_) dependency_items_.push_back(earlier);
  dependency_begin_.push_back(static_cast<std::uint32_t>(dependency_items_.size()));
  return added;
}

TAWPIPE_INLINE TaskId ScheduleBuilder::add(const Task& task, std::initializer_list<Use> uses, std::span<const TaskId> after) {
  return add(task, std::span<const Use>{uses.begin(), uses.size()}, after);
}

TAWPIPE_INLINE Schedule ScheduleBuilder::build() {
  state_ = std::vector<State>{};  // clear() would keep its memory
  readers_ = std::vector<Reader>{};
  parts_.tasks = tasks_.take();
  parts_.buffers.shrink_to_fit();
  parts_.dependencies = take_rows(dependency_begin_, dependency_items_);
  parts_.uses = take_rows(use_begin_, use_items_);
  if (shard_copies_ != ShardCopies::none) detail::count_gathered_copies(parts_, workload_.parameter_bytes(), shard_copies_);
  parts_.program = program();
  parts_.groups = groups_.rows();
  parts_.pieces = pieces_.rows();
  parts_.splits = splits_.rows();
  parts_.pair_sizes = pair_sizes_.rows();
  return Schedule{std::move(workload_), std::move(parts_)};
}

TAWPIPE_INLINE void ScheduleBuilder::order(TaskId added, const Task& task, const Use& use) {
  State& state = state_[index(use.buffer)];
  const auto lane = static_cast<std::uint8_t>(task.lane_on(state.rank));
  const auto want = [&](TaskId earlier, std::uint8_t its_lane) {
    if (earlier != added && its_lane != lane) wanted_.push_back(earlier);
  };
  if (state.writer != none<TaskId>) want(state.writer, state.writer_lane);
  if (use.access == Access::read) {
    for (auto i = state.first_reader; i >= 0; i = readers_[static_cast<std::size_t>(i)].next) {
      Reader& past = readers_[static_cast<std::size_t>(i)];
      if (past.lane == lane) {
        past.task = added;
        return;
      }
    }
    state.first_reader = reader({added, state.first_reader, lane});
    return;
  }
  while (state.first_reader >= 0) {
    Reader& past = readers_[static_cast<std::size_t>(state.first_reader)];
    want(past.task, past.lane);
    const std::int32_t next = past.next;
    past.next = free_reader_;
    free_reader_ = state.first_reader;
    state.first_reader = next;
  }
  state.writer = added;
  state.writer_lane = lane;
}

TAWPIPE_INLINE Rows<TaskId> ScheduleBuilder::program() const {
  std::vector<std::uint32_t> begin(static_cast<std::size_t>(parts_.ranks) * parts_.lanes.size() + 2, 0);
  for (const Task& task : parts_.tasks) {
    for_each_lane(task, [&](std::size_t row) { ++begin[row + 2]; });
  }
  for (std::size_t row = 2; row < begin.size(); ++row) begin[row] += begin[row - 1];
  std::vector<TaskId> items(begin.back());
  for (std::size_t t = 0; t < parts_.tasks.size(); ++t) {
    for_each_lane(parts_.tasks[t], [&](std::size_t row) { items[begin[row + 1]++] = id<TaskId>(t); });
  }
  begin.pop_back();
  return Rows<TaskId>{std::move(begin), std::move(items)};
}

TAWPIPE_INLINE GroupId ScheduleBuilder::group(const std::vector<Rank>& members) { return groups_.find<GroupId>(members); }

TAWPIPE_INLINE PiecesId ScheduleBuilder::pieces(const std::vector<ParameterRange>& ranges) {
  return pieces_.find<PiecesId>(ranges);
}

TAWPIPE_INLINE SplitId ScheduleBuilder::split(const std::vector<PiecesId>& members) { return splits_.find<SplitId>(members); }

TAWPIPE_INLINE SplitId ScheduleBuilder::pair_sizes(const std::vector<Bytes>& sizes) { return pair_sizes_.find<SplitId>(sizes); }

}  // namespace tawpipe
#endif
