// Executors whose libraries a machine may lack (MPI; CUDA, NCCL, cuDNN, cuBLASLt): modules, loaded when a run asks for them.
// Not: what is in a module (modules/).
#pragma once

#include <functional>

#include "any_executor.hpp"
#include "execution_model.hpp"
#include "execution_request.hpp"

namespace tawpipe::sim {

/// What is done with an executor. @return an exit code
template <class T>
using UseExecutor = std::function<int(AnyExecutor<T>&)>;

/// What a module has a function of, `tawpipe_run_f32` or `tawpipe_run_f64`: calls `use` with its executor.
template <class T>
using ModuleRun = int(const ExecutionRequest& request, const ExecutionModel& model, const UseExecutor<T>& use);

/// Runs by the module that --backend `name` stands for, which stays loaded.
/// @param name  mpi or cuda
/// @return what `use` returned for the root
/// @throws InputError  if this tawpipe has no such module, or one of another version; DeviceError  if a library that the module
///   needs is missing on this machine, with the library's name.
template <class T>
int run_by_module(const char* name, const ExecutionRequest& request, const ExecutionModel& model, const UseExecutor<T>& use);

}  // namespace tawpipe::sim
