# tawpipe_warnings: what our own programs are compiled with. Link it PRIVATE.
# Not: for the library's targets, whose users choose their own warnings.
option(TAWPIPE_WARNINGS_AS_ERRORS "Stop at a warning in our own programs" OFF)

add_library(tawpipe_warnings INTERFACE)
target_compile_options(tawpipe_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wshadow
  -Wno-sign-conversion      # clang's -Wconversion has it, gcc's has not; indices would be all casts
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>  # false with std::string at -O2: gcc bug 105651
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<CONFIG:Release>>:-Wno-maybe-uninitialized>  # false with std::optional: gcc bug 80635; other builds have it
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=1048576>  # from 128 MB on it collects garbage for a tenth of its time
  $<$<BOOL:${TAWPIPE_WARNINGS_AS_ERRORS}>:-Werror>
  -ffp-contract=off)        # one result on every machine, with or without fused multiply-add
