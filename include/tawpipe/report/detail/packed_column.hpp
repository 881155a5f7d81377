// Columns of numbers as text for a page: narrow, folded, in base64.
// Not: what they mean (html_report.hpp), nor their reading (page/common.js).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tawpipe::inline v0::detail {

/// The bytes in LZ4's block format (lz4_Block_format.md of lz4 1.9), which is short to read back: an
/// iteration repeats itself for each microbatch, so that a page is a tenth as large.
inline std::string folded(std::string_view bytes) {
  constexpr std::size_t least = 4, farthest = 65535;
  std::string out;
  const auto more = [&](std::size_t count) {
    for (; count >= 255; count -= 255) out += '\xff';
    out += static_cast<char>(count);
  };
  const auto put = [&](std::string_view literals, std::size_t length, std::size_t back) {
    const std::size_t extra = length > 0 ? length - least : 0;
    out += static_cast<char>(std::min<std::size_t>(literals.size(), 15) << 4 | std::min<std::size_t>(extra, 15));
    if (literals.size() >= 15) more(literals.size() - 15);
    out += literals;
    if (length == 0) return;
    out += static_cast<char>(back & 255);
    out += static_cast<char>(back >> 8);
    if (extra >= 15) more(extra - 15);
  };
  std::vector<std::size_t> seen(std::size_t{1} << 15, bytes.size());  // by four bytes, where they were last
  std::size_t from = 0;
  std::size_t at = 0;
  while (at + least <= bytes.size()) {
    std::uint32_t four = 0;
    std::memcpy(&four, bytes.data() + at, sizeof four);
    const std::size_t before = std::exchange(seen[four * 2654435761U >> 17], at);
    if (before >= at || at - before > farthest || bytes.substr(before, least) != bytes.substr(at, least)) {
      ++at;
      continue;
    }
    std::size_t length = least;
    while (at + length < bytes.size() && bytes[before + length] == bytes[at + length]) ++length;
    put(bytes.substr(from, at - from), length, at - before);
    from = at += length;
  }
  put(bytes.substr(from), 0, 0);
  return out;
}

/// Numbers for the page's `unpack`: base64 of little-endian numbers of the narrowest type, folded, or
/// indices into a list of the distinct values if those are few.
class PackedColumn {
 public:
  void reserve(std::size_t count) { values_.reserve(count); }
  void add(double value) { values_.push_back(value); }

  nlohmann::ordered_json json() const {
    const auto [low, high] = std::minmax_element(values_.begin(), values_.end());
    const bool whole = std::all_of(values_.begin(), values_.end(), [](double value) { return value == std::floor(value); });
    if (values_.empty() || (whole && *low >= 0 && *high <= 255)) return packed<std::uint8_t>("u8", values_);
    if (whole && *low >= -32768 && *high <= 32767) return packed<std::int16_t>("i16", values_);
    std::map<double, double> places;
    for (const double value : values_) {
      places.try_emplace(value, static_cast<double>(places.size()));
      if (places.size() > 65536 || places.size() > values_.size() / 4) break;
    }
    if (places.size() <= 65536 && places.size() <= values_.size() / 4) {
      std::vector<double> distinct(places.size());
      for (const auto& [value, place] : places) distinct[static_cast<std::size_t>(place)] = value;
      std::vector<double> coded;
      coded.reserve(values_.size());
      for (const double value : values_) coded.push_back(places.at(value));
      nlohmann::ordered_json json =
          distinct.size() <= 256 ? packed<std::uint8_t>("u8", coded) : packed<std::uint16_t>("u16", coded);
      json["values"] = distinct;
      return json;
    }
    if (whole && *low >= -2147483648.0 && *high <= 2147483647.0) return packed<std::int32_t>("i32", values_);
    return packed<double>("f64", values_);
  }

 private:
  template <class T>
  static nlohmann::ordered_json packed(const char* type, const std::vector<double>& values) {
    std::string bytes(values.size() * sizeof(T), '\0');
    for (std::size_t i = 0; i < values.size(); ++i) {
      const T value = static_cast<T>(values[i]);
      std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof value);
    }
    return {{"type", type}, {"bytes", bytes.size()}, {"data", base64(folded(bytes))}};
  }

  static std::string base64(std::string_view bytes) {
    constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    text.reserve((bytes.size() + 2) / 3 * 4);
    for (std::size_t at = 0; at < bytes.size(); at += 3) {
      std::uint32_t three = 0;
      for (std::size_t i = 0; i < 3; ++i)
        three = three << 8 | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0U);
      for (std::size_t i = 0; i < 4; ++i) text += at + i > bytes.size() ? '=' : digits[three >> (18 - 6 * i) & 63];
    }
    return text;
  }

  std::vector<double> values_;
};

inline nlohmann::ordered_json packed_rows(const std::vector<std::vector<double>>& rows) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const std::vector<double>& row : rows) {
    PackedColumn column;
    for (const double value : row) column.add(std::round(value));
    all.push_back(column.json());
  }
  return all;
}

}  // namespace tawpipe::detail
