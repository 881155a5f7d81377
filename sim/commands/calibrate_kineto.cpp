// `tawpipe calibrate --kineto`: a measured cost from the traces of PyTorch's profiler.
// Not: from nccl-tests or executors' timelines (calibrate.cpp).
#include <fmt/format.h>

#include <optional>

#include "instruments.hpp"
#include "output.hpp"
#include "tawpipe/analysis/gpu_profile.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/report/measured_json.hpp"
#include "tawpipe/topology/cluster_file.hpp"

namespace tawpipe::sim {

namespace {

/// Details that the table omits.
std::string notes(const ProfileCalibration& found, const KinetoNames& names) {
  const MeasuredCost& cost = found.calibration.cost;
  std::string text;
  if (found.products > 0) {
    text += fmt::format("{} matrix products: {}, {} of the peak", format_count(static_cast<std::int64_t>(found.products)),
                        format_flops_rate(FlopsPerSecond{found.product_rate}), format_percent(found.product_share));
    text += found.product_share <= 1 ? fmt::format(" (--cost kernels:products={:.3f})\n", found.product_share)
                                     : std::string{": these devices are slower than those of the traces\n"};
  }
  if (!cost.forward || !cost.backward || cost.forward->layer <= 0 || cost.backward->layer <= 0) {
    text += fmt::format("no {} of a layer: nothing with kernels is called {}; name yours with --layer\n",
                        !cost.forward || cost.forward->layer <= 0 ? "forward" : "backward", quote(names.layer));
  }
  if (!cost.intra_node && !cost.inter_node) text += "no collective of known size and group, so no times of messages\n";
  return text + "The times hold for the model, sequence and microbatch that were profiled; the file does not say which.\n";
}

}  // namespace

int calibrate_kineto(const CalibrateRequest& request) {
  if (!request.timelines.empty() || !request.schedules.empty() || !request.files.empty() || !request.json.empty() ||
      request.ring || request.adapters > 0) {
    throw InputError("--kineto only goes with --cluster, --out and the names of parts; give one kind of measurement");
  }
  if (request.cluster.empty()) throw InputError("--cluster is missing; give the cluster that the traces were taken on");
  const Cluster cluster = resolve_cluster(request.cluster, request.device);
  std::optional<OutputFile> file;
  if (!request.out.empty()) file.emplace(request.out);
  std::vector<GpuProfile> profiles;
  for (const std::string& path : request.kineto) {
    profiles.push_back(read_kineto_trace(read_text(path, "trace"), request.names, one_line(path)));
  }
  const ProfileCalibration found = calibrate(profiles, cluster);
  if (file) {
    (*file)(measured_json(found.calibration.cost));
    file->finish();
  }
  if (request.out == "-") return ok;
  write_output("-", calibration_table(found.calibration).str(terminal_style()) + "\n" + notes(found, request.names) +
                        (file ? "" : "\n" + measured_json(found.calibration.cost)));
  return ok;
}

}  // namespace tawpipe::sim
