// The multiprocessors (SMs) that communications hold while they wait and transfer data, and a
// device's speed with the rest.
// Not: the times (simulate/held_sms.hpp), nor the time lost (analysis/held_time.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/core/units.hpp"
#include "tawpipe/cost/nccl_collectives.hpp"
#include "tawpipe/schedule/arrivals.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/topology/cluster.hpp"

namespace tawpipe::inline v0 {

/// A device's speed while that many CTAs of communications hold SMs, relative to none.
struct HeldSpeed {
  int ctas = 0;
  double speed = 1;

  bool operator==(const HeldSpeed&) const = default;
};

/// Speeds by the number of SMs held, as fractions: exact if computation slows in proportion.
struct SpeedTable {
  std::int64_t whole = 1;
  std::vector<std::int64_t> parts{1};  ///< [SMs held] up to all

  std::int64_t at(std::int64_t held) const {
    return parts[static_cast<std::size_t>(std::clamp<std::int64_t>(held, 0, static_cast<std::int64_t>(parts.size()) - 1))];
  }
  double speed(std::int64_t held) const { return static_cast<double>(at(held)) / static_cast<double>(whole); }
};

/// How far NCCL moves data without a kernel that waits or copies.
enum class ZeroCta : std::uint8_t {
  off,
  node,     ///< between devices of a node, in one NVLink domain: by copy engines
  network,  ///< between nodes too, where the CPU gives what crosses them to the network
};

/// An option of a cost model: a communication is a kernel that holds as many SMs as it has CTAs
/// (thread blocks), on each of its ranks from the moment that the rank's stream reaches it until
/// its end, including waits for ranks that have not arrived unless `waiting` is off. Computation
/// there at the same time continues with the remaining SMs.
///
/// Source: a NCCL kernel has one CTA a channel, which has its SM to itself
/// (github.com/NVIDIA/nccl/issues/689), and runs from its launch until its peers have arrived and
/// all data is transferred (issues/1025). Not so where NCCL moves data by copy engines (copy_engines,
/// puts), or in the NVLink switch: set fewer CTAs for that.
struct HeldSms {
  /// of a message between two ranks, at each of them, and of an all_to_all, which is such messages;
  /// 0: it holds none
  int pair_ctas = 0;
  int collective_ctas = 0;  ///< of a collective, at each member
  /// of an all_to_all with tokens for whole experts; nullopt: as of messages
  std::optional<int> expert_ctas = {};
  /// of a collective of weights or gradients; nullopt: as of others
  std::optional<int> state_ctas = {};
  /// where the slowest link of their ring moves as much, and below of the difference in proportion
  /// less; 0: at any bandwidth
  BytesPerSecond state_rate{};
  bool waiting = true;  ///< held also before data moves; off: only while it does
  int sms = 0;          ///< of each device; 0: as in the cluster
  /// An all_gather, and an all_to_all of equal blocks, holds no SMs that far: NCCL_CTA_POLICY_ZERO
  /// with symmetric windows, in a node since 2.28 (src/ce_coll.cc: ncclCeAvailable), between nodes
  /// since 2.30.6 (ncclHierCeAvailable). NCCL has no copies in place of sums or broadcasts.
  ZeroCta copy_engines = ZeroCta::off;
  /// Messages, and those of an all_to_all, hold none that far: ncclPutSignal in place of ncclSend,
  /// ncclWaitSignal of ncclRecv (since 2.29; src/rma/rma.cc: copy engines, or a proxy between nodes).
  ZeroCta puts = ZeroCta::off;
  /// NCCL_LAUNCH_ORDER_IMPLICIT=1 (2.26): a rank's communications start, on whatever lane, in the
  /// order of their calls, as kernels that wait for their peers (src/enqueue.cc: launchOrder).
  bool launch_order_implicit = false;
  /// Measured speeds, by ascending CTAs; linear between them, and from the last down to zero with
  /// all SMs held. Empty: in proportion to the remaining SMs.
  std::vector<HeldSpeed> speeds{};
  int measured_sms = 0;  ///< of the device of the measurement; 0: unknown

  /// The maxima that the executor gives NCCL (cuda::NcclOptions).
  static HeldSms as_executed() { return {.pair_ctas = 8, .collective_ctas = 16}; }

  bool operator==(const HeldSms&) const = default;
  bool is_off() const {
    const bool experts = expert_ctas.value_or(0) > 0;
    return pair_ctas <= 0 && collective_ctas <= 0 && state_ctas.value_or(0) <= 0 && !experts && !launch_order_implicit;
  }

