# Looks for CUDA, NCCL and cuDNN and sets TAWPIPE_HAS_CUDA; tawpipe_add_cuda_kernels() compiles device code.
# Not: a GPU, which nothing here needs.
set(TAWPIPE_HAS_CUDA OFF)
if(TAWPIPE_ENABLE_CUDA STREQUAL "AUTO" OR TAWPIPE_ENABLE_CUDA)
  find_package(CUDAToolkit 12 QUIET)
  find_package(NCCL 2.18 QUIET)  # ncclCommSplit
  find_package(CUDNN 9 QUIET)
  if(NOT CUDAToolkit_FOUND)
    set(tawpipe_cuda_reason "no CUDA toolkit (12 or later)")
  elseif(NOT NCCL_FOUND)
    set(tawpipe_cuda_reason "CUDA ${CUDAToolkit_VERSION} found, but no NCCL (2.18 or later: nccl.h and libnccl)")
  elseif(NOT CUDNN_FOUND)
    set(tawpipe_cuda_reason "CUDA ${CUDAToolkit_VERSION} found, but no cuDNN (9 or later: cudnn.h and libcudnn)")
  else()
    if(NOT DEFINED CMAKE_CUDA_COMPILER)
      set(CMAKE_CUDA_COMPILER "${CUDAToolkit_NVCC_EXECUTABLE}")
    endif()
    if(NOT DEFINED CMAKE_CUDA_HOST_COMPILER)
      set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}")
    endif()
    set(tawpipe_architectures "${CMAKE_CUDA_ARCHITECTURES}")  # the user's, if given
    set(CMAKE_CUDA_ARCHITECTURES OFF)  # nvcc tries itself out with its own default; ours are set below
    enable_language(CUDA)
    set(CMAKE_CUDA_ARCHITECTURES "${tawpipe_architectures}")
    if(NOT TARGET CUDA::cublasLt)  # a toolkit without it, beside PyTorch's package of it
      find_library(TAWPIPE_CUBLASLT NAMES libcublasLt.so.${CUDAToolkit_VERSION_MAJOR} REQUIRED)
      find_path(TAWPIPE_CUBLASLT_INCLUDE cublasLt.h REQUIRED)
      mark_as_advanced(TAWPIPE_CUBLASLT TAWPIPE_CUBLASLT_INCLUDE)
      add_library(CUDA::cublasLt UNKNOWN IMPORTED)
      set_target_properties(CUDA::cublasLt PROPERTIES IMPORTED_LOCATION "${TAWPIPE_CUBLASLT}"
        INTERFACE_INCLUDE_DIRECTORIES "${TAWPIPE_CUBLASLT_INCLUDE}")
    endif()
    set(TAWPIPE_HAS_CUDA ON)
  endif()
else()
  set(tawpipe_cuda_reason "TAWPIPE_ENABLE_CUDA is OFF")
endif()
if(NOT TAWPIPE_HAS_CUDA)
  if(TAWPIPE_ENABLE_CUDA AND NOT TAWPIPE_ENABLE_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "tawpipe: ${tawpipe_cuda_reason}, and TAWPIPE_ENABLE_CUDA is ${TAWPIPE_ENABLE_CUDA}")
  endif()
  message(STATUS "tawpipe: ${tawpipe_cuda_reason}; tawpipe::cuda and tawpipe::cuda_layers are left out")
  return()
endif()

# A100, H100 and, where nvcc knows it, B200; the last as PTX, too, for GPUs to come.
execute_process(COMMAND "${CMAKE_CUDA_COMPILER}" --list-gpu-arch OUTPUT_VARIABLE tawpipe_nvcc_knows ERROR_QUIET)
if(NOT tawpipe_architectures AND tawpipe_nvcc_knows MATCHES "compute_100")
  set(tawpipe_architectures 80-real 90-real 100)
elseif(NOT tawpipe_architectures)
  set(tawpipe_architectures 80-real 90)
endif()
set(TAWPIPE_CUDA_ARCHITECTURES "${tawpipe_architectures}" CACHE STRING "Which GPUs device code is compiled for")
list(JOIN TAWPIPE_CUDA_ARCHITECTURES " " tawpipe_architectures)
message(STATUS "tawpipe: CUDA ${CUDAToolkit_VERSION} found, NCCL ${NCCL_VERSION} found, cuDNN ${CUDNN_VERSION} found; "
  "device code for ${tawpipe_architectures}")

# tawpipe_add_cuda_kernels(<target> <export name> <source>...): a library of the device code that a header-only target needs.
# CMake 3.25 does not know C++20 for CUDA, so the flag is given by hand; the runtime is the shared one, of which there is one a
# process.
function(tawpipe_add_cuda_kernels target export_name)
  add_library(${target} STATIC ${ARGN})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${export_name} CUDA_ARCHITECTURES "${TAWPIPE_CUDA_ARCHITECTURES}"
    CUDA_RUNTIME_LIBRARY Shared POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${target} PRIVATE -std=c++20 $<$<BOOL:${TAWPIPE_WARNINGS_AS_ERRORS}>:-Werror=all-warnings>)
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/include" ${CUDAToolkit_INCLUDE_DIRS} ${NCCL_INCLUDE_DIR})
  target_link_libraries(${target} PUBLIC CUDA::cudart)
  if(NOT TAWPIPE_INSTALL)
    set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)  # compiled for who links it
  endif()
  set_property(GLOBAL APPEND PROPERTY tawpipe_kernel_libraries ${target})
endfunction()
