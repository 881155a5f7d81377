// The module tawpipe-mpi: runs over MPI, one rank for each process.
// Not: the model and data of training (commands/).
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "complain.hpp"
#include "leave.hpp"
#include "modules.hpp"
#include "modules/host_layer.hpp"
#include "output_file.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/core/version.hpp"
#include "tawpipe/execute/mpi/executor.hpp"

namespace tawpipe::sim {

namespace {

template <class T>
int run(const ExecutionRequest& request, const ExecutionModel& given, const UseExecutor<T>& use) {
  ExecutionModel model = given;
  clean_up_by(remove_unfinished_files);
  delay_terminate();
  std::optional<LeaveAfter> start{std::in_place, request.connect_limit(),
                                  concat("MPI has not started within ", static_cast<std::int64_t>(request.connect_limit()),
                                         " s (--connect-limit): not all ranks have come")};
  mpi::Session session{{.task_seconds = static_cast<double>(request.task_seconds), .failed = leave}};
  start.reset();
  std::optional<Schedule> schedule;
  try {
    agree_on_run(session, request, [&] {
      const std::vector<int>& hosts = session.host_of();
      const auto here = std::count(hosts.begin(), hosts.end(), hosts[static_cast<std::size_t>(session.rank())]);
      check_host_memory(request, model, static_cast<int>(here), session.ranks());
      schedule =
          execution_schedule(request, model, request.cluster.empty() ? mpi::nodes_of(session) : resolve_groups(request.cluster));
      mpi::check_ranks(*schedule, session);
    });
  } catch (const InputError& error) {
    if (session.rank() == 0) complain(error.what());  // before any rank ends, which all do together in ~Session()
    throw SaidError(error.what());
  }
  mpi::MpiExecutor<T, HostLayer<T>, HostOptimizer<T>> executor{*schedule, session, host_layers<T>(request, model),
                                                               HostOptimizer<T>{model.model, model.optimizer}};
  ExecutorBy<T, decltype(executor)> one{executor};
  try {
    return use(one);
  } catch (const InputError& error) {
    if (session.rank() != 0) session.fail(error.what());  // the error of rank 0 itself
    throw;
  }
}

}  // namespace

extern "C" {
extern const char* const tawpipe_module_version;
const char* const tawpipe_module_version = tawpipe::version;
ModuleRun<float> tawpipe_run_f32;
ModuleRun<double> tawpipe_run_f64;

int tawpipe_run_f32(const ExecutionRequest& request, const ExecutionModel& model, const UseExecutor<float>& use) {
  return run<float>(request, model, use);
}
int tawpipe_run_f64(const ExecutionRequest& request, const ExecutionModel& model, const UseExecutor<double>& use) {
  return run<double>(request, model, use);
}
}

}  // namespace tawpipe::sim
