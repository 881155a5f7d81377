// The module tawpipe-cuda: runs on GPUs, all ranks on one, or one each over NCCL, as processes or
// threads.
// Not: the model and data of training (commands/).
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "leave.hpp"
#include "modules.hpp"
#include "output_file.hpp"
#include "tawpipe/core/version.hpp"
#include "tawpipe/execute/cuda/cuda_api.hpp"
#include "tawpipe/execute/cuda/gpu_places.hpp"
#include "tawpipe/execute/cuda/nccl_executor.hpp"
#include "tawpipe/execute/cuda/nvtx.hpp"
#include "tawpipe/execute/cuda/prepare.hpp"
#include "tawpipe/execute/cuda/rank_threads.hpp"
#include "tawpipe/execute/cuda/session.hpp"
#include "tawpipe/execute/cuda/virtual_executor.hpp"
#include "tawpipe/layers/cuda/adamw.hpp"
#include "tawpipe/layers/cuda/attention_notice.hpp"
#include "tawpipe/layers/cuda/llama.hpp"

namespace tawpipe::sim {

namespace {

using cuda::CudaDevice;
using cuda::NcclCommunicator;

/// The gradients kept for an observer, float32, [parameter] in device memory.
struct Observed {
  std::optional<CudaDevice> device;
  std::byte* gradients = nullptr;
  bool on = false;
  std::vector<ParameterRange> seen;
};

/// AdamW that keeps its gradients if an iteration is observed.
template <class T>
class ObservedAdamW {
 public:
  ObservedAdamW(const ExecutionModel& model, const layers::cuda::LossScale* scale, std::shared_ptr<Observed> observed)
      : adamw_{model.model, model.optimizer, scale}, observed_{std::move(observed)} {}
  void update(const DeviceUpdateArgs& args, cudaStream_t stream) const {
    if (observed_->on) {
      observed_->device->copy(observed_->gradients + args.parameters.begin * std::int64_t{sizeof(float)}, args.gradients.data(),
                              args.gradients.size(), stream);
      observed_->seen.push_back(args.parameters);
    }
    adamw_.update(args, stream);
  }

 private:
  layers::cuda::DeviceAdamW<T> adamw_;
  std::shared_ptr<Observed> observed_;
};

template <class T>
using Layer = layers::cuda::Llama<T>;
template <class T>
using VirtualRanks = cuda::VirtualExecutor<CudaDevice, Layer<T>, ObservedAdamW<T>>;
template <class T>
using OneRank = cuda::NcclExecutor<CudaDevice, NcclCommunicator, Layer<T>, ObservedAdamW<T>>;

template <class T, class E>
class RunBy final : public ExecutorBase<float, E> {
 public:
  using GpuMemory = AnyExecutor<float>::GpuMemory;

  RunBy(E& executor, std::shared_ptr<Observed> observed, int device, bool zero_cta)
      : ExecutorBase<float, E>{executor}, observed_{std::move(observed)}, device_{device}, zero_cta_{zero_cta} {}

  std::optional<GpuMemory> gpu_memory() const override {
    const E& executor = this->executor();
    if constexpr (requires { executor.connection_memory(); }) {
      const auto [before, after] = executor.connection_memory();
      return GpuMemory{executor.allocated().value(), static_cast<std::int64_t>(executor.communicators()), before.value(),
                       after.value()};
    } else {
      return GpuMemory{executor.allocated().value(), 0, 0, 0};
    }
  }
  std::optional<AnyExecutor<float>::Gathers> gathers() const override {
    if constexpr (requires(const E& executor) { executor.gathers(); }) {
      const cuda::GatherCount count = this->executor().gathers();
      if (zero_cta_) return AnyExecutor<float>::Gathers{count.all, count.in_windows};
    }
    return std::nullopt;
  }

 private:
  IterationResult iterate(const AnyExecutor<float>::Fetch& fetch, const Iteration& args,
                          const GradientObserver<float>& observe) override {
    if (observe && !observed_->device) {
      observed_->device.emplace(device_);
      const auto parameters = static_cast<std::size_t>(this->schedule().workload().model().parameters());
      observed_->gradients = observed_->device->allocate(parameters * sizeof(float));
    }
    observed_->on = static_cast<bool>(observe);
    observed_->seen.clear();
    const cuda::NvtxRange named{concat("step ", args.step)};
    Iteration own = args;
    if (std::is_same_v<T, Half> && own.gradient_clip <= 0) own.gradient_clip = 1e30;  // the loss scale needs the norm
    IterationResult result = this->executor().run(Fetching<float>{fetch}, own);
    for (const ParameterRange& range : observed_->seen) {
      std::vector<float> numbers(static_cast<std::size_t>(range.count()));
      cuda::check(cudaMemcpy(numbers.data(), observed_->gradients + range.begin * std::int64_t{sizeof(float)},
                             numbers.size() * sizeof(float), cudaMemcpyDeviceToHost),
                  "cudaMemcpy");
      observe(range, numbers);
    }
    return result;
  }

