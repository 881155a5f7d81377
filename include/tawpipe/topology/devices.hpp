// Devices by name, with the numbers of their data sheets.
// Not: how they are connected (topology/clusters.hpp) nor what fraction of the peak a program
// reaches (cost/).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/topology/device.hpp"
#include "tawpipe/topology/link.hpp"
#include "tawpipe/topology/link_speeds.hpp"

namespace tawpipe::inline v0 {

/// How the devices of a usual node reach each other.
enum class Peers : std::uint8_t {
  nvlink,  ///< by NVLinks into NVSwitches; by PCI Express where they have none
  xgmi,    ///< AMD's: a part of the XGMI links to each of seven others
  roce,    ///< Intel's: the same, of Ethernet ports
  host,    ///< GeForce: by PCI Express through the host's memory, as drivers give them no peer access
};

/// A device of the table, how it is recognised, and the source of its numbers.
struct KnownDevice {
  std::string_view name;
  int memory_gib;
  /// dense bf16 (fp16 on V100, P100) with fp32 accumulation; sheets often state twice that, for
  /// sparsity
  double teraflops;
  double fp8;  ///< dense 8-bit; 0: none
  double fp4;  ///< dense 4-bit; 0: none
  double gigabytes_per_second;
  int sm;  ///< NVIDIA's compute capability, 80 is 8.0; 0: another vendor's
  /// multiprocessors: NVIDIA's architecture white papers; B200: its 18,944 cores, 128 to an SM;
  /// variants as B200; AMD's compute units and Intel's tensor processor cores of the same sheets
  int sms;
  /// NVLinks, XGMI links or Ethernet ports to other devices of the usual node (the same sheets); 0: it has only
  /// PCI Express, as cards whose bridges join two are counted
  int links;
  /// W, the most that the GPU with its memory takes: the same sheets; GH200, whose sheet has only the
  /// module with its CPU, as H100
  int watts;
  std::string_view source;
  /// Fraction of the product rate that the usual card of the same peak sustains, due to its power
  /// limit. An A100 reaches 271.2 TFLOPS at 400 W and 252.9 at 300 W (stas00/ml-engineering,
  /// maximum achievable matmul FLOPS): the 0.24th power.
  double sustained = 1;
  double sustained_narrow = 1;  ///< the same for products in 8 and 4 bits
  /// Factor on the rate of fused attention's forward: Blackwell Ultra's exponentials are twice as
  /// fast, and attention's forward 1.35 times (NVIDIA, Making Softmax More Efficient with NVIDIA
  /// Blackwell Ultra).
  double attention = 1;
  /// GB and GB/s of the memory of the CPU that is on its module, for each GPU of it: what an NVL72 has
  /// by one 72nd; 0: the GPUs of a node share an ordinary host
  double host_gigabytes = 0;
  double host_gigabytes_per_second = 0;
  /// What a driver calls it: all of these words, none that follows a '!'; or those after a '|'. "": its name's model
  std::string_view driver = {};
  Peers peers = Peers::nvlink;
};

/// Every device that device_named() knows. Memory is the sheet's "GB" read as GiB, as the driver
/// reports it.
inline std::span<const KnownDevice> known_devices() {
  static constexpr KnownDevice devices[] = {
      {"A100-80G", 80, 312, 0, 0, 2039, 80, 108, 12, 400, "NVIDIA A100 data sheet, June 2021, A100 80GB SXM"},
      {"A100-40G", 40, 312, 0, 0, 1555, 80, 108, 12, 400, "NVIDIA A100 data sheet, November 2020, A100 40GB SXM"},
      {"A800-80G", 80, 312, 0, 0, 2039, 80, 108, 8, 400, "NVIDIA A800 80GB SXM: an A100 with 8 NVLinks (400 GB/s both ways)"},
      {"H100-80G", 80, 989, 1979, 0, 3350, 90, 132, 18, 700,
       "NVIDIA H100 data sheet, H100 SXM: 1979 TFLOPS with sparsity, fp8 3958", 1, 1, 1, 0, 0, "h100 !pcie !nvl"},
      {"H800-80G", 80, 989, 1979, 0, 3350, 90, 132, 8, 700, "NVIDIA H800 80GB SXM: an H100 with 8 NVLinks (400 GB/s both ways)",
       1, 1, 1, 0, 0, "h800 !pcie"},
      {"H100-96G", 96, 989, 1979, 0, 2400, 90, 132, 18, 500,
       "H100 of 500 W with HBM2e (torchtitan's benchmarks); 5 stacks of 480 GB/s", 0.85, 0.926, 1, 0, 0,
       "h100 !pcie !nvl"},  // by themselves 0.595 and 0.584 of the peaks in full waves (pytorch/FBGEMM#2546), 0.936 of it in
                            // training
      {"H200-141G", 141, 989, 1979, 0, 4800, 90, 132, 18, 700,
       "NVIDIA H200 data sheet, H200 SXM: 1979 TFLOPS with sparsity, fp8 3958", 1, 1, 1, 0, 0, "h200 !nvl"},
      {"GH200-96G", 96, 989, 1979, 0, 4000, 90, 132, 18, 700, "NVIDIA GH200 data sheet, 96 GB HBM3; 480 GB of LPDDR5X", 1, 1, 1,
       480, 384},
      {"B200-180G", 180, 2250, 4500, 9000, 8000, 100, 148, 18, 1000,
       "NVIDIA HGX B200 data sheet, one of 8 GPUs: 4500 TFLOPS with sparsity"},
      {"GB200-186G", 186, 2500, 5000, 10000, 8000, 100, 148, 18, 1200,
       "NVIDIA GB200 NVL72 data sheet, a 72nd: 360 PFLOPS with sparsity; 17 TB of LPDDR5X at 18.4 TB/s", 1, 1, 1, 236, 256},
      {"B300-270G", 270, 2250, 4500, 13500, 8000, 103, 148, 18, 1100,
       "NVIDIA HGX B300 data sheet, one of 8 GPUs: fp4 108 PFLOPS dense", 1.0231, 1.0231,
       1.35},  // (1100 W / 1000 W of B200)^0.24
      {"GB300-279G", 279, 2500, 5000, 15000, 8000, 103, 148, 18, 1400,
       "NVIDIA GB300 NVL72 data sheet, a 72nd: fp4 1080 PFLOPS dense; 17 TB of LPDDR5X at 14 TB/s", 1.0377, 1.0377, 1.35, 236,
       194},  // (1400 W / 1200 W of GB200, whose peak is the same)^0.24
      {"H20-96G", 96, 148, 296, 0, 4000, 90, 78, 18, 400, "NVIDIA H20 data sheet, SXM"},
      {"L40S-48G", 48, 362, 733, 0, 864, 89, 142, 0, 350, "NVIDIA L40S data sheet: 362 TFLOPS dense, 733 with sparsity or fp8"},
      {"L4-24G", 24, 121, 242, 0, 300, 89, 58, 0, 72, "NVIDIA L4 data sheet: 242 TFLOPS with sparsity, fp8 485"},
      {"A10-24G", 24, 125, 0, 0, 600, 86, 72, 0, 150, "NVIDIA A10 data sheet: 250 TFLOPS with sparsity"},
      {"RTX4090-24G", 24, 165.2, 330.3, 0, 1008, 89, 128, 0, 450, "NVIDIA Ada architecture white paper, fp32 accumulation", 1, 1,
       1, 0, 0, "", Peers::host},
      {"RTX5090-32G", 32, 209.5, 419, 1676, 1792, 120, 170, 0, 575,
       "NVIDIA RTX Blackwell architecture white paper, fp32 accumulation", 1, 1, 1, 0, 0, "", Peers::host},
      {"RTX3090-24G", 24, 71, 0, 0, 936, 86, 82, 0, 350, "NVIDIA GA102 architecture white paper, fp16 with fp32 accumulation", 1,
       1, 1, 0, 0, "", Peers::host},
      {"V100-32G", 32, 125, 0, 0, 900, 70, 80, 6, 300, "NVIDIA V100 data sheet, V100 SXM2 32GB"},
      {"T4-16G", 16, 65, 0, 0, 320, 75, 40, 0, 70, "NVIDIA T4 data sheet"},
      {"P100-16G", 16, 21.2, 0, 0, 732, 60, 56, 4, 300,
       "NVIDIA P100 data sheet, P100 SXM2 16GB (no matrix units: fp16 vector peak)"},
      // Cards of less power for each TFLOPS than the board of their generation: its 0.24th power, as above.
      {"H100-NVL-94G", 94, 835.5, 1671, 0, 3900, 90, 132, 0, 400,
       "NVIDIA H100 data sheet, H100 NVL: 1671 TFLOPS with sparsity, fp8 3341", 0.91, 0.91, 1, 0, 0, "h100 nvl"},
      {"H100-PCIE-80G", 80, 756, 1513, 0, 2000, 90, 114, 0, 350,
       "NVIDIA H100 data sheet of 2023, H100 PCIe: 1513 TFLOPS with sparsity, fp8 3026", 0.903, 0.903, 1, 0, 0, "h100 pcie"},
      {"H200-NVL-141G", 141, 835.5, 1671, 0, 4800, 90, 132, 0, 600,
       "NVIDIA H200 data sheet, H200 NVL: 1671 TFLOPS with sparsity, fp8 3341", 1, 1, 1, 0, 0, "h200 nvl"},
      {"RTXPRO6000-SERVER-96G", 96, 503.8, 1007.6, 2015.2, 1597, 120, 188, 0, 600,
       "NVIDIA RTX PRO 6000 Blackwell Server Edition data sheet; tensor peaks as the workstation's: assumed", 1, 1, 1, 0, 0,
       "pro 6000 server"},
      {"RTXPRO6000-96G", 96, 503.8, 1007.6, 2015.2, 1792, 120, 188, 0, 600,
       "NVIDIA RTX Blackwell PRO architecture white paper: Workstation Edition, 4030 TFLOPS of fp4 with sparsity", 1, 1, 1, 0, 0,
       "pro 6000 !server"},
      {"RTX6000ADA-48G", 48, 364.2, 728.5, 0, 960, 89, 142, 0, 300,
       "NVIDIA RTX 6000 Ada data sheet: 1457 TFLOPS of fp8 with sparsity", 1, 1, 1, 0, 0, "6000 ada"},
      {"A40-48G", 48, 149.7, 0, 0, 696, 86, 84, 0, 300, "NVIDIA A40 data sheet: 299.4 TFLOPS with sparsity"},
      {"A6000-48G", 48, 154.8, 0, 0, 768, 86, 84, 0, 300, "NVIDIA RTX A6000 data sheet: 309.7 TFLOPS with sparsity"},
      {"A30-24G", 24, 165, 0, 0, 933, 80, 56, 0, 165, "NVIDIA A30 data sheet: 330 TFLOPS with sparsity", 0.942},
      // Two devices to a module, which is 383 TFLOPS, 128 GB, 3277 GB/s and 560 W; products as on MI300X: assumed.
      {"MI250X-64G", 64, 191.5, 0, 0, 1638, 0, 110, 7, 280, "AMD Instinct MI250X data sheet, one of its two dies", 0.588, 0.588,
       1, 0, 0, "", Peers::xgmi},
      // Large products against an A100's 271.2 of 312 TFLOPS: 668.4, 784.9, 1565 and 1243 (stas00/ml-engineering, maximum
      // achievable matmul FLOPS); 8 and 4 bits alike: assumed.
      {"MI300X-192G", 192, 1307.4, 2614.9, 0, 5300, 0, 304, 7, 750, "AMD Instinct MI300X data sheet, without sparsity", 0.588,
       0.588, 1, 0, 0, "", Peers::xgmi},
      {"MI325X-256G", 256, 1307.4, 2614.9, 0, 6000, 0, 304, 7, 1000, "AMD Instinct MI325X data sheet, without sparsity", 0.691,
       0.691, 1, 0, 0, "", Peers::xgmi},
      {"MI355X-288G", 288, 2516.6, 5033.2, 10066.3, 8000, 0, 256, 7, 1400, "AMD Instinct MI355X data sheet, without sparsity",
       0.715, 0.715, 1, 0, 0, "", Peers::xgmi},
      {"Gaudi3-128G", 128, 1677.7, 1677.7, 0, 3700, 0, 64, 21, 900,
       "Intel Gaudi 3 white paper, OAM: 1835 TFLOPS at 1.75 GHz, run at 1.6 (stas00/ml-engineering)", 0.853, 0.853, 1, 0, 0,
       "gaudi3|gaudi 3|hl 325l", Peers::roce},
  };
  return devices;
}

/// The entry called `name`, or none.
inline const KnownDevice* find_device(std::string_view name) {
  for (const KnownDevice& device : known_devices()) {
    if (device.name == name) return &device;
  }
  return nullptr;
}
namespace detail {

/// Whether `text`, words in lower case with a space around each, has what KnownDevice::driver asks for.
inline bool has_driver_words(std::string_view text, std::string_view wanted) {
  for (const std::string_view one : split(wanted, '|')) {
    bool all = true;
    for (const std::string_view word : split(one, ' ')) {
      const bool absent = word.starts_with('!');
      all = all && absent == (text.find(concat(" ", word.substr(absent ? 1 : 0), " ")) == std::string_view::npos);
    }
    if (all) return true;
  }
  return false;
}

}  // namespace detail

/// The entry of a GPU that its driver calls `name`: "NVIDIA H100 80GB HBM3", "Tesla V100-SXM2-32GB",
/// "NVIDIA GeForce RTX 4090", "AMD Instinct MI300X OAM". Of several of a model, that with the memory in the name, or
/// else the nearest to `bytes`. None for those that only resemble one: laptops' and Max-Q's have lower peaks.
inline const KnownDevice* device_of_driver(std::string_view name, std::int64_t bytes = 0) {
  std::string words = " ";  // " nvidia h100 80gb hbm3 "
  for (const char c : lower_case(name)) {
    const bool digit = c >= '0' && c <= '9';
    if (words.ends_with(" rtx") || (digit && words.ends_with("pro"))) words += ' ';
    words += (c >= 'a' && c <= 'z') || digit ? c : ' ';
  }
  words += ' ';
  const auto has = [&](std::string_view word) { return words.find(concat(" ", word, " ")) != std::string::npos; };
  if (has("laptop") || has("max q")) return nullptr;
  double memory = static_cast<double>(bytes) / 1073741824.0;
  for (const KnownDevice& device : known_devices()) {
    if (has(concat(device.memory_gib, "gb")) || has(concat(device.memory_gib, "g"))) memory = device.memory_gib;
  }
  const KnownDevice* found = nullptr;
  for (const KnownDevice& device : known_devices()) {
    std::string model = lower_case(device.name.substr(0, device.name.find('-')));
    if (model.starts_with("rtx")) model.erase(0, 3);
    const auto differs = [&](const KnownDevice& one) {
      const double apart = one.memory_gib - memory;
      return apart < 0 ? -apart : apart;
    };
    if (detail::has_driver_words(words, device.driver.empty() ? std::string_view{model} : device.driver) &&
        (found == nullptr || (memory > 0 && differs(device) < differs(*found))))
      found = &device;
  }
  return found;
}

/// The entry that a person calls so: its name, in any case, or as device_of_driver() takes it, such as
/// "h100", "NVIDIA H100 80GB HBM3" or "4090"; of several of a model the first. Or none.
inline const KnownDevice* device_called(std::string_view name) {
  for (const KnownDevice& device : known_devices()) {
    if (lower_case(device.name) == lower_case(name)) return &device;
  }
  const KnownDevice* const found = device_of_driver(name);
  const std::string lower = lower_case(name);
  const std::size_t end = lower.ends_with("gb") ? lower.size() - 2 : lower.ends_with("g") ? lower.size() - 1 : 0;
  const std::string_view before = std::string_view{lower}.substr(0, end);
  const std::size_t digits = before.find_last_not_of("0123456789") + 1;
  const bool other_memory = found != nullptr && digits < end && before.substr(digits) != std::to_string(found->memory_gib);
  return other_memory ? nullptr : found;
}
/// The same. @throws InputError  with the nearest name and all that exist.
inline const KnownDevice& known_device(std::string_view name) {
  if (const KnownDevice* const device = device_called(name)) return *device;
  std::vector<std::string> names;
  for (const KnownDevice& device : known_devices()) names.emplace_back(device.name);
  throw InputError(unknown_name("device", name, names));
}

/// An entry of the table as a DeviceSpec.
inline DeviceSpec spec_of(const KnownDevice& device) {
  return {.name = std::string{device.name},
          .memory = Bytes{static_cast<std::int64_t>(device.memory_gib) << 30},
          .peak = FlopsPerSecond{device.teraflops * 1e12},
          .peak_fp8 = FlopsPerSecond{device.fp8 * 1e12},
          .peak_fp4 = FlopsPerSecond{device.fp4 * 1e12},
          .memory_bandwidth = BytesPerSecond{device.gigabytes_per_second * 1e9},
          .sms = device.sms};
}

/// A device by name, such as "A100-80G". @throws InputError  as known_device().
inline DeviceSpec device_named(std::string_view name) { return spec_of(known_device(name)); }

/// The same where a machine's description names none.
inline DeviceSpec assumed_spec(const KnownDevice& device) {
  DeviceSpec spec = spec_of(device);
  spec.assumed = true;
  return spec;
}

/// NVLinks of each GPU of the usual machine around the device; 0: it has only PCI Express, or is not NVIDIA's.
inline int usual_nvlinks(const KnownDevice& device) { return device.peers == Peers::nvlink ? device.links : 0; }

/// The speeds of the usual machine around the device: those of its compute capability, or
///
/// | devices | machine | a link | PCI x16 | sockets | adapter | host memory |
/// |---|---|---|---|---|---|---|
/// | xgmi | AMD Instinct platform, EPYC 9004, 400 Gb/s | 48 | 48 | 16 | 50 | 737 |
/// | xgmi, MI250X | EPYC 7003, 200 Gb/s | 36 | 24 | 16 | 25 | 327 |
/// | roce | HLS-3: Gaudi 3, Sapphire Rapids | 25 | 48 | 22 | 75 | 491 |
/// | host | as the compute capability's, 100 Gb/s for all | | | | 12.5 | |
///
/// XGMI: RCCL, src/graph/topo.h, MI200_XGMI_WIDTH, GFX94X_XGMI_WIDTH and GFX95X_XGMI_WIDTH (the sheets say 50, 64 and
/// 76.8). The dies of a node of MI250X have eight links each, four of them to the other die of their module, and do not
/// reach each other one: a link to each of seven is assumed. Host memory: 0.8 of two sockets of 12 channels of DDR5-4800
/// (AMD EPYC 9004 data sheet), or 8 of DDR4-3200. Gaudi 3: 21 ports of 200 Gb/s inside, 3 that
/// leave the node (Intel Gaudi documentation, Network Configuration).
inline LinkSpeeds link_speeds(const KnownDevice& device) {
  const bool mi200 = device.name.starts_with("MI2");
  LinkSpeeds speeds = link_speeds(device.sm != 0 ? device.sm : mi200 ? 80 : 90);
  if (device.peers == Peers::host) speeds.network = BytesPerSecond{12.5e9};
  if (device.peers == Peers::roce) {
    speeds.nvlink = BytesPerSecond{25e9};
    speeds.network = BytesPerSecond{75e9};
  }
  if (device.peers == Peers::xgmi) {
    speeds.nvlink = BytesPerSecond{mi200 ? 36e9 : 48e9};
    speeds.socket = socket_speed("x86_64", "AuthenticAMD", 25, 17);
    speeds.host_memory = BytesPerSecond{mi200 ? 327e9 : 737e9};
  }
  return speeds;
}

}  // namespace tawpipe
