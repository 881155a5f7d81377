// Schedules from files, each with one mistake that trains something else or overruns memory:
// refused by the right finding.
// Not: mistakes made at random (catalogue_mutants_test.cpp, mutation_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "tawpipe/core/text_file.hpp"
#include "tawpipe/report/schedule_json.hpp"
#include "tawpipe/verify/validate.hpp"

using namespace tawpipe;

namespace {

void check_refused(const std::string& file, std::string_view code, std::string_view words) {
  const std::string path = std::string{TAWPIPE_TEST_DATA} + "/mutants/" + file + ".json";
  const Diagnostics found = validate(parse_schedule_json(read_text_file(path, "schedule file", 16), file));
  const bool there = std::any_of(found.findings().begin(), found.findings().end(), [&](const Finding& finding) {
    return finding.code == code && finding.message.find(words) != std::string::npos && !finding.help.empty();
  });
  const std::string text = found.text(2);
  CHECK_MESSAGE(there, file, ": ", code, " with '", words, "' is not in:\n", text);
}

}  // namespace

TEST_CASE("ids in no order are refused") { check_refused("ids_no_order", "V202", "not an order in which they can run"); }
TEST_CASE("stages that do not cover the model once are refused") {
  check_refused("stage_first_layer", "V113", "are not those of the stages in order");
}
TEST_CASE("members, splits and pieces of a collective in different orders are refused") {
  check_refused("group_order", "V703", "sees a gradient of 2 contributions instead of 4");
  check_refused("split_order", "V703", "sees a gradient of 2 contributions instead of 4");
  check_refused("piece_range", "V709", "ends with 495 of 496 parameters updated");
}
TEST_CASE("buffers smaller than what their tasks put into them are refused") {
  check_refused("buffer_too_small", "V513", "which takes");
  check_refused("saved_too_small", "V513", "bytes for what it saves for its backward");
}
TEST_CASE("a buffer that a task names twice is refused") { check_refused("alias_in_one_task", "V404", "twice"); }
TEST_CASE("one activation too many is refused") { check_refused("extra_activation", "V514", "it has one of each at most"); }
TEST_CASE("two computations of a rank at once are refused") { check_refused("two_computations_at_once", "V403", "in no order"); }
TEST_CASE("model states that are not kept are refused") {
  check_refused("optimizer_not_persistent", "V515", "which is not held until the next iteration");
}
TEST_CASE("gradients of another stage, and a transfer through a workspace, are refused") {
  check_refused("gradient_stages_swapped", "V704", "sees a gradient of 8 contributions instead of 4");
  check_refused("transfer_is_workspace", "V507", "workspace");
}
