// Matrix products on a GPU by cuBLASLt: each shape's algorithm is chosen once, by its heuristic or
// by trying several.
// Not: which products a decoder needs (decoder_layer.hpp).
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/layers/cuda/check.hpp"
#include "tawpipe/model/dtype.hpp"

namespace tawpipe::inline v0::layers::cuda {

/// D = op(A) op(B) + C, all row-major without gaps: op(A) is [m, k], op(B) [k, n], C and D [m, n].
/// Or several at once, of the same shape.
struct Product {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool a_transposed = false;  ///< A is stored as [k, m]
  bool b_transposed = false;  ///< B is stored as [n, k]
  bool add = false;           ///< add C; otherwise it is not read
  Dtype inputs = Dtype::bf16;
  Dtype result = Dtype::bf16;  ///< of C and D: of the inputs, or f32
  std::int32_t at_once = 1;

  auto operator<=>(const Product&) const = default;
};

/// The addresses of a product's matrices. For several at once: the distance in numbers between
/// them; 0: one for all.
struct Matrices {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;  ///< with the distance of d
  void* d = nullptr;
  std::int64_t a_step = 0;
  std::int64_t b_step = 0;
  std::int64_t d_step = 0;
};

/// Algorithms found by trial, for all MatrixProducts that share this: a product has the same bits
/// in all of them. The choice depends on measured times, so bits may differ from one run of a
/// program to the next. Any thread may use it.
class ProductChoices {
 public:
  /// The algorithm for a product on a kind of GPU. @param find  finds it if not yet known; called
  /// by one thread at a time
  template <class Find>
  cublasLtMatmulAlgo_t get(const std::string& gpu, const Product& product, Find&& find) {
    const std::lock_guard lock{mutex_};
    const auto known = known_.find({gpu, product});
    if (known != known_.end()) return known->second;
    return known_.emplace(std::pair{gpu, product}, find()).first->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<std::string, Product>, cublasLtMatmulAlgo_t> known_;
};

/// Multiplies with sums in float32 (never TF32). An object is used by one stream at a time, whose
/// products share its workspace.
///
/// The first product of a shape queries cuBLASLt's heuristic, on the host, and keeps its result:
/// run a shape once before capturing it into a graph. Rows may have any alignment; 16 bytes are
/// needed for speed, and no more.
class MatrixProducts {
 public:
  /// as needed by Hopper's algorithms
  static constexpr std::int64_t workspace_bytes = std::int64_t{32} << 20;

  /// @param choices  must outlive this; null: no trials (`prepare`), always the heuristic's first
  /// result
  /// @throws DeviceError  if cuBLASLt or memory is unavailable.
  explicit MatrixProducts(ProductChoices* choices = nullptr) : choices_{choices}, workspace_{workspace_bytes} {
    cublasLtHandle_t handle = nullptr;
    check(cublasLtCreate(&handle), "cublasLtCreate");
    handle_ = Owned<cublasLtHandle_t, cublasLtDestroy>{handle};
    if (choices_ == nullptr) return;
    int device = 0;
    cudaDeviceProp properties{};
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    gpu_ = concat(properties.name, " of ", properties.multiProcessorCount);
  }

  /// c may be d. @throws DeviceError  if no algorithm supports the product, or it fails to start.
  void multiply(const Product& product, const void* a, const void* b, const void* c, void* d, cudaStream_t stream) {
    multiply(product, Matrices{a, b, c, d}, stream);
  }
  void multiply(const Product& product, const Matrices& on, cudaStream_t stream) { run(plan_of(product, on), on, stream); }

  /// If choices are shared: tries the heuristic's results for a product in its own memory, if not
  /// yet done, and from then on takes the fastest. Waits for the device. Without memory for trials,
  /// or for addresses that are not aligned to 16 bytes, the first result is kept.
  void prepare(const Product& product) {
    if (choices_ == nullptr || known(product, max_alignment) != nullptr) return;
    Plan plan = describe(product, max_alignment);
    plan.algorithm = choices_->get(gpu_, product, [&] { return fastest(plan); });
    plans_.push_back(std::move(plan));
  }

 private:
  using Operation = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
  using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
  using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

  static constexpr std::uint32_t max_alignment = 16;

  struct Plan {
    Product product;
    std::uint32_t alignment = 0;
    Operation operation;
    Layout a, b, result;
    std::array<std::int64_t, 3> steps{};  ///< of the layouts
    cublasLtMatmulAlgo_t algorithm{};
  };

