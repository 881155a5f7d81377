// Reads NCCL's topology XML (NCCL_TOPO_DUMP_FILE, NCCL_TOPO_FILE) into a node, with the link speeds
// NCCL assumes.
// Not: NCCL's search for rings and trees over it.
#pragma once

#include <pugixml.hpp>
#include <string>
#include <string_view>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/topology/cluster.hpp"
#include "tawpipe/topology/detail/nccl_xml_reader.hpp"
#include "tawpipe/topology/node_graph.hpp"
#include "tawpipe/topology/routing.hpp"

namespace tawpipe::inline v0 {

/// Builds the graph of the node that NCCL's XML describes: a full dump, or a partial hint such as a
/// cloud's, where a `<pci>` of class 0x03.. is a GPU and one of 0x0200 or 0x0207 an adapter without
/// further details. GPUs are numbered by their `dev`. Missing parts of a hint (mainly NVLinks) are
/// not invented; see NcclXmlOptions.
/// @param source  the file's name, for messages.
/// @throws InputError  naming the line where the XML breaks, or the element and attribute that is
/// invalid.
inline NodeGraph node_graph_from_nccl_xml(std::string_view text, const NcclXmlOptions& options = {},
                                          std::string_view source = "NCCL topology") {
  pugi::xml_document document;
  const auto parsed = document.load_buffer(text.data(), text.size());
  if (!parsed) {
    throw InputError(concat(source, ", line ", detail::line_at(text, parsed.offset), ": not XML: ", parsed.description()));
  }
  const auto system = document.child("system");
  if (!system) {
    throw InputError(concat(source, ": the root element is ", quote(document.document_element().name()),
                            "; NCCL's topology starts with <system version=\"1\">"));
  }
  return detail::NcclXmlReader{text, source, options}.read(system);
}

/// The graph and the routes: from text to node. @throws InputError  as node_graph_from_nccl_xml()
/// and make_node_type().
inline NodeType node_type_from_nccl_xml(std::string_view text, const NcclXmlOptions& options = {},
                                        std::string_view source = "NCCL topology") {
  return make_node_type(std::string{source}, node_graph_from_nccl_xml(text, options, source));
}

}  // namespace tawpipe
