// Tests of report/measured_json.hpp: written and read without loss; what is wrong is named.
// Not: what the times mean (unit/cost/measured_test.cpp).
#include "tawpipe/report/measured_json.hpp"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

using tawpipe::MeasuredCost;

namespace {

MeasuredCost whole() {
  MeasuredCost cost;
  cost.forward = {.layer = 1.0 / 3, .embedding = 2.3e-4, .head = 5.7e-4};
  cost.backward = {.layer = 2.9e-3, .embedding = 3.1e-4, .head = 1.3e-3};
  cost.backward_input = {.layer = 1.7e-3, .embedding = 0, .head = 7e-4};
  cost.backward_weight = {.layer = 1.3e-3, .embedding = 3.1e-4, .head = 6e-4};
  cost.update = {.once = 1.9e-5, .byte = 7.3e-9};
  cost.intra_node = {.latency = 1.1e-5, .byte = 0};
  cost.inter_node = {.latency = 9.7e-5, .byte = 1.7e-7};
  cost.work = {.dtype = tawpipe::Dtype::f64,
               .parameter_bytes = {.weight = 8, .gradient = 8, .optimizer = 16},
               .hidden = 128,
               .intermediate = 344,
               .vocab = 256,
               .sequence = 64,
               .microbatch_size = 2,
               .recompute = tawpipe::Recompute::selective,
               .model = "llama-4x128"};
  cost.device = "H100-80G";
  cost.software = "tawpipe 0.1.0";
  return cost;
}

void check_refused(std::string text, const std::string& message) {
  CHECK_THROWS_WITH_AS(tawpipe::parse_measured_json(text, "cost.json"), message.c_str(), tawpipe::InputError);
}

}  // namespace

TEST_CASE("measured times are written and read without loss") {
  CHECK(tawpipe::parse_measured_json(tawpipe::measured_json(whole())) == whole());
  MeasuredCost part;
  part.work = whole().work;
  part.device = "device";
  part.backward_input = {.layer = 1e-3, .embedding = 0, .head = 0};
  CHECK(tawpipe::parse_measured_json(tawpipe::measured_json(part)) == part);
}

TEST_CASE("a file that is wrong is refused with the place") {
  check_refused("{}", "cost.json: 'measured_cost' is missing");
  check_refused(R"({"measured_cost": 2, "seconds": {}})", "cost.json: measured_cost: expected a whole number from 1 to 1, not 2");
  std::string text = tawpipe::measured_json(whole());
  const std::string head = text.substr(0, text.find("\"seconds\""));
  check_refused(head + R"("seconds": {"forward": {"layer": -1, "embedding": 0, "head": 0}}})",
                "cost.json: seconds.forward.layer: expected a number, 0 or more, not -1");
  check_refused(head + R"("seconds": {"forward": {"layer": 1, "head": 0}}})",
                "cost.json: seconds.forward: 'embedding' is missing");
  text.replace(text.find("\"selective\""), 11, "\"some\"");
  CHECK_THROWS_AS(tawpipe::parse_measured_json(text), tawpipe::InputError);
}

TEST_CASE("a file that does not say what was measured and where is refused with what to add") {
  for (const std::string key : {"work", "device", "software"}) {
    auto json = nlohmann::json::parse(tawpipe::measured_json(whole()));
    json.erase(key);
    CAPTURE(key);
    CHECK_THROWS_WITH_AS(tawpipe::parse_measured_json(json.dump(), "cost.json"),
                         doctest::Contains(("'" + key + "' is missing").c_str()), tawpipe::InputError);
    CHECK_THROWS_WITH_AS(tawpipe::parse_measured_json(json.dump(), "cost.json"), doctest::Contains("calibrate again, or add it"),
                         tawpipe::InputError);
  }
  MeasuredCost nowhere = whole();
  nowhere.device.clear();
  CHECK_THROWS_WITH_AS(tawpipe::measured_json(nowhere), doctest::Contains("work and device"), tawpipe::InputError);
}

TEST_CASE("a layer that takes no time is neither written nor read") {
  MeasuredCost nothing = whole();
  nothing.backward->layer = 0;
  CHECK_THROWS_WITH_AS(tawpipe::measured_json(nothing), doctest::Contains("a backward of a layer that takes no time"),
                       tawpipe::InputError);
  auto json = nlohmann::json::parse(tawpipe::measured_json(whole()));
  json["seconds"]["forward"]["layer"] = 0.0;
  CHECK_THROWS_WITH_AS(tawpipe::parse_measured_json(json.dump(), "cost.json"),
                       doctest::Contains("a forward of a layer that takes no time"), tawpipe::InputError);
}
