// Tests of core/csv.hpp.
// Not: what the columns of any one file mean.
#include "tawpipe/core/csv.hpp"

#include <doctest/doctest.h>

#include <string>

using tawpipe::CsvTable;
using tawpipe::InputError;

TEST_CASE("columns are found by name, below whatever stands above the line of names") {
  const CsvTable table{
      "run.csv", "# made on Monday, by hand\n\n# GPUs, batch ,time (ms)\n8,16,372.5\r\n# a remark, aside\n\n4,,1e3\n", "batch"};
  CHECK(table.rows() == 2);
  CHECK(table.columns().size() == 3);
  CHECK(table.text(0, table.column("# GPUs")) == "8");
  CHECK(table.number(0, table.column("time (ms)")) == 372.5);
  CHECK(table.number(1, table.column("batch")) == 0);  // empty
  CHECK(table.number(1, table.column("time (ms)")) == 1000);
}

TEST_CASE("a quoted cell may hold commas, and a quotation mark as two") {
  const tawpipe::CsvTable table{"a.csv", "name,note\nx,\"one, two\"\ny,\"a \"\"b\"\"\"\nz,5\" wide\n", "name"};
  CHECK(table.text(0, 1) == "one, two");
  CHECK(table.text(1, 1) == "a \"b\"");
  CHECK(table.text(2, 1) == "5\" wide");
  CHECK_THROWS_WITH_AS((tawpipe::CsvTable{"a.csv", "name,note\nx,\"open\n", "name"}),
                       "a.csv, line 2, column 2: the quoted cell does not end on its line", tawpipe::InputError);
  CHECK_THROWS_WITH_AS((tawpipe::CsvTable{"a.csv", "name,note\n\"x\"y,1\n", "name"}),
                       "a.csv, line 2, column 1: a comma must follow the quoted cell", tawpipe::InputError);
}

TEST_CASE("what is wrong is named with file, line and column") {
  CHECK_THROWS_WITH_AS((CsvTable{"a.csv", "x,y\n1,2\n", "batch"}), "a.csv: no line names a column 'batch'", InputError);
  CHECK_THROWS_WITH_AS((CsvTable{"a.csv", "x,y\n1,2\n1\n", "y"}), "a.csv, line 3: 1 cells under 2 columns", InputError);
  const CsvTable table{"a.csv", "x,y\n1,2 ms\n", "y"};
  CHECK_THROWS_WITH_AS(table.number(0, 1), "a.csv, line 2, column 'y': '2 ms' is not a number", InputError);
  CHECK_THROWS_AS(static_cast<void>(table.column("z")), InputError);
}
