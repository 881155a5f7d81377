// Tables: alignment, widths of UTF-8, cutting, colours.
// Not: how a quantity reads (formatters_test.cpp).
#include "tawpipe/report/table.hpp"

#include <doctest/doctest.h>

using namespace tawpipe;

namespace {

Table results() {
  Table table{{{"schedule"}, {"time", Align::right}, {"note"}}};
  table.row({"tawpipe", "1.25 s", "best"}).row({"gpipe", "980 ms"});
  return table;
}

}  // namespace

TEST_CASE("names go left, numbers right, and no line ends in spaces") {
  CHECK(results().str() ==
        "schedule    time  note\n"
        "────────  ──────  ────\n"
        "tawpipe   1.25 s  best\n"
        "gpipe     980 ms\n");
}

TEST_CASE("ASCII draws rules with hyphens") {
  CHECK(results().rule().row({"all", "2.23 s"}).str({.glyphs = Glyphs::ascii}) ==
        "schedule    time  note\n"
        "--------  ------  ----\n"
        "tawpipe   1.25 s  best\n"
        "gpipe     980 ms\n"
        "--------  ------  ----\n"
        "all       2.23 s\n");
}

TEST_CASE("columns line up whatever the characters") {
  Table table{{{"name"}, {"n", Align::right}}};
  table.row({"Zürich", "1"}).row({"流水", "22"}).row({"███▌", "333"});
  CHECK(table.str() ==
        "name      n\n"
        "──────  ───\n"
        "Zürich    1\n"
        "流水     22\n"
        "███▌    333\n");
}

TEST_CASE("colours only when asked") {
  Table table{{{"a"}, {"b"}}};
  table.row({"1", "2"}).row({"3", "4"}, Emphasis::bold).row({"5", "6"}, Emphasis::dim);
  CHECK(table.str().find('\x1b') == std::string::npos);
  CHECK(table.str({.colors = true, .glyphs = Glyphs::ascii}) ==
        "\x1b[1ma  b\x1b[0m\n"
        "\x1b[2m-  -\x1b[0m\n"
        "1  2\n"
        "\x1b[1m3  4\x1b[0m\n"
        "\x1b[2m5  6\x1b[0m\n");
}

TEST_CASE("a table wider than the terminal wraps its last column, beside the others or under them") {
  Table table{{{"task"}, {"message"}}};
  table.row({"1", "the shard of layer 3 arrives late"}).row({"2", "ok"});
  CHECK(table.str({.max_width = 37}) ==
        "task  message\n"
        "────  ───────────────────────────────\n"
        "1     the shard of layer 3 arrives\n"
        "      late\n"
        "2     ok\n");
  CHECK(table.str({.glyphs = Glyphs::ascii, .max_width = 16}) ==
        "task\n"
        "  message\n"
        "----\n"
        "1\n"
        "  the shard of\n"
        "  layer 3\n"
        "  arrives late\n"
        "2\n"
        "  ok\n");
  CHECK(table.str({.max_width = 200}) == table.str());
}

TEST_CASE("columns that do not fit follow below, beside the first one again") {
  Table table{{{"schedule"}, {"time", Align::right}, {"memory", Align::right}, {"bubble", Align::right}, {"options"}}};
  table.row({"fsdp", "1 s", "30 GiB", "3%", "prefetch=on"}).row({"gpipe", "2 s", "900 GiB", "30%", ""});
  CHECK(table.str({.max_width = 24}) ==
        "schedule  time   memory\n"
        "────────  ────  ───────\n"
        "fsdp       1 s   30 GiB\n"
        "gpipe      2 s  900 GiB\n"
        "\n"
        "schedule  bubble\n"
        "  options\n"
        "────────  ──────\n"
        "fsdp          3%\n"
        "  prefetch=on\n"
        "gpipe        30%\n");
}

TEST_CASE("a terminal narrower than any column cuts it") {
  Table table{{{"task"}, {"bytes", Align::right}}};
  table.row({"gather", "1,000,000"});
  CHECK(table.str({.max_width = 5}) ==
        "task\n"
        "─────\n"
        "gath…\n"
        "\n"
        "bytes\n"
        "─────\n"
        "1,00…\n");
}

TEST_CASE("a cell cannot break its line or steer the terminal") {
  Table table{{{"file"}}};
  table.row({"a\nb\x1b[31m"}).row({"\xff"});
  CHECK(table.str({.glyphs = Glyphs::ascii}) ==
        "file\n"
        "--------\n"
        "a?b?[31m\n"
        "?\n");
}

TEST_CASE("rows have as many cells as there are columns") {
  Table table{{{"a"}, {"b"}}};
  table.row({}).row({"1", "2", "3"});
  CHECK(table.str({.glyphs = Glyphs::ascii}) == "a  b\n-  -\n\n1  2\n");
  CHECK(table.columns() == 2);
  CHECK(Table{{}}.str() == "");
}

TEST_CASE("a table without rows is its headers") {
  const Table table{{{"a"}}};
  CHECK(table.empty());
  CHECK(table.str() == "a\n─\n");
}
