// The arithmetic and the bytes of communications. Not: their order (nccl_communicator.cpp).
#include "software_gpu/nccl_operation.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace software_gpu {
namespace {

struct Head {
  Kind kind;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root;
  std::uint64_t count;
  bool registered;
  bool direct;
  std::uint64_t places[2];
};

Head read(const std::string& head) {
  Head one{};
  std::memcpy(&one, head.data(), std::min(head.size(), sizeof one));
  return one;
}

float wide(float value) { return value; }
double wide(double value) { return value; }
float wide(__half value) { return __half2float(value); }
float wide(__nv_bfloat16 value) { return __bfloat162float(value); }
void narrow(float value, float& to) { to = value; }
void narrow(double value, double& to) { to = value; }
void narrow(float value, __half& to) { to = __float2half_rn(value); }
void narrow(float value, __nv_bfloat16& to) { to = __float2bfloat16_rn(value); }

/// @param offset  numbers before the wanted ones in each part
template <class T>
void reduce(const Operation& operation, const std::vector<Part>& parts, std::size_t offset) {
  std::vector<T> result(operation.count);
  std::vector<T> next(operation.count);
  const std::size_t bytes = operation.count * sizeof(T);
  for (std::size_t part = 0; part < parts.size(); ++part) {
    std::memcpy((part == 0 ? result : next).data(), parts[part].data.data() + offset * sizeof(T), bytes);
    for (std::size_t i = 0; part > 0 && i < operation.count; ++i) {
      const auto a = wide(result[i]);
      const auto b = wide(next[i]);
      narrow(operation.op == ncclSum ? a + b : std::max(a, b), result[i]);
    }
  }
  std::memcpy(operation.to, result.data(), bytes);
}

void reduce(const Operation& operation, const std::vector<Part>& parts, std::size_t offset) {
  switch (operation.type) {
    case ncclFloat32:
      return reduce<float>(operation, parts, offset);
    case ncclFloat64:
      return reduce<double>(operation, parts, offset);
    case ncclFloat16:
      return reduce<__half>(operation, parts, offset);
    default:
      return reduce<__nv_bfloat16>(operation, parts, offset);
  }
}

}  // namespace

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 0;
  }
}

bool can_reduce(ncclRedOp_t op, ncclDataType_t type) {
  return (op == ncclSum || op == ncclMax) &&
         (type == ncclFloat32 || type == ncclFloat64 || type == ncclFloat16 || type == ncclBfloat16);
}

std::string head_of(const Operation& operation) {
  Head head{};
  head.kind = operation.kind;
  head.type = operation.type;
  head.op = operation.op;
  head.root = operation.between_two() ? 0 : operation.peer;
  head.count = operation.count;
  head.registered = operation.registered;
  head.direct = operation.direct;
  std::copy(operation.places.begin(), operation.places.end(), head.places);
  std::string text(sizeof head, '\0');
  std::memcpy(text.data(), &head, sizeof head);
  return text;
}

std::string describe(const std::string& head) {
  static constexpr std::array<const char*, 7> names{"ncclSend",      "ncclRecv",          "ncclBroadcast", "ncclReduce",
                                                    "ncclAllGather", "ncclReduceScatter", "ncclAllReduce"};
  const Head one = read(head);
  const auto place = [](const char* what, std::uint64_t at) {
    return at == 0 ? "" : std::string{", "} + what + " at " + std::to_string(at - 1) + " of a window";
  };
  return std::string{names.at(static_cast<std::size_t>(one.kind))} + "(count " + std::to_string(one.count) + ", type " +
         std::to_string(one.type) + ", op " + std::to_string(one.op) + ", root " + std::to_string(one.root) +
         (one.registered ? ", registered" : "") + (one.direct ? ", direct" : "") + place("source", one.places[0]) +
         place("destination", one.places[1]) + ")";
}

bool fit(const std::string& one, const std::string& other) {
  const Head a = read(one);
  const Head b = read(other);
  const bool two = a.kind == Kind::send || a.kind == Kind::receive;
  return (two || a.kind == b.kind) && a.type == b.type && a.op == b.op && a.root == b.root && a.count == b.count &&
         a.registered == b.registered && a.direct == b.direct && std::equal(a.places, a.places + 2, b.places);
}

Part part_of(const Operation& operation, int rank, int ranks) {
  const bool sends = operation.kind != Kind::receive && (operation.kind != Kind::broadcast || operation.peer == rank);
  const std::size_t all = operation.kind == Kind::reduce_scatter ? static_cast<std::size_t>(ranks) : 1;
  Part part{head_of(operation), {}};
  if (sends) part.data.assign(static_cast<const char*>(operation.from), operation.count * all * size_of(operation.type));
  return part;
}

void complete(const Operation& operation, int rank, const std::vector<Part>& parts) {
  const auto put = [&](std::size_t part, std::size_t at) {
    const std::string& data = parts[part].data;
    char* const to = static_cast<char*>(operation.to) + at;
    // What this member sends from its place is not written: others may read it meanwhile, as root's
    // weights in a broadcast.
    const bool sent = operation.kind != Kind::broadcast || operation.peer == rank;
    if (!data.empty() && !(sent && to == operation.from)) std::memcpy(to, data.data(), data.size());
  };
  switch (operation.kind) {
    case Kind::send:
      return;
    case Kind::receive:
      return put(0, 0);
    case Kind::broadcast:
      return put(static_cast<std::size_t>(operation.peer), 0);
    case Kind::all_gather:
      for (std::size_t r = 0; r < parts.size(); ++r) put(r, r * parts[r].data.size());
      return;
    case Kind::reduce_scatter:
      return reduce(operation, parts, static_cast<std::size_t>(rank) * operation.count);
    case Kind::reduce:
      if (rank != operation.peer) return;
      [[fallthrough]];
    case Kind::all_reduce:
      return reduce(operation, parts, 0);
  }
}

}  // namespace software_gpu
