// The number formats that weights and activations are kept in.
// Not: a device's rate in each (topology/device.hpp).
#pragma once

#include <cstdint>
#include <string_view>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::inline v0 {

/// A floating-point format. f8 stands for either 8-bit one (E4M3, E5M2), which have the same size.
enum class Dtype : std::uint8_t { f64, f32, bf16, f16, f8 };

/// Bytes that one number takes.
constexpr std::int64_t size_bytes(Dtype dtype) {
  switch (dtype) {
    case Dtype::f64:
      return 8;
    case Dtype::f32:
      return 4;
    case Dtype::bf16:
    case Dtype::f16:
      return 2;
    case Dtype::f8:
      return 1;
  }
  return 0;  // unreachable: every enumerator returns above
}

/// The name that PyTorch and config.json files use, e.g. "bfloat16".
constexpr std::string_view name(Dtype dtype) {
  switch (dtype) {
    case Dtype::f64:
      return "float64";
    case Dtype::f32:
      return "float32";
    case Dtype::bf16:
      return "bfloat16";
    case Dtype::f16:
      return "float16";
    case Dtype::f8:
      return "float8";
  }
  return "";  // unreachable
}

/// A dtype by its PyTorch name ("bfloat16", also "torch.bfloat16") or short name ("bf16").
/// @throws InputError  naming the nearest and all known names.
inline Dtype parse_dtype(std::string_view text) {
  struct Known {
    std::string_view text;
    Dtype dtype;
  };
  static constexpr Known known[] = {
      {"float64", Dtype::f64},    {"float32", Dtype::f32}, {"bfloat16", Dtype::bf16},
      {"float16", Dtype::f16},    {"float8", Dtype::f8},   {"double", Dtype::f64},
      {"float", Dtype::f32},      {"half", Dtype::f16},    {"float8_e4m3fn", Dtype::f8},
      {"float8_e5m2", Dtype::f8}, {"f64", Dtype::f64},     {"f32", Dtype::f32},
      {"bf16", Dtype::bf16},      {"f16", Dtype::f16},     {"fp16", Dtype::f16},
      {"fp32", Dtype::f32},       {"f8", Dtype::f8},
  };
  std::string_view bare = text;
  if (bare.starts_with("torch.")) bare.remove_prefix(6);
  for (const auto& entry : known) {
    if (bare == entry.text) return entry.dtype;
  }
  throw InputError(unknown_name("dtype", text, {"float64", "float32", "bfloat16", "float16", "float8"}));
}

}  // namespace tawpipe
