// `tawpipe train`: trains a model for real under any schedule.
#include "train.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../choose_kernels.hpp"
#include "../execution.hpp"
#include "../report_file.hpp"
#include "../request.hpp"
#include "../stop_signals.hpp"
#include "load_start.hpp"
#include "output.hpp"
#include "tawpipe/analysis/calibrate.hpp"
#include "tawpipe/report/chrome_trace.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/report/schedule_json.hpp"
#include "tawpipe/search/predict.hpp"
#include "tawpipe/timeline/timeline_csv.hpp"
#include "tawpipe/topology/cluster_file.hpp"
#include "tawpipe/training/checkpoint_folder.hpp"
#include "tawpipe/training/folder_lock.hpp"
#include "train_run.hpp"

namespace tawpipe::sim {

namespace {

using training::ParameterValue;

template <class T>
struct Values {
  std::vector<T> weights;
  std::vector<T> first;
  std::vector<T> second;
};

/// All of the run's numbers; right on the root.
template <class T, class Executor>
Values<T> collect(Executor& executor) {
  Values<T> values{collect_weights(executor), {}, {}};
  values.first.resize(values.weights.size());
  values.second.resize(values.weights.size());
  std::vector<char> known(values.weights.size(), 0);
  read_moments(executor, [&](ParameterRange range, std::span<const T> first, std::span<const T> second) {
    std::copy(first.begin(), first.end(), values.first.begin() + range.begin);
    std::copy(second.begin(), second.end(), values.second.begin() + range.begin);
    std::fill_n(known.begin() + range.begin, range.count(), char{1});
  });
  executor.gather(values.first, known);
  executor.gather(values.second, known);
  return values;
}

template <class T, class Executor>
void save(Executor& executor, const TrainRequest& request, const Run& run, const std::string& name, std::int64_t step) {
  const Values<T> values = collect<T>(executor);
  if (!executor.is_root()) return;
  training::TrainingState state = run.state;
  state.step = step;
  state.run = name;
  const auto give = [&](const training::CheckpointPart& part, std::span<std::byte> bytes) {
    const std::vector<T>& all = part.value == ParameterValue::weight         ? values.weights
                                : part.value == ParameterValue::first_moment ? values.first
                                                                             : values.second;
    const auto from =
        std::as_bytes(std::span<const T>{all}).subspan(static_cast<std::size_t>(part.range.begin) * sizeof(T), bytes.size());
    std::copy(from.begin(), from.end(), bytes.begin());
  };
  try {
    training::write_checkpoint(request.save, run.model.model, run.model.constants, state, give, 2, request.overwrite);
  } catch (const InputError& error) {  // the request is right, but the disk is full or gone: a failure of the run
    throw DeviceError(concat("step ", step, " is trained, but its checkpoint is not written: ", error.what()));
  }
}

/// @throws InputError  if nothing could be written there
void make_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error && ::access(folder.c_str(), W_OK) != 0) error = {errno, std::generic_category()};
  if (error) throw InputError(concat("cannot write to folder ", quote(folder), ": ", error.message()));
}

/// The run that saves in a folder: the one that is resumed there, otherwise a new one.
/// @throws InputError  if another's checkpoints are there, unless they may be overwritten
std::string name_of_run(const TrainRequest& request, const Run& run) {
  std::error_code ignored;
  const auto folder = run.checkpoint ? std::filesystem::canonical(run.checkpoint->path(), ignored).parent_path() : "";
  if (run.checkpoint && std::filesystem::equivalent(folder, request.save, ignored)) return run.state.run;
  if (const auto found = training::other_run_in(request.save); found && !request.overwrite) {
    throw InputError(concat("--save ", quote(request.save), " holds ", quote(*found), " of another run; give another folder, ",
                            *found == "latest" ? "" : concat("go on with that run (--resume ", quote(request.save), ") "),
                            "or replace it (--overwrite)"));
  }
  return training::new_run_name();
}

/// @throws InputError  if there are other weights, unless they may be overwritten
void check_weights_folder(const TrainRequest& request) {
  if (request.save_huggingface.empty() || request.overwrite) return;
  for (const char* name : {"config.json", "model.safetensors", "model.safetensors.index.json"}) {
    if (!std::filesystem::exists(std::filesystem::path{request.save_huggingface} / name)) continue;
    throw InputError(concat("--save-huggingface ", quote(request.save_huggingface), " holds ", quote(name),
                            " already; give another folder, or replace it (--overwrite)"));
  }
}

