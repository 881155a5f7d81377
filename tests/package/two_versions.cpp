// Compiled twice, with two versions of the library, and linked into one program that uses both:
// nothing of the one is taken for the other's.
// Not: two versions in one file, whose macros would meet.
#include <cstddef>
#include <exception>
#include <string>
#include <tawpipe/core/error.hpp>
#include <tawpipe/core/version.hpp>
#include <tawpipe/schedules/gpipe.hpp>
#include <typeinfo>

/// What the other file found with its version.
struct Found {
  const void* version;
  std::string schedule_type;
  std::size_t tasks;
};
Found other_version();
[[noreturn]] void fail_in_other_version();

namespace {

Found use_version() {
  const tawpipe::Schedule schedule = tawpipe::schedules::gpipe(tawpipe::Workload::abstract(2, 4), 2);
  return {&tawpipe::version, typeid(schedule).name(), schedule.tasks().size()};
}

}  // namespace

#ifdef OTHER_VERSION
Found other_version() { return use_version(); }
void fail_in_other_version() { throw tawpipe::v1::InputError("not the same type"); }
#else
int main() {
  const Found own = use_version();
  const Found other = other_version();
  bool apart = own.version != other.version && own.schedule_type != other.schedule_type && own.tasks == other.tasks;
  try {
    fail_in_other_version();
  } catch (const tawpipe::v0::Error&) {
    apart = false;
  } catch (const std::exception& error) {
    apart = apart && std::string{error.what()} == "not the same type";
  }
  return apart ? 0 : 1;
}
#endif
