// The processors of each device of the software GPU, which kernels and communications hold while
// they run.
// Not: who takes them (launches.cpp, nccl_communicator.cpp).
#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <tuple>

#include "software_gpu/inside.hpp"
#include "software_gpu/streams.hpp"

namespace software_gpu {
namespace {

struct Processors {
  std::mutex mutex;
  std::condition_variable changed;
  int free = static_cast<int>(setting("SOFTWARE_GPU_SMS", 132));
  std::uint64_t come = 0;
  std::set<std::tuple<int, std::uint64_t>> waiting;  ///< priority, number: the first is served
};

Processors& processors_of(int device) {
  static std::mutex mutex;
  static auto* const all = new std::map<int, Processors>;  // streams work to the process's end
  const std::lock_guard lock{mutex};
  return (*all)[device];
}

}  // namespace
}  // namespace software_gpu

using namespace software_gpu;

int software_gpu_take_processors(int device, int wanted, int all) {
  Processors& processors = processors_of(device);
  std::unique_lock lock{processors.mutex};
  const std::tuple own{priority_of_work(), processors.come++};
  processors.waiting.insert(own);
  int have = 0;
  while (have == 0 || (all != 0 && have < wanted)) {
    processors.changed.wait(lock, [&] { return processors.free > 0 && *processors.waiting.begin() == own; });
    const int more = std::min(processors.free, wanted - have);
    processors.free -= more;
    have += more;
  }
  processors.waiting.erase(own);
  processors.changed.notify_all();
  return have;
}

void software_gpu_give_processors(int device, int count) {
  Processors& processors = processors_of(device);
  const std::lock_guard lock{processors.mutex};
  processors.free += count;
  processors.changed.notify_all();
}
