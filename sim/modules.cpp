// Loads modules. Not: what they do.
#include "modules.hpp"

#include <dlfcn.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/core/version.hpp"

namespace tawpipe::sim {

namespace {

/// Beside the command, as it is built, or in the folder of its installation. Empty: in neither.
std::string path_of_module(std::string_view name) {
  std::error_code error;
  const std::filesystem::path command = std::filesystem::read_symlink("/proc/self/exe", error);
  for (const char* const folder : {".", TAWPIPE_MODULE_FOLDER}) {
    const std::filesystem::path file = command.parent_path() / folder / concat("tawpipe-", name, ".so");
    if (std::filesystem::exists(file, error)) return file.string();
  }
  return {};
}

/// What to do without the module, for the end of a message.
std::string way_out(std::string_view name) {
  return concat("; install ", name == "mpi" ? "MPI (on Debian: openmpi-bin)" : "CUDA, NCCL and cuDNN",
                ", or choose --backend host");
}

void* load_module(std::string_view name) {
  const std::string path = path_of_module(name);
  if (path.empty()) {
    throw InputError(concat("--backend ", name, ": this tawpipe was built without ", name == "mpi" ? "MPI" : "CUDA",
                            ", or its part for it, tawpipe-", name, ".so, is not installed", way_out(name)));
  }
  // Open MPI loads parts of its own, which look for its functions among the global ones.
  void* const module = ::dlopen(path.c_str(), RTLD_NOW | (name == "mpi" ? RTLD_GLOBAL : RTLD_LOCAL));
  if (module == nullptr) {
    throw DeviceError(
        concat("--backend ", name, " needs what this machine does not have: ", one_line(::dlerror()), way_out(name)));
  }
  const auto* const version = static_cast<const char* const*>(::dlsym(module, "tawpipe_module_version"));
  if (version == nullptr || std::string_view{*version} != tawpipe::version) {
    throw InputError(concat("--backend ", name, ": ", path, " is of ", version == nullptr ? "no" : *version,
                            " version of tawpipe and the command of ", tawpipe::version, "; install both from one build"));
  }
  return module;
}

}  // namespace

template <class T>
int run_by_module(const char* name, const ExecutionRequest& request, const ExecutionModel& model, const UseExecutor<T>& use) {
  const char* const symbol = std::is_same_v<T, float> ? "tawpipe_run_f32" : "tawpipe_run_f64";
  const auto run = reinterpret_cast<ModuleRun<T>*>(::dlsym(load_module(name), symbol));
  if (run == nullptr) throw InputError(concat("--backend ", name, " does not compute in ", request.dtype));
  return run(request, model, use);
}

template int run_by_module(const char*, const ExecutionRequest&, const ExecutionModel&, const UseExecutor<float>&);
template int run_by_module(const char*, const ExecutionRequest&, const ExecutionModel&, const UseExecutor<double>&);

}  // namespace tawpipe::sim
