// The interpreter of cuDNN's operations, row by row in float32.
// Not: which graphs are well formed (cudnn_checks.cpp).
#include "cudnn_program.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace software_cudnn {

namespace {

using Memory = std::map<std::int64_t, std::byte*>;

/// A tensor and where it lies.
struct Place {
  const Tensor& tensor;
  std::byte* memory;

  std::byte* row(std::int64_t i, std::int64_t j, std::int64_t k) const {
    return memory + (i * tensor.strides[0] + j * tensor.strides[1] + k * tensor.strides[2]) * bytes_of(tensor.type);
  }
  void load(std::int64_t i, std::int64_t j, std::int64_t k, float* to) const {
    software_gpu::load(tensor.type, row(i, j, k), tensor.strides[3], tensor.dims[3], to);
  }
  void store(std::int64_t i, std::int64_t j, std::int64_t k, const float* from) const {
    software_gpu::store(tensor.type, from, tensor.dims[3], row(i, j, k), tensor.strides[3]);
  }
};

/// Calls work(i, j, k) for each row.
template <class Work>
void each_row(const Shape& dims, const Work& work) {
  for (std::int64_t i = 0; i < dims[0]; ++i) {
    for (std::int64_t j = 0; j < dims[1]; ++j) {
      for (std::int64_t k = 0; k < dims[2]; ++k) work(i, j, k);
    }
  }
}
std::vector<float> floats(std::int64_t count, float value = 0) {
  return std::vector<float>(static_cast<std::size_t>(count), value);
}

/// mode(x, b) or t ? x : b
float value_of(cudnnPointwiseMode_t mode, float x, float b, float t) {
  switch (mode) {
    case CUDNN_POINTWISE_ADD:
      return x + b;
    case CUDNN_POINTWISE_SUB:
      return x - b;
    case CUDNN_POINTWISE_MUL:
      return x * b;
    case CUDNN_POINTWISE_DIV:
      return x / b;
    case CUDNN_POINTWISE_EXP:
      return std::exp(x);
    case CUDNN_POINTWISE_LOG:
      return std::log(x);
    case CUDNN_POINTWISE_CMP_GE:
      return x >= b ? 1.0F : 0.0F;
    case CUDNN_POINTWISE_BINARY_SELECT:
      return t != 0 ? x : b;
    default:  // IDENTITY: the checks let no other pass
      return x;
  }
}

void pointwise(const Step& step, const std::vector<Place>& from, const Place& to) {
  const std::int64_t width = to.tensor.dims[3];
  std::array<std::vector<float>, 3> rows{floats(width), floats(width), floats(width)};
  std::vector<float> result = floats(width);
  each_row(to.tensor.dims, [&](std::int64_t i, std::int64_t j, std::int64_t k) {
    if (step.mode == CUDNN_POINTWISE_GEN_INDEX) {
      const std::array<std::int64_t, 3> at{i, j, k};
      for (std::int64_t l = 0; l < width; ++l) {
        result[static_cast<std::size_t>(l)] = static_cast<float>(step.axis == 3 ? l : at[step.axis]);
      }
      to.store(i, j, k, result.data());
      return;
    }
    for (std::size_t one = 0; one < from.size(); ++one) {  // axes of one number serve all
      const Shape& dims = from[one].tensor.dims;
      from[one].load(dims[0] == 1 ? 0 : i, dims[1] == 1 ? 0 : j, dims[2] == 1 ? 0 : k, rows[one].data());
      if (dims[3] == 1) std::fill(rows[one].begin(), rows[one].end(), rows[one].front());
    }
    for (std::size_t l = 0; l < result.size(); ++l) result[l] = value_of(step.mode, rows[0][l], rows[1][l], rows[2][l]);
    to.store(i, j, k, result.data());
  });
}

/// A matrix of the last two axes, row-major.
std::vector<float> matrix(const Place& place, std::int64_t i, std::int64_t j) {
  const Shape& dims = place.tensor.dims;
  std::vector<float> numbers = floats(dims[2] * dims[3]);
  for (std::int64_t k = 0; k < dims[2]; ++k) place.load(i, j, k, numbers.data() + k * dims[3]);
  return numbers;
}

/// Heads of an operand serve as many heads of the result in a row as there are more of them.
void matmul(const std::vector<Place>& from, const Place& to) {
  const Shape& dims = to.tensor.dims;
  each_row({dims[0], dims[1], 1, 1}, [&](std::int64_t i, std::int64_t j, std::int64_t) {
    const auto operand = [&](const Place& place) {
      const Shape& own = place.tensor.dims;
      return matrix(place, i / (dims[0] / own[0]), j / (dims[1] / own[1]));
    };
    const std::vector<float> a = operand(from[0]);
    const std::vector<float> b = operand(from[1]);
    std::vector<float> c = floats(dims[2] * dims[3]);
    const std::int64_t terms = from[0].tensor.dims[3];
    software_gpu::add_product(dims[2], dims[3], {0, terms, terms}, a.data(), b.data(), c.data());
    for (std::int64_t k = 0; k < dims[2]; ++k) to.store(i, j, k, c.data() + k * dims[3]);
  });
}

/// Neighbours along an axis become one where y has fewer.
void reduction(const Step& step, const Place& from, const Place& to) {
  const bool largest = step.reduce == CUDNN_REDUCE_TENSOR_MAX;
  const Shape& dims = to.tensor.dims;
  Shape each{};
  for (std::size_t axis = 0; axis < 4; ++axis) each[axis] = from.tensor.dims[axis] / dims[axis];
  std::vector<float> row = floats(from.tensor.dims[3]);
  std::vector<float> results = floats(to.tensor.count(), largest ? -std::numeric_limits<float>::infinity() : 0.0F);
  const auto results_of = [&](std::int64_t i, std::int64_t j, std::int64_t k) {
    return results.data() + ((i * dims[1] + j) * dims[2] + k) * dims[3];
  };
  each_row(from.tensor.dims, [&](std::int64_t i, std::int64_t j, std::int64_t k) {
    from.load(i, j, k, row.data());
    float* const result = results_of(i / each[0], j / each[1], k / each[2]);
    for (std::int64_t l = 0; l < from.tensor.dims[3]; ++l) {
      float& one = result[l / each[3]];
      one = largest ? std::max(one, row[static_cast<std::size_t>(l)]) : one + row[static_cast<std::size_t>(l)];
    }
  });
  each_row(dims, [&](std::int64_t i, std::int64_t j, std::int64_t k) { to.store(i, j, k, results_of(i, j, k)); });
}

/// The same memory with y's dims and strides: a number is what x has at the offset that y gives it.
void reshape(const Place& from, const Place& to) {
  Tensor seen = to.tensor;
  seen.type = from.tensor.type;
  const Place x{seen, from.memory};
  std::vector<float> row = floats(seen.dims[3]);
  each_row(seen.dims, [&](std::int64_t i, std::int64_t j, std::int64_t k) {
    x.load(i, j, k, row.data());
    to.store(i, j, k, row.data());
  });
}

}  // namespace