  std::shared_ptr<Observed> observed_;
  int device_;
  bool zero_cta_;
};

/// @param session  of the ranks; none: all ranks are on one GPU
template <class T>
int train_with(const ExecutionRequest& request, const ExecutionModel& model, const Schedule& schedule, cuda::Session* session,
               layers::cuda::ProductChoices* choices, const UseExecutor<float>& use) {
  const auto observed = std::make_shared<Observed>();
  std::optional<layers::cuda::LossScale> scale;
  const int device = session == nullptr ? 0 : session->device();
  CudaDevice gpu{device};
  gpu.use();
  if (std::is_same_v<T, Half>) scale.emplace();
  bool tells = (session == nullptr || session->rank() == 0) && !std::is_same_v<T, float>;
  const auto make_layer = [&] {
    Layer<T> layer{model.model, model.batch, parse_recompute(request.recompute), model.constants, choices};
    if (std::exchange(tells, false) && !layer.has_fused_attention()) {
      const std::string told = layers::cuda::attention_notice(model.model.head_size(), model.batch.sequence);
      std::fprintf(stderr, "tawpipe: %s\n", told.c_str());
    }
    if (scale) layer.use_loss_scale(scale->scale());
    return layer;
  };
  ObservedAdamW<T> optimizer{model, scale ? &*scale : nullptr, observed};
  const auto run = [&](auto& executor) {
    RunBy<T, std::remove_reference_t<decltype(executor)>> one{executor, observed, device, request.zero_cta};
    return use(one);
  };
  const Timeline expected = expected_timeline(request, schedule);
  if (session == nullptr) {
    VirtualRanks<T> executor{
        schedule, std::move(gpu), make_layer, std::move(optimizer), {.graph = request.graph, .expected = &expected}};
    return run(executor);
  }
  const auto telling = [&](const auto& act) {
    try {
      return act();
    } catch (const std::exception& error) {
      session->fail(error.what());
      throw;
    }
  };
  NcclCommunicator world = session->connect();
  return telling([&] {
    const cuda::ExecutorOptions options = session->watched({.graph = request.graph, .expected = &expected});
    if (request.graph && !options.graph && session->rank() == 0) {
      std::fputs("tawpipe: messages go to other hosts, so steps are issued task by task, not by graph\n", stderr);
    }
    OneRank<T> executor{schedule, std::move(gpu), std::move(world), make_layer, std::move(optimizer), options};
    return telling([&] { return run(executor); });
  });
}

int train_in_its_numbers(const ExecutionRequest& request, const ExecutionModel& model, const Schedule& schedule,
                         cuda::Session* session, layers::cuda::ProductChoices* choices, const UseExecutor<float>& use) {
  switch (model.model.dtype) {
    case Dtype::f32:
      return train_with<float>(request, model, schedule, session, choices, use);
    case Dtype::bf16:
      return train_with<Bfloat16>(request, model, schedule, session, choices, use);
    case Dtype::f16:
      return train_with<Half>(request, model, schedule, session, choices, use);
    case Dtype::f64:
    case Dtype::f8:
      break;
  }
  throw InputError(concat(name(model.model.dtype), " cannot be executed on a GPU; choose f32, bf16 or f16"));
}

/// The schedule on the groups that the ranks' GPUs form, which then become the request's, or those
/// of --cluster.
Schedule schedule_for(ExecutionRequest& request, ExecutionModel& model, const std::vector<cuda::GpuPlace>& places) {
  if (!request.cluster.empty()) return execution_schedule(request, model, resolve_groups(request.cluster));
  DeviceGroups groups{{1}};
  try {
    groups = cuda::link_groups(places, "torchrun, srun --distribution=block and mpirun --map-by slot do so");
  } catch (const InputError& error) {
    throw InputError(concat(error.what(), ", such as --cluster 1x", places.size()));
  }
  std::vector<std::string> sizes;
  for (int group = 0; group < groups.count(); ++group) sizes.push_back(std::to_string(groups.size(group)));
  request.cluster = sizes.size() == 1 ? concat("1x", sizes.front()) : join(sizes, "+");
  try {
    return execution_schedule(request, model, groups);
  } catch (const Error& error) {
    if (groups.count() == 1) throw;
    throw InputError(concat(error.what(), "; the groups are ", cuda::describe(places), "; --cluster gives others"));
  }
}

/// This rank's part of a run over NCCL.
int train_as_rank(ExecutionRequest request, ExecutionModel model, cuda::Session& session, layers::cuda::ProductChoices* choices,
                  const UseExecutor<float>& use) {
  std::optional<Schedule> schedule;
  const std::vector<cuda::GpuPlace> places = session.places();
  agree_on_run(session, request, [&] {
    cuda::visible_devices();
    if (request.zero_cta) cuda::require_zero_cta();
    schedule = schedule_for(request, model, places);
    if (schedule->ranks() != session.ranks()) {
      throw InputError(concat("the schedule has ", schedule->ranks(), " ranks and ", session.ranks(),
                              " processes were started by ", session.place().launcher,
                              "; start as many as the schedule has ranks"));
    }
  });
  return train_in_its_numbers(request, model, *schedule, &session, choices, use);
}

/// For this process, if no launcher started it.
int gpus_of(const ExecutionRequest& request) {
  const int visible = cuda::visible_devices();
  const int ranks = request.cluster.empty() ? 0 : resolve_groups(request.cluster).ranks();
  try {
    return cuda::gpus_without_launcher(visible, request.gpus, ranks);
  } catch (const InputError& error) {
    throw InputError(concat("--gpus, --cluster: ", error.what()));
  }
}

/// Calls `use` with a run on the GPU that the launcher gave this process. If no launcher started
/// it: with one run for each GPU, in concurrent threads, or with all ranks on one GPU
/// (gpus_without_launcher).
/// @param use  `is_root()` is true in one of its calls, which writes the output
/// @return the result of `use` for the root. @throws DeviceError  if there is no GPU.
int run(const ExecutionRequest& given, ExecutionModel model, const UseExecutor<float>& use) {
  ExecutionRequest request = given;
  if (!request.pace.empty()) throw InputError("--pace holds computations on a CPU to a speed; leave it out with --backend cuda");
  if (execution_dtype(request) == Dtype::f16) request.gradient_norm = true;  // ranks use it to skip a step together
  clean_up_by(remove_unfinished_files);
  cuda::prepare_environment();
  layers::cuda::ProductChoices tried;  // by the layers of all ranks of this process
  layers::cuda::ProductChoices* const choices = request.try_products ? &tried : nullptr;
  const cuda::SessionOptions options{
      .watch = {.task_seconds = static_cast<double>(request.task_seconds), .failed = leave},
      .nccl = {.max_ctas = static_cast<int>(request.max_ctas), .zero_cta = request.zero_cta, .seconds = request.connect_limit()}};
  const cuda::Environment variables = cuda::read_environment(environ);
  if (const std::string launcher = cuda::place_of(variables).launcher; !launcher.empty()) {
    if (request.gpus > 0)
      throw InputError(concat("--gpus is for a process by itself; leave it out where ", launcher, " starts one a GPU"));
    delay_terminate();
    try {
      cuda::Session session{variables, options};
      return train_as_rank(request, std::move(model), session, choices, use);
    } catch (const DeviceError&) {
      leave_within(5);  // a driver may wait for work left on the device
      throw;
    }
  }
  if (!request.problem.empty()) throw InputError(request.problem);
  if (const int gpus = gpus_of(request); gpus > 1) {
    if (request.graph) cuda::refuse_graph_of_threads();
    cuda::RankThreads threads{gpus, leave};
    int code = 0;
    threads.run([&](int rank) {
      cuda::Session session{threads, rank, options};
      const int own = train_as_rank(request, model, session, choices, use);
      if (rank == 0) code = own;
    });
    return code;
  }
  if (request.zero_cta)
    throw InputError("--zero-cta is for ranks with a GPU each, and one GPU has all of them here; leave it out");
  if (request.cluster.empty()) request.cluster = "1x1";
  const Schedule schedule = execution_schedule(request, model, resolve_groups(request.cluster));
  return train_in_its_numbers(request, model, schedule, nullptr, choices, use);
}

}  // namespace

extern "C" {
extern const char* const tawpipe_module_version;
const char* const tawpipe_module_version = tawpipe::version;
ModuleRun<float> tawpipe_run_f32;

int tawpipe_run_f32(const ExecutionRequest& request, const ExecutionModel& model, const UseExecutor<float>& use) {
  return run(request, model, use);
}
}

}  // namespace tawpipe::sim
