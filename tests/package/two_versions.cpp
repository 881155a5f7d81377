// Compiled twice, with two versions of the library: nothing of the one is taken for the other's where both are linked.
// Not: two versions in one file, whose macros would meet.
#include <tawpipe/tawpipe.hpp>

const void* other_version();

#ifdef OTHER_VERSION
const void* other_version() { return &tawpipe::v1::version; }
#else
int main() { return other_version() != &tawpipe::v0::version ? 0 : 1; }
#endif
