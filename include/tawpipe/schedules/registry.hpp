// Schedules by name, with their options as text: what the command, files and sweeps build from.
// Not: the schedules that the library ships (schedules/shipped.hpp).
#pragma once

#include <algorithm>
#include <any>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tawpipe/schedule/offload.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/schedules/option_field.hpp"
#include "tawpipe/schedules/task_limit.hpp"
#include "tawpipe/topology/device_group.hpp"

namespace tawpipe::inline v0 {

/// What a schedule is built for. The ranks are those of `nodes`.
struct ScheduleRequest {
  Workload workload;
  DeviceGroups nodes;  ///< the ranks of each node
  ScheduleOptions options;
  Bytes device_memory{};         ///< of the smallest device; 0 where memory is not counted
  std::vector<double> speeds{};  ///< [rank] of its device relative to others; empty if unknown
  Offload offload{};             ///< applied around any schedule
  /// every device has a network adapter that its node's other devices do not use
  bool own_adapters = false;
  /// a forward and a backward of different microbatches run as one block (ScheduleInfo::pairs)
  bool pairs = false;
};

/// What a schedule cuts, and what it moves.
enum class ScheduleFamily : std::uint8_t {
  pipeline,         ///< stages stay and activations move: states can be shared out around it, stages cut uneven
  data_parallel,    ///< each rank has a part of the batch; the schedule shares states out itself, if at all
  weight_pipeline,  ///< weights move, in an order of its own
};

/// The description of a schedule, in lists and for plans.
struct ScheduleInfo {
  std::string name;
  std::string description;  ///< what is sent, and how
  std::string source;       ///< paper or code
  ScheduleFamily family = ScheduleFamily::pipeline;
  bool leads = false;                 ///< a plan looks at it first, as one of the best of its kind
  bool plain = false;                 ///< what any schedule is on one rank, where a plan tries no other
  bool pairs = false;                 ///< a forward and a backward of different microbatches can be one block, or always are
  bool planned = true;                ///< a plan tries it unasked; off for one that searches longer than all others together
  std::vector<OptionInfo> options{};  ///< from the table of fields; Registry::add fills them in
};

/// Schedules by name. A value: copy it, add your own, pass it on.
class Registry {
 public:
  /// Adds a schedule whose options are those of a struct with a table of fields.
  /// @param make  `Schedule(const ScheduleRequest&, const Options&)`
  /// @throws InputError  for a name that exists already, or that cannot stand in a list of
  /// schedules.
  template <ScheduleOptionTable Options, class Build>
  requires std::convertible_to<std::invoke_result_t<const Build&, const ScheduleRequest&, const Options&>, Schedule>
  void add(ScheduleInfo info, Build make) {
    check_name(info.name);
    info.options = option_infos<Options>();
    schedules_.push_back(std::move(info));
    builders_.push_back({std::move(make), call<Options, Build>, check_texts<Options>});
  }
  /// Adds a schedule without options. @param make  `Schedule(const ScheduleRequest&)`
  template <class Build>
  requires std::convertible_to<std::invoke_result_t<const Build&, const ScheduleRequest&>, Schedule>
  void add(ScheduleInfo info, Build make) {
    add<NoOptions>(std::move(info), [make](const ScheduleRequest& request, const NoOptions&) { return make(request); });
  }

  /// In the order in which they were added.
  const std::vector<ScheduleInfo>& schedules() const { return schedules_; }

  /// The schedule of that name. @throws InputError  naming the nearest if there is none.
  const ScheduleInfo& info(std::string_view name) const { return schedules_[place(name)]; }

  /// Checks whatever can be checked without building.
  /// @throws InputError  for an unknown name or option, or an invalid value.
  void check(std::string_view name, const ScheduleOptions& options) const { builders_[place(name)].check(name, options); }

