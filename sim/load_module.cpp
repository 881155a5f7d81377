// Loads modules. Not: their contents.
#include "load_module.hpp"

#include <dlfcn.h>

#include <filesystem>
#include <string_view>
#include <system_error>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/core/version.hpp"

namespace tawpipe::sim {

namespace {

/// Empty: it is in neither folder.
std::string path_of_module(std::string_view name) {
  std::error_code error;
  const std::filesystem::path command = std::filesystem::read_symlink("/proc/self/exe", error);
  for (const char* const folder : {".", TAWPIPE_MODULE_FOLDER}) {
    const std::filesystem::path file = command.parent_path() / folder / concat("tawpipe-", name, ".so");
    if (std::filesystem::exists(file, error)) return file.string();
  }
  return {};
}

}  // namespace

void* load_module(const Module& module) {
  const std::string path = path_of_module(module.name);
  if (path.empty()) {
    throw InputError(concat(module.wanted_by, ": this tawpipe was built without ", module.library,
                            ", or its part for it, tawpipe-", module.name, ".so, is not installed", module.way_out));
  }
  void* const loaded = ::dlopen(path.c_str(), RTLD_NOW | (module.global ? RTLD_GLOBAL : RTLD_LOCAL));
  if (loaded == nullptr) {
    throw DeviceError(
        concat(module.wanted_by, " needs what this machine does not have: ", one_line(::dlerror()), module.way_out));
  }
  const auto* const version = static_cast<const char* const*>(::dlsym(loaded, "tawpipe_module_version"));
  if (version == nullptr || std::string_view{*version} != tawpipe::version) {
    throw InputError(concat(module.wanted_by, ": ", path, " is of ", version == nullptr ? "no" : *version,
                            " version of tawpipe and the command of ", tawpipe::version, "; install both from one build"));
  }
  return loaded;
}

}  // namespace tawpipe::sim
