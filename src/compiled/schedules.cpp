// The part of tawpipe::compiled that needs the standard library alone.
// Not: in a program that links tawpipe::tawpipe alone.
#define TAWPIPE_COMPILING
#include "tawpipe/schedules/shipped.hpp"
#include "tawpipe/verify/validate.hpp"
