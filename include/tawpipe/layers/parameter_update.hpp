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

namespace tawpipe::inline v0::layers {

/// Calls `visit(part, decays)` for the parts of a range that decay or do not. Matrices decay:
/// embedding, those of a layer, output matrix. Norms and biases do not.
template <class Visit>
void for_each_alike(const Transformer& model, ParameterRange range, Visit&& visit) {
  const ParameterOrder order{model};
  const Transformer without_experts = model.dense_layers > 0 ? model.of_dense_layers() : model;
  const ParameterRange norm = order.final_norm();
  while (range.count() > 0) {
    bool decays = true;
    std::int64_t end = order.count();
    if (range.begin < order.embedding().end) {
      end = order.embedding().end;
    } else if (range.begin < norm.begin) {
      const ParameterRange first = order.layers(0, model.dense_layers);
      const bool dense = range.begin < first.end;
      const Transformer& kind = dense ? without_experts : model;
      const std::int64_t layer = (range.begin - (dense ? first.begin : first.end)) / kind.layer_parameters();
      const ParameterRange all = order.layers(static_cast<std::int32_t>(layer) + (dense ? 0 : model.dense_layers), 1);
      const std::int64_t matrices = all.begin + kind.layer_matrix_parameters();
      decays = range.begin < matrices;
      end = decays ? matrices : all.end;
    } else if (range.begin < norm.end) {
      decays = false;
      end = norm.end;
    }
    end = std::min(end, range.end);
    visit(ParameterRange{range.begin, end}, decays);
    range.begin = end;
  }
}

/// The optimizer for executors (ParameterUpdate): AdamW in numbers of type T, with weight decay
/// only on matrices.
template <class T>
class AdamWUpdate {
 public:
  AdamWUpdate(const Transformer& model, AdamW options) : model_{model}, options_{options} {}

  void update(const UpdateArgs& args) const {
    for_each_alike(model_, args.parameters, [&](const ParameterRange& range, bool decays) {
      const auto part = [&](auto bytes) {
        using Number = std::conditional_t<std::is_const_v<typename decltype(bytes)::element_type>, const T, T>;
        return std::span<Number>{reinterpret_cast<Number*>(bytes.data()) + (range.begin - args.parameters.begin),
                                 static_cast<std::size_t>(range.count())};
      };
      const AdamWStep step{
          .number = args.step, .learning_rate = args.learning_rate, .gradient_scale = args.gradient_scale, .decay = decays};
      adamw_step<T>(options_, step, part(args.weights), part(args.gradients), part(args.first_moment), part(args.second_moment));
    });
  }

 private:
  Transformer model_;
  AdamW options_;
};

}  // namespace tawpipe::layers