/// The files written after training. Opened before, so that an unwritable path is detected early.
struct TrainOutputs {
  std::optional<OutputFile> timeline;
  std::optional<OutputFile> schedule;
  std::optional<OutputFile> trace;
  std::optional<OutputFile> json;
  ReportFile report;

  std::optional<training::FolderLock> lock;  ///< no other run may save there
  std::string name;                          ///< of the run that saves there

  TrainOutputs(const TrainRequest& request, const Run& run, const Schedule& executed) : report{request.report} {
    if (report && 2 * executed.tasks().size() > max_report_tasks) {
      throw InputError(concat("--report: ", executed.tasks().size(),
                              " tasks, measured and predicted, are too many for a page; the most is ", max_report_tasks / 2,
                              "; leave it out, or take --trace"));
    }
    for (const auto& folder : {request.save, request.save_huggingface}) {
      if (!folder.empty()) make_folder(folder);
    }
    check_weights_folder(request);
    if (!request.save.empty()) {
      lock.emplace(request.save);
      name = name_of_run(request, run);
    }
    if (!request.timeline.empty()) timeline.emplace(request.timeline);
    if (!request.schedule_out.empty()) schedule.emplace(request.schedule_out);
    if (!request.trace.empty()) trace.emplace(request.trace);
    if (!request.json.empty()) json.emplace(request.json);
  }
};

bool text_is_wanted(const TrainRequest& request) {
  return !any_standard_output({{"--timeline", request.timeline},
                               {"--schedule-out", request.schedule_out},
                               {"--trace", request.trace},
                               {"--json", request.json},
                               {"--report", request.report}});
}

/// The page: the last step as it was measured above what the simulator makes of the times of the
/// step before.
void write_train_page(ReportFile& file, const TrainRequest& request, const Run& run, const Schedule& schedule,
                      const Timeline& before, const Timeline& last, std::int64_t step, nlohmann::ordered_json answer) {
  const std::string nodes = request.execution.cluster.empty() ? concat("1x", schedule.ranks()) : request.execution.cluster;
  Problem problem{.cluster = resolve_cluster(nodes, "", request.execution.inter_node)};
  ReportPage page{.command = "train",
                  .title = concat("Training of ", run.model.model.name, " under ", schedule.name()),
                  .problem = concat("ranks  ", schedule.ranks(), " (", request.execution.backend, "), nodes of ", nodes),
                  .answer = std::move(answer)};
  const bool on_devices = request.execution.backend == "cuda";
  const Summary measured = summarize(schedule, problem.cluster, last);
  page.entries.push_back({concat("measured, step ", step), &schedule, &last, &measured, &problem.cluster, {}, on_devices});
  std::optional<Prediction> predicted;
  if (before.start.empty()) {
    page.notes.push_back("One step only: there is no step before it whose times could predict it.");
  } else {
    const MeasuredRun run_before{schedule, before};
    try {
      problem.cost = calibrate({&run_before, 1}, problem.cluster).cost;
      predicted = predict(problem, schedule);
    } catch (const Error& error) {  // the run is done, and the measurement is shown nevertheless
      page.notes.push_back(concat("Not predicted: ", error.what(), "."));
    }
  }
  if (predicted) {
    page.entries.push_back(ReportEntry::of(concat("predicted, from the times of step ", step - 1), *predicted, problem));
    page.entries.back().limits_memory = on_devices;
  }
  file.write(page);
}

/// The progress line of a terminal, and the lines of a log.
class Report {
 public:
  Report(const TrainRequest& request, bool enabled) : request_{request}, enabled_{enabled && text_is_wanted(request)} {}

  void head(const std::string& text) const {
    if (enabled_) write_output("-", text);
  }
  void step(std::int64_t step, double loss, double rate, double tokens_per_second, double seconds_left) {
    if (standard_output_hung_up()) enabled_ = false;  // its terminal is gone: SIGHUP ends the run with a checkpoint
    if (!enabled_) return;
    const std::string line =
        fmt::format("step {:>6}/{}  loss {:.4f}  learning rate {:.2e}  {} tokens/s  {} left", step, request_.steps, loss, rate,
                    format_rounded(tokens_per_second),
                    seconds_left < 8.64e6 ? format_duration(seconds(std::max(seconds_left, 0.0))) : "more than 100 days");
    const bool logged = step % request_.log_every == 0 || step == request_.steps;
    if (progress_is_shown() && !logged) {
      std::fputs(("\r" + line + "   ").c_str(), stderr);
      std::fflush(stderr);
    }
    if (logged) {
      if (progress_is_shown()) std::fputs("\r", stderr);
      write_output("-", line + "\n");
    }
  }

