# Each bench/<name>.cpp is a program bench_<name> with Google Benchmark linked; it brings its own main.
# Not: tests; timings vary with the machine.
find_package(benchmark QUIET)
file(GLOB benchmarks CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/bench/*.cpp")
if(NOT benchmark_FOUND)
  message(STATUS "tawpipe: Google Benchmark is not installed; benchmarks are left out")
  set(benchmarks "")
endif()
if(NOT TARGET tawpipe::host_layers)
  list(FILTER benchmarks EXCLUDE REGEX "/bench/layers\\.cpp$")
endif()
list(TRANSFORM benchmarks REPLACE ".*/(.*)\\.cpp" "bench_\\1" OUTPUT_VARIABLE names)
if(benchmarks)
  tawpipe_add_programs(tawpipe_benchmark_programs FOLDER "${PROJECT_BINARY_DIR}/bench" NAMES ${names} SOURCES ${benchmarks}
    INCLUDES "${PROJECT_SOURCE_DIR}/tests"  # support/
    LIBRARIES ${tawpipe_program_libraries} benchmark::benchmark tawpipe_warnings)
endif()
add_subdirectory("${PROJECT_SOURCE_DIR}/bench/peers" "${PROJECT_BINARY_DIR}/bench/peers")
