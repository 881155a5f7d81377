// Macros that real system headers define (rpcndr.h, complex.h, sys/sysmacros.h), ahead of ours.
// Not: min and max, which no header of the standard library survives.
#pragma once

#define small char
#define major(device) ((device) >> 8)
#define minor(device) ((device)&0xff)

#if defined(TAWPIPE_HEADER_OF_base) || defined(TAWPIPE_HEADER_OF_layers)
#define I (__extension__ 1.0iF)  // not for the other targets: Boost names a template parameter I
#endif
