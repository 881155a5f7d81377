// What the measuring commands take, and their entries.
// Not: their flags (../instruments.cpp).
#pragma once

#include <string>

#include "../request.hpp"

namespace tawpipe::sim {

struct ReproduceRequest {
  std::string data;  ///< --data FILE|-: the measurements
  std::string json;  ///< --json FILE|-
};

/// Every published cell of the TawPipe paper, predicted. @throws InputError  for a file that is none of its cells.
int run_reproduce_tawpipe(const ReproduceRequest& request);

}  // namespace tawpipe::sim
