// doctest's main, compiled once for all test programs.
// Not: tests.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
