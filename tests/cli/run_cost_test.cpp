// `--train-tokens` of `tawpipe plan` and `simulate`: what a whole run costs, as text and JSON; what is
// refused.
// Not: the formulas (unit/analysis/run_cost_test.cpp).
#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "support/command_json.hpp"

namespace run_cost_test {

using doctest::Approx;
using nlohmann::json;
using support::parsed;
using support::run;

namespace {

const std::string small =
    " --cluster 4x2 --device H100-80G --model llama-8x512 --sequence 2048 --global-batch 48 --schedules ddp,1f1b";
const std::string simulated =
    "simulate --schedule 1f1b --cluster 2x4 --device H100-80G --model llama-8x512 --sequence 2048 --global-batch 16";

double number(const json& from, const char* key) { return from.at(key).get<double>(); }

}  // namespace

TEST_CASE("the cost of a run follows from the plan's step") {
  const json answer = parsed(run("plan --json - --train-tokens 15B --price 2.5USD" + small));
  const json& plan = answer.at("plans").at(0);
  const json& cost = answer.at("run");
  CHECK(number(cost, "tokens") == 15e9);
  CHECK(number(cost, "steps") == std::ceil(15e9 / (2048 * 48)));
  CHECK(number(cost, "days_without_failures") == Approx(number(cost, "steps") * number(plan, "makespan_s") / 86'400));
  CHECK(number(cost, "days") == Approx(number(cost, "days_without_failures") / number(cost, "goodput")));
  CHECK(number(cost, "device_hours") == Approx(number(cost, "days") * 24 * 8));
  CHECK(number(cost, "price") == Approx(number(cost, "device_hours") * 2.5));
  CHECK(cost.at("currency") == "USD");
  CHECK(number(cost, "energy_mwh") == Approx(number(cost, "device_hours") * 700 * 1.5 * 1.54 / 1e6));
  const json& lost = cost.at("lost");
  double all = number(cost, "goodput");
  for (const char* part : {"restarts", "work", "checkpoints", "waiting"}) all += number(lost, part);
  CHECK(all == Approx(1));
  CHECK(number(cost.at("goodput_published"), "least") <= number(cost, "goodput"));
  CHECK(number(cost.at("goodput_published"), "most") >= number(cost, "goodput"));
  CHECK(number(plan, "price_per_billion_tokens") * 15 < number(cost, "price"));  // that is without failures
  const json& checkpoint = cost.at("checkpoint");
  CHECK(checkpoint.at("asynchronous").get<bool>());
  CHECK(number(checkpoint, "goodput_synchronous") <= number(cost, "goodput"));
  CHECK(number(checkpoint, "goodput_one_writer") <= number(checkpoint, "goodput_synchronous"));
  CHECK(number(checkpoint, "write_s") == Approx(number(checkpoint, "bytes") / 4e9));  // 1 GB/s of each node
}

TEST_CASE("a plan without --train-tokens is as before, and one with it the same plan") {
  const json without = parsed(run("plan --json -" + small));
  json with = parsed(run("plan --json - --train-tokens 1T" + small));
  CHECK(!without.contains("run"));
  with.erase("run");
  CHECK(with == without);
}

TEST_CASE("flags of a run change what they say") {
  const auto cost = [](const std::string& flags) {
    return parsed(run(simulated + " --json - --train-tokens 1T" + flags)).at("run");
  };
  const json usual = cost("");
  CHECK(number(cost(" --power 350W --pue 1.1"), "energy_mwh") == Approx(number(usual, "energy_mwh") / 2 * 1.1 / 1.54));
  const json often = cost(" --mtbf 500h");
  CHECK(number(often, "goodput") < number(usual, "goodput"));
  CHECK(number(often, "mtbf_s") == Approx(500.0 * 3600 / 8));
  CHECK(!often.contains("goodput_published"));
  CHECK(number(cost(" --mtbf 500h --restart-time 1h"), "goodput") < number(often, "goodput"));
  const json sync = cost(" --mtbf 500h --checkpoint sync --checkpoint-bandwidth 10MB/s");
  CHECK(number(sync.at("checkpoint"), "pause_s") == Approx(0.55 + number(sync.at("checkpoint"), "bytes") / 1e7));
  CHECK(number(sync, "goodput") < number(often, "goodput"));
  const json spare = cost(" --mtbf 500h --spare-nodes 1 --repair-time 10h");
  CHECK(number(spare.at("lost"), "waiting") > 0);
  CHECK(number(spare.at("spare_nodes"), "found") == Approx(1 / (1 + 10.0 * 8 / 500)));  // Erlang's, of one
  CHECK(number(spare, "device_hours") == Approx(number(spare, "days") * 24 * (8 + 4)));
  const json never = cost(" --mtbf 1min");
  CHECK_FALSE(never.at("ends").get<bool>());
  CHECK(!never.contains("days"));
}

TEST_CASE("what losing a node means is planned") {
  const json answer = parsed(run("plan --json - --train-tokens 15B" + small));
  const json& lost = answer.at("run").at("node_lost");
  REQUIRE(lost.at("found").get<bool>());
  CHECK(lost.at("devices").get<int>() <= 6);
  const double speed = number(lost, "speed");
  CHECK(speed > 0.5);
  CHECK(speed < 1);
  const double tokens = 2048 * number(lost, "global_batch") / number(lost, "makespan_s") * 86'400;
  CHECK(number(lost, "tokens_per_day") == Approx(tokens));
  CHECK(number(lost, "break_even_s") == Approx(600 * (1 + 1 / speed)));
  CHECK(lost.at("goes_on").get<bool>());  // a repair takes a day
  CHECK_FALSE(parsed(run("plan --json - --train-tokens 15B --repair-time 10min" + small))
                  .at("run")
                  .at("node_lost")
                  .at("goes_on")
                  .get<bool>());
  const json one =
      parsed(run("plan --json - --train-tokens 1B --cluster 1x2 --model llama-8x512 --sequence 2048 --global-batch 8"));
  CHECK(!one.at("run").contains("node_lost"));
  // Three of four replicas are left with three quarters of the batch, which six devices do not divide.
  const json odd = parsed(
      run("plan --json - --train-tokens 1B --cluster 4x2 --model llama-8x512 --sequence 2048 --global-batch 32 --schedules ddp"));
  CHECK(odd.at("run").at("node_lost").at("global_batch") == 24);
  CHECK(number(odd.at("run").at("node_lost"), "speed") > 0.7);
}

TEST_CASE("text has a line for each part") {
  const std::string text = run("plan --train-tokens 15B --price 2.5USD" + small).out;
  for (const char* part :
       {" USD a billion tokens\n", "\nrun         15.0 B tokens in ", "\ncost        ", " device-hours, ", " USD\n",
        "\nenergy      ", "700 W a device", "\ngoodput     ", "by published failure rates", "\nfailures    ", "\ncheckpoint  of ",
        "(Young ", "Daly ", "\nspare nodes 99% of failures find one free with ", "\nnode lost   "}) {
    CAPTURE(part);
    CHECK(text.find(part) != std::string::npos);
  }
  const std::string simulation = run(simulated + " --train-tokens 1T --mtbf 1min --spare-nodes 0").out;
  CHECK(simulation.find("1.00 T tokens never: failures leave no time to train") != std::string::npos);
  CHECK(simulation.find("spare nodes 0.0% of failures find one free with 0;") != std::string::npos);
}

TEST_CASE("a cost with each number of devices") {
  const std::string flags =
      "plan --devices 2..4 --train-tokens 1B --price 3 --cluster 1x2 --device H100-80G --model llama-8x512 "
      "--sequence 2048 --global-batch 16 --schedules ddp";
  const json answer = parsed(run(flags + " --json -"));
  for (const json& one : answer.at("by_devices"))
    CHECK(number(one.at("run"), "device_hours") == Approx(number(one.at("run"), "days") * 24 * one.at("devices").get<int>()));
  const std::string text = run(flags).out;
  CHECK(text.find("goodput") != std::string::npos);
  CHECK(text.find(" cost") != std::string::npos);
}

TEST_CASE("devices that the table does not have need --power for energy") {
  const support::Folder folder;
  const std::string file = folder.write("mine.json", R"({"name": "mine", "nodes": 2, "devices_per_node": 2,
    "device": {"name": "mine", "memory": "80GiB", "peak": "300TFLOPS", "memory_bandwidth": "2TBps"},
    "intra_node": {"bandwidth": "200GBps", "latency": "2us"}, "inter_node": {"bandwidth": "25GBps", "latency": "5us"}})");
  const std::string command =
      "simulate --schedule ddp --json - --train-tokens 1B --model llama-8x512 --sequence 2048 --global-batch 16 "
      "--cluster " +
      file;
  const json unknown = parsed(run(command)).at("run");
  CHECK(!unknown.contains("energy_mwh"));
  CHECK(number(parsed(run(command + " --power 500W")).at("run").at("power"), "device_watts") == 500);
}

TEST_CASE("a run that cannot be is refused, before anything is searched") {
  for (const char* tokens : {"0", "-1T", "15t", "1.5", "1e19", "T", "nan", "15T15"}) {
    CAPTURE(tokens);
    support::check_refused(run("plan --train-tokens=" + std::string{tokens} + small), {"--train-tokens", "such as 15T"});
  }
  for (const char* price : {"0", "-2", "2.5dollars", "2.5usd", "USD", "1e300", "2.5USDT"}) {
    CAPTURE(price);
    support::check_refused(run("plan --price=" + std::string{price} + small), {"--price", "such as 2.5USD"});
  }
  const std::string whole = "plan --train-tokens 1T" + small;
  support::check_refused(run(whole + " --power 700"), {"--power", "700W"});
  support::check_refused(run(whole + " --power 0W"), {"--power", "above zero"});
  support::check_refused(run(whole + " --pue 0.9"), {"--pue", "from 1 to 10"});
  support::check_refused(run(whole + " --mtbf 0h"), {"--mtbf", "above zero"});
  support::check_refused(run(whole + " --mtbf 1e300d"), {"--mtbf", "1e15 s"});
  support::check_refused(run(whole + " --restart-time 10"), {"--restart-time", "10min"});
  support::check_refused(run(whole + " --restart-time 1e9h"), {"--restart-time", "1e8 s"});
  support::check_refused(run(whole + " --repair-time=-1h"), {"--repair-time", "not negative"});
  support::check_refused(run(whole + " --spare-nodes 2.5"), {"--spare-nodes", "whole number"});
  support::check_refused(run(whole + " --spare-nodes 9999999"), {"--spare-nodes", "1000000"});
  support::check_refused(run(whole + " --checkpoint never"), {"--checkpoint", "async or sync"});
  support::check_refused(run(whole + " --checkpoint-bandwidth 0GB/s"), {"--checkpoint-bandwidth", "above zero"});
  support::check_refused(run(whole + " --checkpoint-bandwidth 1e-300MB/s"), {"--checkpoint-bandwidth", "a byte a second"});
  support::check_refused(run("plan --mtbf 50000h" + small), {"--mtbf", "--train-tokens"});
  support::check_refused(run(simulated + " --price 2"), {"--price", "--train-tokens"});
  support::check_refused(run("simulate --schedule 1f1b --cluster 1x2 --microbatches 4 --train-tokens 1T "
                             "--cost fixed:forward=1s,backward_input=1s,backward_weight=1s,transfer=0s"),
                         {"--train-tokens", "--model"});
}

TEST_CASE("numbers at their ends are shown as numbers") {
  for (const char* flags :
       {" --train-tokens 1 --mtbf 1e15s --restart-time 0s --repair-time 0s",
        " --train-tokens 1000000T --price 1e9USD --power 1000MW --pue 10 --spare-nodes 1000000",
        " --train-tokens 1T --mtbf 1s --restart-time 1e8s --repair-time 1e8s --checkpoint-bandwidth 1e-6MB/s"}) {
    CAPTURE(flags);
    const auto text = run(simulated + flags);
    CHECK(text.code == 0);
    for (const char* wrong : {"inf", "nan", "n/a"}) {
      CAPTURE(wrong);
      CHECK(text.out.find(wrong, text.out.find("\nrun  ")) == std::string::npos);
    }
    const std::string dumped = parsed(run(simulated + flags + " --json -")).at("run").dump();
    CHECK(dumped.find("null") == std::string::npos);
  }
}

}  // namespace run_cost_test
