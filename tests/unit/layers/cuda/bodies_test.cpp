// The bodies of the GPU's kernels, on a host with one thread and with three: against layers/host,
// and in 16 bits against the same in float, rounded.
// Not: their place in a decoder (decoder_test.cpp), the embedding's (embedding_bodies_test.cpp), the
// optimizer's (adamw_bodies_test.cpp), nor a GPU (tests/gpu/).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "support/kernel_numbers.hpp"
#include "support/threaded_block.hpp"
#include "tawpipe/layers/cuda/decoder_bodies.hpp"
#include "tawpipe/layers/cuda/loss_bodies.hpp"
#include "tawpipe/layers/cuda/norm_bodies.hpp"
#include "tawpipe/layers/cuda/plain_attention.hpp"
#include "tawpipe/layers/cuda/rotary_table.hpp"
#include "tawpipe/layers/host/attention.hpp"
#include "tawpipe/layers/host/kernels.hpp"

namespace {

namespace cuda = tawpipe::layers::cuda;
namespace host = tawpipe::layers::host;
using cuda::widen;
using support::check_near;
using support::numbers;
using support::wide;
using tawpipe::Bfloat16;
using tawpipe::Half;

/// Runs with one thread, and with three in another copy of what it writes: the same but for the
/// order of sums.
template <class T, class Make>
std::vector<T> both_ways(const std::vector<T>& start, const Make& make) {
  std::vector<T> alone = start;
  std::vector<T> together = start;
  cuda::run_on_host(make(alone.data()));
  support::run_with_threads(make(together.data()), 3);
  check_near(together, alone);
  return alone;
}

constexpr std::int64_t row_count = 7;

template <class T>
void check_norms(std::int64_t hidden) {
  CAPTURE(hidden);
  const auto x = numbers<T>(row_count * hidden, 1, 2);
  const auto gain = numbers<T>(hidden, 2);
  const auto y = both_ways(std::vector<T>(x.size()),
                           [&](T* to) { return cuda::RmsNorm<T>{x.data(), gain.data(), to, row_count, hidden, 1e-5F}; });
  std::vector<float> wanted(x.size());
  host::rms_norm(wide(x).data(), wide(gain).data(), wanted.data(), row_count, hidden, 1e-5F);
  check_near(y, wanted);

  const auto gradient = numbers<T>(row_count * hidden, 3);
  const auto residual = numbers<T>(row_count * hidden, 4);
  auto back = wide(gradient);
  std::vector<float> gain_gradient(static_cast<std::size_t>(hidden));
  host::rms_norm_backward(wide(x).data(), wide(gain).data(), back.data(), gain_gradient.data(), row_count, hidden, 1e-5F);
  std::vector<float> partial(static_cast<std::size_t>(cuda::RmsNormBackward<T>::blocks(row_count) * hidden));
  const auto plain = both_ways(std::vector<T>(x.size()), [&](T* to) {
    return cuda::RmsNormBackward<T>{x.data(), gain.data(),    gradient.data(), nullptr, to,
                                    nullptr,  partial.data(), row_count,       hidden,  1e-5F};
  });
  check_near(plain, back);
  const auto sums = both_ways(std::vector<float>(gain_gradient.size()), [&](float* to) {
    return cuda::SumRows{partial.data(), cuda::RmsNormBackward<T>::blocks(row_count), hidden, to};
  });
  check_near(sums, gain_gradient);

  // With a residual, over the gradient that the caller keeps elsewhere: over x.
  for (std::size_t i = 0; i < back.size(); ++i) back[i] += widen(residual[i]);
  std::vector<T> keep = x;
  std::vector<T> to = gradient;
  const auto other = numbers<T>(row_count * hidden, 5);
  cuda::run_on_host(cuda::RmsNormBackward<T>{keep.data(), gain.data(), gradient.data(), residual.data(), to.data(), keep.data(),
                                             partial.data(), row_count, hidden, 1e-5F});
  check_near(to, back);
  CHECK(wide(keep) == wide(gradient));
}

template <class T>
void check_elementwise(std::int64_t count) {
  CAPTURE(count);
  const auto gate = numbers<T>(count, 1, 4);
  const auto up = numbers<T>(count, 2, 2);
  const auto gradient = numbers<T>(count, 3);
  auto g = wide(gate);
  auto u = wide(up);
  std::vector<float> sigmoid(gate.size());
  std::vector<float> wanted(gate.size());
  host::swiglu(g.data(), u.data(), sigmoid.data(), wanted.data(), count);
  check_near(both_ways(std::vector<T>(gate.size()),
                       [&](T* to) {
                         return cuda::Swiglu<T>{gate.data(), up.data(), to, count};
                       }),
             wanted);
  host::swiglu_backward(g.data(), u.data(), sigmoid.data(), wide(gradient).data(), count);
  std::vector<T> up_gradient = up;
  std::vector<T> gate_gradient = gate;
  support::run_with_threads(cuda::SwigluBackward<T>{gate_gradient.data(), up_gradient.data(), gradient.data(), count}, 3);
  check_near(gate_gradient, g);
  check_near(up_gradient, u);
  CHECK(wide(both_ways(std::vector<T>(gate.size()), [&](T* to) {
          return cuda::CopyNumbers<T>{gate.data(), to, count};
        })) == wide(gate));
}

template <class T>
void check_loss(std::int64_t vocab) {
  CAPTURE(vocab);
  const auto logits = numbers<T>(row_count * vocab, 1, 6);
  std::vector<std::int32_t> targets;
  for (std::int64_t r = 0; r < row_count; ++r) targets.push_back(static_cast<std::int32_t>(r * 5 % vocab));
  std::vector<float> target_logits(row_count);
  const auto sums = both_ways(std::vector<float>(row_count), [&](float* to) {
    return cuda::LogSumExp<T>{logits.data(), targets.data(), to, target_logits.data(), row_count, vocab};
  });
  auto softmax = wide(logits);
  const double wanted = host::cross_entropy(softmax.data(), targets.data(), row_count, vocab);
  double loss = 0;
  support::run_with_threads(cuda::MeanLoss{sums.data(), target_logits.data(), &loss, row_count}, 3);
  CHECK(std::abs(loss - wanted) < 2e-6);
  host::cross_entropy_backward(softmax.data(), targets.data(), row_count, vocab, 0.5);
  const float scale = 16;
  for (float& p : softmax) p *= scale;
  const auto gradient = both_ways(logits, [&](T* to) {
    return cuda::CrossEntropyBackward<T>{to, sums.data(), targets.data(), row_count, vocab, 0.5F / row_count, &scale};
  });
  check_near(gradient, softmax);

  // In two parts of the vocabulary.
  const std::int64_t cut = vocab / 3 + 1;
  std::vector<float> sums_of_parts(row_count);
  std::vector<float> logits_of_parts(row_count);
  for (const auto& [begin, end] : {std::pair{std::int64_t{0}, cut}, std::pair{cut, vocab}}) {
    std::vector<T> part;
    for (std::int64_t r = 0; r < row_count; ++r) {
      part.insert(part.end(), logits.begin() + (r * vocab + begin), logits.begin() + (r * vocab + end));
    }
    support::run_with_threads(cuda::LogSumExp<T>{part.data(), targets.data(), sums_of_parts.data(), logits_of_parts.data(),
                                                 row_count, end - begin, begin},
                              3);
    support::run_with_threads(cuda::CrossEntropyBackward<T>{part.data(), sums.data(), targets.data(), row_count, end - begin,
                                                            0.5F / row_count, &scale, begin},
                              3);
    for (std::int64_t r = 0; r < row_count; ++r) {
      for (std::int64_t v = begin; v < end; ++v) {
        CHECK(cuda::widen(part[static_cast<std::size_t>(r * (end - begin) + v - begin)]) ==
              cuda::widen(gradient[static_cast<std::size_t>(r * vocab + v)]));
      }
    }
  }
  CHECK(logits_of_parts == target_logits);
  for (std::size_t r = 0; r < sums.size(); ++r) CHECK(std::abs(sums_of_parts[r] - sums[r]) < 2e-6F * (1 + std::abs(sums[r])));
}

/// Rotation and attention of a layout, against the host's.
template <class T>
void check_attention(const cuda::HeadLayout& layout) {
  CAPTURE(layout.size);
  const tawpipe::Transformer model{.layers = 1,
                                   .hidden = 64,
                                   .heads = static_cast<int>(layout.heads),
                                   .kv_heads = static_cast<int>(layout.kv_heads),
                                   .intermediate = 128,
                                   .vocab = 8,
                                   .dtype = tawpipe::Dtype::f32,
                                   .head_dim = static_cast<int>(layout.size)};
  const tawpipe::Batch batch{.sequence = layout.sequence, .microbatch_size = layout.sequences, .global_batch = layout.sequences};
  const host::Attention<float> attention{model, batch, {.rope_theta = 100}};
  const std::int64_t tokens = layout.tokens();
  const std::int64_t query = layout.query_width();
  const auto given = numbers<T>(tokens * layout.width(), 1);
  const auto table = cuda::rotary_table(layout.sequence, layout.size, 100);
  const std::int64_t turned = (layout.heads + layout.kv_heads) * layout.size;
  const auto rotate = [&](const T* from, T* to, std::int64_t stored, float direction) {
    return cuda::Rotate<T>{from,
                           to,
                           table.data(),
                           tokens,
                           layout.width(),
                           turned,
                           stored,
                           layout.sequence,
                           static_cast<std::int32_t>(layout.size),
                           direction};
  };
  const auto qkv = both_ways(given, [&](T* to) { return rotate(to, to, turned, 1); });
  auto wanted = wide(given);
  attention.rotate(wanted.data());
  check_near(qkv, wanted);

  std::vector<float> workspace(static_cast<std::size_t>(std::max(attention.forward_workspace(), attention.backward_workspace())));
  std::vector<float> output(static_cast<std::size_t>(tokens * query));
  auto exact = wide(qkv);
  attention.forward(exact.data(), output.data(), workspace.data());
  std::vector<float> sums(static_cast<std::size_t>(tokens * layout.heads));
  const auto ours = both_ways(std::vector<T>(output.size()), [&](T* to) {
    return cuda::PlainAttention<T>{qkv.data(), to, sums.data(), layout};
  });
  check_near(ours, output);

  const auto gradient = numbers<T>(tokens * query, 2);
  attention.backward(exact.data(), wide(gradient).data(), workspace.data());
  std::vector<float> products(sums.size());
  std::vector<T> back(qkv.size());
  support::run_with_threads(
      cuda::PlainAttentionQueries<T>{qkv.data(), ours.data(), gradient.data(), sums.data(), back.data(), products.data(), layout},
      3);
  support::run_with_threads(
      cuda::PlainAttentionKeys<T>{qkv.data(), gradient.data(), sums.data(), products.data(), back.data(), layout}, 3);
  std::vector<T> turned_back(back.size());
  cuda::run_on_host(rotate(back.data(), turned_back.data(), layout.width(), -1));
  check_near(turned_back, exact, 2);  // a rounding before the rotation, and one after it
}

template <class T>
void check_all() {
  for (const std::int64_t hidden : {96, 48, 20, 16, 6, 3, 1}) check_norms<T>(hidden);  // sums in registers up to 2 packs a thread
  for (const std::int64_t count : {320, 50}) check_elementwise<T>(count);
  for (const std::int64_t vocab : {48, 37}) check_loss<T>(vocab);
  check_attention<T>({.sequence = 13, .sequences = 2, .heads = 4, .kv_heads = 2, .size = 8});
  check_attention<T>({.sequence = 9, .sequences = 1, .heads = 3, .kv_heads = 1, .size = 6});
}

}  // namespace

TEST_CASE("norms, SwiGLU, loss, rotation and attention are the host's") {
  check_all<float>();
  check_all<Bfloat16>();
  check_all<Half>();
}

TEST_CASE("attention over more keys than a tile") {
  check_attention<float>({.sequence = 300, .sequences = 1, .heads = 2, .kv_heads = 1, .size = 8});
}

TEST_CASE("a wide norm keeps its sums outside the memory in common") {
  const std::int64_t hidden = cuda::RmsNormBackward<float>::max_shared + 4;
  const cuda::RmsNormBackward<float> one_row{nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, 1, hidden, 1e-5F};
  CHECK(one_row.grid().shared == 0);
  check_norms<float>(hidden);
}
