// `tawpipe plan --what-if`: what another cluster would buy.
// Not: the clusters themselves (unit/topology/cluster_change_test.cpp).
#include <doctest/doctest.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "support/command_json.hpp"

namespace plan_what_if_test {

using nlohmann::json;
using support::parsed;
using support::run;

namespace {

const std::string problem = " --schedules ddp,1f1b,fsdp --model llama-8x1024 --sequence 2048 --global-batch 64";
const std::string small = " --cluster 2x4 --device H100-80G" + problem;

}  // namespace

TEST_CASE("each entry is searched again, and compared with the cluster as it is") {
  const json answer =
      parsed(run("plan --json - --price 2.5USD --what-if nodes=4 --what-if network=800Gbps "
                 "--what-if device=B200,price=5USD --what-if cluster=dgx-h100x2" +
                 small));
  const json& all = answer.at("what_if");
  REQUIRE(all.size() == 4);
  CHECK(all[0].at("what") == "4 nodes");
  CHECK(all[0].at("devices") == 16);
  CHECK(all[2].at("device") == "B200-180G");
  CHECK(all[3].at("what") == "dgx-h100x2");
  const double now = answer.at("use").at("makespan_s");
  for (const json& one : all) {
    const json& plan = one.at("plan");
    CHECK(plan.at("interval_s").size() == 2);
    CHECK(one.at("speed").get<double>() == doctest::Approx(now / plan.at("makespan_s").get<double>()));
    CHECK(one.at("worth_price").get<double>() == doctest::Approx(2.5 * one.at("worth").get<double>()));
  }
  CHECK(all[0].at("worth").get<double>() == doctest::Approx(all[0].at("speed").get<double>() / 2));
  CHECK(all[1].at("plan").at("makespan_s").get<double>() <= now);  // its plan as it is at least
  CHECK(all[2].at("speed").get<double>() > 1);
  CHECK(all[2].at("plan").at("price_per_billion_tokens").get<double>() > 0);
  CHECK(!all[1].at("plan").contains("price_per_billion_tokens"));  // nobody said what 800 Gbps cost
  for (const int named : {0, 3}) {  // the command of a cluster that a name says gives the entry's time
    const json& plan = all[static_cast<std::size_t>(named)].at("plan");
    std::string command = plan.at("command");
    std::erase(command, '\'');
    CHECK(parsed(run(command.substr(std::string{"tawpipe "}.size()) + " --json -")).at("makespan_ps") == plan.at("makespan_ps"));
  }
  CHECK(!all[2].at("plan").contains("command"));
}

TEST_CASE("the table says what to buy in a sentence") {
  const auto shown = run("plan --what-if catalogue" + small);
  CHECK(shown.code == 0);
  for (const char* word : {"What to buy: ", "as it is", "4 nodes", "H200-141G", "B200-180G", "800 Gbps adapters", "worth"}) {
    CAPTURE(word);
    CHECK(shown.out.find(word) != std::string::npos);
  }
}

TEST_CASE("an entry that cannot be is refused before the search") {
  support::check_refused(run("plan --what-if more" + small), {"'more'", "nodes=8"});
  support::check_refused(run("plan --what-if device=B900" + small), {"B900"});
  support::check_refused(run("plan --what-if price=3" + small), {"changes nothing but the price"});
  support::check_refused(run("plan --price 2USD --what-if nodes=4,price=3EUR" + small), {"USD", "EUR", "in one"});
  support::check_refused(run("plan --what-if nodes=4 --devices 8..16" + small), {"--what-if", "--devices"});
  support::check_refused(run("plan --what-if nodes=4 --emit megatron" + small), {"--what-if", "--emit"});
}

}  // namespace plan_what_if_test
