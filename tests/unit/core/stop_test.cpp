// Tests of core/stop.hpp: who is told to end, on which thread.
// Not: how soon computations ask (search/plan_test.cpp, cli/signals.py).
#include "tawpipe/core/stop.hpp"

#include <doctest/doctest.h>

#include <thread>

using tawpipe::check_stop;
using tawpipe::Stopped;
using tawpipe::StopScope;

TEST_CASE("a computation ends where it asks, if it was told to, within the scope and on its thread") {
  bool enough = false;
  const auto told = [&] { return enough; };
  check_stop();
  {
    const StopScope scope{told};
    check_stop();
    enough = true;
    CHECK_THROWS_AS(check_stop(), Stopped);
    std::thread{[] { check_stop(); }}.join();
    const tawpipe::StopTold* const ours = tawpipe::detail::stop_told;
    std::thread{[&] {
      const StopScope inherited{ours};
      CHECK_THROWS_AS(check_stop(), Stopped);
    }}.join();
    const StopScope none{nullptr};
    check_stop();
  }
  check_stop();
}

TEST_CASE("what is thrown when asked ends it, too") {
  const auto told = []() -> bool { throw 7; };
  const StopScope scope{told};
  CHECK_THROWS_AS(check_stop(), int);
}
