// `tawpipe plan`: how to train, the fastest way first, with the command that simulates it.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <future>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "../complain.hpp"
#include "../interrupt.hpp"
#include "../request.hpp"
#include "../terminal_text.hpp"
#include "output.hpp"
#include "plan.hpp"
#include "plan_page.hpp"
#include "tawpipe/answers/nodes.hpp"
#include "tawpipe/answers/plan_answer.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/stop.hpp"
#include "tawpipe/report/progress.hpp"

namespace tawpipe::sim {

namespace {

using Json = nlohmann::ordered_json;

/// The progress of searches that run on a thread of their own, and what they have found so far. Told
/// to stop, they have half a second for an answer of their own: what they are in may take longer.
class PlanDisplay {
 public:
  /// Runs `search`. @return whether it has ended by itself; otherwise it goes on: only leave() follows
  template <class Search>
  bool run(Search&& search) {
    std::packaged_task<void()> task{[&] {
      const auto told = [&] { return gives_up_.load(std::memory_order_relaxed); };
      const StopScope scope{told};
      search();
    }};
    std::future<void> result = task.get_future();
    std::thread thread{std::move(task)};
    using Clock = std::chrono::steady_clock;
    std::optional<Clock::time_point> since;
    while (result.wait_for(std::chrono::milliseconds{10}) != std::future_status::ready) {
      if (interrupted == 0) continue;
      if (!since) since = Clock::now();
      const auto waited = Clock::now() - *since;
      if (has_best_ || waited > std::chrono::milliseconds{300}) gives_up_ = true;
      if (waited < std::chrono::milliseconds{600}) continue;
      thread.detach();
      end();
      return false;
    }
    thread.join();
    end();
    try {
      result.get();
    } catch (const Stopped&) {
      return false;
    }
    return true;
  }

  bool operator()(const PlanProgress& now, const Planned& asked, std::string_view what) {
    const std::lock_guard lock{mutex_};
    if (ended_) return false;
    if (what != what_) {
      what_ = what;
      progress_.emplace(progress_line(what_, now.whole));
    }
    if (now.best != nullptr) progress_->note(concat("best ", format_duration(now.best->summary.makespan, 4)));
    progress_->advance(now.done - progress_->done());
    if (now.best != nullptr && (!best_ || now.best->summary.makespan < best_->best().makespan)) {
      best_ = Planned{asked.question, asked.request, {}, asked.bound_s};
      best_->result.plans = {*now.best};
      best_->result.bound = std::min(now.best->summary.makespan, seconds(asked.bound_s));
      best_->result.stopped = has_best_ = true;
    }
    return interrupted == 0;
  }
  /// The answer of one of several searches.
  void keep(Planned planned) {
    const std::lock_guard lock{mutex_};
    if (ended_) return;
    done_.push_back(std::move(planned));
    best_.reset();
  }

  /// The answers of searches that have ended. @pre run() has returned
  std::vector<Planned>& done() { return done_; }
  /// Of one that has not. @pre run() has returned
  std::optional<Planned>& best() { return best_; }

 private:
  /// Clears the line, before anything is printed.
  void end() {
    const std::lock_guard lock{mutex_};
    ended_ = true;
    progress_.reset();
  }

