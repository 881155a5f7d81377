// The number formats of tensor files, and their conversion from and to C++ numbers.
// Not: what models compute in (model/dtype.hpp), nor files (training/safetensors.hpp).
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/half.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::inline v0::training {

static_assert(std::endian::native == std::endian::little, "tensor files are little-endian and are read without swapping");

/// A number format of a safetensors file. The two 8-bit floats are known by size only; their
/// numbers are not converted.
enum class NumberFormat : std::uint8_t { f64, f32, f16, bf16, i64, i32, i16, i8, u64, u32, u16, u8, boolean, f8_e5m2, f8_e4m3 };

namespace detail {

struct NumberFormatFacts {
  std::string_view name;  ///< as in safetensors
  std::int64_t size_bytes;
};
/// In the order of NumberFormat.
inline constexpr std::array<NumberFormatFacts, 15> number_formats{{{"F64", 8},
                                                                   {"F32", 4},
                                                                   {"F16", 2},
                                                                   {"BF16", 2},
                                                                   {"I64", 8},
                                                                   {"I32", 4},
                                                                   {"I16", 2},
                                                                   {"I8", 1},
                                                                   {"U64", 8},
                                                                   {"U32", 4},
                                                                   {"U16", 2},
                                                                   {"U8", 1},
                                                                   {"BOOL", 1},
                                                                   {"F8_E5M2", 1},
                                                                   {"F8_E4M3", 1}}};

/// `value` as a float whose last bit is set if rounding lost something ("round to odd"), so that
/// rounding it once more to 16 bits gives what rounding `value` at once would.
inline float narrowed_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || std::isnan(value)) return nearest;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;  // towards zero
  return std::bit_cast<float>(bits | 1);
}

/// Calls `use(Number{})` with the C++ type of `format`.
template <class Use>
void with_number_of(NumberFormat format, const Use& use) {
  switch (format) {
    case NumberFormat::f64:
      return use(double{});
    case NumberFormat::f32:
      return use(float{});
    case NumberFormat::f16:
      return use(Half{});
    case NumberFormat::bf16:
      return use(Bfloat16{});
    case NumberFormat::i64:
      return use(std::int64_t{});
    case NumberFormat::i32:
      return use(std::int32_t{});
    case NumberFormat::i16:
      return use(std::int16_t{});
    case NumberFormat::i8:
      return use(std::int8_t{});
    case NumberFormat::u64:
      return use(std::uint64_t{});
    case NumberFormat::u32:
      return use(std::uint32_t{});
    case NumberFormat::u16:
      return use(std::uint16_t{});
    case NumberFormat::u8:
    case NumberFormat::boolean:
      return use(std::uint8_t{});
    case NumberFormat::f8_e5m2:
    case NumberFormat::f8_e4m3:
      break;
  }
  throw InputError("8-bit floats are not converted; store the tensor in F32, F16 or BF16");
}

/// One number as another type. Floats round to nearest.
/// @throws InputError  if a whole number does not fit, or a fraction would become a whole number.
template <class To, class From>
To converted(From value) {
  constexpr bool small_float = std::is_same_v<To, Half> || std::is_same_v<To, Bfloat16>;
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<From, Half> || std::is_same_v<From, Bfloat16>) {
    return converted<To>(static_cast<float>(value));
  } else if constexpr (small_float) {
    return To{narrowed_to_odd(static_cast<double>(value))};
  } else if constexpr (std::is_floating_point_v<To>) {
    return static_cast<To>(value);
  } else if constexpr (std::is_floating_point_v<From>) {
    throw InputError("it holds fractions, whole numbers are needed");
  } else {
    if (!std::in_range<To>(value)) throw InputError(concat("it holds ", value, ", which is out of range here"));
    return static_cast<To>(value);
  }
}

}  // namespace detail

/// Bytes that one number takes.
constexpr std::int64_t size_bytes(NumberFormat format) {
  return detail::number_formats[static_cast<std::size_t>(format)].size_bytes;
}

/// The name that safetensors files use, e.g. "BF16".
constexpr std::string_view name(NumberFormat format) { return detail::number_formats[static_cast<std::size_t>(format)].name; }

/// The format of that name, if there is one.
constexpr std::optional<NumberFormat> find_number_format(std::string_view text) {
  for (std::size_t i = 0; i < detail::number_formats.size(); ++i) {
    if (detail::number_formats[i].name == text) return static_cast<NumberFormat>(i);
  }
  return std::nullopt;
}

/// The format of a C++ number type.
template <class Number>
constexpr NumberFormat format_of() {
  static_assert(std::is_arithmetic_v<Number> && !std::is_same_v<Number, bool> && sizeof(Number) <= 8);
  if constexpr (std::is_floating_point_v<Number>) return sizeof(Number) == 8 ? NumberFormat::f64 : NumberFormat::f32;
  constexpr NumberFormat with_sign[] = {NumberFormat::i8, NumberFormat::i16, NumberFormat::i32, NumberFormat::i64};
  constexpr NumberFormat without[] = {NumberFormat::u8, NumberFormat::u16, NumberFormat::u32, NumberFormat::u64};
  constexpr std::size_t at = std::countr_zero(sizeof(Number));
  return std::is_signed_v<Number> ? with_sign[at] : without[at];
}

/// Numbers from the bytes of a file. Floats round to nearest, ties to even; whole numbers become
/// floats likewise.
/// @pre `bytes` holds `numbers.size()` numbers of `format`
/// @throws InputError  if a whole number does not fit, if `Number` is whole and `format` is not, or
/// for 8-bit floats.
template <class Number>
void decode(NumberFormat format, std::span<const std::byte> bytes, std::span<Number> numbers) {
  detail::with_number_of(format, [&]<class Stored>(Stored stored) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      std::memcpy(&stored, bytes.data() + i * sizeof(Stored), sizeof(Stored));
      numbers[i] = detail::converted<Number>(stored);
    }
  });
}

/// The bytes of a file from numbers: the reverse of decode().
/// @pre `bytes` has the size of `numbers.size()` numbers of `format`
/// @throws InputError  as decode().
template <class Number>
void encode(NumberFormat format, std::span<const Number> numbers, std::span<std::byte> bytes) {
  detail::with_number_of(format, [&]<class Stored>(Stored stored) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      stored = detail::converted<Stored>(numbers[i]);
      std::memcpy(bytes.data() + i * sizeof(Stored), &stored, sizeof(Stored));
    }
  });
}

}  // namespace tawpipe::training
