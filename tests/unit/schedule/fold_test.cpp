// What is kept of a folded schedule, and which communications of the whole it stands for.
// Not: that the simulation is the same (properties/fold_test.cpp).
#include "tawpipe/schedule/fold.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "support/clusters.hpp"
#include "tawpipe/schedules/gpipe.hpp"

using namespace tawpipe;

namespace {

/// Two pipeline stages; tensor 2, context 2, data 3: 24 ranks.
struct Composed {
  Mesh mesh = Mesh{.tensor = 2, .context = 2, .data = 3}.over(24);
  Workload whole = support::transformer(2, 6);
  Schedule logical = schedules::gpipe(support::transformer(2, 2), 2, {.overlap = true});

  Schedule full() const { return compose(logical, whole, mesh); }
  FoldedSchedule folded(const FoldAxes& axes) const {
    return fold_kept(compose_kept(logical, whole, mesh, {}, axes), whole, mesh, axes);
  }
};

}  // namespace

TEST_CASE("folding all axes keeps the tasks of the first copy, in the order of the whole") {
  const Composed composed;
  const FoldedSchedule folded = composed.folded({true, true, true});
  CHECK(folded.factor == 12);
  CHECK(folded.schedule.ranks() == 24);
  for (int rank = 0; rank < 24; ++rank) {
    // order tcsd: 4 copies of logical rank 0, then of 1; three times
    CHECK(folded.same_as[static_cast<std::size_t>(rank)] == Rank{rank % 8 / 4 * 4});
    const bool kept = folded.same_as[static_cast<std::size_t>(rank)] == Rank{rank};
    CHECK(folded.schedule.program(Rank{rank}, 0).empty() != kept);
  }
  const Schedule full = composed.full();
  std::vector<TaskId> own;  // of the whole, those in which a kept rank takes part
  for (std::size_t t = 0; t < full.tasks().size(); ++t) {
    bool kept = false;
    for_each_end(full, id<TaskId>(t), [&](Rank rank, int) { kept = kept || rank == Rank{0} || rank == Rank{4}; });
    if (kept) own.push_back(id<TaskId>(t));
  }
  REQUIRE(folded.schedule.tasks().size() == own.size());
  for (std::size_t t = 0; t < own.size(); ++t) {
    const Task& found = folded.schedule.tasks()[t];
    const Task& expected = full.task(own[t]);
    CHECK(found.op == expected.op);
    CHECK(found.rank == expected.rank);
    CHECK(found.bytes == expected.bytes);
    CHECK(found.microbatch == expected.microbatch);
    if (!is_collective(found.op)) continue;
    const auto members = folded.schedule.group(found.group);
    const auto all = full.group(expected.group);
    CHECK(std::vector<Rank>(members.begin(), members.end()) == std::vector<Rank>(all.begin(), all.end()));
  }
}

TEST_CASE("the multiplicities count the whole, and the census lists its distinct communications once") {
  const Composed composed;
  const Schedule full = composed.full();
  const auto peer_of = [](const Task& task) { return is_point_to_point(task.op) ? task.peer : none<Rank>; };
  std::map<std::tuple<Op, Rank, Rank, std::int64_t, std::vector<Rank>>, int> distinct;
  for (const Task& task : full.tasks()) {
    if (is_compute(task.op)) continue;
    std::vector<Rank> members;
    if (is_collective(task.op)) members.assign(full.group(task.group).begin(), full.group(task.group).end());
    distinct[{task.op, task.rank, peer_of(task), task.bytes.value(), members}] = 0;
  }
  for (const FoldAxes& axes :
       {FoldAxes{true, true, true}, FoldAxes{false, false, true}, FoldAxes{true, false, true}, FoldAxes{false, true, false}}) {
    const FoldedSchedule folded = composed.folded(axes);
    std::size_t tasks = 0;
    for (const Task& task : folded.schedule.tasks()) tasks += folded.multiplicity(task);
    CHECK(tasks == full.tasks().size());
    auto left = distinct;
    for (const Task& image : folded.census.tasks()) {
      std::vector<Rank> members;
      if (is_collective(image.op))
        members.assign(folded.census.group(image.group).begin(), folded.census.group(image.group).end());
      const std::int64_t size = image.bytes.value();
      REQUIRE(left.count({image.op, image.rank, peer_of(image), size, members}) == 1);
      CHECK(++left[{image.op, image.rank, peer_of(image), size, members}] == 1);
    }
    for (const auto& entry : left) CHECK(entry.second == 1);
  }
}
