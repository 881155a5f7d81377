// A profile of training on one device: computations of the model's parts, collectives, matrix
// products; and the times of a MeasuredCost found from it.
// Not: a profiler's files (report/kineto_trace.hpp), nor executors' timelines (calibrate.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "tawpipe/analysis/calibration.hpp"
#include "tawpipe/analysis/detail/message_fit.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"
#include "tawpipe/topology/cluster.hpp"
#include "tawpipe/topology/devices.hpp"

namespace tawpipe::inline v0 {

/// A part of the model with a time of its own.
enum class ModelPart : std::uint8_t { layer, embedding, head };

/// One device's part of a training run. Seconds count the time during which kernels ran.
struct GpuProfile {
  struct Computation {
    Op op = Op::forward;  ///< forward; backward, recomputation included; update
    ModelPart part = ModelPart::layer;
    double seconds = 0;
  };
  struct Collective {
    Op op = Op::all_reduce;
    std::vector<Rank> members;  ///< in the group's order
    /// the whole buffer: for gathers and reduce-scatters that of all members
    std::int64_t bytes = 0;
    double seconds = 0;  ///< from the kernel's start, so including the wait for its peers
    bool alone = true;   ///< no other communication of the device overlapped it
  };

  int rank = 0;
  std::string device{};               ///< as its driver calls it; "": unknown
  std::int64_t memory = 0;            ///< bytes of it; 0: unknown
  std::string software{};             ///< that ran and recorded it
  std::vector<std::string> ranges{};  ///< names around kernels, the most frequent first
  std::vector<Computation> computations;
  std::vector<Collective> collectives;
  std::size_t products = 0;    ///< matrix products of known shapes
  double product_flops = 0;    ///< of all of them, 2 m n k each
  double product_seconds = 0;  ///< of their kernels
};

/// The combined content of several profiles.
struct ProfileCalibration {
  Calibration calibration;
  std::size_t products = 0;
  double product_rate = 0;   ///< FLOP/s that matrix products of known shapes reached; 0: none
  double product_share = 0;  ///< of the devices' peak
};

namespace detail {

class ProfileCalibrator {
 public:
  explicit ProfileCalibrator(const Cluster& cluster) : cluster_{cluster} {}

  void add(const GpuProfile& profile) {
    check(profile.rank);
    check_device(profile);
    if (software_.empty()) software_ = profile.software;
    for (const auto& one : profile.computations) {
      if (one.op == Op::update) {
        update_.add({1}, one.seconds);
      } else {
        std::array<double, 3> features{};
        features[static_cast<std::size_t>(one.part)] = 1;
        (one.op == Op::forward ? forward_ : backward_).add(features, one.seconds);
      }
    }
    for (const auto& one : profile.collectives) {
      if (one.members.size() < 2 || one.bytes == 0) continue;
      for (const Rank member : one.members) check(number(member));
      Alike& alike = alike_[{one.op, one.members, one.bytes}];
      ++alike.count;
      auto& least = one.alone ? alike.alone : alike.beside;
      least = std::min(least.value_or(one.seconds), one.seconds);
    }
    products_ += profile.products;
    flops_ += profile.product_flops;
    seconds_ += profile.product_seconds;
    peak_flops_ += cluster_.device(Rank{profile.rank}).peak.value() * profile.product_seconds;
  }

  ProfileCalibration finish() {
    ProfileCalibration found;
    MeasuredCost& cost = found.calibration.cost;
    cost.device = cluster_.device(Rank{0}).name;
    cost.software = software_;
    finish_pass(found.calibration, Op::forward, forward_, cost.forward);
    finish_pass(found.calibration, Op::backward, backward_, cost.backward);
    if (!update_.empty()) {
      const auto once = update_.solve();
      cost.update = MeasuredUpdate{.once = once[0]};
      add_class(found.calibration, Op::update, update_, once);
    }
    finish_collectives(found.calibration);
    found.products = products_;
    if (seconds_ > 0) {
      found.product_rate = flops_ / seconds_;
      found.product_share = flops_ / peak_flops_;
    }
    return found;
  }

