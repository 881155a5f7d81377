// Compiled twice, with two versions of the library, and linked into one program that uses both:
// nothing of the one is taken for the other's.
// Not: two versions in one file, whose macros would meet.
#include <exception>
#include <string>
#include <tawpipe/core/error.hpp>
#include <tawpipe/core/version.hpp>
#include <tawpipe/cost/fixed.hpp>
#include <tawpipe/schedules/gpipe.hpp>
#include <tawpipe/simulate/simulate.hpp>
#include <tawpipe/topology/cluster_builder.hpp>

/// What the other file found with its version.
struct Found {
  const void* version;
  std::string schedule_type;
  double makespan;  ///< seconds
};
Found other_version();
[[noreturn]] void fail_in_other_version();

namespace {

Found use_version() {
  using namespace tawpipe::literals;
  const tawpipe::Cluster cluster = tawpipe::ClusterBuilder{}
                                       .device({.name = "one", .memory = 1_GiB, .peak = 1_TFLOPS, .memory_bandwidth = 1_GBps})
                                       .nodes(1)
                                       .devices_per_node(2)
                                       .intra_node({.bandwidth = 1_GBps, .latency = 1_us})
                                       .build();
  const tawpipe::Schedule schedule = tawpipe::schedules::gpipe(tawpipe::Workload::abstract(2, 4), 2);
  const tawpipe::FixedCost cost{.forward = 1_s, .backward_input = 1_s, .backward_weight = 1_s, .transfer = 1_s};
  const tawpipe::Duration makespan = tawpipe::simulate(schedule, cluster, cost).makespan();
  return {&tawpipe::version, typeid(schedule).name(), tawpipe::to_seconds(makespan)};
}

}  // namespace

#ifdef OTHER_VERSION
Found other_version() { return use_version(); }
void fail_in_other_version() { throw tawpipe::v1::InputError("not the same type"); }
#else
int main() {
  const Found own = use_version();
  const Found other = other_version();
  bool apart = own.version != other.version && own.schedule_type != other.schedule_type && own.makespan == other.makespan;
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
