// The accuracy of predictions for one source's rows.
// Not: the predictions (reproduce_truth.cpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "truth.hpp"

namespace tawpipe::sim {

/// A row and its prediction.
struct TruthOutcome {
  TruthRow row;
  std::string why_not;          ///< not expressible; then the rest is empty
  std::string device;           ///< on which it was predicted
  std::string_view generation;  ///< of the curves that priced it
  ErrorClass of;                ///< what the error depends on
  double measured_s = 0;
  double predicted_s = 0;
  /// of the fullest device: its buffers, and what max_memory_allocated, max_memory_reserved and
  /// nvidia-smi show
  double buffers_gib = 0;
  double allocated_gib = 0;
  double reserved_gib = 0;
  double used_gib = 0;
  double device_gib = 0;
  double fits = 1;  ///< probability that all devices have the memory

  bool is_timed() const { return why_not.empty() && measured_s > 0; }
  /// Fraction by which the prediction is too long.
  double error() const { return predicted_s / measured_s - 1; }
  double allocated_error() const { return allocated_gib / row.allocated_gib - 1; }
  double reserved_error() const { return reserved_gib / row.reserved_gib - 1; }
  /// Whether it is known that it ran, or that it did not, for memory.
  bool is_verdict() const { return why_not.empty() && (measured_s > 0 || row.ran_out); }
};

/// The figures of one source. Errors are fractions; without rows they are 0.
struct TruthScore {
  std::string source;
  int rows = 0;
  int expressible = 0;
  double mean_error = 0;
  double median_error = 0;
  double max_error = 0;
  double large_mean_error = 0;  ///< of rows of 64 devices or more
  int large_rows = 0;
  double bias = 0;              ///< mean of the signed errors
  double rank_correlation = 0;  ///< Spearman's, of step times
  int pairs = 0;                ///< of distinct layouts of one setting, measured with different times
  int pairs_right = 0;
  int jobs = 0;                  ///< settings with several measured layouts
  int jobs_right = 0;            ///< the one measured fastest is predicted within 3 % of the best prediction
  double memory_mean_error = 0;  ///< of allocated memory
  int memory_rows = 0;
  double reserved_mean_error = 0;
  int reserved_rows = 0;
  int verdicts = 0;             ///< rows that ran, or ran out of memory
  int false_out_of_memory = 0;  ///< ran, but does not fit as predicted
  int false_fits = 0;           ///< ran out of memory, but fits as predicted
};

namespace detail {

/// [place] rank of each value from 1, equal ones their mean rank
inline std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (std::size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (std::size_t i = begin; i < end; ++i) ranks[order[i]] = static_cast<double>(begin + end + 1) / 2;
  }
  return ranks;
}

inline double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const auto n = static_cast<double>(a.size());
  const double mean_a = std::accumulate(a.begin(), a.end(), 0.0) / n;
  const double mean_b = std::accumulate(b.begin(), b.end(), 0.0) / n;
  double both = 0, of_a = 0, of_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    both += (a[i] - mean_a) * (b[i] - mean_b);
    of_a += (a[i] - mean_a) * (a[i] - mean_a);
    of_b += (b[i] - mean_b) * (b[i] - mean_b);
  }
  return of_a > 0 && of_b > 0 ? both / std::sqrt(of_a * of_b) : 0;
}

/// Whether two rows of a source are one job run in two ways: everything except layout, schedule and
/// recomputation is the same.
inline bool same_job(const TruthRow& a, const TruthRow& b) {
  return a.source == b.source && a.model == b.model && a.layers == b.layers && a.hidden == b.hidden && a.hardware == b.hardware &&
         a.gpus == b.gpus && a.global_batch == b.global_batch && a.sequence == b.sequence && a.precision == b.precision;
}

/// Whether two rows of one job are one layout that was measured twice, by other software or in
/// another release: no prediction can order them. What one of the two does not state counts as
/// equal.
inline bool same_layout(const TruthRow& a, const TruthRow& b) {
  const auto same = [](const std::string& one, const std::string& other) { return one == other || one.empty() || other.empty(); };
  return a.micro_batch == b.micro_batch && a.tp == b.tp && a.sp == b.sp && a.cp == b.cp && a.pp == b.pp && a.vp == b.vp &&
         same(a.zero, b.zero) && same(a.recompute, b.recompute) && same(a.schedule, b.schedule) && same(a.overlap, b.overlap) &&
         a.checks_after_update() == b.checks_after_update();
}

}  // namespace detail

