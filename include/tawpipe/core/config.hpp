// TAWPIPE_ASSERT: a check for the caller's own bugs, off where NDEBUG is defined.
// Not: the check of user input, which throws (core/error.hpp).
#pragma once

#ifndef TAWPIPE_ASSERT
#ifdef NDEBUG
#define TAWPIPE_ASSERT(condition, message) static_cast<void>(0)
#else
#include <cstdio>
#include <cstdlib>
/// Ends the program when `condition` is false. Define it before inclusion to replace it.
#define TAWPIPE_ASSERT(condition, message) \
  ((condition) ? static_cast<void>(0)      \
               : (std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, message), std::abort()))
#endif
#endif
