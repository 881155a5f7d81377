// The cost model that --cost names.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/answers/job_question.hpp"
#include "tawpipe/answers/read_text.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/parse_units.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/report/curves_json.hpp"
#include "tawpipe/report/measured_json.hpp"

namespace tawpipe::inline v0::answers {

namespace {

/// @throws InputError  naming the parameter
Duration parse_time(const std::string& key, const std::string& text) {
  try {
    return parse_duration(text);
  } catch (const InputError& error) {
    throw InputError(concat("--cost: ", key, "=", one_line(text), ": ", error.what()));
  }
}

/// A figure of the curves and its value. @throws InputError  naming the nearest, or the range
std::pair<double DeviceCurves::*, double> parse_curve_change(const std::string& key, const std::string& text) {
  std::vector<std::string> names;
  for (const CurveField& field : curve_fields()) {
    names.emplace_back(field.name);
    if (field.name != key) continue;
    const auto value = to_number<double>(text);
    const bool may_be_none = field.name.starts_with("host-");
    if (value && (*value > 0 || (may_be_none && *value == 0)) && *value <= field.most) return {field.member, *value};
    throw InputError(concat("--cost: ", key, "=", one_line(text), " must be a number ",
                            may_be_none ? "from 0 to " : "above 0 and at most ", field.most, ": ", field.meaning));
  }
  throw InputError(concat("--cost: ", unknown_name("parameter of kernels", key, names)));
}

KernelCost kernel_cost(const ScheduleOptions& values) {
  KernelCost cost;
  // Those of a file first: what is given by name counts.
  if (const auto file = values.find("file"); file != values.end()) {
    CurvesFile found = parse_curves_json(read_text(file->second, "file of measured curves"), one_line(file->second));
    cost.changes = std::move(found.changes);
    cost.measured_on = std::move(found.device);
  }
  for (const auto& [key, value] : values) {
    if (key != "file") cost.changes.push_back(parse_curve_change(key, value));
  }
  return cost;
}

RooflineCost roofline_cost(const ScheduleOptions& values, double utilization) {
  RooflineCost cost;
  if (utilization > 0) cost.utilization = utilization;
  for (const auto& [key, value] : values) {
    if (key == "utilization") {
      cost.utilization = parse_fraction(value, "--cost: utilization");
    } else if (key == "memory-utilization") {
      cost.memory_utilization = parse_fraction(value, "--cost: memory-utilization");
    } else if (key == "overhead") {
      cost.overhead = parse_time(key, value);
    } else if (key == "all-reduce" && (value == "ring" || value == "tree")) {
      cost.all_reduce = value == "tree" ? Algorithm::tree : Algorithm::ring;
    } else if (key == "all-reduce") {
      throw InputError(concat("--cost: all-reduce=", value, " must be ring or tree"));
    } else if (key == "collectives" && (value == "simple" || value == "nccl")) {
      cost.nccl_collectives = value == "nccl";
    } else if (key == "collectives") {
      throw InputError(concat("--cost: collectives=", value, " must be simple or nccl"));
    } else {
      throw InputError(
          concat("--cost: ", unknown_name("parameter of roofline", key,
                                          {"utilization", "memory-utilization", "overhead", "all-reduce", "collectives"})));
    }
  }
  if (cost.nccl_collectives && values.contains("all-reduce")) {
    throw InputError("--cost: with collectives=nccl each all-reduce is a ring or a tree as NCCL chooses; leave out all-reduce");
  }
  return cost;
}

FixedCost fixed_cost(const ScheduleOptions& values) {
  FixedCost cost{};
  const std::vector<std::pair<std::string, Duration*>> known{{"forward", &cost.forward},
                                                             {"backward_input", &cost.backward_input},
                                                             {"backward_weight", &cost.backward_weight},
                                                             {"transfer", &cost.transfer}};
  std::vector<std::string> names;
  for (const auto& [name, target] : known) names.push_back(name);
  for (const auto& [key, value] : values) {
    bool found = false;
    for (const auto& [name, target] : known) {
      if (name != key) continue;
      *target = parse_time(key, value);
      found = true;
    }
    if (!found) throw InputError(concat("--cost: ", unknown_name("parameter of fixed", key, names)));
  }
  std::erase_if(names, [&](const std::string& name) { return values.contains(name); });
  if (!names.empty()) {
    throw InputError(concat("--cost fixed needs times of ", join(names, ", "),
                            " too, such as fixed:forward=18522us,backward_input=18086us,backward_weight=9337us,transfer=601us"));
  }
  if (cost.forward + cost.backward_input + cost.backward_weight <= Duration{}) {
    throw InputError(
        "--cost fixed needs times, such as fixed:forward=18522us,backward_input=18086us,backward_weight=9337us,transfer=601us");
  }
  return cost;
}

}  // namespace

Cost parse_cost(const std::string& text, double utilization) {
  const auto colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  if (kind == "measured") {
    const std::string file = colon == std::string::npos ? "" : text.substr(colon + 1);
    if (file.empty()) throw InputError("--cost measured needs a file of tawpipe calibrate, such as measured:cost.json");
    MeasuredCost cost = parse_measured_json(read_text(file, "file of measured times"), one_line(file));
    cost.source = one_line(file);
    return cost;
  }
  ScheduleOptions values;
  if (colon != std::string::npos && colon + 1 < text.size()) {
    const std::vector<std::string_view> parts = split(std::string_view{text}.substr(colon + 1), ',');
    values = parse_options({parts.begin(), parts.end()}, kind == "fixed"     ? "forward=18522us"
                                                         : kind == "kernels" ? "products=0.7"
                                                                             : "utilization=0.45");
  }
  if (kind == "kernels") return kernel_cost(values);
  if (kind == "roofline") return roofline_cost(values, utilization);
  if (kind == "fixed") return fixed_cost(values);
  throw InputError(concat("--cost: ", unknown_name("cost model", kind, {"kernels", "roofline", "fixed", "measured"})));
}

}  // namespace tawpipe::answers