/// Counts the jobs with several measured layouts, and those whose fastest is among the best
/// predicted.
inline void count_jobs(const std::vector<const TruthOutcome*>& outcomes, TruthScore& score) {
  constexpr double close = 1.03;
  std::vector<bool> counted(outcomes.size());
  for (std::size_t first = 0; first < outcomes.size(); ++first) {
    if (counted[first] || !outcomes[first]->is_timed()) continue;
    const TruthOutcome* fastest = outcomes[first];
    double best = fastest->predicted_s;
    bool several = false;
    for (std::size_t other = first + 1; other < outcomes.size(); ++other) {
      const TruthOutcome& row = *outcomes[other];
      if (counted[other] || !row.is_timed() || !detail::same_job(row.row, outcomes[first]->row)) continue;
      counted[other] = true;
      several = several || row.predicted_s != outcomes[first]->predicted_s;  // another layout, not another run
      best = std::min(best, row.predicted_s);
      if (row.measured_s < fastest->measured_s) fastest = &row;
    }
    if (!several) continue;
    ++score.jobs;
    if (fastest->predicted_s <= close * best) ++score.jobs_right;
  }
}

inline TruthScore truth_score(const std::string& source, const std::vector<const TruthOutcome*>& outcomes) {
  TruthScore score{.source = source, .rows = static_cast<int>(outcomes.size())};
  std::vector<double> errors, measured, predicted;
  for (const TruthOutcome* outcome : outcomes) {
    if (!outcome->why_not.empty()) continue;
    ++score.expressible;
    if (outcome->row.allocated_gib > 0) {
      ++score.memory_rows;
      score.memory_mean_error += std::abs(outcome->allocated_error());
    }
    if (outcome->row.reserved_gib > 0) {
      ++score.reserved_rows;
      score.reserved_mean_error += std::abs(outcome->reserved_error());
    }
    if (outcome->is_verdict()) {
      ++score.verdicts;
      if (outcome->row.ran_out && outcome->fits >= 0.5) ++score.false_fits;
      if (!outcome->row.ran_out && outcome->fits < 0.5) ++score.false_out_of_memory;
    }
    if (!outcome->is_timed()) continue;
    errors.push_back(std::abs(outcome->error()));
    if (outcome->row.gpus >= 64) {
      ++score.large_rows;
      score.large_mean_error += errors.back();
    }
    score.bias += outcome->error();
    measured.push_back(outcome->measured_s);
    predicted.push_back(outcome->predicted_s);
  }
  if (score.memory_rows > 0) score.memory_mean_error /= score.memory_rows;
  if (score.reserved_rows > 0) score.reserved_mean_error /= score.reserved_rows;
  if (score.large_rows > 0) score.large_mean_error /= score.large_rows;
  if (errors.empty()) return score;
  const auto count = static_cast<double>(errors.size());
  score.bias /= count;
  score.mean_error = std::accumulate(errors.begin(), errors.end(), 0.0) / count;
  score.rank_correlation = detail::correlation(detail::ranks_of(measured), detail::ranks_of(predicted));
  std::sort(errors.begin(), errors.end());
  score.max_error = errors.back();
  score.median_error = (errors[errors.size() / 2] + errors[(errors.size() - 1) / 2]) / 2;
  count_jobs(outcomes, score);
  for (std::size_t a = 0; a < outcomes.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      const TruthOutcome& one = *outcomes[a];
      const TruthOutcome& other = *outcomes[b];
      if (!one.is_timed() || !other.is_timed() || one.measured_s == other.measured_s) continue;
      if (!detail::same_job(one.row, other.row) || detail::same_layout(one.row, other.row)) continue;
      ++score.pairs;
      const bool ordered =
          one.measured_s < other.measured_s ? one.predicted_s < other.predicted_s : other.predicted_s < one.predicted_s;
      if (ordered) ++score.pairs_right;
    }
  }
  return score;
}

}  // namespace tawpipe::sim
