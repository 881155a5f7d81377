// Chakra execution traces as bytes: protobuf messages one after another, each after its length.
// Link tawpipe::chakra.
// Not: what the nodes mean (chakra_import.hpp, chakra_export.hpp).
#pragma once

#include <string>
#include <string_view>

#include "tawpipe/report/chakra_trace.hpp"

namespace tawpipe::inline v0 {

/// The nodes of one rank's file. @param source  the file's name, for messages
/// @throws InputError  naming the position of the message that is truncated, longer than the file
/// or not a node.
ChakraRank parse_chakra(std::string_view bytes, std::string_view source);

/// The head of a file.
std::string chakra_head();
/// The bytes of a node in a file. parse_chakra() of the head and nodes gives equal nodes.
std::string chakra_bytes(const ChakraNode& node);

}  // namespace tawpipe
