// The padding of shards in a schedule's JSON: sets may name its numbers, and only those.
// Not: other sets of parameters (schedule_json_test.cpp).
#include <doctest/doctest.h>

#include <string>

#include "support/schedule_text.hpp"
#include "tawpipe/report/schedule_json.hpp"

using namespace tawpipe;
using support::schedule_error;

TEST_CASE("sets name parameters up to the model's n, or padding from n + 1 on, never both in one range") {
  // 96 parameters of the embedding, 656 of the layer and 104 of norm and output: 856
  const auto text = [](const std::string& padding, const std::string& range) {
    return R"({"workload": {"model": {"layers": 1, "hidden": 8, "heads": 2, "intermediate": 16, "vocab": 12},
      "batch": {"sequence": 4, "global_batch": 2}}, )" +
           padding + R"("pieces": [[)" + range + R"(]], "tasks": []})";
  };
  const std::string eight = R"("padding": 8, )";
  const Schedule schedule = parse_schedule_json(text(eight, "[752, 856], [857, 865]"));
  CHECK(schedule.parts().padding == 8);
  CHECK_FALSE(schedule.is_padding({752, 856}));
  CHECK(schedule.is_padding({857, 865}));
  const std::string written = schedule_json(schedule);
  CHECK(schedule_json(parse_schedule_json(written)) == written);
  CHECK(schedule_json(parse_schedule_json(text("", "[0, 856]"))).find("padding") == std::string::npos);

  CHECK(schedule_error(text("", "[857, 865]")) == "s.json: pieces[0][0][0]: expected a whole number from 0 to 855, not 857");
  CHECK(schedule_error(text(eight, "[857, 866]")) == "s.json: pieces[0][0][1]: expected a whole number from 858 to 865, not 866");
  CHECK(schedule_error(text(eight, "[752, 865]")) == "s.json: pieces[0][0][1]: expected a whole number from 753 to 856, not 865");
  CHECK(schedule_error(R"({"padding": 8, "tasks": []})") == "s.json: padding: expected a whole number from 0 to 0, not 8");
}
