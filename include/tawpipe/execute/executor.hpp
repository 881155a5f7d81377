// The concept that all executors model, and functions for any of them.
// Not: an executor (execute/host/executor.hpp, execute/mpi/executor.hpp,
// execute/cuda/nccl_executor.hpp, virtual_executor.hpp).
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/half.hpp"
#include "tawpipe/execute/iteration.hpp"
#include "tawpipe/model/dtype.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// Minimal arguments for the concepts' functions.
struct NoTokens {
  void fetch(std::int64_t, std::int32_t, std::span<std::int32_t>, std::span<std::int32_t>) const {}
};
struct AnyWeights {
  void operator()(const ParameterRange&, Dtype, std::span<std::byte>) const {}
};
struct SeenWeights {
  void operator()(const ParameterRange&, Dtype, std::span<const std::byte>) const {}
};
template <class Number>
struct AnyMoments {
  void operator()(const ParameterRange&, std::span<Number>, std::span<Number>) const {}
};
template <class Number>
struct SeenMoments {
  void operator()(const ParameterRange&, std::span<const Number>, std::span<const Number>) const {}
};
struct AnyRank {
  template <class Rank>
  void operator()(Rank&) const {}
};

}  // namespace detail

/// A rank's parameters between iterations, as exposed by an executor: each run of weights that it
/// keeps, including copies, in its number type, and each run of the optimizer's two moments as
/// `Number`. Weights that a rank first gathers in its next iteration are set but not read: another
/// rank has their new values.
template <class R, class Number>
concept ExecutorRank = requires(R& rank) {
  { rank.rank() } -> std::same_as<Rank>;
  rank.set_weights(detail::AnyWeights{});
  rank.read_weights(detail::SeenWeights{});
  rank.set_moments(detail::AnyMoments<Number>{});
  rank.read_moments(detail::SeenMoments<Number>{});
};

/// Trains with a schedule: one process's part of it, which may be one rank or all.
///
/// `run` does one iteration: all microbatches forward and backward, then the update. It throws what
/// a layer, an optimizer or a source throws, and DeviceError if another rank or a device fails; the
/// program is told by the FailureCallback of the executor's options or of its session. No executor
/// handles signals, prints, or ends the process. `for_each_rank` visits each rank of this process
/// as an ExecutorRank; `gather` combines the values that each process knows into the root's
/// `values`.
template <class E>
concept Executor = requires(E& executor, const E& constant, std::span<typename E::Number> values, std::span<const char> known) {
  { constant.schedule() } -> std::same_as<const Schedule&>;
  { constant.is_root() } -> std::same_as<bool>;
  { executor.run(detail::NoTokens{}, Iteration{}) } -> std::same_as<IterationResult>;
  executor.for_each_rank(detail::AnyRank{});
  executor.gather(values, known);
};

namespace detail {

/// Rounds if `To` is narrower. 16-bit numbers are converted from and to float.
template <class From, class To>
void convert(const std::byte* from, std::size_t count, std::byte* to) {
  using Wide = std::conditional_t<sizeof(From) == 8 && sizeof(To) == 8, double, float>;
  for (std::size_t i = 0; i < count; ++i) {
    From number;
    std::memcpy(&number, from + i * sizeof(From), sizeof(From));
    const To converted = static_cast<To>(static_cast<Wide>(number));
    std::memcpy(to + i * sizeof(To), &converted, sizeof(To));
  }
}

/// Calls `use(Number{})` with a number of the type. @throws InputError  for float8: no executor has
/// weights of it.
template <class Use>
void with_number(Dtype type, Use&& use) {
  switch (type) {
    case Dtype::f64:
      return use(double{});
    case Dtype::f32:
      return use(float{});
    case Dtype::f16:
      return use(Half{});
    case Dtype::bf16:
      return use(Bfloat16{});
    case Dtype::f8:
      break;
  }
  throw InputError("weights of float8 are not supported; choose f32, bf16, f16 or f64");
}

}  // namespace detail

/// Each run of weights of this process's ranks, set by `fill(range, numbers)` and rounded to the
/// rank's type.
template <Executor E, class Fill>
void set_weights(E& executor, Fill&& fill) {
  using Number = typename E::Number;
  std::vector<Number> numbers;
  executor.for_each_rank([&](auto& rank) {
    rank.set_weights([&](const ParameterRange& range, Dtype type, std::span<std::byte> bytes) {
      numbers.resize(static_cast<std::size_t>(range.count()));
      fill(range, std::span<Number>{numbers});
      detail::with_number(type, [&](auto number) {
        detail::convert<Number, decltype(number)>(reinterpret_cast<const std::byte*>(numbers.data()), numbers.size(),
                                                  bytes.data());
      });
    });
  });
}
/// Passes the same, unchanged, to `visit(range, numbers)`. Of weights in float32 and in fewer bits
/// the former only.
template <Executor E, class Visit>
void read_weights(E& executor, Visit&& visit) {
  using Number = typename E::Number;
  std::vector<Number> numbers;
  executor.for_each_rank([&](auto& rank) {
    rank.read_weights([&](const ParameterRange& range, Dtype type, std::span<const std::byte> bytes) {
      numbers.resize(static_cast<std::size_t>(range.count()));
      detail::with_number(type, [&](auto number) {
        detail::convert<decltype(number), Number>(bytes.data(), numbers.size(), reinterpret_cast<std::byte*>(numbers.data()));
      });
      visit(range, std::span<const Number>{numbers});
    });
  });
}
/// Each run of the optimizer's moments, set by `fill(range, first, second)`, or unchanged.
template <Executor E, class Fill>
void set_moments(E& executor, Fill&& fill) {
  executor.for_each_rank([&](auto& rank) { rank.set_moments(fill); });
}
template <Executor E, class Visit>
void read_moments(E& executor, Visit&& visit) {
  executor.for_each_rank([&](auto& rank) { rank.read_moments(visit); });
}

/// Sets all weights of the executor's ranks from `all`, one number a parameter in the model's
/// numbering.
template <Executor E>
void load_weights(E& executor, std::span<const typename E::Number> all) {
  set_weights(executor, [&](const ParameterRange& range, std::span<typename E::Number> numbers) {
    std::copy_n(all.begin() + range.begin, range.count(), numbers.begin());
  });
}
/// All weights, one number a parameter; right on the root. Collective.
template <Executor E>
std::vector<typename E::Number> collect_weights(E& executor) {
  using Number = typename E::Number;
  std::vector<Number> all(static_cast<std::size_t>(executor.schedule().workload().model().parameters()));
  std::vector<char> known(all.size(), 0);
  read_weights(executor, [&](const ParameterRange& range, std::span<const Number> numbers) {
    std::copy(numbers.begin(), numbers.end(), all.begin() + range.begin);
    std::fill_n(known.begin() + range.begin, range.count(), char{1});
  });
  executor.gather(all, known);
  return all;
}

}  // namespace tawpipe
