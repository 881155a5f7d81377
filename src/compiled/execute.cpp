// The part of tawpipe::compiled that prepares execution: each rank's program, data and memory.
// Not: in a program that only links tawpipe::tawpipe.
#include "compiled/schedules_part.hpp"
#undef TAWPIPE_BODIES
#define TAWPIPE_BODIES 1
#include "tawpipe/execute/buffer_plan.hpp"
#include "tawpipe/execute/detail/dataflow_builder.hpp"
#include "tawpipe/execute/program.hpp"
#include "tawpipe/execute/ring_plan.hpp"
