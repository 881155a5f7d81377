// How fast does the CPU decoder compute? Tokens a second of a layer and of the head, forward and
// with backward, and which share of the rate of a plain matrix product of the same sizes that is.
// Float32, one thread, in processor time; `of_product` 1 would be the rate of that product.
// Not: several ranks.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <span>
#include <string>
#include <vector>

#include "benchmarks.hpp"
#include "tawpipe/layers/host/llama.hpp"
#include "tawpipe/model/transformer_work.hpp"

namespace {

using tawpipe::Batch;
using tawpipe::Dtype;
using tawpipe::Recompute;
using tawpipe::StageWork;
using tawpipe::Transformer;
using tawpipe::layers::host::Operand;

struct Case {
  const char* name;
  Transformer model;
  Batch batch;
};

/// Three small text models, and one whose products are large. bench/layers_pytorch.py has two of them.
const Case cases[] = {
    {"hidden_128",
     {.layers = 1, .hidden = 128, .heads = 4, .kv_heads = 4, .intermediate = 352, .vocab = 256, .dtype = Dtype::f32},
     {.sequence = 128, .microbatch_size = 4, .global_batch = 4}},
    {"hidden_256",
     {.layers = 1, .hidden = 256, .heads = 8, .kv_heads = 8, .intermediate = 704, .vocab = 256, .dtype = Dtype::f32},
     {.sequence = 256, .microbatch_size = 4, .global_batch = 4}},
    {"hidden_512",
     {.layers = 1, .hidden = 512, .heads = 8, .kv_heads = 8, .intermediate = 1408, .vocab = 256, .dtype = Dtype::f32},
     {.sequence = 256, .microbatch_size = 2, .global_batch = 2}},
    {"hidden_1024",
     {.layers = 1, .hidden = 1024, .heads = 16, .kv_heads = 4, .intermediate = 2816, .vocab = 4096, .dtype = Dtype::f32},
     {.sequence = 512, .microbatch_size = 1, .global_batch = 1}},
};

std::vector<float> numbers(std::int64_t count) {
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = 0.05F * static_cast<float>(i * 7919 % 41) - 1.0F;
  return numbers;
}

/// Y = X W^T with X [tokens, hidden] and W [intermediate, hidden].
struct Product {
  explicit Product(const Case& of)
      : m{of.batch.tokens()},
        n{of.model.intermediate},
        k{of.model.hidden},
        x{numbers(m * k)},
        w{numbers(n * k)},
        y{numbers(m * n)} {}
  void run() {
    tawpipe::layers::host::multiply<float>(Operand::plain, Operand::transposed, m, n, k, 1, x.data(), k, w.data(), k, 0, y.data(),
                                           n);
    benchmark::DoNotOptimize(y.data());
    benchmark::ClobberMemory();
  }
  double flops() const { return 2.0 * static_cast<double>(m * n * k); }
  /// Operations a second of processor time, the best of ten.
  double rate() {
    const int repeat = static_cast<int>(1e9 / flops()) + 1;
    double best = 0;
    for (int i = 0; i < 10; ++i) {
      const std::clock_t begin = std::clock();
      for (int j = 0; j < repeat; ++j) run();
      best = std::max(best, repeat * flops() * CLOCKS_PER_SEC / static_cast<double>(std::clock() - begin));
    }
    return best;
  }
  std::int64_t m, n, k;
  std::vector<float> x, w, y;
};

/// One stage of the model with all its memory.
struct Stage {
  Stage(const Case& of, Recompute recompute, bool with_head)
      : tokens{of.batch.tokens()},
        work{tawpipe::transformer_work(of.model, of.batch, recompute, 0, with_head ? 0 : 1, false, with_head)},
        llama{of.model, of.batch, recompute},
        layer{numbers(of.model.layer_parameters())},
        head{numbers(of.model.head_parameters())},
        layer_gradient(layer.size()),
        head_gradient(head.size()),
        activation{numbers(tokens * of.model.hidden)},
        result(activation.size()),
        gradient(activation.size()),
        saved(static_cast<std::size_t>(work.saved.value())),
        workspace(static_cast<std::size_t>(std::max(work.forward_workspace, work.backward_workspace).value())),
        targets(static_cast<std::size_t>(tokens), 1) {
    // Small weights: an attention that is neither flat nor a single one.
    for (float& w : layer) w *= 0.05F;
    std::fill(layer.end() - 2 * of.model.hidden, layer.end(), 1.0F);
    std::fill(head.begin(), head.begin() + of.model.hidden, 1.0F);
  }
  template <class Byte, class Numbers>
  static tawpipe::StageParameters<Byte> pointers(Numbers& layer, Numbers& head) {
    return {.layers = reinterpret_cast<Byte*>(layer.data()), .last_edge = reinterpret_cast<Byte*>(head.data())};
  }
  void forward() {
    tawpipe::ForwardArgs args;
    args.stage = &work;
    args.weights = pointers<const std::byte>(layer, head);
    args.input = std::as_bytes(std::span{activation});
    if (!work.last_edge) args.output = std::as_writable_bytes(std::span{result});
    args.saved = saved;
    args.workspace = workspace;
    args.targets = targets;
    args.loss = &loss;
    llama.forward(args);
  }
  void backward() {
    tawpipe::BackwardArgs args;
    args.stage = &work;
    args.weights = pointers<const std::byte>(layer, head);
    args.gradients = pointers<std::byte>(layer_gradient, head_gradient);
    if (!work.last_edge) args.output_gradient = std::as_bytes(std::span{activation});
    args.input_gradient = std::as_writable_bytes(std::span{gradient});
    args.saved = saved;
    args.workspace = workspace;
    args.targets = targets;
    llama.backward(args);
  }
  std::int64_t tokens;
  StageWork work;
  tawpipe::layers::host::Llama<float> llama;
  std::vector<float> layer, head, layer_gradient, head_gradient, activation, result, gradient;
  std::vector<std::byte> saved, workspace;
  std::vector<std::int32_t> targets;
  double loss = 0;
};

void count(benchmark::State& state, const Case& of, double tokens, double flops) {
  using benchmark::Counter;
  state.counters["tokens"] = Counter(tokens, Counter::kIsIterationInvariantRate);
  state.counters["flops"] = Counter(flops, Counter::kIsIterationInvariantRate);
  state.counters["of_product"] = Counter(flops / Product{of}.rate(), Counter::kIsIterationInvariantRate);
}

void run_product(benchmark::State& state, const Case& of) {
  tawpipe::layers::host::use_one_thread_for_products();
  Product product{of};
  for (auto _ : state) product.run();
  count(state, of, static_cast<double>(product.m), product.flops());
}

void run_stage(benchmark::State& state, const Case& of, Recompute recompute, bool head, bool with_backward) {
  Stage stage{of, recompute, head};
  for (auto _ : state) {
    stage.forward();
    if (with_backward) stage.backward();
    benchmark::ClobberMemory();
  }
  double flops = stage.work.forward.value();
  if (with_backward) flops += (stage.work.backward_input + stage.work.backward_weight).value();
  count(state, of, static_cast<double>(stage.tokens), flops);
}

}  // namespace

int main(int argc, char** argv) {
  for (const Case& of : cases) {
    const std::string name = of.name;
    benchmark::RegisterBenchmark((name + "/product").c_str(), run_product, of);
    benchmark::RegisterBenchmark((name + "/layer/forward").c_str(), run_stage, of, Recompute::none, false, false);
    benchmark::RegisterBenchmark((name + "/layer/both").c_str(), run_stage, of, Recompute::none, false, true);
    benchmark::RegisterBenchmark((name + "/layer/both_full_recompute").c_str(), run_stage, of, Recompute::full, false, true);
    benchmark::RegisterBenchmark((name + "/head/both").c_str(), run_stage, of, Recompute::none, true, true);
  }
  return run_benchmarks(argc, argv);
}
