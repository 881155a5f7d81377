// How far a predicted step time may be from the measured one, by what public runs like it were off.
// Not: the runs (docs/accuracy.md), nor the predictions themselves (search/predict.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "tawpipe/core/text.hpp"
#include "tawpipe/search/detail/measured_errors.hpp"
#include "tawpipe/search/problem.hpp"

namespace tawpipe::inline v0 {

/// The class of a problem whose layers `software` runs. The generation is empty where the device has no
/// curves of its own, and the software unknown where times are not those of kernels: no public run was
/// predicted so.
inline ErrorClass error_class(const Problem& problem, Software software) {
  const bool kernels = std::holds_alternative<KernelCost>(problem.cost);
  ErrorClass found{.software = kernels ? software : Software::unknown};
  if (problem.model) {
    found.mixture = problem.model->is_routed();
    const ProductFormat format = problem.model->products;
    found.bits = format == ProductFormat::nvfp4 ? 4 : is_narrow(format) ? 8 : 16;
  }
  const DeviceSpec& device = problem.cluster.device(Rank{0});
  if (kernels && has_own_curves(device)) found.generation = std::get<KernelCost>(problem.cost).curves(device).generation;
  found.others_curves = kernels && !has_own_curves(device);
  found.measured_step = kernels && std::get<KernelCost>(problem.cost).speed() != 1;
  return found;
}

/// The natural logarithm of measured over predicted time, as normally distributed.
struct ExpectedError {
  double mean = 0;
  double deviation = 0;
  int rows = 0;          ///< public runs of the narrowest class that has any; 0: nothing like it was measured
  ErrorClass like = {};  ///< that class
  int depth = 0;         ///< its first so many of software, mixture, bits and generation

  /// 80 % of measured times are expected between these multiples of a prediction, itself among them: what
  /// all known sources of a class are off by does not make those that were left out better
  /// (docs/how_sure.md).
  double low() const { return std::min(1.0, std::exp(mean - detail::normal_90th * deviation)); }
  double high() const { return std::max(1.0, std::exp(mean + detail::normal_90th * deviation)); }

  /// "48 public runs of dense models in 16 bits on H100 by Megatron-LM".
  std::string text() const {
    if (like.measured_step) return "layouts of a job of which one was measured";
    if (rows == 0) return "no public run like it was measured";
    std::string text = concat(rows, rows == 1 ? " public run" : " public runs");
    if (depth > 1) text += like.mixture ? " of mixtures" : " of dense models";
    if (depth > 2) text += concat(" in ", like.bits, " bits");
    if (depth > 3) text += concat(" on ", like.generation);
    return concat(text, " by ", title(like.software), like.others_curves ? " on other GPUs" : "");
  }
};

/// By how much two layouts of one job on one software were off from each other: the logarithm of the ratio
/// of their times, whose absolute value was below this in 80 % of the public pairs. A smaller predicted
/// difference tells nothing.
inline double pair_error(const ErrorClass& asked) {
  return asked.software == Software::unknown ? detail::pairs_of_others
         : asked.mixture                     ? detail::pairs_of_mixtures
                                             : detail::pairs_of_dense;
}

/// What public runs of a class were off, each narrower class pooled with the wider one by the number of
/// its runs (empirical Bayes: a class of few runs is mostly what its wider class is). Software that was
/// never measured is off as one more software is: by the spread between those that were, with Student's
/// distribution of so few. So is a device whose kernels are timed by another's curves. By a measured step
/// (search/measured_step.hpp) a layout is off as two layouts of a job are from each other.
inline ExpectedError expected_error(const ErrorClass& asked) {
  if (asked.measured_step) return {.deviation = pair_error(asked) / detail::normal_90th, .rows = 1, .like = asked};
  if (asked.others_curves) {
    ErrorClass own = asked;
    own.others_curves = false;
    ExpectedError error = expected_error(own);
    error.deviation = std::hypot(error.deviation, detail::others_curves_deviation);
    error.like.others_curves = true;
    return error;
  }
  const detail::PooledErrors any = detail::pooled_over_software();
  ExpectedError error{.mean = any.mean, .deviation = std::sqrt(any.variance)};
  if (asked.software == Software::unknown) {
    if (!asked.mixture) return error;
    // What mixtures add is known of one software only.
    const detail::PooledErrors all = detail::pooled({Software::megatron}, 1);
    const detail::PooledErrors mixtures = detail::pooled({Software::megatron, true}, 2);
    error.mean += mixtures.mean - all.mean;
    error.deviation = std::sqrt(error.deviation * error.deviation + mixtures.variance);
    return error;
  }
  // Runs that the wider class counts as. With 1, 3 or 6 the intervals hold 83 to 84 % of the configurations
  // that were left out (docs/how_sure.md).
  constexpr double wider_runs = 3;
  for (int depth = 1; depth <= 4; ++depth) {
    const detail::PooledErrors own = detail::pooled(asked, depth);
    if (own.rows == 0) break;
    const double mean = (own.weight * own.mean + wider_runs * error.mean) / (own.weight + wider_runs);
    const double off = own.mean - mean;
    const double variance =
        (own.weight * (own.variance + off * off) + wider_runs * error.deviation * error.deviation) / (own.weight + wider_runs);
    error = {mean, std::sqrt(variance * (1 + 1 / (own.weight + wider_runs))), own.rows, asked, depth};
  }
  return error;
}
inline ExpectedError expected_error(const Problem& problem, Software software) {
  return expected_error(error_class(problem, software));
}

/// pair_error() for predictions whose errors have nothing to do with each other, as of two programs.
inline double difference_error(const ExpectedError& a, const ExpectedError& b) {
  return detail::normal_90th * std::hypot(a.deviation, b.deviation);
}

}  // namespace tawpipe
