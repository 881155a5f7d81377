// Proves a schedule correct before it runs: all checks, all findings at once.
// Not: how good it is (analysis/bubble.hpp, critical_path.hpp); docs/validation.md lists the codes.
#pragma once

#include <cstddef>
#include <span>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/core/function_ref.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/topology/cluster.hpp"
#include "tawpipe/verify/diagnostics.hpp"

namespace tawpipe::inline v0 {

/// Is told which of how many checks begins.
using ValidateWatch = FunctionRef<void(int check, int checks)>;

struct ValidateOptions {
  std::size_t keep = 100;  ///< findings kept for each code; all are counted
  /// [rank] peak memory if known (analysis/memory.hpp); otherwise a lower bound
  std::span<const Bytes> peaks = {};
  const ValidateWatch* watch = nullptr;
};

/// All errors in `schedule`, whatever its parts hold and in whatever order.
///
/// If its structure is broken (V1xx) the other checks are skipped; if tasks wait for each other, so
/// are those that need an order. A schedule that passes cannot deadlock, has no data race, and
/// trains on every microbatch exactly once, under the rules of docs/validation.md.
/// In a composed schedule (schedule/compose.hpp) tensor-parallel ranks hold parts of a stage,
/// context-parallel ranks parts of a microbatch's tokens, and replicas share the microbatches:
/// every update sees the sum over all of them. What they exchange inside a stage, its body, is not
/// proven.
/// Complexity: O(edges * ranks * lanes), in additions of contiguous integers. Thread-safe.
TAWPIPE_INLINE Diagnostics validate(const Schedule& schedule, const ValidateOptions& options = {});

/// As above, and checks that the ranks and their memory fit the cluster.
TAWPIPE_INLINE Diagnostics validate(const Schedule& schedule, const Cluster& cluster, const ValidateOptions& options = {});

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include <vector>

#include "tawpipe/verify/check_completeness.hpp"
#include "tawpipe/verify/check_contents.hpp"
#include "tawpipe/verify/check_layout.hpp"
#include "tawpipe/verify/check_memory.hpp"
#include "tawpipe/verify/check_order.hpp"
#include "tawpipe/verify/check_parameters.hpp"
#include "tawpipe/verify/check_races.hpp"
#include "tawpipe/verify/check_structure.hpp"
#include "tawpipe/verify/check_transfers.hpp"
#include "tawpipe/verify/check_work.hpp"

namespace tawpipe::inline v0 {

TAWPIPE_INLINE Diagnostics validate(const Schedule& schedule, const ValidateOptions& options) {
  constexpr int checks = 9;
  int check = 0;
  const auto begins = [&] {
    if (options.watch != nullptr) (*options.watch)(check++, checks);
  };
  Diagnostics out{options.keep};
  begins();
  check_structure(schedule, out);
  if (!out.ok()) return out;
  begins();
  check_parameters(schedule, out);
  if (out.has("V101") || out.has("V102") || out.has("V112")) return out;
  begins();
  check_work(schedule, out);
  check_layout(schedule, out);
  begins();
  const std::vector<TaskId> order = check_cycles(schedule, out);
  begins();
  check_communicator_order(schedule, out);
  const bool runs = order.size() == schedule.tasks().size();
  begins();
  check_transfers(schedule, out);
  begins();
  check_completeness(schedule, runs ? std::span<const TaskId>{order} : std::span<const TaskId>{}, out);
  if (!runs) return out;
  begins();
  check_races(schedule, order, out);
  begins();
  check_contents(schedule, order, out);
  return out;
}

TAWPIPE_INLINE Diagnostics validate(const Schedule& schedule, const Cluster& cluster, const ValidateOptions& options) {
  Diagnostics out = validate(schedule, options);
  if (out.has("V101") || out.has("V102") || out.has("V103") || out.has("V104")) return out;
  check_memory(schedule, cluster, options.peaks, out);
  return out;
}

}  // namespace tawpipe
#endif
