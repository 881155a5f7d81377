// Walks the elements of NCCL's topology XML and builds a graph from them.
// Not: public; topology/nccl_topology_xml.hpp is the public interface.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <pugixml.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/topology/devices.hpp"
#include "tawpipe/topology/link_speeds.hpp"
#include "tawpipe/topology/node_graph.hpp"

namespace tawpipe::inline v0 {

/// Settings for what NCCL's XML may leave open.
struct NcclXmlOptions {
  /// default: by the GPU's PCI device id, otherwise assumed by its `sm`, otherwise A100-80G
  std::optional<DeviceSpec> device;
  /// NVLinks of each GPU to an NVSwitch, for hint files, which leave NVLink to detection; 0: none.
  int nvlinks = 0;
};

namespace detail {

/// The line number, from 1, of a byte offset.
inline std::size_t line_at(std::string_view text, std::ptrdiff_t offset) {
  const auto end = std::clamp<std::ptrdiff_t>(offset, 0, static_cast<std::ptrdiff_t>(text.size()));
  return 1 + static_cast<std::size_t>(std::count(text.begin(), text.begin() + end, '\n'));
}

class NcclXmlReader {
 public:
  NcclXmlReader(std::string_view text, std::string_view source, const NcclXmlOptions& options)
      : text_{text}, source_{source}, options_{options} {}

  NodeGraph read(const pugi::xml_node& system) {
    if (const std::string_view version = system.attribute("version").value(); !version.empty() && version != "1") {
      throw fail(system, concat("version ", quote(version), " is unknown; expected 1"));
    }
    find_gpus(system, 0);
    if (gpus_.empty()) throw InputError(concat(source_, " has no GPU: no <gpu> and no <pci> of class 0x03"));
    number_gpus();
    for (const auto& cpu : system.children("cpu")) {
      const int vertex = graph_.add_cpu(concat("CPU", cpus_.size()));
      cpus_.push_back({vertex, socket_speed(cpu.attribute("arch").value(), cpu.attribute("vendor").value(),
                                            number(cpu, "familyid", 0, 0, 1 << 20), number(cpu, "modelid", 0, 0, 1 << 20))});
      read_children(cpu, vertex, vertex);
    }
    for (const auto& gpu : gpus_) {
      if (!gpu.placed) throw fail(gpu.pci, "this GPU stands outside any <cpu>");
    }
    for (std::size_t a = 0; a < cpus_.size(); ++a) {
      for (std::size_t b = a + 1; b < cpus_.size(); ++b) {
        const auto bandwidth = std::min(cpus_[a].socket, cpus_[b].socket);
        graph_.connect(cpus_[a].vertex, cpus_[b].vertex, LinkClass::socket, {bandwidth, speeds_.hop_latency});
      }
    }
    connect_nvlinks();
    connect_pcilinks();
    return std::move(graph_);
  }

 private:
  struct Gpu {
    pugi::xml_node pci;
    pugi::xml_node gpu;
    std::string busid;
    int dev;
    int sm = 0;
    int vertex = -1;
    int cpu = -1;
    bool placed = false;
    int to_switch = 0;                                 ///< NVLinks to NVSwitches
    std::vector<std::pair<std::string, int>> peers{};  ///< NVLinks to other GPUs: bus id, count
  };
  struct Cpu {
    int vertex;
    BytesPerSecond socket;
  };
  struct Switch {
    pugi::xml_node pci;
    int vertex;
  };

  static constexpr int deepest = 32;

  InputError fail(const pugi::xml_node& node, std::string_view message) const {
    return InputError(
        one_line(concat(source_, ", line ", line_at(text_, node.offset_debug()), ", <", node.name(), ">: ", message)));
  }

  /// An integer attribute; `fallback` if it is missing or empty.
  int number(const pugi::xml_node& node, const char* key, int fallback, int least, int most) const {
    const std::string_view value = node.attribute(key).value();
    if (value.empty()) return fallback;
    try {
      return parse_whole(value, key, least, most);
    } catch (const InputError& error) {
      throw fail(node, error.what());
    }
  }

