// What cudnnBackendFinalize checks: attributes that are missing, types and dims that do not fit,
// graphs that cannot be computed.
// Not: the computation (cudnn_program.cpp).
#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>

#include "cudnn_descriptor.hpp"

namespace software_cudnn {

namespace {

using software_gpu::Type;
constexpr cudnnStatus_t bad = CUDNN_STATUS_BAD_PARAM;
constexpr cudnnStatus_t bad_shape = CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;

std::optional<Type> type_of(cudnnDataType_t type) {
  if (type == CUDNN_DATA_FLOAT) return Type::f32;
  if (type == CUDNN_DATA_HALF) return Type::f16;
  if (type == CUDNN_DATA_BFLOAT16) return Type::bf16;
  if (type == CUDNN_DATA_INT32) return Type::i32;
  if (type == CUDNN_DATA_BOOLEAN) return Type::boolean;
  return {};
}

Tensor tensor_of(const Descriptor& descriptor) {
  Tensor tensor;
  tensor.id = descriptor.one<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
  tensor.type = type_of(descriptor.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE)).value_or(Type::f32);
  tensor.alignment = descriptor.one<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  tensor.passing = descriptor.one<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL);
  tensor.by_value = descriptor.one<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE);
  tensor.dims.fill(1);
  tensor.strides.fill(1);
  const auto dims = descriptor.all<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  const auto strides = descriptor.all<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  std::copy_backward(dims.begin(), dims.end(), tensor.dims.end());
  std::copy_backward(strides.begin(), strides.end(), tensor.strides.end());
  return tensor;
}

void check_tensor(const Descriptor& descriptor) {
  const auto dims = descriptor.all<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  const auto strides = descriptor.all<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  const auto positive = [](std::int64_t x) { return x > 0; };
  require(type_of(descriptor.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE)).has_value(), CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE,
          "a tensor's type");
  require(dims.size() == strides.size(), bad, "a tensor has not as many strides as dims");
  require(std::all_of(dims.begin(), dims.end(), positive) && std::all_of(strides.begin(), strides.end(), positive), bad,
          "a tensor's dim or stride is not positive");
  const Tensor tensor = tensor_of(descriptor);
  const std::int64_t alignment = tensor.alignment;
  require(alignment >= bytes_of(tensor.type) && (alignment & (alignment - 1)) == 0, bad, "a tensor's alignment");
  require(!tensor.by_value || (!tensor.passing && tensor.count() == 1), bad, "a tensor by value is virtual or not one number");
}

/// Inputs of a mode, except a predicate.
int operands(cudnnPointwiseMode_t mode) {
  switch (mode) {
    case CUDNN_POINTWISE_ADD:
    case CUDNN_POINTWISE_SUB:
    case CUDNN_POINTWISE_MUL:
    case CUDNN_POINTWISE_DIV:
    case CUDNN_POINTWISE_CMP_GE:
    case CUDNN_POINTWISE_BINARY_SELECT:
      return 2;
    case CUDNN_POINTWISE_EXP:
    case CUDNN_POINTWISE_LOG:
    case CUDNN_POINTWISE_IDENTITY:
    case CUDNN_POINTWISE_GEN_INDEX:
      return 1;
    default:
      return 0;
  }
}

void check_mode(const Descriptor& how) {
  const auto mode = how.one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
  require(operands(mode) > 0, CUDNN_STATUS_NOT_SUPPORTED, "a pointwise mode that is not known here");
  require(mode != CUDNN_POINTWISE_GEN_INDEX || how.has(CUDNN_ATTR_POINTWISE_AXIS), bad, "an index without its axis");
}

/// The step of an operation, and the tensors of its inputs and then its output.
struct Operation {
  Step step;
  std::vector<Tensor> tensors;

  void take(const Descriptor& of, cudnnBackendAttributeName_t name) {
    tensors.push_back(tensor_of(of.part(name)));
    step.from.push_back(tensors.back().id);
  }
  void give(const Descriptor& of, cudnnBackendAttributeName_t name) {
    tensors.push_back(tensor_of(of.part(name)));
    step.to = tensors.back().id;
    require(!tensors.back().by_value, bad, "the result of an operation is a tensor by value");
  }
};

