// A graph of cuDNN operations through its backend interface: tensors, operations, and an engine's
// plan for them.
// Not: the graph of attention (fused_attention.hpp).
#pragma once

#include <cudnn.h>
#include <cudnn_backend.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/layers/cuda/check.hpp"

namespace tawpipe::inline v0::layers::cuda {

/// @throws DeviceError  naming the call and cuDNN's message.
inline void check(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char detail[512] = {};
  cudnnGetLastErrorString(detail, sizeof(detail));
  throw DeviceError(concat(call, " failed: ", cudnnGetErrorString(status), " (", static_cast<int>(status), ") ", detail));
}

/// A descriptor of cuDNN's backend with its attributes.
class CudnnDescriptor {
 public:
  /// @throws DeviceError  if this cuDNN does not know the type.
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t made = nullptr;
    check(cudnnBackendCreateDescriptor(type, &made), "cudnnBackendCreateDescriptor");
    descriptor_ = Owned<cudnnBackendDescriptor_t, cudnnBackendDestroyDescriptor>{made};
  }
  cudnnBackendDescriptor_t get() const { return descriptor_.get(); }

  template <class Value>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const Value& value) {
    check(cudnnBackendSetAttribute(get(), name, type, 1, &value), "cudnnBackendSetAttribute");
  }
  void set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, value.get());
  }
  template <class Values>
  void set_all(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const Values& values) {
    check(cudnnBackendSetAttribute(get(), name, type, static_cast<std::int64_t>(values.size()), values.data()),
          "cudnnBackendSetAttribute");
  }
  /// @throws DeviceError  if the attributes are inconsistent.
  void finalize() { check(cudnnBackendFinalize(get()), "cudnnBackendFinalize"); }

 private:
  Owned<cudnnBackendDescriptor_t, cudnnBackendDestroyDescriptor> descriptor_;
};

/// The target of a plan: the device of a handle, or one described in JSON, which need not exist.
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  /// for cuDNN's CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION; used without a handle
  std::string_view device_json = {};
};

/// An engine's plan to compute a graph. Created once, run any number of times.
class CudnnPlan {
 public:
  CudnnPlan(CudnnDescriptor plan, std::vector<CudnnDescriptor> kept) : plan_{std::move(plan)}, kept_{std::move(kept)} {
    std::int64_t count = 0;
    check(
        cudnnBackendGetAttribute(plan_.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, &workspace_),
        "cudnnBackendGetAttribute");
  }
  std::int64_t workspace() const { return workspace_; }  ///< bytes

  /// Enqueues it in the handle's stream. [i] is the memory of tensor `ids[i]`; constants are on the
  /// host.
  template <std::size_t N>
  void run(cudnnHandle_t handle, const std::array<std::int64_t, N>& ids, const std::array<void*, N>& memory, void* workspace) {
    CudnnDescriptor pack{CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR};
    pack.set_all(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids);
    pack.set_all(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, memory);
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
    pack.finalize();
    check(cudnnBackendExecute(handle, plan_.get(), pack.get()), "cudnnBackendExecute");
  }

 private:
  CudnnDescriptor plan_;
  std::vector<CudnnDescriptor> kept_;  ///< the descriptors it uses
  std::int64_t workspace_ = 0;
};

/// Builds a graph: operations refer to tensors by the indices returned by `tensor` and the
/// operations.
class CudnnGraph {
 public:
  using Shape = std::array<std::int64_t, 4>;
  using Tensor = std::size_t;  ///< index in tensors_; its cuDNN id is one more

  static std::int64_t id(Tensor tensor) { return static_cast<std::int64_t>(tensor) + 1; }

  /// A tensor in memory.
  Tensor tensor(cudnnDataType_t type, const Shape& dims, const Shape& strides) { return make(type, dims, strides, false, false); }
  /// A virtual tensor (never in memory), dense.
  Tensor passing(cudnnDataType_t type, const Shape& dims) { return make(type, dims, dense(dims), true, false); }
  Tensor passing(cudnnDataType_t type, const Shape& dims, const Shape& strides) { return make(type, dims, strides, true, false); }
  /// A number [1, 1, 1, 1] supplied by the host.
  Tensor constant() { return make(CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, false, true); }

