// Runs by modules. Not: their contents.
#include "modules.hpp"

#include <dlfcn.h>

#include <string>
#include <string_view>
#include <type_traits>

#include "load_module.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::sim {

namespace {

/// The alternative to the module, for the end of a message.
std::string way_out(std::string_view name) {
  return concat("; install ", name == "mpi" ? "MPI (on Debian: openmpi-bin)" : "CUDA, NCCL and cuDNN",
                ", or choose --backend host");
}

void* load_backend(std::string_view name) {
  // Open MPI loads its own plugins, which need its functions among the global symbols.
  return load_module({.name = std::string{name},
                      .wanted_by = concat("--backend ", name),
                      .library = name == "mpi" ? "MPI" : "CUDA",
                      .way_out = way_out(name),
                      .global = name == "mpi"});
}

}  // namespace

template <class T>
int run_by_module(const char* name, const ExecutionRequest& request, const ExecutionModel& model, const UseExecutor<T>& use) {
  const char* const symbol = std::is_same_v<T, float> ? "tawpipe_run_f32" : "tawpipe_run_f64";
  const auto run = reinterpret_cast<ModuleRun<T>*>(::dlsym(load_backend(name), symbol));
  if (run == nullptr) throw InputError(concat("--backend ", name, " does not compute in ", request.dtype));
  return run(request, model, use);
}

template int run_by_module(const char*, const ExecutionRequest&, const ExecutionModel&, const UseExecutor<float>&);
template int run_by_module(const char*, const ExecutionRequest&, const ExecutionModel&, const UseExecutor<double>&);

}  // namespace tawpipe::sim
