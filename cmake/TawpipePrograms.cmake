# Programs of one file each that share what they compile (bench/, bench/gpu/, tests/gpu/).
# Not: tests that doctest's main() runs (tests/CMakeLists.txt).

# tawpipe_add_programs(<all> FOLDER <where programs go> NAMES <name>... SOURCES <file>... LIBRARIES <library>...
#                      [INCLUDES <folder>...] [OPTIONS <option>...] [DEFINITIONS <definition>...])
# Target <name> is the program of the file in the same place. With CMAKE_UNITY_BUILD all are compiled as one file, target <all>:
# what they include, whatever `#if` it stands in, then each in a namespace of its own. Headers, and what these instantiate, are
# compiled once so.
function(tawpipe_add_programs all)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "FOLDER" "NAMES;SOURCES;LIBRARIES;INCLUDES;OPTIONS;DEFINITIONS")
  set(compiled ${arg_NAMES})
  set(sources ${arg_SOURCES})
  if(CMAKE_UNITY_BUILD)
    set(compiled ${all})
    set(sources "")
    set(includes "")
    set(bodies "")
    foreach(name source IN ZIP_LISTS arg_NAMES arg_SOURCES)
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${source}")
      file(STRINGS "${source}" of_source REGEX "^#include ")
      list(APPEND includes ${of_source})
      get_filename_component(folder "${source}" DIRECTORY)
      string(APPEND bodies "namespace program_${name} {\n#include \"${source}\"\n}\n"
        "int run_${name}(int count, char** words) { return run(program_${name}::main, count, words); }\n")
    endforeach()
    list(REMOVE_DUPLICATES includes)
    list(JOIN includes "\n" includes)
    file(CONFIGURE OUTPUT ${all}.cpp @ONLY CONTENT "@includes@
[[maybe_unused]] static int run(int (*program)(int, char**), int count, char** words) { return program(count, words); }
[[maybe_unused]] static int run(int (*program)(), int, char**) { return program(); }
@bodies@")
    add_library(${all} STATIC "${CMAKE_CURRENT_BINARY_DIR}/${all}.cpp")
    target_include_directories(${all} PRIVATE "${folder}")
    foreach(name IN LISTS arg_NAMES)
      file(CONFIGURE OUTPUT ${name}.cpp @ONLY CONTENT "int run_@name@(int count, char** words);
int main(int count, char** words) { return run_@name@(count, words); }\n")
      list(APPEND sources "${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp")
    endforeach()
  endif()
  foreach(name source IN ZIP_LISTS arg_NAMES sources)
    add_executable(${name} "${source}")
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${arg_FOLDER}")
    target_link_libraries(${name} PRIVATE $<TARGET_NAME_IF_EXISTS:${all}>)
  endforeach()
  foreach(target IN LISTS compiled)
    target_link_libraries(${target} PRIVATE ${arg_LIBRARIES})
    target_include_directories(${target} PRIVATE ${arg_INCLUDES})
    target_compile_options(${target} PRIVATE ${arg_OPTIONS})
    target_compile_definitions(${target} PRIVATE ${arg_DEFINITIONS})
  endforeach()
endfunction()