 private:
  const TrainRequest& request_;
  bool enabled_;
};

/// Bytes by what is sent, of all ranks together; without what is never sent.
nlohmann::ordered_json sent_by_payload(const std::vector<SentBytes>& ranks) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (int payload = 1; payload < payloads; ++payload) {
    std::int64_t sent = 0;
    for (const SentBytes& rank : ranks) sent += rank.by_payload[static_cast<std::size_t>(payload)];
    if (sent > 0) json[std::string{name(static_cast<Payload>(payload))}] = sent;
  }
  return json;
}

template <class T, class Executor>
int train(Executor& executor, const TrainRequest& request, const Run& run) {
  using Clock = std::chrono::steady_clock;
  const Schedule& schedule = executor.schedule();
  const training::TokenWindows source = run.source();
  std::optional<TrainOutputs> outputs;
  if (executor.is_root()) outputs.emplace(request, run, schedule);
  load_start<T>(executor, run);
  Report report{request, executor.is_root()};
  const int replicas = schedule.parts().mesh.data;
  report.head(fmt::format("{} on {} ranks ({}{}), {} parameters in {}, {} tokens a step\n", schedule.name(), schedule.ranks(),
                          request.execution.backend, replicas > 1 ? fmt::format(", {} replicas", replicas) : "",
                          format_count(run.model.model.parameters()), request.execution.dtype,
                          format_count(run.model.batch.global_batch * run.model.batch.sequence)));
  const auto gathers = executor.gathers();
  if (gathers) {
    report.head(
        concat(gathers->in_windows, " of ", gathers->all, " all-gathers a step are in windows, where NCCL can do without SMs\n"));
  }
  const bool on_processors = request.execution.backend != "cuda";
  if (on_processors) report.head(concat("GEMMs by ", kernels_text(layers::host::blas_kernels()), "\n"));
  nlohmann::ordered_json losses = nlohmann::ordered_json::array();
  nlohmann::ordered_json step_seconds = nlohmann::ordered_json::array();
  IterationResult last;
  Timeline before;  // of the step before the last
  const auto begin = Clock::now();
  const std::int64_t first = run.state.step + 1;
  double elapsed = 0;
  std::int64_t step = first;
  const bool saves = !request.save.empty();
  const StopSignals signals{saves, executor.is_root()};
  const std::function<int()> stop = saves ? stop_signal : std::function<int()>{};
  for (; step <= request.steps && last.stop == 0; ++step) {
    const double rate = run.learning_rate.at(step);
    before = std::move(last.timeline);
    last = executor.run(source, {.step = step, .learning_rate = rate, .gradient_clip = request.clip, .stop = stop});
    elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
    losses.push_back(last.loss());
    step_seconds.push_back(to_seconds(last.timeline.makespan()));
    if (executor.is_root() && !std::isfinite(last.loss())) {
      throw DeviceError(concat("the loss of step ", step, " is not a number; a smaller --learning-rate or --clip may help"));
    }
    const auto done = static_cast<double>(step - first + 1);
    const double tokens = static_cast<double>(run.model.batch.global_batch * run.model.batch.sequence) * done;
    report.step(step, last.loss(), rate, tokens / elapsed, elapsed / done * static_cast<double>(request.steps - step));
    const bool due = (request.save_every > 0 && step % request.save_every == 0) || step == request.steps || last.stop != 0;
    if (saves && due) save<T>(executor, request, run, outputs ? outputs->name : "", step);
  }
  const std::int64_t trained = step - 1;
  const int signal = trained < request.steps ? last.stop : 0;
  if (signal != 0 && executor.is_root()) {
    std::fputs(
        fmt::format("tawpipe: stopped by {} after step {}; checkpoint {}, go on with --resume {}\n", name_of_signal(signal),
                    trained, one_line((std::filesystem::path{request.save} / training::checkpoint_name(trained)).string()),
                    one_line(request.save))
            .c_str(),
        stderr);
  }
  if (!request.save_huggingface.empty()) {
    const std::vector<T> weights = collect_weights(executor);
    if (executor.is_root()) {
      const auto format = run.state.dtype == Dtype::f64 ? training::NumberFormat::f64 : training::NumberFormat::f32;
      training::write_huggingface(request.save_huggingface, run.model.model, run.model.constants, format,
                                  [&](ParameterRange range, std::span<double> numbers) {
                                    std::copy_n(weights.begin() + range.begin, range.count(), numbers.begin());
                                  });
    }
  }
  const int code = signal != 0 ? 128 + signal : ok;
  // Launchers end the remaining ranks once one has ended with a code other than 0: no rank ends
  // before the root has written.
  const auto end = [&] {
    std::vector<T> none(1);
    if (code != ok) executor.gather(none, std::vector<char>{1});
    return code;
  };
  if (!outputs) return end();
  if (outputs->timeline) {
    write_timeline_csv(schedule, last.timeline, [&](std::string_view text) { (*outputs->timeline)(text); });
    outputs->timeline->finish();
  }
  if (outputs->schedule) {
    write_schedule_json(schedule, [&](std::string_view text) { (*outputs->schedule)(text); });
    outputs->schedule->finish();
  }
  if (outputs->trace) {
    write_chrome_trace(schedule, last.timeline, [&](std::string_view text) { (*outputs->trace)(text); }, {});
    outputs->trace->finish();
  }
  if (outputs->json || outputs->report) {
    nlohmann::ordered_json json;
    json["schedule"] = schedule.name();
    json["ranks"] = schedule.ranks();
    json["backend"] = request.execution.backend;
    json["dtype"] = request.execution.dtype;
    if (on_processors) {
      const layers::host::BlasKernels kernels = layers::host::blas_kernels();
      json["gemms"] = {{"library", kernels.library}, {"kernels", kernels.processor}};
    }
    json["parameters"] = run.model.model.parameters();
    json["tokens_per_step"] = run.model.batch.global_batch * run.model.batch.sequence;
    json["first_step"] = first;
    if (signal != 0) json["stopped_by"] = name_of_signal(signal);
    json["seconds"] = elapsed;
    json["iteration_seconds"] = to_seconds(last.timeline.makespan());  // of the last step, as --timeline
    json["step_seconds"] = std::move(step_seconds);
    json["losses"] = std::move(losses);
    nlohmann::ordered_json sent = nlohmann::ordered_json::array();
    for (const SentBytes& bytes : last.sent) sent.push_back(bytes.total());
    json["rank_sent_bytes"] = std::move(sent);
    json["payload_sent_bytes"] = sent_by_payload(last.sent);
    if (const auto memory = executor.gpu_memory()) {
      json["gpu_memory"] = {{"allocated_bytes", memory->allocated}};
      if (memory->communicators > 0) {
        json["gpu_memory"].update({{"communicators", memory->communicators},
                                   {"free_before_connecting_bytes", memory->free_before},
                                   {"free_after_connecting_bytes", memory->free_after}});
      }
    }
    if (gathers) {
      json["all_gathers"] = {{"in_iteration", gathers->all}, {"in_windows", gathers->in_windows}};
    }
    if (outputs->json) {
      (*outputs->json)(json.dump(2) + "\n");
      outputs->json->finish();
    }
    if (outputs->report) {
      write_train_page(outputs->report, request, run, schedule, before, last.timeline, trained, std::move(json));
    }
  }
  return end();
}

}  // namespace

int run_train(const TrainRequest& given) {
  TrainRequest request = given;
  request.execution.gradient_norm = request.clip > 0;
  check_outputs({{"--timeline", request.timeline},
                 {"--schedule-out", request.schedule_out},
                 {"--trace", request.trace},
                 {"--json", request.json},
                 {"--report", request.report}});
  std::optional<Run> run;
  try {
    run.emplace(resolve_run(request));
    if (request.execution.backend != "host") request.execution.identity = identity_of(request, *run);
  } catch (const InputError& error) {
    if (request.execution.backend == "host") throw;
    request.execution.problem = error.what();  // for the other ranks
  }
  const ExecutionModel model = run ? run->model : ExecutionModel{};
  if (run && run->state.dtype == Dtype::f64) {
    return with_executor<double>(request.execution, model,
                                 [&](auto& executor) { return train<double>(executor, request, *run); });
  }
  return with_executor<float>(request.execution, model, [&](auto& executor) { return train<float>(executor, request, *run); });
}

}  // namespace tawpipe::sim
