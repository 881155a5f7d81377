// Explains a schedule on four devices.
#include "explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
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
constexpr const char* moving_cost = "fixed:forward=2s,backward_input=2s,backward_weight=2s,transfer=1s";
constexpr Duration column = seconds(1.0);  // one character
constexpr Duration fine_column = seconds(0.5);

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

bool computes(const Task& task) {
  return task.op == Op::forward || task.op == Op::backward || task.op == Op::backward_input || task.op == Op::backward_weight;
}
bool moves_weights(const Task& task) {
  return !computes(task) && (task.payload == Payload::weights || task.payload == Payload::gradients);
}

/// For each rank the microbatch and the shard that it computes with, and below them the lanes in which shards of weights and
/// their gradients move: a digit for the weights of that shard, a letter for its gradients.
std::string moves_picture(const Prediction& prediction) {
  const Schedule& schedule = prediction.schedule;
  const auto columns = static_cast<std::size_t>(prediction.summary.makespan / fine_column + 0.5);
  std::map<std::pair<int, int>, std::string> lines;  // by rank and line: microbatch, shard, then lanes
  const auto draw = [&](Rank rank, int line, std::size_t task, char mark) {
    const auto at = [&](TimePoint time) { return static_cast<std::size_t>(time.since_start() / fine_column + 0.5); };
    std::string& text = lines.try_emplace({number(rank), line}, columns, ' ').first->second;
    const std::size_t end = std::min(at(prediction.timeline.end[task]), columns);
    for (std::size_t c = at(prediction.timeline.start[task]); c < end; ++c) text[c] = mark;
  };
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const Task& task = schedule.tasks()[t];
    if (computes(task)) {
      draw(task.rank, 0, t, mark_of(task));
      draw(task.rank, 1, t, numbered("0123456789", number(task.stage)));
    }
    if (!moves_weights(task)) continue;
    const bool weights = task.payload == Payload::weights;
    const char mark = numbered(weights ? "0123456789" : "abcdefghijklmnopqrstuvwxyz", number(task.stage));
    if (is_collective(task.op)) {
      for (const Rank rank : schedule.group(task.group)) draw(rank, 2 + number(task.lane), t, mark);
    } else {
      draw(task.rank, 2 + number(task.lane), t, mark);
      if (is_point_to_point(task.op)) draw(task.peer, 2 + number(task.peer_lane), t, mark);
    }
  }
  std::string text;
  for (const auto& [place, line] : lines) {
    const auto& [rank, kind] = place;
    std::string name = kind == 0 ? "microbatch" : kind == 1 ? "shard" : schedule.lanes()[static_cast<std::size_t>(kind - 2)];
    std::replace(name.begin(), name.end(), '_', ' ');
    text += fmt::format("  {}  {:<18}{}\n", kind == 0 ? std::to_string(rank) : " ", name.substr(0, 17),
                        line.substr(0, line.find_last_not_of(' ') + 1));
  }
  return text;
}

}  // namespace

int run_explain(const std::string& name) {
  Request request;
  request.schedule = name;
  const ScheduleChoice choice = named_schedule(request);
  request.set("cluster", "2x2");
  request.set("microbatches", "8");
  request.set("cost", example_cost);
  request.set("recompute", "none");
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
  const auto& tasks = prediction.schedule.tasks();
  if (std::any_of(tasks.begin(), tasks.end(),
                  [](const Task& task) { return moves_weights(task) && task.payload == Payload::weights; })) {
    request.set("microbatches", "4");
    request.set("cost", moving_cost);
    problem = resolve(request, false);
    problem.schedules = {choice};
    text += fmt::format("\n4 microbatches, a second for each message, half a second for each character:\n\n{}\n",
                        moves_picture(predict(problem)));
    text +=
        "Weights come to the device that computes with them, and gradients go back to the device that keeps the shard.\n"
        "In the lanes a digit is the weights of that shard on their way, a letter the gradients of the shard (a of 0).\n";
  }
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