  /// The SMs held by a task at each of its ranks, at state_rate. A computation, a host copy (done by
  /// copy engines) and a collective of one rank hold none.
  int ctas_of(const Schedule& schedule, const Task& task) const {
    if (!is_between_ranks(schedule, task)) return 0;
    if (expert_ctas && is_all_pairs(task.op) && is_of_experts(schedule, task)) return *expert_ctas;
    if (!is_collective(task.op) || is_all_pairs(task.op)) return pair_ctas;
    return moves_states(schedule, task) ? state_ctas.value_or(collective_ctas) : collective_ctas;
  }
  /// Whether a stage's body sends it on the lane of its experts (schedule/expand.hpp).
  static bool is_of_experts(const Schedule& schedule, const Task& task) {
    return schedule.lanes()[static_cast<std::size_t>(number(task.lane))] == "expert_parallel";
  }
  /// Whether it is a collective of weights or gradients, between several ranks.
  static bool moves_states(const Schedule& schedule, const Task& task) {
    if (!is_collective(task.op) || is_all_pairs(task.op) || schedule.group(task.group).size() == 1) return false;
    const Numbers numbers = traits(task.payload).numbers;
    return numbers == Numbers::weights || numbers == Numbers::gradients;
  }
  /// Whether a communication needs no kernel on a cluster, by copy_engines and puts.
  bool is_zero_cta(const Schedule& schedule, const Task& task, const Cluster& cluster) const {
    ZeroCta reach = ZeroCta::off;
    const bool even = !is_all_pairs(task.op) || task.split == none<SplitId>;
    if ((task.op == Op::all_gather || is_all_pairs(task.op)) && even) reach = copy_engines;
    if (is_point_to_point(task.op) || is_all_pairs(task.op)) reach = std::max(reach, puts);
    if (reach != ZeroCta::node) return reach == ZeroCta::network;
    if (is_point_to_point(task.op)) return cluster.same_node(task.rank, task.peer);
    const auto members = schedule.group(task.group);
    return std::all_of(members.begin(), members.end(), [&](Rank rank) { return cluster.same_node(rank, members[0]); });
  }

  /// @throws InputError  if the device's SMs are unknown.
  int sms_of(const DeviceSpec& device) const {
    if (sms > 0) return sms;
    if (device.sms > 0) return device.sms;
    throw InputError(concat("how many SMs a device ", quote(device.name),
                            " has is not known; give its number, or \"sms\" of the device in the cluster's file"));
  }

  /// @throws InputError  as sms_of(), or if the speeds were measured on a device with a different
  /// number of SMs.
  void check(const DeviceSpec& device) const {
    const int all = sms_of(device);
    if (speeds.empty() || measured_sms == 0 || measured_sms == all) return;
    throw InputError(concat("the speeds while SMs are held were measured on a device of ", measured_sms, " SMs, and ",
                            quote(device.name), " has ", all, "; measure them there"));
  }

  /// @param all  SMs of the device
  SpeedTable table(int all) const {
    SpeedTable table{all, {}};
    if (!speeds.empty()) table.whole = 1'000'000;
    std::size_t next = 0;  // the first measured one with at least `held`
    for (int held = 0; held <= all; ++held) {
      if (speeds.empty()) {
        table.parts.push_back(all - held);
        continue;
      }
      while (next < speeds.size() && speeds[next].ctas < held) ++next;
      const HeldSpeed before = next == 0 ? HeldSpeed{} : speeds[next - 1];
      const HeldSpeed after = next < speeds.size() ? speeds[next] : HeldSpeed{all, 0};
      const double part =
          after.ctas == before.ctas ? 1 : static_cast<double>(held - before.ctas) / static_cast<double>(after.ctas - before.ctas);
      const double speed = std::clamp(before.speed + (after.speed - before.speed) * part, 0.0, 1.0);
      table.parts.push_back(static_cast<std::int64_t>(speed * static_cast<double>(table.whole) + 0.5));
    }
    return table;
  }
};

/// The SMs that the tasks of a schedule hold on a cluster.
class HeldCtas {
 public:
  HeldCtas(const HeldSms& held, const Schedule& schedule, const Cluster& cluster)
      : held_{held}, schedule_{schedule}, cluster_{cluster}, share_of_(static_cast<std::size_t>(schedule.groups()), -1) {}

  int of(const Task& task) {
    const int most = held_.ctas_of(schedule_, task);
    if (most == 0 || held_.is_zero_cta(schedule_, task, cluster_)) return 0;
    if (held_.state_rate.value() <= 0 || !HeldSms::moves_states(schedule_, task)) return most;
    double& share = share_of_[index(task.group)];
    if (share < 0) {
      share = std::min(1.0, nccl_ring(schedule_.group(task.group), cluster_).bus_bandwidth / held_.state_rate.value());
    }
    return held_.collective_ctas + static_cast<int>((most - held_.collective_ctas) * share + 0.5);
  }
  /// The ends of communications that hold SMs; of all between ranks where they start in the order
  /// of calls, since one that holds none may be waited for too.
  Arrivals arrivals(bool in_order) {
    return {schedule_, [&](const Task& task) { return in_order ? is_between_ranks(schedule_, task) : of(task) > 0; }};
  }

 private:
  const HeldSms& held_;
  const Schedule& schedule_;
  const Cluster& cluster_;
  std::vector<double> share_of_;  ///< [group] of state_rate; -1: not known yet
};

/// The model's option, if it has one that is on; otherwise null.
template <class Model>
const HeldSms* held_sms_of(const Model& model) {
  if constexpr (requires { model.held_sms(); }) {
    return model.held_sms();
  } else if constexpr (requires { model.held_sms.is_off(); }) {
    return model.held_sms.is_off() ? nullptr : &model.held_sms;
  } else {
    return nullptr;
  }
}

}  // namespace tawpipe
