// cuDNN takes attention's graphs on an H100 and an A100 that are only described: needs libcuda (a
// stub will do), but no GPU.
// Not: their numbers (layers_products_test.cpp).
#include <dlfcn.h>

#include <cstdio>

#include "layers_support.hpp"
#include "tawpipe/layers/cuda/fused_attention.hpp"

using namespace gpu_test;

namespace {

constexpr const char* h100 =
    R"({"deviceName": "H100", "cudaDeviceId": 0, "deviceVer": 900, "driverVer": 13000,
"maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536, "multiProcessorCount": 132,
"warpSize": 32, "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448, "reservedSharedMemoryPerBlock": 1024,
"maxRegistersPerSM": 65536, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "pciDeviceId": 0,
"isTccDriver": 0, "supportCoopLaunch": 1, "smClockRateKHz": 1980000, "memClockRateKHz": 2619000, "memoryBusWidth": 5120, "l2CacheSize": 52428800,
"totalGlobalMem": 85000000000})";
constexpr const char* a100 =
    R"({"deviceName": "A100", "cudaDeviceId": 0, "deviceVer": 800, "driverVer": 13000,
"maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536, "multiProcessorCount": 108,
"warpSize": 32, "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 166912, "reservedSharedMemoryPerBlock": 1024,
"maxRegistersPerSM": 65536, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "pciDeviceId": 0,
"isTccDriver": 0, "supportCoopLaunch": 1, "smClockRateKHz": 1410000, "memClockRateKHz": 1593000, "memoryBusWidth": 5120, "l2CacheSize": 41943040,
"totalGlobalMem": 85000000000})";

}  // namespace

int main() {
  if (cudnnGetVersion() < 90800) {
    std::printf("skipped: cuDNN %zu cannot be asked about a device that is not there; 9.8 can\n", cudnnGetVersion());
    return gpu::skipped;
  }
  if (dlopen("libcuda.so.1", RTLD_NOW) == nullptr) {
    std::printf("skipped: no libcuda.so.1, which cuDNN's engines want before they look at a graph\n");
    return gpu::skipped;
  }
  gpu::Checks all;
  checks = &all;
  for (const char* device : {h100, a100}) {
    for (const tawpipe::Dtype dtype : {tawpipe::Dtype::bf16, tawpipe::Dtype::f16}) {
      const auto offered = [&](const cuda::HeadLayout& layout) {
        return static_cast<double>(cuda::FusedAttention::offered(layout, dtype, {.handle = nullptr, .device_json = device}));
      };
      for (const std::int64_t size : {32, 64, 128}) {
        for (const std::int64_t kv_heads : {8, 2}) {
          const double ways = offered({.sequence = 1024, .sequences = 2, .heads = 8, .kv_heads = kv_heads, .size = size});
          expect(ways > 0, "ways that engines offer", ways);
        }
      }
      for (const std::int64_t size : {192, 256}) {  // other devices are left to plain attention
        const double ways = offered({.sequence = 1024, .sequences = 2, .heads = 8, .kv_heads = 8, .size = size});
        expect((ways > 0) == (device == h100), "ways that engines offer for heads of 192 and 256", ways);
      }
      const double odd = offered({.sequence = 1024, .sequences = 1, .heads = 4, .kv_heads = 4, .size = 20});
      expect(odd == 0, "ways that engines offer for heads of 20", odd);
    }
  }
  return all.finish();
}
