// Explains a schedule on four devices.
#include "explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "../request.hpp"
#include "../terminal_text.hpp"
#include "output.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/report/formatters.hpp"

namespace tawpipe::sim {

namespace {

constexpr const char* example_cost = "fixed:forward=2s,backward_input=2s,backward_weight=2s,transfer=0s";
constexpr Duration column = seconds(1.0);  // one character

char numbered(std::string_view marks, std::int32_t microbatch) {
  return marks[static_cast<std::size_t>(microbatch) % marks.size()];
}

/// The character of a cell in the picture: a digit for a forward, a letter for a backward.
char mark_of(const Task& task) {
  if (task.op == Op::forward) return numbered("0123456789", task.microbatch);
  if (task.op == Op::backward_weight) return numbered("ABCDEFGHIJKLMNOPQRSTUVWXYZ", task.microbatch);
  return numbered("abcdefghijklmnopqrstuvwxyz", task.microbatch);
}

/// A line for each rank, a character for each second.
std::string picture(const Prediction& prediction) {
  const Schedule& schedule = prediction.schedule;
  const auto columns = static_cast<std::size_t>(prediction.summary.makespan / column + 0.5);
  std::vector<std::string> lines(static_cast<std::size_t>(schedule.ranks()), std::string(columns, '.'));
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const Task& task = schedule.tasks()[t];
    if (task.op != Op::forward && task.op != Op::backward && task.op != Op::backward_input && task.op != Op::backward_weight)
      continue;
    const auto at = [&](TimePoint time) { return static_cast<std::size_t>(time.since_start() / column + 0.5); };
    const std::size_t begin = at(prediction.timeline.start[t]);
    const std::size_t end = std::min(at(prediction.timeline.end[t]), columns);
    for (std::size_t c = begin; c < end; ++c) lines[index(task.rank)][c] = mark_of(task);
  }
  std::string text;
  for (std::size_t rank = 0; rank < lines.size(); ++rank) text += fmt::format("  {}  {}\n", rank, lines[rank]);
  return text;
}

}  // namespace

int run_explain(const std::string& name) {
  Request request;
  request.schedule = name;
  const ScheduleChoice choice = named_schedule(request);
  request.cluster = "2x2";
  request.microbatches = 8;
  request.cost = example_cost;
  request.recompute = "none";
  Problem problem = resolve(request, false);
  problem.schedules = {choice};
  const Prediction prediction = predict(problem);
  const auto& all = shipped().schedules();
  const auto info = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.name == name; });
  std::string text = fmt::format("{}: {}\n{}\n\n", info->name, info->description, info->source);
  text += fmt::format("8 microbatches on 2 nodes of 2 devices, a second for each character:\n\n{}\n", picture(prediction));
  text += fmt::format(
      "A digit is a forward of that microbatch, a letter its backward, a capital that of weights only, a point a wait.\n"
      "{} in all; devices wait {} of it. Communication takes no time here.\n",
      format_duration(prediction.summary.makespan), format_percent(prediction.summary.bubble.ratio));
  if (!info->options.empty()) {
    Table options{{{"option"}, {"values"}, {"default"}, {"meaning"}}};
    for (const auto& option : info->options) options.row({option.name, option.values, option.standard, option.meaning});
    text += "\n" + options.str(terminal_style());
  }
  text += fmt::format(
      "\nThe same with any cost:\n  tawpipe simulate --schedule {} --cluster 2x2 --microbatches 8 --recompute none --cost {}\n",
      name, example_cost);
  print(text);
  return ok;
}

}  // namespace tawpipe::sim
