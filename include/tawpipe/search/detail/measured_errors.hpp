// What public runs were off from their predictions, by class: numbers that bench/accuracy/errors.py makes.
// Not: the error of a new prediction (search/expected_error.hpp).
#pragma once

#include <cstdint>
#include <string_view>

namespace tawpipe::inline v0 {

/// Whose code ran a public run that was predicted; its errors are told apart by it.
enum class Software : std::uint8_t { unknown, megatron, torchtitan, composer, jax, internevo };
inline constexpr int softwares = 6;

/// Its name in JSON, "megatron".
constexpr std::string_view name(Software software) {
  constexpr std::string_view names[softwares] = {"unknown", "megatron", "torchtitan", "composer", "jax", "internevo"};
  return names[static_cast<int>(software)];
}
/// The name that its users know: "Megatron-LM".
constexpr std::string_view title(Software software) {
  constexpr std::string_view names[softwares] = {"other software", "Megatron-LM", "torchtitan",
                                                 "Composer",       "MaxText",     "InternEvo"};
  return names[static_cast<int>(software)];
}

/// What the error of a prediction depends on.
struct ErrorClass {
  Software software = Software::unknown;
  bool mixture = false;
  int bits = 16;                     ///< of the layers' GEMMs: 16, 8 or 4
  std::string_view generation = {};  ///< of the device's curves: "H100"; empty: it has none
  bool others_curves = false;        ///< kernels are timed by another generation's, as it has none
  bool measured_step = false;        ///< times are by a step that was measured of another layout

  /// Whether the first `depth` of software, mixture, bits and generation are those of `other`.
  constexpr bool is_like(const ErrorClass& other, int depth) const {
    return software == other.software && (depth < 2 || mixture == other.mixture) && (depth < 3 || bits == other.bits) &&
           (depth < 4 || generation == other.generation);
  }
};

namespace detail {

/// The runs of one class. The error of a run is the natural logarithm of measured over predicted time.
struct MeasuredErrors {
  ErrorClass of;
  int rows;
  double weight;  ///< n runs of one source, model, device and format weigh as sqrt(n)
  double mean;
  double deviation;
};

inline constexpr MeasuredErrors measured_errors[] = {
    {{Software::composer, false, 8, "H100"}, 5, 3.1, 0.059, 0.043},
    {{Software::composer, false, 16, "A100"}, 65, 23.3, -0.003, 0.094},
    {{Software::composer, false, 16, "H100"}, 32, 14.9, 0.049, 0.049},
    {{Software::internevo, false, 16, "A100"}, 46, 6.8, 0.212, 0.116},
    {{Software::jax, false, 8, "H100"}, 20, 8.9, -0.126, 0.192},
    {{Software::jax, false, 16, "H100"}, 15, 6.7, -0.122, 0.160},
    {{Software::megatron, false, 4, "B200"}, 8, 4.7, -0.022, 0.047},
    {{Software::megatron, false, 4, "B300"}, 7, 3.7, -0.042, 0.031},
    {{Software::megatron, false, 8, "B200"}, 30, 12.9, 0.094, 0.077},
    {{Software::megatron, false, 8, "B300"}, 17, 7.7, 0.015, 0.123},
    {{Software::megatron, false, 8, "H100"}, 74, 40.8, 0.044, 0.088},
    {{Software::megatron, false, 16, "A100"}, 56, 20.3, 0.009, 0.045},
    {{Software::megatron, false, 16, "B200"}, 20, 18.7, 0.035, 0.059},
    {{Software::megatron, false, 16, "H100"}, 52, 21.2, 0.010, 0.051},
    {{Software::megatron, true, 8, "B200"}, 29, 11.4, 0.062, 0.092},
    {{Software::megatron, true, 8, "B300"}, 11, 5.4, 0.091, 0.159},
    {{Software::megatron, true, 8, "H100"}, 6, 4.8, 0.270, 0.062},
    {{Software::megatron, true, 16, "B200"}, 6, 4.1, 0.062, 0.195},
    {{Software::megatron, true, 16, "B300"}, 4, 2.0, 0.102, 0.004},
    {{Software::megatron, true, 16, "H100"}, 10, 7.0, 0.161, 0.080},
    {{Software::torchtitan, false, 8, "H100"}, 21, 7.8, 0.170, 0.132},
    {{Software::torchtitan, false, 16, "H100"}, 5, 3.1, 0.063, 0.067},
};

/// The 90th percentile of a standard normal distribution: 80 % lie between it and its negative.
inline constexpr double normal_90th = 1.2816;

/// 80 % of the pairs of layouts of one job were off from each other by less: the logarithm of the ratio.
inline constexpr double pairs_of_dense = 0.055;
inline constexpr double pairs_of_mixtures = 0.102;
inline constexpr double pairs_of_others = 0.20;  ///< of other software than Megatron-LM

/// What another generation's curves add to the error of a prediction: by A100's curves in place of their
/// own, runs on H100 in 16 and 8 bits are predicted 9 and 7 % faster, on B200 27 % (16 bits), 6 % (8) and
/// 18 % (4), on B300 11 % (8) and 19 % (4). Their root mean square, either way: other devices may be faster.
/// Source: tawpipe reproduce --leave-out on the public runs.
inline constexpr double others_curves_deviation = 0.155;

/// Several classes as one.
struct PooledErrors {
  int rows = 0;
  double weight = 0;
  double mean = 0;
  double variance = 0;
};
/// The runs whose class is like `asked` in its first `depth` parts.
constexpr PooledErrors pooled(const ErrorClass& asked, int depth) {
  PooledErrors all;
  double squares = 0;
  for (const MeasuredErrors& one : measured_errors) {
    if (!one.of.is_like(asked, depth)) continue;
    all.rows += one.rows;
    all.weight += one.weight;
    all.mean += one.weight * one.mean;
    squares += one.weight * (one.deviation * one.deviation + one.mean * one.mean);
  }
  if (all.rows == 0) return all;
  all.mean /= all.weight;
  all.variance = squares / all.weight - all.mean * all.mean;
  return all;
}

/// Of software that none of these is: the mean over them, and the spread between them, both within one and
/// from one to another, as Student's distribution has it for so few.
constexpr PooledErrors pooled_over_software() {
  PooledErrors all;
  double squares = 0;
  int count = 0;
  for (int i = 1; i < softwares; ++i) {
    const PooledErrors one = pooled({static_cast<Software>(i)}, 1);
    if (one.rows == 0) continue;
    ++count;
    all.mean += one.mean;
    all.variance += one.variance;
    squares += one.mean * one.mean;
  }
  constexpr double student = 1.533 / normal_90th;  // the 90th percentile with 4 degrees of freedom over that with all
  all.mean /= count;
  const double between = (squares - count * all.mean * all.mean) / (count - 1);
  all.variance = student * student * (all.variance / count + between * (1 + 1.0 / count));
  return all;
}

}  // namespace detail

}  // namespace tawpipe
