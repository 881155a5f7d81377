// One rank of a run over NCCL, started by ranks.py: every collective, large ones of registered
// memory as an executor calls them (two ranks only), then a recorded run under some schedules,
// eager and by graph. nccl_test REFERENCE NODES SCHEDULE... (NODES as 2+2), or nccl_test REFERENCE
// NODES HOW RANK SCHEDULE: trains until ended. HOW: --forever (RANK is not looked at), --graph (the
// same by graph), --stall (a forward of RANK never ends), --pending (and 1,500 launches stand after
// it), --throw (RANK throws in its fifth step, by graph). Without a callback that ends the process:
// --abort (as --throw: all aborts must come to their ends), --adopt (as that, eager, and
// communicator and stream are not the executor's), --deadline (as --stall: aborts that do not end
// are left).
// Not: virtual ranks (virtual_test.cpp).
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

#include "tawpipe/execute/cuda/nccl_executor.hpp"
#include "tawpipe/execute/cuda/session.hpp"
#include "training.hpp"

using namespace tawpipe;
using Executor = cuda::NcclExecutor<cuda::CudaDevice, cuda::NcclCommunicator, gpu::Layer, gpu::Optimizer>;

namespace {

std::vector<std::int32_t> parse_nodes(const std::string& text) {
  std::vector<std::int32_t> nodes{0};
  for (const char c : text) {
    if (c == '+') {
      nodes.push_back(0);
    } else {
      nodes.back() = nodes.back() * 10 + (c - '0');
    }
  }
  return nodes;
}

/// Small whole numbers in memory, which T holds exactly, each collective once; the expected result
/// is computed in parallel.
template <class T>
void collectives(gpu::Checks& checks, cuda::CudaDevice& device, cuda::NcclCommunicator& world) {
  constexpr std::int64_t count = 1000;
  constexpr Dtype type = layers::cuda::dtype_of<T>;
  const int ranks = world.ranks();
  const int rank = world.rank();
  const auto stream = device.make_stream(cuda::Priority::normal);
  const auto done = device.make_event(false);
  const auto bytes = static_cast<std::size_t>(count) * static_cast<std::size_t>(ranks) * sizeof(T);
  std::byte* const window = device.allocate_host(bytes);
  std::byte* const from = device.allocate(bytes);
  std::byte* const to = device.allocate(bytes);
  const auto finish = [&] {
    device.record(done, stream);
    while (!device.finished(done)) {
      world.check();
      std::this_thread::yield();
    }
  };
  const auto value = [](int of, std::int64_t i) { return static_cast<float>((of * 31 + i * 7) % 17); };
  /// Fills `from`, calls, and compares `to`, all of [ranks * count] or its first `expected`
  /// numbers.
  const auto test = [&](const char* what, std::int64_t expected, auto&& call, auto&& wanted) {
    auto* const numbers = reinterpret_cast<T*>(window);
    for (std::int64_t i = 0; i < count * ranks; ++i) numbers[i] = static_cast<T>(value(rank, i));
    device.upload(from, window, bytes, stream);
    device.clear(to, bytes, stream);
    call();
    device.download(window, to, bytes, stream);
    finish();
    bool same = true;
    for (std::int64_t i = 0; i < expected; ++i) same = same && static_cast<float>(numbers[i]) == wanted(i);
    checks.that(same, concat(what, " of ", ranks, " ranks in ", name(type)));
  };
  const auto sum = [&](std::int64_t i) {
    float all = 0;
    for (int r = 0; r < ranks; ++r) all += value(r, i);
    return all;
  };
  const auto largest = [&](std::int64_t i) {
    float most = 0;
    for (int r = 0; r < ranks; ++r) most = std::max(most, value(r, i));
    return most;
  };
  const auto offset = static_cast<std::ptrdiff_t>(count) * rank;
  const int root = ranks - 1;
  test(
      "all-reduce", count, [&] { world.all_reduce(from, to, count, type, cuda::Reduction::sum, stream); }, sum);
  test(
      "largest", count, [&] { world.all_reduce(from, to, count, type, cuda::Reduction::maximum, stream); }, largest);
  test(
      "broadcast", count, [&] { world.broadcast(from, to, count, type, root, stream); },
      [&](std::int64_t i) { return value(root, i); });
  test(
      "reduce", rank == root ? count : 0, [&] { world.reduce(from, to, count, type, root, stream); }, sum);
  test(
      "all-gather", count * ranks, [&] { world.all_gather(from, to, count, type, stream); },
      [&](std::int64_t i) { return value(static_cast<int>(i / count), i % count); });
  test(
      "reduce-scatter", count, [&] { world.reduce_scatter(from, to, count, type, stream); },
      [&](std::int64_t i) { return sum(i + offset); });
  test(
      "exchange around a ring", count,
      [&] {
        world.group_begin();
        world.send(from, count, type, (rank + 1) % ranks, stream);
        world.receive(to, count, type, (rank + ranks - 1) % ranks, stream);
        world.group_end();
      },
      [&](std::int64_t i) { return value((rank + ranks - 1) % ranks, i); });
  const auto half = world.split(rank % 2, -rank, cuda::Traffic::pairs);
  checks.that(half && half->ranks() == (ranks + 1 - rank % 2) / 2, "a split has the ranks of its colour");
  checks.that(half && half->rank() == (half->ranks() - 1 - rank / 2), "members are numbered by their keys");
  checks.that(world.split(rank == 0 ? -1 : 0, 0, cuda::Traffic::collectives).has_value() == (rank != 0),
              "a rank without a colour is in no part");
}

/// Messages of 64 MB, whose registered memory NCCL uses directly (protocol Simple): addresses as
/// schedules have them, null where a rank gives or takes nothing.
void registered(gpu::Checks& checks, cuda::CudaDevice& device, const Schedule& schedule, cuda::NcclCommunicator own) {
  using Ranks = cuda::RankCommunicators<cuda::CudaDevice, cuda::NcclCommunicator>;
  const int ranks = own.ranks();
  const int rank = own.rank();
  const std::int64_t count = (std::int64_t{1} << 24) / ranks;  // of each rank's part
  const auto all = static_cast<std::size_t>(count * ranks);
  const std::size_t bytes = all * sizeof(float);
  cuda::CommunicatorPlan plan;
  plan.members.resize(1);
  for (int r = 0; r < ranks; ++r) plan.members[0].push_back(Rank{r});
  plan.traffic = {cuda::Traffic::collectives};
  plan.rounds = {{0}};
  Ranks communicators{schedule, std::move(own)};
  std::byte* const from = communicators.allocate(device, 2 * bytes);
  std::byte* const to = from + bytes;
  communicators.split(plan);
  communicators.enroll(communicators.is_direct());
  auto* const window = reinterpret_cast<float*>(device.allocate_host(bytes));
  const auto stream = device.make_stream(cuda::Priority::normal);
  const auto done = device.make_event(false);
  const auto value = [](int of, std::size_t i) { return static_cast<float>((static_cast<std::size_t>(of) * 31 + i) & 15); };
  const auto test = [&](const char* what, Op op, bool gives, bool takes, std::int64_t numbers, auto&& wanted) {
    for (std::size_t i = 0; i < all; ++i) window[i] = value(rank, i);
    device.upload(from, reinterpret_cast<std::byte*>(window), bytes, stream);
    device.clear(to, bytes, stream);
    Ranks::Step step;
    step.op = op;
    step.stream = stream;
    step.communicator = 0;
    step.peer = op == Op::pass ? 1 - rank : 1;
    step.count = numbers;
    step.from = gives ? from : nullptr;
    step.to = takes ? to : nullptr;
    if (gives || takes) communicators.communicate(step, {}, device);
    device.download(reinterpret_cast<std::byte*>(window), to, bytes, stream);
    device.record(done, stream);
    while (!device.finished(done)) {
      communicators.check();
      std::this_thread::yield();
    }
    bool same = true;
    for (std::size_t i = 0; takes && i < all; ++i) same = same && window[i] == wanted(i);
    checks.that(same, concat(what, " of 64 MB of registered memory"));
  };
  const auto sum = [&](std::size_t i) {
    float result = 0;
    for (int r = 0; r < ranks; ++r) result += value(r, i);
    return result;
  };
  const auto whole = static_cast<std::int64_t>(all);
  const auto part = static_cast<std::size_t>(count);
  test("a broadcast", Op::broadcast, rank == 1, true, whole, [&](std::size_t i) { return value(1, i); });
  test("an all-gather", Op::all_gather, true, true, count,
       [&](std::size_t i) { return value(static_cast<int>(i / part), i % part); });
  test("a send", Op::pass, rank == 0, rank == 1, whole, [&](std::size_t i) { return value(0, i); });
  test("a reduce", Op::reduce, true, rank == 1, whole, sum);
  test("an all-reduce", Op::all_reduce, true, true, whole, sum);
}

/// @param compute  a stream to compute on that the executor does not own; none: its own
gpu::Trained train(const gpu::Reference& reference, const Schedule& schedule, cuda::Session& session, bool graph,
                   cuda::NcclCommunicator world, std::optional<cudaStream_t> compute = std::nullopt) {
  Executor executor{schedule,
                    cuda::CudaDevice{session.device()},
                    std::move(world),
                    [&] { return gpu::layer_of(reference); },
                    gpu::optimizer_of(reference),
                    {.graph = graph, .time_limit = 400},
                    compute};
  return gpu::train(executor, reference,
                    [&](std::span<float> values, std::span<const char> known) { executor.gather(values, known); });
}

/// @param how  as the first lines of this file say  @param rank  that stalls or throws
void train_forever(const gpu::Reference& reference, const Schedule& schedule, cuda::Session& session,
                   cuda::NcclCommunicator world, const std::string& how, int rank,
                   std::optional<cudaStream_t> compute = std::nullopt) {
  const bool graph = how == "--graph" || how == "--throw" || how == "--abort";
  const bool throws = (how == "--throw" || how == "--abort" || how == "--adopt") && session.rank() == rank;
  const bool stalls = (how == "--stall" || how == "--pending" || how == "--deadline") && session.rank() == rank;
  const int forwards = stalls ? 20 : 0;  // in the second or third step
  cuda::ExecutorOptions options = session.watched({.graph = graph});
  options.graph = graph;  // also where ranks of one GPU pretend to be separate hosts
  if (how == "--abort" || how == "--adopt") options.abort_limit = 1e9;
  cuda::NcclExecutor<cuda::CudaDevice, cuda::NcclCommunicator, gpu::Stalling, gpu::Optimizer> executor{
      schedule,
      cuda::CudaDevice{session.device()},
      std::move(world),
      [&] {
        return gpu::Stalling{gpu::layer_of(reference), forwards, how == "--pending" ? 1500 : 0};
      },
      gpu::optimizer_of(reference),
      options,
      compute};
  for (int step = 1;; ++step) {
    executor.run(gpu::Failing{reference, throws ? 5 : 0}, {.step = step, .learning_rate = reference.number("lr")});
    if (step == (graph ? 3 : 1) && session.rank() == 0) std::printf("training%s\n", graph ? " by graph" : "");
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return gpu::run([&](gpu::Checks& checks) {
    const gpu::Reference reference{argc > 1 ? argv[1] : ""};
    const std::vector<std::int32_t> nodes = parse_nodes(argc > 2 ? argv[2] : "1");
    std::vector<std::string> names{argv + std::min(argc, 3), argv + argc};
    const bool forever = !names.empty() && names[0].starts_with("--");
    cuda::SessionOptions options;
    // A busy machine is slow.
    options.watch = {.silence_seconds = 60, .task_seconds = forever ? 20.0 : 300.0};
    const bool alone = forever && (names[0] == "--abort" || names[0] == "--adopt" || names[0] == "--deadline");
    if (!alone) options.watch.failed = sim::leave;
    options.nccl.register_memory = true;  // whatever the version
    cuda::Session session{cuda::read_environment(environ), options};
    session.agree(session.ranks() == DeviceGroups{nodes}.ranks() ? "" : "NODES are not the ranks that were started");
    cuda::check(cudaSetDevice(session.device()), "cudaSetDevice");
    cuda::NcclCommunicator world = session.connect();
    const int rank = session.rank();
    if (forever) {
      const Schedule schedule = gpu::schedule_of(reference, names.at(2), nodes).value();
      const auto train = [&](cuda::NcclCommunicator by, std::optional<cudaStream_t> stream = std::nullopt) {
        train_forever(reference, schedule, session, std::move(by), names.at(0), std::stoi(names.at(1)), stream);
      };
      if (names.at(0) != "--adopt") train(std::move(world));
      cuda::CudaDevice device{session.device()};
      train(cuda::NcclCommunicator::adopt(world.get()), device.make_stream(cuda::Priority::normal));
    }
    cuda::CudaDevice device{session.device()};
    collectives<float>(checks, device, world);
    collectives<Bfloat16>(checks, device, world);
    if (session.ranks() == 2) {  // of more they would say the same, later
      registered(checks, device, gpu::schedule_of(reference, "fsdp", nodes).value(),
                 world.split(0, rank, cuda::Traffic::collectives).value());
    }
    for (const std::string& name : names) {
      const auto schedule = gpu::schedule_of(reference, name, nodes);
      if (!schedule) continue;
      const gpu::Trained eager =
          train(reference, *schedule, session, false, world.split(0, rank, cuda::Traffic::collectives).value());
      if (rank == 0) gpu::check(checks, reference, eager, concat(name, " on ", session.ranks(), " processes"));
      const gpu::Trained graph =
          train(reference, *schedule, session, true, world.split(0, rank, cuda::Traffic::collectives).value());
      if (rank == 0) checks.that(graph == eager, name + ": a graph gives the same bits");
    }
    const auto schedule = gpu::schedule_of(reference, names.at(0), nodes);
    const cudaStream_t stream = device.make_stream(cuda::Priority::normal);  // a framework's, as its communicator is
    const gpu::Trained adopted =
        train(reference, schedule.value(), session, false, cuda::NcclCommunicator::adopt(world.get()), stream);
    if (rank == 0) gpu::check(checks, reference, adopted, "a communicator and a stream of others");
    collectives<float>(checks, device, world);  // which are left as they were
  });
}
