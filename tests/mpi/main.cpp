// doctest's main for programs that mpirun starts: a session for all tests of the process.
// Not: tests.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <exception>

#include "mpi/session_of_tests.hpp"

tawpipe::mpi::Session& session_of_tests() {
  static tawpipe::mpi::Session session{{.silence_seconds = 120, .task_seconds = 500}};  // a busy machine is silent, too
  return session;
}

int main(int argc, char** argv) {
  try {
    session_of_tests();
    return doctest::Context{argc, argv}.run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
}
