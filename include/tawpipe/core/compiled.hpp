// How to write functions that a program of many files compiles once, in the library
// tawpipe::compiled, instead of in each file.
// Not: needed by a program of few files, which can use only the headers.
#pragma once

// A header with such functions declares them with TAWPIPE_INLINE. Their bodies, and the includes
// that only these need, come after `#if TAWPIPE_BODIES`. tawpipe::compiled defines TAWPIPE_COMPILED
// for its users. Each file of src/compiled/ sets TAWPIPE_BODIES to 1 before the headers of its
// part, and after those of the other parts that it uses.
#ifdef TAWPIPE_COMPILED
#define TAWPIPE_BODIES 0
#define TAWPIPE_INLINE
#else
#define TAWPIPE_BODIES 1
#define TAWPIPE_INLINE inline
#endif

namespace tawpipe::inline v0::detail {

// Files with and without TAWPIPE_COMPILED must not be linked into one program: their functions are
// defined twice. A linker rejects and reports a name that is thread-local in one file but not in
// the other.
#ifdef TAWPIPE_COMPILED
[[gnu::used]] inline thread_local char all_files_of_a_program_link_tawpipe_compiled_or_none = 0;
#else
[[gnu::used]] inline char all_files_of_a_program_link_tawpipe_compiled_or_none = 0;
#endif

}  // namespace tawpipe::inline v0::detail
