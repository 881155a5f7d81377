// Tests of core/log_line.hpp.
#include "tawpipe/core/log_line.hpp"

#include <doctest/doctest.h>

using tawpipe::without_label;

TEST_CASE("labels of launchers and quotation marks are cut off") {
  CHECK(without_label("0: # nccl-tests") == "# nccl-tests");
  CHECK(without_label(" 12:     1048576  262144") == "    1048576  262144");
  CHECK(without_label("3:") == "");
  CHECK(without_label("[1,0]<stdout>: #  Rank  0") == "#  Rank  0");
  CHECK(without_label("[1,0]<stdout>:#  Rank  0") == "#  Rank  0");
  CHECK(without_label("[prterun-node1-77@1,0]<stdout>: # x") == "# x");
  CHECK(without_label("[0] # x") == "# x");
  CHECK(without_label("[default0]:# x") == "# x");
  CHECK(without_label("> GPU0\t X ") == "GPU0\t X ");
  CHECK(without_label("> > 0: # x") == "# x");
}

TEST_CASE("other lines stay as they are") {
  for (const char* line : {"", "   1048576        262144     float", "node1:77:81 [0] NCCL INFO x", "GPU[0]\t\t: x", "# x",
                           "12:34:56 x", "[unfinished", "  "}) {
    CHECK(without_label(line) == line);
  }
}
