// Quantities as text: units, digits, rounding over a unit's border, bars, and widths.
// Not: tables (table_test.cpp).
#include "tawpipe/report/formatters.hpp"

#include <doctest/doctest.h>

#include <limits>

#include "tawpipe/core/parse_units.hpp"

using namespace tawpipe;
using namespace tawpipe::literals;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr double infinite = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("a duration shows three digits in the unit that fits") {
  CHECK(format_duration(601_us) == "601 us");
  CHECK(format_duration(1250_ms) == "1.25 s");
  CHECK(format_duration(18522_us) == "18.5 ms");
  CHECK(format_duration(18522_us, 4) == "18.52 ms");
  CHECK(format_duration(2_us) == "2.00 us");
  CHECK(format_duration(7_ps) == "7 ps");
  CHECK(format_duration(1500_ps) == "1.50 ns");
  CHECK(format_duration(Duration{}) == "0 s");
}

TEST_CASE("a duration from a minute on is whole in its smaller unit") {
  CHECK(format_duration(200_s) == "3 min 20 s");
  CHECK(format_duration(3600_s) == "1 h 0 min");
  CHECK(format_duration(7530_s) == "2 h 6 min");  // 2 h 5 min 30 s
  CHECK(format_duration(86400_s) == "1 d 0 h");
  CHECK(format_duration(273600_s) == "3 d 4 h");
  CHECK(format_duration(Duration::max()) == "106 d 18 h");  // 9223372 s
}

