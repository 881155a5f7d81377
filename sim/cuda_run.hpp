// A run on GPUs as the commands see it, whatever its numbers and executor: one file alone compiles those (cuda_run.cpp).
// Not: runs on CPUs (execution.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "execution_model.hpp"
#include "execution_request.hpp"
#include "tawpipe/backend/layer_compute.hpp"
#include "tawpipe/execute/executor.hpp"

namespace tawpipe::sim {

/// A rank of a run, an ExecutorRank.
class CudaRank {
 public:
  using Moments = std::function<void(const ParameterRange&, std::span<float>, std::span<float>)>;
  using SeenMoments = std::function<void(const ParameterRange&, std::span<const float>, std::span<const float>)>;

  virtual ~CudaRank() = default;
  virtual Rank rank() const = 0;
  virtual void set_weights(const std::function<void(const ParameterRange&, Dtype, std::span<std::byte>)>& fill) = 0;
  virtual void read_weights(const std::function<void(const ParameterRange&, Dtype, std::span<const std::byte>)>& visit) = 0;
  virtual void set_moments(const Moments& fill) = 0;
  virtual void read_moments(const SeenMoments& visit) = 0;
};

/// An Executor. Moments and gradients are given and taken in float32, whatever is computed in.
class CudaRun {
 public:
  using Number = float;
  using Fetch = std::function<void(std::int64_t, std::int32_t, std::span<std::int32_t>, std::span<std::int32_t>)>;

  virtual ~CudaRun() = default;
  virtual const Schedule& schedule() const = 0;
  virtual bool is_root() const = 0;
  /// Brings what each process knows to the root. @param known  [values] whether the number is right here
  virtual void gather(std::span<float> values, std::span<const char> known) = 0;
  /// Of a rank over NCCL; none: all ranks are on one GPU.
  struct GpuMemory {
    std::int64_t allocated;      ///< bytes, by the executor
    std::int64_t communicators;  ///< of this rank
    std::int64_t free_before;    ///< bytes, before they connect
    std::int64_t free_after;     ///< bytes, after
  };
  virtual std::optional<GpuMemory> gpu_memory() const = 0;
  /// Shows each rank of this process.
  virtual void for_each_rank(const std::function<void(CudaRank&)>& visit) = 0;

  /// @param observe  sees the gradients that this process's updates use
  template <MicrobatchTokens Source>
  IterationResult run(const Source& source, const Iteration& args, const GradientObserver<float>& observe = {}) {
    return iterate([&](std::int64_t step, std::int32_t microbatch, std::span<std::int32_t> tokens,
                       std::span<std::int32_t> targets) { source.fetch(step, microbatch, tokens, targets); },
                   args, observe);
  }

 private:
  virtual IterationResult iterate(const Fetch& fetch, const Iteration& args, const GradientObserver<float>& observe) = 0;
};

static_assert(Executor<CudaRun> && ExecutorRank<CudaRank, float>);

/// Calls `use` with a run on the GPU that the launcher gave this process. Where no launcher started it: with one for each GPU, at
/// the same time in a thread each, or with all ranks on one GPU (gpus_without_launcher).
/// @param use  sees `is_root()` in one of its calls; what it writes is written there
/// @return what `use` returns for the root. @throws DeviceError  if there is no GPU.
int with_cuda_run(const ExecutionRequest& request, ExecutionModel model, const std::function<int(CudaRun&)>& use);

}  // namespace tawpipe::sim
