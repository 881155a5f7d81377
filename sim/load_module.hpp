// Loads a module of the command: our shared library, which needs libraries that a machine may lack.
// Not: its contents (modules/).
#pragma once

#include <string>

namespace tawpipe::sim {

/// A module, and the texts for errors.
struct Module {
  std::string name;       ///< tawpipe-NAME.so
  std::string wanted_by;  ///< "--backend mpi"
  std::string library;    ///< "MPI": the library that this tawpipe was built without
  std::string way_out;    ///< the alternative: "; install ..."
  bool global = false;    ///< its functions are visible to libraries that it loads
};

/// Loads it from the command's folder in a build, or from its installed folder; it stays loaded.
/// @return dlopen()'s handle
/// @throws InputError  if this tawpipe has no such module, or one of a different version;
/// DeviceError  if a library that the module needs is missing on this machine, with the library's
/// name.
void* load_module(const Module& module);

}  // namespace tawpipe::sim
