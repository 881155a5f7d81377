// Every kernel of the GPU layers against its own body on the host, in all numbers, with and without
// loads of 16 bytes.
// Not: whether the body is right (tests/unit/layers/cuda/bodies_test.cpp).
#include "layers_support.hpp"
#include "tawpipe/layers/cuda/adamw_bodies.hpp"
#include "tawpipe/layers/cuda/decoder_bodies.hpp"
#include "tawpipe/layers/cuda/embedding_bodies.hpp"
#include "tawpipe/layers/cuda/loss_bodies.hpp"
#include "tawpipe/layers/cuda/norm_bodies.hpp"
#include "tawpipe/layers/cuda/plain_attention.hpp"
#include "tawpipe/layers/cuda/rotary_table.hpp"

using namespace gpu_test;

namespace {

template <class T>
void check_norms(std::int64_t rows, std::int64_t hidden) {
  const auto x = numbers<T>(rows * hidden, 1, 2);
  const auto gain = numbers<T>(hidden, 2);
  const auto gradient = numbers<T>(rows * hidden, 3);
  const std::vector<float> partial(static_cast<std::size_t>(cuda::RmsNormBackward<T>::blocks(rows) * hidden));
  check_body(
      "RmsNorm", [=](T* x_, T* gain_, T* y) { return cuda::RmsNorm<T>{x_, gain_, y, rows, hidden, 1e-5F}; }, x, gain, x);
  check_body(
      "RmsNormBackward",
      [=](T* x_, T* gain_, T* gradient_, T* residual, T* to, float* sums) {
        return cuda::RmsNormBackward<T>{x_, gain_, gradient_, residual, to, x_, sums, rows, hidden, 1e-5F};
      },
      x, gain, gradient, numbers<T>(rows * hidden, 4), numbers<T>(rows * hidden, 5), partial);
  check_body(
      "SumRows",
      [=](float* from, float* to) {
        return cuda::SumRows{from, rows, hidden, to};
      },
      numbers<float>(rows * hidden, 6), std::vector<float>(static_cast<std::size_t>(hidden)));
  check_body(
      "AddTo",
      [=](float* from, T* to) {
        return cuda::AddTo<T>{from, to, hidden};
      },
      numbers<float>(hidden, 7), gain);
}

template <class T, class G>
void check_look_up_backward(const std::vector<std::int32_t>& ids, std::int64_t hidden) {
  const auto tokens = static_cast<std::int64_t>(ids.size());
  check_body(
      "LookUpBackward",
      [=](const std::int32_t* id, const T* x, G* table, std::int32_t* places, float* runs) {
        return cuda::LookUpBackward<T, G>{id, x, table, reinterpret_cast<cuda::TokenPlace*>(places), runs, tokens, hidden};
      },
      ids, numbers<T>(tokens * hidden, 1), numbers<G>(17 * hidden, 2), std::vector<std::int32_t>(ids.size() * 4),
      std::vector<float>(static_cast<std::size_t>(tokens * hidden)));
}

template <class T>
void check_decoder(std::int64_t tokens, std::int64_t hidden) {
  const std::int64_t count = tokens * hidden;
  check_body(
      "Swiglu",
      [=](T* gate, T* up, T* to) {
        return cuda::Swiglu<T>{gate, up, to, count};
      },
      numbers<T>(count, 1, 4), numbers<T>(count, 2), numbers<T>(count, 3));
  check_body(
      "SwigluBackward",
      [=](T* gate, T* up, T* to) {
        return cuda::SwigluBackward<T>{gate, up, to, count};
      },
      numbers<T>(count, 1, 4), numbers<T>(count, 2), numbers<T>(count, 3));
  check_body(
      "CopyNumbers",
      [=](T* from, T* to) {
        return cuda::CopyNumbers<T>{from, to, count};
      },
      numbers<T>(count, 1), numbers<T>(count, 2));
  std::vector<std::int32_t> ids;
  for (std::int64_t t = 0; t < tokens; ++t) ids.push_back(static_cast<std::int32_t>(t * t % 17));
  check_body(
      "LookUp",
      [=](std::int32_t* id, T* table, T* x) {
        return cuda::LookUp<T>{id, table, x, tokens, hidden};
      },
      ids, numbers<T>(17 * hidden, 1), numbers<T>(count, 2));
  check_look_up_backward<T, T>(ids, hidden);
  check_look_up_backward<T, float>(ids, hidden);
  std::fill(ids.begin(), ids.begin() + tokens / 2, 5);  // padding, in runs where it is long enough
  check_look_up_backward<T, float>(ids, hidden);
}

template <class T>
void check_loss(std::int64_t rows, std::int64_t vocab) {
  const auto logits = numbers<T>(rows * vocab, 1, 6);
  std::vector<std::int32_t> targets;
  for (std::int64_t r = 0; r < rows; ++r) targets.push_back(static_cast<std::int32_t>(r * 5 % vocab));
  std::vector<float> sums(static_cast<std::size_t>(rows));
  check_body(
      "LogSumExp",
      [=](T* from, std::int32_t* target, float* to, float* wanted) {
        return cuda::LogSumExp<T>{from, target, to, wanted, rows, vocab};
      },
      logits, targets, sums, sums);
  std::vector<float> wanted = sums;
  cuda::run_on_host(cuda::LogSumExp<T>{logits.data(), targets.data(), sums.data(), wanted.data(), rows, vocab});
  check_body(  // as the second part of a larger vocabulary
      "LogSumExp of a part",
      [=](T* from, std::int32_t* target, float* to, float* logit) {
        return cuda::LogSumExp<T>{from, target, to, logit, rows, vocab, 3};
      },
      logits, targets, sums, wanted);
  check_body(
      "MeanLoss",
      [=](float* sum, float* logit, double* loss) {
        return cuda::MeanLoss{sum, logit, loss, rows};
      },
      sums, wanted, std::vector<double>(1));
  check_body(
      "CrossEntropyBackward",
      [=](T* from, float* sum, std::int32_t* target, float* scale) {
        return cuda::CrossEntropyBackward<T>{from, sum, target, rows, vocab, 0.5F, scale};
      },
      logits, sums, targets, std::vector<float>{8});
}

template <class T>
void check_attention(const cuda::HeadLayout& layout) {
  const std::int64_t tokens = layout.tokens();
  const auto qkv = numbers<T>(tokens * layout.width(), 1);
  const std::vector<T> output(static_cast<std::size_t>(tokens * layout.query_width()));
  const std::vector<float> rows(static_cast<std::size_t>(tokens * layout.heads));
  const std::int64_t turned = (layout.heads + layout.kv_heads) * layout.size;
  check_body(
      "Rotate",
      [=](T* from, T* to, float* table) {
        return cuda::Rotate<T>{from,
                               to,
                               table,
                               tokens,
                               layout.width(),
                               turned,
                               layout.width(),
                               layout.sequence,
                               static_cast<std::int32_t>(layout.size),
                               -1};
      },
      qkv, qkv, cuda::rotary_table(layout.sequence, layout.size, 1e4));
  check_body(
      "PlainAttention",
      [=](T* from, T* to, float* sums) {
        return cuda::PlainAttention<T>{from, to, sums, layout};
      },
      qkv, output, rows);
  const auto gradient = numbers<T>(tokens * layout.query_width(), 2);
  // The forward's own: by other sums, softmax's weights would not add up to 1 and roundings would grow with them.
  std::vector<T> out = output;
  std::vector<float> sums = rows;
  cuda::run_on_host(cuda::PlainAttention<T>{qkv.data(), out.data(), sums.data(), layout});
  check_body(
      "PlainAttentionQueries",
      [=](T* from, T* result, T* back, float* sum, T* to, float* products) {
        return cuda::PlainAttentionQueries<T>{from, result, back, sum, to, products, layout};
      },
      qkv, out, gradient, sums, qkv, rows);
  check_body(
      "PlainAttentionKeys",
      [=](T* from, T* back, float* sum, float* products, T* to) {
        return cuda::PlainAttentionKeys<T>{from, back, sum, products, to, layout};
      },
      qkv, gradient, sums, rows, qkv);
}

template <class T, class G>
void check_adamw(std::int64_t count, std::size_t begin) {
  cuda::AdamWFactors factors;
  factors.kept = 0.99F;
  factors.rate = 0.01F;
  factors.gradient_scale = 0.5F;
  auto square = numbers<float>(count, 5);
  for (float& v : square) v *= v;
  const Array<cuda::AdamWFactors> on_device{{factors}};
  bool host = true;  // the body runs on the host first
  check_body(
      "AdamW",
      [&](T* weights, G* gradients, float* master, float* mean, float* squares) {
        const cuda::AdamWFactors* at = host ? &factors : on_device.data();
        host = false;
        return cuda::AdamWBody<T, G>{weights + begin,
                                     gradients + begin,
                                     master + begin,
                                     mean + begin,
                                     squares + begin,
                                     count - static_cast<std::int64_t>(begin),
                                     at,
                                     0.9F,
                                     0.95F,
                                     0.1F,
                                     0.05F,
                                     1e-8F,
                                     true};
      },
      numbers<T>(count, 1), numbers<G>(count, 2), numbers<float>(count, 3), numbers<float>(count, 4), square);
}

template <class T>
void check_all() {
  check_norms<T>(700, 1024);
  check_norms<T>(20, 6 * 1024);  // in 16 bits two packs a thread
  check_norms<T>(9, 20);
  check_norms<T>(5, cuda::RmsNormBackward<T>::max_shared + 8);
  check_decoder<T>(300, 256);
  check_decoder<T>(37, 22);
  check_decoder<T>(40, 4104);
  check_loss<T>(33, 32000);
  check_loss<T>(33, 997);
  check_attention<T>({.sequence = 150, .sequences = 2, .heads = 4, .kv_heads = 2, .size = 64});
  check_attention<T>({.sequence = 9, .sequences = 1, .heads = 3, .kv_heads = 1, .size = 6});
  for (const std::size_t begin : {0, 1}) {
    check_adamw<T, T>(100003, begin);
    check_adamw<T, float>(1003, begin);
  }
}

}  // namespace

int main() {
  return run([] {
    check_all<float>();
    check_all<tawpipe::Bfloat16>();
    check_all<tawpipe::Half>();
  });
}
