// Trains layers of another architecture: residual two-layer perceptrons, with plain gradient descent. All that an executor
// asks of a layer is here; it never sees a rank, a message or a schedule.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "tawpipe/execute/host/executor.hpp"
#include "tawpipe/schedules/shipped.hpp"

namespace {

using namespace tawpipe;

const double* numbers(const std::byte* bytes) { return reinterpret_cast<const double*>(bytes); }
double* numbers(std::byte* bytes) { return reinterpret_cast<double*>(bytes); }

// Layer: y = x + V tanh(U x), with U [inner, hidden] and V [hidden, inner] in the layer's block of parameters.
// Head: logits = O (g * x), softmax cross entropy. Saved: the input of each layer and of the head; behind them is room for the
// gradients that backward_input leaves.
class PerceptronLayer {
 public:
  explicit PerceptronLayer(const Transformer& model)
      : hidden_(static_cast<std::size_t>(model.hidden)),
        inner_(static_cast<std::size_t>(model.layer_parameters()) / (2 * hidden_)),
        vocab_(static_cast<std::size_t>(model.vocab)) {}

  void forward(const ForwardArgs& args) {
    const std::size_t tokens = args.tokens.size();
    std::vector<double> x(tokens * hidden_);
    for (std::size_t t = 0; t < tokens; ++t) {
      const double* from = args.stage->embedding
                               ? numbers(args.weights.embedding) + static_cast<std::size_t>(args.tokens[t]) * hidden_
                               : numbers(args.input.data()) + t * hidden_;
      std::copy_n(from, hidden_, x.data() + t * hidden_);
    }
    double* saved = numbers(args.saved.data());
    const auto layers = static_cast<std::size_t>(args.stage->layers);
    for (std::size_t l = 0; l < layers; ++l) {
      saved = std::copy(x.begin(), x.end(), saved);
      const Matrices<const double> w = layer(numbers(args.weights.layers), l);
      for (std::size_t t = 0; t < tokens; ++t) {
        const std::vector<double> a = activations(w, x.data() + t * hidden_);
        for (std::size_t j = 0; j < hidden_; ++j) {
          for (std::size_t i = 0; i < inner_; ++i) x[t * hidden_ + j] += w.v[j * inner_ + i] * a[i];
        }
      }
    }
    if (!args.stage->head) {
      std::copy(x.begin(), x.end(), numbers(args.output.data()));
      return;
    }
    std::copy(x.begin(), x.end(), saved);
    *args.loss = 0;
    for (std::size_t t = 0; t < tokens; ++t) {
      const std::vector<double> p = probabilities(args.weights, x.data() + t * hidden_);
      *args.loss -= std::log(p[static_cast<std::size_t>(args.targets[t])]) / static_cast<double>(tokens);
    }
  }

  void backward(const BackwardArgs& args) {
    backward_input(args);
    backward_weight(args);
  }

  // Gradients of the layers' outputs, last layer first; kept for backward_weight.
  void backward_input(const BackwardArgs& args) {
    const std::size_t tokens = args.tokens.size();
    const auto layers = static_cast<std::size_t>(args.stage->layers);
    const double* x = numbers(args.saved.data());
    double* dy = kept(args) + layers * tokens * hidden_;
    if (args.stage->head) {
      const double* out = numbers(args.weights.output);
      for (std::size_t t = 0; t < tokens; ++t) {
        const std::vector<double> slope = logit_slopes(args, x + (layers * tokens + t) * hidden_, t);
        for (std::size_t j = 0; j < hidden_; ++j) {
          double sum = 0;
          for (std::size_t k = 0; k < vocab_; ++k) sum += slope[k] * out[k * hidden_ + j];
          dy[t * hidden_ + j] = sum * numbers(args.weights.final_norm)[j];
        }
      }
    } else {
      std::copy_n(numbers(args.output_gradient.data()), tokens * hidden_, dy);
    }
    for (std::size_t l = layers; l-- > 0; dy -= tokens * hidden_) {
      const Matrices<const double> w = layer(numbers(args.weights.layers), l);
      double* dx = dy - tokens * hidden_;
      for (std::size_t t = 0; t < tokens; ++t) {
        const std::vector<double> da = inner_slopes(w, activations(w, x + (l * tokens + t) * hidden_), dy + t * hidden_);
        for (std::size_t j = 0; j < hidden_; ++j) {
          double sum = dy[t * hidden_ + j];
          for (std::size_t i = 0; i < inner_; ++i) sum += da[i] * w.u[i * hidden_ + j];
          dx[t * hidden_ + j] = sum;
        }
      }
    }
    if (!args.stage->embedding) std::copy_n(dy, tokens * hidden_, numbers(args.input_gradient.data()));
  }

