// Quantities as text for people: durations, sizes, rates, shares, counts, bars, and the width of
// text on a terminal.
// Not: exact output for programs (timeline/timeline_csv.hpp), nor reading text back
// (core/parse_units.hpp).
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/core/text.hpp"
#include "tawpipe/core/units.hpp"

namespace tawpipe::inline v0 {

/// The characters that a terminal can show: block characters and "…", or plain ASCII only.
enum class Glyphs : std::uint8_t { unicode, ascii };

namespace detail {

struct UnitStep {
  double factor;  ///< in the base unit
  std::string_view name;
};

/// Number of decimal digits with which `value` shows `digits` significant ones, and never fewer
/// than its whole part.
inline int decimals_for(double value, int digits) {
  int decimals = std::max(digits, 1) - 1;
  double limit = 10;
  while (decimals > 0 && value + 0.5 * std::pow(10.0, -decimals) >= limit) {
    --decimals;
    limit *= 10;
  }
  return decimals;
}

/// `value` with the largest of `units` (ascending) that leaves at least 1 after rounding.
/// @param whole  the first unit has no fractions.
inline std::string scaled(double value, std::span<const UnitStep> units, int digits, bool whole) {
  if (!std::isfinite(value)) return "n/a";
  const double magnitude = std::fabs(value);
  std::size_t at = 0;
  int decimals = 0;
  for (;; ++at) {
    const double shown = magnitude / units[at].factor;
    decimals = at == 0 && whole ? 0 : decimals_for(shown, digits);
    if (at + 1 == units.size()) break;
    if (shown + 0.5 * std::pow(10.0, -decimals) < units[at + 1].factor / units[at].factor) break;
  }
  return fmt::format("{:.{}f} {}", value / units[at].factor, decimals, units[at].name);
}

/// The character that starts at `at`, which moves past it; U+FFFD for a byte that is not UTF-8.
inline char32_t next_code_point(std::string_view text, std::size_t& at) {
  constexpr char32_t broken = 0xFFFD;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(at);
  const std::size_t length = first < 0x80 ? 1 : first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
  if (length == 1 || length == 0 || at + length > text.size()) {
    ++at;
    return length == 1 ? static_cast<char32_t>(first) : broken;
  }
  char32_t code = first & (0xFFU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0U) != 0x80U) {
      ++at;
      return broken;
    }
    code = (code << 6) | (byte(at + i) & 0x3FU);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  if (overlong || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
    ++at;
    return broken;
  }
  at += length;
  return code;
}

struct CodeRange {
  char32_t first;
  char32_t last;
};

inline bool is_within(char32_t code, std::span<const CodeRange> ranges) {
  return std::any_of(ranges.begin(), ranges.end(), [&](const CodeRange& r) { return code >= r.first && code <= r.last; });
}

/// Columns of one character: 0 for marks that combine with the one before, 2 for wide East Asian
/// ones and pictographs.
inline int width_of(char32_t code) {
  constexpr CodeRange zero[] = {{0x0300, 0x036F}, {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF}, {0x200B, 0x200D},
                                {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}, {0xFEFF, 0xFEFF}};
  constexpr CodeRange wide[] = {{0x1100, 0x115F},   {0x2E80, 0x303E},   {0x3041, 0x33FF},   {0x3400, 0x4DBF},
                                {0x4E00, 0x9FFF},   {0xA000, 0xA4CF},   {0xA960, 0xA97F},   {0xAC00, 0xD7A3},
                                {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},   {0xFFE0, 0xFFE6},
                                {0x1F300, 0x1F64F}, {0x1F680, 0x1F6FF}, {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD}};
  if (code < 0x300) return 1;
  return is_within(code, zero) ? 0 : is_within(code, wide) ? 2 : 1;
}

/// Text that cannot steer a terminal: control characters and bytes that are not UTF-8 become "?".
inline std::string printable(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t start = at;
    const char32_t code = next_code_point(text, at);
    const bool broken = code == 0xFFFD && at - start == 1;
    if (broken || code < 0x20 || (code >= 0x7F && code < 0xA0)) {
      out += '?';
    } else {
      out += text.substr(start, at - start);
    }
  }
  return out;
}

}  // namespace detail

