// Measured figures of a device as JSON: what `tawpipe measure` writes and --cost kernels:file=FILE
// reads (docs/output.md).
// Not: how they are found (analysis/fit_curves.hpp).
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/analysis/fit_curves.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/json/json_reader.hpp"

namespace tawpipe::inline v0 {

namespace detail {

inline std::string_view kernel_word(const Kernel& kernel) {
  switch (kernel.kind) {
    case Kernel::Kind::product:
      return kernel.pass == KernelPass::backward_weight ? "gradient of a weight" : "product";
    case Kernel::Kind::attention:
      return "attention";
    case Kernel::Kind::attention_backward:
      return "attention backward";
    case Kernel::Kind::traffic:
      return "memory";
  }
  return "";  // unreachable
}

}  // namespace detail

/// The file's text: figures of the curves by their names on the command line, and what they were
/// found from, in seconds and bytes. Numbers are written without loss.
inline std::string curves_json(const MeasuredDevice& measured, const DeviceSpec& device, const FittedCurves& fitted) {
  nlohmann::ordered_json json;
  json["measured_curves"] = 1;
  json["device"] = device.name;
  json["driver_name"] = measured.name;
  json["software"] = measured.software;
  json["curves"] = nlohmann::ordered_json::object();
  for (const auto& [member, value] : fitted.changes) {
    for (const CurveField& field : curve_fields()) {
      if (field.member == member) json["curves"][std::string{field.name}] = value;
    }
  }
  json["launch_seconds"] = measured.launch;
  json["host_link"] = {{"to_host_bytes_per_second", measured.to_host}, {"from_host_bytes_per_second", measured.from_host}};
  json["kernels"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < measured.kernels.size(); ++i) {
    const Kernel& kernel = measured.kernels[i].kernel;
    nlohmann::ordered_json one;
    one["kernel"] = detail::kernel_word(kernel);
    if (kernel.kind == Kernel::Kind::traffic) {
      one["bytes"] = kernel.bytes;
    } else {
      one["m"] = kernel.m;
      one["n"] = kernel.n;
      one["k"] = kernel.k;
      one["batch"] = kernel.batch;
    }
    one["seconds"] = measured.kernels[i].seconds;
    one["fitted_seconds"] = fitted.seconds[i];
    json["kernels"].push_back(std::move(one));
  }
  return json.dump(2) + "\n";
}

/// The figures of a file, and where they hold.
struct CurvesFile {
  std::string device;  ///< DeviceSpec::name
  std::string software;
  std::vector<CurveChange> changes;  ///< as KernelCost::changes takes them
};

/// Reads such a file.
/// @param source  the file's name, for messages
/// @throws InputError  in one line, naming the key that is wrong or missing.
inline CurvesFile parse_curves_json(std::string_view text, std::string_view source = "measured curves") {
  const JsonDocument json{text, source};
  const JsonValue file = json.root().only("measured_curves", "device", "driver_name", "software", "curves", "launch_seconds",
                                          "host_link", "kernels");
  file.at("measured_curves").whole(1, 1);
  const auto said = [&](std::string_view key, std::string_view what) {
    if (!file.has(key))
      file.fail(concat("'", key, "' is missing, ", what,
                       ", without which nobody knows where the figures hold; measure again, or add it"));
    return file.at(key).label();
  };
  CurvesFile found{said("device", "the device by its name of docs/costs.md"), said("software", "what ran the kernels"), {}};
  std::vector<std::string_view> names;
  for (const CurveField& field : curve_fields()) names.push_back(field.name);
  const JsonValue curves = file.at("curves").only(std::span<const std::string_view>{names});
  for (const CurveField& field : curve_fields()) {
    const auto value = curves.find(field.name);
    if (!value) continue;
    if (value->positive() > field.most) value->expected(concat("a number above 0 and at most ", field.most));
    found.changes.emplace_back(field.member, value->positive());
  }
  return found;
}

}  // namespace tawpipe
