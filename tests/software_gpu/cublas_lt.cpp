// libcublasLt on the host: those of its functions that the library calls, as cuBLAS documents them.
// Not: an algorithm of cuBLAS; there are three, which read and write as their descriptors say and
// sum in float32. The first takes SOFTWARE_GPU_CUBLAS_FIRST_MS milliseconds more than the second,
// which sums in two halves and so has other bits; the third does not start.
#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "enqueue.hpp"
#include "numbers.hpp"

namespace {

using software_gpu::Type;

struct Operation {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t transpose_a = CUBLAS_OP_N;
  cublasOperation_t transpose_b = CUBLAS_OP_N;
};
struct Layout {
  cudaDataType_t type;
  std::int64_t rows, columns, leading;  ///< column-major: `leading` numbers from a column to the next
  std::int32_t batch = 1;               ///< matrices
  std::int64_t step = 0;                ///< numbers from one to the next
};
struct Preference {
  std::uint64_t workspace = 0;
  std::array<std::uint32_t, 4> alignment{256, 256, 256, 256};  ///< of A, B, C and D, bytes
};
/// What lies in a cublasLtMatmulAlgo_t.
struct Algorithm {
  std::uint64_t known;
  std::array<std::uint32_t, 4> alignment;
  std::uint64_t workspace;
  std::uint32_t types;
  std::uint32_t number;  ///< 0, 1, 2
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));
constexpr std::uint64_t ours = 0x736f667477617265;

template <class Object, class Handle>
const Object* of(Handle handle) {
  return reinterpret_cast<const Object*>(handle);
}

std::optional<Type> type_of(cudaDataType_t type) {
  if (type == CUDA_R_32F) return Type::f32;
  if (type == CUDA_R_16F) return Type::f16;
  if (type == CUDA_R_16BF) return Type::bf16;
  return {};
}

/// D [m, n] = alpha op(A) [m, k] op(B) [k, n] + beta C.
struct Product {
  Operation operation;
  Layout a, b, c, d;

  std::int64_t m() const { return d.rows; }
  std::int64_t n() const { return d.columns; }
  std::int64_t k() const { return operation.transpose_a == CUBLAS_OP_N ? a.columns : a.rows; }
  std::uint32_t types() const {
    return static_cast<std::uint32_t>(a.type) | static_cast<std::uint32_t>(d.type) << 8 |
           static_cast<std::uint32_t>(operation.transpose_a) << 16 | static_cast<std::uint32_t>(operation.transpose_b) << 20;
  }

  cublasStatus_t check() const {
    for (const Layout& one : {a, b, c, d}) {
      if (one.leading < one.rows || one.batch != d.batch || one.step < 0) return CUBLAS_STATUS_INVALID_VALUE;
    }
    const bool apart = std::min(c.step, d.step) >= (d.columns - 1) * d.leading + d.rows;  // results are not one over the other
    if (d.batch > 1 && !apart) return CUBLAS_STATUS_INVALID_VALUE;
    const bool a_plain = operation.transpose_a == CUBLAS_OP_N;
    const bool b_plain = operation.transpose_b == CUBLAS_OP_N;
    if ((a_plain ? a.rows : a.columns) != m() || (b_plain ? b.columns : b.rows) != n() || (b_plain ? b.rows : b.columns) != k() ||
        c.rows != m() || c.columns != n()) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    const bool types = type_of(a.type) && a.type == b.type && c.type == d.type && (d.type == a.type || d.type == CUDA_R_32F);
    const bool precise = operation.compute == CUBLAS_COMPUTE_32F && operation.scale == CUDA_R_32F;
    return types && precise ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
  }
};

/// op(matrix) as float [rows, columns], row-major. @param which  of the batch
std::vector<float> rows_of(const Layout& layout, const void* memory, bool transposed, std::int32_t which) {
  const Type type = *type_of(layout.type);
  const auto* bytes = static_cast<const std::byte*>(memory) + which * layout.step * software_gpu::bytes_of(type);
  const std::int64_t rows = transposed ? layout.columns : layout.rows;
  const std::int64_t columns = transposed ? layout.rows : layout.columns;
  std::vector<float> numbers(static_cast<std::size_t>(rows * columns));
  for (std::int64_t i = 0; i < rows; ++i) {
    software_gpu::load(type, bytes + i * (transposed ? layout.leading : 1) * software_gpu::bytes_of(type),
                       transposed ? 1 : layout.leading, columns, numbers.data() + i * columns);
  }
  return numbers;
}

