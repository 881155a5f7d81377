// A stranger's program: a header of the library, and each third party through the target that
// brings it.
// Not: an example (examples/).
#include <tawpipe/core/units.hpp>
#include <tawpipe/core/version.hpp>

#ifdef HOST_LAYERS
#include <tawpipe/layers/host/blas.hpp>
#endif
#ifdef CUDA
#include <tawpipe/execute/cuda/cuda_api.hpp>
#include <tawpipe/execute/cuda/nccl_api.hpp>
#endif
#ifdef CUDA_LAYERS
#include <cudnn.h>
#include <tawpipe/layers/cuda/launch.hpp>
#endif

#ifdef BASE_ONLY
#ifdef INSTALLED
#include <tawpipe/tawpipe.hpp>
#else
#include <tawpipe/schedules/gpipe.hpp>
#include <tawpipe/verify/validate.hpp>
#endif
#ifdef BOOST_CONFIG_HPP
#error "the library includes Boost where nobody has asked for it"
#endif
#else
#include <fmt/format.h>
#include <boost/graph/graph_traits.hpp>
#include <nlohmann/json.hpp>
#include <pugixml.hpp>
#include <tawpipe/layers/learning_rate.hpp>
#include <tawpipe/report/detail/page_files.hpp>  // which the build makes
#include <tawpipe/training/checkpoint.hpp>
#endif

#if defined(BASE_ONLY) && !defined(INSTALLED)
/// Whether the validator, which needs no third party, names a cycle by its task.
bool names_a_cycle() {
  const tawpipe::Schedule schedule = tawpipe::schedules::gpipe(tawpipe::Workload::abstract(2, 2), 2);
  tawpipe::Schedule::Parts parts = schedule.parts();
  auto begins = parts.dependencies.begins();
  auto items = parts.dependencies.items();
  items.insert(items.begin(), tawpipe::TaskId{0});  // the first task waits for itself
  for (std::size_t row = 1; row < begins.size(); ++row) ++begins[row];
  parts.dependencies = {begins, items};
  const std::string findings = tawpipe::validate(tawpipe::Schedule{schedule.workload(), parts}).text();
  return findings.find("1 task waits for itself: forward of stage 0, microbatch 0, on rank 0 (task 0)") != std::string::npos;
}
#endif

int main() {
  using namespace tawpipe::literals;
  if (25_GB / 25_GBps != 1_s) return 1;
#if defined(BASE_ONLY) && !defined(INSTALLED)
  if (!names_a_cycle()) return 1;
#elif !defined(BASE_ONLY)
  pugi::xml_document document;
  if (fmt::format("{}", tawpipe::version).empty() || !document.load_string("<a/>")) return 1;
  if (!tawpipe::detail::page_html.starts_with("<!doctype html>")) return 1;
  const tawpipe::training::TrainingState state{.learning_rate = {.peak = 0.5}};
  if (state.learning_rate.at(1) != tawpipe::layers::LearningRate{.peak = 0.5}.peak) return 1;
#endif
#ifdef HOST_LAYERS
  const double three = 3;
  double nine = 0;
  using tawpipe::layers::host::Operand;
  tawpipe::layers::host::multiply(Operand::plain, Operand::plain, 1, 1, 1, 1.0, &three, 1, &three, 1, 0.0, &nine, 1);
  if (nine != 9) return 1;
#endif
#ifdef CUDA
  if (tawpipe::cuda::new_communicator_id().empty()) return 1;
  try {
    const tawpipe::cuda::CudaDevice device{0};  // where there is none: an error with words
  } catch (const tawpipe::cuda::CudaError& error) {
    if (error.status() == cudaSuccess) return 1;
  }
#endif
#ifdef CUDA_LAYERS
  if (cudnnGetVersion() == 0) return 1;
#endif
  return 0;
}
