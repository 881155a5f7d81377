// A type-erased executor for the commands: each kind is compiled in one file, and the commands once
// for each number type.
// Not: an executor, nor the work it executes (execution_model.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <type_traits>

#include "tawpipe/backend/layer_compute.hpp"
#include "tawpipe/execute/executor.hpp"

namespace tawpipe::sim {

/// A rank of a run, an ExecutorRank.
template <class Number>
class AnyRank {
 public:
  using FillWeights = std::function<void(const ParameterRange&, Dtype, std::span<std::byte>)>;
  using SeeWeights = std::function<void(const ParameterRange&, Dtype, std::span<const std::byte>)>;
  using FillMoments = std::function<void(const ParameterRange&, std::span<Number>, std::span<Number>)>;
  using SeeMoments = std::function<void(const ParameterRange&, std::span<const Number>, std::span<const Number>)>;

  virtual ~AnyRank() = default;
  virtual Rank rank() const = 0;
  virtual void set_weights(const FillWeights& fill) = 0;
  virtual void read_weights(const SeeWeights& visit) = 0;
  virtual void set_moments(const FillMoments& fill) = 0;
  virtual void read_moments(const SeeMoments& visit) = 0;
};

/// An Executor. Moments and gradients are passed as `T`, whatever type is computed in.
template <class T>
class AnyExecutor {
 public:
  using Number = T;
  using Fetch = std::function<void(std::int64_t, std::int32_t, std::span<std::int32_t>, std::span<std::int32_t>)>;

  virtual ~AnyExecutor() = default;
  virtual const Schedule& schedule() const = 0;
  virtual bool is_root() const = 0;
  /// Combines the values that each process knows on the root. @param known  [values] whether the
  /// value is right here
  virtual void gather(std::span<T> values, std::span<const char> known) = 0;
  /// Of a rank over NCCL, or of all virtual ranks together, which have no communicators.
  struct GpuMemory {
    std::int64_t allocated;      ///< bytes, by the executor
    std::int64_t communicators;  ///< of this rank
    std::int64_t free_before;    ///< bytes, before they connect
    std::int64_t free_after;     ///< bytes, after
  };
  virtual std::optional<GpuMemory> gpu_memory() const { return std::nullopt; }
  /// All-gathers of this rank in an iteration, where --zero-cta was given; otherwise none.
  struct Gathers {
    std::int64_t all;
    std::int64_t in_windows;  ///< of these: they can do without SMs
  };
  virtual std::optional<Gathers> gathers() const { return std::nullopt; }
  /// Visits each rank of this process.
  virtual void for_each_rank(const std::function<void(AnyRank<T>&)>& visit) = 0;

  /// @param observe  called with the gradients that this process's updates use
  template <MicrobatchTokens Source>
  IterationResult run(const Source& source, const Iteration& args, const GradientObserver<T>& observe = {}) {
    return iterate([&](std::int64_t step, std::int32_t microbatch, std::span<std::int32_t> tokens,
                       std::span<std::int32_t> targets) { source.fetch(step, microbatch, tokens, targets); },
                   args, observe);
  }

 private:
  virtual IterationResult iterate(const Fetch& fetch, const Iteration& args, const GradientObserver<T>& observe) = 0;
};

static_assert(Executor<AnyExecutor<float>> && ExecutorRank<AnyRank<float>, float>);

/// A source of microbatches from a function.
template <class T>
struct Fetching {
  const typename AnyExecutor<T>::Fetch& call;
  void fetch(std::int64_t step, std::int32_t microbatch, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const {
    call(step, microbatch, tokens, targets);
  }
};

/// The part of AnyExecutor that is the same for all kinds.
template <class T, class E>
class ExecutorBase : public AnyExecutor<T> {
 public:
  explicit ExecutorBase(E& executor) : executor_{executor} {}

  const Schedule& schedule() const override { return executor_.schedule(); }
  bool is_root() const override { return executor_.is_root(); }
  void gather(std::span<T> values, std::span<const char> known) override {
    if constexpr (requires { executor_.gather(values, known); }) executor_.gather(values, known);
  }
  void for_each_rank(const std::function<void(AnyRank<T>&)>& visit) override {
    executor_.for_each_rank([&](auto& rank) {
      RankBy<std::remove_reference_t<decltype(rank)>> one{rank};
      visit(one);
    });
  }

 protected:
  E& executor() { return executor_; }
  const E& executor() const { return executor_; }

 private:
  template <class R>
  class RankBy final : public AnyRank<T> {
   public:
    explicit RankBy(R& rank) : rank_{rank} {}
    Rank rank() const override { return rank_.rank(); }
    void set_weights(const typename AnyRank<T>::FillWeights& fill) override { rank_.set_weights(fill); }
    void read_weights(const typename AnyRank<T>::SeeWeights& visit) override { rank_.read_weights(visit); }
    void set_moments(const typename AnyRank<T>::FillMoments& fill) override { rank_.set_moments(fill); }
    void read_moments(const typename AnyRank<T>::SeeMoments& visit) override { rank_.read_moments(visit); }

   private:
    R& rank_;
  };

  E& executor_;
};

/// `E` as an AnyExecutor.
template <class T, class E>
class ExecutorBy final : public ExecutorBase<T, E> {
 public:
  using ExecutorBase<T, E>::ExecutorBase;

 private:
  IterationResult iterate(const typename AnyExecutor<T>::Fetch& fetch, const Iteration& args,
                          const GradientObserver<T>& observe) override {
    return this->executor().run(Fetching<T>{fetch}, args, observe);
  }
};

}  // namespace tawpipe::sim
