// The other of two files that include every header (link_one.cpp).
// Not: a test of behaviour.
#include "all_headers.hpp"

const void* version_seen_by_two();
const void* version_seen_by_two() { return &tawpipe::version; }
