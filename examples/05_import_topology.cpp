// A cluster from what a machine says about itself: the output of `nvidia-smi topo -m`, four such nodes, and the way between
// two of its devices. Files are read by resolve_cluster("topo.txt*4"), NCCL's XML and JSON alike.
#include <cstdio>
#include <string>

#include "tawpipe/tawpipe.hpp"
#include "tawpipe/topology/cluster_file.hpp"  // needs Boost.Graph, JSON and pugixml, so it is not in tawpipe.hpp

namespace {

const char* const topo = R"(
        GPU0    GPU1    GPU2    GPU3    NIC0    CPU Affinity
GPU0     X      NV4     SYS     SYS     PXB     0-15
GPU1    NV4      X      SYS     SYS     PXB     0-15
GPU2    SYS     SYS      X      NV4     SYS     16-31
GPU3    SYS     SYS     NV4      X      SYS     16-31
NIC0    PXB     PXB     SYS     SYS      X
)";

void print_route(const tawpipe::Cluster& cluster, int from, int to) {
  const auto route = cluster.route(tawpipe::Rank{from}, tawpipe::Rank{to});
  std::string links;
  double slowest = 0;
  for (const auto id : route.links) {
    const auto& link = cluster.link(id);
    links += (links.empty() ? "" : " > ") + std::string{name(link.kind)};
    slowest = slowest == 0 ? link.bandwidth.value() : std::min(slowest, link.bandwidth.value());
  }
  std::printf("%2d to %2d: %5.1f GB/s, %4.1f us, by %s\n", from, to, slowest / 1e9, 1e6 * tawpipe::to_seconds(route.latency),
              links.c_str());
}

}  // namespace

int main() {
  const auto cluster = tawpipe::cluster_from_text(topo, "topo.txt", 4);
  std::printf("%d nodes, %d devices\n", cluster.nodes(), cluster.ranks());
  print_route(cluster, 0, 1);  // over NVLink
  print_route(cluster, 0, 2);  // over both sockets
  print_route(cluster, 0, 4);  // to the next node, by the adapter
  print_route(cluster, 2, 6);  // the same from the far socket

  // The exact dump, which --cluster and cluster_from_json() take back.
  const std::string json = tawpipe::write_cluster_json(cluster);
  std::printf("as JSON the same cluster: %s\n",
              tawpipe::cluster_from_json(json).route(tawpipe::Rank{2}, tawpipe::Rank{6}).latency ==
                      cluster.route(tawpipe::Rank{2}, tawpipe::Rank{6}).latency
                  ? "yes"
                  : "no");
}
