// Trains another architecture: residual two-layer perceptrons, with plain gradient descent. All
// that a schedule needs of a model and an executor of its layers is here; neither sees ranks,
// messages or schedules.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <vector>

#include "tawpipe/execute/host/executor.hpp"
#include "tawpipe/schedules/shipped.hpp"

namespace {

using namespace tawpipe;

constexpr int width = 8, inner = 8, symbols = 11, tokens = 6;
using Row = std::array<double, width>;  // of a token; also the inner activations, which are as wide
static_assert(inner == width);

const double* numbers(const std::byte* bytes) { return reinterpret_cast<const double*>(bytes); }
double* numbers(std::byte* bytes) { return reinterpret_cast<double*>(bytes); }
Row* rows(std::byte* bytes) { return reinterpret_cast<Row*>(bytes); }
const Row* rows(const std::byte* bytes) { return reinterpret_cast<const Row*>(bytes); }

// y += A x, x += A^T y and A += y x^T for A of `height` rows.
void multiply(const double* a, const double* x, double* y, int height) {
  for (int i = 0; i < height; ++i) {
    for (int j = 0; j < width; ++j) y[i] += a[i * width + j] * x[j];
  }
}
void multiply_transposed(const double* a, const double* y, double* x, int height) {
  for (int i = 0; i < height; ++i) {
    for (int j = 0; j < width; ++j) x[j] += a[i * width + j] * y[i];
  }
}
void add_product(double* a, const double* y, const double* x, int height) {
  for (int i = 0; i < height; ++i) {
    for (int j = 0; j < width; ++j) a[i * width + j] += y[i] * x[j];
  }
}

template <class Byte>
auto u(Byte* layers, int l) {
  return numbers(layers) + l * 2 * inner * width;
}
template <class Byte>
auto v(Byte* layers, int l) {
  return u(layers, l) + inner * width;
}

// Layer: y = x + V tanh(U x), with U [inner, width] and V [width, inner] one after another among
// the layer's parameters. Before the layers: x = E[token]. After them: logits = O x, softmax cross
// entropy. Saved: the input of each layer and of the head.
class Perceptrons {
 public:
  // What a schedule must know about it, for one microbatch.
  static LayerStack model() {
    const Bytes activation{tokens * sizeof(Row)};
    LayerStack model{.name = "perceptrons", .layers = 4, .dtype = Dtype::f64};
    model.first_edge = {.parameters = symbols * width, .stash = activation};
    model.layer = {.parameters = 2 * inner * width, .saved = activation, .stash = activation, .boundary = activation};
    model.layer.forward = model.layer.backward_input = model.layer.backward_weight = Flops{4.0 * tokens * inner * width};
    model.last_edge = {.parameters = symbols * width, .saved = activation};
    return model;
  }

  void forward(const ForwardArgs& args) {
    std::array<Row, tokens> x;
    for (std::size_t t = 0; t < tokens; ++t) {
      x[t] = args.stage->first_edge ? rows(args.weights.first_edge)[args.tokens[t]] : rows(args.input.data())[t];
    }
    Row* saved = rows(args.saved.data());
    for (int l = 0; l < args.stage->layers; ++l) {
      saved = std::copy(x.begin(), x.end(), saved);
      for (Row& row : x) multiply(v(args.weights.layers, l), activations(args.weights, l, row).data(), row.data(), width);
    }
    if (!args.stage->last_edge) {
      std::copy(x.begin(), x.end(), rows(args.output.data()));
      return;
    }
    std::copy(x.begin(), x.end(), saved);
    *args.loss = 0;
    for (std::size_t t = 0; t < tokens; ++t) *args.loss -= std::log(probabilities(args.weights, x[t])[args.targets[t]]) / tokens;
  }

  void backward(const BackwardArgs& args) {
    backward_input(args);
    backward_weight(args);
  }

  // Gradients of the layers' outputs, last layer first; kept for backward_weight.
  void backward_input(const BackwardArgs& args) {
    const int layers = args.stage->layers;
    for (std::size_t t = 0; t < tokens; ++t) {
      Row dy{};
      if (args.stage->last_edge) {
        multiply_transposed(numbers(args.weights.last_edge), slopes(args, t).data(), dy.data(), symbols);
      } else {
        dy = rows(args.output_gradient.data())[t];
      }
      for (int l = layers; l > 0; --l) {
        kept(args, l)[t] = dy;
        const Row& x = saved(args, l - 1)[t];
        multiply_transposed(u(args.weights.layers, l - 1), inner_slopes(args, l - 1, x, dy).data(), dy.data(), inner);
      }
      (args.stage->first_edge ? kept(args, 0) : rows(args.input_gradient.data()))[t] = dy;
    }
  }

