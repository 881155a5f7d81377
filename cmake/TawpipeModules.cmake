# The command's modules tawpipe-mpi, tawpipe-cuda and tawpipe-chakra: what needs libraries that a machine may lack. The command loads them when a run
# asks for them, and gives them its own functions.
# Not: targets for others (tawpipe::mpi, tawpipe::cuda).
include(GNUInstallDirs)
set(tawpipe_module_folder "${CMAKE_INSTALL_LIBDIR}/tawpipe")
file(RELATIVE_PATH folder_from_command "/${CMAKE_INSTALL_BINDIR}" "/${tawpipe_module_folder}")
target_compile_definitions(tawpipe_command PRIVATE "TAWPIPE_MODULE_FOLDER=\"${folder_from_command}\"")
set_target_properties(tawpipe_command PROPERTIES ENABLE_EXPORTS ON)
target_link_libraries(tawpipe_command PRIVATE ${CMAKE_DL_LIBS})

set(tawpipe_modules "")
# tawpipe_add_module(<name> <library>...): modules/<name>.cpp
function(tawpipe_add_module name)
  set(target tawpipe_${name}_module)
  add_library(${target} MODULE "${PROJECT_SOURCE_DIR}/sim/modules/${name}.cpp")
  set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME tawpipe-${name} INSTALL_RPATH_USE_LINK_PATH ON
    LIBRARY_OUTPUT_DIRECTORY "$<TARGET_FILE_DIR:tawpipe_command>")
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/sim")
  target_link_libraries(${target} PRIVATE tawpipe_command tawpipe_schedules tawpipe::host_layers Threads::Threads tawpipe_warnings ${ARGN})
  set(tawpipe_modules ${tawpipe_modules} ${target} PARENT_SCOPE)
endfunction()

if(TARGET tawpipe::host_layers AND TARGET tawpipe::mpi)
  tawpipe_add_module(mpi tawpipe::mpi)
endif()
if(TARGET tawpipe::host_layers AND TARGET tawpipe::cuda_layers)
  tawpipe_add_module(cuda tawpipe::cuda tawpipe::cuda_layers)
  target_sources(tawpipe_cuda_module PRIVATE "${PROJECT_SOURCE_DIR}/sim/modules/measure.cpp")
endif()
if(TARGET tawpipe::chakra)
  add_library(tawpipe_chakra_module MODULE "${PROJECT_SOURCE_DIR}/sim/modules/chakra.cpp")
  set_target_properties(tawpipe_chakra_module PROPERTIES PREFIX "" OUTPUT_NAME tawpipe-chakra
    LIBRARY_OUTPUT_DIRECTORY "$<TARGET_FILE_DIR:tawpipe_command>")
  target_include_directories(tawpipe_chakra_module PRIVATE "${PROJECT_SOURCE_DIR}/sim")
  target_link_libraries(tawpipe_chakra_module PRIVATE tawpipe::chakra tawpipe_schedules tawpipe::report tawpipe::graph tawpipe_warnings)
  list(APPEND tawpipe_modules tawpipe_chakra_module)
endif()
add_custom_target(tawpipe_program DEPENDS tawpipe_command ${tawpipe_modules})  # the command with all that it can load
