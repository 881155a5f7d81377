// Tests of search/expected_error.hpp: how wide an interval is, and of which runs.
#include "tawpipe/search/expected_error.hpp"

#include <doctest/doctest.h>

#include "tawpipe/model/models.hpp"
#include "tawpipe/topology/clusters.hpp"

using namespace tawpipe;

namespace expected_error_test {

namespace {

constexpr ErrorClass dense_on_h100{Software::megatron, false, 16, "H100"};

double width(const ExpectedError& error) { return error.high() / error.low(); }

}  // namespace

TEST_CASE("what was measured often is narrow, what never was is as wide as software differs") {
  const ExpectedError known = expected_error(dense_on_h100);
  CHECK(known.low() < 1);
  CHECK(known.high() > 1);
  CHECK(width(known) < 1.25);
  CHECK(known.rows > 30);
  const ExpectedError unknown = expected_error(ErrorClass{Software::unknown, false, 16, "H100"});
  CHECK(unknown.rows == 0);
  CHECK(unknown.text() == "no public run like it was measured");
  for (int i = 1; i < softwares; ++i) {
    CHECK(width(unknown) > width(expected_error(ErrorClass{static_cast<Software>(i), false, 16, "H100"})));
  }
}

TEST_CASE("mixtures are wider than dense models, with unknown software too") {
  for (const Software software : {Software::megatron, Software::unknown}) {
    const ExpectedError dense = expected_error(ErrorClass{software, false, 8, "B200"});
    const ExpectedError mixture = expected_error(ErrorClass{software, true, 8, "B200"});
    CHECK(width(mixture) > width(dense));
    CHECK(mixture.mean > 0);  // mixtures ran slower than predicted
  }
}

TEST_CASE("a device or format of which nothing was measured has the next wider class") {
  const ExpectedError other = expected_error(ErrorClass{Software::megatron, false, 16, "MI300X"});
  CHECK(other.depth == 3);
  CHECK(other.rows > expected_error(dense_on_h100).rows);
  CHECK(other.text().find(" on ") == std::string::npos);
  CHECK(expected_error(ErrorClass{Software::composer, false, 4, "H100"}).depth == 2);
  CHECK(expected_error(dense_on_h100).text() ==
        concat(expected_error(dense_on_h100).rows, " public runs of dense models in 16 bits on H100 by Megatron-LM"));
}

TEST_CASE("a device that is timed by another's curves is wider by what those add") {
  Problem problem{.cluster = clusters::named("l40s-pcie"), .model = models::named("llama-3-8b")};
  const ErrorClass found = error_class(problem, Software::megatron);
  CHECK((found.others_curves && found.generation.empty()));
  const ExpectedError error = expected_error(found);
  const ExpectedError any = expected_error(ErrorClass{Software::megatron});
  CHECK(width(error) > 1.25 * width(any));
  CHECK(error.mean == any.mean);
  CHECK(error.text() == concat(any.rows, " public runs of dense models in 16 bits by Megatron-LM on other GPUs"));
  problem.cluster = clusters::named("dgx-h100");
  CHECK(!error_class(problem, Software::megatron).others_curves);
}

TEST_CASE("classes are pooled as their runs together") {
  // The mean over all runs of Megatron-LM, each class by its weight.
  const detail::PooledErrors all = detail::pooled(dense_on_h100, 1);
  double rows = 0, weight = 0, sum = 0;
  for (const detail::MeasuredErrors& one : detail::measured_errors) {
    if (one.of.software != Software::megatron) continue;
    rows += one.rows;
    weight += one.weight;
    sum += one.weight * one.mean;
  }
  CHECK(all.rows == rows);
  CHECK(all.mean == doctest::Approx(sum / weight));
  CHECK(all.variance > 0);
  CHECK(detail::pooled(ErrorClass{Software::unknown}, 1).rows == 0);
}

TEST_CASE("a problem's class is that of its model, GEMMs and device; other costs were never held against runs") {
  Problem problem{.cluster = clusters::named("dgx-h100"), .model = models::named("llama-3-8b")};
  const ErrorClass found = error_class(problem, Software::megatron);
  CHECK(found.is_like(dense_on_h100, 4));
  problem.model->products = ProductFormat::mxfp8;
  CHECK(error_class(problem, Software::megatron).bits == 8);
  problem.cost = RooflineCost{};
  CHECK(error_class(problem, Software::megatron).software == Software::unknown);
}

TEST_CASE("pairs of one job are told apart best where one software was measured most") {
  CHECK(pair_error(dense_on_h100) < pair_error(ErrorClass{Software::unknown}));
  CHECK(pair_error(ErrorClass{Software::megatron, true}) > pair_error(dense_on_h100));
}

}  // namespace expected_error_test
