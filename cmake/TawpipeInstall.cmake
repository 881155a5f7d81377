# Install rules: headers, the command and its modules, the CMake package and a pkg-config file for the base.
# Not: packages of them (TawpipePackages).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME development)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/tawpipe")

# One export file for each component, so that find_package(tawpipe) asks only for what its user takes.
get_property(libraries GLOBAL PROPERTY tawpipe_libraries)
foreach(library IN LISTS libraries)
  string(REPLACE "_" "-" file "${library}-targets")
  install(TARGETS ${library} EXPORT ${file} FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
  install(EXPORT ${file} NAMESPACE tawpipe:: DESTINATION "${package_dir}")
endforeach()
install(TARGETS tawpipe_compiled EXPORT tawpipe-compiled-targets ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(EXPORT tawpipe-compiled-targets NAMESPACE tawpipe:: DESTINATION "${package_dir}")
if(TARGET tawpipe_answers)
  install(TARGETS tawpipe_answers EXPORT tawpipe-answers-targets ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
    FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
  install(EXPORT tawpipe-answers-targets NAMESPACE tawpipe:: DESTINATION "${package_dir}")
endif()
if(TARGET tawpipe_cuda)
  get_property(libraries GLOBAL PROPERTY tawpipe_kernel_libraries)
  foreach(library IN LISTS libraries)
    string(REPLACE "_" "-" file "${library}-targets")
    install(TARGETS ${library} EXPORT ${file} ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
    install(EXPORT ${file} NAMESPACE tawpipe:: DESTINATION "${package_dir}")
  endforeach()
  install(FILES "${PROJECT_SOURCE_DIR}/cmake/FindNCCL.cmake" "${PROJECT_SOURCE_DIR}/cmake/FindCUDNN.cmake"
    DESTINATION "${package_dir}")
endif()
if(TARGET tawpipe_command)
  install(TARGETS tawpipe_command RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT command)
  find_package(Python3 3.11 QUIET COMPONENTS Interpreter)
  if(Python3_FOUND)  # completion and man pages are what the command says of itself
    install(CODE "execute_process(COMMAND \"${Python3_EXECUTABLE}\" \"${PROJECT_SOURCE_DIR}/tools/command_files.py\"
      \"$<TARGET_FILE:tawpipe_command>\" ${PROJECT_VERSION} \"${PROJECT_BINARY_DIR}/share\" COMMAND_ERROR_IS_FATAL ANY)"
      COMPONENT command)
    install(DIRECTORY "${PROJECT_BINARY_DIR}/share/" DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}" COMPONENT command)
  endif()
endif()
foreach(module IN ITEMS mpi cuda chakra)
  if(TARGET tawpipe_${module}_module)
    install(TARGETS tawpipe_${module}_module LIBRARY DESTINATION "${tawpipe_module_folder}" COMPONENT ${module})
  endif()
endforeach()

configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/tawpipe-config.cmake.in"
  "${PROJECT_BINARY_DIR}/tawpipe-config.cmake" INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/tawpipe-config-version.cmake"
  COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES "${PROJECT_BINARY_DIR}/tawpipe-config.cmake" "${PROJECT_BINARY_DIR}/tawpipe-config-version.cmake"
  DESTINATION "${package_dir}")

configure_file("${PROJECT_SOURCE_DIR}/cmake/tawpipe.pc.in" "${PROJECT_BINARY_DIR}/tawpipe.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/tawpipe.pc" DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/pkgconfig")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/doc/tawpipe")
