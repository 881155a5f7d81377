// cuBLASLt's products and attention on a GPU against the plain code.
// Not: the host's exactness (tests/unit/layers/).
#include "layers_support.hpp"
#include "tawpipe/layers/cuda/cuda_math.hpp"

using namespace gpu_test;

namespace {

/// op(a) op(b) + c in double.
template <class T, class C>
std::vector<double> product(const cuda::Product& p, const std::vector<T>& a, const std::vector<T>& b, const std::vector<C>& c) {
  std::vector<double> d(c.size());
  for (std::int64_t i = 0; i < p.m; ++i) {
    for (std::int64_t j = 0; j < p.n; ++j) {
      double sum = p.add ? as_double(c[static_cast<std::size_t>(i * p.n + j)]) : 0;
      for (std::int64_t l = 0; l < p.k; ++l) {
        const auto at_a = static_cast<std::size_t>(p.a_transposed ? l * p.m + i : i * p.k + l);
        const auto at_b = static_cast<std::size_t>(p.b_transposed ? j * p.k + l : l * p.n + j);
        sum += as_double(a[at_a]) * as_double(b[at_b]);
      }
      d[static_cast<std::size_t>(i * p.n + j)] = sum;
    }
  }
  return d;
}

template <class T, class C>
void check_products() {
  cuda::MatrixProducts products;
  for (const bool add : {false, true}) {
    for (int transposed = 0; transposed < 3; ++transposed) {  // the three that a decoder needs
      for (const std::int64_t n : {96, 54}) {
        const cuda::Product p{.m = 64,
                              .n = n,
                              .k = 128,
                              .a_transposed = transposed == 2,
                              .b_transposed = transposed == 1,
                              .add = add,
                              .inputs = cuda::dtype_of<T>,
                              .result = cuda::dtype_of<C>};
        const auto a = numbers<T>(p.m * p.k, 1);
        const auto b = numbers<T>(p.k * p.n, 2);
        const auto c = numbers<C>(p.m * p.n, 3);
        const Array<T> device_a{a};
        const Array<T> device_b{b};
        const Array<C> device_c{c};
        const Array<C> apart{c};
        for (int time = 0; time < 2; ++time)
          products.multiply(p, device_a.data(), device_b.data(), device_c.data(), apart.data(), nullptr);
        products.multiply(p, device_a.data(), device_b.data(), device_c.data(), device_c.data(), nullptr);
        wait();
        const auto wanted = product(p, a, b, c);
        // Sums of 128 products are about 4: C's rounding of them.
        const double most = std::max(tolerance<C>, 1e-5);
        expect(difference(apart.copy(), wanted) < most, "product into other memory", difference(apart.copy(), wanted));
        expect(difference(device_c.copy(), wanted) < most, "product in place", difference(device_c.copy(), wanted));
      }
    }
  }
}

/// Fused attention against the plain kernels.
template <class T>
void check_attention(const cuda::HeadLayout& layout) {
  if (!cuda::FusedAttention::right(cudnnGetVersion(), layout.sequence)) return;
  cudnnHandle_t made = nullptr;
  cuda::check(cudnnCreate(&made), "cudnnCreate");
  const cuda::Owned<cudnnHandle_t, cudnnDestroy> handle{made};
  auto fused = cuda::FusedAttention::make(layout, cuda::dtype_of<T>, {.handle = made});
  expect(fused.has_value(), "cuDNN takes this attention");
  if (!fused) return;
  const std::int64_t tokens = layout.tokens();
  const auto numbers_of_output = static_cast<std::size_t>(tokens * layout.query_width());
  const Array<T> qkv{numbers<T>(tokens * layout.width(), 1)};
  const Array<T> gradient{numbers<T>(tokens * layout.query_width(), 2)};
  const Array<T> output{std::vector<T>(numbers_of_output)};
  const Array<T> plain_output{std::vector<T>(numbers_of_output)};
  const std::vector<float> rows(static_cast<std::size_t>(tokens * layout.heads));
  const Array<float> sums{rows};
  const Array<float> plain_sums{rows};
  const Array<float> products{rows};
  const Array<T> back{qkv.copy()};
  const Array<T> plain_back{qkv.copy()};
  const cuda::DeviceMemory workspace{std::max(fused->forward_workspace(), fused->backward_workspace())};
  std::printf("attention: cuDNN's workspace is %lld bytes forward, %lld backward\n",
              static_cast<long long>(fused->forward_workspace()), static_cast<long long>(fused->backward_workspace()));
  fused->forward(made, qkv.data(), output.data(), sums.data(), workspace.as<std::byte>());
  cuda::launch(cuda::PlainAttention<T>{qkv.data(), plain_output.data(), plain_sums.data(), layout}, nullptr);
  fused->backward(made, qkv.data(), output.data(), gradient.data(), sums.data(), back.data(), workspace.as<std::byte>());
  cuda::launch(cuda::PlainAttentionQueries<T>{qkv.data(), plain_output.data(), gradient.data(), plain_sums.data(),
                                              plain_back.data(), products.data(), layout},
               nullptr);
  cuda::launch(
      cuda::PlainAttentionKeys<T>{qkv.data(), gradient.data(), plain_sums.data(), products.data(), plain_back.data(), layout},
      nullptr);
  wait();
  // Fused kernels round probabilities, and the scores' gradients, to T before they multiply them.
  const double most = 8 * tolerance<T>;
  expect(difference(sums.copy(), plain_sums.copy()) < 1e-4, "attention's sums", difference(sums.copy(), plain_sums.copy()));
  expect(difference(output.copy(), plain_output.copy()) < most, "attention", difference(output.copy(), plain_output.copy()));
  expect(difference(back.copy(), plain_back.copy()) < most, "attention's gradients", difference(back.copy(), plain_back.copy()));
}

template <class T>
void check_attentions() {
  check_attention<T>({.sequence = 512, .sequences = 2, .heads = 8, .kv_heads = 8, .size = 64});
  check_attention<T>({.sequence = 512, .sequences = 1, .heads = 8, .kv_heads = 2, .size = 128});
  check_attention<T>({.sequence = 200, .sequences = 2, .heads = 4, .kv_heads = 2, .size = 32});
}

/// The versions of cuDNN whose attention is known to be wrong are left to the plain kernels.
void check_versions() {
  const auto right = cuda::FusedAttention::right;
  expect(right(91900, 200) && right(91501, 200), "any sequence from 9.15.1 on");
  expect(right(91500, 512) && !right(91500, 200), "multiples of 128 up to 9.15.0");
  expect(right(91002, 512) && !right(91001, 512) && !right(91000, 512), "9.10.0 and 9.10.1");
  expect(right(90600, 128) && !right(90501, 128), "9.6 and before");
}

}  // namespace

int main() {
  return run([] {
    check_products<float, float>();
    check_products<tawpipe::Bfloat16, tawpipe::Bfloat16>();
    check_products<tawpipe::Bfloat16, float>();
    check_products<tawpipe::Half, tawpipe::Half>();
    check_products<tawpipe::Half, float>();
    check_attentions<tawpipe::Bfloat16>();
    check_attentions<tawpipe::Half>();
    check_versions();
  });
}
