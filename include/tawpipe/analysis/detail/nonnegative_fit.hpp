// Least squares with a few coefficients, none of them negative, over medians of equal measurements.
// Not: public; analysis/calibrate.hpp uses it.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <numeric>
#include <vector>

namespace tawpipe::inline v0::detail {

/// Seconds as a sum of n features, each times a nonnegative coefficient. Measurements with equal
/// features count by their median, so that a few late ones do not matter; errors count relative to
/// the measured time.
template <std::size_t n>
class NonnegativeFit {
 public:
  using Features = std::array<double, n>;

  void add(const Features& features, double value) { samples_[features].push_back(value); }
  bool empty() const { return samples_.empty(); }
  /// The number of measurements, and their mean.
  std::size_t size() const {
    std::size_t count = 0;
    for (const auto& sample : samples_) count += sample.second.size();
    return count;
  }
  double mean() const {
    double sum = 0;
    for (const auto& sample : samples_) sum += std::accumulate(sample.second.begin(), sample.second.end(), 0.0);
    return empty() ? 0 : sum / static_cast<double>(size());
  }

  /// The best coefficients; where several sets fit equally well, the one with the fewest nonzero
  /// coefficients, then the first.
  /// Complexity: O(2^n measurements).
  Features solve() {
    points_.clear();
    for (auto& [features, values] : samples_) {
      const double middle = median(values);
      if (middle > 0) points_.push_back({features, middle, static_cast<double>(values.size()) / (middle * middle)});
    }
    Features best{};
    double least = residual(best);
    const double noise = least * 1e-20;  // the rounding error of a perfect fit
    for (std::size_t size = 1; size <= n; ++size) {
      for (unsigned set = 1; set < (1U << n); ++set) {
        if (members(set).size() != size) continue;
        Features found{};
        if (!solve(members(set), found)) continue;
        const double error = residual(found);
        if (error < least - noise) {
          best = found;
          least = error;
        }
      }
    }
    return best;
  }

  /// The sum of all differences from `coefficients` over the sum of all measurements.
  double relative_error(const Features& coefficients) const {
    double difference = 0;
    double sum = 0;
    for (const auto& [features, values] : samples_) {
      for (const double value : values) {
        difference += std::abs(value - at(features, coefficients));
        sum += value;
      }
    }
    return sum > 0 ? difference / sum : 0;
  }

 private:
  struct Point {
    Features features;
    double value;
    double weight;
  };

  static double median(std::vector<double>& values) {
    std::sort(values.begin(), values.end());
    const std::size_t half = values.size() / 2;
    return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
  }

  static double at(const Features& features, const Features& coefficients) {
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += features[i] * coefficients[i];
    return sum;
  }

  double residual(const Features& coefficients) const {
    double sum = 0;
    for (const Point& point : points_) {
      const double difference = point.value - at(point.features, coefficients);
      sum += point.weight * difference * difference;
    }
    return sum;
  }

  static std::vector<std::size_t> members(unsigned set) {
    std::vector<std::size_t> indices;
    for (std::size_t i = 0; i < n; ++i) {
      if ((set >> i & 1U) != 0) indices.push_back(i);
    }
    return indices;
  }

  /// Least squares over only the features `used`, by the normal equations with columns scaled to
  /// length 1.
  /// @return false if the features depend on each other, or a coefficient would be negative
  bool solve(const std::vector<std::size_t>& used, Features& found) const {
    const std::size_t size = used.size();
    std::array<std::array<double, n + 1>, n> rows{};
    std::array<double, n> length{};
    for (std::size_t i = 0; i < size; ++i) {
      for (const Point& point : points_) length[i] += point.weight * point.features[used[i]] * point.features[used[i]];
      length[i] = std::sqrt(length[i]);
      if (!(length[i] > 0)) return false;
    }
    for (const Point& point : points_) {
      for (std::size_t i = 0; i < size; ++i) {
        const double scaled = point.weight * point.features[used[i]] / length[i];
        for (std::size_t j = 0; j < size; ++j) rows[i][j] += scaled * point.features[used[j]] / length[j];
        rows[i][size] += scaled * point.value;
      }
    }
    for (std::size_t step = 0; step < size; ++step) {  // Gauss-Jordan elimination; the matrix is positive definite
      if (rows[step][step] < 1e-12) return false;
      for (std::size_t i = 0; i < size; ++i) {
        if (i == step) continue;
        const double factor = rows[i][step] / rows[step][step];
        for (std::size_t j = step; j <= size; ++j) rows[i][j] -= factor * rows[step][j];
      }
    }
    for (std::size_t i = 0; i < size; ++i) {
      const double value = rows[i][size] / rows[i][i] / length[i];
      if (value < 0) return false;
      found[used[i]] = value;
    }
    return true;
  }

  std::map<Features, std::vector<double>> samples_;
  std::vector<Point> points_;
};

}  // namespace tawpipe::detail
