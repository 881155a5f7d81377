// One of two files that include every header: they link only if everything in them is inline.
// Not: a test of behaviour.
#include "all_headers.hpp"

const void* version_seen_by_two();

int main() { return version_seen_by_two() == &tawpipe::version ? 0 : 1; }