/// A product in its stream's turn.
struct Work {
  Product product;
  float alpha, beta;
  const void *a, *b, *c;
  void *d, *workspace;
  std::uint64_t workspace_bytes;
  std::uint32_t number;  ///< of the algorithm

  void operator()() const {
    const char* const late = std::getenv("SOFTWARE_GPU_CUBLAS_FIRST_MS");
    if (number == 0 && late != nullptr) std::this_thread::sleep_for(std::chrono::milliseconds{std::atoi(late)});
    std::memset(workspace, 0xff, workspace_bytes);  // not used by others while this runs
    for (std::int32_t i = 0; i < product.d.batch; ++i) multiply(i);
    std::memset(workspace, 0xff, workspace_bytes);
  }

 private:
  void multiply(std::int32_t which) const {
    const std::int64_t m = product.m();
    const std::int64_t n = product.n();
    const std::int64_t k = product.k();
    const std::vector<float> left = rows_of(product.a, a, product.operation.transpose_a != CUBLAS_OP_N, which);
    const std::vector<float> right = rows_of(product.b, b, product.operation.transpose_b != CUBLAS_OP_N, which);
    std::vector<float> sums(static_cast<std::size_t>(m * n));
    const std::int64_t half = number == 1 ? k / 2 : 0;
    software_gpu::add_product(m, n, {half, k, k}, left.data(), right.data(), sums.data());
    if (half > 0) {
      std::vector<float> others(sums.size());
      software_gpu::add_product(m, n, {0, half, k}, left.data(), right.data(), others.data());
      std::transform(sums.begin(), sums.end(), others.begin(), sums.begin(), std::plus{});
    }
    for (float& sum : sums) sum *= alpha;
    if (beta != 0) {
      const std::vector<float> addend = rows_of(product.c, c, false, which);
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += beta * addend[i];
    }
    const Type type = *type_of(product.d.type);
    const std::int64_t size = software_gpu::bytes_of(type);
    auto* const to = static_cast<std::byte*>(d) + which * product.d.step * size;
    for (std::int64_t i = 0; i < m; ++i) {
      software_gpu::store(type, sums.data() + i * n, n, to + i * size, product.d.leading);
    }
  }
};

bool aligned(const void* memory, std::uint64_t bytes) { return reinterpret_cast<std::uintptr_t>(memory) % bytes == 0; }

/// Whether both, from their first number to their last, have bytes in common. Of a batch what lies
/// between counts, too: it is another matrix of the same tensor, or this library's callers have no
/// need of it.
bool overlap(const Layout& x, const void* at_x, const Layout& y, const void* at_y) {
  const auto end = [](const Layout& layout, const void* at) {
    return static_cast<const std::byte*>(at) +
           ((layout.batch - 1) * layout.step + (layout.columns - 1) * layout.leading + layout.rows) *
               software_gpu::bytes_of(*type_of(layout.type));
  };
  return at_x < end(y, at_y) && at_y < end(x, at_x);
}

