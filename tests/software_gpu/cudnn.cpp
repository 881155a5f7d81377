// libcudnn on the host: the functions of its backend interface that the library calls, as cuDNN
// documents them.
// Not: what finalizing checks (cudnn_checks.cpp) nor what a graph computes (cudnn_program.cpp).
#include <cudnn.h>

#include <algorithm>

#include "cudnn_descriptor.hpp"
#include "enqueue.hpp"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

namespace software_cudnn {

const std::vector<Rule>& rules() {
  constexpr auto descriptor = CUDNN_TYPE_BACKEND_DESCRIPTOR;
  constexpr auto tensor = CUDNN_BACKEND_TENSOR_DESCRIPTOR;
  constexpr auto pointwise = CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR;
  constexpr auto matmul = CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR;
  constexpr auto reduction = CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR;
  constexpr auto reshape = CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR;
  constexpr auto heuristic = CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR;
  constexpr auto plan = CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR;
  constexpr auto pack = CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR;
  constexpr std::int64_t many = 1 << 20;
  constexpr std::int64_t axes = 4;
  static const std::vector<Rule> all{
      {tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, true},
      {tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, true},
      {tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, true},
      {tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, true, axes},
      {tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, true, axes},
      {tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, false},
      {tensor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, false},
      {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, true},
      {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, true},
      {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, false},
      {pointwise, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, descriptor, true, 1, CUDNN_BACKEND_POINTWISE_DESCRIPTOR},
      {pointwise, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, descriptor, true, 1, tensor},
      {pointwise, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, descriptor, false, 1, tensor},
      {pointwise, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, descriptor, false, 1, tensor},
      {pointwise, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, descriptor, true, 1, tensor},
      {CUDNN_BACKEND_MATMUL_DESCRIPTOR, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, true},
      {matmul, CUDNN_ATTR_OPERATION_MATMUL_DESC, descriptor, true, 1, CUDNN_BACKEND_MATMUL_DESCRIPTOR},
      {matmul, CUDNN_ATTR_OPERATION_MATMUL_ADESC, descriptor, true, 1, tensor},
      {matmul, CUDNN_ATTR_OPERATION_MATMUL_BDESC, descriptor, true, 1, tensor},
      {matmul, CUDNN_ATTR_OPERATION_MATMUL_CDESC, descriptor, true, 1, tensor},
      {CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, true},
      {CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, true},
      {reduction, CUDNN_ATTR_OPERATION_REDUCTION_DESC, descriptor, true, 1, CUDNN_BACKEND_REDUCTION_DESCRIPTOR},
      {reduction, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, descriptor, true, 1, tensor},
      {reduction, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, descriptor, true, 1, tensor},
      {reshape, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, descriptor, true, 1, tensor},
      {reshape, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, descriptor, true, 1, tensor},
      {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, false},
      {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_OPS, descriptor, true, many},
      {CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, true, many},
      {heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, descriptor, true, 1, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR},
      {heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, true},
      {heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, descriptor, false, 1, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR},
      {plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, false},
      {plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, descriptor, false, 1, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR},
      {plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, descriptor, true, 1, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR},
      {pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, true, many},
      {pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, true, many},
      {pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, false},
  };
  return all;
}

std::size_t bytes_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_INT64:
      return sizeof(std::int64_t);
    case CUDNN_TYPE_BOOLEAN:
      return sizeof(bool);
    case CUDNN_TYPE_CHAR:
      return 1;
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return sizeof(void*);
    case CUDNN_TYPE_DATA_TYPE:
    case CUDNN_TYPE_POINTWISE_MODE:
    case CUDNN_TYPE_REDUCTION_OPERATOR_TYPE:
    case CUDNN_TYPE_HEUR_MODE:
      return sizeof(cudnnDataType_t);
    default:
      throw Refusal{CUDNN_STATUS_NOT_SUPPORTED, "an attribute's type that is not known here"};
  }
}

