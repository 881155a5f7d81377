// Tests of report/html_report.hpp: what the page holds and what is refused.
// Not: what it shows (tests/browser/).
#include "tawpipe/report/html_report.hpp"

#include <doctest/doctest.h>

#include <numeric>
#include <string>
#include <vector>

#include "tawpipe/model/models.hpp"
#include "tawpipe/schedules/one_f_one_b.hpp"
#include "tawpipe/schedules/shipped.hpp"
#include "tawpipe/search/choose.hpp"
#include "tawpipe/search/predict.hpp"
#include "tawpipe/topology/cluster_builder.hpp"

using tawpipe::InputError;
using tawpipe::Prediction;
using tawpipe::Problem;
using tawpipe::ReportEntry;

namespace {

Problem small_problem() {
  using namespace tawpipe::literals;
  return {.cluster = tawpipe::ClusterBuilder{}
                         .name("two </script> nodes")
                         .device({.name = "A800", .memory = 80_GiB, .peak = 312_TFLOPS, .memory_bandwidth = 2039_GBps})
                         .nodes(2)
                         .devices_per_node(2)
                         .intra_node({.bandwidth = 160_GBps, .latency = 3_us})
                         .inter_node({.bandwidth = 10_Gbps, .latency = 30_us})
                         .build(),
          .model = tawpipe::models::named("llama-8x512"),
          .sequence = 1024,
          .global_batch = 8,
          .microbatch_sizes = {1},
          .schedules = {{"1f1b"}}};
}

Prediction predicted(const Problem& problem) { return predict(problem, tawpipe::schedules::one_f_one_b(problem.workload(1), 4)); }

std::string page_of(std::vector<ReportEntry> entries) {
  std::string page;
  tawpipe::write_html_report({.command = "compare",
                              .title = "</script> and more",
                              .problem = "what was asked",
                              .answer = {{"results", 2}},
                              .notes = {"by the way"},
                              .entries = std::move(entries),
                              .invocation = "tawpipe compare --model '<b>&'"},
                             [&](std::string_view text) { page += text; });
  return page;
}

nlohmann::json data_of(const std::string& page) {
  const std::string begin = R"(<script type="application/json" id="data">)";
  const auto from = page.find(begin) + begin.size();
  return nlohmann::json::parse(page.substr(from, page.find("</script>", from) - from));
}

}  // namespace

TEST_CASE("a report is one page that needs nothing else, with the data of its predictions") {
  const Problem problem = small_problem();
  const Prediction prediction = predicted(problem);
  const std::string page =
      page_of({ReportEntry::of("first", prediction, problem), ReportEntry::of("second", prediction, problem)});
  CHECK(page.starts_with("<!doctype html>"));
  CHECK(page.find("@DATA@") == std::string::npos);
  CHECK(page.find("@SCRIPT@") == std::string::npos);
  for (const char* outside : {"src=", "http:", "https:", "import "}) CHECK(page.find(outside) == std::string::npos);
  for (std::size_t at = page.find("href=\""); at != std::string::npos; at = page.find("href=\"", at + 1))
    CHECK(page[at + 6] == '#');  // a place on the page
  CHECK(page.find("<pre id=\"command\">tawpipe compare --model '&lt;b>&amp;'</pre>") != std::string::npos);
  const nlohmann::json data = data_of(page);
  REQUIRE(data.at("schedules").size() == 2);
  CHECK(data.at("title") == "</script> and more");
  CHECK(data.at("version") == std::string{tawpipe::version});
  CHECK(data.at("answer") == nlohmann::json{{"results", 2}});
  CHECK(data.at("notes") == nlohmann::json{"by the way"});
  const nlohmann::json& one = data.at("schedules")[0];
  CHECK(one.at("summary").at("makespan_ps") == prediction.summary.makespan.value());
  CHECK(one.at("owns") == nlohmann::json{"0", "1", "2", "3"});
  CHECK(one.at("memory").size() == 4);
  CHECK(one.at("links").size() == 4);
  CHECK(one.at("egress_limit") == nlohmann::json{1.25e9, 1.25e9});
  CHECK(one.at("drawn") == nlohmann::json{0, 1, 2, 3});
  CHECK(one.at("axes").empty());
  const nlohmann::json& cluster = one.at("cluster");
  CHECK(cluster.at("name") == "two </script> nodes");
  CHECK(cluster.at("nodes") == nlohmann::json{0, 0});
  const nlohmann::json& node = cluster.at("types").at(0);
  CHECK(node.at("devices") == nlohmann::json{"A800", "A800"});
  CHECK(node.at("adapters") == nlohmann::json{{{"bandwidth", 1.25e9}, {"devices", {0, 1}}}});
  CHECK(node.at("inside") == nlohmann::json{{{"kind", "nvlink"}, {"bandwidth", 160e9}}});
}

