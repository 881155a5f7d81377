# Builds the consumer beside this file: -Dmode=installed (install to a temporary prefix, find_package) or
# -Dmode=subdirectory (add_subdirectory), with -Dsource, -Dbinary, -Dwork (emptied first), -Dgenerator, -Dcompiler.
# Not: a test of what the library does.
function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "${command}\nended with ${result}:\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE "${work}")
set(consumer "${CMAKE_CURRENT_LIST_DIR}/consumer")
set(common -G "${generator}" "-DCMAKE_CXX_COMPILER=${compiler}" -S "${consumer}")

if(mode STREQUAL "subdirectory")
  # Who asks for the base alone compiles nothing of ours, and needs no compiler of device code.
  run(${CMAKE_COMMAND} ${common} -B "${work}/base" "-DTAWPIPE_SOURCE=${source}" -DBASE_ONLY=ON)
  run(${CMAKE_COMMAND} --build "${work}/base")
  run("${work}/base/consumer")
  file(GLOB_RECURSE compiled "${work}/base/tawpipe/*.o" "${work}/base/tawpipe/*.a")
  if(compiled)
    message(FATAL_ERROR "tawpipe::tawpipe alone must compile nothing, but compiled ${compiled}")
  endif()
  file(STRINGS "${work}/base/CMakeCache.txt" device_compiler REGEX "^CMAKE_CUDA_COMPILER:")
  if(device_compiler)
    message(FATAL_ERROR "tawpipe::tawpipe alone must look for no nvcc, but found ${device_compiler}")
  endif()
  run(${CMAKE_COMMAND} ${common} -B "${work}/build" "-DTAWPIPE_SOURCE=${source}" -DTAWPIPE_ENABLE_CUDA=AUTO
    -DTAWPIPE_CUDA_ARCHITECTURES=80-virtual)  # one kind of GPU compiles in a third of the time
  run(${CMAKE_COMMAND} --build "${work}/build")
  run("${work}/build/consumer")
else()
  run(${CMAKE_COMMAND} --install "${binary}" --prefix "${work}/prefix")
  # The base alone must look for no third party.
  run(${CMAKE_COMMAND} ${common} -B "${work}/base" "-DCMAKE_PREFIX_PATH=${work}/prefix" -DBASE_ONLY=ON
    -DCMAKE_DISABLE_FIND_PACKAGE_Boost=ON -DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON
    -DCMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON -DCMAKE_DISABLE_FIND_PACKAGE_pugixml=ON
    -DCMAKE_DISABLE_FIND_PACKAGE_yaml-cpp=ON)
  run(${CMAKE_COMMAND} --build "${work}/base")
  run("${work}/base/consumer")
  run(${CMAKE_COMMAND} ${common} -B "${work}/all" "-DCMAKE_PREFIX_PATH=${work}/prefix")
  run(${CMAKE_COMMAND} --build "${work}/all")
  run("${work}/all/consumer")
  run("${work}/all/answers_consumer")

  # A program with a signal handler of its own, which outlives a failing rank.
  file(GLOB archive "${work}/prefix/lib*/libtawpipe_compiled.a" "${work}/prefix/lib/*/libtawpipe_compiled.a")
  run("${compiler}" -std=c++20 -DTAWPIPE_COMPILED "-I${work}/prefix/include" "${CMAKE_CURRENT_LIST_DIR}/survivor.cpp" ${archive}
    -pthread -o "${work}/survivor")
  run("${work}/survivor")

  # Two versions in one program: the other's inline namespace has another name.
  file(COPY "${work}/prefix/include/tawpipe" DESTINATION "${work}/other")
  file(GLOB_RECURSE headers "${work}/other/*.hpp")
  foreach(header IN LISTS headers)
    file(READ "${header}" text)
    string(REPLACE "tawpipe::inline v0" "tawpipe::inline v1" text "${text}")
    file(WRITE "${header}" "${text}")
  endforeach()
  set(two_versions "${CMAKE_CURRENT_LIST_DIR}/two_versions.cpp")
  run("${compiler}" -std=c++20 "-I${work}/prefix/include" -c "${two_versions}" -o "${work}/one.o")
  run("${compiler}" -std=c++20 "-I${work}/other" -DOTHER_VERSION -c "${two_versions}" -o "${work}/two.o")
  run("${compiler}" "${work}/one.o" "${work}/two.o" -o "${work}/two_versions")
  run("${work}/two_versions")

  # The compiled library: files that use it hold no function of it, and files that do not cannot be linked with them.
  set(mixed "${compiler}" -std=c++20 "-I${work}/prefix/include" -c "${CMAKE_CURRENT_LIST_DIR}/mixed.cpp")
  run(${mixed} -o "${work}/header_only.o")
  run(${mixed} -DTAWPIPE_COMPILED -o "${work}/compiled.o")
  run(${mixed} -DTAWPIPE_COMPILED -DOTHER_FILE -o "${work}/compiled_other.o")
  file(SIZE "${work}/header_only.o" size_alone)
  file(SIZE "${work}/compiled.o" size_compiled)
  if(NOT size_compiled LESS size_alone)
    message(FATAL_ERROR "a file that uses the compiled library holds ${size_compiled} bytes, one that does not ${size_alone}")
  endif()
  run("${compiler}" "${work}/compiled.o" "${work}/compiled_other.o" ${archive} -o "${work}/both_compiled")
  run("${work}/both_compiled")
  execute_process(COMMAND "${compiler}" "${work}/header_only.o" "${work}/compiled_other.o" ${archive} -o "${work}/mixed"
    RESULT_VARIABLE result OUTPUT_VARIABLE words ERROR_VARIABLE words)
  if(result EQUAL 0 OR NOT words MATCHES "all_files_of_a_program_link_tawpipe_compiled_or_none")
    message(FATAL_ERROR "files with and without the compiled library must not link, with a name that says so, but:\n${words}")
  endif()

  find_program(pkg_config pkg-config)
  if(pkg_config)
    set(ENV{PKG_CONFIG_PATH} "${work}/prefix/share/pkgconfig")
    execute_process(COMMAND "${pkg_config}" --cflags tawpipe OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE
      COMMAND_ERROR_IS_FATAL ANY)
    separate_arguments(flags)
    file(WRITE "${work}/named.cpp" "#include <tawpipe/core/version.hpp>\n")
    run("${compiler}" ${flags} -fsyntax-only "${work}/named.cpp")
  endif()
endif()
file(REMOVE_RECURSE "${work}")