  // Gradients of the weights, added to what is there.
  void backward_weight(const BackwardArgs& args) {
    const int layers = args.stage->layers;
    for (std::size_t t = 0; t < tokens; ++t) {
      for (int l = 0; l < layers; ++l) {
        const Row& x = saved(args, l)[t];
        const Row& dy = kept(args, l + 1)[t];
        add_product(v(args.gradients.layers, l), dy.data(), activations(args.weights, l, x).data(), width);
        add_product(u(args.gradients.layers, l), inner_slopes(args, l, x, dy).data(), x.data(), inner);
      }
      if (args.stage->last_edge) {
        add_product(numbers(args.gradients.last_edge), slopes(args, t).data(), saved(args, layers)[t].data(), symbols);
      }
      if (args.stage->first_edge) {
        for (int j = 0; j < width; ++j) rows(args.gradients.first_edge)[args.tokens[t]][j] += kept(args, 0)[t][j];
      }
    }
  }

 private:
  static const Row* saved(const BackwardArgs& args, int l) { return rows(args.saved.data()) + l * tokens; }
  // The gradient of layer l's input (l = 0) or of the previous layer's output: in the stash if the
  // two backwards run separately.
  Row* kept(const BackwardArgs& args, int l) {
    const int place = l > 0 ? l - 1 : args.stage->layers;
    if (!args.stash.empty()) return rows(args.stash.data()) + place * tokens;
    scratch_.resize(static_cast<std::size_t>(args.stage->layers + 1) * tokens);
    return scratch_.data() + place * tokens;
  }
  static Row activations(const StageParameters<const std::byte>& weights, int l, const Row& x) {
    Row a{};
    multiply(u(weights.layers, l), x.data(), a.data(), inner);
    for (double& one : a) one = std::tanh(one);
    return a;
  }
  static Row inner_slopes(const BackwardArgs& args, int l, const Row& x, const Row& dy) {
    Row da{};
    multiply_transposed(v(args.weights.layers, l), dy.data(), da.data(), width);
    const Row a = activations(args.weights, l, x);
    for (int i = 0; i < inner; ++i) da[i] *= 1 - a[i] * a[i];
    return da;
  }
  static std::array<double, symbols> probabilities(const StageParameters<const std::byte>& weights, const Row& x) {
    std::array<double, symbols> p{};
    multiply(numbers(weights.last_edge), x.data(), p.data(), symbols);
    double sum = 0;
    for (double& one : p) sum += one = std::exp(one);
    for (double& one : p) one /= sum;
    return p;
  }
  static std::array<double, symbols> slopes(const BackwardArgs& args, std::size_t t) {
    std::array<double, symbols> slope = probabilities(args.weights, saved(args, args.stage->layers)[t]);
    slope[args.targets[t]] -= 1;
    for (double& one : slope) one *= args.scale / tokens;
    return slope;
  }

  std::vector<Row> scratch_;
};

struct GradientDescent {
  void update(const UpdateArgs& args) const {
    double* weights = numbers(args.weights.data());
    for (std::size_t i = 0; i < args.weights.size() / sizeof(double); ++i) {
      weights[i] -= args.learning_rate * args.gradient_scale * numbers(args.gradients.data())[i];
    }
  }
};

// Each token is followed by its double, modulo the number of symbols.
struct Doubling {
  void fetch(std::int64_t, std::int32_t microbatch, std::span<std::int32_t> ids, std::span<std::int32_t> targets) const {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ids[i] = (microbatch * 5 + static_cast<std::int32_t>(i)) % symbols;
      targets[i] = 2 * ids[i] % symbols;
    }
  }
};

void train(const char* name, const Workload& work, const std::vector<std::int32_t>& nodes) {
  const Schedule schedule = shipped_schedules().build(name, {.workload = work, .nodes = DeviceGroups{nodes}, .options = {}});
  host::HostExecutor<double, Perceptrons, GradientDescent> executor{schedule, [] { return Perceptrons{}; }, GradientDescent{}};
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
  Workload work{Perceptrons::model(), Batch{.sequence = tokens, .microbatch_size = 1, .global_batch = 8}};
  work.parameter_bytes({.weight = 8, .gradient = 8, .optimizer = 16});
  std::puts("loss at steps 1, 100, 200, 300");
  train("1f1b", work, {1});
  train("tawpipe", work, {2, 2});
  train("zb-h1", work, {4});
  train("fsdp", work, {2, 1});
}
