// Matrix products on a GPU by cuBLASLt: each shape's algorithm is chosen once.
// Not: which products a decoder needs (decoder_layer.hpp).
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/layers/cuda/check.hpp"
#include "tawpipe/model/dtype.hpp"

namespace tawpipe::inline v0::layers::cuda {

/// D = op(A) op(B) + C, all row-major without gaps: op(A) is [m, k], op(B) [k, n], C and D [m, n].
struct Product {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool a_transposed = false;  ///< A lies in memory as [k, m]
  bool b_transposed = false;  ///< B lies in memory as [n, k]
  bool add = false;           ///< C counts; otherwise it is not read
  Dtype inputs = Dtype::bf16;
  Dtype result = Dtype::bf16;  ///< of C and D: of the inputs, or f32

  bool operator==(const Product&) const = default;
};

/// Multiplies with sums in float32 (never TF32). An object belongs to one stream at a time, whose products share its workspace.
///
/// The first product of a shape asks cuBLASLt's heuristic, on the host, and keeps its answer: run a shape once before capturing
/// it into a graph. Rows are read from any alignment; 16 bytes are needed for speed.
class MatrixProducts {
 public:
  static constexpr std::int64_t workspace_bytes = std::int64_t{32} << 20;  ///< what Hopper's algorithms ask for

  /// @throws DeviceError  if cuBLASLt or memory is not to be had.
  MatrixProducts() : workspace_{workspace_bytes} {
    cublasLtHandle_t handle = nullptr;
    check(cublasLtCreate(&handle), "cublasLtCreate");
    handle_ = Owned<cublasLtHandle_t, cublasLtDestroy>{handle};
  }

  /// c may be d. @throws DeviceError  if no algorithm takes the product, or it fails to start.
  void multiply(const Product& product, const void* a, const void* b, const void* c, void* d, cudaStream_t stream) {
    if (!product.add) c = d;
    const Plan& plan = plan_of(product, common_alignment(a, b, c, d));
    const float one = 1;
    const float beta = product.add ? 1 : 0;
    // Row-major matrices are the transposes of what cuBLASLt sees: D^T = op(B)^T op(A)^T + C^T.
    check(cublasLtMatmul(handle_.get(), plan.operation.get(), &one, b, plan.b.get(), a, plan.a.get(), &beta, c, plan.result.get(),
                         d, plan.result.get(), &plan.algorithm, workspace_.as<void>(), static_cast<std::size_t>(workspace_bytes),
                         stream),
          "cublasLtMatmul");
  }

 private:
  using Operation = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
  using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
  using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

  struct Plan {
    Product product;
    std::uint32_t alignment = 0;
    Operation operation;
    Layout a, b, result;
    cublasLtMatmulAlgo_t algorithm{};
  };

  static cudaDataType_t type_of(Dtype dtype) {
    if (dtype == Dtype::f32) return CUDA_R_32F;
    return dtype == Dtype::f16 ? CUDA_R_16F : CUDA_R_16BF;
  }
  /// The largest power of two up to 256 that divides all addresses.
  static std::uint32_t common_alignment(const void* a, const void* b, const void* c, const void* d) {
    const auto bits = reinterpret_cast<std::uintptr_t>(a) | reinterpret_cast<std::uintptr_t>(b) |
                      reinterpret_cast<std::uintptr_t>(c) | reinterpret_cast<std::uintptr_t>(d) | 256U;
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

  const Plan& plan_of(const Product& product, std::uint32_t alignment) {
    for (const Plan& plan : plans_) {
      if (plan.product == product && plan.alignment == alignment) return plan;
    }
    plans_.push_back(make_plan(product, alignment));
    return plans_.back();
  }
  Plan make_plan(const Product& product, std::uint32_t alignment) const {
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

    cublasLtMatmulPreference_t made = nullptr;
    check(cublasLtMatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate");
    const Preference preference{made};
    prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(workspace_bytes));
    prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment);
    prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
    prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment);
    prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle_.get(), operation, plan.b.get(), plan.a.get(), plan.result.get(), plan.result.get(),
                                       preference.get(), 1, &best, &found);
    if (status != CUBLAS_STATUS_SUCCESS || found == 0) {
      throw DeviceError(concat("cuBLASLt has no algorithm for [", product.m, ", ", product.k, "] x [", product.k, ", ", product.n,
                               "] of ", name(product.inputs), " into ", name(product.result), " from addresses aligned to ",
                               alignment, " bytes: ", cublasLtGetStatusString(status)));
    }
    plan.algorithm = best.algo;
    return plan;
  }

  Owned<cublasLtHandle_t, cublasLtDestroy> handle_;
  DeviceMemory workspace_;
  std::vector<Plan> plans_;
};

}  // namespace tawpipe::layers::cuda
