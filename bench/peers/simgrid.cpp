// Runs one task graph (tg1, by name of its file) in SimGrid and prints makespan and seconds as one
// line of JSON; with a second argument also `id start end` of each task into that file.
// Not: part of the library, which never sees SimGrid.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

// SimGrid's own headers do not pass our warnings.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wall"
#pragma GCC diagnostic ignored "-Wextra"
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wshadow"
#include <simgrid/s4u.hpp>
// after s4u.hpp: it is incomplete by itself
#include <simgrid/version.h>
#pragma GCC diagnostic pop

#include "tawpipe/simulate/task_graph_text.hpp"

namespace {

namespace sg = simgrid::s4u;
using tawpipe::TaskGraph;

/// The platform: in each node a link out of and one into each device, and a router that costs
/// nothing; between the routers one link out of and one into each node. Latencies stand on the ways
/// out.
std::vector<sg::Host*> make_platform(const tawpipe::TaskGraphPlatform& platform) {
  std::vector<sg::Host*> hosts;
  auto* const world = sg::create_star_zone("world");
  const double inf = 1e18;
  for (int n = 0; n < platform.nodes; ++n) {
    const std::string node = "n" + std::to_string(n);
    auto* const zone = sg::create_full_zone(node);
    zone->set_parent(world);
    auto* const router = zone->create_router(node + "r");
    const auto* const joint =
        zone->create_link(node + "joint", inf)->set_sharing_policy(sg::Link::SharingPolicy::FATPIPE)->seal();
    std::vector<const sg::Link*> out;
    std::vector<const sg::Link*> in;
    std::vector<sg::Host*> own;
    for (int k = 0; k < platform.devices_per_node; ++k) {
      const std::string device = node + "d" + std::to_string(k);
      own.push_back(zone->create_host(device, 1.0));
      out.push_back(
          zone->create_link(device + "o", platform.intra_bandwidth.value())->set_latency(platform.intra_latency_s)->seal());
      in.push_back(zone->create_link(device + "i", platform.intra_bandwidth.value())->seal());
    }
    for (std::size_t a = 0; a < own.size(); ++a) {
      for (std::size_t b = 0; b < own.size(); ++b) {
        if (a == b) continue;
        zone->add_route(own[a]->get_netpoint(), own[b]->get_netpoint(), nullptr, nullptr,
                        {sg::LinkInRoute(out[a]), sg::LinkInRoute(in[b])}, false);
      }
      zone->add_route(own[a]->get_netpoint(), router, nullptr, nullptr, {sg::LinkInRoute(joint)}, true);
    }
    const auto* const leave =
        world->create_link(node + "o", platform.inter_bandwidth.value())->set_latency(platform.inter_latency_s)->seal();
    const auto* const enter = world->create_link(node + "i", platform.inter_bandwidth.value())->seal();
    world->add_route(zone->get_netpoint(), nullptr, router, nullptr, {sg::LinkInRoute(leave)}, false);
    world->add_route(nullptr, zone->get_netpoint(), nullptr, router, {sg::LinkInRoute(enter)}, false);
    zone->seal();
    hosts.insert(hosts.end(), own.begin(), own.end());
  }
  world->seal();
  return hosts;
}

/// Activities are made when they are ready: declaring them all at once takes time quadratic in
/// their number.
class Run {
 public:
  Run(const TaskGraph& graph, std::vector<sg::Host*> hosts)
      : graph_{graph}, hosts_{std::move(hosts)}, waits_(graph.tasks()), start(graph.tasks()), end(graph.tasks()) {
    held_.resize(graph.tasks());
    begin_.assign(graph.tasks() + 2, 0);
    for (std::size_t t = 0; t < graph.tasks(); ++t) {
      waits_[t] = graph.dependencies(t).size();
      for (const auto earlier : graph.dependencies(t)) ++begin_[static_cast<std::size_t>(earlier) + 2];
    }
    for (std::size_t t = 2; t < begin_.size(); ++t) begin_[t] += begin_[t - 1];
    successors_.resize(begin_.back());
    for (std::size_t t = 0; t < graph.tasks(); ++t) {
      for (const auto earlier : graph.dependencies(t)) {
        successors_[begin_[static_cast<std::size_t>(earlier) + 1]++] = static_cast<std::uint32_t>(t);
      }
    }
    sg::Activity::on_completion_cb([this](const sg::Activity& activity) {
      const auto tag = reinterpret_cast<std::uintptr_t>(activity.get_data<void>());
      if (tag != 0) finish(tag - 1);
    });
  }