  static bool has_class(const pugi::xml_node& node, std::string_view prefix) {
    return std::string_view{node.attribute("class").value()}.substr(0, prefix.size()) == prefix;
  }
  static bool is_gpu(const pugi::xml_node& pci) { return pci.child("gpu") || has_class(pci, "0x03"); }
  static bool is_nic(const pugi::xml_node& pci) {
    return pci.child("nic") || has_class(pci, "0x0200") || has_class(pci, "0x0207");
  }

  /// The slot's speed. As in NCCL, a missing or unknown rate means gen 3, and a missing or zero
  /// width 16.
  BytesPerSecond slot_speed(const pugi::xml_node& pci) const {
    const std::string_view value = pci.attribute("link_speed").value();
    std::string_view unit = value;
    std::optional<double> rate = 8;
    if (!value.empty() && !value.starts_with("Unknown")) {
      rate = take_number<double>(unit);
      constexpr double rates[] = {2.5, 5, 8, 16, 32, 64};
      const bool known = rate && std::find(std::begin(rates), std::end(rates), *rate) != std::end(rates);
      if (!known || !unit.starts_with(" GT/s")) {
        throw fail(pci, concat("link_speed=", quote(value), " is unknown; expected 2.5, 5, 8, 16, 32 or 64 GT/s"));
      }
    }
    const int width = number(pci, "link_width", 16, 0, 32);
    return pcie_speed(*rate, width == 0 ? 16 : width);
  }

  void find_gpus(const pugi::xml_node& parent, int depth) {
    if (depth > deepest) throw fail(parent, concat("nested deeper than ", deepest, " levels"));
    for (const auto& pci : parent.children()) {
      if (std::string_view{pci.name()} == "cpu") find_gpus(pci, depth + 1);
      if (std::string_view{pci.name()} != "pci") continue;
      if (!is_gpu(pci)) {
        find_gpus(pci, depth + 1);
        continue;
      }
      const auto gpu = pci.child("gpu");
      gpus_.push_back({pci, gpu, pci.attribute("busid").value(), number(gpu, "dev", -1, -1, 1 << 20)});
    }
  }

  /// The table's entry: by PCI device id, or assumed by compute capability, or an A100.
  std::pair<const KnownDevice&, bool> table_entry(const Gpu& gpu) const {
    struct Id {
      std::string_view device;
      std::string_view name;
    };
    constexpr Id ids[] = {{"0x20b0", "A100-40G"},       {"0x20b2", "A100-80G"},
                          {"0x20b5", "A100-80G"},       {"0x20f1", "A100-40G"},
                          {"0x20f3", "A800-80G"},       {"0x2330", "H100-80G"},
                          {"0x2335", "H200-141G"},      {"0x2342", "GH200-96G"},
                          {"0x2901", "B200-180G"},      {"0x26b9", "L40S-48G"},
                          {"0x2684", "RTX4090-24G"},    {"0x2b85", "RTX5090-32G"},
                          {"0x2204", "RTX3090-24G"},    {"0x1db5", "V100-32G"},
                          {"0x1eb8", "T4-16G"},         {"0x15f9", "P100-16G"},
                          {"0x2321", "H100-NVL-94G"},   {"0x2331", "H100-PCIE-80G"},
                          {"0x233b", "H200-NVL-141G"},  {"0x2bb5", "RTXPRO6000-SERVER-96G"},
                          {"0x2bb1", "RTXPRO6000-96G"}, {"0x26b1", "RTX6000ADA-48G"},
                          {"0x2235", "A40-48G"},        {"0x2230", "A6000-48G"},
                          {"0x20b7", "A30-24G"}};
    const std::string_view device = gpu.pci.attribute("device").value();
    for (const auto& known : ids) {
      if (known.device == device) return {known_device(known.name), false};
    }
    const int sm = number(gpu.gpu, "sm", 0, 0, 999);
    if (sm == 0) return {known_device("A100-80G"), true};
    std::string all;
    for (const auto& known : known_devices()) {
      if (known.sm == 0) continue;
      if (known.sm == sm || (known.name == "B200-180G" && sm / 10 == 10)) return {known, true};
      all += concat(all.empty() ? "" : ", ", known.sm);
    }
    if (options_.device) return {known_device("A100-80G"), true};
    throw fail(gpu.gpu, concat("sm=\"", sm, "\" is no GPU of the table (", all, "); name the device"));
  }

