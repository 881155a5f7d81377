// JSON: typed values, paths in messages, and what is refused that a parser would let pass.
#include "tawpipe/json/json_reader.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tawpipe/core/error.hpp"

namespace {

using tawpipe::InputError;
using tawpipe::JsonDocument;
using tawpipe::JsonValue;

std::string fault(const std::string& text, tawpipe::JsonLimits limits = {}) {
  try {
    const JsonDocument document{text, "a.json", limits};
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

std::string nested(int depth) {
  const auto count = static_cast<std::size_t>(depth);
  return std::string(count, '[') + std::string(count, ']');
}

enum class Colour { red, blue };
std::string_view name(Colour colour) { return colour == Colour::red ? "red" : "blue"; }

}  // namespace

TEST_CASE("values are read by what is asked for") {
  const JsonDocument document{
      R"({"n": 3, "big": 18446744073709551615, "x": -2.5, "t": "blue", "b": true, "l": [1, 2], "z": null})", "a.json"};
  const JsonValue root = document.root();
  CHECK(root.at("n").whole() == 3);
  CHECK(root.at("n").id(4, "rank") == 3);
  CHECK(root.at("big").whole<std::uint64_t>() == UINT64_MAX);
  CHECK(root.at("x").number() == -2.5);
  CHECK(root.at("n").positive() == 3);
  CHECK(root.at("t").text() == "blue");
  CHECK(root.at("t").enumerator<Colour>(2, "colour") == Colour::blue);
  CHECK(root.at("b").boolean());
  CHECK(root.at("t").parsed([](const std::string& text) { return text.size(); }) == 4);
  std::vector<std::int64_t> list;
  for (const JsonValue item : root.at("l")) list.push_back(item.whole());
  CHECK(list == std::vector<std::int64_t>{1, 2});
  CHECK(root.at("l")[1].whole() == 2);
  CHECK(root.has("z"));
  CHECK(root.find("z").has_value());
  CHECK_FALSE(root.find_given("z").has_value());
  CHECK_FALSE(root.find("y").has_value());
  CHECK(root.members().size() == 7);
}

TEST_CASE("an error names the file and the path") {
  const JsonDocument document{R"({"tasks": [{"rank": 0}, {"rank": "one", "t": "green", "x": -1}]})", "a.json"};
  const JsonValue task = document.root().at("tasks")[1];
  const auto refused = [](auto&& call, const char* message) { CHECK_THROWS_WITH_AS(call(), message, InputError); };
  refused([&] { task.at("rank").whole<int>(0, 7); }, "a.json: tasks[1].rank: expected a whole number from 0 to 7, not \"one\"");
  refused([&] { task.at("x").whole<std::uint64_t>(0, 7); }, "a.json: tasks[1].x: expected a whole number from 0 to 7, not -1");
  refused([&] { task.at("x").positive_or_zero(); }, "a.json: tasks[1].x: expected a number, 0 or more, not -1");
  refused([&] { task.at("x").id(2, "rank"); }, "a.json: tasks[1].x: there is no rank -1; they are 0 to 1");
  refused([&] { task.at("peer"); }, "a.json: tasks[1]: 'peer' is missing");
  refused([&] { task.only("rank", "x"); }, "a.json: tasks[1]: unknown key 't'; did you mean 'x'? Known: rank, x");
  refused([&] { task.at("t").enumerator<Colour>(2, "colour"); }, "a.json: tasks[1].t: unknown colour 'green'; known: red, blue");
  refused([&] { task.at("t").parsed([](const std::string&) -> int { throw InputError("too green"); }); },
          "a.json: tasks[1].t: too green");
  refused([&] { document.root().at("tasks").text(); }, "a.json: tasks: expected a text in quotes, not a list");
  refused([&] { document.root().whole(); }, "a.json: expected a whole number from 0 to 9223372036854775807, not an object");
}

TEST_CASE("a broken text is named with line and column") {
  CHECK(
      fault("{\n  \"a\": 1,\n  b}") ==
      "a.json: not JSON: line 3, column 3: syntax error while parsing object key - invalid literal; last read: '1,<U+000A>  b'; "
      "expected "
      "string literal");
  CHECK(fault("[1, 2").find("line 1, column 6") != std::string::npos);
  CHECK(fault("[1, 2").ends_with("; the text is cut off"));
  CHECK(fault("").ends_with("; the text is cut off"));
  CHECK(fault("[1e999]").find("a.json: not JSON: line 1, column ") == 0);
  CHECK(fault("{} x").find("line 1, column 4") != std::string::npos);
}

TEST_CASE("a key that stands twice in one object is refused, unless it is allowed") {
  CHECK(fault(R"({"a": 1, "b": {"a": 2}})").empty());
  CHECK(fault(R"({"a": 1, "b": 2, "a": 3})") == "a.json: the key 'a' stands twice in one object");
  CHECK(fault(R"({"a": [{"b": 1, "b": 2}]})") == "a.json: a[0]: the key 'b' stands twice in one object");
  CHECK(fault(R"({"a": 1, "a": 3})", {.repeated_keys = true}).empty());
}

TEST_CASE("what is nested too deeply is refused, however deep") {
  CHECK(fault(nested(16)).empty());
  CHECK(fault(nested(17)) == "a.json: lists and objects stand more than 16 deep in each other");
  CHECK(fault(nested(5'000'000)) == "a.json: lists and objects stand more than 16 deep in each other");
  CHECK(fault("[[[1]]]", {.depth = 2}).find("more than 2 deep") != std::string::npos);
}

TEST_CASE("a byte order mark is passed over") { CHECK(fault("\xef\xbb\xbf{}").empty()); }

TEST_CASE("objects that are not kept take no place") {
  int seen = 0;
  const JsonDocument document{
      R"({"events": [{"ph": 1}, {"keep": 2}, {"ph": {"ph": 3}}], "ph": 0})", "a.json", {}, [&](const nlohmann::json& object) {
        ++seen;
        return !object.contains("ph") || object.contains("events");
      }};
  CHECK(seen == 5);
  const JsonValue events = document.root().at("events");
  CHECK(events.size() == 1);
  CHECK(events[0].at("keep").whole() == 2);
}
