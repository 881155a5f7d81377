// Tests of simulate/link_sharing.hpp: max-min fair rates of hand-made cases.
// Not: random ones (oracle/engine_test.cpp).
#include "tawpipe/simulate/link_sharing.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <vector>

#include "tawpipe/core/error.hpp"

using doctest::Approx;
using tawpipe::LinkId;
using tawpipe::LinkLoad;
using tawpipe::LinkSharing;

namespace {

constexpr std::int64_t second = 1'000'000'000'000;

/// When each flow (by its task) would end, in seconds, as last reported.
class Network {
 public:
  explicit Network(const std::vector<double>& capacities) : sharing_{capacities} {}

  void start(int task, double bytes, const std::vector<LinkLoad>& loads, std::int64_t now = 0) {
    paths_[task] = loads;
    flows_[task] = sharing_.start(task, bytes, paths_[task], now);
  }
  void finish(int task) { sharing_.finish(flows_[task]); }
  void solve(std::int64_t now = 0) {
    reported_.clear();
    sharing_.solve(now, [&](LinkSharing::FlowIndex flow, std::int32_t task, std::int64_t finish) {
      CHECK(sharing_.task(flow) == task);
      reported_[task] = static_cast<double>(finish) / static_cast<double>(second);
      ends_[task] = reported_[task];
    });
  }
  double end(int task) const { return ends_.at(task); }
  /// Tasks whose rate the last solution changed.
  std::size_t reported() const { return reported_.size(); }

 private:
  LinkSharing sharing_;
  std::map<int, std::vector<LinkLoad>> paths_;
  std::map<int, LinkSharing::FlowIndex> flows_;
  std::map<int, double> ends_;
  std::map<int, double> reported_;
};

LinkLoad on(int link, double weight = 1) { return {LinkId{link}, weight}; }

}  // namespace

TEST_CASE("a flow alone takes the slowest of its links") {
  Network network{{10, 4}};
  network.start(0, 20, {on(0), on(1)});
  network.solve();
  CHECK(network.end(0) == Approx(5));  // 20 / 4
}

TEST_CASE("two flows on one link share it evenly, and the rest is faster once one has ended") {
  Network network{{10}};
  network.start(0, 10, {on(0)});
  network.start(1, 30, {on(0)});
  network.solve();
  CHECK(network.end(0) == Approx(2));  // 10 / 5
  CHECK(network.end(1) == Approx(6));
  network.finish(0);
  network.solve(2 * second);
  CHECK(network.end(1) == Approx(4));  // 20 left at 10
}

TEST_CASE("three flows on two links: the long one gives way, the others take the rest") {
  // Bertsekas and Gallager: link 0 of 10 with flows a and c, link 1 of 4 with flows b and c. Link 1
  // is tighter: b = c = 2; then a = 8.
  Network network{{10, 4}};
  network.start(0, 8, {on(0)});
  network.start(1, 8, {on(1)});
  network.start(2, 8, {on(0), on(1)});
  network.solve();
  CHECK(network.end(0) == Approx(1));
  CHECK(network.end(1) == Approx(4));
  CHECK(network.end(2) == Approx(4));
}

TEST_CASE("a chain of bottlenecks settles link by link") {
  // link 0 of 3: a, b, c = 1 each; link 1 of 10: c = 1, d = e = 4.5; link 2 of 12: e = 4.5, f = 7.5
  Network network{{3, 10, 12}};
  network.start(0, 90, {on(0)});
  network.start(1, 90, {on(0)});
  network.start(2, 90, {on(0), on(1)});
  network.start(3, 90, {on(1)});
  network.start(4, 90, {on(1), on(2)});
  network.start(5, 90, {on(2)});
  network.solve();
  for (const int task : {0, 1, 2}) CHECK(network.end(task) == Approx(90));
  for (const int task : {3, 4}) CHECK(network.end(task) == Approx(20));
  CHECK(network.end(5) == Approx(12));
}

TEST_CASE("a flow that crosses a link twice counts twice there") {
  // rates x: 2x + x = 9
  Network network{{9}};
  network.start(0, 12, {on(0, 2)});
  network.start(1, 12, {on(0)});
  network.solve();
  CHECK(network.end(0) == Approx(4));  // both at 3
  CHECK(network.end(1) == Approx(4));
}

TEST_CASE("a flow that uses a fraction of its rate on a link leaves the rest") {
  // link 0 of 6: half of a; link 1 of 6: a and b. Link 1 is tighter: a = b = 3, and link 0 carries
  // 1.5.
  Network network{{6, 6}};
  network.start(0, 6, {on(0, 0.5), on(1)});
  network.start(1, 6, {on(1)});
  network.start(2, 9, {on(0)});
  network.solve();
  CHECK(network.end(0) == Approx(2));
  CHECK(network.end(2) == Approx(2));  // 9 / (6 - 1.5)
}

TEST_CASE("links that share no flow are solved apart") {
  Network network{{10, 10}};
  network.start(0, 10, {on(0)});
  network.start(1, 10, {on(1)});
  network.solve();
  network.start(2, 10, {on(1)}, second / 2);
  network.solve(second / 2);
  CHECK(network.reported() == 2);      // the new one and its companion
  CHECK(network.end(0) == Approx(1));  // as before
  CHECK(network.end(1) == Approx(1.5));
  CHECK(network.end(2) == Approx(2.5));  // as if the companion stayed: 10 at 5 from 0.5
}

TEST_CASE("a rate that stays is not reported again") {
  // the third flow is held at 1 by link 1 and takes nothing that the first needs: link 0 of 10
  // gives it 9 in any case
  Network network{{10, 1}};
  network.start(0, 9, {on(0)});
  network.start(1, 10, {on(0), on(1)});
  network.solve();
  CHECK(network.end(0) == Approx(1));
  network.start(2, 10, {on(1)}, 0);
  network.solve(0);
  CHECK(network.reported() == 3);  // 0 gets 9.5, 1 and 2 get 0.5
  network.finish(2);
  network.finish(1);
  network.solve(0);
  CHECK(network.reported() == 1);
}

TEST_CASE("the place of an ended flow is used again") {
  const std::vector<double> capacities{10};
  LinkSharing sharing{capacities};
  const std::vector<LinkLoad> path{on(0)};
  const auto first = sharing.start(7, 10, path, 0);
  sharing.solve(0, [](auto, auto, auto) {});
  CHECK(sharing.rate(first) == 10);
  sharing.finish(first);
  const auto second_flow = sharing.start(8, 10, path, 0);
  CHECK(second_flow == first);
  CHECK(sharing.task(second_flow) == 8);
  CHECK(sharing.rate(second_flow) == 0);
}

TEST_CASE("a flow that starts and ends before a solution disturbs nothing") {
  Network network{{10}};
  network.start(0, 10, {on(0)});
  network.start(1, 10, {on(0)});
  network.finish(1);
  network.solve();
  CHECK(network.end(0) == Approx(1));
}

TEST_CASE("what adds up to infinity is refused, not waited for") {
  Network network{{1e308}};
  for (int task = 0; task < 2; ++task) network.start(task, 20, {on(0, 1.5e308)});
  CHECK_THROWS_WITH_AS(network.solve(), doctest::Contains("more than a number can hold"), tawpipe::InputError);
}