namespace {

using Owner = std::shared_ptr<Descriptor>;  ///< a cudnnBackendDescriptor_t points to one

thread_local std::string last_reason;

template <class Work>
cudnnStatus_t guarded(const Work& work) {
  try {
    work();
    return CUDNN_STATUS_SUCCESS;
  } catch (const Refusal& refusal) {
    last_reason = refusal.what();
    return refusal.status;
  }
}

const Owner& owner_of(const void* descriptor) {
  require(descriptor != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a descriptor is null");
  return *static_cast<const Owner*>(descriptor);
}
const Owner& finalized(const void* descriptor, cudnnBackendDescriptorType_t type) {
  const Owner& owner = owner_of(descriptor);
  require(owner->finalized, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a descriptor is used before it is finalized");
  require(owner->type == type, CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "a descriptor of another type was expected");
  return owner;
}

void set(Descriptor& descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
         const void* from) {
  require(!descriptor.finalized, CUDNN_STATUS_NOT_INITIALIZED, "an attribute is set of a descriptor that is finalized");
  const auto rule = std::find_if(rules().begin(), rules().end(),
                                 [&](const Rule& one) { return one.of == descriptor.type && one.name == name; });
  require(rule != rules().end(), CUDNN_STATUS_NOT_SUPPORTED, "an attribute that is not known here");
  require(rule->type == type, CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "an attribute's type");
  require(count >= 1 && count <= rule->most, CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND, "an attribute's number of elements");
  require(from != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "an attribute is set from null");
  Descriptor::Attribute attribute;
  attribute.count = count;
  const auto* const bytes = static_cast<const std::byte*>(from);
  attribute.bytes.assign(bytes, bytes + static_cast<std::size_t>(count) * bytes_of(type));
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    for (std::int64_t i = 0; i < count; ++i) {
      const void* const part = static_cast<const cudnnBackendDescriptor_t*>(from)[i];
      attribute.parts.push_back(finalized(part, rule->part.value_or(owner_of(part)->type)));
    }
  }
  descriptor.attributes[name] = std::move(attribute);
}

/// One way, by the one engine that there is.
void configurations(const Descriptor& heuristic, std::int64_t most, std::int64_t* count, void* to) {
  require(count != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "nowhere to tell a number of elements");
  *count = 1;
  if (most < 1) return;
  require(to != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "nowhere to write configurations to");
  const Owner& made = owner_of(*static_cast<const cudnnBackendDescriptor_t*>(to));
  require(made->type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "a configuration's type");
  made->program = heuristic.part(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH).program;
  made->finalized = true;
}

void get(const Descriptor& descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t most,
         std::int64_t* count, void* to) {
  require(descriptor.finalized, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
          "an attribute is asked of a descriptor before it is finalized");
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
    require(type == CUDNN_TYPE_BACKEND_DESCRIPTOR, CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "an attribute's type");
    configurations(descriptor, most, count, to);
    return;
  }
  require(name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && descriptor.has(name), CUDNN_STATUS_NOT_SUPPORTED,
          "an attribute that is not known here");
  require(type == CUDNN_TYPE_INT64, CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "an attribute's type");
  require(to != nullptr && most >= 1, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "nowhere to write an attribute to");
  if (count != nullptr) *count = 1;
  *static_cast<std::int64_t*>(to) = descriptor.one<std::int64_t>(name);
}

void execute(cudnnHandle_t handle, const Descriptor& plan, const Descriptor& pack) {
  const auto ids = pack.all<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = pack.all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  std::map<std::int64_t, std::byte*> memory;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    require(memory.emplace(ids[i], static_cast<std::byte*>(pointers[i])).second, CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES,
            "a pack names a tensor twice");
  }
  std::map<std::int64_t, std::vector<std::byte>> constants;
  for (const auto& [id, tensor] : plan.program->tensors) {
    if (tensor.passing) continue;
    std::byte*& given = memory[id];
    require(given != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a pack has no memory for tensor " + std::to_string(id));
    if (tensor.by_value) {
      constants.emplace(id, std::vector<std::byte>(given, given + tensor.bytes()));
    } else {
      require(reinterpret_cast<std::uintptr_t>(given) % static_cast<std::uintptr_t>(tensor.alignment) == 0,
              CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
              "memory of tensor " + std::to_string(id) + " is not aligned as was told");
    }
  }
  void* const workspace = pack.one<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  require(workspace != nullptr || plan.program->workspace == 0, CUDNN_STATUS_BAD_PARAM_NULL_POINTER,
          "a plan's workspace is null");
  const auto work = [program = plan.program, memory, constants, workspace]() mutable {
    for (auto& [id, bytes] : constants) memory[id] = bytes.data();
    program->run(memory, workspace);
  };
  require(software_gpu::enqueue(handle->stream, work) == cudaSuccess, CUDNN_STATUS_EXECUTION_FAILED_CUDART, "the stream");
}

}  // namespace

}  // namespace software_cudnn

using namespace software_cudnn;

size_t cudnnGetVersion() { return CUDNN_VERSION; }
const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (CUDNN_STATUS_CATEGORY(status)) {
    case CUDNN_STATUS_SUCCESS:
      return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_BAD_PARAM:
      return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED:
      return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_EXECUTION_FAILED:
      return "CUDNN_STATUS_EXECUTION_FAILED";
    default:
      return "CUDNN_STATUS_NOT_INITIALIZED";
  }
}
void cudnnGetLastErrorString(char* message, size_t most) {
  if (message == nullptr || most == 0) return;
  const std::size_t length = last_reason.copy(message, most - 1);
  message[length] = 0;
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  return guarded([&] {
    require(handle != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "nowhere to write a handle to");
    *handle = new cudnnContext;
  });
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return guarded([&] {
    require(handle != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a handle is null");
    handle->stream = stream;
  });
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* made) {
  return guarded([&] {
    const bool known = type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR ||
                       std::any_of(rules().begin(), rules().end(), [&](const Rule& rule) { return rule.of == type; });
    require(known, CUDNN_STATUS_NOT_SUPPORTED, "a type of descriptors that is not known here");
    *made = new Owner{std::make_shared<Descriptor>(type)};
  });
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  delete static_cast<Owner*>(descriptor);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void* from) {
  return guarded([&] { set(*owner_of(descriptor), name, type, count, from); });
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t most, int64_t* count, void* to) {
  return guarded([&] { get(*owner_of(descriptor), name, type, most, count, to); });
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  return guarded([&] { finalize(*owner_of(descriptor)); });
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  return guarded([&] {
    require(handle != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a handle is null");
    const Owner& of_plan = finalized(plan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    require(of_plan->has(CUDNN_ATTR_EXECUTION_PLAN_HANDLE), CUDNN_STATUS_BAD_PARAM, "a plan for a device that is only described");
    execute(handle, *of_plan, *finalized(pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR));
  });
}
