// Runs many predictions on all cores, with progress.
// Not: the predictions; results are stored by the caller's index, so they do not depend on the
// number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include "commands/output.hpp"
#include "tawpipe/answers/threads.hpp"
#include "tawpipe/report/progress.hpp"

namespace tawpipe::sim {

using answers::all_threads;
using answers::on_threads;

/// The same on all cores (or `threads`), with progress.
template <class Run>
void in_parallel(std::size_t count, const std::string& label, Run&& run, unsigned threads = 0) {
  std::mutex mutex;
  Progress progress{progress_line(label, static_cast<std::int64_t>(count))};
  on_threads(threads > 0 ? threads : all_threads(), count, [&](std::size_t i) {
    run(i);
    const std::lock_guard lock{mutex};
    progress.advance();
  });
  progress.finish();
}

}  // namespace tawpipe::sim
