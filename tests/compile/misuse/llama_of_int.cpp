// The decoder computes in float or double.
// Not: what it computes (unit/layers/host/llama_test.cpp).
#include "tawpipe/layers/host/llama.hpp"

using Right = tawpipe::layers::host::Llama<float>;
static_assert(sizeof(Right) > 0);
#ifdef TAWPIPE_MISUSE
using Wrong = tawpipe::layers::host::Llama<int>;
static_assert(sizeof(Wrong) > 0);
#endif