  std::mutex mutex_;
  std::string what_;
  std::optional<Progress<>> progress_;
  std::optional<Planned> best_;
  std::vector<Planned> done_;
  std::atomic<bool> has_best_{false};
  std::atomic<bool> gives_up_{false};
  bool ended_ = false;
};

/// Ends the command at once, whatever a search is in.
[[noreturn]] void leave(int code) {
  std::fflush(stdout);
  std::fflush(stderr);
  ::_exit(code);
}

/// Numbers of devices by doubling, from the first of --devices FROM..TO to the last.
std::vector<int> devices_of(const PlanFlags& flags, int node) {
  const auto dots = flags.devices.find("..");
  const auto number = [&](const std::string& text) { return parse_whole<int>(text, "--devices", 1); };
  const int from = number(flags.devices.substr(0, dots));
  const int to = dots == std::string::npos ? from : number(flags.devices.substr(dots + 2));
  if (to < from || from % node != 0) {
    throw InputError(concat("--devices ", quote(flags.devices), " must be FROM..TO, multiples of the ", node,
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

/// The problem of each number of devices, or what is wrong with any, before the first search.
std::vector<PlanFlags> flags_of_devices(const PlanFlags& flags) {
  const Cluster cluster = resolve_plan(flags).problem.cluster;
  const int node = cluster.devices_in(NodeId{0});
  std::vector<PlanFlags> all;
  for (const int devices : devices_of(flags, node)) {
    all.push_back(flags);
    all.back().job.set("cluster", with_nodes(flags.job.text("cluster"), devices / node));
    all.back().top = 1;
    for (const std::string_view format : split(flags.job.text("gemm-format"), ',')) {
      PlanFlags one = all.back();
      one.job.set("gemm-format", std::string{format});
      resolve_plan(one);
    }
  }
  return all;
}

constexpr const char* nothing_found = "the search was stopped before it found anything that fits the devices' memory";

/// Where a search was stopped before there was anything to tell of it.
int say_nothing(std::optional<OutputFile>& file) {
  if (file) {
    (*file)(Json{{"plans", Json::array()}, {"pareto", Json::array()}, {"proven_best", false}, {"stopped", true}}.dump(2) + "\n");
    file->finish();
  }
  std::fputs(fmt::format("tawpipe: {}\n", nothing_found).c_str(), stderr);
  return findings;
}

/// --devices: the best for each number of devices. @param draws  whether there is time for the page
int tell_devices(const PlanFlags& flags, const std::vector<Planned>& all, std::optional<OutputFile>& file, ReportFile& report,
                 bool draws) {
  Json json;
  json["by_devices"] = Json::array();
  for (const Planned& one : all) json["by_devices"].push_back(result_json(one));
  json["pareto"] = front_of(json["by_devices"]);
  if (file) {
    (*file)(json.dump(2) + "\n");
    file->finish();
  }
  if (!any_standard_output({{"--json", flags.json}, {"--report", flags.report}})) {
    print(devices_table(all, terminal_style()));
  }
  if (all.back().result.stopped) std::fputs("tawpipe: the search was stopped; what is shown is the best so far\n", stderr);
  if (report) write_plan_page(report, all, std::move(json), {}, draws);
  return std::any_of(all.begin(), all.end(), [](const Planned& one) { return !one.result.plans.empty(); }) ? ok : findings;
}

int tell_answer(const PlanFlags& flags, const PlanAnswer& answer, std::optional<OutputFile>& file, ReportFile& report,
                bool draws) {
  if (file) {
    (*file)(to_json(answer).dump(2) + "\n");
    file->finish();
  }
  if (!any_standard_output({{"--json", flags.json}, {"--report", flags.report}})) {
    const std::string text = to_text(answer, terminal_style());
    answer.emitted ? write_output("-", text) : print(text);  // settings are for another program
  }
  const bool found = answer.complaint().empty();
  if (!found) std::fputs(fmt::format("tawpipe: {}\n", answer.complaint()).c_str(), stderr);
  if (found && answer.emitted && answer.stopped())
    std::fputs("tawpipe: the search was stopped; the settings are of the best so far\n", stderr);
  if (report) {
    const Today* const today = answer.today ? &*answer.today : nullptr;
    write_plan_page(
        report, {answer.planned}, to_json(answer),
        found ? verdict_text(answer.planned, answer.planned.verdict(), today) : concat("No plan: ", answer.complaint()), draws);
  }
  return found ? ok : findings;
}

}  // namespace

int run_plan(const PlanFlags& flags) {
  const bool several = !flags.devices.empty();
  if (several && !(flags.today.empty() && flags.emit.empty())) {
    throw InputError("--today and --emit are of one number of devices; leave out --devices");
  }
  if (several && !flags.what_if.empty()) {
    throw InputError("--what-if nodes=N is of more nodes too; leave out --devices");
  }
  check_outputs({{"--json", flags.json}, {"--report", flags.report}});
  std::optional<OutputFile> file;
  if (!flags.json.empty()) file.emplace(flags.json);
  ReportFile report{flags.report};
  const InterruptEndsSearch interrupt;
  PlanDisplay display;
  std::optional<PlanAnswer> answer;
  const bool ended = display.run([&] {
    if (!several) {
      answer.emplace(answers::answer(flags, std::ref(display)));
      return;
    }
    for (const PlanFlags& one : flags_of_devices(flags)) {
      const int devices = resolve_plan(one).problem.cluster.ranks();
      Planned found = search_plans(one, concat("planning ", devices), std::ref(display));
      const bool stopped = found.result.stopped;
      display.keep(std::move(found));
      if (stopped) break;
    }
  });
  try {
    if (!ended && display.best()) display.done().push_back(*std::move(display.best()));
    const std::vector<Planned>& done = display.done();
    const int code = done.empty() && !answer ? say_nothing(file)
                     : several               ? tell_devices(flags, done, file, report, ended)
                     : ended                 ? tell_answer(flags, *answer, file, report, true)
                                             : tell_answer(flags, answer_so_far(done.back()), file, report, false);
    if (!ended) leave(code);
    return code;
  } catch (const Error& error) {
    if (ended) throw;
    complain(error.what());
    leave(bad_input);
  }
}

}  // namespace tawpipe::sim
