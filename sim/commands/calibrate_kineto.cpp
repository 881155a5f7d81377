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
std::string notes(const ProfileCalibration& found) {
  const MeasuredCost& cost = found.calibration.cost;
  std::string text;
  if (found.products > 0) {
    text += fmt::format("{} GEMMs: {}, {} of the peak", format_count(static_cast<std::int64_t>(found.products)),
                        format_flops_rate(FlopsPerSecond{found.product_rate}), format_percent(found.product_share));
    text += found.product_share <= 1 ? fmt::format(" (--cost kernels:products={:.3f})\n", found.product_share)
                                     : std::string{": these devices are slower than those of the traces\n"};
  }
  if (!cost.intra_node && !cost.inter_node) text += "no collective of known size and group, so no times of messages\n";
  text += cost.work
              ? fmt::format("The times hold for {} at {} tokens, {} sequences a microbatch, recomputation {}, on {}.\n",
                            cost.work->model, cost.work->sequence, cost.work->microbatch_size, name(cost.work->recompute),
                            cost.device)
              : std::string{"--model and --sequence of the profiled run let --out write the times, for --cost measured:FILE.\n"};
  return text;
}

}  // namespace

int calibrate_kineto(const CalibrateRequest& request) {
  if (!request.timelines.empty() || !request.schedules.empty() || !request.files.empty() || !request.json.empty() ||
      request.ring || request.adapters > 0) {
    throw InputError("--kineto only goes with --cluster, --out and the names of parts; give one kind of measurement");
  }
  if (request.cluster.empty()) throw InputError("--cluster is missing; give the cluster that the traces were taken on");
  const Cluster cluster = resolve_cluster(request.cluster, request.device, request.inter_node);
  std::optional<OutputFile> file;
  if (!request.out.empty()) file.emplace(request.out);
  std::vector<GpuProfile> profiles;
  for (const std::string& path : request.kineto) {
    profiles.push_back(read_kineto_trace(read_text(path, "trace"), request.names, one_line(path)));
  }
  ProfileCalibration found = calibrate(profiles, cluster);
  MeasuredCost& cost = found.calibration.cost;
  check_layers(cost, profiles, request.names);
  if (file || request.setup.given()) cost.work = work_of(request.setup);
  if (file) {
    (*file)(measured_json(cost));
    file->finish();
  }
  if (request.out == "-") return ok;
  write_output("-", calibration_table(found.calibration).str(terminal_style()) + "\n" + notes(found) +
                        (file || !cost.work ? "" : "\n" + measured_json(cost)));
  return ok;
}

}  // namespace tawpipe::sim
