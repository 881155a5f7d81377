// Makes the problem at one point of a sweep.
#include "sweep_problem.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "sweep_chart.hpp"
#include "tawpipe/answers/nodes.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/topology/changed_links.hpp"
#include "tawpipe/topology/cluster_dimensions.hpp"

namespace tawpipe::sim {

namespace {

Transformer with_shape(const std::string& name, const SweepAxis& axis, int value) {
  const auto sizes = models::detail::parse_family(name);
  if (!sizes) throw InputError(concat("--vary ", axis.parameter, " needs a --model of the family llama-LxH, not ", quote(name)));
  return axis.parameter == "hidden" ? models::llama_family(sizes->first, value) : models::llama_family(value, sizes->second);
}

}  // namespace

Problem swept_problem(const Request& base, const std::vector<SweepAxis>& axes, const SweepPoint& point) {
  Request request = base;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    const SweepAxis& axis = axes[a];
    const std::string& name = axis.parameter;
    const auto whole = axis.kind == AxisKind::count ? static_cast<std::int64_t>(point[a]) : 0;
    if (name == "nodes") request.set("cluster", with_nodes(request.text("cluster"), whole));
    if (name == "hidden" || name == "layers") {
      const auto size = static_cast<int>(std::min<std::int64_t>(whole, 1 << 20));
      request.set("model", with_shape(request.text("model"), axis, size).name);
    }
    if (axis.field != nullptr)
      request.set(axis.field->name, axis.kind == AxisKind::name    ? value_text(axis, point[a])
                                    : axis.kind == AxisKind::count ? concat(whole)
                                                                   : fmt::format("{}", point[a]));
  }
  Problem problem = resolve(request, true);
  problem.fold = Fold::automatic;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    const std::string& name = axes[a].parameter;
    if (name == "utilization") {
      if (auto* cost = std::get_if<RooflineCost>(&problem.cost)) cost->utilization = point[a];
      if (auto* cost = std::get_if<KernelCost>(&problem.cost)) cost->changes.emplace_back(&DeviceCurves::products, point[a]);
    } else if (name == "inter-node") {
      problem.cluster = with_adapter_speed(problem.cluster, BytesPerSecond{point[a]});
    } else if (name.starts_with("inter-node") || name.starts_with("intra-node")) {
      const bool network = name.starts_with("inter");
      problem.cluster = with_changed_links(problem.cluster, [&](Link& link) {
        if ((link.kind == LinkClass::network) != network || link.end == LinkEnd::host) return;
        if (name.ends_with("latency")) {
          link.latency = seconds(point[a]);
        } else {
          link.bandwidth = BytesPerSecond{point[a]};
        }
      });
    }
  }
  return problem;
}

}  // namespace tawpipe::sim