/// "601 us", "1.25 s", "3 min 20 s", "2 h 5 min"; with a sign if negative. Below a minute
/// parse_duration can read it.
/// @param digits  significant ones below a minute; above it seconds, minutes and hours are whole
inline std::string format_duration(Duration duration, int digits = 3) {
  constexpr detail::UnitStep units[] = {{1, "ps"}, {1e3, "ns"}, {1e6, "us"}, {1e9, "ms"}, {1e12, "s"}, {60e12, "min"}};
  if (duration == Duration{}) return "0 s";
  const auto picoseconds = static_cast<double>(duration.value());
  if (std::string text = detail::scaled(picoseconds, units, digits, true); !text.ends_with("min")) return text;
  const std::string_view sign = picoseconds < 0 ? "-" : "";
  const std::int64_t whole_seconds = std::llround(std::fabs(picoseconds) * 1e-12);
  if (whole_seconds < 3600) return fmt::format("{}{} min {} s", sign, whole_seconds / 60, whole_seconds % 60);
  const std::int64_t minutes = (whole_seconds + 30) / 60;
  if (minutes < 24 * 60) return fmt::format("{}{} h {} min", sign, minutes / 60, minutes % 60);
  const std::int64_t hours = (minutes + 30) / 60;
  return fmt::format("{}{} d {} h", sign, hours / 24, hours % 24);
}

/// Device memory, in powers of 1024: "80.0 GiB".
inline std::string format_memory(double bytes, int digits = 3) {
  constexpr detail::UnitStep units[] = {{1, "B"},
                                        {1024.0, "KiB"},
                                        {1048576.0, "MiB"},
                                        {1073741824.0, "GiB"},
                                        {1099511627776.0, "TiB"},
                                        {1125899906842624.0, "PiB"},
                                        {1152921504606846976.0, "EiB"}};
  return detail::scaled(bytes, units, digits, true);
}
inline std::string format_memory(Bytes bytes, int digits = 3) {
  return format_memory(static_cast<double>(bytes.value()), digits);
}

/// Bytes sent, in powers of 1000: "25.2 MB".
inline std::string format_traffic(double bytes, int digits = 3) {
  constexpr detail::UnitStep units[] = {{1, "B"},     {1e3, "KB"},  {1e6, "MB"},  {1e9, "GB"}, {1e12, "TB"},
                                        {1e15, "PB"}, {1e18, "EB"}, {1e21, "ZB"}, {1e24, "YB"}};
  return detail::scaled(bytes, units, digits, true);
}
inline std::string format_traffic(Bytes bytes, int digits = 3) {
  return format_traffic(static_cast<double>(bytes.value()), digits);
}

/// A bandwidth in bytes: "25.0 GB/s".
inline std::string format_bandwidth(BytesPerSecond rate, int digits = 3) {
  constexpr detail::UnitStep units[] = {{1, "B/s"}, {1e3, "KB/s"}, {1e6, "MB/s"}, {1e9, "GB/s"}, {1e12, "TB/s"}, {1e15, "PB/s"}};
  return detail::scaled(rate.value(), units, digits, false);
}

/// A bandwidth in bits, as networks are sold: "10.0 Gb/s".
inline std::string format_bandwidth_bits(BytesPerSecond rate, int digits = 3) {
  constexpr detail::UnitStep units[] = {{1, "b/s"}, {1e3, "Kb/s"}, {1e6, "Mb/s"}, {1e9, "Gb/s"}, {1e12, "Tb/s"}, {1e15, "Pb/s"}};
  return detail::scaled(rate.value() * 8, units, digits, false);
}

/// Operations: "1.25 PFLOP".
inline std::string format_flops(Flops flops, int digits = 3) {
  constexpr detail::UnitStep units[] = {{1, "FLOP"},     {1e3, "KFLOP"},  {1e6, "MFLOP"},  {1e9, "GFLOP"}, {1e12, "TFLOP"},
                                        {1e15, "PFLOP"}, {1e18, "EFLOP"}, {1e21, "ZFLOP"}, {1e24, "YFLOP"}};
  return detail::scaled(flops.value(), units, digits, false);
}

/// Operations a second: "312 TFLOPS".
inline std::string format_flops_rate(FlopsPerSecond rate, int digits = 3) {
  constexpr detail::UnitStep units[] = {{1, "FLOPS"},     {1e3, "KFLOPS"},  {1e6, "MFLOPS"},  {1e9, "GFLOPS"},
                                        {1e12, "TFLOPS"}, {1e15, "PFLOPS"}, {1e18, "EFLOPS"}, {1e21, "ZFLOPS"}};
  return detail::scaled(rate.value(), units, digits, false);
}

/// A count with thousands separators: "13,629".
inline std::string format_count(std::int64_t count) {
  std::string text = fmt::format("{}", count);
  const std::size_t first = count < 0 ? 1 : 0;
  for (std::size_t at = text.size(); at > first + 3;) text.insert(at -= 3, ",");
  return text;
}

