// A vector of ranks is not indexed by a node.
// Not: what IdVector does otherwise (unit/core/ids_test.cpp).
#include "tawpipe/core/id_vector.hpp"

int right(const tawpipe::IdVector<tawpipe::Rank, int>& items) { return items[tawpipe::Rank{0}]; }
#ifdef TAWPIPE_MISUSE
int wrong(const tawpipe::IdVector<tawpipe::Rank, int>& items) { return items[tawpipe::NodeId{0}]; }
#endif