  static cudaDataType_t type_of(Dtype dtype) {
    if (dtype == Dtype::f32) return CUDA_R_32F;
    return dtype == Dtype::f16 ? CUDA_R_16F : CUDA_R_16BF;
  }
  static std::int64_t bytes_of(Dtype dtype, std::int64_t numbers) { return numbers * (dtype == Dtype::f32 ? 4 : 2); }
  /// The largest power of two up to 16 that divides all addresses.
  static std::uint32_t common_alignment(const Product& product, const Matrices& on) {
    std::uintptr_t bits = max_alignment;
    for (const void* const at : {on.a, on.b, product.add ? on.c : on.d, const_cast<const void*>(on.d)}) {
      bits |= reinterpret_cast<std::uintptr_t>(at);
    }
    bits |= static_cast<std::uintptr_t>(bytes_of(product.inputs, on.a_step | on.b_step) | bytes_of(product.result, on.d_step));
    return static_cast<std::uint32_t>(bits & (~bits + 1));
  }
  static Layout layout(Dtype dtype, std::int64_t rows, std::int64_t columns) {
    cublasLtMatrixLayout_t layout = nullptr;
    check(cublasLtMatrixLayoutCreate(&layout, type_of(dtype), static_cast<std::uint64_t>(rows),
                                     static_cast<std::uint64_t>(columns), rows),
          "cublasLtMatrixLayoutCreate");
    return Layout{layout};
  }
  template <class Value>
  static void prefer(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute");
  }

  static void set_batch(const Layout& layout, std::int32_t count, std::int64_t step) {
    check(cublasLtMatrixLayoutSetAttribute(layout.get(), CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)),
          "cublasLtMatrixLayoutSetAttribute");
    check(cublasLtMatrixLayoutSetAttribute(layout.get(), CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof(step)),
          "cublasLtMatrixLayoutSetAttribute");
  }
  static void set_steps(Plan& plan, const std::array<std::int64_t, 3>& steps) {
    if (plan.product.at_once == 1 || plan.steps == steps) return;
    set_batch(plan.a, plan.product.at_once, steps[0]);
    set_batch(plan.b, plan.product.at_once, steps[1]);
    set_batch(plan.result, plan.product.at_once, steps[2]);
    plan.steps = steps;
  }

  cublasStatus_t start(Plan& plan, const Matrices& on, const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream) {
    set_steps(plan, {on.a_step, on.b_step, on.d_step});
    const float one = 1;
    const float beta = plan.product.add ? 1 : 0;
    const void* const c = plan.product.add ? on.c : on.d;
    // Row-major matrices are the transposes of those cuBLASLt sees: D^T = op(B)^T op(A)^T + C^T.
    return cublasLtMatmul(handle_.get(), plan.operation.get(), &one, on.b, plan.b.get(), on.a, plan.a.get(), &beta, c,
                          plan.result.get(), on.d, plan.result.get(), &algorithm, workspace_.as<void>(),
                          static_cast<std::size_t>(workspace_bytes), stream);
  }
  void run(Plan& plan, const Matrices& on, cudaStream_t stream) {
    check(start(plan, on, plan.algorithm, stream), "cublasLtMatmul");
  }

