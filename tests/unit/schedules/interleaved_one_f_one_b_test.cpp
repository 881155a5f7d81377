// Tests of schedules/interleaved_one_f_one_b.hpp: closed forms of time and memory.
// Not: the published bubble rates (oracle/zero_bubble_test.cpp).
#include "tawpipe/schedules/interleaved_one_f_one_b.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/pipelines.hpp"
#include "tawpipe/cost/roofline.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/schedules/one_f_one_b.hpp"
#include "tawpipe/simulate/simulate.hpp"
#include "tawpipe/topology/clusters.hpp"
#include "tawpipe/verify/validate.hpp"

using namespace tawpipe::literals;
using tawpipe::FixedCost;
using tawpipe::Workload;
using namespace tawpipe::schedules;

TEST_CASE("interleaved 1F1B takes mS + (p-1)S/v + 2(pv-1)c where p divides m") {
  // 60 is a multiple of each v, so that chunks' times are exact
  const FixedCost cost{60_s, 120_s, 60_s, 1_s};
  for (const int p : {2, 3, 4, 8}) {
    for (const int v : {2, 3, 4, 5}) {
      for (const int m : {p, 2 * p, 5 * p}) {
        CAPTURE(p);
        CAPTURE(v);
        CAPTURE(m);
        const auto s = support::whole(cost);
        const auto run = support::run_pipeline(interleaved_one_f_one_b(Workload::abstract(p, m), p, {.chunks = v}), cost);
        CHECK(run.makespan == s * m + s * (p - 1) / v + cost.transfer * (2 * (p * v - 1)));
        CHECK(run.span == run.makespan);  // rank 0's
      }
    }
  }
}

TEST_CASE("with one chunk a rank interleaved 1F1B is 1F1B") {
  for (const int p : {1, 2, 5}) {
    for (const int m : {1, 5, 10}) {
      const auto program = interleaved_one_f_one_b_program(p, m, 1);
      for (int r = 0; r < p; ++r) {
        const auto schedule = one_f_one_b(Workload::abstract(p, m), p);
        std::vector<Action> order;
        for (const auto task : schedule.program(tawpipe::Rank{r}, 0)) {
          const auto& t = schedule.task(task);
          if (t.op != tawpipe::Op::update) order.push_back({t.op, number(t.stage), t.microbatch});
        }
        CHECK(order == program.actions[static_cast<std::size_t>(r)]);
      }
    }
  }
}

TEST_CASE("interleaved 1F1B keeps p(1 + (p-1)/(pv)) microbatches on rank 0, which are pv + p-1 stages'") {
  for (const int p : {2, 4, 8}) {
    for (const int v : {2, 3, 4}) {
      const auto peaks = peak_saved(interleaved_one_f_one_b_program(p, 4 * p, v));
      for (int r = 0; r < p; ++r) CHECK(peaks[static_cast<std::size_t>(r)] == (v - 1) * p + 2 * (p - 1 - r) + 1);
    }
  }
}

TEST_CASE("interleaved 1F1B takes microbatches that the ranks do not divide, in no more time than the next that they do") {
  const FixedCost cost{60_s, 60_s, 60_s, 0_s};
  for (const int p : {3, 4, 6}) {
    for (int m = 1; m <= 3 * p; ++m) {
      CAPTURE(p);
      CAPTURE(m);
      const auto time = [&](int microbatches) {
        return support::run_pipeline(interleaved_one_f_one_b(Workload::abstract(p, microbatches), p), cost).makespan;
      };
      CHECK(time(m) <= time((m + p - 1) / p * p));
    }
  }
}

TEST_CASE("sends and receives between two ranks take turns, but for two ranks and fixed times") {
  const Workload work{tawpipe::models::named("llama-48x1024"), {.sequence = 4096, .microbatch_size = 1, .global_batch = 48}};
  const auto lanes = [&](const Workload& workload, int ranks, const InterleavedOptions& options) {
    return interleaved_one_f_one_b(workload, ranks, options).lanes();
  };
  const std::vector<std::string> pair{"compute", "next", "previous"};
  const std::vector<std::string> direction{"compute", "send_next", "receive_previous", "send_previous", "receive_next"};
  CHECK(lanes(work, 4, {}) == pair);
  CHECK(lanes(work, 2, {}) == direction);
  CHECK(lanes(Workload::abstract(4, 8), 4, {}) == direction);
  CHECK(lanes(work, 4, {.p2p = P2pStreams::direction}) == direction);

  const auto turns = interleaved_one_f_one_b(work, 24);
  const auto free = interleaved_one_f_one_b(work, 24, {.p2p = P2pStreams::direction});
  CHECK(tawpipe::validate(turns).ok());
  const auto cluster = tawpipe::cluster_named("a800x24-10gbe");
  const auto time = [&](const tawpipe::Schedule& one) {
    return tawpipe::simulate(one, cluster, tawpipe::RooflineCost{}).makespan();
  };
  CHECK(time(turns) > time(free));
}

TEST_CASE("a gradient is received between the two forwards around its post, as Megatron-LM issues them") {
  const int p = 4;
  const Workload work{tawpipe::models::named("llama-16x512"), {.sequence = 64, .microbatch_size = 1, .global_batch = 16}};
  const auto schedule = interleaved_one_f_one_b(work, p);
  const int next = 1;
  REQUIRE(schedule.lanes()[next] == "next");
  for (const int r : {1, 2}) {
    const int warm_up = p + 2 * (p - 1 - r);
    int sent = 0;
    int received = 0;
    for (const tawpipe::TaskId task : schedule.program(tawpipe::Rank{r}, next)) {
      if (schedule.task(task).payload == tawpipe::Payload::activations) {
        ++sent;
      } else {
        CHECK(sent == std::min(warm_up + received, 32));
        ++received;
      }
    }
    CHECK(sent == 32);
    CHECK(received == 32);
  }
}
