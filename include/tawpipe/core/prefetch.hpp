// Tells the processor to load memory that will soon be needed.
// Not: needed for correctness.
#pragma once

namespace tawpipe::inline v0::detail {

/// Loads the cache line of `address` while the program goes on; an address that cannot be read does
/// no harm. A schedule takes gigabytes, and each rank's next task is somewhere else in them.
inline void prefetch(const void* address) { __builtin_prefetch(address); }

}  // namespace tawpipe::detail