  Plan* known(const Product& product, std::uint32_t alignment) {
    for (Plan& plan : plans_) {
      if (plan.product == product && plan.alignment == alignment) return &plan;
    }
    return nullptr;
  }
  Plan& plan_of(const Product& product, const Matrices& on) {
    const std::uint32_t alignment = common_alignment(product, on);
    if (Plan* const plan = known(product, alignment)) return *plan;
    Plan plan = describe(product, alignment);
    plan.algorithm = answers(plan, 1).front().algo;
    plans_.push_back(std::move(plan));
    return plans_.back();
  }
  /// Without an algorithm, which is queried with all matrices contiguous, whatever their later
  /// distance.
  Plan describe(const Product& product, std::uint32_t alignment) const {
    Plan plan;
    plan.product = product;
    plan.alignment = alignment;
    cublasLtMatmulDesc_t operation = nullptr;
    check(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    plan.operation = Operation{operation};
    const auto transpose = [&](cublasLtMatmulDescAttributes_t attribute, bool transposed) {
      const cublasOperation_t value = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
      check(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof(value)), "cublasLtMatmulDescSetAttribute");
    };
    transpose(CUBLASLT_MATMUL_DESC_TRANSA, product.b_transposed);  // its first operand is our second
    transpose(CUBLASLT_MATMUL_DESC_TRANSB, product.a_transposed);
    plan.a = product.a_transposed ? layout(product.inputs, product.m, product.k) : layout(product.inputs, product.k, product.m);
    plan.b = product.b_transposed ? layout(product.inputs, product.k, product.n) : layout(product.inputs, product.n, product.k);
    plan.result = layout(product.result, product.n, product.m);
    set_steps(plan, {product.m * product.k, product.k * product.n, product.m * product.n});
    return plan;
  }
  /// The heuristic's results, the best guess first. @return at least one
  std::vector<cublasLtMatmulHeuristicResult_t> answers(const Plan& plan, int most) const {
    cublasLtMatmulPreference_t made = nullptr;
    check(cublasLtMatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate");
    const Preference preference{made};
    prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(workspace_bytes));
    prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, plan.alignment);
    prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, plan.alignment);
    prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, plan.alignment);
    prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, plan.alignment);
    std::vector<cublasLtMatmulHeuristicResult_t> all(static_cast<std::size_t>(most));
    int found = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle_.get(), plan.operation.get(), plan.b.get(), plan.a.get(), plan.result.get(),
                                       plan.result.get(), preference.get(), most, all.data(), &found);
    if (status != CUBLAS_STATUS_SUCCESS || found == 0) {
      const Product& product = plan.product;
      throw DeviceError(concat("cuBLASLt has no algorithm for [", product.m, ", ", product.k, "] x [", product.k, ", ", product.n,
                               "] of ", name(product.inputs), " into ", name(product.result), " from addresses aligned to ",
                               plan.alignment, " bytes: ", cublasLtGetStatusString(status)));
    }
    all.resize(static_cast<std::size_t>(found));
    return all;
  }

  /// The best of the heuristic's results, by the least time of several runs each.
  cublasLtMatmulAlgo_t fastest(Plan& plan) {
    const std::vector<cublasLtMatmulHeuristicResult_t> all = answers(plan, 8);
    const Product& product = plan.product;
    std::array<DeviceMemory, 3> memory;
    try {
      const auto take = [&](Dtype type, std::int64_t numbers) {
        DeviceMemory one{bytes_of(type, numbers * product.at_once)};
        // 0.01, in float16 1: a GPU that multiplies zeros runs faster.
        check(cudaMemsetAsync(one.as<void>(), 0x3c, static_cast<std::size_t>(one.bytes()), nullptr), "cudaMemsetAsync");
        return one;
      };
      memory = {take(product.inputs, product.m * product.k), take(product.inputs, product.k * product.n),
                take(product.result, product.m * product.n)};
    } catch (const DeviceError&) {
      return all.front().algo;
    }
    const Matrices on{memory[0].as<void>(),  memory[1].as<void>(),  memory[2].as<void>(), memory[2].as<void>(),
                      product.m * product.k, product.k * product.n, product.m * product.n};
    std::array<Owned<cudaEvent_t, cudaEventDestroy>, 2> events;
    for (auto& event : events) {
      cudaEvent_t made = nullptr;
      check(cudaEventCreateWithFlags(&made, cudaEventDefault), "cudaEventCreateWithFlags");
      event = Owned<cudaEvent_t, cudaEventDestroy>{made};
    }
    float least = std::numeric_limits<float>::infinity();
    cublasLtMatmulAlgo_t best = all.front().algo;
    for (const cublasLtMatmulHeuristicResult_t& one : all) {
      float time = std::numeric_limits<float>::infinity();
      for (int round = 0; round < 5; ++round) {  // the first warms up
        check(cudaEventRecord(events[0].get(), nullptr), "cudaEventRecord");
        if (start(plan, on, one.algo, nullptr) != CUBLAS_STATUS_SUCCESS) break;
        check(cudaEventRecord(events[1].get(), nullptr), "cudaEventRecord");
        check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
        float milliseconds = 0;
        check(cudaEventElapsedTime(&milliseconds, events[0].get(), events[1].get()), "cudaEventElapsedTime");
        if (round > 0) time = std::min(time, milliseconds);
      }
      if (time >= least) continue;
      least = time;
      best = one.algo;
    }
    return best;
  }

  ProductChoices* choices_;
  std::string gpu_;
  Owned<cublasLtHandle_t, cublasLtDestroy> handle_;
  DeviceMemory workspace_;
  std::vector<Plan> plans_;
};

}  // namespace tawpipe::layers::cuda
