// A file of a program as all its files are, and, with OTHER_FILE, another: with TAWPIPE_COMPILED
// both, neither, or, wrongly, one.
// Not: two versions of the library, which may be in one program (two_versions.cpp).
#include <tawpipe/schedules/gpipe.hpp>

tawpipe::Schedule schedule_of_other_file();

#if defined(OTHER_FILE) || defined(WHOLE)
tawpipe::Schedule schedule_of_other_file() { return tawpipe::schedules::gpipe(tawpipe::Workload::abstract(2, 2), 2); }
#endif
#ifndef OTHER_FILE
int main() {
  const tawpipe::Schedule schedule = tawpipe::schedules::gpipe(tawpipe::Workload::abstract(2, 2), 2);
  return schedule.tasks().size() == schedule_of_other_file().tasks().size() ? 0 : 1;
}
#endif