template <class Value, class Object>
cublasStatus_t set(Value Object::*member, Object* object, const void* from, std::size_t bytes) {
  if (from == nullptr || bytes != sizeof(Value)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&(object->*member), from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

struct cublasLtContext {};

const char* cublasLtGetStatusString(cublasStatus_t status) {
  if (status == CUBLAS_STATUS_SUCCESS) return "CUBLAS_STATUS_SUCCESS";
  if (status == CUBLAS_STATUS_NOT_INITIALIZED) return "CUBLAS_STATUS_NOT_INITIALIZED";
  if (status == CUBLAS_STATUS_INVALID_VALUE) return "CUBLAS_STATUS_INVALID_VALUE";
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return "CUBLAS_STATUS_NOT_SUPPORTED";
  return "CUBLAS_STATUS_EXECUTION_FAILED";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t compute, cudaDataType_t scale) {
  *made = reinterpret_cast<cublasLtMatmulDesc_t>(new Operation{.compute = compute, .scale = scale});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  delete of<Operation>(operation);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute,
                                              const void* from, size_t bytes) {
  auto* const object = reinterpret_cast<Operation*>(operation);
  if (object == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSA) return set(&Operation::transpose_a, object, from, bytes);
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSB) return set(&Operation::transpose_b, object, from, bytes);
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type, uint64_t rows, uint64_t columns,
                                          int64_t leading) {
  *made = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{
      .type = type, .rows = static_cast<std::int64_t>(rows), .columns = static_cast<std::int64_t>(columns), .leading = leading});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete of<Layout>(layout);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* from, size_t bytes) {
  auto* const object = reinterpret_cast<Layout*>(layout);
  if (object == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) return set(&Layout::batch, object, from, bytes);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) return set(&Layout::step, object, from, bytes);
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  *made = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete of<Preference>(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* from,
                                                    size_t bytes) {
  auto* const object = reinterpret_cast<Preference*>(preference);
  if (object == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) return set(&Preference::workspace, object, from, bytes);
  const int place = attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
  if (place < 0 || place > 3) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (from == nullptr || bytes != sizeof(std::uint32_t)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&object->alignment[static_cast<std::size_t>(place)], from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

/// All want a float32 of workspace for each number of D, or as much as may be.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t* to, int* found) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!operation || !a || !b || !c || !d || !preference || !to || !found || most < 1) return CUBLAS_STATUS_INVALID_VALUE;
  *found = 0;
  const Product product{*of<Operation>(operation), *of<Layout>(a), *of<Layout>(b), *of<Layout>(c), *of<Layout>(d)};
  if (const cublasStatus_t status = product.check(); status != CUBLAS_STATUS_SUCCESS) return status;
  const auto& wished = *of<Preference>(preference);
  const std::uint64_t workspace = std::min(wished.workspace, static_cast<std::uint64_t>(product.m() * product.n() * 4));
  for (; *found < std::min(most, 3); ++*found, ++to) {
    const Algorithm algorithm{ours, wished.alignment, workspace, product.types(), static_cast<std::uint32_t>(*found)};
    *to = {};
    std::memcpy(&to->algo, &algorithm, sizeof(algorithm));
    to->workspaceSize = workspace;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algo, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!operation || !alpha || !a || !a_layout || !b || !b_layout || !beta || !c || !c_layout || !d || !d_layout || !algo) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const Product product{*of<Operation>(operation), *of<Layout>(a_layout), *of<Layout>(b_layout), *of<Layout>(c_layout),
                        *of<Layout>(d_layout)};
  if (const cublasStatus_t status = product.check(); status != CUBLAS_STATUS_SUCCESS) return status;
  Algorithm algorithm{};
  std::memcpy(&algorithm, algo, sizeof(algorithm));
  if (algorithm.known != ours || algorithm.types != product.types()) return CUBLAS_STATUS_INVALID_VALUE;
  if (algorithm.number == 2) return CUBLAS_STATUS_NOT_SUPPORTED;
  const std::array<const void*, 4> memory{a, b, c, d};
  for (std::size_t i = 0; i < 4; ++i) {
    if (!aligned(memory[i], algorithm.alignment[i])) return CUBLAS_STATUS_INVALID_VALUE;  // a GPU's kernel would fault
  }
  const bool room = workspace_bytes >= algorithm.workspace && (workspace != nullptr || algorithm.workspace == 0);
  if (!room || !aligned(workspace, 16)) return CUBLAS_STATUS_INVALID_VALUE;
  // C may be D and nothing else may: a GPU's blocks write D while others still read.
  if (overlap(product.d, d, product.a, a) || overlap(product.d, d, product.b, b) ||
      (c != d && overlap(product.d, d, product.c, c))) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const Work work{product,
                  *static_cast<const float*>(alpha),
                  *static_cast<const float*>(beta),
                  a,
                  b,
                  c,
                  d,
                  workspace,
                  algorithm.workspace,
                  algorithm.number};
  return software_gpu::enqueue(stream, work) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
