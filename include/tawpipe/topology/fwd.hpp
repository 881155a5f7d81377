// Clusters, their nodes, devices and links: names for headers that only refer to them.
// Not: templates, options and private helpers.
#pragma once

namespace tawpipe::inline v0 {

class Cluster;
class ClusterBuilder;
class DeviceGroups;
struct DeviceSpec;
struct Fabric;
struct Link;
struct LinkSpec;
struct Route;

}  // namespace tawpipe
