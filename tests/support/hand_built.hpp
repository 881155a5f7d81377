// The beginnings of schedules that tests build by hand.
// Not: any schedule of the catalogue (each_schedule.hpp).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tawpipe/cost/roofline.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"

namespace support {

/// Two ranks: rank 0 computes task 0 and passes 25 MB to rank 1, task 1.
inline tawpipe::ScheduleBuilder compute_and_pass(std::vector<std::string> lanes = {"compute", "out", "in"}) {
  using namespace tawpipe;
  ScheduleBuilder builder{"small", Workload::abstract(2, 1), 2, std::move(lanes)};
  builder.add({.op = Op::forward, .rank = Rank{0}, .stage = StageId{0}, .microbatch = 0}, {});
  builder.add({.op = Op::pass,
               .payload = Payload::activations,
               .lane = LaneId{1},
               .peer_lane = LaneId{2},
               .rank = Rank{0},
               .peer = Rank{1},
               .microbatch = 0,
               .bytes = Bytes{25'000'000}},
              {});
  return builder;
}

/// Without overhead: on clusters.hpp's clusters a message takes its bytes over bandwidth plus 1 us
/// a route.
inline const tawpipe::RooflineCost no_overhead{.overhead = tawpipe::Duration{}};

/// `ranks` ranks with a lane for computations and one for messages, and no task yet.
inline tawpipe::ScheduleBuilder two_lanes(int ranks) {
  return {"test", tawpipe::Workload::abstract(1, 1), ranks, {"compute", "network"}};
}

/// A message on the second lane of both.
inline tawpipe::Task pass(int from, int to, tawpipe::Bytes bytes) {
  return {.op = tawpipe::Op::pass,
          .lane = tawpipe::LaneId{1},
          .peer_lane = tawpipe::LaneId{1},
          .rank = tawpipe::Rank{from},
          .peer = tawpipe::Rank{to},
          .bytes = bytes};
}

}  // namespace support
