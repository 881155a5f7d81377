// The part of tawpipe::compiled that only needs the standard library.
// Not: in a program that only links tawpipe::tawpipe.
#define TAWPIPE_COMPILING
#include "tawpipe/schedules/shipped.hpp"
#include "tawpipe/verify/validate.hpp"