  void number_gpus() {
    std::stable_sort(gpus_.begin(), gpus_.end(), [](const Gpu& a, const Gpu& b) { return a.dev < b.dev; });
    for (std::size_t i = 0; i < gpus_.size(); ++i) {
      auto& gpu = gpus_[i];
      const auto [known, assumed] = table_entry(gpu);
      const int sm = number(gpu.gpu, "sm", 0, 0, 999);
      gpu.sm = sm == 0 ? known.sm : sm;
      gpu.vertex = graph_.add_device(concat("GPU", i), options_.device ? *options_.device
                                                       : assumed       ? assumed_spec(known)
                                                                       : spec_of(known));
    }
  }

  void read_children(const pugi::xml_node& parent, int above, int cpu) {
    for (const auto& child : parent.children()) {
      const std::string_view name = child.name();
      if (name == "nic") read_nic(child, above, nullptr);
      if (name != "pci") continue;
      const LinkSpec slot{slot_speed(child), speeds_.hop_latency};
      if (is_gpu(child)) {
        place_gpu(child, above, cpu, slot);
      } else if (is_nic(child)) {
        place_nic(child, above, slot);
      } else if (child.child("pci")) {
        const int vertex = graph_.add_switch(concat("PCI ", child.attribute("busid").value()));
        graph_.connect(vertex, above, LinkClass::pcie, slot);
        switches_.push_back({child, vertex});
        read_children(child, vertex, cpu);
      }
    }
  }

  void place_gpu(const pugi::xml_node& pci, int above, int cpu, LinkSpec slot) {
    const auto place = std::find_if(gpus_.begin(), gpus_.end(), [&](const Gpu& gpu) { return gpu.pci == pci; });
    place->placed = true;
    place->cpu = cpu;
    slot.latency = speeds_.device_pcie_latency;
    graph_.connect(place->vertex, above, LinkClass::pcie, slot);
    for (const auto& c2c : place->gpu.children("c2c")) {
      const int megabytes = number(c2c, "bw", 0, 0, 1 << 30);
      const int count = number(c2c, "count", 1, 1, 1024);
      if (megabytes == 0) throw fail(c2c, "bw is missing; expected megabytes a second");
      const BytesPerSecond bandwidth{1e6 * megabytes * count};
      graph_.connect(place->vertex, cpu, LinkClass::nvlink, {bandwidth, speeds_.nvlink_latency});
    }
  }

  /// A single port is attached to the slot itself; several ports share it through a switch.
  void place_nic(const pugi::xml_node& pci, int above, LinkSpec slot) {
    const auto nic = pci.child("nic");
    const auto nets = std::distance(nic.children("net").begin(), nic.children("net").end());
    if (nets <= 1) {
      read_nic(nic, above, &slot);
      return;
    }
    const int shared = graph_.add_switch(concat("NIC ", pci.attribute("busid").value()));
    graph_.connect(shared, above, LinkClass::pcie, slot);
    read_nic(nic, shared, nullptr);
  }

