// Chakra execution traces as files of the command: those of all ranks, read and written.
// Not: what the nodes mean (report/chakra_import.hpp, report/chakra_export.hpp).
#pragma once

#include <string>
#include <string_view>

#include "../request.hpp"
#include "tawpipe/report/chakra_trace.hpp"

namespace tawpipe::sim {

/// The interface of the module tawpipe-chakra, under the name `tawpipe_chakra_codec`
/// (report/chakra_file.hpp).
struct ChakraCodec {
  ChakraRank (*parse)(std::string_view bytes, std::string_view source);
  std::string (*head)();
  std::string (*bytes)(const ChakraNode& node);
};

/// Whether a path names a trace: NAME.RANK.et.
bool is_chakra_path(std::string_view path);

/// Reads the trace that the file `path` of one rank belongs to: NAME.0.et, NAME.1.et and so on.
/// @param groups  the file of its process groups; "": NAME.json, if it exists
/// @throws InputError  naming the rank whose file is missing, or the error in one
ChakraTrace read_chakra(const std::string& path, const std::string& groups);

/// `tawpipe export --chakra NAME`: writes NAME.RANK.et of each rank, NAME.json (process groups)
/// and, if the cluster can be expressed so, NAME.network.yml and NAME.system.json for ASTRA-sim's
/// analytical network, and prints what the files cannot express.
int run_chakra_export(const Request& request, const std::string& prefix);

}  // namespace tawpipe::sim