 private:
  /// Kernels of one operation, group and size. Those that waited for a peer took longer, so the
  /// shortest is the best estimate.
  struct Alike {
    std::size_t count = 0;
    std::optional<double> alone;
    std::optional<double> beside;
  };

  void check(int rank) const {
    if (rank >= 0 && rank < cluster_.ranks()) return;
    throw InputError(concat("the profile has rank ", rank, ", and cluster ", quote(cluster_.name()), " has ", cluster_.ranks(),
                            " devices; give the cluster that it was taken on"));
  }

  void check_device(const GpuProfile& profile) const {
    const KnownDevice* const device = device_of_driver(profile.device, profile.memory);
    const DeviceSpec& given = cluster_.device(Rank{profile.rank});
    if (device == nullptr || device->name == given.name || find_device(given.name) == nullptr) return;
    throw InputError(concat("the profile was taken on ", one_line(profile.device), ", and cluster ", quote(cluster_.name()),
                            " has ", given.name, "; give the cluster that it was taken on, or --device ", device->name));
  }

  /// The collectives as a schedule, one after another, for the fit of timelines.
  void finish_collectives(Calibration& found) const {
    ScheduleBuilder builder{"profile", Workload::abstract(cluster_.ranks(), 1), cluster_.ranks(), {"network"}};
    Timeline timeline;
    std::array<std::size_t, 2> kernels{};  // inside a node, between nodes
    TimePoint now;
    for (const auto& [key, alike] : alike_) {
      const auto& [op, members, bytes] = key;
      builder.add({.op = op, .rank = members.front(), .group = builder.group(members), .bytes = Bytes{bytes}}, {});
      timeline.start.push_back(now);
      now = now + seconds(alike.alone ? *alike.alone : *alike.beside);
      timeline.end.push_back(now);
      const Rank first = members.front();
      const bool between = std::any_of(members.begin(), members.end(), [&](Rank r) { return !cluster_.same_node(first, r); });
      kernels[between ? 1 : 0] += alike.count;
    }
    if (alike_.empty()) return;
    const std::size_t before = found.classes.size();
    MessageFit fit{cluster_};
    fit.add(builder.build(), timeline);
    fit.finish(found);
    for (std::size_t c = before; c < found.classes.size(); ++c) {
      found.classes[c].tasks = kernels[found.classes[c].name == "messages between nodes" ? 1 : 0];
    }
  }

  const Cluster& cluster_;
  PassFit forward_;
  PassFit backward_;
  NonnegativeFit<1> update_;
  std::map<std::tuple<Op, std::vector<Rank>, std::int64_t>, Alike> alike_;
  std::size_t products_ = 0;
  double flops_ = 0;
  double seconds_ = 0;
  double peak_flops_ = 0;
  std::string software_;
};

}  // namespace detail

/// The measured cost that fits profiles of one or more devices: for each part and pass the median,
/// for each collective, group and size the shortest kernel, since the others waited for a peer; of
/// those that overlapped no other communication, if there are any. Latency and bandwidth are then
/// fitted as from timelines. The time of an update holds for one optimizer step of the device,
/// whatever its size.
/// @param cluster  where they were taken: rank r of a profile is its device r
/// @throws InputError  if there is no profile, or one has a rank that the cluster lacks, or another
/// device.
/// Complexity: O(n log n) in the number of records.
inline ProfileCalibration calibrate(std::span<const GpuProfile> profiles, const Cluster& cluster) {
  if (profiles.empty()) throw InputError("there is no profile to calibrate from");
  detail::ProfileCalibrator calibrator{cluster};
  for (const GpuProfile& profile : profiles) calibrator.add(profile);
  return calibrator.finish();
}

}  // namespace tawpipe
