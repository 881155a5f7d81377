// A cluster from `nvidia-smi topo -m`, and the traffic on its links. Needs tawpipe::files.
#include <cstdio>
#include <tawpipe/analysis/traffic.hpp>
#include <tawpipe/model/models.hpp>
#include <tawpipe/schedules/shipped.hpp>
#include <tawpipe/topology/cluster_file.hpp>

int main() {
  const char* const matrix =
      "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\n"
      "GPU0\t X \tPIX\tSYS\tSYS\t0-15\t0\n"
      "GPU1\tPIX\t X \tSYS\tSYS\t0-15\t0\n"
      "GPU2\tSYS\tSYS\t X \tPIX\t16-31\t1\n"
      "GPU3\tSYS\tSYS\tPIX\t X \t16-31\t1\n";
  const tawpipe::Cluster cluster = tawpipe::cluster_from_text(matrix, "my workstation");
  const tawpipe::Workload work{tawpipe::models::named("llama-12x512"),
                               {.sequence = 1024, .microbatch_size = 1, .global_batch = 8}};
  const tawpipe::Registry schedules = tawpipe::shipped_schedules();
  for (const char* name : {"tawpipe", "weipipe", "fsdp", "1f1b"}) {
    const auto schedule = schedules.build(name, {.workload = work, .nodes = cluster.groups_by_node(), .options = {}});
    const tawpipe::Traffic traffic = tawpipe::traffic(schedule, cluster);
    const auto megabytes = [&](tawpipe::LinkClass kind) {
      return static_cast<double>(traffic.link_bytes[static_cast<std::size_t>(kind)]) * 1e-6;
    };
    std::printf("%-8s PCIe %6.0f MB, between sockets %6.0f MB\n", name, megabytes(tawpipe::LinkClass::pcie),
                megabytes(tawpipe::LinkClass::socket));
  }
}
