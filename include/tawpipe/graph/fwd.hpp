// The directed graph: names for headers that only refer to it.
// Not: templates, options of single calls and private helpers.
#pragma once

namespace tawpipe::inline v0 {

class Digraph;

}  // namespace tawpipe
