// Devices by name, with the numbers of their data sheets.
// Not: how they are joined (topology/clusters.hpp) nor how much of the peak a program reaches (cost/).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/topology/device.hpp"

namespace tawpipe::inline v0 {

/// A device of the table, how it is recognised, and the document its numbers come from.
struct KnownDevice {
  std::string_view name;
  int memory_gib;
  double teraflops;  ///< dense bf16 (fp16 on V100, P100) with fp32 accumulation; sheets often print twice that, for sparsity
  double gigabytes_per_second;
  int sm;   ///< compute capability, 80 is 8.0
  int sms;  ///< multiprocessors: NVIDIA's architecture white papers; B200: its 18,944 cores, 128 of them an SM
  std::string_view source;
};

/// Every device that device_named() knows. Memory is the sheet's "GB" read as GiB, as the driver reports it.
inline std::span<const KnownDevice> known_devices() {
  static constexpr KnownDevice devices[] = {
      {"A100-80G", 80, 312, 2039, 80, 108, "NVIDIA A100 data sheet, June 2021, A100 80GB SXM"},
      {"A100-40G", 40, 312, 1555, 80, 108, "NVIDIA A100 data sheet, November 2020, A100 40GB SXM"},
      {"A800-80G", 80, 312, 2039, 80, 108, "NVIDIA A800 80GB SXM: an A100 with 8 NVLinks (400 GB/s both ways)"},
      {"H100-80G", 80, 989, 3350, 90, 132, "NVIDIA H100 data sheet, H100 SXM: 1979 TFLOPS with sparsity"},
      {"H200-141G", 141, 989, 4800, 90, 132, "NVIDIA H200 data sheet, H200 SXM: 1979 TFLOPS with sparsity"},
      {"GH200-96G", 96, 989, 4000, 90, 132, "NVIDIA GH200 data sheet, 96 GB HBM3"},
      {"B200-180G", 180, 2250, 8000, 100, 148, "NVIDIA HGX B200 data sheet, one of 8 GPUs: 4500 TFLOPS with sparsity"},
      {"L40S-48G", 48, 362, 864, 89, 142, "NVIDIA L40S data sheet: 362 TFLOPS dense, 733 with sparsity"},
      {"RTX4090-24G", 24, 165.2, 1008, 89, 128, "NVIDIA Ada architecture white paper, fp16 with fp32 accumulation"},
      {"RTX5090-32G", 32, 209.5, 1792, 120, 170, "NVIDIA RTX Blackwell architecture white paper, fp16 with fp32 accumulation"},
      {"RTX3090-24G", 24, 71, 936, 86, 82, "NVIDIA GA102 architecture white paper, fp16 with fp32 accumulation"},
      {"V100-32G", 32, 125, 900, 70, 80, "NVIDIA V100 data sheet, V100 SXM2 32GB"},
      {"T4-16G", 16, 65, 320, 75, 40, "NVIDIA T4 data sheet"},
      {"P100-16G", 16, 21.2, 732, 60, 56, "NVIDIA P100 data sheet, P100 SXM2 16GB (no matrix units: fp16 vector peak)"},
  };
  return devices;
}

/// The entry called `name`. @throws InputError  with the nearest name and all that exist.
inline const KnownDevice& known_device(std::string_view name) {
  std::vector<std::string> names;
  for (const auto& device : known_devices()) {
    if (device.name == name) return device;
    names.emplace_back(device.name);
  }
  throw InputError(unknown_name("device", name, names));
}

/// An entry of the table as a DeviceSpec.
inline DeviceSpec spec_of(const KnownDevice& device) {
  return {.name = std::string{device.name},
          .memory = Bytes{static_cast<std::int64_t>(device.memory_gib) << 30},
          .peak = FlopsPerSecond{device.teraflops * 1e12},
          .memory_bandwidth = BytesPerSecond{device.gigabytes_per_second * 1e9},
          .sms = device.sms};
}

/// A device by name, such as "A100-80G". @throws InputError  as known_device().
inline DeviceSpec device_named(std::string_view name) { return spec_of(known_device(name)); }

}  // namespace tawpipe
