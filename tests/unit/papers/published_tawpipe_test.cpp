// Tests of sim/papers/published_tawpipe.hpp.
// Not: how well predictions hold (tests/cli/reproduce_test.cpp).
#include "papers/published_tawpipe.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "schedules.hpp"
#include "tawpipe/model/models.hpp"

namespace published = tawpipe::published;

TEST_CASE("every published cell has a variant, an efficiency and a figure or a verdict") {
  for (const auto& cell : published::tawpipe_cells()) {
    CAPTURE(cell.schedule);
    CHECK_NOTHROW(tawpipe::shipped().info(published::tawpipe_variant(cell.schedule).schedule));
    CHECK(published::tawpipe_efficiency(cell.hidden) > 0);
    CHECK((cell.tokens > 0 || cell.nccl_s > 0 || cell.out_of_memory));
  }
}

TEST_CASE("the microbatch is told where memory is published, otherwise a power of two up to its tokens") {
  using Sizes = std::vector<std::int64_t>;
  for (const auto& cell : published::tawpipe_cells()) {
    CAPTURE(cell.schedule);
    const auto model = tawpipe::models::llama_family(published::tawpipe_layers, cell.hidden);
    const auto sizes = published::tawpipe_microbatches(published::tawpipe_variant(cell.schedule), model, 16384, 1536, 24);
    CHECK(sizes == (cell.hidden == 4096 && !cell.out_of_memory ? Sizes{4} : Sizes{1, 2, 4}));
  }
  const auto other = tawpipe::models::llama_family(24, 4096);
  const published::TawpipeVariant& fsdp = published::tawpipe_variant("fsdp");
  CHECK(published::tawpipe_microbatches(fsdp, other, 16384, 1536, 24) == Sizes{1, 2, 4});
  CHECK(published::tawpipe_microbatches(fsdp, other, 4096, 96, 24) == Sizes{1, 2, 4});
  CHECK(published::tawpipe_microbatches(fsdp, other, 1 << 20, 48, 24) == Sizes{1});
  CHECK(published::tawpipe_microbatches(fsdp, other, 4096, 100, 24).empty());
}

TEST_CASE("the published gains follow from the published throughputs") {
  // "11.8 %, 23.6 % and 44.1 % over WeiPipe, 1F1B and FSDP" (abstract): 1377.6 / 1232.4, / 1114.2,
  // / 956.1.
  double tawpipe = 0;
  for (const auto& cell : published::tawpipe_cells()) {
    if (cell.table == "main" && cell.hidden == 4096 && cell.schedule == "tawpipe") tawpipe = cell.tokens;
  }
  for (const auto& cell : published::tawpipe_cells()) {
    if (cell.table != "main" || cell.hidden != 4096 || cell.tokens <= 0) continue;
    const double gain = cell.schedule == "weipipe" ? 0.118
                        : cell.schedule == "1f1b"  ? 0.236
                        : cell.schedule == "fsdp"  ? 0.441
                                                   : 0;
    CHECK(tawpipe / cell.tokens - 1 == doctest::Approx(gain).epsilon(0.003));
  }
}

TEST_CASE("cells are read from a file, and refused where they are none of the paper's") {
  const std::string names =
      "table,schedule,hidden,sequence,throughput_tokens_per_gpu_s,peak_memory_gb,nccl_time_share,nccl_time_s\n";
  const auto read = [&](const std::string& rows) {
    return published::read_tawpipe_cells(tawpipe::CsvTable{"cells.csv", "# a, b\n" + names + rows, "schedule"});
  };
  const auto cells = read("main,fsdp,4096,16384,956.1,52.0,,\nmain,zb-1,4096,16384,,,,\n");
  REQUIRE(cells.size() == 2);
  CHECK(cells[0].tokens == 956.1);
  CHECK(cells[0].memory_gib == 52.0);
  CHECK(!cells[0].out_of_memory);
  CHECK(cells[1].out_of_memory);
  CHECK_THROWS_AS(read("main,zb-3,4096,16384,1,,,\n"), tawpipe::InputError);
  CHECK_THROWS_AS(read("main,fsdp,512,16384,1,,,\n"), tawpipe::InputError);
  CHECK_THROWS_AS(read("main,fsdp,1024,,1,,,\n"), tawpipe::InputError);
}
