// AdamW over runs of a model's parameters: which of them decay.
// Not: the step itself (layers/adamw.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "tawpipe/backend/layer_compute.hpp"
#include "tawpipe/layers/adamw.hpp"
#include "tawpipe/model/parameters.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::layers {

/// The optimizer that executors call (ParameterUpdate): AdamW in numbers of type T, with weight decay on matrices only.
template <class T>
class AdamWUpdate {
 public:
  AdamWUpdate(const Transformer& model, AdamW options) : model_{model}, options_{options} {}

  void update(const UpdateArgs& args) const {
    for (ParameterRange left = args.parameters; left.count() > 0;) {
      const Kind kind = kind_at(left.begin);
      const std::int64_t count = std::min(kind.end, left.end) - left.begin;
      const auto part = [&](auto bytes) {
        using Number = std::conditional_t<std::is_const_v<typename decltype(bytes)::element_type>, const T, T>;
        return std::span<Number>{reinterpret_cast<Number*>(bytes.data()) + (left.begin - args.parameters.begin),
                                 static_cast<std::size_t>(count)};
      };
      const AdamWStep step{
          .number = args.step, .learning_rate = args.learning_rate, .gradient_scale = args.gradient_scale, .decay = kind.decays};
      adamw_step<T>(options_, step, part(args.weights), part(args.gradients), part(args.first_moment), part(args.second_moment));
      left.begin += count;
    }
  }

 private:
  struct Kind {
    bool decays;
    std::int64_t end;  ///< of the run of parameters that are alike
  };

  /// Matrices decay: embedding, those of a layer, output matrix. Norms do not.
  Kind kind_at(std::int64_t parameter) const {
    const ParameterOrder order{model_};
    if (parameter < order.embedding().end) return {true, order.embedding().end};
    const ParameterRange norm = order.final_norm();
    if (parameter >= norm.end) return {true, order.count()};
    if (parameter >= norm.begin) return {false, norm.end};
    const std::int64_t layer = (parameter - order.embedding().end) / model_.layer_parameters();
    const std::int64_t begin = order.layers(static_cast<std::int32_t>(layer), 1).begin;
    const std::int64_t matrices = begin + model_.layer_matrix_parameters();
    if (parameter < matrices) return {true, matrices};
    return {false, begin + model_.layer_parameters()};
  }

  Transformer model_;
  AdamW options_;
};

}  // namespace tawpipe::layers
