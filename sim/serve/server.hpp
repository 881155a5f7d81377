// `tawpipe serve`: a server of HTTP on loopback with one thread, whose answers other processes compute.
// Not: HTTP's text (http.hpp), nor what is asked (questions.hpp).
#pragma once

#include "command_run.hpp"

namespace tawpipe::sim {

struct ServeRequest {
  int port = 8471;       ///< --port; 0: any that is free
  int time_limit = 120;  ///< --time-limit of an answer, in seconds
  int jobs = 2;          ///< --jobs: answers that are computed at once
};

/// Serves until Ctrl-C, SIGTERM or SIGHUP. @throws InputError  if the port is taken
int run_serve(const ServeRequest& request);

}  // namespace tawpipe::sim
