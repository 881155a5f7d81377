// Tests of verify/diagnostics.hpp.
// Not: what is found (check_*_test.cpp).
#include "tawpipe/verify/diagnostics.hpp"

#include <doctest/doctest.h>

#include <string>

using namespace tawpipe;

TEST_CASE("no findings") {
  const Diagnostics none_found;
  CHECK(none_found.ok());
  CHECK(none_found.summary() == "no findings");
  CHECK(none_found.text() == "no findings\n");
  CHECK(!none_found.has("V101"));
}

TEST_CASE("warnings alone are ok, errors are not") {
  Diagnostics found;
  found.add({Severity::warning, "V202", none<TaskId>, none<Rank>, "ids in no order", "number them"});
  CHECK(found.ok());
  CHECK(found.warnings() == 1);
  found.add({Severity::error, "V401", TaskId{3}, Rank{1}, "a race", ""});
  CHECK(!found.ok());
  CHECK(found.summary() == "1 error, 1 warning");
  CHECK(found.text() == "warning V202: ids in no order\n  help: number them\nerror V401: a race\n1 error, 1 warning\n");
  CHECK(found.findings()[1].task == TaskId{3});
  CHECK(found.findings()[1].rank == Rank{1});
}

TEST_CASE("of each code a few are kept and fewer shown, and all counted") {
  Diagnostics found{3};
  int made = 0;
  for (int i = 0; i < 10; ++i) {
    found.error(
        "V401", TaskId{i}, none<Rank>, [&] { return concat("race ", made++); }, "");
  }
  found.error(
      "V501", TaskId{0}, none<Rank>, [] { return std::string{"unwritten"}; }, "");
  CHECK(made == 3);  // no message is made in vain
  CHECK(found.errors() == 11);
  CHECK(found.count("V401") == 10);
  CHECK(found.findings().size() == 4);
  CHECK(found.text(2) ==
        "error V401: race 0\nerror V401: race 1\n  and 8 more of V401\nerror V501: unwritten\n11 errors, 0 warnings\n");
}
