// Chakra execution traces as bytes: protobuf messages one after another, each after its length. Link tawpipe::chakra.
// Not: what the nodes mean (chakra_import.hpp, chakra_export.hpp).
#pragma once

#include <string>
#include <string_view>

#include "tawpipe/report/chakra_trace.hpp"

namespace tawpipe::inline v0 {

/// The nodes of one rank's file. @param source  the file's name, for messages
/// @throws InputError  naming the place of the message that is cut off, longer than the file or no node.
ChakraRank parse_chakra(std::string_view bytes, std::string_view source);

/// What a file begins with.
std::string chakra_head();
/// What a node adds to a file. parse_chakra() of the head and nodes gives equal nodes.
std::string chakra_bytes(const ChakraNode& node);

}  // namespace tawpipe
