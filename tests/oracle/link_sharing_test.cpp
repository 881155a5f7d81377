// Link sharing against the definition of max-min fairness, over long random sequences of starts and
// ends.
// Not: hand-made cases (unit/simulate/link_sharing_test.cpp).
#include "tawpipe/simulate/link_sharing.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "support/random.hpp"

using tawpipe::LinkId;
using tawpipe::LinkLoad;
using tawpipe::LinkSharing;

namespace {

struct Active {
  LinkSharing::FlowIndex flow;
  std::vector<LinkLoad> loads;
};

/// Why the rates are not max-min fair, or "": no link carries more than it can, and each flow has a
/// link that is used up and on which no flow is faster.
std::string unfair(const LinkSharing& sharing, const std::deque<Active>& flows, const std::vector<double>& capacities) {
  constexpr double rounding = 1e-9;
  std::vector<double> used(capacities.size());
  std::vector<double> fastest(capacities.size());
  for (const Active& active : flows) {
    const double rate = sharing.rate(active.flow);
    for (const LinkLoad& load : active.loads) {
      used[tawpipe::index(load.link)] += rate * load.weight;
      fastest[tawpipe::index(load.link)] = std::max(fastest[tawpipe::index(load.link)], rate);
    }
  }
  for (std::size_t link = 0; link < capacities.size(); ++link) {
    if (used[link] > capacities[link] * (1 + rounding)) return tawpipe::concat("link ", link, " carries too much");
  }
  for (const Active& active : flows) {
    const double rate = sharing.rate(active.flow);
    const bool held = std::any_of(active.loads.begin(), active.loads.end(), [&](const LinkLoad& load) {
      const std::size_t link = tawpipe::index(load.link);
      return used[link] >= capacities[link] * (1 - rounding) && rate >= fastest[link] * (1 - rounding);
    });
    if (!held) return tawpipe::concat("flow ", active.flow, " could be faster than ", rate);
  }
  return {};
}

/// Starts and ends flows for `steps` solutions, about `most` at a time; `draw(random)` gives a new
/// flow's loads.
template <class Draw>
void churn(support::Random& random, const std::vector<double>& capacities, int steps, int most, Draw&& draw) {
  LinkSharing sharing{capacities};
  std::deque<Active> flows;  // loads must stay where they are
  for (int step = 0; step < steps; ++step) {
    CAPTURE(step);
    for (int changes = random.between(1, 3); changes > 0; --changes) {
      if (static_cast<int>(flows.size()) > random.between(0, most)) {
        const int ended = random.between(0, 1) == 0 ? 0 : static_cast<int>(flows.size()) - 1;
        sharing.finish(flows[static_cast<std::size_t>(ended)].flow);
        ended == 0 ? flows.pop_front() : flows.pop_back();
      } else {
        flows.push_back({-1, draw(random)});
        flows.back().flow = sharing.start(step, 1e3, flows.back().loads, step);
      }
    }
    sharing.solve(step, [](auto, auto, auto) {});
    const std::string fault = unfair(sharing, flows, capacities);
    REQUIRE_MESSAGE(fault.empty(), fault);
  }
}

}  // namespace

TEST_CASE("flows between nodes of equal adapters, where many shares are equal") {
  support::Random random{11};
  for (int i = 0; i < 40; ++i) {
    CAPTURE(i);
    const int nodes = random.between(2, 24);
    churn(random, std::vector<double>(static_cast<std::size_t>(2 * nodes), 12.5e9), 400, 5 * nodes, [&](support::Random& r) {
      return std::vector<LinkLoad>{{LinkId{r.between(0, nodes - 1)}, 1}, {LinkId{nodes + r.between(0, nodes - 1)}, 1}};
    });
  }
}

TEST_CASE("flows over any links with any weights") {
  support::Random random{12};
  for (int i = 0; i < 60; ++i) {
    CAPTURE(i);
    const int links = random.between(1, 30);
    std::vector<double> capacities;
    for (int link = 0; link < links; ++link) capacities.push_back(std::pow(10.0, random.real(0, i % 6)));
    const int longest = random.between(1, 6);
    churn(random, capacities, 300, 40, [&](support::Random& r) {
      std::vector<LinkLoad> loads;
      const double weights[] = {1, 1, 2, 0.5, r.real(0.1, 7)};
      const int first = r.between(0, links - 1);
      for (int k = r.between(1, std::min(longest, links)) - 1; k >= 0; --k) {
        loads.push_back({LinkId{(first + k * 7) % links}, weights[r.between(0, 4)]});
      }
      return loads;
    });
  }
}
