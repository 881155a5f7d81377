// The session of a test program that mpirun starts.
// Not: its main (mpi/main.cpp).
#pragma once

#include "tawpipe/execute/mpi/session.hpp"

/// Made at the first call, by all ranks.
tawpipe::mpi::Session& session_of_tests();
