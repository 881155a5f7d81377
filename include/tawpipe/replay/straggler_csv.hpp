// Traces with the columns of ByteDance's straggler traces, read as a run that can be replayed.
// Not: the traces of PyTorch's profiler (report/kineto_run.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/csv.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/replay/trace_recorder.hpp"
#include "tawpipe/replay/traced_run.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// A line of such a trace. Times are seconds.
struct StragglerRow {
  std::int32_t replica = 0;
  std::int32_t stage = 0;
  std::int32_t rank = 0;
  std::int32_t type = 0;  ///< index in the table of names
  double start = 0;
  double end = 0;
  std::int32_t chunk = -1;  ///< `gmc`, of the whole model
  std::int32_t microbatch = -1;
};

/// The events of one step, and their dependencies in the training framework.
class StragglerStep {
 public:
  StragglerStep(std::string name, const std::vector<std::string>& types, int replicas, int stages, std::vector<StragglerRow> rows,
                std::string_view source)
      : name_{std::move(name)}, types_{types}, replicas_{replicas}, stages_{stages}, rows_{std::move(rows)}, source_{source} {}

  TracedStep read() {
    std::stable_sort(rows_.begin(), rows_.end(),
                     [](const auto& a, const auto& b) { return a.start != b.start ? a.start < b.start : a.end < b.end; });
    double last = rows_.front().start;
    for (const StragglerRow& row : rows_) last = std::max(last, row.end);
    if (!(last - rows_.front().start < longest)) throw fail("it takes more than a day; start_ts and duration must be seconds");
    int chunks = stages_;
    std::int64_t microbatches = 1;
    for (const StragglerRow& row : rows_) {
      chunks = std::max(chunks, row.chunk + 1);
      microbatches = std::max<std::int64_t>(microbatches, row.microbatch + 1);
    }
    chunks_ = chunks;
    TraceRecorder recorder{replicas_ * stages_, chunks, microbatches};
    recorder_ = &recorder;
    of_rank_.assign(static_cast<std::size_t>(replicas_ * stages_), {});
    for (const StragglerRow& row : rows_) {
      of_rank_[static_cast<std::size_t>(rank_of(row.replica, row.stage))][types_[static_cast<std::size_t>(row.type)]].push_back(
          add(row));
    }
    overlapped_ = has("separate-grads-all-reduce");
    for (int rank = 0; rank < replicas_ * stages_; ++rank) order(rank);
    for (int replica = 0; replica < replicas_; ++replica) {
      for (int stage = 0; stage < stages_; ++stage) {
        pair(replica, stage, "forward", (stage + 1) % stages_);
        pair(replica, stage, "backward", (stage + stages_ - 1) % stages_);
      }
      if (stages_ > 1) meet_all("embedding-grads-all-reduce", {rank_of(replica, 0), rank_of(replica, stages_ - 1)});
    }
    std::vector<int> all;
    for (int stage = 0; stage < stages_; ++stage) {
      std::vector<int> group;
      for (int replica = 0; replica < replicas_; ++replica) group.push_back(rank_of(replica, stage));
      for (const char* type : {"params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce"}) meet_all(type, group);
      all.insert(all.end(), group.begin(), group.end());
    }
    meet_all("optimizer-clip-main-grad", all);
    return recorder.build(name_);
  }

 private:
  using Events = std::vector<std::int32_t>;  ///< in the order of their starts

  int rank_of(int replica, int stage) const { return replica * stages_ + stage; }
  bool has(std::string_view type) const { return std::find(types_.begin(), types_.end(), type) != types_.end(); }
  const Events& events(int rank, const std::string& type) const {
    static const Events none;
    const auto& types = of_rank_[static_cast<std::size_t>(rank)];
    const auto found = types.find(type);
    return found == types.end() ? none : found->second;
  }
  InputError fail(std::string_view why) const { return InputError(one_line(concat(source_, ", step ", name_, ": ", why))); }

  std::int32_t add(const StragglerRow& row) {
    const std::string& type = types_[static_cast<std::size_t>(row.type)];
    const auto time = [&](double at) { return TimePoint{seconds(std::max(0.0, at - rows_.front().start))}; };
    TracedEvent event{.rank = Rank{rank_of(row.replica, row.stage)},
                      .name = row.type,
                      .alike = row.type,
                      .stage = StageId{row.chunk >= 0 ? row.chunk : row.stage},
                      .microbatch = row.microbatch,
                      .start = time(row.start),
                      .end = time(row.end)};
    event.op = type == "forward-compute"                                          ? Op::forward
               : type == "backward-compute"                                       ? Op::backward
               : type.ends_with("send") || type.ends_with("recv")                 ? Op::pass
               : type == "params-all-gather"                                      ? Op::all_gather
               : type == "grads-reduce-scatter"                                   ? Op::reduce_scatter
               : type.ends_with("all-reduce") || type.ends_with("clip-main-grad") ? Op::all_reduce
                                                                                  : Op::update;
    const bool computes = is_compute(event.op);
    event.kind = computes ? TraceKind::compute : TraceKind::communication;
    event.lane = recorder_->lane(computes                                                       ? "compute"
                                 : event.op == Op::all_gather || event.op == Op::reduce_scatter ? "data parallel"
                                                                                                : std::string_view{type});
    return recorder_->add(event);
  }

