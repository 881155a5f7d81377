// Numbers of GPU layers: float, and the 16-bit floats that are widened to float for every
// computation; packs of them.
// Not: the computations (the bodies in this folder).
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tawpipe/core/half.hpp"
#include "tawpipe/model/dtype.hpp"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
/// Marks code that runs on a GPU and, compiled by any compiler, on the host.
#define TAWPIPE_HOST_DEVICE __host__ __device__
#else
#define TAWPIPE_HOST_DEVICE
#endif
/// Defined where a GPU's way is compiled: by nvcc, and by whoever compiles device code for a host.
#if defined(__CUDA_ARCH__) && !defined(TAWPIPE_DEVICE_CODE)
#define TAWPIPE_DEVICE_CODE
#endif

namespace tawpipe::inline v0::layers::cuda {

/// The number types of a decoder.
template <class T>
inline constexpr bool is_number = std::is_same_v<T, float> || std::is_same_v<T, Bfloat16> || std::is_same_v<T, Half>;

template <class T>
inline constexpr Dtype dtype_of = std::is_same_v<T, float>  ? Dtype::f32
                                  : std::is_same_v<T, Half> ? Dtype::f16
                                                            : Dtype::bf16;

TAWPIPE_HOST_DEVICE inline float widen(float x) { return x; }
TAWPIPE_HOST_DEVICE inline float widen(Bfloat16 x) {
#ifdef TAWPIPE_DEVICE_CODE
  return __uint_as_float(static_cast<unsigned>(x.bits) << 16);
#else
  return static_cast<float>(x);
#endif
}
TAWPIPE_HOST_DEVICE inline float widen(Half x) {
#ifdef TAWPIPE_DEVICE_CODE
  return __half2float(__ushort_as_half(x.bits));
#else
  return static_cast<float>(x);
#endif
}

/// Rounds to nearest, ties to even.
template <class T>
TAWPIPE_HOST_DEVICE inline T narrow(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
#ifdef TAWPIPE_DEVICE_CODE
    T narrowed;
    if constexpr (std::is_same_v<T, Half>) {
      narrowed.bits = __half_as_ushort(__float2half_rn(x));
    } else {
      narrowed.bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
    }
    return narrowed;
#else
    return T{x};
#endif
  }
}

/// Numbers that one thread loads at once if the alignment allows it.
template <class T>
inline constexpr int pack_size = 16 / int{sizeof(T)};

#ifdef TAWPIPE_DEVICE_CODE
inline constexpr bool on_device = true;
#else
inline constexpr bool on_device = false;
#endif

/// 16 bytes that a thread loads or stores at once.
struct alignas(16) Raw {
  std::uint32_t words[4];
};

/// W numbers as floats.
template <int W>
struct Floats {
  float at[W];
};

/// W numbers as stored in memory: 16-bit numbers need half the registers of Floats.
template <int W, class T>
struct Packed {
  T at[W];

  TAWPIPE_HOST_DEVICE Floats<W> floats() const {
    Floats<W> floats;
    for (int k = 0; k < W; ++k) floats.at[k] = widen(at[k]);
    return floats;
  }
};

/// Reads from[0] .. from[W - 1]: in loads of 16 bytes if they fill them. @pre then `from` is
/// aligned to 16 bytes
template <int W, class T>
TAWPIPE_HOST_DEVICE inline Packed<W, T> load_packed(const T* from) {
  Packed<W, T> packed;
  if constexpr (on_device && W * sizeof(T) % 16 == 0) {
    constexpr int each = pack_size<T>;
    for (int part = 0; part < W / each; ++part) {
      const Raw raw = reinterpret_cast<const Raw*>(from)[part];
      memcpy(static_cast<void*>(packed.at + part * each), &raw, 16);
    }
  } else {
    for (int k = 0; k < W; ++k) packed.at[k] = from[k];
  }
  return packed;
}
template <int W, class T>
TAWPIPE_HOST_DEVICE inline Floats<W> load(const T* from) {
  return load_packed<W>(from).floats();
}

/// Writes to[0] .. to[W - 1], in the same way as `load`.
template <int W, class T>
TAWPIPE_HOST_DEVICE inline void store(T* to, const Floats<W>& floats) {
  if constexpr (on_device && W * sizeof(T) % 16 == 0) {
    constexpr int each = pack_size<T>;
    for (int part = 0; part < W / each; ++part) {
      T numbers[each];
      for (int k = 0; k < each; ++k) numbers[k] = narrow<T>(floats.at[part * each + k]);
      Raw raw;
      memcpy(&raw, numbers, 16);
      reinterpret_cast<Raw*>(to)[part] = raw;
    }
  } else {
    for (int k = 0; k < W; ++k) to[k] = narrow<T>(floats.at[k]);
  }
}

/// Whether rows of `count` numbers that begin at these places, or at multiples of `count` after
/// them, can be read in loads of 16 bytes. Null is ignored.
template <class... P>
bool in_packs(std::int64_t count, const P*... places) {
  const auto fits = [count](const auto* place) {
    using Number = std::remove_cvref_t<decltype(*place)>;
    return reinterpret_cast<std::uintptr_t>(place) % 16 == 0 && count * std::int64_t{sizeof(Number)} % 16 == 0;
  };
  return (fits(places) && ...);
}

}  // namespace tawpipe::layers::cuda
