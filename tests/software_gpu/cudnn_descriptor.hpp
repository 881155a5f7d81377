// A descriptor of cuDNN's backend: its attributes as they were set, and how they are read.
// Not: what they mean together (cudnn_checks.cpp), nor the C functions (cudnn.cpp).
#pragma once

#include <cudnn.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "cudnn_program.hpp"

namespace software_cudnn {

/// What a function of cuDNN answers, with a reason for cudnnGetLastErrorString.
struct Refusal : std::runtime_error {
  Refusal(cudnnStatus_t answer, const std::string& reason) : std::runtime_error{reason}, status{answer} {}
  cudnnStatus_t status;
};
inline void require(bool holds, cudnnStatus_t status, const std::string& reason) {
  if (!holds) throw Refusal{status, reason};
}

/// What a type of descriptor may be told.
struct Rule {
  cudnnBackendDescriptorType_t of;
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;
  bool needed;
  std::int64_t most = 1;                                  ///< elements
  std::optional<cudnnBackendDescriptorType_t> part = {};  ///< what elements that are descriptors must be
};
const std::vector<Rule>& rules();

/// Bytes of an element. @throws Refusal  for a type that no rule has.
std::size_t bytes_of(cudnnBackendAttributeType_t type);

struct Descriptor {
  struct Attribute {
    std::int64_t count = 0;
    std::vector<std::byte> bytes;
    std::vector<std::shared_ptr<Descriptor>> parts;
  };

  explicit Descriptor(cudnnBackendDescriptorType_t kind) : type{kind} {}

  bool has(cudnnBackendAttributeName_t name) const { return attributes.count(name) > 0; }
  template <class Value>
  std::vector<Value> all(cudnnBackendAttributeName_t name) const {
    const auto found = attributes.find(name);
    if (found == attributes.end()) return {};
    std::vector<Value> values(static_cast<std::size_t>(found->second.count));
    std::memcpy(values.data(), found->second.bytes.data(), values.size() * sizeof(Value));
    return values;
  }
  template <class Value>
  Value one(cudnnBackendAttributeName_t name, Value otherwise = {}) const {
    const auto found = attributes.find(name);
    if (found != attributes.end()) std::memcpy(&otherwise, found->second.bytes.data(), sizeof(Value));
    return otherwise;
  }
  template <class Value>
  void set(cudnnBackendAttributeName_t name, const Value& value) {
    Attribute& attribute = attributes[name];
    attribute.count = 1;
    attribute.bytes.resize(sizeof(Value));
    std::memcpy(attribute.bytes.data(), &value, sizeof(Value));
  }
  const std::vector<std::shared_ptr<Descriptor>>& parts(cudnnBackendAttributeName_t name) const {
    return attributes.at(name).parts;
  }
  const Descriptor& part(cudnnBackendAttributeName_t name) const { return *parts(name).front(); }

  cudnnBackendDescriptorType_t type;
  bool finalized = false;
  std::map<cudnnBackendAttributeName_t, Attribute> attributes;
  std::shared_ptr<const Program> program;  ///< of an operation graph
};

/// Checks a descriptor as cudnnBackendFinalize does; makes the program of an operation graph.
/// @throws Refusal
void finalize(Descriptor& descriptor);

}  // namespace software_cudnn
