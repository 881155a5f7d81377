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
foreach(source IN LISTS benchmarks)
  get_filename_component(name "${source}" NAME_WE)
  add_executable(bench_${name} "${source}")
  set_target_properties(bench_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bench")
  target_include_directories(bench_${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests")  # support/
  target_link_libraries(bench_${name} PRIVATE ${tawpipe_program_libraries} benchmark::benchmark tawpipe_warnings)
endforeach()
add_subdirectory("${PROJECT_SOURCE_DIR}/bench/peers" "${PROJECT_BINARY_DIR}/bench/peers")
