// Devices and errors of the software GPU, in place of libcudart's: SOFTWARE_GPUS of them (1), each
// with SOFTWARE_GPU_MEMORY bytes (8 GiB).
// Not: what is done on them (cudart.cpp).
#include <atomic>
#include <cstdio>
#include <utility>

#include "software_gpu/device.hpp"

namespace software_gpu {

namespace {

thread_local int device_of_thread = 0;
thread_local cudaError_t last_error = cudaSuccess;
std::atomic<cudaError_t> sticky = cudaSuccess;

int devices() { return static_cast<int>(setting("SOFTWARE_GPUS", 1)); }

}  // namespace

std::size_t memory_of_device() { return static_cast<std::size_t>(setting("SOFTWARE_GPU_MEMORY", std::int64_t{8} << 30)); }
int current_device() { return device_of_thread; }
cudaError_t fail(cudaError_t error) {
  last_error = error;
  return error;
}
void fault(cudaError_t error) { sticky = error; }
cudaError_t broken() { return sticky; }

}  // namespace software_gpu

using namespace software_gpu;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = devices();
  return *count > 0 ? cudaSuccess : fail(cudaErrorNoDevice);
}
cudaError_t cudaGetDevice(int* device) {
  *device = device_of_thread;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= devices()) return fail(cudaErrorInvalidDevice);
  device_of_thread = device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= devices()) return fail(cudaErrorInvalidDevice);
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "software GPU");
  properties->totalGlobalMem = memory_of_device();
  properties->multiProcessorCount = static_cast<int>(setting("SOFTWARE_GPU_SMS", 132));
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device) {
  if (device < 0 || device >= devices()) return fail(cudaErrorInvalidDevice);
  std::snprintf(text, static_cast<std::size_t>(size), "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return std::exchange(last_error, broken()); }
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    default:
      return "an error of the software GPU";
  }
}
const char* cudaGetErrorString(cudaError_t error) {
  static thread_local char text[64];
  if (error == cudaErrorMemoryAllocation) return "out of memory";
  if (error == cudaErrorNoDevice) return "no CUDA-capable device is detected";
  std::snprintf(text, sizeof text, "error %d, see driver_types.h", static_cast<int>(error));
  return text;
}

}  // extern "C"