  /// All combinations of the options left open: each that is "auto" in `options`, unless the
  /// schedule interprets that itself, and with `all` each that is missing. The least memory comes
  /// first.
  /// @throws InputError  as check()
  std::vector<ScheduleOptions> variants(std::string_view name, const ScheduleOptions& options, bool all) const {
    check(name, options);
    std::vector<ScheduleOptions> found{options};
    for (const OptionInfo& option : info(name).options) {
      const auto given = options.find(option.name);
      if (given == options.end() ? !all : given->second != "auto" || option.own_auto) continue;
      std::vector<ScheduleOptions> next;
      for (ScheduleOptions& one : found) {
        one.erase(option.name);
        if (option.tried.empty()) next.push_back(one);
        for (const std::string& value : option.tried) {
          next.push_back(one);
          next.back()[option.name] = value;
        }
      }
      found = std::move(next);
    }
    return found;
  }

  /// More tasks than that for each computation are not expected.
  static constexpr double most_of_computation = 16;

  /// A number of the schedule that grows evenly with its microbatches, before that is built: from two
  /// schedules of few microbatches. None where there are not many more, or they cannot be so few.
  /// @param count  of a schedule, as a double
  template <class Count>
  std::optional<double> expected(std::string_view name, const ScheduleRequest& request, const Count& count) const {
    const std::int64_t all = request.workload.microbatches();
    const std::int64_t round = 2 * std::int64_t{request.nodes.ranks()};  // of what fills pipelines both ways
    const std::int64_t few = all % round + round;
    if (all < 8 * (few + round)) return std::nullopt;
    const auto counted = [&](std::int64_t microbatches) {
      ScheduleRequest fewer = request;
      fewer.workload = request.workload.with_microbatches(microbatches);
      return count(build(name, fewer));
    };
    try {
      const double first = counted(few);
      return first + (counted(few + round) - first) / static_cast<double>(round) * static_cast<double>(all - few);
    } catch (const InputError&) {
      return std::nullopt;
    }
  }

  /// Builds the schedule of that name. Options that are "auto" get their default value, unless the
  /// schedule interprets that itself.
  /// @throws InputError  for an unknown name or option, or an impossible size.
  Schedule build(std::string_view name, const ScheduleRequest& request) const {
    const Builder& builder = builders_[place(name)];
    const double ranks = request.nodes.ranks();
    // Each rank or stage processes each microbatch in each direction.
    const double stages = request.workload.is_abstract() ? ranks : std::max<double>(ranks, request.workload.model().layers);
    const double computations = 2 * stages * static_cast<double>(request.workload.microbatches());
    schedules::check_tasks(name, computations, request.workload, request.nodes.ranks());
    if (computations > schedules::max_tasks / most_of_computation) {
      const auto tasks = [](const Schedule& few) { return static_cast<double>(few.tasks().size()); };
      schedules::check_tasks(name, expected(name, request, tasks).value_or(0), request.workload, request.nodes.ranks());
    }
    Schedule built = builder.call(builder.make, name, request);
    if (request.offload.any()) return with_offload(built, request.offload);
    return built;  // in a conditional expression it would be copied
  }

 private:
  struct Builder {
    std::any make;
    Schedule (*call)(const std::any& make, std::string_view name, const ScheduleRequest& request);
    void (*check)(std::string_view name, const ScheduleOptions& options);
  };

  template <class Options, class Build>
  static Schedule call(const std::any& make, std::string_view name, const ScheduleRequest& request) {
    Options options = read_options<Options>(name, request.options);
    if constexpr (requires { options.by_unit; }) options.by_unit = request.offload.weights;
    return (*std::any_cast<Build>(&make))(request, options);
  }

  template <class Options>
  static void check_texts(std::string_view name, const ScheduleOptions& options) {
    read_options<Options>(name, options);
  }

  void check_name(const std::string& name) const {
    if (name.empty() || name.find_first_of(":=, ") != std::string::npos) {
      throw InputError(concat("a schedule cannot be called ", quote(name), ": a name is without ':', '=', ',' and blanks"));
    }
    for (const auto& known : schedules_) {
      if (known.name == name) throw InputError(concat("there is a schedule ", quote(name), " already"));
    }
  }

  std::size_t place(std::string_view name) const {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < schedules_.size(); ++i) {
      if (schedules_[i].name == name) return i;
      names.push_back(schedules_[i].name);
    }
    throw InputError(unknown_name("schedule", name, names));
  }

  std::vector<ScheduleInfo> schedules_;
  std::vector<Builder> builders_;  ///< of each schedule
};

}  // namespace tawpipe