Operation pointwise_of(const Descriptor& descriptor) {
  const Descriptor& how = descriptor.part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  const bool has_b = descriptor.has(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
  const bool has_t = descriptor.has(CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
  Operation made;
  Step& step = made.step;
  step.kind = Step::Kind::pointwise;
  step.mode = how.one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
  made.take(descriptor, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
  if (has_b) made.take(descriptor, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
  if (has_t) made.take(descriptor, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
  made.give(descriptor, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);

  const bool select = step.mode == CUDNN_POINTWISE_BINARY_SELECT;
  require((operands(step.mode) == 2) == has_b, bad, "a pointwise operation has not the operands of its mode");
  require(select == has_t, bad, "a predicate is given to a mode other than the selection, or not to it");
  const Tensor& y = made.tensors.back();
  for (std::size_t i = 0; i + 1 < made.tensors.size(); ++i) {
    for (std::size_t axis = 0; axis < 4; ++axis) {
      const std::int64_t dim = made.tensors[i].dims[axis];
      require(dim == 1 || dim == y.dims[axis], bad_shape, "a pointwise operand's dims are neither those of y nor 1");
    }
  }
  require(!select || made.tensors[2].type == Type::boolean, CUDNN_STATUS_BAD_PARAM, "a selection's predicate is not boolean");
  require((step.mode == CUDNN_POINTWISE_CMP_GE) == (y.type == Type::boolean), bad,
          "a comparison's result, and no other, is boolean");
  if (step.mode == CUDNN_POINTWISE_GEN_INDEX) {
    const auto rank = static_cast<std::int64_t>(
        descriptor.part(CUDNN_ATTR_OPERATION_POINTWISE_XDESC).all<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS).size());
    const auto axis = how.one<std::int64_t>(CUDNN_ATTR_POINTWISE_AXIS);
    require(axis >= 0 && axis < rank, CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND, "an index's axis");
    require(made.tensors[0].dims == y.dims && y.type == Type::i32, bad, "an index's result is not an int32 for each number of x");
    step.axis = static_cast<std::size_t>(axis + 4 - rank);
  }
  return made;
}

Operation matmul_of(const Descriptor& descriptor) {
  Operation made;
  made.step.kind = Step::Kind::matmul;
  made.take(descriptor, CUDNN_ATTR_OPERATION_MATMUL_ADESC);
  made.take(descriptor, CUDNN_ATTR_OPERATION_MATMUL_BDESC);
  made.give(descriptor, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
  const Shape& a = made.tensors[0].dims;
  const Shape& b = made.tensors[1].dims;
  const Shape& c = made.tensors[2].dims;
  require(a[2] == c[2] && a[3] == b[2] && b[3] == c[3], bad_shape, "a matrix product's dims");
  for (std::size_t axis = 0; axis < 2; ++axis) {
    require(std::max(a[axis], b[axis]) == c[axis] && c[axis] % a[axis] == 0 && c[axis] % b[axis] == 0, bad_shape,
            "a matrix product's batches or heads");
  }
  require(made.tensors[0].type == made.tensors[1].type, CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE,
          "a matrix product of different types");
  return made;
}

Operation reduction_of(const Descriptor& descriptor) {
  Operation made;
  made.step.kind = Step::Kind::reduction;
  made.step.reduce =
      descriptor.part(CUDNN_ATTR_OPERATION_REDUCTION_DESC).one<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR);
  made.take(descriptor, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
  made.give(descriptor, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
  for (std::size_t axis = 0; axis < 4; ++axis) {
    require(made.tensors[0].dims[axis] % made.tensors[1].dims[axis] == 0, bad_shape, "a reduction's dims");
  }
  return made;
}

Operation reshape_of(const Descriptor& descriptor) {
  Operation made;
  made.step.kind = Step::Kind::reshape;
  made.take(descriptor, CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
  made.give(descriptor, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
  const Tensor& x = made.tensors[0];
  Tensor y = made.tensors[1];
  y.type = x.type;
  require(x.count() == y.count() && x.bytes() == y.bytes(), bad_shape, "a reshape's tensors are not as large");
  return made;
}

Operation operation_of(const Descriptor& descriptor) {
  if (descriptor.type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) return pointwise_of(descriptor);
  if (descriptor.type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) return matmul_of(descriptor);
  if (descriptor.type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) return reduction_of(descriptor);
  require(descriptor.type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE,
          "a graph's part is no operation");
  return reshape_of(descriptor);
}

std::shared_ptr<const Program> program_of(const Descriptor& graph) {
  auto program = std::make_shared<Program>();
  const char* const workspace = std::getenv("SOFTWARE_GPU_CUDNN_WORKSPACE");
  program->workspace = workspace != nullptr ? std::atoll(workspace) : std::int64_t{1} << 20;
  std::vector<Step> waiting;
  std::set<std::int64_t> results;
  for (const auto& part : graph.parts(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    const Operation operation = operation_of(*part);
    for (const Tensor& tensor : operation.tensors) {
      const auto [found, fresh] = program->tensors.emplace(tensor.id, tensor);
      require(fresh || found->second == tensor, CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "two tensors of one id differ");
    }
    require(results.insert(operation.step.to).second, CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES,
            "two operations give one tensor");
    waiting.push_back(operation.step);
  }
  for (const auto& [id, tensor] : program->tensors) {
    require(!tensor.passing || results.count(id) > 0, bad, "no operation gives a virtual tensor");
  }
  std::set<std::int64_t> computed;
  while (!waiting.empty()) {
    const auto next = std::find_if(waiting.begin(), waiting.end(), [&](const Step& step) {
      return std::all_of(step.from.begin(), step.from.end(),
                         [&](std::int64_t id) { return results.count(id) == 0 || computed.count(id) > 0; });
    });
    require(next != waiting.end(), bad, "a graph's operations wait for one another");
    computed.insert(next->to);
    program->steps.push_back(*next);
    waiting.erase(next);
  }
  return program;
}

/// Our engine reads and writes 16 bytes at once of rows of 16-bit numbers, as cuDNN's attention
/// does: heads of a multiple of 8.
void check_supported(const Program& program) {
  for (const auto& [id, tensor] : program.tensors) {
    if (tensor.passing || bytes_of(tensor.type) != 2) continue;
    for (std::size_t axis = 0; axis < 4; ++axis) {
      const bool rows = tensor.strides[axis] == 1 || tensor.strides[axis] * 2 % 16 == 0;
      require(rows && tensor.alignment >= 16, CUDNN_STATUS_NOT_SUPPORTED_LAYOUT, "rows that are not aligned to 16 bytes");
    }
  }
}

}  // namespace

void finalize(Descriptor& descriptor) {
  for (const Rule& rule : rules()) {
    require(rule.of != descriptor.type || !rule.needed || descriptor.has(rule.name), bad, "an attribute is missing");
  }
  switch (descriptor.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      check_tensor(descriptor);
      break;
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
      check_mode(descriptor);
      break;
    case CUDNN_BACKEND_REDUCTION_DESCRIPTOR: {
      const auto reduce = descriptor.one<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR);
      require(reduce == CUDNN_REDUCE_TENSOR_ADD || reduce == CUDNN_REDUCE_TENSOR_MAX, CUDNN_STATUS_NOT_SUPPORTED, "a reduction");
      break;
    }
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      operation_of(descriptor);
      break;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      descriptor.program = program_of(descriptor);
      break;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      check_supported(*descriptor.part(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH).program);
      break;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      require(descriptor.has(CUDNN_ATTR_EXECUTION_PLAN_HANDLE) || descriptor.has(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP), bad,
              "a plan for no device");
      descriptor.program = descriptor.part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).program;
      descriptor.set(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, descriptor.program->workspace);
      break;
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
      require(descriptor.all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).size() ==
                  descriptor.all<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS).size(),
              bad, "a pack has not a pointer for each id");
      break;
    default:
      break;
  }
  descriptor.finalized = true;
}

}  // namespace software_cudnn
