// What money changes in a cluster: more nodes, faster adapters, other devices; as text, and applied.
// Not: what a plan gains by it (search/plan.hpp).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/core/parse_units.hpp"
#include "tawpipe/topology/cluster.hpp"

namespace tawpipe::inline v0 {

/// Changes at once; each that is not given stays as it is.
struct ClusterChange {
  std::string cluster = {};     ///< another one, by name or file; the others are changes of that
  std::string device = {};      ///< all devices, by name; NVLinks and PCI Express are those of the usual machine around it
  BytesPerSecond network = {};  ///< of each adapter in one direction; what is above adapters changes in proportion
  int nodes = 0;
  Price price = {};  ///< of a device's hour; 0: not given

  bool operator==(const ClusterChange&) const = default;
};

/// "nodes=8", "network=800Gbps" ("800G"), "device=B200", "cluster=hgx-b200x4", and several of them, with a price:
/// "device=B200-180G,network=800Gbps,price=5.5USD". @throws InputError  naming what is wrong with it
TAWPIPE_INLINE ClusterChange parse_cluster_change(std::string_view text);

/// In words: "8 nodes, 800 Gbps adapters".
TAWPIPE_INLINE std::string name(const ClusterChange& change);

/// @throws InputError  if the cluster cannot be changed so
TAWPIPE_INLINE Cluster with_change(const Cluster& cluster, const ClusterChange& change);

/// What is usually asked: twice the nodes; the next two of 100, 200, 400 and 800 Gbit/s for each adapter, if there
/// are several nodes; the next two of A100, H100, H200, B200 and B300, if all devices are of one of them.
TAWPIPE_INLINE std::vector<ClusterChange> usual_changes(const Cluster& cluster);

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/topology/changed_links.hpp"
#include "tawpipe/topology/cluster_dimensions.hpp"
#include "tawpipe/topology/cluster_file.hpp"
#include "tawpipe/topology/devices.hpp"
#include "tawpipe/topology/link_speeds.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// Of the first node's first adapter; 0: it has none.
inline BytesPerSecond adapter_speed(const Cluster& cluster) {
  for (const Link& link : cluster.kinds().front().links) {
    if (link.kind == LinkClass::network) return link.bandwidth;
  }
  return {};
}

/// `cluster` with such devices, and NVLinks and PCI Express in proportion to those of the usual machines around both.
/// @throws InputError  if one has NVLinks and the other none
inline Cluster with_devices(const Cluster& cluster, const KnownDevice& device) {
  const KnownDevice* const now = find_device(cluster.device(Rank{0}).name);
  const Cluster changed = with_changed_devices(cluster, [&](DeviceSpec& one) { one = spec_of(device); });
  if (now == nullptr) return changed;
  const LinkSpeeds from = link_speeds(*now);
  const LinkSpeeds to = link_speeds(device);
  const int links = now->links;
  const int new_links = device.links;
  if ((links > 0) != (new_links > 0)) {
    throw InputError(concat(device.name, new_links > 0 ? " has" : " has no", " NVLinks, and ", now->name,
                            links > 0 ? " has" : " has none", "; say the whole machine: cluster=NAME or a file"));
  }
  if (now->peers != device.peers)
    throw InputError(concat("the nodes around ", device.name, " are joined by other links than those around ", now->name,
                            "; say the whole machine: cluster=NAME or a file"));
  const double nvlink = links > 0 ? new_links * to.nvlink.value() / (links * from.nvlink.value()) : 1;
  const double pcie = to.pcie / from.pcie;
  return with_changed_links(changed, [&](Link& link) {
    const double times = joins_devices(link.kind) ? nvlink : link.kind == LinkClass::pcie ? pcie : 1;
    link.bandwidth = BytesPerSecond{link.bandwidth.value() * times};
  });
}

}  // namespace detail

