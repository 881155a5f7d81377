// A decoder's operations other than matrix products and attention: norms, SwiGLU, cross entropy,
// lookup.
// Not: matrix products (layers/host/blas.hpp) nor attention (layers/host/attention.hpp).
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace tawpipe::inline v0::layers::host {

/// e to the power of x. Float: a polynomial without branches or comparisons of floats, so that
/// compilers turn loops over it into vector code; within 2 units in the last place; clamped beyond
/// -87 and 87; NaN for arguments that are not finite.
/// Source of the coefficients: Moshier, Cephes library, expf.c.
inline float exponential(float x) {
  constexpr std::int32_t magnitude = 0x7fffffff;
  const auto bits = std::bit_cast<std::int32_t>(x);
  const auto within = std::min(bits & magnitude, std::bit_cast<std::int32_t>(87.0F)) | (bits & ~magnitude);
  const auto bounded = std::bit_cast<float>(within);
  constexpr float rounding = 12582912.0F;  // 1.5 * 2^23: the last bits of the sum are the nearest integer
  const float shifted = bounded * 1.44269504F + rounding;
  const float power = shifted - rounding;
  const float r = (bounded - power * 0.693359375F) - power * -2.12194440e-4F;  // ln 2 in two parts
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r + 1.0F;
  const float not_a_number = x - x;  // or 0
  return p * std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) + 127U) << 23) + not_a_number;
}
inline double exponential(double x) { return std::exp(x); }

/// term(0) + ... + term(n - 1) in eight parallel sums, which compilers turn into vector code.
template <class T, class Term>
T sum_of(std::int64_t n, Term term) {
  T lane[8] = {};
  const std::int64_t rest = n % 8;
  for (std::int64_t i = 0; i < n - rest; i += 8) {
    for (int l = 0; l < 8; ++l) lane[l] += term(i + l);
  }
  for (std::int64_t l = 0; l < rest; ++l) lane[l] += term(n - rest + l);
  return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/// The largest of x[0] .. x[n - 1]. @pre n > 0
inline double largest_of(const double* x, std::int64_t n) { return *std::max_element(x, x + n); }
/// As integers, which compare like the floats they represent once negative ones are flipped: vector
/// code again.
inline float largest_of(const float* x, std::int64_t n) {
  const auto turned = [](std::int32_t bits) { return bits ^ ((bits >> 31) & 0x7fffffff); };
  std::int32_t most = std::numeric_limits<std::int32_t>::min();
  for (std::int64_t i = 0; i < n; ++i) most = std::max(most, turned(std::bit_cast<std::int32_t>(x[i])));
  return std::bit_cast<float>(turned(most));
}

/// x becomes softmax(x), [n]. Returns log(sum(exp(x))).
template <class T>
T softmax(T* x, std::int64_t n) {
  const T most = largest_of(x, n);
  for (std::int64_t i = 0; i < n; ++i) x[i] = exponential(x[i] - most);
  const T total = sum_of<T>(n, [x](std::int64_t i) { return x[i]; });
  const T factor = T{1} / total;
  for (std::int64_t i = 0; i < n; ++i) x[i] *= factor;
  return most + std::log(total);
}

/// 1 / sqrt(mean of squares + epsilon) of one row.
template <class T>
T reciprocal_rms(const T* x, std::int64_t hidden, T epsilon) {
  const T squares = sum_of<T>(hidden, [x](std::int64_t j) { return x[j] * x[j]; });
  return T{1} / std::sqrt(squares / static_cast<T>(hidden) + epsilon);
}

/// y = RMSNorm(x) with the weights `gain` [hidden]; x and y are [tokens, hidden].
/// Source: Zhang and Sennrich 2019, arXiv:1910.07467, equation 4.
template <class T>
void rms_norm(const T* x, const T* gain, T* y, std::int64_t tokens, std::int64_t hidden, T epsilon) {
  for (std::int64_t t = 0; t < tokens; ++t, x += hidden, y += hidden) {
    const T scale = reciprocal_rms(x, hidden, epsilon);
    const T* __restrict from = x;
    T* __restrict to = y;
    for (std::int64_t j = 0; j < hidden; ++j) to[j] = from[j] * scale * gain[j];
  }
}

/// `gradient` [tokens, hidden] of the norm's output becomes that of its input x; the gradient of
/// the weights is added to `gain_gradient` [hidden].
template <class T>
void add_rms_norm_backward(const T* x, const T* gain, T* gradient, T* gain_gradient, std::int64_t tokens, std::int64_t hidden,
                           T epsilon) {
  for (std::int64_t t = 0; t < tokens; ++t, x += hidden, gradient += hidden) {
    const T* __restrict from = x;
    T* __restrict d = gradient;
    T* __restrict sums = gain_gradient;
    const T scale = reciprocal_rms(from, hidden, epsilon);
    const T along = sum_of<T>(hidden, [=](std::int64_t j) { return gain[j] * d[j] * from[j]; });
    const T back = along / static_cast<T>(hidden) * scale * scale * scale;
    for (std::int64_t j = 0; j < hidden; ++j) {
      sums[j] += d[j] * (from[j] * scale);
      d[j] = gain[j] * d[j] * scale - from[j] * back;
    }
  }
}

/// The same, and the gradient of the weights is written.
template <class T>
void rms_norm_backward(const T* x, const T* gain, T* gradient, T* gain_gradient, std::int64_t tokens, std::int64_t hidden,
                       T epsilon) {
  std::fill_n(gain_gradient, hidden, T{0});
  add_rms_norm_backward(x, gain, gradient, gain_gradient, tokens, hidden, epsilon);
}

/// `sigmoid` of gate and `product` = silu(gate) up, all [n]. Source: Shazeer 2020,
/// arXiv:2002.05202, equation 6.
template <class T>
void swiglu(const T* __restrict gate, const T* __restrict up, T* __restrict sigmoid, T* __restrict product, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    sigmoid[i] = T{1} / (T{1} + exponential(-gate[i]));
    product[i] = gate[i] * sigmoid[i] * up[i];
  }
}

