// Tests of training/checkpoint_folder.hpp: nothing is deleted that another run or program wrote, and
// a damaged `latest` is passed over.
// Not: what a checkpoint holds, and writes that are interrupted (checkpoint_test.cpp).
#include "tawpipe/training/checkpoint_folder.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <set>
#include <string>

#include "support/checkpoints.hpp"
#include "support/scratch_folder.hpp"

using support::file_bytes;
using support::holds;
using support::names_in;
using support::put_file;
using support::ScratchFolder;
using support::write;
using tawpipe::InputError;
using tawpipe::training::Checkpoint;
using tawpipe::training::open_checkpoint;
using tawpipe::training::other_run_in;
using tawpipe::training::ParameterValue;

namespace fs = std::filesystem;

using Names = std::set<std::string>;

TEST_CASE("checkpoints of another run are neither deleted nor replaced") {
  const ScratchFolder folder;
  const std::string run = folder / "run";
  write(run, 1, 0.25, "first");
  write(run, 3, 0.25, "first");
  for (const int step : {2, 3, 4, 5}) write(run, step, 0.5, "second");
  CHECK(names_in(run) == Names{"latest", "step-000001", "step-000003.other1", "step-000004", "step-000005"});
  CHECK(holds(Checkpoint{run + "/step-000003.other1"}, ParameterValue::weight, {0, 1080}, 0.25));
  CHECK(holds(Checkpoint{run}, ParameterValue::weight, {0, 1080}, 0.5));
  write(run, 3, 0.75, "third");
  write(run, 3, 0.75, "third");
  write(run, 4, 0.75, "third");
  CHECK(names_in(run) ==
        Names{"latest", "step-000001", "step-000003", "step-000003.other1", "step-000004", "step-000004.other1", "step-000005"});
  CHECK(Checkpoint{run}.state().run == "third");
}

TEST_CASE("a run that may overwrite deletes whole checkpoints of others, once its own is whole") {
  const ScratchFolder folder;
  const std::string run = folder / "run";
  for (const int step : {10, 20}) write(run, step, 0, "first");
  write(run, 20, 0.5, "second", true);
  CHECK(names_in(run) == Names{"latest", "step-000020"});
  CHECK(holds(Checkpoint{run}, ParameterValue::weight, {0, 1080}, 0.5));
}

TEST_CASE("what write_checkpoint did not write stays") {
  const ScratchFolder folder;
  const std::string run = folder / "run";
  for (const int step : {1, 2}) write(run, step);
  put_file(run + "/step-000001/notes.txt", "the best one");
  fs::create_directory(run + "/step-000004");
  put_file(run + "/step-000004/thesis.tex", "draft");
  fs::create_directory(run + "/step-000002.partial");
  put_file(run + "/step-000002.partial/thesis.tex", "draft");
  fs::create_directory(run + "/step-000002.replaced");
  put_file(run + "/step-000002.replaced/thesis.tex", "draft");
  fs::create_directory(folder / "elsewhere");
  fs::create_directory_symlink(folder / "elsewhere", run + "/step-000000");
  for (const int step : {3, 4, 5}) write(run, step);
  CHECK(names_in(run) == Names{"latest", "step-000000", "step-000001", "step-000002", "step-000002.partial",
                               "step-000002.replaced", "step-000004", "step-000004.other1", "step-000005"});
  CHECK(file_bytes(run + "/step-000004.other1/thesis.tex") == "draft");
  CHECK_THROWS_WITH_AS(write(run, 2), doctest::Contains("File exists"), InputError);
  CHECK(file_bytes(run + "/step-000002.partial/thesis.tex") == "draft");
}

TEST_CASE("a folder says whether another run saves there") {
  const ScratchFolder folder;
  const std::string run = folder / "run";
  CHECK(other_run_in(run) == std::nullopt);
  fs::create_directory(run);
  put_file(run + "/notes.txt", "");
  CHECK(other_run_in(run) == std::nullopt);
  put_file(run + "/latest", "global_step100");  // of DeepSpeed
  CHECK(other_run_in(run) == "latest");
  for (const int step : {9, 10}) write(run, step);
  CHECK(other_run_in(run) == "step-000010");
  CHECK(tawpipe::training::new_run_name().size() == 16);
  CHECK(tawpipe::training::new_run_name() != tawpipe::training::new_run_name());
}

TEST_CASE("of a damaged `latest` the newest whole checkpoint is taken, and that is said") {
  const ScratchFolder folder;
  const std::string run = folder / "run";
  for (const int step : {300, 100, 110}) write(run, step);  // went back
  const std::string newest = run + "/step-000110";
  for (const char* damaged : {"", "step-0001", "\xff\xff\xff\xff"}) {
    CAPTURE(damaged);
    put_file(run + "/latest", damaged);
    const auto opened = open_checkpoint(run);
    CHECK(opened.checkpoint.path() == newest);
    REQUIRE(opened.passed_over.size() == 1);
    CHECK(opened.passed_over[0].find("latest' is broken: it must name a checkpoint") != std::string::npos);
  }
  fs::remove(run + "/latest");
  fs::create_directory(run + "/latest");
  CHECK(open_checkpoint(run).passed_over.size() == 1);
  fs::remove(run + "/latest");
  put_file(run + "/latest", "step-000200\n");  // a digit
  CHECK(open_checkpoint(run).checkpoint.path() == newest);
  put_file(run + "/latest", "step-000010\n");
  CHECK(open_checkpoint(run).checkpoint.path() == run + "/step-000300");
  put_file(run + "/latest", "?");
  put_file(newest + "/state.json", "?");
  CHECK(open_checkpoint(run).passed_over.size() == 2);
}
