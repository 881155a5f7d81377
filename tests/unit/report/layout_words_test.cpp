// Tests of report/layout_words.hpp.
#include "tawpipe/report/layout_words.hpp"

#include <doctest/doctest.h>

using namespace tawpipe;

namespace layout_words_test {

TEST_CASE("a layout is said as the field says it, without ones") {
  CHECK(layout_words({.tensor = 4, .context = 2, .data = 4, .pipeline = 4}, {"interleaved-1f1b", {{"chunks", "5"}}}) ==
        "TP4 CP2 PP4 DP4 VPP5");
  CHECK(layout_words({.tensor = 2, .pipeline = 8}, {"fsdp"}) == "TP2 FSDP8");
  CHECK(layout_words({.data = 4, .pipeline = 8}, {"fsdp"}) == "HSDP 8x4");
  CHECK(layout_words({.data = 4, .pipeline = 8}, {"ddp"}) == "DP32");
  CHECK(layout_words({.tensor = 2, .data = 4, .pipeline = 2}, {"tawpipe"}) == "TP2 TawPipe2 DP4");
  CHECK(layout_words({.expert = 8, .pipeline = 2, .whole_experts = true}, {"1f1b"}) == "EP8 PP2 DP8");
  CHECK(layout_words({.data = 8, .pipeline = 1}, {"zero1"}) == "DP8");
  CHECK(layout_words({.pipeline = 1}, {"1f1b"}) == "1 device");
}

}  // namespace layout_words_test