  /// @param slot  the path to the only port; null if a port is limited only by its own speed.
  void read_nic(const pugi::xml_node& nic, int above, const LinkSpec* slot) {
    const auto add = [&](std::string name, BytesPerSecond speed) {
      const int adapter = graph_.add_adapter(std::move(name), {speed, speeds_.network_latency});
      graph_.connect(adapter, above, LinkClass::pcie, slot != nullptr ? *slot : LinkSpec{speed, speeds_.hop_latency});
    };
    for (const auto& net : nic.children("net")) {
      // Megabits a second; as in NCCL, an unknown speed means 10000.
      const int megabits = number(net, "speed", 0, -1'000'000'000, 1'000'000'000);
      const std::string_view name = net.attribute("name").value();
      add(name.empty() ? concat("NIC", adapters_) : std::string{name},
          BytesPerSecond{1.25e5 * (megabits <= 0 ? 10000 : megabits)});
      ++adapters_;
    }
    // A hint names only the adapter's slot, which then limits its speed.
    if (!nic.child("net") && slot != nullptr) add(concat("NIC", adapters_++), slot->bandwidth);
  }

  void connect_nvlinks() {
    for (auto& gpu : gpus_) {
      for (const auto& nvlink : gpu.gpu.children("nvlink")) read_nvlink(gpu, nvlink);
      if (options_.nvlinks > 0 && !gpu.gpu.child("nvlink")) gpu.to_switch = options_.nvlinks;
    }
    int nvswitch = -1;
    for (auto& gpu : gpus_) {
      const BytesPerSecond one = nvlink_speed(gpu.sm);
      if (gpu.to_switch > 0) {
        if (nvswitch < 0) nvswitch = graph_.add_switch("NVSwitch");
        graph_.connect(gpu.vertex, nvswitch, LinkClass::nvlink,
                       {one * static_cast<double>(gpu.to_switch), speeds_.nvlink_latency});
      }
      for (const auto& peer : gpus_) {
        if (peer.vertex <= gpu.vertex) continue;
        const int count = std::max(links_between(gpu, peer), links_between(peer, gpu));
        if (count == 0) continue;
        graph_.connect(gpu.vertex, peer.vertex, LinkClass::nvlink,
                       {one * static_cast<double>(count), speeds_.nvlink_latency * 2});
      }
    }
  }

  void read_nvlink(Gpu& gpu, const pugi::xml_node& nvlink) {
    const int count = number(nvlink, "count", 1, 1, 1024);
    const std::string_view kind = nvlink.attribute("tclass").value();
    if (kind == "0x068000") {
      gpu.to_switch += count;
    } else if (kind == "0x068001") {
      graph_.connect(gpu.vertex, gpu.cpu, LinkClass::nvlink,
                     {nvlink_speed(gpu.sm) * static_cast<double>(count), speeds_.nvlink_latency});
    } else if (kind.substr(0, 4) == "0x03") {
      gpu.peers.emplace_back(nvlink.attribute("target").value(), count);
    } else {
      throw fail(nvlink,
                 concat("tclass=", quote(kind), " is unknown; expected 0x068000 (NVSwitch), 0x030200 (GPU) or 0x068001 (CPU)"));
    }
  }

  static int links_between(const Gpu& from, const Gpu& to) {
    int count = 0;
    for (const auto& [busid, links] : from.peers) count += busid == to.busid ? links : 0;
    return count;
  }

  /// Two PCI switches that are parts of one chip: NCCL gives them its speed within a device, 5000
  /// GB/s.
  void connect_pcilinks() {
    for (const auto& from : switches_) {
      for (const auto& link : from.pci.children("pcilink")) {
        const std::string_view target = link.attribute("target").value();
        for (const auto& to : switches_) {
          if (to.vertex == from.vertex || to.pci.attribute("busid").value() != target) continue;
          graph_.connect(from.vertex, to.vertex, LinkClass::pcie, {BytesPerSecond{5e12}, speeds_.hop_latency});
        }
      }
    }
  }

  std::string_view text_;
  std::string_view source_;
  const NcclXmlOptions& options_;
  LinkSpeeds speeds_;  // latencies only: every bandwidth is in the file
  NodeGraph graph_;
  std::vector<Gpu> gpus_;
  std::vector<Cpu> cpus_;
  std::vector<Switch> switches_;
  int adapters_ = 0;
};

}  // namespace detail

}  // namespace tawpipe
