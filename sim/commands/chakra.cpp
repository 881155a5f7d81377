// Import and export of Chakra execution traces. Not: their bytes (modules/chakra.cpp).
#include "chakra.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "../load_module.hpp"
#include "exchange.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/report/chakra_export.hpp"
#include "tawpipe/report/chakra_import.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/schedule/expand.hpp"
#include "tawpipe/search/known_times.hpp"
#include "tawpipe/search/predict.hpp"

namespace tawpipe::sim {

namespace {

const ChakraCodec& chakra_codec() {
  void* const loaded = load_module({.name = "chakra",
                                    .wanted_by = "a Chakra trace",
                                    .library = "protobuf",
                                    .way_out = "; install protobuf (on Debian: libprotobuf-dev protobuf-compiler to build, "
                                               "libprotobuf-lite32 to run)"});
  const auto* const found = static_cast<const ChakraCodec*>(::dlsym(loaded, "tawpipe_chakra_codec"));
  if (found == nullptr) throw InputError("tawpipe-chakra.so is not tawpipe's; install both from one build");
  return *found;
}

struct TracePath {
  std::string prefix;  ///< NAME of NAME.3.et
  int rank = 0;
};

std::optional<TracePath> trace_path(std::string_view path) {
  if (!path.ends_with(".et")) return std::nullopt;
  path.remove_suffix(3);
  const auto dot = path.rfind('.');
  if (dot == std::string_view::npos || dot + 1 == path.size() || path.size() - dot > 8) return std::nullopt;
  const auto rank = to_number<int>(path.substr(dot + 1));
  if (!rank || *rank < 0) return std::nullopt;
  return TracePath{std::string{path.substr(0, dot)}, *rank};
}

/// The ranks that have a file.
std::set<int> ranks_with_files(const std::string& prefix) {
  namespace fs = std::filesystem;
  const fs::path whole{prefix};
  std::set<int> ranks;
  std::error_code error;
  const fs::path folder = whole.has_parent_path() ? whole.parent_path() : fs::path{"."};
  for (fs::directory_iterator one{folder, error}, end; !error && one != end; one.increment(error)) {
    const auto found = trace_path(one->path().filename().string());
    if (found && found->prefix == whole.filename().string()) ranks.insert(found->rank);
  }
  return ranks;
}

/// Bytes a second and latency of the path from one device to another, with the narrowest link
/// shared by those that use it.
struct Way {
  double bandwidth = 0;
  double latency_s = 0;
};
Way way_between(const Cluster& cluster, Rank from, Rank to, int step, int devices) {
  Way way;
  LinkId narrow = none<LinkId>;
  const auto narrowest = [&](const Route& route) {
    LinkId found = none<LinkId>;
    for (const LinkId link : route.links) {
      if (found == none<LinkId> || cluster.link(link).bandwidth.value() < cluster.link(found).bandwidth.value()) found = link;
    }
    return found;
  };
  const Route route = cluster.route(from, to);
  way.latency_s = to_seconds(route.latency);
  narrow = narrowest(route);
  if (narrow == none<LinkId>) return way;
  int sharing = 1;
  for (int device = 1; step > 0 && device < devices; ++device) {
    const Rank other{number(from) + device};
    if (narrowest(cluster.route(other, Rank{number(other) + step})) == narrow) ++sharing;
  }
  way.bandwidth = cluster.link(narrow).bandwidth.value() / sharing;
  return way;
}

/// ASTRA-sim's analytical network: devices of a node on one switch, nodes on another. Empty: it
/// cannot express the cluster.
std::string network_yaml(const Cluster& cluster, int ranks) {
  const int devices = cluster.devices_in(NodeId{0});
  for (int node = 0; node < cluster.nodes(); ++node) {
    if (cluster.devices_in(NodeId{node}) != devices) return {};
  }
  if (ranks != cluster.ranks()) return {};
  std::vector<std::pair<int, Way>> dimensions;
  if (devices > 1) dimensions.emplace_back(devices, way_between(cluster, Rank{0}, Rank{1}, 0, devices));
  if (cluster.nodes() > 1) {
    dimensions.emplace_back(cluster.nodes(), way_between(cluster, Rank{0}, Rank{devices}, devices, devices));
  }
  if (dimensions.empty()) return {};
  std::string lines[4];
  for (const auto& [count, way] : dimensions) {
    if (way.bandwidth <= 0) return {};
    const char* const comma = lines[0].empty() ? "" : ", ";
    lines[0] += fmt::format("{}Switch", comma);
    lines[1] += fmt::format("{}{}", comma, count);
    lines[2] += fmt::format("{}{:.6g}", comma, way.bandwidth / 1e9);
    lines[3] += fmt::format("{}{:.6g}", comma, way.latency_s * 1e9);
  }
  return fmt::format("topology: [ {} ]\nnpus_count: [ {} ]\nbandwidth: [ {} ]  # GB/s\nlatency: [ {} ]  # ns\n", lines[0],
                     lines[1], lines[2], lines[3]);
}

std::string system_json(const Cluster& cluster, std::size_t dimensions) {
  const DeviceSpec& device = cluster.device(Rank{0});
  nlohmann::ordered_json json{
      {"scheduling-policy", "LIFO"}, {"endpoint-delay", 10}, {"active-chunks-per-dimension", 1}, {"preferred-dataset-splits", 1}};
  for (const char* const kind : {"all-reduce", "all-gather", "reduce-scatter", "all-to-all"}) {
    json[concat(kind, "-implementation")] = std::vector<std::string>(dimensions, "ring");
  }
  json["collective-optimization"] = "localBWAware";
  json["local-mem-bw"] = device.memory_bandwidth.value() / 1e9;
  json["boost-mode"] = 0;
  json["roofline-enabled"] = 0;
  json["peak-perf"] = device.peak.value() / 1e12;
  return json.dump(4) + "\n";
}

std::string losses_text(const ChakraLosses& losses) {
  std::string text;
  const auto line = [&](std::int64_t tasks, std::string_view what) {
    if (tasks > 0) text += fmt::format("note: {} {}\n", format_count(tasks), what);
  };
  line(losses.reduces, "reductions to one rank: Chakra has them (comm_type 1), ASTRA-sim refuses them");
  line(losses.broadcasts, "broadcasts: ASTRA-sim replays their duration and does not simulate them");
  line(losses.repeated, "tasks of several messages in a row: each is one message of their total size");
  line(losses.pair_sizes, "all_to_all with a size for each pair: they are even blocks here");
  line(losses.far_waits, "waits for a task of other ranks only: each is a message of one byte");
  return text + "note: durations are whole microseconds; buffers and memory are not said; of the lanes only the order is\n";
}

}  // namespace

bool is_chakra_path(std::string_view path) { return trace_path(path).has_value(); }

ChakraTrace read_chakra(const std::string& path, const std::string& groups) {
  const TracePath given = trace_path(path).value();
  const std::set<int> ranks = ranks_with_files(given.prefix);
  const auto file_of = [&](int rank) { return fmt::format("{}.{}.et", given.prefix, rank); };
  if (ranks.empty()) read_text(path, "Chakra trace");  // reports why it cannot be read
  const int count = ranks.empty() ? 0 : *ranks.rbegin() + 1;
  for (int rank = 0; rank < count; ++rank) {
    if (ranks.contains(rank)) continue;
    throw InputError(concat(one_line(file_of(rank)), " is missing: the trace has files of ", ranks.size(),
                            " ranks, the last of rank ", count - 1));
  }
  const ChakraCodec& codec = chakra_codec();
  ChakraTrace trace;
  for (int rank = 0; rank < count; ++rank) {
    const std::string file = file_of(rank);
    trace.ranks.push_back(codec.parse(read_text(file, "Chakra trace"), one_line(file)));
  }
  const std::string groups_file = groups.empty() ? given.prefix + ".json" : groups;
  std::error_code error;
  if (!groups.empty() || std::filesystem::exists(groups_file, error)) {
    trace.groups = parse_chakra_groups(read_text(groups_file, "file of process groups", 64), one_line(groups_file));
  }
  return trace;
}

int run_chakra_export(const Request& request, const std::string& prefix) {
  const ChakraCodec& codec = chakra_codec();
  std::optional<Prediction> prediction;
  std::optional<Problem> problem;
  if (!request.schedule_file.empty()) {
    FileProblem file = load_schedule_file(request);
    require_runnable(file.schedule);
    problem = std::move(file.problem);
    prediction = file.times.empty() ? predict(*problem, std::move(file.schedule))
                                    : predict(*problem, std::move(file.schedule), file.times);
  } else {
    const ScheduleChoice choice = named_schedule(request, " or --schedule-file");
    problem = resolve(request, false);
    problem->schedules = {choice};
    prediction = predict(*problem);
  }
  if (has_bodies(prediction->schedule)) prediction = predict(*problem, expand_bodies(prediction->schedule).schedule);
  const Schedule& schedule = prediction->schedule;

  std::optional<OutputFile> file;
  const auto finish = [&] {
    if (file) file->finish();
    file.reset();
  };
  std::int32_t last = -1;
  std::int64_t nodes = 0;
  const auto open = [&](std::int32_t rank) {
    while (last < rank) {
      finish();
      file.emplace(fmt::format("{}.{}.et", prefix, ++last));
      (*file)(codec.head());
    }
  };
  const ChakraLosses losses = export_chakra(schedule, prediction->timeline, [&](Rank rank, const ChakraNode& node) {
    open(number(rank));
    ++nodes;
    (*file)(codec.bytes(node));
  });
  open(schedule.ranks() - 1);
  finish();
  const std::string groups = chakra_groups_json(schedule);
  write_output(prefix + ".json", groups);
  const std::string network = network_yaml(problem->cluster, schedule.ranks());
  if (!network.empty()) {
    write_output(prefix + ".network.yml", network);
    const auto dimensions = static_cast<std::size_t>(std::count(
                                network.begin(), network.begin() + static_cast<std::ptrdiff_t>(network.find('\n')), ',')) +
                            1;
    write_output(prefix + ".system.json", system_json(problem->cluster, dimensions));
  }
  std::string text = fmt::format(
      "{0}.0.et to {0}.{1}.et: {2} nodes, makespan {3}\n{0}.json: {4} process groups (ASTRA-sim: "
      "--comm-group-configuration)\n",
      one_line(prefix), schedule.ranks() - 1, format_count(nodes), format_duration(prediction->summary.makespan),
      std::count(groups.begin(), groups.end(), ':'));
  text += network.empty() ? std::string{"the cluster's nodes are not alike, so there is no network file for ASTRA-sim\n"}
                          : fmt::format(
                                "{0}.network.yml, {0}.system.json: the cluster (--network-configuration, "
                                "--system-configuration)\n",
                                one_line(prefix));
  write_output("-", text + losses_text(losses));
  return ok;
}

}  // namespace tawpipe::sim
