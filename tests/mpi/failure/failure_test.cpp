// Runs of four MPI processes of which one dies, is stopped, stalls or fails: all others leave by
// themselves with code 3 and say who, and where. Limits of silence are long where silence is not
// the subject: a busy machine is silent, too.
// Not: runs that go well (mpi/executor_test.cpp).
#include <doctest/doctest.h>

#include <cstdlib>
#include <random>
#include <string>

#include "support/scratch_folder.hpp"
#include "tawpipe/core/text.hpp"

using tawpipe::concat;

namespace {

struct Outcome {
  std::string text;  ///< of all ranks, standard output and errors

  int count(const std::string& words) const {
    int found = 0;
    for (std::size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++found;
    return found;
  }
};

/// Four ranks under a shell each that tells how its rank has left, also where mpirun asks all to
/// end (TERM). All write to a file: mpirun may end before it has passed on all that ranks print.
Outcome run(const std::string& way, int rank, int milliseconds, double silence, double task) {
  const support::ScratchFolder folder;
  const std::string said = folder / "said";
  const std::string command =
      concat("timeout -s KILL 200 " TAWPIPE_MPIEXEC " 4 sh -c 'exec >>\"", said, "\" 2>&1; trap : TERM; " TAWPIPE_PROBE " ", way,
             " ", rank, " ", milliseconds, " ", silence, " ", task, "; code=$?; echo \"left with $code\"; exit $code'");
  std::system(command.c_str());  // it ends with a rank's code
  return {support::file_bytes(said)};
}

}  // namespace

TEST_CASE("a rank that is killed at any moment ends all others, which name it") {
  const char* const given = std::getenv("TAWPIPE_KILLS");  // more of them by hand
  const int kills = given != nullptr ? std::atoi(given) : 3;
  std::mt19937 random{7};
  for (int i = 0; i < kills; ++i) {
    const int rank = i % 4;  // rank 0, which the others report to, among them
    const int milliseconds = static_cast<int>(random() % 300);
    const Outcome outcome = run("kill", rank, milliseconds, 60, 120);
    CAPTURE(rank);
    CAPTURE(milliseconds);
    CAPTURE(outcome.text);
    CHECK(outcome.count("left with 3") == 3);
    CHECK(outcome.count(concat("stops: rank ", rank, " died; ")) == 3);
  }
}

TEST_CASE("a program that outlives its run catches what has failed, and keeps its signal handler") {
  for (const int rank : {0, 2}) {
    const Outcome outcome = run("outlive", rank, 50, 60, 120);
    CAPTURE(outcome.text);
    CHECK(outcome.count("left with 0") == 3);
    CHECK(outcome.count("goes on: ") == 3);
    CHECK(outcome.count(concat("rank ", rank, " died; ")) == 3);
  }
}

TEST_CASE("a rank that is stopped ends all others by its silence, and its task is named") {
  for (const int rank : {0, 2}) {
    const Outcome outcome = run("stop", rank, 100, 5, 120);
    CAPTURE(outcome.text);
    // mpirun wakes the stopped one in the end, which then says the same.
    CHECK(outcome.count("left with 3") >= 3);
    CHECK(outcome.count(concat("stops: rank ", rank, " has been silent for ")) >= 3);
    CHECK(outcome.count(" s; last heard of in ") >= 3);
  }
}

TEST_CASE("a computation that never ends ends all ranks at the limit, and is named") {
  for (const int rank : {0, 3}) {
    const Outcome outcome = run("stall", rank, 50, 60, 5);
    CAPTURE(outcome.text);
    CHECK(outcome.count("left with 3") == 4);
    CHECK(outcome.count("has stalled: ") == 4);
    // Whoever reports: the one that computes and does not end is in the message.
    CHECK(outcome.count(concat(", on rank ", rank, " (task ")) >= 4);
  }
}

TEST_CASE("a layer that throws on one rank ends all ranks with its message") {
  for (const int rank : {0, 1}) {
    const Outcome outcome = run("throw", rank, 50, 60, 120);
    CAPTURE(outcome.text);
    CHECK(outcome.count("left with 3") == 4);
    CHECK(outcome.count(concat("stops: rank ", rank, " failed: the layer has no more numbers in ")) == 3);
    CHECK(outcome.count("tawpipe: the layer has no more numbers\n") == 1);  // the rank itself
  }
}
