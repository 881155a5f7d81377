// The module tawpipe-chakra: Chakra traces as bytes, by protobuf.
// Not: their use (commands/chakra.cpp).
#include "commands/chakra.hpp"
#include "tawpipe/core/version.hpp"
#include "tawpipe/report/chakra_file.hpp"

extern "C" {
extern const char* const tawpipe_module_version;
extern const tawpipe::sim::ChakraCodec tawpipe_chakra_codec;
const char* const tawpipe_module_version = tawpipe::version;
const tawpipe::sim::ChakraCodec tawpipe_chakra_codec{tawpipe::parse_chakra, tawpipe::chakra_head, tawpipe::chakra_bytes};
}
