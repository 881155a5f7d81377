// Random initial parameters, each a function of a seed and its index, so that any rank can make
// those that it holds.
// Not: parameters from files (training/checkpoint.hpp, training/huggingface_weights.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <span>
#include <vector>

#include "tawpipe/core/splitmix64.hpp"
#include "tawpipe/model/parameters.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::training {

/// Norms are 1, biases 0; matrices are normal with a standard deviation of 0.02, those that add to the
/// residual stream (wo, w2) with 0.02 / sqrt(2 layers).
/// Source: Radford et al. 2019, GPT-2, section 2.3; nanoGPT, model.py.
class InitialWeights {
 public:
  InitialWeights(const Transformer& model, std::uint64_t seed) : tensors_{ParameterOrder{model}.tensors()}, seed_{seed} {
    for (const ParameterTensor& tensor : tensors_) {
      const bool residual = tensor.name.ends_with("wo.weight") || tensor.name.ends_with("w2.weight");
      deviations_.push_back(!tensor.decays() ? 0 : residual ? 0.02 / std::sqrt(2.0 * model.layers) : 0.02);
      means_.push_back(tensor.decays() || tensor.name.ends_with(".bias") ? 0 : 1);
    }
  }

  /// The initial values of a range. @pre `numbers` has its size
  template <class T>
  void fill(ParameterRange range, std::span<T> numbers) const {
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      const std::int64_t begin = std::max(range.begin, tensors_[t].range.begin);
      const std::int64_t end = std::min(range.end, tensors_[t].range.end);
      for (std::int64_t at = begin; at < end; ++at) {
        const double value = deviations_[t] > 0 ? deviations_[t] * normal(static_cast<std::uint64_t>(at)) : means_[t];
        numbers[static_cast<std::size_t>(at - range.begin)] = static_cast<T>(value);
      }
    }
  }

 private:
  /// The `counter`-th number of SplitMix64's sequence starting at the seed, within (0, 1].
  double uniform(std::uint64_t counter) const {
    const std::uint64_t z = splitmix64(seed_ * 0xd1342543de82ef95U + counter * splitmix64_step);
    return (static_cast<double>(z >> 11) + 1.0) / 9007199254740992.0;
  }
  /// The Box-Muller transform.
  double normal(std::uint64_t parameter) const {
    return std::sqrt(-2.0 * std::log(uniform(2 * parameter))) * std::cos(2.0 * std::numbers::pi * uniform(2 * parameter + 1));
  }

  std::vector<ParameterTensor> tensors_;
  std::vector<double> deviations_;  ///< [tensor]; 0: all are the mean
  std::vector<double> means_;       ///< [tensor]
  std::uint64_t seed_;
};

}  // namespace tawpipe::training
