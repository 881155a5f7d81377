// Executors whose libraries a machine may lack (MPI; CUDA, NCCL, cuDNN, cuBLASLt): modules, loaded
// when a run asks for them.
// Not: the contents of a module (modules/).
#pragma once

#include <functional>

#include "any_executor.hpp"
#include "execution_model.hpp"
#include "execution_request.hpp"

namespace tawpipe::sim {

/// The use of an executor. @return an exit code
template <class T>
using UseExecutor = std::function<int(AnyExecutor<T>&)>;

/// The function of a module, `tawpipe_run_f32` or `tawpipe_run_f64`: calls `use` with its executor.
template <class T>
using ModuleRun = int(const ExecutionRequest& request, const ExecutionModel& model, const UseExecutor<T>& use);

/// Runs with the module of --backend `name`, which stays loaded.
/// @param name  mpi or cuda
/// @return what `use` returned for the root
/// @throws InputError  if this tawpipe has no such module, or one of a different version;
/// DeviceError  if a library that the module needs is missing on this machine, with the library's
/// name.
template <class T>
int run_by_module(const char* name, const ExecutionRequest& request, const ExecutionModel& model, const UseExecutor<T>& use);

}  // namespace tawpipe::sim
