// The best plan for each number of devices.
#include "plan_devices.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tawpipe/answers/nodes.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/topology/cluster_change.hpp"

namespace tawpipe::inline v0::answers {

namespace {

using Json = nlohmann::ordered_json;

/// Numbers of devices by doubling, from the first of --devices FROM..TO to the last.
std::vector<int> numbers_of_devices(const PlanQuestion& question, int node) {
  const auto dots = question.devices.find("..");
  const auto number = [&](const std::string& text) { return parse_whole<int>(text, "--devices", 1); };
  const int from = number(question.devices.substr(0, dots));
  const int to = dots == std::string::npos ? from : number(question.devices.substr(dots + 2));
  if (to < from || from % node != 0) {
    throw InputError(concat("--devices ", quote(question.devices), " must be FROM..TO, multiples of the ", node,
                            " devices of a node, such as ", node, "..", 8 * node));
  }
  std::vector<int> counts;
  for (std::int64_t count = from; count <= to; count *= 2) counts.push_back(static_cast<int>(count));
  return counts;
}

/// The plans of all searches that no other beats in devices, time and memory.
Json front_of(const Json& searches) {
  Json all = Json::array();
  for (const Json& one : searches) {
    for (const Json& plan : one["pareto"]) all.push_back(plan);
  }
  const auto beats = [](const Json& a, const Json& b) {
    bool better = false;
    for (const char* key : {"devices", "makespan_s", "memory_bytes"}) {
      if (a[key] > b[key]) return false;
      better = better || a[key] < b[key];
    }
    return better;
  };
  Json front = Json::array();
  for (const Json& plan : all) {
    if (std::none_of(all.begin(), all.end(), [&](const Json& other) { return beats(other, plan); })) front.push_back(plan);
  }
  return front;
}

}  // namespace

std::vector<PlanQuestion> questions_of_devices(const PlanQuestion& question) {
  const Cluster cluster = resolve_plan(question).problem.cluster;
  const int node = cluster.devices_in(NodeId{0});
  std::vector<PlanQuestion> all;
  for (const int devices : numbers_of_devices(question, node)) {
    all.push_back(question);
    PlanQuestion& one = all.back();
    const bool has_name = one.job.has("cluster");
    one.job.cluster_value = has_name ? std::optional<Cluster>{} : with_change(cluster, {.nodes = devices / node});
    one.job.set("cluster", has_name ? with_nodes(one.job.text("cluster"), devices / node) : one.job.cluster_value->name());
    one.devices.clear();
    one.top = 1;
    for (const std::string_view format : split(question.job.text("gemm-format"), ',')) {
      PlanQuestion checked = one;
      checked.job.set("gemm-format", std::string{format});
      resolve_plan(checked);
    }
  }
  return all;
}

Json devices_json(const std::vector<Planned>& all) {
  Json json;
  json["by_devices"] = Json::array();
  for (const Planned& one : all) json["by_devices"].push_back(result_json(one));
  json["pareto"] = front_of(json["by_devices"]);
  return json;
}

}  // namespace tawpipe::answers
