// A model of products and sums that every parameter takes part in, for tests of executors that need
// no real decoder.
// Not: fast.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tawpipe/backend/layer_compute.hpp"
#include "tawpipe/model/layer_stack.hpp"
#include "tawpipe/model/transformer.hpp"

namespace support {

/// Layer: y[t, j] = x[t, j] (1 + sum over the layer's parameters i with i % hidden = j of w[i] /
/// 8). Embedding: x = E[token].
/// Head: loss = mean over tokens of sum_j x[t, j] g[j] O[target, j].
template <class T>
class ToyLayer {
 public:
  explicit ToyLayer(const tawpipe::Transformer& model)
      : hidden_{static_cast<std::size_t>(model.hidden)},
        layer_{static_cast<std::size_t>(model.layer_parameters())},
        tied_{model.tied} {}
  explicit ToyLayer(const tawpipe::LayerStack& model)
      : hidden_{static_cast<std::size_t>(model.decoder.value().hidden)},
        layer_{static_cast<std::size_t>(model.layer_parameters())},
        tied_{model.tied} {}

  void forward(const tawpipe::ForwardArgs& args) const {
    const std::size_t tokens = args.tokens.size();
    std::vector<T> x(tokens * hidden_);
    if (args.stage->first_edge) {
      const T* embedding = numbers(args.weights.first_edge);
      for (std::size_t t = 0; t < tokens; ++t) {
        for (std::size_t j = 0; j < hidden_; ++j) x[t * hidden_ + j] = embedding[row(args.tokens[t]) + j];
      }
    } else {
      const T* input = numbers(args.input.data());
      x.assign(input, input + x.size());
    }
    T* saved = numbers(args.saved.data());
    for (std::int32_t l = 0; l < args.stage->layers; ++l) {
      const std::vector<T> gain = gains(args.weights, l);
      for (std::size_t i = 0; i < x.size(); ++i) {
        *saved++ = x[i];
        x[i] *= gain[i % hidden_];
      }
    }
    if (args.stage->last_edge) {
      const T* norm = numbers(args.weights.last_edge);
      const T* output = output_of(args.weights);
      double loss = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        *saved++ = x[i];
        loss += static_cast<double>(x[i] * norm[i % hidden_] * output[row(args.targets[i / hidden_]) + i % hidden_]);
      }
      *args.loss = loss / static_cast<double>(tokens);
    } else {
      std::copy(x.begin(), x.end(), numbers(args.output.data()));
    }
  }

  void backward(const tawpipe::BackwardArgs& args) const { run(args, true, true); }
  void backward_input(const tawpipe::BackwardArgs& args) const { run(args, true, false); }
  void backward_weight(const tawpipe::BackwardArgs& args) const { run(args, false, true); }

 private:
  template <class Byte>
  static auto numbers(Byte* bytes) {
    if constexpr (std::is_const_v<Byte>) {
      return reinterpret_cast<const T*>(bytes);
    } else {
      return reinterpret_cast<T*>(bytes);
    }
  }
  /// After the norm; of a tied model the embedding.
  template <class Byte>
  auto output_of(const tawpipe::StageParameters<Byte>& of) const {
    return tied_ ? numbers(of.first_edge) : numbers(of.last_edge) + hidden_;
  }
  std::size_t row(std::int32_t token) const { return static_cast<std::size_t>(token) * hidden_; }
  std::vector<T> gains(const tawpipe::StageParameters<const std::byte>& weights, std::int32_t layer) const {
    const T* w = numbers(weights.layers) + static_cast<std::size_t>(layer) * layer_;
    std::vector<T> gain(hidden_, T{1});
    for (std::size_t i = 0; i < layer_; ++i) gain[i % hidden_] += w[i] / 8;
    return gain;
  }

