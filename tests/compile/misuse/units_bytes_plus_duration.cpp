// Bytes and time do not add.
// Not: what units do otherwise (unit/core/units_test.cpp).
#include "tawpipe/core/units.hpp"

using namespace tawpipe::literals;

auto sum = 1_KiB + 2_KiB;
#ifdef TAWPIPE_MISUSE
auto nonsense = 1_KiB + 2_us;
#endif
