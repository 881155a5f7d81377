// The part of tawpipe::compiled that builds and checks schedules: it only needs the standard
// library.
// Not: in a program that only links tawpipe::tawpipe.
#include "tawpipe/core/compiled.hpp"
#undef TAWPIPE_BODIES
#define TAWPIPE_BODIES 1
#include "compiled/schedules_part.hpp"
