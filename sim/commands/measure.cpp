// `tawpipe measure`: the figures of a GPU's curves from kernels that are run on it.
#include "measure.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <optional>
#include <vector>

#include "../load_module.hpp"
#include "../request.hpp"
#include "output.hpp"
#include "tawpipe/report/curves_json.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/report/table.hpp"
#include "tawpipe/topology/devices.hpp"

namespace tawpipe::sim {

namespace {

/// The data sheet of a GPU by its driver's name for it, "NVIDIA H100 80GB HBM3", and its memory.
const KnownDevice& device_called(const MeasuredDevice& measured) {
  if (const KnownDevice* const found = device_of_driver(measured.name, measured.memory)) return *found;
  std::vector<std::string> names;
  for (const KnownDevice& one : known_devices()) names.emplace_back(one.name);
  throw InputError(
      concat("no data sheet is known for GPU ", quote(measured.name), "; give the nearest by --device: ", join(names, ", ")));
}

std::string shape(const Kernel& kernel) {
  if (kernel.kind == Kernel::Kind::traffic) return format_memory(kernel.bytes);
  if (kernel.kind == Kernel::Kind::product) return concat(kernel.m, " x ", kernel.n, " x ", kernel.k);
  return concat(kernel.batch, " heads of ", kernel.k, ", ", kernel.m, " tokens");
}

}  // namespace

int run_measure(const MeasureRequest& request) {
  if (request.largest % 64 != 0)
    throw InputError(concat("--largest ", request.largest, " must be a multiple of 64, such as 8192"));
  const KnownDevice* const given = request.device.empty() ? nullptr : &known_device(request.device);
  std::optional<OutputFile> file;
  if (!request.out.empty()) file.emplace(request.out);
  void* const loaded =
      load_module({.name = "cuda",
                   .wanted_by = "measure",
                   .library = "CUDA",
                   .way_out = "; install CUDA, NCCL and cuDNN, or run it where they are: the file serves anywhere"});
  auto* const measure = reinterpret_cast<MeasureDevice*>(::dlsym(loaded, "tawpipe_measure"));
  if (measure == nullptr) throw InputError("tawpipe-cuda.so is not tawpipe's; install both from one build");
  MeasuredDevice measured;
  measure(static_cast<int>(request.gpu), request.largest, measured);
  const DeviceSpec device = spec_of(given != nullptr ? *given : device_called(measured));
  const FittedCurves fitted = fit_curves(measured, device);
  const std::string json = curves_json(measured, device, fitted);
  if (file) {
    (*file)(json);
    file->finish();
  }
  if (request.out == "-") return ok;
  Table kernels{{{"kernel"}, {"shape"}, {"measured", Align::right}, {"by the curves", Align::right}, {"error", Align::right}}};
  for (std::size_t i = 0; i < measured.kernels.size(); ++i) {
    const auto& [kernel, took] = measured.kernels[i];
    kernels.row({std::string{detail::kernel_word(kernel)}, shape(kernel), format_duration(seconds(took)),
                 format_duration(seconds(fitted.seconds[i])), fmt::format("{:+.1f}%", 100 * (fitted.seconds[i] / took - 1))});
  }
  Table figures{
      {{"figure"}, {"measured", Align::right}, {concat("of ", fitted.curves.generation), Align::right}, {"what it is"}}};
  const DeviceCurves before = KernelCost{}.curves(device);
  for (const auto& [member, value] : fitted.changes) {
    for (const CurveField& field : curve_fields()) {
      if (field.member != member) continue;
      figures.row({std::string{field.name}, fmt::format("{:.4g}", value), fmt::format("{:.4g}", before.*member),
                   std::string{field.meaning}});
    }
  }
  write_output("-", concat("device   ", one_line(measured.name), ", by the data sheet of ", device.name, "\nhost     ",
                           format_duration(seconds(measured.launch)), " to launch a kernel; ",
                           format_bandwidth(BytesPerSecond{measured.to_host}), " to its memory, ",
                           format_bandwidth(BytesPerSecond{measured.from_host}), " from it\n\n", kernels.str(terminal_style()),
                           "\n", figures.str(terminal_style()),
                           file ? concat("\nTo predict with them: --cost kernels:file=", one_line(request.out), "\n") : ""));
  return ok;
}

}  // namespace tawpipe::sim
