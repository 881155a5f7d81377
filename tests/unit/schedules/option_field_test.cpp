// Tests of schedules/option_field.hpp: one table from which options are read, checked, listed and
// recorded.
// Not: the tables of the schedules that ship (unit/schedule/shipped_test.cpp).
#include "tawpipe/schedules/option_field.hpp"

#include <doctest/doctest.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace tawpipe;
using namespace tawpipe::literals;

namespace {

enum class Shape { wide, tall };
constexpr std::array<std::string_view, 2> option_names(Shape) { return {"wide", "tall"}; }

/// A type of one's own: two numbers.
struct Pair {
  int first = 1;
  int second = 1;

  static std::string values() { return "AxB"; }
  static std::string expected() { return "two numbers such as 2x3"; }
  std::string text() const { return concat(first, "x", second); }
  static std::optional<Pair> parse(std::string_view text) {
    const auto at = text.find('x');
    if (at == std::string_view::npos) return std::nullopt;
    const auto first = WholeRange{}.parse(text.substr(0, at));
    const auto second = WholeRange{}.parse(text.substr(at + 1));
    return first && second ? std::optional{Pair{*first, *second}} : std::nullopt;
  }
};

struct Options {
  Shape shape = Shape::tall;
  bool fast = true;
  int depth = 3;
  std::optional<int> parts{};
  std::optional<bool> split{};
  Pair pair{};
  Bytes memory = 4_GiB;

  static std::vector<Field<Options>> fields() {
    return {option_field<&Options::shape>("shape", "how it lies"),
            option_field<&Options::fast>("fast", "whether"),
            option_field<&Options::depth>("depth", {.low = 1, .high = 8, .reason = "no more fits"}, "how deep"),
            option_field<&Options::parts>("parts", {.low = 1}, "how many", "one a rank"),
            option_field<&Options::split>("split", "in two", "on with shape=tall"),
            option_field<&Options::pair>("pair", "two numbers"),
            option_field<&Options::memory>("memory", "of each")};
  }
};

std::string refused(const ScheduleOptions& texts) {
  try {
    read_options<Options>("mine", texts);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("what the texts leave out is as the struct has it") {
  const Options none = read_options<Options>("mine", {});
  CHECK(none.shape == Shape::tall);
  CHECK(none.depth == 3);
  CHECK(!none.parts);
  const Options some = read_options<Options>("mine", {{"shape", "wide"},
                                                      {"fast", "off"},
                                                      {"depth", "8"},
                                                      {"parts", "5"},
                                                      {"split", "on"},
                                                      {"pair", "2x7"},
                                                      {"memory", "1500MB"}});
  CHECK(some.shape == Shape::wide);
  CHECK(!some.fast);
  CHECK(some.depth == 8);
  CHECK(some.parts == 5);
  CHECK(some.split == true);
  CHECK(some.pair.second == 7);
  CHECK(some.memory == 1500_MB);
}

TEST_CASE("lists show what each option takes, its default and its meaning") {
  const auto infos = option_infos<Options>();
  const auto line = [&](std::size_t i) {
    return concat(infos[i].name, " ", infos[i].values, " ", infos[i].standard, " ", infos[i].meaning);
  };
  CHECK(line(0) == "shape wide|tall tall how it lies");
  CHECK(line(1) == "fast on|off on whether");
  CHECK(line(2) == "depth N 3 how deep");
  CHECK(line(3) == "parts N one a rank how many");
  CHECK(line(4) == "split on|off on with shape=tall in two");
  CHECK(line(5) == "pair AxB 1x1 two numbers");
  CHECK(line(6) == "memory SIZE 4GiB of each");
}

TEST_CASE("texts that are written are read as the same") {
  const std::vector<std::pair<std::string, std::string>> expected{{"shape", "wide"},   {"fast", "off"},  {"depth", "4"},
                                                                  {"parts", "2"},      {"split", "off"}, {"pair", "3x4"},
                                                                  {"memory", "3500KB"}};
  const Options options{
      .shape = Shape::wide, .fast = false, .depth = 4, .parts = 2, .split = false, .pair = {3, 4}, .memory = 3500_KB};
  CHECK(option_texts(options) == expected);
  CHECK(option_texts(read_options<Options>("mine", {expected.begin(), expected.end()})) == expected);
}

TEST_CASE("a wrong option or value is named with what would be right") {
  CHECK(refused({{"shap", "wide"}}) ==
        "unknown option of mine 'shap'; did you mean 'shape'? Known: shape, fast, depth, parts, split, pair, memory");
  CHECK(refused({{"shape", "flat"}}) == "option shape=flat of mine: the value must be one of wide, tall");
  CHECK(refused({{"fast", "yes"}}) == "option fast=yes of mine: the value must be one of on, off");
  for (const char* wrong : {"0", "9", "x", "1x", "", "99999999999", "-1", "1.5"}) {
    CHECK(refused({{"depth", wrong}}) ==
          concat("option depth=", wrong, " of mine: the value must be a whole number from 1 to 8: no more fits"));
  }
  CHECK(refused({{"parts", "0"}}) == "option parts=0 of mine: the value must be a whole number, 1 or more");
  CHECK(refused({{"pair", "2"}}) == "option pair=2 of mine: the value must be two numbers such as 2x3");
  CHECK(refused({{"memory", "4"}}) == "option memory=4 of mine: the value must be a size such as 4GiB");
}

TEST_CASE("options that were not read from texts are held to the same table") {
  CHECK_NOTHROW(check_options("mine", Options{}));
  CHECK_THROWS_WITH_AS(check_options("mine", Options{.depth = 9}),
                       "option depth=9 of mine: the value must be a whole number from 1 to 8: no more fits", InputError);
  CHECK_THROWS_AS(check_options("mine", Options{.parts = 0}), InputError);
}

TEST_CASE("a size is written by the shortest text that says it exactly") {
  const auto text = [](Bytes size) { return OptionText<Bytes>::text(size); };
  CHECK(text(40_GiB) == "40GiB");
  CHECK(text(25_MB) == "25MB");
  CHECK(text(1536_MiB) == "1536MiB");
  CHECK(text(Bytes{999}) == "999B");
  CHECK(text(Bytes{0}) == "0B");
}
