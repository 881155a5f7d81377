// Charts: scales and their ticks, marks, names that need escaping.
// Not: the pictures of timelines (gantt_test.cpp).
#include "tawpipe/report/chart.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

using namespace tawpipe;

namespace {

Chart chart_of(std::vector<std::pair<double, double>> points) {
  const auto tell = [](double value) { return fmt::format("{:.6g}", value); };
  return {.title = "a < b",
          .x = {.name = "across", .tell = tell},
          .y = {.name = "up & down", .tell = tell, .from_zero = true},
          .series = {{.name = "\"one\"", .points = std::move(points)}}};
}

std::vector<double> places(const ChartAxis& axis, double low, double high) {
  std::vector<double> found;
  const std::vector<double> values{low, high};
  for (const auto& [at, text] : detail::ChartScale{axis, values, 0, 100}.ticks()) found.push_back(at);
  return found;
}

}  // namespace

TEST_CASE("ticks are round in the axis' unit") {
  ChartAxis axis{.name = "", .tell = [](double) { return std::string{}; }, .from_zero = true};
  CHECK(places(axis, 3, 10) == std::vector<double>{0, 2, 4, 6, 8, 10});
  axis.unit = 0.125;
  CHECK(places(axis, 0.125, 1.25) == std::vector<double>{0, 0.25, 0.5, 0.75, 1, 1.25});
  axis = {.name = "", .tell = axis.tell, .logarithmic = true};
  CHECK(places(axis, 1, 100) == std::vector<double>{1, 2, 5, 10, 20, 50, 100});
  CHECK(places(axis, 1, 1e6).size() == 7);
  axis.names = {"none", "full"};
  CHECK(places(axis, 0, 1) == std::vector<double>{0, 1});
}

TEST_CASE("points lie where their values are, and what is no number is left out") {
  const Drawing drawing = draw(chart_of({{0, 0}, {1, 5}, {2, 10}, {3, std::numeric_limits<double>::quiet_NaN()}}));
  const auto line = std::find_if(drawing.shapes.begin(), drawing.shapes.end(), [](const Shape& shape) {
    return shape.kind == Shape::Kind::line && shape.color == series_colors[0];
  });
  REQUIRE(line != drawing.shapes.end());
  REQUIRE(line->points.size() == 6);
  CHECK(line->points[2] - line->points[0] == doctest::Approx(line->points[4] - line->points[2]));
  CHECK(line->points[1] - line->points[3] == doctest::Approx(line->points[3] - line->points[5]));
  const std::string text = svg(drawing);
  for (const char* word : {"a &lt; b", "up &amp; down", "&quot;one&quot;"}) CHECK(text.find(word) != std::string::npos);
  CHECK_THROWS_WITH_AS(draw(chart_of({})), doctest::Contains("there is nothing to draw"), InputError);
}