TAWPIPE_INLINE ClusterChange parse_cluster_change(std::string_view text) {
  ClusterChange change;
  for (const std::string_view part : split(text, ',')) {
    const std::size_t equals = std::min(part.find('='), part.size());
    const std::string_view key = part.substr(0, equals);
    const std::string_view value = part.substr(std::min(equals + 1, part.size()));
    if (value.empty() || (key != "nodes" && key != "network" && key != "device" && key != "cluster" && key != "price")) {
      throw InputError(concat(quote(one_line(std::string{part})),
                              " is no change of a cluster: write nodes=8, network=800Gbps, device=B200 or ",
                              "cluster=hgx-b200x4, several of them with commas between, and price=5.5USD"));
    }
    if (key == "nodes") change.nodes = parse_whole<int>(value, "nodes", 1, max_cluster_devices);
    if (key == "network") change.network = parse_bandwidth(value.ends_with('G') ? concat(value, "bps") : std::string{value});
    if (key == "device") change.device = known_device(value).name;
    if (key == "cluster") change.cluster = value;
    if (key == "price") change.price = parse_price(value);
  }
  if (ClusterChange{.price = change.price} == change)
    throw InputError(concat(quote(one_line(std::string{text})), " changes nothing but the price; that is --price"));
  return change;
}

TAWPIPE_INLINE std::string name(const ClusterChange& change) {
  std::vector<std::string> words;
  if (!change.cluster.empty()) words.push_back(change.cluster);
  if (!change.device.empty()) words.push_back(change.device);
  if (change.nodes > 0) words.push_back(concat(change.nodes, change.nodes == 1 ? " node" : " nodes"));
  if (change.network.value() > 0) words.push_back(concat(std::llround(change.network.value() * 8e-9), " Gbps adapters"));
  return join(words, ", ");
}

TAWPIPE_INLINE Cluster with_change(const Cluster& cluster, const ClusterChange& change) {
  Cluster changed = change.cluster.empty() ? cluster : resolve_cluster(change.cluster);
  if (!change.device.empty()) changed = detail::with_devices(changed, known_device(change.device));
  if (change.network.value() > 0) {
    const BytesPerSecond now = detail::adapter_speed(changed);
    if (!(now.value() > 0))
      throw InputError(
          concat("cluster ", quote(changed.name()), " has no adapters whose speed could change; leave out network="));
    changed = with_faster_links(changed, true, change.network / now);
  }
  if (change.nodes > 0) {
    check_cluster_size(change.nodes, changed.devices_in(NodeId{0}));
    changed = with_node_count(changed, change.nodes);
  }
  return change.cluster.empty() ? renamed(changed, concat(cluster.name(), " with ", name(change))) : changed;
}

TAWPIPE_INLINE std::vector<ClusterChange> usual_changes(const Cluster& cluster) {
  std::vector<ClusterChange> all;
  if (cluster.fabric().paths.empty() && detail::adapter_speed(cluster).value() > 0 && 2 * cluster.ranks() <= max_cluster_devices)
    all.push_back({.nodes = 2 * cluster.nodes()});
  const double adapters = detail::adapter_speed(cluster).value();
  int faster = 0;
  for (const int gigabits : {100, 200, 400, 800}) {
    const double speed = gigabits * 1e9 / 8;
    if (cluster.nodes() == 1 || adapters <= 0 || speed < 1.1 * adapters || faster++ == 2) continue;
    all.push_back({.network = BytesPerSecond{speed}});
  }
  constexpr std::array<std::string_view, 5> devices{"A100-80G", "H100-80G", "H200-141G", "B200-180G", "B300-270G"};
  const std::string& now = cluster.device(Rank{0}).name;
  const auto at = std::find(devices.begin(), devices.end(), now);
  for (auto next = at == devices.end() ? at : at + 1; next != devices.end() && next - at <= 2; ++next)
    all.push_back({.device = std::string{*next}});
  return all;
}

}  // namespace tawpipe
#endif