TEST_CASE("numbers are packed into the narrowest type, or as places in a list") {
  const auto packed = [](std::vector<double> values) {
    tawpipe::detail::PackedColumn column;
    for (const double value : values) column.add(value);
    return column.json();
  };
  CHECK(packed({1, 2, 255}) == nlohmann::ordered_json{{"type", "u8"}, {"bytes", 3}, {"data", "MAEC/w=="}});
  CHECK(packed({-1}) == nlohmann::ordered_json{{"type", "i16"}, {"bytes", 2}, {"data", "IP//"}});
  CHECK(packed({1, 70000, 70001}).at("type") == "i32");
  CHECK(packed({0.5}).at("type") == "f64");
  const auto listed = packed({1e12, 1e12, 1e12, 1e12, 1e12, 1e12, 1e12, 2e12});
  CHECK(listed.at("values") == nlohmann::ordered_json{1e12, 2e12});
  CHECK(listed.at("bytes") == 8);
  CHECK(packed({}).at("bytes") == 0);
}

TEST_CASE("what is folded is short where it repeats, and unfolds to the same bytes") {
  const auto unfolded = [](const std::string& from) {
    std::string out;
    std::size_t at = 0;
    const auto byte = [&] { return static_cast<unsigned char>(from.at(at++)); };
    const auto whole = [&](std::size_t count) {
      if (count < 15) return count;
      for (;;) {
        const unsigned char more = byte();
        count += more;
        if (more < 255) return count;
      }
    };
    while (at < from.size()) {
      const unsigned char token = byte();
      const std::size_t literals = whole(token >> 4U);
      out += from.substr(at, literals);
      at += literals;
      if (at >= from.size()) break;
      std::size_t back = byte();
      back += std::size_t{byte()} << 8U;
      for (std::size_t left = whole(token & 15U) + 4; left > 0; --left) out += out[out.size() - back];
    }
    return out;
  };
  std::string random;
  for (std::uint32_t i = 0, x = 1; i < 200'000; ++i) random += static_cast<char>((x = x * 1664525 + 1013904223) >> 24U);
  std::string repeated;
  for (int i = 0; i < 3000; ++i) repeated += tawpipe::concat("microbatch ", i % 7, i);
  for (const std::string& bytes :
       {std::string{}, std::string{"abc"}, std::string(100'000, 'x'), random, repeated, random + random})
    CHECK(unfolded(tawpipe::detail::folded(bytes)) == bytes);
  CHECK(tawpipe::detail::folded(std::string(100'000, 'x')).size() < 500);
  CHECK(tawpipe::detail::folded(repeated).size() < repeated.size() / 2);
}

TEST_CASE("memory over time has the peak, and what leaves nodes adds up to the traffic") {
  const Problem problem = small_problem();
  const Prediction prediction = predicted(problem);
  const auto held = tawpipe::memory_over_time(prediction.schedule, prediction.timeline, 50);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    double most = 0;
    for (std::size_t part = 0; part < 50; ++part) {
      double sum = 0;
      for (int kind = 0; kind < tawpipe::buffer_kinds; ++kind) sum += held[rank][part * tawpipe::buffer_kinds + kind];
      most = std::max(most, sum);
    }
    CHECK(most == static_cast<double>(prediction.summary.peak_memory[rank].total.value()));
  }
  const auto moved = tawpipe::node_traffic_over_time(prediction.schedule, problem.cluster, prediction.timeline, 50);
  const auto sum = [&](std::size_t row) { return std::accumulate(moved[row].begin(), moved[row].end(), 0.0); };
  for (std::size_t node = 0; node < 2; ++node) {
    CHECK(sum(2 * node) == doctest::Approx(static_cast<double>(prediction.summary.traffic.node_egress_bytes[node])));
  }
  CHECK(sum(1) + sum(3) == doctest::Approx(static_cast<double>(prediction.summary.traffic.intra_node_bytes)));
}

TEST_CASE("ranks have their places on the mesh; of a folded prediction those are drawn that were simulated") {
  using namespace tawpipe::literals;
  Problem problem = small_problem();
  problem.mesh = {.data = 2};
  problem.fold = tawpipe::Fold::on;
  const Prediction prediction = predict(problem, tawpipe::shipped_schedules());
  REQUIRE(prediction.summary.folding.factor == 2);
  const nlohmann::json one = data_of(page_of({ReportEntry::of("folded", prediction, problem)})).at("schedules")[0];
  CHECK(one.at("axes") == nlohmann::json{"p0 d0", "p1 d0", "p0 d1", "p1 d1"});
  CHECK(one.at("drawn") == nlohmann::json{0, 1});
  CHECK(one.at("owns") == nlohmann::json{"0", "1", "0", "1"});
  CHECK(one.at("links").empty());
}

TEST_CASE("ranks that keep a shard of everything are said to") {
  Problem problem = small_problem();
  problem.schedules = {{"fsdp"}};
  const Prediction prediction = predict(problem, tawpipe::shipped_schedules());
  const nlohmann::json one = data_of(page_of({ReportEntry::of("fsdp", prediction, problem)})).at("schedules")[0];
  CHECK(one.at("owns") == nlohmann::json(std::vector<std::string>(4, "0 to 9, a shard of each")));
}

TEST_CASE("a report of more than a browser draws is refused") {
  const Problem problem = small_problem();
  const Prediction prediction = predicted(problem);
  const std::vector<ReportEntry> many(1 + tawpipe::max_report_tasks / prediction.schedule.tasks().size(),
                                      ReportEntry::of("one", prediction, problem));
  CHECK_THROWS_WITH_AS(page_of(many), doctest::Contains("too much for a browser"), InputError);
}
