// Rings and chains: what members send reaches everyone, sums are whole, and bytes are those that
// count_sent counts.
#include <doctest/doctest.h>

#include <deque>
#include <string>
#include <vector>

#include "tawpipe/execute/ring_plan.hpp"
#include "tawpipe/execute/sent_bytes.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"

using namespace tawpipe;

namespace {

struct Collective {
  Schedule schedule;
  TaskId task;
  TransferFlow flow;
};

Collective make(Op op, int n, int root, std::vector<std::int64_t> parts) {
  std::vector<Rank> members;
  for (int r = 0; r < n; ++r) members.push_back(Rank{(n - r) % n});  // not in the order of ranks
  Schedule::Parts all;
  all.lanes = {"compute"};
  all.ranks = n;
  all.groups = Rows<Rank>{{0, static_cast<std::uint32_t>(n)}, members};
  Task task;
  task.op = op;
  task.payload = Payload::weights;
  task.group = GroupId{0};
  task.rank = members[static_cast<std::size_t>(root)];
  all.tasks = {task};
  Collective made{Schedule{Workload::abstract(1, 1), std::move(all)}, TaskId{0}, {}};
  made.flow.member_begin.push_back(0);
  for (const std::int64_t part : parts) made.flow.member_begin.push_back(made.flow.member_begin.back() + part);
  made.flow.count = made.flow.member_begin.back();
  if (op != Op::all_gather && op != Op::reduce_scatter) made.flow.member_begin.clear();
  return made;
}

/// Runs all members' plans one step at a time, messages as queues. @return [rank] its packed
/// message at the end
std::vector<std::vector<double>> run(const Collective& one, std::vector<std::vector<double>> memory, std::int64_t chunk) {
  const auto n = memory.size();
  std::vector<RingPlan> plans;
  for (std::size_t r = 0; r < n; ++r) plans.push_back(ring_plan(one.schedule, one.task, one.flow, id<Rank>(r), chunk));
  std::vector<std::size_t> sent(n, 0);
  std::vector<std::size_t> received(n, 0);
  std::vector<std::deque<std::vector<double>>> inbox(n);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < n; ++r) {
      const RingPlan& plan = plans[r];
      if (sent[r] < plan.sends() && sent[r] < plan.initial.size() + received[r]) {
        const Chunk& c = plan.sent(sent[r]++);
        inbox[index(plan.next)].emplace_back(memory[r].begin() + c.begin, memory[r].begin() + c.begin + c.count);
        moved = true;
      }
      if (received[r] < plan.received.size() && !inbox[r].empty() && sent[r] >= plan.sends_before(received[r])) {
        const Chunk& c = plan.received[received[r]];
        REQUIRE(static_cast<std::int64_t>(inbox[r].front().size()) == c.count);
        for (std::int64_t i = 0; i < c.count; ++i) {
          double& at = memory[r][static_cast<std::size_t>(c.begin + i)];
          at = (received[r] < plan.summed ? at : 0) + inbox[r].front()[static_cast<std::size_t>(i)];
        }
        inbox[r].pop_front();
        ++received[r];
        moved = true;
      }
    }
  }
  for (std::size_t r = 0; r < n; ++r) {
    CHECK(sent[r] == plans[r].sends());
    CHECK(received[r] == plans[r].received.size());
    CHECK(inbox[r].empty());
  }
  return memory;
}

}  // namespace

TEST_CASE("rings and chains bring every number to where it belongs, and send what count_sent counts") {
  for (const int n : {1, 2, 3, 5}) {
    for (int root = 0; root < n; ++root) {
      for (const std::int64_t chunk : {1, 3, 100}) {
        for (const Op op : {Op::broadcast, Op::reduce, Op::all_gather, Op::reduce_scatter, Op::all_reduce}) {
          CAPTURE(n);
          CAPTURE(root);
          CAPTURE(chunk);
          CAPTURE(std::string{name(op)});
          std::vector<std::int64_t> parts;  // uneven, one of them empty
          for (int m = 0; m < n; ++m) parts.push_back(m == 1 ? 0 : 4 + 3 * m);
          const Collective one = make(op, n, root, parts);
          const auto members = one.schedule.group(GroupId{0});
          const auto count = static_cast<std::size_t>(one.flow.count);
          const auto owner = [&](std::size_t i) {  // of a number in all_gather and reduce_scatter
            std::size_t m = 0;
            while (one.flow.member_begin[m + 1] <= static_cast<std::int64_t>(i)) ++m;
            return m;
          };
          std::vector<std::vector<double>> memory(static_cast<std::size_t>(n));
          for (std::size_t m = 0; m < members.size(); ++m) {
            for (std::size_t i = 0; i < count; ++i) {
              const bool has = op == Op::all_gather ? owner(i) == m : op != Op::broadcast || static_cast<int>(m) == root;
              // Whole numbers, so that sums are exact in any order; -1000: not to be seen again.
              memory[index(members[m])].push_back(has ? static_cast<double>(i * 10 + m) : -1000);
            }
          }
          const auto after = run(one, memory, chunk);
          for (std::size_t m = 0; m < members.size(); ++m) {
            for (std::size_t i = 0; i < count; ++i) {
              const double total = static_cast<double>(n) * static_cast<double>(i * 10) + n * (n - 1) / 2.0;
              const double seen = after[index(members[m])][i];
              if (op == Op::broadcast) CHECK(seen == static_cast<double>(i * 10 + static_cast<std::size_t>(root)));
              if (op == Op::all_gather) CHECK(seen == static_cast<double>(i * 10 + owner(i)));
              if (op == Op::all_reduce) CHECK(seen == total);
              if (op == Op::reduce && static_cast<int>(m) == root) CHECK(seen == total);
              if (op == Op::reduce_scatter && owner(i) == m) CHECK(seen == total);
            }
          }
          std::vector<SentBytes> sent(static_cast<std::size_t>(n));
          count_sent(one.schedule, one.task, one.flow, 8, sent);
          std::int64_t all = 0;  // of each number n - 1 messages: round a ring or down a chain, of a sum with its gather both
          for (const SentBytes& of_rank : sent) all += of_rank.total();
          CHECK(all == (op == Op::all_reduce ? 2 : 1) * (n - 1) * one.flow.count * 8);
          for (int r = 0; r < n; ++r) {
            const RingPlan plan = ring_plan(one.schedule, one.task, one.flow, Rank{r}, chunk);
            CHECK(static_cast<std::int64_t>(plan.numbers_sent * 8) == sent[static_cast<std::size_t>(r)].total());
          }
        }
      }
    }
  }
}
