// How nvcc's code registers and launches kernels: the functions behind `kernel<<<...>>>(...)`, in
// place of libcudart's.
// Not: what kernels compute (kernels.cpp). Source: crt/host_runtime.h and crt/device_functions.h of
// the toolkit.
#include <cuda_runtime_api.h>
#include <cxxabi.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "software_gpu/device.hpp"
#include "software_gpu/inside.hpp"
#include "software_gpu/kernels.hpp"

namespace software_gpu {

namespace {

/// Names by the addresses of the functions that stand for kernels on the host.
std::map<const void*, std::string>& kernel_names() {
  static auto* const names = new std::map<const void*, std::string>;
  return *names;
}

/// Bytes of shared memory that kernels have been given leave to ask for.
std::map<const void*, std::size_t>& shared_of_kernels() {
  static auto* const shared = new std::map<const void*, std::size_t>;
  return *shared;
}

thread_local Launch configured{};
thread_local cudaStream_t configured_stream = nullptr;

std::string demangled(const char* name) {
  int status = 0;
  char* const text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string result = status == 0 ? text : name;
  std::free(text);
  return result;
}

cudaError_t launch(const void* kernel, const Launch& launch, cudaStream_t stream) {
  const auto asked = shared_of_kernels().find(kernel);
  const std::size_t max_shared = std::max<std::size_t>(48 * 1024, asked == shared_of_kernels().end() ? 0 : asked->second);
  if (stream_of(stream).device() != current_device()) return fail(cudaErrorInvalidResourceHandle);
  if (launch.grid.x == 0 || launch.grid.y == 0 || launch.grid.y > 65535 || launch.grid.z != 1 || launch.block.x == 0 ||
      launch.block.x > 1024 || launch.shared > max_shared) {
    return fail(cudaErrorInvalidConfiguration);
  }
  const auto name = kernel_names().find(kernel);
  if (name == kernel_names().end()) return fail(cudaErrorInvalidDeviceFunction);
  Work work = kernel_work(name->second, launch);
  if (!work) {
    std::fprintf(stderr, "the software GPU has no kernel %s\n", name->second.c_str());
    return fail(cudaErrorInvalidDeviceFunction);
  }
  return put(stream, [work = std::move(work), device = current_device(), blocks = static_cast<int>(launch.grid.x)] {
    const int processors = software_gpu_take_processors(device, blocks, 0);
    work();
    software_gpu_give_processors(device, processors);
  });
}

}  // namespace

}  // namespace software_gpu

using namespace software_gpu;

extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*, int*) {
  kernel_names()[host] = demangled(name);
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, cudaStream_t stream) {
  configured = {grid, block, shared, nullptr};
  configured_stream = stream;
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
  *grid = configured.grid;
  *block = configured.block;
  *shared = configured.shared;
  *static_cast<cudaStream_t*>(stream) = configured_stream;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0) return fail(cudaErrorInvalidValue);
  shared_of_kernels()[kernel] = static_cast<std::size_t>(value);
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(host));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                               cudaStream_t stream) {
  return launch(kernel, {grid, block, shared, arguments}, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** arguments) {
  if (config->numAttrs != 0) return fail(cudaErrorNotSupported);
  return launch(kernel, {config->gridDim, config->blockDim, config->dynamicSmemBytes, arguments}, config->stream);
}
/// What the code of CUDA 12's nvcc calls.
cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                             cudaStream_t stream) {
  return launch(kernel, {grid, block, shared, arguments}, stream);
}

}  // extern "C"
