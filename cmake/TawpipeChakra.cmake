# tawpipe::chakra: Chakra execution traces as bytes, by protobuf, where there is one; sets TAWPIPE_HAS_PROTOBUF.
# Not: what the traces mean (report/chakra_import.hpp, report/chakra_export.hpp), which needs no protobuf.
set(TAWPIPE_HAS_PROTOBUF OFF)
set(tawpipe_enable_chakra_default OFF)
if(PROJECT_IS_TOP_LEVEL)
  set(tawpipe_enable_chakra_default AUTO)
endif()
set(TAWPIPE_ENABLE_CHAKRA ${tawpipe_enable_chakra_default} CACHE STRING
  "Chakra traces: AUTO (when protobuf is found; the default of tawpipe by itself), ON (it must be), OFF (the default elsewhere)")
set_property(CACHE TAWPIPE_ENABLE_CHAKRA PROPERTY STRINGS AUTO ON OFF)
if(TAWPIPE_ENABLE_CHAKRA STREQUAL "AUTO" OR TAWPIPE_ENABLE_CHAKRA)
  find_package(Protobuf 3.12 QUIET)
  if(Protobuf_FOUND AND TARGET protobuf::libprotobuf-lite AND TARGET protobuf::protoc)
    set(TAWPIPE_HAS_PROTOBUF ON)
    message(STATUS "tawpipe: protobuf ${Protobuf_VERSION} found")
  elseif(NOT TAWPIPE_ENABLE_CHAKRA STREQUAL "AUTO")
    message(FATAL_ERROR "tawpipe: no protobuf, and TAWPIPE_ENABLE_CHAKRA is ${TAWPIPE_ENABLE_CHAKRA}")
  endif()
endif()
if(NOT TAWPIPE_HAS_PROTOBUF)
  message(STATUS "tawpipe: no protobuf; Chakra traces are left out (on Debian: libprotobuf-dev protobuf-compiler)")
  return()
endif()

set(tawpipe_chakra_folder "${PROJECT_BINARY_DIR}/chakra")
file(MAKE_DIRECTORY "${tawpipe_chakra_folder}")
add_custom_command(OUTPUT "${tawpipe_chakra_folder}/trace.pb.cc" "${tawpipe_chakra_folder}/trace.pb.h"
  DEPENDS "${PROJECT_SOURCE_DIR}/src/chakra/trace.proto"
  COMMAND protobuf::protoc "--cpp_out=${tawpipe_chakra_folder}" "-I${PROJECT_SOURCE_DIR}/src/chakra" trace.proto VERBATIM)
# What protobuf generates is compiled without our warnings.
add_library(tawpipe_chakra_messages OBJECT EXCLUDE_FROM_ALL "${tawpipe_chakra_folder}/trace.pb.cc")
target_link_libraries(tawpipe_chakra_messages PUBLIC protobuf::libprotobuf-lite)
target_include_directories(tawpipe_chakra_messages SYSTEM PUBLIC "${tawpipe_chakra_folder}")
add_library(tawpipe_chakra STATIC EXCLUDE_FROM_ALL src/chakra/trace.cpp $<TARGET_OBJECTS:tawpipe_chakra_messages>)
add_library(tawpipe::chakra ALIAS tawpipe_chakra)
set_target_properties(tawpipe_chakra tawpipe_chakra_messages PROPERTIES POSITION_INDEPENDENT_CODE ON UNITY_BUILD OFF)
target_include_directories(tawpipe_chakra SYSTEM PRIVATE "${tawpipe_chakra_folder}")
target_link_libraries(tawpipe_chakra PUBLIC tawpipe PRIVATE protobuf::libprotobuf-lite tawpipe_warnings)
add_dependencies(tawpipe_chakra tawpipe_chakra_messages)