TEST_CASE("rounding carries into the next unit") {
  CHECK(format_duration(Duration{999'400'000}) == "999 us");
  CHECK(format_duration(Duration{999'600'000}) == "1.00 ms");
  CHECK(format_duration(Duration{9'996'000'000}) == "10.0 ms");
  CHECK(format_duration(59'940_ms) == "59.9 s");
  CHECK(format_duration(59'960_ms) == "1 min 0 s");
  CHECK(format_duration(3'599'600_ms) == "1 h 0 min");
  CHECK(format_duration(86'399_s) == "1 d 0 h");
}

TEST_CASE("a difference keeps its sign") {
  CHECK(format_duration(Duration{} - 601_us) == "-601 us");
  CHECK(format_duration(Duration{} - 200_s) == "-3 min 20 s");
  CHECK(format_traffic(Bytes{-1500}) == "-1.50 KB");
}

TEST_CASE("a duration below a minute can be read back") {
  CHECK(parse_duration(format_duration(601_us)) == 601_us);
  CHECK(parse_duration(format_duration(1250_ms)) == 1250_ms);
  CHECK(parse_duration(format_duration(Duration{})) == Duration{});
}

TEST_CASE("memory counts in powers of 1024, traffic in powers of 1000") {
  CHECK(format_memory(80_GiB) == "80.0 GiB");
  CHECK(format_memory(1023_MiB) == "1023 MiB");
  CHECK(format_memory(Bytes{1'073'741'823}) == "1.00 GiB");  // 1023.999 MiB
  CHECK(format_memory(512_B) == "512 B");
  CHECK(format_memory(Bytes{}) == "0 B");
  CHECK(format_traffic(Bytes{25'165'824}) == "25.2 MB");
  CHECK(format_traffic(80_GiB) == "85.9 GB");
  CHECK(format_traffic(999_B) == "999 B");
  CHECK(format_traffic(Bytes::max()) == "9.22 EB");
  CHECK(format_traffic(1.5e22) == "15.0 ZB");
  CHECK(format_memory(Bytes::max()) == "8.00 EiB");
  CHECK(format_memory(1e22) == "8674 EiB");
}

TEST_CASE("rates and operations have their own units") {
  CHECK(format_bandwidth(25_GBps) == "25.0 GB/s");
  CHECK(format_bandwidth(10_Gbps) == "1.25 GB/s");
  CHECK(format_bandwidth_bits(10_Gbps) == "10.0 Gb/s");
  CHECK(format_bandwidth(BytesPerSecond{0.25}) == "0.25 B/s");
  CHECK(format_bandwidth(BytesPerSecond{infinite}) == "n/a");
  CHECK(format_flops_rate(312_TFLOPS) == "312 TFLOPS");
  CHECK(format_flops(Flops{1.25e15}) == "1.25 PFLOP");
}

TEST_CASE("big counts have commas") {
  CHECK(format_count(0) == "0");
  CHECK(format_count(999) == "999");
  CHECK(format_count(13629) == "13,629");
  CHECK(format_count(1'000'000) == "1,000,000");
  CHECK(format_count(-999) == "-999");
  CHECK(format_count(-13629) == "-13,629");
  CHECK(format_count(std::numeric_limits<std::int64_t>::min()) == "-9,223,372,036,854,775,808");
}

TEST_CASE("a share of nothing is not a number") {
  CHECK(format_percent(0.4501) == "45.0%");
  CHECK(format_percent(1) == "100.0%");
  CHECK(format_percent(0.374, 0) == "37%");
  CHECK(format_percent(-0.0512) == "-5.1%");
  CHECK(format_more(1.264) == "26.4% more");
  CHECK(format_more(0.9999) == "0.0% more");
  CHECK(format_more(17.31) == "17.3 times that");
  CHECK(format_more(1728.9) == "1,729 times that");
  CHECK(format_percent(-0.00001) == "0.0%");
  CHECK(format_percent(not_a_number) == "n/a");
}

TEST_CASE("a bar fills to the nearest eighth") {
  CHECK(bar(0.43, 8) == "███▌    ");  // 0.43 * 64 = 27.52: 28 eighths, 3 1/2 columns
  CHECK(bar(0, 4) == "    ");
  CHECK(bar(1, 4) == "████");
  CHECK(bar(1.0 / 32, 4) == "▏   ");
  CHECK(bar(31.0 / 32, 4) == "███▉");
  CHECK(bar(2, 4) == "████");
  CHECK(bar(-1, 4) == "    ");
  CHECK(bar(not_a_number, 2) == "  ");
  CHECK(bar(0.5, 0) == "");
  for (int i = 0; i <= 100; ++i) CHECK(display_width(bar(i / 100.0, 7)) == 7);
}

TEST_CASE("a bar in ASCII fills to the nearest column") {
  CHECK(bar(0.43, 8, Glyphs::ascii) == "###     ");
  CHECK(bar(0.5, 8, Glyphs::ascii) == "####    ");
  CHECK(bar(1, 3, Glyphs::ascii) == "###");
}

TEST_CASE("width counts columns, not bytes") {
  CHECK(display_width("") == 0);
  CHECK(display_width("abc") == 3);
  CHECK(display_width("Zürich") == 6);
  CHECK(display_width("u\u0308") == 1);  // a combining diaeresis
  CHECK(display_width("█▌…─") == 4);
  CHECK(display_width("流水") == 4);
  CHECK(display_width("\U0001F680") == 2);
}

TEST_CASE("bytes that are not UTF-8 count as one column each") {
  CHECK(display_width("\xff") == 1);
  CHECK(display_width("\xc3") == 1);          // cut short
  CHECK(display_width("\xc0\xaf") == 2);      // overlong
  CHECK(display_width("\xed\xa0\x80") == 3);  // a surrogate
  CHECK(display_width("\xe2(") == 2);
}

TEST_CASE("text is cut at a character, with an ellipsis") {
  CHECK(truncated("abcdef", 6) == "abcdef");
  CHECK(truncated("abcdef", 5) == "abcd…");
  CHECK(truncated("abcdef", 5, Glyphs::ascii) == "ab...");
  CHECK(truncated("流水线", 5) == "流水…");
  CHECK(truncated("流水线", 4) == "流…");  // half a character has no column
  CHECK(truncated("abcdef", 1) == "…");
  CHECK(truncated("abcdef", 2, Glyphs::ascii) == "..");
  CHECK(truncated("abcdef", 0) == "");
}
