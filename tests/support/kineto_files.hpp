// PyTorch profiler traces made by hand or from a simulated timeline, one JSON for each rank.
// Not: traces of a real PyTorch (tests/torch).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/core/text.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/timeline/timeline.hpp"

namespace support {

/// The events of one rank's trace. Times are microseconds.
class KinetoFile {
 public:
  KinetoFile(int rank, int world) : rank_{rank}, world_{world} {}

  /// A call of the host and what it launched on a stream. @return its correlation
  int launch(double at, double took, const std::string& name, int stream, double start, double length,
             const std::string& args = {}) {
    const int correlation = ++correlation_;
    call("cudaLaunchKernel", at, took, correlation);
    event("kernel", name, 0, stream, start, length,
          tawpipe::concat("\"External id\": ", correlation, ", \"device\": 0, \"stream\": ", stream,
                          ", \"correlation\": ", correlation, args.empty() ? "" : ", ", args));
    return correlation;
  }
  void call(const std::string& name, double at, double took, int correlation, int thread = 1) {
    event("cuda_runtime", name, 100, thread, at, took, tawpipe::concat("\"correlation\": ", correlation));
  }
  /// On another thread. @return its correlation
  int next() { return ++correlation_; }
  void event(const std::string& category, const std::string& name, int process, int thread, double start, double length,
             const std::string& args) {
    events_ += tawpipe::concat(events_.empty() ? "" : ",\n", "{\"ph\": \"X\", \"cat\": \"", category, "\", \"name\": \"", name,
                               "\", \"pid\": ", process, ", \"tid\": ", thread, ", \"ts\": ", start, ", \"dur\": ", length,
                               ", \"args\": {", args, "}}");
  }
  static std::string collective(const std::string& name, const std::string& group, const std::string& ranks, int size,
                                std::int64_t elements = 1000, int sequence = -1) {
    return tawpipe::concat("\"Collective name\": \"", name, "\", \"In msg nelems\": ", elements,
                           ", \"Out msg nelems\": ", elements, ", \"Group size\": ", size,
                           ", \"dtype\": \"BFloat16\", \"Process Group Name\": \"", group, "\", \"Process Group Ranks\": \"",
                           ranks, "\"", sequence < 0 ? std::string{} : tawpipe::concat(", \"Seq\": ", sequence));
  }
  std::string text(std::int64_t base = 1700000000000000000) const {
    return tawpipe::concat("{\"schemaVersion\": 1, \"distributedInfo\": {\"backend\": \"nccl\", \"rank\": ", rank_,
                           ", \"world_size\": ", world_, "}, \"baseTimeNanoseconds\": ", base, ", \"traceEvents\": [\n", events_,
                           "\n]}\n");
  }

 private:
  int rank_;
  int world_;
  int correlation_ = 0;
  std::string events_;
};

/// The traces of a pipeline that ran as `timeline` says, with messages on separate streams and
/// launches just before their kernels. A receive is launched as soon as its stream is free, and
/// waits.
inline std::vector<std::string> kineto_traces(const tawpipe::Schedule& schedule, const tawpipe::Timeline& timeline) {
  std::vector<KinetoFile> files;
  for (int rank = 0; rank < schedule.ranks(); ++rank) files.emplace_back(rank, schedule.ranks());
  const auto microseconds = [](tawpipe::TimePoint at) { return static_cast<double>(at.picoseconds()) * 1e-6 + 1000; };
  std::vector<std::size_t> order(schedule.tasks().size());
  for (std::size_t t = 0; t < order.size(); ++t) order[t] = t;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return timeline.start[a] < timeline.start[b]; });
  for (const std::size_t t : order) {
    const tawpipe::Task& task = schedule.tasks()[t];
    const double start = microseconds(timeline.start[t]);
    const double length = microseconds(timeline.end[t]) - start;
    const auto launch = [&](tawpipe::Rank rank, const std::string& name, int stream, const std::string& args) {
      return files[tawpipe::index(rank)].launch(start - 5, 4, name, stream, start, length, args);
    };
    if (tawpipe::is_compute(task.op)) {
      const bool forward = task.op == tawpipe::Op::forward;
      KinetoFile& file = files[tawpipe::index(task.rank)];
      for (const tawpipe::TaskId earlier : schedule.dependencies(tawpipe::id<tawpipe::TaskId>(t))) {
        if (schedule.task(earlier).op == tawpipe::Op::pass) file.call("cudaStreamWaitEvent", start - 6, 0.5, file.next());
      }
      const int launched = launch(task.rank, forward ? "forward_gemm" : "backward_gemm", 7, {});
      file.event("cpu_op", forward ? "aten::mm" : "autograd::engine::evaluate_function: MmBackward0", 100, 1, start - 6, 5,
                 tawpipe::concat("\"External id\": ", launched));
      continue;
    }
    const int a = std::min(tawpipe::number(task.rank), tawpipe::number(task.peer));
    const std::string ranks = tawpipe::concat("[", a, ", ", a + 1, "]");
    const int stream = task.payload == tawpipe::Payload::activations ? 20 : 30;
    launch(task.rank, "ncclDevKernel_SendRecv", stream, KinetoFile::collective("send", tawpipe::concat(stream, a), ranks, 2));
    launch(task.peer, "ncclDevKernel_SendRecv", stream + 1, KinetoFile::collective("recv", tawpipe::concat(stream, a), ranks, 2));
  }
  std::vector<std::string> texts;
  for (const KinetoFile& file : files) texts.push_back(file.text());
  return texts;
}

}  // namespace support