  // Gradients of the weights, added to what is there.
  void backward_weight(const BackwardArgs& args) {
    const std::size_t tokens = args.tokens.size();
    const auto layers = static_cast<std::size_t>(args.stage->layers);
    const double* x = numbers(args.saved.data());
    const double* dy = kept(args);
    for (std::size_t t = 0; args.stage->embedding && t < tokens; ++t) {
      double* row = numbers(args.gradients.embedding) + static_cast<std::size_t>(args.tokens[t]) * hidden_;
      for (std::size_t j = 0; j < hidden_; ++j) row[j] += dy[t * hidden_ + j];
    }
    for (std::size_t l = 0; l < layers; ++l) {
      dy += tokens * hidden_;
      const Matrices<const double> w = layer(numbers(args.weights.layers), l);
      const Matrices<double> g = layer(numbers(args.gradients.layers), l);
      for (std::size_t t = 0; t < tokens; ++t, x += hidden_) {
        const std::vector<double> a = activations(w, x);
        const std::vector<double> da = inner_slopes(w, a, dy + t * hidden_);
        for (std::size_t j = 0; j < hidden_; ++j) {
          for (std::size_t i = 0; i < inner_; ++i) {
            g.v[j * inner_ + i] += dy[t * hidden_ + j] * a[i];
            g.u[i * hidden_ + j] += da[i] * x[j];
          }
        }
      }
    }
    for (std::size_t t = 0; args.stage->head && t < tokens; ++t, x += hidden_) {
      const std::vector<double> slope = logit_slopes(args, x, t);
      for (std::size_t k = 0; k < vocab_; ++k) {
        for (std::size_t j = 0; j < hidden_; ++j) {
          const std::size_t at = k * hidden_ + j;
          numbers(args.gradients.output)[at] += slope[k] * x[j] * numbers(args.weights.final_norm)[j];
          numbers(args.gradients.final_norm)[j] += slope[k] * x[j] * numbers(args.weights.output)[at];
        }
      }
    }
  }

