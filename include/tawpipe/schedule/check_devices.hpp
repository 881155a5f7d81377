// Whether a cluster has a device for each rank of a schedule: for everything that takes a schedule
// and a cluster.
// Not: whether they have the memory (verify/check_memory.hpp).
#pragma once

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/topology/cluster.hpp"

namespace tawpipe::inline v0 {

/// @throws InputError  with both numbers, if the schedule has more ranks than the cluster has
/// devices.
inline void check_devices(const Schedule& schedule, const Cluster& cluster) {
  if (schedule.ranks() <= cluster.ranks()) return;
  throw InputError(concat("the schedule needs ", schedule.ranks(), " ranks and cluster ", quote(cluster.name()), " has ",
                          cluster.ranks(), " devices"));
}

}  // namespace tawpipe
