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
#include "tawpipe/answers/plan_answer.hpp"
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

int tell_answer(const PlanFlags& flags, const PlanAnswer& answer, std::optional<OutputFile>& file, ReportFile& report,
                bool draws) {
  const bool several = !answer.by_devices.empty();
  if (file) {
    (*file)(to_json(answer).dump(2) + "\n");
    file->finish();
  }
  if (!any_standard_output({{"--json", flags.json}, {"--report", flags.report}})) {
    const std::string text = to_text(answer, terminal_style());
    answer.emitted ? write_output("-", text) : print(text);  // settings are for another program
  }
  const bool found = answer.complaint().empty();
  if (!found && !several) std::fputs(fmt::format("tawpipe: {}\n", answer.complaint()).c_str(), stderr);  // a table says it
  if (answer.stopped() && (several || (found && answer.emitted))) {
    const char* const what = several ? "what is shown is the best so far" : "the settings are of the best so far";
    std::fputs(fmt::format("tawpipe: the search was stopped; {}\n", what).c_str(), stderr);
  }
  if (report) {
    const Today* const today = answer.today ? &*answer.today : nullptr;
    const std::string verdict = several ? ""
                                : found ? verdict_text(answer.planned, answer.planned.verdict(), today)
                                        : concat("No plan: ", answer.complaint());
    write_plan_page(report, several ? answer.by_devices : std::vector{answer.planned}, to_json(answer), verdict, draws);
  }
  return found ? ok : findings;
}

}  // namespace

int run_plan(const PlanFlags& flags) {
  check_outputs({{"--json", flags.json}, {"--report", flags.report}});
  std::optional<OutputFile> file;
  if (!flags.json.empty()) file.emplace(flags.json);
  ReportFile report{flags.report};
  const InterruptEndsSearch interrupt;
  PlanDisplay display;
  std::optional<PlanAnswer> answer;
  const bool ended = display.run(
      [&] { answer.emplace(answers::answer(flags, std::ref(display), [&](const Planned& one) { display.keep(one); })); });
  if (ended) return tell_answer(flags, *answer, file, report, true);
  try {
    if (display.best()) display.done().push_back(*std::move(display.best()));
    const std::vector<Planned>& done = display.done();
    leave(done.empty() ? say_nothing(file)
                       : tell_answer(flags, flags.devices.empty() ? answer_so_far(done.back()) : answer_so_far(done), file,
                                     report, false));
  } catch (const Error& error) {
    complain(error.what());
    leave(bad_input);
  }
}

}  // namespace tawpipe::sim
