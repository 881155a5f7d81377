// The executor of a backend.
// Not: the model and data of training (commands/train.cpp, commands/check_numerics.cpp).
#pragma once

#include "any_executor.hpp"
#include "execution_model.hpp"
#include "execution_request.hpp"
#include "modules.hpp"

namespace tawpipe::sim {

/// Calls `use(executor)` with the executor of `request`. @tparam T  float or double. @return what
/// `use` returns
template <class T>
int with_executor(const ExecutionRequest& request, ExecutionModel model, const UseExecutor<T>& use);

}  // namespace tawpipe::sim
