// A file of a program as all its files are, and, with OTHER_FILE, another: with TAWPIPE_COMPILED
// both, neither, or, wrongly, one.
// Not: two versions of the library, which may be in one program (two_versions.cpp).
#include <tawpipe/schedules/gpipe.hpp>
#include <tawpipe/verify/validate.hpp>

bool other_file_validates(const tawpipe::Schedule& schedule);

#if defined(OTHER_FILE) || defined(WHOLE)
bool other_file_validates(const tawpipe::Schedule& schedule) { return tawpipe::validate(schedule).ok(); }
#endif
#ifndef OTHER_FILE
int main() {
  const tawpipe::Schedule schedule = tawpipe::schedules::gpipe(tawpipe::Workload::abstract(2, 2), 2);
  return tawpipe::validate(schedule).ok() && other_file_validates(schedule) ? 0 : 1;
}
#endif