/// `gate` and `up` become their gradients, given that of their product.
template <class T>
void swiglu_backward(T* __restrict gate, T* __restrict up, const T* __restrict sigmoid, const T* __restrict gradient,
                     std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const T silu = gate[i] * sigmoid[i];
    const T slope = sigmoid[i] + silu * (T{1} - sigmoid[i]);
    gate[i] = gradient[i] * up[i] * slope;
    up[i] = gradient[i] * silu;
  }
}

/// to += from, [n].
template <class T>
void add_to(T* __restrict to, const T* __restrict from, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] += from[i];
}

/// Each row of to [rows, n] += row [n].
template <class T>
void add_to_rows(T* __restrict to, const T* __restrict row, std::int64_t rows, std::int64_t n) {
  for (std::int64_t i = 0; i < rows; ++i, to += n) add_to(to, row, n);
}

/// to [n] += the sum of the rows of from [rows, n].
template <class T>
void add_sum_of_rows(T* __restrict to, const T* __restrict from, std::int64_t rows, std::int64_t n) {
  for (std::int64_t i = 0; i < rows; ++i, from += n) add_to(to, from, n);
}

/// to += factor from, [n].
template <class T>
void add_scaled(T* __restrict to, const T* __restrict from, T factor, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] += factor * from[i];
}

/// x *= factor, [n].
template <class T>
void scale(T* x, T factor, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) x[i] *= factor;
}

/// to = a + b, [n].
template <class T>
void add(const T* __restrict a, const T* __restrict b, T* __restrict to, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = a[i] + b[i];
}

/// Each row of logits [tokens, vocab] becomes its softmax. Returns the mean over tokens of
/// -log(softmax[target]).
/// @pre 0 <= targets[t] < vocab
template <class T>
double cross_entropy(T* logits, const std::int32_t* targets, std::int64_t tokens, std::int64_t vocab) {
  double total = 0;
  for (std::int64_t t = 0; t < tokens; ++t, logits += vocab) {
    const T wanted = logits[targets[t]];
    total += static_cast<double>(softmax(logits, vocab)) - static_cast<double>(wanted);
  }
  return total / static_cast<double>(tokens);
}

/// Softmax [tokens, vocab] becomes the gradient of the logits, of the mean loss times `scale`.
/// For a part of the vocabulary: logits [tokens, count] of entries from `begin` on. Adds the
/// logarithm of their sum to sums [tokens], or starts it with the first part. @return the targets'
/// logits among them, summed
template <class T>
double add_to_cross_entropy(const T* logits, const std::int32_t* targets, T* sums, std::int64_t tokens, std::int64_t begin,
                            std::int64_t count) {
  double wanted = 0;
  for (std::int64_t t = 0; t < tokens; ++t, logits += count) {
    T most = begin == 0 ? logits[0] : sums[t];
    for (std::int64_t v = 0; v < count; ++v) most = std::max(most, logits[v]);
    T sum = begin == 0 ? T{0} : std::exp(sums[t] - most);
    for (std::int64_t v = 0; v < count; ++v) sum += std::exp(logits[v] - most);
    sums[t] = most + std::log(sum);
    const std::int64_t target = targets[t] - begin;
    if (target >= 0 && target < count) wanted += static_cast<double>(logits[target]);
  }
  return wanted;
}
/// The same logits become their gradient, as cross_entropy_backward's.
template <class T>
void cross_entropy_backward(T* logits, const std::int32_t* targets, const T* sums, std::int64_t tokens, std::int64_t begin,
                            std::int64_t count, double scale) {
  const T factor = static_cast<T>(scale / static_cast<double>(tokens));
  for (std::int64_t t = 0; t < tokens; ++t, logits += count) {
    for (std::int64_t v = 0; v < count; ++v) {
      logits[v] = (std::exp(logits[v] - sums[t]) - (begin + v == targets[t] ? T{1} : T{0})) * factor;
    }
  }
}
template <class T>
void cross_entropy_backward(T* probabilities, const std::int32_t* targets, std::int64_t tokens, std::int64_t vocab,
                            double scale) {
  const T factor = static_cast<T>(scale / static_cast<double>(tokens));
  for (std::int64_t t = 0; t < tokens; ++t, probabilities += vocab) {
    probabilities[targets[t]] -= T{1};
    for (std::int64_t v = 0; v < vocab; ++v) probabilities[v] *= factor;
  }
}

}  // namespace tawpipe::layers::host
