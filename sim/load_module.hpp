// Loads a module of the command: a shared library of ours that needs libraries which a machine may lack.
// Not: what is in it (modules/).
#pragma once

#include <string>

namespace tawpipe::sim {

/// A module, and the words for what may be missing.
struct Module {
  std::string name;       ///< tawpipe-NAME.so
  std::string wanted_by;  ///< "--backend mpi"
  std::string library;    ///< "MPI": what this tawpipe was built without
  std::string way_out;    ///< what to do without it: "; install ..."
  bool global = false;    ///< its functions are seen by what it loads
};

/// Loads it from beside the command, as it is built, or from the folder of its installation; it stays loaded.
/// @return dlopen()'s handle
/// @throws InputError  if this tawpipe has no such module, or one of another version; DeviceError  if a library that the module
///   needs is missing on this machine, with the library's name.
void* load_module(const Module& module);

}  // namespace tawpipe::sim