  /// The gradients of all layers' outputs are placed after the saved inputs, or in the stash, for
  /// backward_weight.
  void run(const tawpipe::BackwardArgs& args, bool input, bool weight) const {
    const std::size_t tokens = args.tokens.size();
    const std::size_t all = tokens * hidden_;
    const auto layers = static_cast<std::size_t>(args.stage->layers);
    T* saved = numbers(args.saved.data());
    std::vector<T> own;
    T* kept = nullptr;  // [layers + 1] gradients of the layers' outputs, then of what comes in
    if (args.stash.size() / sizeof(T) >= (layers + 1) * all) {
      kept = numbers(args.stash.data());
    } else if ((input && weight) || layers == 0) {  // without layers only the embedding asks for it again, and has a stash
      own.resize((layers + 1) * all);
      kept = own.data();
    } else {
      kept = saved + (layers + (args.stage->last_edge ? 1U : 0U)) * all;
    }
    if (input) {
      T* last = kept + layers * all;
      for (std::size_t i = 0; i < all; ++i) {
        const std::size_t j = i % hidden_;
        if (args.stage->last_edge) {
          last[i] = scale(args, tokens) * numbers(args.weights.last_edge)[j] *
                    output_of(args.weights)[row(args.targets[i / hidden_]) + j];
        } else {
          last[i] = numbers(args.output_gradient.data())[i];
        }
      }
      for (std::size_t l = layers; l-- > 0;) {
        const std::vector<T> gain = gains(args.weights, static_cast<std::int32_t>(l));
        for (std::size_t i = 0; i < all; ++i) kept[l * all + i] = kept[(l + 1) * all + i] * gain[i % hidden_];
      }
      if (!args.stage->first_edge) std::copy(kept, kept + all, numbers(args.input_gradient.data()));
    }
    if (!weight) return;
    for (std::size_t l = 0; l < layers; ++l) {
      T* gradient = numbers(args.gradients.layers) + l * layer_;
      std::vector<T> sum(hidden_, T{});
      for (std::size_t i = 0; i < all; ++i) sum[i % hidden_] += kept[(l + 1) * all + i] * saved[l * all + i] / 8;
      for (std::size_t i = 0; i < layer_; ++i) gradient[i] += sum[i % hidden_];
    }
    for (std::size_t i = 0; i < all; ++i) {
      const std::size_t j = i % hidden_;
      if (args.stage->last_edge) {
        const T x = saved[layers * all + i];
        const std::size_t at = row(args.targets[i / hidden_]) + j;
        numbers(args.gradients.last_edge)[j] += scale(args, tokens) * x * output_of(args.weights)[at];
        output_of(args.gradients)[at] += scale(args, tokens) * x * numbers(args.weights.last_edge)[j];
      }
      if (args.stage->first_edge) numbers(args.gradients.first_edge)[row(args.tokens[i / hidden_]) + j] += kept[i];
    }
  }
  static T scale(const tawpipe::BackwardArgs& args, std::size_t tokens) {
    return static_cast<T>(args.scale / static_cast<double>(tokens));
  }

  std::size_t hidden_;
  std::size_t layer_;
  bool tied_;
};

/// w -= rate * gradient, and a count of steps in the first moment.
template <class T>
struct ToyOptimizer {
  void update(const tawpipe::UpdateArgs& args) const {
    T* w = reinterpret_cast<T*>(args.weights.data());
    const T* g = reinterpret_cast<const T*>(args.gradients.data());
    T* m = reinterpret_cast<T*>(args.first_moment.data());
    for (std::size_t i = 0; i < args.weights.size() / sizeof(T); ++i) {
      m[i] += 1;
      w[i] -= static_cast<T>(args.learning_rate * args.gradient_scale) * g[i];
    }
  }
};

/// Tokens by a hash of step, microbatch and position.
struct ToyTokens {
  std::int32_t vocab;
  void fetch(std::int64_t step, std::int32_t microbatch, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const auto h =
          (static_cast<std::uint64_t>(step) * 977 + static_cast<std::uint64_t>(microbatch) * 131 + i * 31 + 7) * 2654435761U;
      tokens[i] = static_cast<std::int32_t>((h >> 7) % static_cast<std::uint64_t>(vocab));
      targets[i] = static_cast<std::int32_t>((h >> 21) % static_cast<std::uint64_t>(vocab));
    }
  }
};

}  // namespace support