std::int64_t Tensor::bytes() const {
  std::int64_t last = 0;
  for (std::size_t axis = 0; axis < 4; ++axis) last += (dims[axis] - 1) * strides[axis];
  return (last + 1) * bytes_of(type);
}

void Program::run(Memory memory, void* at_workspace) const {
  std::vector<std::vector<std::byte>> kept;
  for (const auto& [id, tensor] : tensors) {
    if (!tensor.passing) continue;
    kept.emplace_back(static_cast<std::size_t>(tensor.bytes()), std::byte{0xff});
    memory[id] = kept.back().data();
  }
  for (const Step& step : steps) {
    if (workspace > 0) std::memset(at_workspace, 0xff, static_cast<std::size_t>(workspace));
    std::vector<Place> from;
    for (const std::int64_t id : step.from) from.push_back({tensors.at(id), memory.at(id)});
    const Place to{tensors.at(step.to), memory.at(step.to)};
    if (step.kind == Step::Kind::pointwise) pointwise(step, from, to);
    if (step.kind == Step::Kind::matmul) matmul(from, to);
    if (step.kind == Step::Kind::reduction) reduction(step, from.front(), to);
    if (step.kind == Step::Kind::reshape) reshape(from.front(), to);
  }
}

}  // namespace software_cudnn
