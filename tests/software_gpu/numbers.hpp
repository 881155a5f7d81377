// Numbers of a GPU's types in memory, read and written as float, rounded to nearest as a GPU does.
// Not: the library's own conversions, which these check (layers/cuda/number.hpp).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

namespace software_gpu {

enum class Type { f32, f16, bf16, i32, boolean };

inline std::int64_t bytes_of(Type type) {
  if (type == Type::boolean) return 1;
  return type == Type::f16 || type == Type::bf16 ? 2 : 4;
}

namespace detail {

template <class Work>
void with_type(Type type, const Work& work) {
  switch (type) {
    case Type::f32:
      return work(float{});
    case Type::f16:
      return work(__half{});
    case Type::bf16:
      return work(__nv_bfloat16{});
    case Type::i32:
      return work(std::int32_t{});
    case Type::boolean:
      return work(bool{});
  }
}

}  // namespace detail

/// to[i] = the number at from + i strides; indices above 2^24 are not exact.
inline void load(Type type, const std::byte* from, std::int64_t stride, std::int64_t count, float* to) {
  detail::with_type(type, [&](auto zero) {
    const auto* numbers = reinterpret_cast<const decltype(zero)*>(from);
    for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(numbers[i * stride]);
  });
}
inline void store(Type type, const float* from, std::int64_t count, std::byte* to, std::int64_t stride) {
  detail::with_type(type, [&](auto zero) {
    auto* numbers = reinterpret_cast<decltype(zero)*>(to);
    for (std::int64_t i = 0; i < count; ++i) numbers[i * stride] = static_cast<decltype(zero)>(from[i]);
  });
}

/// Which of k products of numbers are summed.
struct Terms {
  std::int64_t begin, end, k;
};
/// c [m, n] += a [m, k] b [k, n], all dense and row-major.
inline void add_product(std::int64_t m, std::int64_t n, Terms terms, const float* a, const float* b, float* c) {
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t l = terms.begin; l < terms.end; ++l) {
      const float factor = a[i * terms.k + l];
      for (std::int64_t j = 0; j < n; ++j) c[i * n + j] += factor * b[l * n + j];
    }
  }
}

}  // namespace software_gpu
