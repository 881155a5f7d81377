// Pages and pictures that the commands write: what is in them, and what is refused.
// Not: how a page looks and acts (browser/), nor the cells of a picture (unit/report).
#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/command.hpp"

using nlohmann::json;
using support::check_refused;
using support::read_file;
using support::run;

namespace {

const std::string paper_figure =
    "simulate --schedule tawpipe --option order=paper --cluster 3x2 --microbatches 6 "
    "--cost fixed:forward=1s,backward_input=1s,backward_weight=1s,transfer=0s";

json data_of(const std::string& page) {
  const std::string begin = R"(<script type="application/json" id="data">)";
  REQUIRE(page.starts_with("<!doctype html>"));
  const auto from = page.find(begin) + begin.size();
  return json::parse(page.substr(from, page.find("</script>", from) - from));
}

/// Runs the command and checks that its page holds what its JSON says. @return the page's data
json page_of(const support::Folder& folder, const std::string& command, int code = 0) {
  const std::string page = folder / "page.html";
  const std::string numbers = folder / "numbers.json";
  const auto done = run(command + " --report " + page + " --json " + numbers);
  CAPTURE(done.err);
  REQUIRE(done.code == code);
  json held = data_of(read_file(page));
  CHECK(held.at("answer") == json::parse(read_file(numbers)));
  return held;
}

long count(const std::string& text, const std::string& part) {
  long found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

}  // namespace

TEST_CASE("--gantt draws the paper's figure, the same bytes every time, as SVG or PNG") {
  const support::Folder folder;
  REQUIRE(run(paper_figure + " --gantt " + (folder / "a.svg")).code == 0);
  REQUIRE(run(paper_figure + " --gantt " + (folder / "b.svg")).code == 0);
  const std::string picture = read_file(folder / "a.svg");
  CHECK(picture == read_file(folder / "b.svg"));
  // 6 devices, 6 shards, a forward and a backward of each; the last ends after 21 units.
  CHECK(count(picture, "op=forward ") == 36);
  CHECK(count(picture, "op=backward ") == 36);
  CHECK(picture.find("end=21\"") != std::string::npos);
  CHECK(picture.find("end=22\"") == std::string::npos);
  const auto png = run(paper_figure + " --gantt " + (folder / "a.png"));
  if (png.code == 3) {
    CHECK(png.err.find("libcairo2") != std::string::npos);
  } else {
    CHECK(png.code == 0);
    CHECK(read_file(folder / "a.png").starts_with("\x89PNG\r\n"));
  }
}

TEST_CASE("pictures in no format, of too much or of a part are refused") {
  const support::Folder folder;
  check_refused(run(paper_figure + " --gantt " + (folder / "a.jpg")), {"--gantt", "must end in .svg or .png"});
  check_refused(run(paper_figure + " --fold on --gantt " + (folder / "a.svg")), {"--fold on", "--gantt"});
  check_refused(run("simulate --schedule 1f1b --cluster 1x8 --microbatches 2000 --gantt " + (folder / "a.svg") +
                    " --cost fixed:forward=1s,backward_input=1s,backward_weight=1s,transfer=0s"),
                {"tasks shows nothing", "--report"});
  check_refused(run("sweep --vary nodes=1,2 --cluster 1x2 --model llama-4x512 --sequence 512 --global-batch 8 --chart -"),
                {"--chart '-' must end in .svg or .png"});
  CHECK(folder.is_empty());
}

TEST_CASE("sweeps and reproductions are drawn as charts") {
  const support::Folder folder;
  REQUIRE(run("sweep --vary inter-node=1Gbps,10Gbps,100Gbps --cluster 2x2 --model llama-8x512 --sequence 512 --global-batch 16 "
              "--schedules fsdp,1f1b --microbatch 1 --chart " +
              (folder / "sweep.svg"))
              .code == 0);
  const std::string sweep = read_file(folder / "sweep.svg");
  CHECK(sweep.find("<title>Throughput by inter-node</title>") != std::string::npos);
  CHECK(count(sweep, "stroke-width=\"1.8\"") == 2);  // a line for each schedule
  CHECK(count(sweep, "<polygon") == 2 * 3 + 2);      // a mark for each point, and in the key
  REQUIRE(run("reproduce tawpipe --chart " + (folder / "cells.svg")).code == 0);
  const std::string cells = read_file(folder / "cells.svg");
  CHECK(cells.find("Predicted against measured") != std::string::npos);
  CHECK(cells.find(">weipipe<") != std::string::npos);
}

TEST_CASE("a page holds what --json says, with timelines where there are any") {
  const support::Folder folder;
  const std::string problem = " --cluster 2x2 --model llama-8x512 --sequence 512 --global-batch 16";
  const json simulated = page_of(folder, "simulate --schedule tawpipe" + problem);
  CHECK(simulated.at("schedules").size() == 1);
  CHECK(simulated.at("title") == "tawpipe on 2x2");
  const json compared = page_of(folder, "compare --schedules fsdp,1f1b --microbatch 1" + problem);
  CHECK(compared.at("schedules").size() == 2);
  CHECK(page_of(folder, "sweep --vary nodes=1,2 --schedules fsdp" + problem).at("schedules").empty());
  const json plans = page_of(folder, "plan --schedules fsdp,1f1b --top 2" + problem);
  const json& answer = plans.at("answer");
  std::vector<json> drawn{answer.at("use")};  // and the others of those that are shown
  for (std::size_t i = 0; i < 2; ++i) {
    if (answer.at("plans")[i].at("command") != answer.at("use").at("command")) drawn.push_back(answer.at("plans")[i]);
  }
  REQUIRE(plans.at("schedules").size() == drawn.size());
  for (std::size_t i = 0; i < drawn.size(); ++i)
    CHECK(plans.at("schedules")[i].at("summary").at("makespan_ps") == drawn[i].at("makespan_ps"));
  const json devices = page_of(folder, "plan --schedules fsdp --devices 2..4" + problem);
  REQUIRE(devices.at("schedules").size() == 2);
  CHECK(devices.at("schedules")[1].at("cluster").at("nodes").size() == 2);
  const json doctor = page_of(folder, "doctor " TAWPIPE_TEST_DATA "/hangs/fr_p2p_crossed_4", 1);
  const json waits{{{"rank", 0}, {"for", "send to rank 1 (pp, p2p 5)"}, {"on", {1}}},
                   {{"rank", 1}, {"for", "send to rank 0 (pp, p2p 5)"}, {"on", {0}}}};
  CHECK(doctor.at("answer").at("waits")[0] == waits[0]);
  CHECK(doctor.at("answer").at("waits")[1] == waits[1]);
}

TEST_CASE("a page of a training run has the last step as measured, and as the step before predicts it") {
  const support::Folder folder;
  std::string text;
  for (int i = 0; i < 200; ++i) text += "to be or not to be ";
  const std::string train = "train --model llama-2x32 --data " + folder.write("text.txt", text) +
                            " --sequence 16 --global-batch 4 --schedule 1f1b --cluster 1x2 --steps ";
  const json two = page_of(folder, train + "2");
  REQUIRE(two.at("schedules").size() == 2);
  CHECK(two.at("schedules")[0].at("label") == "measured, step 2");
  CHECK(two.at("schedules")[0].at("limit").empty());  // the host's devices are not the cluster's
  CHECK(two.at("schedules")[1].at("label") == "predicted, from the times of step 1");
  CHECK(two.at("answer").at("step_seconds").size() == 2);
  const json one = page_of(folder, train + "1");
  CHECK(one.at("schedules").size() == 1);
  CHECK(one.at("notes").size() == 1);
}