/// The nearest whole number of a count or rate, with thousands separators; beyond the digits of a
/// double as "1.23e+20".
inline std::string format_rounded(double count) {
  if (!std::isfinite(count)) return "n/a";
  return std::fabs(count) < 9e15 ? format_count(std::llround(count)) : fmt::format("{:.3g}", count);
}

/// A fraction as a share: 0.4501 is "45.0%"; "n/a" if it is not finite (a share of nothing).
inline std::string format_percent(double fraction, int decimals = 1) {
  if (!std::isfinite(fraction)) return "n/a";
  std::string text = fmt::format("{:.{}f}%", fraction * 100, decimals);
  if (text.front() == '-' && text.find_first_of("123456789") == std::string::npos) text.erase(0, 1);  // no "-0.0%"
  return text;
}

/// How much longer something takes that takes `ratio` times as long, 1 or more: "26.4% more", or
/// "17.3 times that".
inline std::string format_more(double ratio) {
  if (!(ratio >= 3)) return format_percent(std::max(0.0, ratio - 1)) + " more";
  return (ratio < 1000 ? fmt::format("{:.3g}", ratio) : format_count(std::llround(ratio))) + " times that";
}

/// A bar `width` columns long, filled from the left to the nearest eighth of a column (ASCII: to
/// the nearest column).
/// @param fraction  below 0 and NaN count as 0, above 1 as 1
/// Example: `bar(0.43, 8)` is "███▌    ".
inline std::string bar(double fraction, int width, Glyphs glyphs = Glyphs::unicode) {
  constexpr std::string_view eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int columns = std::max(width, 0);
  const double filled = fraction > 0 ? std::min(fraction, 1.0) : 0.0;
  const int parts = glyphs == Glyphs::unicode ? 8 : 1;
  const auto lit = static_cast<int>(std::lround(filled * columns * parts));
  std::string out;
  for (int i = 0; i < lit / parts; ++i) out += glyphs == Glyphs::unicode ? "█" : "#";
  out += eighths[lit % parts];
  out.append(static_cast<std::size_t>(columns - (lit + parts - 1) / parts), ' ');
  return out;
}

/// Columns that UTF-8 `text` takes on a terminal; a byte that is not UTF-8 counts as one.
inline int display_width(std::string_view text) {
  int width = 0;
  for (std::size_t at = 0; at < text.size();) width += detail::width_of(detail::next_code_point(text, at));
  return width;
}

/// `text` if it fits into `columns`, otherwise its beginning and an ellipsis.
inline std::string truncated(std::string_view text, int columns, Glyphs glyphs = Glyphs::unicode) {
  if (display_width(text) <= columns) return std::string{text};
  const std::string_view ellipsis = glyphs == Glyphs::unicode ? "…" : "...";
  const int room = columns - display_width(ellipsis);
  if (room < 0) return std::string(static_cast<std::size_t>(std::max(columns, 0)), '.');
  std::size_t kept = 0;
  int width = 0;
  for (std::size_t at = 0; at < text.size();) {
    width += detail::width_of(detail::next_code_point(text, at));
    if (width > room) break;
    kept = at;
  }
  return fmt::format("{}{}", text.substr(0, kept), ellipsis);
}

/// The text in lines of at most `columns`, broken at spaces; a longer word is cut, after a comma if
/// there is one. Empty for an empty text.
inline std::vector<std::string> wrapped(std::string_view text, int columns) {
  std::vector<std::string> lines;
  const int room = std::max(columns, 1);
  for (std::string_view word : split(text, ' ')) {
    if (word.empty()) continue;
    if (!lines.empty() && display_width(lines.back()) + 1 + display_width(word) <= room) {
      lines.back() += fmt::format(" {}", word);
      continue;
    }
    while (display_width(word) > room) {
      std::size_t kept = 0;
      for (std::size_t next = 0, width = 0; next < word.size() && width <= static_cast<std::size_t>(room);) {
        kept = next;
        width += static_cast<std::size_t>(detail::width_of(detail::next_code_point(word, next)));
      }
      if (const std::size_t comma = word.substr(0, kept).rfind(','); comma != std::string_view::npos) kept = comma + 1;
      lines.emplace_back(word.substr(0, std::max<std::size_t>(kept, 1)));
      word.remove_prefix(lines.back().size());
    }
    lines.emplace_back(word);
  }
  return lines;
}

}  // namespace tawpipe