  /// The rank's forwards and backwards in order.
  Events computations(int rank) const {
    Events all = events(rank, "forward-compute");
    const Events& backward = events(rank, "backward-compute");
    all.insert(all.end(), backward.begin(), backward.end());
    std::sort(all.begin(), all.end());  // numbers follow the order of starts
    return all;
  }
  TimePoint start(std::int32_t event) const { return recorder_->event(event).start; }
  TimePoint end(std::int32_t event) const { return recorder_->event(event).end; }

  /// The dependencies of the rank's events.
  void order(int rank) {
    const Events all = computations(rank);
    if (all.empty()) throw fail(concat(label(rank), " computes nothing; give all operations of each rank"));
    gathers_and_scatters(rank, all);
    // After the last computation: gc, then norms, embeddings and gradients, clipping and the
    // optimizer.
    Events chain{all.back()};
    const auto go_on = [&](const std::string& type) {
      const Events& more = events(rank, type);
      chain.insert(chain.end(), more.begin(), more.end());
    };
    go_on("gc");
    const Events& scattered = events(rank, "grads-reduce-scatter");
    const std::size_t after_gc = chain.size();
    go_on("layernorm-grads-all-reduce");
    go_on("embedding-grads-all-reduce");
    go_on(overlapped_ ? "separate-grads-all-reduce" : "grads-reduce-scatter");
    go_on("optimizer-clip-main-grad");
    go_on("optimizer");
    for (std::size_t i = 1; i < chain.size(); ++i) recorder_->wait(chain[i], chain[i - 1]);
    if (overlapped_ && !scattered.empty() && after_gc < chain.size()) recorder_->wait(chain[after_gc], scattered.back());
    for (const char* pass : {"forward", "backward"}) match(rank, pass);
  }

  /// A chunk's first forward waits for its parameters, and its gradients for its last backward.
  void gathers_and_scatters(int rank, const Events& all) {
    const auto same = [&](std::int32_t a, std::int32_t b) { return recorder_->event(a).stage == recorder_->event(b).stage; };
    for (const std::int32_t gather : events(rank, "params-all-gather")) {
      const auto first = std::find_if(all.begin(), all.end(),
                                      [&](std::int32_t e) { return recorder_->event(e).op == Op::forward && same(e, gather); });
      if (first != all.end()) recorder_->wait(*first, gather);
    }
    if (!overlapped_) return;
    for (const std::int32_t scatter : events(rank, "grads-reduce-scatter")) {
      const auto last = std::find_if(all.rbegin(), all.rend(),
                                     [&](std::int32_t e) { return recorder_->event(e).op == Op::backward && same(e, scatter); });
      if (last != all.rend()) recorder_->wait(scatter, *last);
    }
  }

  /// Finds the computation of each send and receive: the i-th message of a pass belongs to its i-th
  /// computation. Receives after the last computation started, and sends before the first ended,
  /// were recorded but never made; neither were those beyond the model's ends.
  void match(int rank, const std::string& pass) {
    const Events& computations = events(rank, pass + "-compute");
    if (computations.empty()) return;
    TimePoint last_start;
    TimePoint first_end = end(computations.front());
    for (const std::int32_t e : computations) {
      last_start = std::max(last_start, start(e));
      first_end = std::min(first_end, end(e));
    }
    for (const bool sends : {true, false}) {
      Events made;
      for (const std::int32_t e : events(rank, concat(pass, sends ? "-send" : "-recv"))) {
        if (sends ? end(e) + slack >= first_end : start(e) <= last_start + slack) made.push_back(e);
      }
      const std::size_t skipped = computations.size() - std::min(computations.size(), made.size());
      if (made.empty()) continue;
      if (made.size() > computations.size() || skipped > 1) {
        throw fail(concat(label(rank), " has ", computations.size(), " ", pass, "s and ", made.size(), " ", pass,
                          sends ? "-sends" : "-recvs", "; each needs one, at the model's ends none"));
      }
      for (std::size_t i = 0; i < made.size(); ++i) {
        const std::size_t c = i + (sends ? 0 : skipped);  // the first stage's first receive may be missing
        const std::int32_t computation = computations[c];
        if (sends) {
          recorder_->wait(made[i], computation);
        } else {
          recorder_->wait(computation, made[i]);
          if (c > 0) recorder_->wait(made[i], computations[c - 1]);
        }
        const std::int32_t chunk = number(recorder_->event(computation).stage);
        const std::int32_t peer = chunk + ((pass == "forward") == sends ? 1 : -1);
        if (peer >= 0 && peer < chunks_) made_[{rank, concat(pass, sends ? "-send" : "-recv")}].push_back(made[i]);
      }
    }
  }

