// The request of `tawpipe check-numerics`. Not: its implementation (check_numerics.cpp).
#pragma once

#include <string>

#include "../execution_request.hpp"

namespace tawpipe::sim {

struct NumericsRequest {
  ExecutionRequest execution;
  std::string reference;  ///< a folder
  std::string json;
};

int run_check_numerics(const NumericsRequest& request);

}  // namespace tawpipe::sim
