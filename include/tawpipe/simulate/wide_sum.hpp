// A sum whose order does not matter: twice as many digits as a double, rounded once.
// Not: exact; 2^-106 of the terms is lost.
#pragma once

namespace tawpipe::inline v0 {

/// Sums doubles and keeps the rounding error of each addition, so that terms in any order give the
/// same bits.
/// Source: Ogita, Rump and Oishi 2005, Accurate Sum and Dot Product, algorithm 4.4 (Sum2); Knuth's
/// two-sum.
class WideSum {
 public:
  void add(double term) {
    const double sum = sum_ + term;
    rest_ += lost(sum_, term, sum);
    sum_ = sum;
  }
  double value() const { return sum_ + rest_; }
  /// Subtracts the sum from `whole`.
  double left_of(double whole) const {
    const double left = whole - sum_;
    return left + (lost(whole, -sum_, left) - rest_);
  }

 private:
  /// The rounding error of `sum`, the sum of a and b.
  static double lost(double a, double b, double sum) {
    const double kept = sum - a;
    return (a - (sum - kept)) + (b - kept);
  }

  double sum_ = 0;
  double rest_ = 0;
};

}  // namespace tawpipe