  /// y = mode(x), mode(x, b) or, with t, t ? x : b.
  void pointwise(cudnnPointwiseMode_t mode, Tensor x, std::optional<Tensor> b, Tensor y, std::optional<Tensor> t = {},
                 cudnnDataType_t precision = CUDNN_DATA_FLOAT, std::int64_t axis = -1) {
    CudnnDescriptor& how = keep(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
    how.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, precision);
    if (axis >= 0) how.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, axis);
    how.finalize();
    CudnnDescriptor operation{CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR};
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, tensors_[x]);
    if (b) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, tensors_[*b]);
    if (t) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, tensors_[*t]);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, tensors_[y]);
    add(std::move(operation));
  }
  /// c = a b over the last two axes; heads of b may serve several of a.
  void matmul(Tensor a, Tensor b, Tensor c) {
    CudnnDescriptor& how = keep(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    how.finalize();
    CudnnDescriptor operation{CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR};
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, tensors_[a]);
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, tensors_[b]);
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, tensors_[c]);
    add(std::move(operation));
  }
  /// y = x reduced along the axes where y is 1, or fewer.
  void reduction(cudnnReduceTensorOp_t operator_, Tensor x, Tensor y) {
    CudnnDescriptor& how = keep(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    how.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, operator_);
    how.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    how.finalize();
    CudnnDescriptor operation{CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR};
    operation.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    operation.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, tensors_[x]);
    operation.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, tensors_[y]);
    add(std::move(operation));
  }
  /// y is x with the dims and strides of y.
  void reshape(Tensor x, Tensor y) {
    CudnnDescriptor operation{CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR};
    operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, tensors_[x]);
    operation.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, tensors_[y]);
    add(std::move(operation));
  }

  /// The heuristic's first plan that can be built; nothing if no engine supports the graph.
  /// Finalizes the graph.
  /// @throws DeviceError  if the graph is not well formed.
  std::optional<CudnnPlan> plan(const CudnnTarget& target) {
    Query query = ask(target);
    for (CudnnDescriptor& config : query.configs) {
      CudnnDescriptor plan{CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR};
      if (target.handle != nullptr) plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
      if (query.device) plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *query.device);
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
      if (cudnnBackendFinalize(plan.get()) != CUDNN_STATUS_SUCCESS) continue;
      std::vector<CudnnDescriptor> kept;
      for (auto* all : {&tensors_, &kept_, &operations_}) {
        for (CudnnDescriptor& one : *all) kept.push_back(std::move(one));
      }
      kept.push_back(std::move(query.graph));
      kept.push_back(std::move(config));
      if (query.device) kept.push_back(std::move(*query.device));
      return CudnnPlan{std::move(plan), std::move(kept)};
    }
    return {};
  }

  /// The number of engine configurations offered for the graph that pass their support check. Needs
  /// libcuda, but no device.
  std::int64_t offered(const CudnnTarget& target) const { return std::ssize(ask(target).configs); }

 private:
  /// The heuristic's result, with its input.
  struct Query {
    CudnnDescriptor graph{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};
    CudnnDescriptor heuristic{CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR};
    std::optional<CudnnDescriptor> device;
    std::vector<CudnnDescriptor> configs;  ///< best first
  };

  Query ask(const CudnnTarget& target) const {
    std::vector<cudnnBackendDescriptor_t> operations;
    for (const CudnnDescriptor& operation : operations_) operations.push_back(operation.get());
    Query query;
    if (target.handle != nullptr) query.graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
    query.graph.set_all(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations);
    query.graph.finalize();
    query.heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, query.graph);
    query.heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
    if (target.handle == nullptr) {
      query.device.emplace(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
      query.device->set_all(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, target.device_json);
      query.device->finalize();
      query.heuristic.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *query.device);
    }
    if (cudnnBackendFinalize(query.heuristic.get()) != CUDNN_STATUS_SUCCESS) return query;
    std::int64_t count = 0;
    const auto results = [&](std::int64_t most, cudnnBackendDescriptor_t* into) {
      check(cudnnBackendGetAttribute(query.heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, most,
                                     &count, into),
            "cudnnBackendGetAttribute");
    };
    results(0, nullptr);
    std::vector<cudnnBackendDescriptor_t> raw;
    for (std::int64_t i = 0; i < count; ++i) raw.push_back(query.configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
    if (count > 0) results(count, raw.data());  // fills in the valid ones, and returns their number
    query.configs.erase(query.configs.begin() + static_cast<std::ptrdiff_t>(count), query.configs.end());
    return query;
  }
  static Shape dense(const Shape& dims) { return {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1}; }

  Tensor make(cudnnDataType_t type, const Shape& dims, const Shape& strides, bool is_virtual, bool by_value) {
    constexpr std::int64_t alignment = 16;
    CudnnDescriptor tensor{CUDNN_BACKEND_TENSOR_DESCRIPTOR};
    tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id(tensors_.size()));
    tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
    tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, alignment);
    tensor.set_all(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, dims);
    tensor.set_all(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides);
    tensor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual);
    tensor.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, by_value);
    tensor.finalize();
    tensors_.push_back(std::move(tensor));
    return tensors_.size() - 1;
  }
  CudnnDescriptor& keep(cudnnBackendDescriptorType_t type) { return kept_.emplace_back(type); }
  void add(CudnnDescriptor operation) {
    operation.finalize();
    operations_.push_back(std::move(operation));
  }

  std::vector<CudnnDescriptor> tensors_;
  std::vector<CudnnDescriptor> kept_;
  std::vector<CudnnDescriptor> operations_;
};

}  // namespace tawpipe::layers::cuda