  /// Joins each send of the stage and the receive of its peer into a message.
  void pair(int replica, int stage, const std::string& pass, int peer) {
    if (stages_ < 2) return;
    const Events& sends = made_[{rank_of(replica, stage), pass + "-send"}];
    const Events& receives = made_[{rank_of(replica, peer), pass + "-recv"}];
    if (sends.size() != receives.size()) {
      throw fail(concat(label(rank_of(replica, stage)), " sends ", sends.size(), " times ", pass, " and ",
                        label(rank_of(replica, peer)), " receives ", receives.size(),
                        " times; give all operations of each rank"));
    }
    for (std::size_t i = 0; i < sends.size(); ++i) recorder_->meet({sends[i], receives[i]}, Bytes{});
  }

  /// Joins the i-th events of that type on these ranks into a collective.
  void meet_all(const std::string& type, const std::vector<int>& ranks) {
    const std::size_t count = events(ranks.front(), type).size();
    for (const int rank : ranks) {
      if (events(rank, type).size() == count) continue;
      throw fail(concat(label(ranks.front()), " has ", count, " of ", type, " and ", label(rank), " ", events(rank, type).size(),
                        "; all members of a collective must have it"));
    }
    for (std::size_t i = 0; i < count; ++i) {
      Events members;
      for (const int rank : ranks) members.push_back(events(rank, type)[i]);
      recorder_->meet(std::move(members), Bytes{});
    }
  }

  std::string label(int rank) const { return concat("stage ", rank % stages_, " of dp_rank ", rank / stages_); }

  static constexpr double longest = 86'400;     // seconds
  static constexpr Duration slack{50'000'000};  // 50 us between the clocks of ranks

  std::string name_;
  const std::vector<std::string>& types_;
  int replicas_;
  int stages_;
  int chunks_ = 1;
  std::vector<StragglerRow> rows_;
  std::string_view source_;
  bool overlapped_ = false;
  TraceRecorder* recorder_ = nullptr;
  std::vector<std::map<std::string, Events>> of_rank_;  ///< [rank][type]
  std::map<std::pair<int, std::string>, Events> made_;  ///< sends and receives that took place
};

class StragglerCsv {
 public:
  StragglerCsv(std::string_view text, std::string_view source) : source_{source}, lines_{text, source} {}

  TracedRun read() {
    read_header();
    while (lines_.next()) {
      if (trimmed(lines_.line()).empty()) continue;
      if (lines_.cells().size() != columns_) {
        throw lines_.fail(concat(lines_.cells().size(), " cells under ", columns_, " columns; the file may be cut off"));
      }
      read_row();
    }
    if (steps_.empty()) throw InputError(one_line(concat(source_, ": no operation in it; give a trace with at least one step")));
    return finish();
  }

 private:
  enum Column : std::size_t { dp_rank, stage, rank, step, optype, start_ts, duration, gmc, mb_id };
  static constexpr std::array<std::string_view, 9> names{"dp_rank",  "stage",    "rank", "step", "optype",
                                                         "start_ts", "duration", "gmc",  "mb_id"};

  void read_header() {
    if (!lines_.next()) throw InputError(one_line(concat(source_, ": empty; the first line must name the columns")));
    columns_ = lines_.cells().size();
    for (std::size_t c = 0; c < names.size(); ++c) {
      for (std::size_t i = 0; i < columns_; ++i) {
        if (trimmed(lines_.cells()[i]) == names[c]) place_[c] = i;
      }
      if (!place_[c] && c < gmc) {
        throw lines_.fail(
            concat("no column ", quote(names[c]),
                   "; the columns of a straggler trace are dp_rank, stage, rank, step, optype, start_ts, duration"));
      }
    }
  }

