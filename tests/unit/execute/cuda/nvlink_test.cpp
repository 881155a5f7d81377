// This program plays NVML itself: four GPUs, of which the first and the last two reach each other;
// the third cannot be asked.
#include "tawpipe/execute/cuda/nvlink.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

using namespace tawpipe;

namespace {

int gpus[4];       // their addresses are the handles
int sessions = 0;  // that are open

int number_of(void* gpu) { return static_cast<int>(static_cast<int*>(gpu) - gpus); }

}  // namespace

extern "C" {
int nvmlInit_v2() { return ++sessions, 0; }
int nvmlShutdown() { return --sessions, 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { return *count = 4, 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** gpu) {
  if (index == 2) return 4;  // NVML_ERROR_NO_PERMISSION
  *gpu = &gpus[index];
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** gpu) {
  if (std::strcmp(bus, "0000:1B:00.0") != 0) return 6;  // NVML_ERROR_NOT_FOUND
  *gpu = &gpus[1];
  return 0;
}
int nvmlDeviceGetUUID(void* gpu, char* text, unsigned length) {
  const std::string name = concat("GPU-", number_of(gpu));
  if (length <= name.size()) return 7;  // NVML_ERROR_INSUFFICIENT_SIZE
  std::strcpy(text, name.c_str());
  return 0;
}
int nvmlDeviceGetP2PStatus(void* a, void* b, int index, int* status) {
  *status = index == 2 && number_of(a) / 2 == number_of(b) / 2 ? 0 : 4;  // OK, or NOT_SUPPORTED
  return 0;
}
}

TEST_CASE("NVML tells which GPUs one reaches by NVLink") {
  cuda::GpuPlace place{"a", {}, {}};
  cuda::find_nvlink("0000:1B:00.0", place, nullptr);
  CHECK(place == cuda::GpuPlace{"a", "GPU-1", {"GPU-0"}});
  CHECK(sessions == 0);
}

TEST_CASE("without NVML, or for a GPU that it does not know, nothing is known") {
  cuda::GpuPlace place{"a", {}, {}};
  cuda::find_nvlink("0000:1B:00.0", place, "libthere-is-no-such-library.so");
  CHECK(place == cuda::GpuPlace{"a", {}, {}});
  cuda::find_nvlink("0000:ff:00.0", place, nullptr);
  CHECK(place == cuda::GpuPlace{"a", {}, {}});
  CHECK(sessions == 0);
}
