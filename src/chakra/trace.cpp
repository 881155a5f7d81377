// Chakra traces to and from bytes, by protobuf. Not: what they mean.
#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/report/chakra_file.hpp"
#include "trace.pb.h"

namespace tawpipe::inline v0 {

namespace {

std::optional<ChakraKey> key_of(std::string_view text) {
  for (int key = 0; key < chakra_keys; ++key) {
    if (name(static_cast<ChakraKey>(key)) == text) return static_cast<ChakraKey>(key);
  }
  return std::nullopt;
}

/// The nearest 64-bit integer.
std::int64_t whole(double value) {
  if (!(value > -9.2e18)) return value < 0 ? std::numeric_limits<std::int64_t>::min() : 0;
  return value < 9.2e18 ? static_cast<std::int64_t>(value) : std::numeric_limits<std::int64_t>::max();
}
std::int64_t whole(std::uint64_t value) {
  return static_cast<std::int64_t>(std::min<std::uint64_t>(value, std::numeric_limits<std::int64_t>::max()));
}

void set(ChakraNode& node, ChakraKey key, const chakra::Attribute& one) {
  using chakra::Attribute;
  switch (one.value_case()) {
    case Attribute::kAsDouble:
      return node.set(key, whole(one.as_double()));
    case Attribute::kAsFloat:
      return node.set(key, whole(static_cast<double>(one.as_float())));
    case Attribute::kAsInt32:
      return node.set(key, one.as_int32());
    case Attribute::kAsInt64:
      return node.set(key, one.as_int64());
    case Attribute::kAsUint32:
      return node.set(key, one.as_uint32());
    case Attribute::kAsUint64:
      return node.set(key, whole(one.as_uint64()));
    case Attribute::kAsSint32:
      return node.set(key, one.as_sint32());
    case Attribute::kAsSint64:
      return node.set(key, one.as_sint64());
    case Attribute::kAsFixed32:
      return node.set(key, one.as_fixed32());
    case Attribute::kAsFixed64:
      return node.set(key, whole(one.as_fixed64()));
    case Attribute::kAsSfixed32:
      return node.set(key, one.as_sfixed32());
    case Attribute::kAsSfixed64:
      return node.set(key, one.as_sfixed64());
    case Attribute::kAsBool:
      return node.set(key, one.as_bool() ? 1 : 0);
    case Attribute::kAsText:
      return node.set(key, one.as_text());
    case Attribute::kAsBooleans: {
      std::string text;
      for (const bool value : one.as_booleans().values()) text += value ? '1' : '0';
      return node.set(key, std::move(text));
    }
    case Attribute::VALUE_NOT_SET:
      return;
  }
}

ChakraNode node_of(const chakra::Node& from) {
  ChakraNode node{.id = from.id(),
                  .name = from.name(),
                  .type = from.type(),
                  .control_deps = {from.control_dependencies().begin(), from.control_dependencies().end()},
                  .data_deps = {from.data_dependencies().begin(), from.data_dependencies().end()},
                  .start_us = from.start_microseconds(),
                  .duration_us = from.duration_microseconds(),
                  .inputs = from.inputs().values(),
                  .attributes = {}};
  for (const chakra::Attribute& one : from.attributes()) {
    if (const auto key = key_of(one.name())) set(node, *key, one);
  }
  return node;
}

std::string delimited(const google::protobuf::MessageLite& message) {
  std::uint8_t length[5];
  const std::uint8_t* const end =
      google::protobuf::io::CodedOutputStream::WriteVarint32ToArray(static_cast<std::uint32_t>(message.ByteSizeLong()), length);
  std::string bytes{reinterpret_cast<const char*>(length), static_cast<std::size_t>(end - length)};
  message.AppendToString(&bytes);
  return bytes;
}

}  // namespace

ChakraRank parse_chakra(std::string_view bytes, std::string_view source) {
  ChakraRank rank{.source = std::string{source}, .nodes = {}};
  std::size_t at = 0;
  const auto fail = [&](std::size_t message, std::size_t place, std::string_view what) {
    const std::string which = message == 0 ? std::string{"its head"} : concat("node ", message, " of the file");
    return InputError(concat(source, ": ", which, ", at byte ", place, ": ", what));
  };
  if (bytes.empty()) throw InputError(concat(source, " is empty; a Chakra trace begins with its head"));
  chakra::Head head;
  chakra::Node node;
  for (std::size_t message = 0; at < bytes.size(); ++message) {
    const std::size_t begin = at;
    std::uint64_t length = 0;
    const std::string_view rest = bytes.substr(at, 10);
    google::protobuf::io::CodedInputStream stream{reinterpret_cast<const std::uint8_t*>(rest.data()),
                                                  static_cast<int>(rest.size())};
    if (!stream.ReadVarint64(&length)) throw fail(message, begin, "its length is cut off; is this a Chakra trace?");
    at += static_cast<std::size_t>(stream.CurrentPosition());
    if (length > bytes.size() - at) {
      throw fail(message, begin,
                 concat("it should be ", length, " bytes long and the file has ", bytes.size() - at,
                        " more; is it cut off, or no Chakra trace?"));
    }
    if (length > std::numeric_limits<std::int32_t>::max())
      throw fail(message, begin, "a message beyond 2 GiB is none of protobuf's");
    const bool right = message == 0 ? head.ParseFromArray(bytes.data() + at, static_cast<int>(length))
                                    : node.ParseFromArray(bytes.data() + at, static_cast<int>(length));
    if (!right) throw fail(message, begin, "its bytes are not a message of Chakra's");
    at += static_cast<std::size_t>(length);
    if (message > 0) rank.nodes.push_back(node_of(node));
  }
  return rank;
}

std::string chakra_head() {
  chakra::Head head;
  head.set_version("0.0.4");
  return delimited(head);
}

std::string chakra_bytes(const ChakraNode& node) {
  chakra::Node to;
  to.set_id(node.id);
  to.set_name(node.name);
  to.set_type(node.type);
  for (const std::uint64_t earlier : node.control_deps) to.add_control_dependencies(earlier);
  for (const std::uint64_t earlier : node.data_deps) to.add_data_dependencies(earlier);
  to.set_start_microseconds(node.start_us);
  to.set_duration_microseconds(node.duration_us);
  if (!node.inputs.empty()) to.mutable_inputs()->set_values(node.inputs);
  for (const ChakraAttribute& one : node.attributes) {
    chakra::Attribute& attribute = *to.add_attributes();
    attribute.set_name(std::string{name(one.key)});
    if (one.key == ChakraKey::involved_dim) {
      for (const char value : one.text) attribute.mutable_as_booleans()->add_values(value == '1');
    } else if (one.is_text) {
      attribute.set_as_text(one.text);
    } else if (one.key == ChakraKey::is_cpu_op) {
      attribute.set_as_bool(one.number != 0);
    } else {
      attribute.set_as_int64(one.number);
    }
  }
  return delimited(to);
}

}  // namespace tawpipe