  std::string_view cell(Column column) const {
    return place_[column] ? trimmed(lines_.cells()[*place_[column]]) : std::string_view{};
  }
  double number(Column column) const {
    const auto value = to_number<double>(cell(column));
    if (value && std::isfinite(*value)) return *value;
    throw lines_.fail(*place_[column], concat(CsvReader::shown(cell(column)), " is not a number"), names[column]);
  }
  /// A whole number, also as "3.0"; `otherwise` if it is empty or nan.
  std::int32_t whole(Column column, std::int32_t most, std::optional<std::int32_t> otherwise = {}) const {
    const std::string_view text = cell(column);
    if (otherwise && (text.empty() || text == "nan" || text == "<NA>" || text == "None" || text == "-1" || text == "-1.0")) {
      return *otherwise;
    }
    const double value = number(column);
    if (value >= 0 && value <= most && value == std::floor(value)) return static_cast<std::int32_t>(value);
    throw lines_.fail(*place_[column], concat(CsvReader::shown(text), " must be a whole number from 0 to ", most), names[column]);
  }

  void read_row() {
    StragglerRow row{.replica = whole(dp_rank, 1 << 20),
                     .stage = whole(stage, max_stages),
                     .rank = whole(rank, 1 << 24),
                     .start = number(start_ts),
                     .chunk = whole(gmc, max_stages, -1),
                     .microbatch = whole(mb_id, 1 << 24, -1)};
    const double took = number(duration);
    if (took < 0) throw lines_.fail(*place_[duration], "a duration must not be negative", names[duration]);
    row.end = row.start + took;
    const std::string type{cell(optype)};
    if (type.empty()) throw lines_.fail(*place_[optype], "an operation needs a type, such as forward-compute", names[optype]);
    const auto known = std::find(types_.begin(), types_.end(), type);
    row.type = static_cast<std::int32_t>(known - types_.begin());
    if (known == types_.end()) types_.push_back(type);
    steps_[whole(step, 1 << 30)].push_back(row);
    replicas_ = std::max(replicas_, row.replica + 1);
    stages_ = std::max(stages_, row.stage + 1);
    const auto [at, added] = ranks_.try_emplace({row.replica, row.stage}, row.rank);
    if (!added && at->second != row.rank) {
      throw lines_.fail(concat("ranks ", at->second, " and ", row.rank, " both hold stage ", row.stage, " of dp_rank ",
                               row.replica, "; give one rank's operations of each tensor-parallel group"));
    }
  }

  TracedRun finish() {
    if (std::int64_t{replicas_} * stages_ != static_cast<std::int64_t>(ranks_.size())) {
      for (int replica = 0; replica < replicas_; ++replica) {
        for (int s = 0; s < stages_; ++s) {
          if (!ranks_.contains({replica, s})) {
            throw InputError(
                one_line(concat(source_, ": stage ", s, " of dp_rank ", replica, " has no operation; give all ranks")));
          }
        }
      }
    }
    TracedRun run;
    for (const auto& [place, number] : ranks_) {  // in the order of their numbers in the replay
      run.ranks.push_back(
          {number, concat("rank ", number, " (dp ", place.first, ", stage ", place.second, ")"), place.second, place.first});
    }
    for (auto& [number, rows] : steps_) {
      run.steps.push_back(StragglerStep{std::to_string(number), types_, replicas_, stages_, std::move(rows), source_}.read());
    }
    run.names = types_;
    return run;
  }

  static constexpr std::int32_t max_stages = 65'535;

  std::string source_;
  CsvReader lines_;
  std::size_t columns_ = 0;
  std::array<std::optional<std::size_t>, names.size()> place_;
  std::vector<std::string> types_;
  std::map<std::int32_t, std::vector<StragglerRow>> steps_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> ranks_;  ///< [dp_rank, stage]
  int replicas_ = 0;
  int stages_ = 0;
};

}  // namespace detail

/// Reads a trace in the columns of ByteDance's straggler traces: dp_rank, stage, rank, step,
/// optype, start_ts, duration (seconds), and, if present, gmc and mb_id. Each step can be replayed
/// from its first operation's start.
///
/// Dependencies follow from the framework (Megatron-LM): computations in order; a send for its
/// computation, a computation for its receive; gathers of parameters before a chunk's first
/// forward, scatters of gradients after its last backward if a separate-grads-all-reduce shows that
/// they overlap, and after all of them otherwise; then norms, embeddings, clipping and the
/// optimizer, one after another. Sends and receives are matched in order, and so are members of
/// collectives.
/// @param source  the file's name, for messages
/// @throws InputError  naming line, step or rank: missing columns, a truncated line, an invalid
/// number, a missing rank, members that do not match.
/// Source: Lin et al. 2025, arXiv:2505.05713; ByteDance-Seed/StragglerAnalysis, readme.md,
/// analyzer/dependency_model.py.
inline TracedRun read_straggler_csv(std::string_view text, std::string_view source = "trace") {
  return detail::StragglerCsv{text, source}.read();
}

}  // namespace tawpipe