 private:
  template <class Number>
  struct Matrices {
    Number* u;
    Number* v;
  };
  template <class Number>
  Matrices<Number> layer(Number* block, std::size_t l) const {
    Number* const u = block + l * 2 * hidden_ * inner_;
    return {u, u + hidden_ * inner_};
  }
  // [layers + 1, tokens, hidden]: gradients of the stage's input and of each layer's output. A stage without layers has no room
  // for them, and where its two backwards run apart it is given a stash.
  double* kept(const BackwardArgs& args) {
    const auto layers = static_cast<std::size_t>(args.stage->layers);
    const std::size_t tensor = args.tokens.size() * hidden_;
    if (args.stash.size() >= (layers + 1) * tensor * sizeof(double)) return numbers(args.stash.data());
    if (layers > 0) return numbers(args.saved.data()) + (layers + (args.stage->head ? 1U : 0U)) * tensor;
    alone_.resize(tensor);
    return alone_.data();
  }
  std::vector<double> activations(const Matrices<const double>& w, const double* x) const {
    std::vector<double> a(inner_);
    for (std::size_t i = 0; i < inner_; ++i) {
      for (std::size_t j = 0; j < hidden_; ++j) a[i] += w.u[i * hidden_ + j] * x[j];
      a[i] = std::tanh(a[i]);
    }
    return a;
  }
  std::vector<double> inner_slopes(const Matrices<const double>& w, const std::vector<double>& a, const double* dy) const {
    std::vector<double> da(inner_);
    for (std::size_t i = 0; i < inner_; ++i) {
      for (std::size_t j = 0; j < hidden_; ++j) da[i] += dy[j] * w.v[j * inner_ + i];
      da[i] *= 1 - a[i] * a[i];
    }
    return da;
  }
  std::vector<double> probabilities(const StageParameters<const std::byte>& weights, const double* x) const {
    std::vector<double> p(vocab_);
    double sum = 0;
    for (std::size_t k = 0; k < vocab_; ++k) {
      for (std::size_t j = 0; j < hidden_; ++j) {
        p[k] += numbers(weights.output)[k * hidden_ + j] * x[j] * numbers(weights.final_norm)[j];
      }
      sum += p[k] = std::exp(p[k]);
    }
    for (double& one : p) one /= sum;
    return p;
  }
  std::vector<double> logit_slopes(const BackwardArgs& args, const double* x, std::size_t t) const {
    std::vector<double> slope = probabilities(args.weights, x);
    slope[static_cast<std::size_t>(args.targets[t])] -= 1;
    for (double& one : slope) one *= args.scale / static_cast<double>(args.tokens.size());
    return slope;
  }

  std::size_t hidden_;
  std::size_t inner_;
  std::size_t vocab_;
  std::vector<double> alone_;
};

struct GradientDescent {
  void update(const UpdateArgs& args) const {
    double* weights = numbers(args.weights.data());
    for (std::size_t i = 0; i < args.weights.size() / sizeof(double); ++i) {
      weights[i] -= args.learning_rate * args.gradient_scale * numbers(args.gradients.data())[i];
    }
  }
};

// Each token is followed by its double, modulo the vocabulary.
struct Doubling {
  void fetch(std::int64_t, std::int32_t microbatch, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = (microbatch * 5 + static_cast<std::int32_t>(i)) % 11;
      targets[i] = 2 * tokens[i] % 11;
    }
  }
};

void train(const char* name, const Workload& work, const std::vector<std::int32_t>& nodes) {
  const Schedule schedule = shipped_schedules().build(name, {.workload = work, .nodes = DeviceGroups{nodes}, .options = {}});
  host::HostExecutor<double, PerceptronLayer, GradientDescent> executor{schedule, [&] { return PerceptronLayer{work.model()}; },
                                                                        GradientDescent{}};
  executor.for_each_rank([](auto& rank) {
    rank.for_each_weight([](ParameterRange range, std::span<double> values) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = 0.3 * std::sin(12.9 * static_cast<double>(range.begin + static_cast<std::int64_t>(i)));
      }
    });
  });
  std::printf("%-8s on %d ranks:", name, schedule.ranks());
  for (int step = 1; step <= 300; ++step) {
    const double loss = executor.run(Doubling{}, {.step = step, .learning_rate = 0.2}).loss();
    if (step == 1 || step % 100 == 0) std::printf("  %.4f", loss);
  }
  std::printf("\n");
}

}  // namespace

int main() {
  // The decoder's sizes say how many parameters a layer has; what they mean is the layer's affair.
  const Transformer model{.name = "perceptrons",
                          .layers = 4,
                          .hidden = 8,
                          .heads = 2,
                          .kv_heads = 2,
                          .intermediate = 8,
                          .vocab = 11,
                          .tied = false,
                          .dtype = Dtype::f64};
  Workload work{model, Batch{.sequence = 6, .microbatch_size = 1, .global_batch = 8}};
  work.parameter_bytes({.weight = 8, .gradient = 8, .optimizer = 16});
  std::puts("loss at steps 1, 100, 200, 300");
  train("1f1b", work, {1});
  train("tawpipe", work, {2, 2});
  train("zb-h1", work, {4});
  train("fsdp", work, {2, 1});
}
