// Tests of schedules/registry.hpp: your own schedules next to the shipped ones, and errors.
// Not: the schedules that ship (shipped_test.cpp).
#include "tawpipe/schedules/registry.hpp"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "schedules.hpp"
#include "tawpipe/schedules/pipeline.hpp"

using namespace tawpipe;

namespace {

struct WaveOptions {
  int width = 2;

  static std::vector<Field<WaveOptions>> fields() {
    return {
        option_field<&WaveOptions::width>("width", {.low = 1, .high = 4, .reason = "more would not fit"}, "forwards at a time")};
  }
};

/// Waves of `width` forwards and then their backwards on each rank.
Schedule waves(const std::string& name, const ScheduleRequest& request, const WaveOptions& options) {
  schedules::PipelineProgram program;
  const auto microbatches = static_cast<std::int32_t>(request.workload.microbatches());
  for (int r = 0; r < request.nodes.ranks(); ++r) {
    program.rank_of_stage.push_back(r);
    auto& actions = program.actions.emplace_back();
    for (std::int32_t first = 0; first < microbatches; first += options.width) {
      for (const Op op : {Op::forward, Op::backward}) {
        for (std::int32_t m = first; m < std::min(first + options.width, microbatches); ++m) actions.push_back({op, r, m});
      }
    }
  }
  return schedules::pipeline(name, request.workload, program, {}, option_texts(options));
}

ScheduleRequest request(ScheduleOptions options = {}) {
  return {Workload::abstract(2, 4), DeviceGroups{{2}}, std::move(options)};
}

}  // namespace

TEST_CASE("a schedule of one's own is built by name, listed with its options and recorded with them") {
  Registry mine = shipped();
  const std::string name = "waves";  // what builds may keep what it needs
  mine.add<WaveOptions>({.name = name, .description = "d", .source = "ours"},
                        [name](const ScheduleRequest& of, const WaveOptions& options) { return waves(name, of, options); });
  CHECK(mine.schedules().size() == shipped().schedules().size() + 1);
  CHECK(mine.info("waves").options.at(0).name == "width");
  CHECK(mine.info("waves").options.at(0).standard == "2");
  CHECK(mine.build("waves", request({{"width", "4"}})).options() ==
        std::vector<std::pair<std::string, std::string>>{{"width", "4"}});
  CHECK(mine.build("1f1b", request()).name() == "1f1b");
  const Registry copy = mine;
  CHECK(copy.build("waves", request()).name() == "waves");
  CHECK_THROWS_AS(shipped().info("waves"), InputError);
}

TEST_CASE("a schedule without options is a function of the request") {
  Registry mine;
  mine.add({.name = "plain", .description = "d", .source = "ours"},
           [](const ScheduleRequest& of) { return waves("plain", of, {.width = 1}); });
  CHECK(mine.build("plain", request()).tasks().size() > 0);
  CHECK_THROWS_WITH_AS(mine.build("plain", request({{"width", "1"}})), "plain has no options, and so no 'width'", InputError);
}

TEST_CASE("a name is taken once, and fits into a list of schedules") {
  Registry mine = shipped();
  const auto add = [&](const char* name) {
    mine.add({.name = name, .description = "", .source = ""}, [](const ScheduleRequest& of) { return waves("x", of, {}); });
  };
  CHECK_THROWS_WITH_AS(add("1f1b"), "there is a schedule '1f1b' already", InputError);
  for (const char* wrong : {"", "a b", "a:b", "a=b", "a,b"}) CHECK_THROWS_AS(add(wrong), InputError);
  CHECK(mine.schedules().size() == shipped().schedules().size());
}

TEST_CASE("what can be found without building is found so") {
  const Registry& all = shipped();
  CHECK_NOTHROW(all.check("tawpipe", {{"order", "paper"}, {"buffers", "3"}}));
  CHECK_THROWS_WITH_AS(all.check("tawpip", {}), doctest::Contains("did you mean 'tawpipe'?"), InputError);
  CHECK_THROWS_WITH_AS(all.check("tawpipe", {{"ordr", "paper"}}),
                       doctest::Contains("unknown option of tawpipe 'ordr'; did you mean 'order'?"), InputError);
  CHECK_THROWS_WITH_AS(all.check("tawpipe", {{"order", "papr"}}),
                       "option order=papr of tawpipe: the value must be one of eager, paper", InputError);
}

TEST_CASE("an iteration of too many tasks is refused before it is built") {
  CHECK_THROWS_WITH_AS(shipped().build("gpipe", {Workload::abstract(100, 1000000), DeviceGroups{{100}}, {}}),
                       "an iteration of 1000000 microbatches on 100 ranks is too large for gpipe: more than 2^26 tasks, which "
                       "take over 16 GB of memory; choose a larger microbatch or fewer devices",
                       InputError);
}