  void go() {
    for (std::size_t t = 0; t < graph_.tasks(); ++t) {
      if (waits_[t] == 0) begin(t);
    }
    sg::Engine::get_instance()->run();
  }

 private:
  const TaskGraph& graph_;
  std::vector<sg::Host*> hosts_;
  std::vector<std::size_t> waits_;

 public:
  std::vector<double> start;
  std::vector<double> end;
  std::size_t ended = 0;

 private:
  void begin(std::size_t task) {
    start[task] = sg::Engine::get_clock();
    auto* const host = hosts_[static_cast<std::size_t>(graph_.device(task))];
    void* const tag = reinterpret_cast<void*>(static_cast<std::uintptr_t>(task + 1));
    if (graph_.amount(task) <= 0 && graph_.is_compute(task)) {
      finish(task);
    } else if (graph_.is_compute(task)) {
      const auto exec = sg::Exec::init()->set_flops_amount(graph_.amount(task))->set_host(host);
      exec->set_data(tag);
      exec->start();
      held_[task] = exec;
    } else {
      const auto comm = sg::Comm::sendto_init(host, hosts_[static_cast<std::size_t>(graph_.destination(task))]);
      comm->set_payload_size(static_cast<std::uint64_t>(graph_.amount(task)));
      comm->set_data(tag);
      comm->start();
      held_[task] = comm;
    }
  }
  void finish(std::size_t task) {
    end[task] = sg::Engine::get_clock();
    ++ended;
    ended_last_ = std::move(held_[task]);  // not to be let go within its own signal
    for (auto i = begin_[task]; i < begin_[task + 1]; ++i) {
      if (--waits_[successors_[i]] == 0) begin(successors_[i]);
    }
  }

  std::vector<sg::ActivityPtr> held_;  ///< [task] SimGrid forgets activities without a reference
  sg::ActivityPtr ended_last_;
  std::vector<std::size_t> begin_;
  std::vector<std::uint32_t> successors_;
};

}  // namespace

int main(int argc, char** argv) {
  // The plain fluid model, recomputed in full: the default, Lazy, is wrong when several flows start
  // at one instant.
  std::vector<std::string> words = {argv[0],
                                    "--cfg=network/model:CM02",
                                    "--cfg=network/optim:Full",
                                    "--cfg=cpu/optim:Full",
                                    "--cfg=network/TCP-gamma:1e30",
                                    "--cfg=network/crosstraffic:0",
                                    "--cfg=network/weight-S:0",
                                    "--cfg=surf/precision:1e-10",
                                    "--log=root.thres:error"};
  std::vector<char*> flags;
  for (auto& word : words) flags.push_back(word.data());
  int flag_count = static_cast<int>(flags.size());
  flags.push_back(nullptr);
  sg::Engine engine{&flag_count, flags.data()};
  try {
    if (argc < 2) throw tawpipe::InputError("usage: simgrid GRAPH.tg [TIMES]");
    const TaskGraph graph = tawpipe::read_task_graph(argv[1]);
    Run run{graph, make_platform(graph.platform)};
    const std::clock_t begin = std::clock();  // processor time, as bench/engine.cpp: there is one thread
    run.go();
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    if (run.ended != graph.tasks()) throw tawpipe::InputError("some tasks never ended");
    const double makespan = run.end.empty() ? 0 : *std::max_element(run.end.begin(), run.end.end());
    std::printf("{\"simulator\": \"SimGrid %d.%d Full\", \"tasks\": %zu, \"seconds\": %.6f, \"makespan_s\": %.12f}\n",
                SIMGRID_VERSION_MAJOR, SIMGRID_VERSION_MINOR, graph.tasks(), seconds, makespan);
    if (argc > 2) {
      std::FILE* const file = std::fopen(argv[2], "w");
      if (file == nullptr) throw tawpipe::InputError("the times cannot be written");
      for (std::size_t t = 0; t < graph.tasks(); ++t) std::fprintf(file, "%zu %.12f %.12f\n", t, run.start[t], run.end[t]);
      std::fclose(file);
    }
    return 0;
  } catch (const tawpipe::Error& error) {
    std::fprintf(stderr, "simgrid: %s\n", error.what());
    return 2;
  }
}
