// Which GPUs of this machine can reach each other by NVLink, according to NVML, which comes with
// the driver and is loaded if present.
// Not: the groups that follow (gpu_places.hpp).
#pragma once

#include <dlfcn.h>

#include <array>
#include <string>

#include "tawpipe/execute/cuda/gpu_places.hpp"

namespace tawpipe::inline v0::cuda {

namespace detail {

/// The library, loaded by name: its header is not needed to build, nor the library to run.
class Nvml {
 public:
  using Gpu = void*;  ///< nvmlDevice_t

  explicit Nvml(const char* file) : library_{::dlopen(file, RTLD_NOW | RTLD_LOCAL)} { ready_ = call("nvmlInit_v2"); }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml() {
    if (ready_) call("nvmlShutdown");
    if (library_ != nullptr) ::dlclose(library_);
  }

  bool ready() const { return ready_; }
  /// Arguments have the function's own types; its enumerations are int. @return whether the
  /// function exists and succeeds
  template <class... Arguments>
  bool call(const char* function, Arguments... arguments) const {
    if (library_ == nullptr) return false;
    const auto found = reinterpret_cast<int (*)(Arguments...)>(::dlsym(library_, function));
    return found != nullptr && found(arguments...) == 0;
  }
  /// Its UUID; empty if there is none.
  std::string name(Gpu gpu) const {
    std::array<char, 96> text{};  // NVML_DEVICE_UUID_V2_BUFFER_SIZE
    return call("nvmlDeviceGetUUID", gpu, text.data(), static_cast<unsigned>(text.size())) ? text.data() : "";
  }

 private:
  void* library_;
  bool ready_ = false;
};

}  // namespace detail

/// Fills `place.gpu` and `place.reaches` for the GPU at a PCI bus id; leaves them empty if NVML
/// does not tell. Other GPUs that this process must not see (a container's or Slurm's limits) are
/// not among those reached.
/// @param file  NVML's; null: this program itself
/// Source: nvmlDeviceGetP2PStatus with NVML_P2P_CAPS_INDEX_NVLINK, as printed by
/// `nvidia-smi topo -p2p n`.
inline void find_nvlink(const std::string& bus, GpuPlace& place, const char* file = "libnvidia-ml.so.1") {
  constexpr int by_nvlink = 2;
  const detail::Nvml nvml{file};
  detail::Nvml::Gpu own = nullptr;
  unsigned count = 0;
  if (!nvml.ready() || !nvml.call("nvmlDeviceGetHandleByPciBusId_v2", bus.c_str(), &own)) return;
  place.gpu = nvml.name(own);
  if (!nvml.call("nvmlDeviceGetCount_v2", &count)) return;
  for (unsigned i = 0; i < count; ++i) {
    detail::Nvml::Gpu other = nullptr;
    int status = -1;
    if (!nvml.call("nvmlDeviceGetHandleByIndex_v2", i, &other) || nvml.name(other) == place.gpu) continue;
    if (nvml.call("nvmlDeviceGetP2PStatus", own, other, by_nvlink, &status) && status == 0) {
      place.reaches.push_back(nvml.name(other));
    }
  }
}

}  // namespace tawpipe::cuda
