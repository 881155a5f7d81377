// What the programs with Google Benchmark share: the end of their main().
// Not: benchmarks. They are registered there, not at file scope: the files may be one program
// (cmake/TawpipePrograms.cmake).
#pragma once

#include <benchmark/benchmark.h>

/// Runs what was registered, as the program's arguments say; gives its exit status.
inline int run_benchmarks(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
