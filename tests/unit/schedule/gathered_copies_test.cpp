// Tests of schedule/detail/gathered_copies.hpp: which computations copy states, and how much.
// Not: the messages (schedules/fully_sharded_test.cpp, compose_test.cpp).
#include "tawpipe/schedule/detail/gathered_copies.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "schedules.hpp"
#include "tawpipe/cost/kernel_cost.hpp"
#include "tawpipe/cost/roofline.hpp"
#include "tawpipe/model/transformer_body.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/schedule/expand.hpp"
#include "tawpipe/topology/cluster_builder.hpp"
#include "tawpipe/topology/devices.hpp"
#include "tawpipe/verify/validate.hpp"

using namespace tawpipe;
using namespace tawpipe::literals;

namespace gathered_copies_test {

namespace {

/// 8 layers of which each has a multiple of 8 parameters.
Transformer decoder(LayerCode code = LayerCode::torchtitan) {
  return {
      .name = "small", .layers = 8, .hidden = 256, .heads = 8, .kv_heads = 8, .intermediate = 512, .vocab = 1024, .code = code};
}

Workload decoder_work(std::int64_t batch, LayerCode code = LayerCode::torchtitan) {
  Workload work{decoder(code), Batch{.sequence = 128, .microbatch_size = 1, .global_batch = batch}};
  return work.parameter_bytes(trained_bytes(Dtype::bf16));
}

/// What rank 0's computations of a stage copy, in the order of the schedule.
std::vector<std::int64_t> copies(const Schedule& schedule, int stage, Op op) {
  std::vector<std::int64_t> found;
  for (const Task& task : schedule.tasks()) {
    if (task.rank == Rank{0} && task.op == op && task.stage == StageId{stage}) found.push_back(task.bytes.value());
  }
  return found;
}

using Sizes = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("FSDP2: gathered weights are copied before each pass, a gradient before it is scattered") {
  const std::int64_t layer = decoder().layer_parameters();
  const auto build = [](const std::string& name, LayerCode code, ScheduleOptions options = {}) {
    return build_schedule(name,
                          {.workload = decoder_work(8, code), .nodes = DeviceGroups{{2, 2}}, .options = std::move(options)});
  };
  const Schedule fsdp = build("fsdp", LayerCode::torchtitan);
  // 2 bytes are read and 2 written; of a gradient 2 are read and 4 written. Two rounds.
  CHECK(copies(fsdp, 1, Op::forward) == Sizes{4 * layer, 4 * layer});
  CHECK(copies(fsdp, 1, Op::backward) == Sizes{10 * layer, 10 * layer});
  const Schedule kept = build("fsdp", LayerCode::torchtitan, {{"reshard", "off"}});
  CHECK(copies(kept, 1, Op::forward) == Sizes{4 * layer, 4 * layer});
  CHECK(copies(kept, 1, Op::backward) == Sizes{6 * layer, 6 * layer});
  // On two levels what arrives is copied once.
  CHECK(copies(build("fsdp", LayerCode::torchtitan, {{"collectives", "two-level"}}), 1, Op::backward) ==
        Sizes{10 * layer, 10 * layer});
  for (const char* name : {"ddp", "zero1", "zero2"}) {
    CAPTURE(name);
    CHECK(copies(build(name, LayerCode::torchtitan), 1, Op::backward) == Sizes{0, 0});
  }
  CHECK(copies(build("fsdp", LayerCode::megatron), 1, Op::backward) == Sizes{0, 0});
  // The first FSDP: 2 bytes of a gradient are read and written into the flat parameter's.
  const Schedule flat = build("fsdp", LayerCode::composer);
  CHECK(copies(flat, 1, Op::forward) == Sizes{0, 0});
  CHECK(copies(flat, 1, Op::backward) == Sizes{4 * layer, 4 * layer});
  const Schedule alone = build_schedule("fsdp", {.workload = decoder_work(1), .nodes = DeviceGroups{{1}}, .options = {}});
  CHECK(copies(alone, 1, Op::backward) == Sizes{0});
}

TEST_CASE("FSDP2 around a schedule: what each rank gathers is copied, once an iteration in a pipeline") {
  const std::int64_t stage = 4 * decoder().layer_parameters() + decoder().embedding_parameters();
  const Schedule logical = build_schedule("1f1b", {.workload = decoder_work(3), .nodes = DeviceGroups{{2}}, .options = {}});
  const Mesh mesh = Mesh{.data = 4}.over(8);
  const auto around = [&](StateSharding sharding, Reshard reshard) {
    return compose(logical, decoder_work(12), mesh, {.stages = {}, .sharding = sharding, .reshard = reshard});
  };
  const Schedule once = around(StateSharding::parameters, Reshard::automatic);
  // The first microbatch's gradient is cast, the others are added to it in float32 (2 + 4 + 4), and
  // the last sum is copied (4 + 4).
  CHECK(copies(once, 0, Op::forward) == Sizes{4 * stage, 0, 0});
  CHECK(copies(once, 0, Op::backward) == Sizes{6 * stage, 10 * stage, 18 * stage});
  const Schedule each = around(StateSharding::parameters, Reshard::microbatch);
  CHECK(copies(each, 0, Op::forward) == Sizes(3, 4 * stage));
  CHECK(copies(each, 0, Op::backward) == Sizes(3, 10 * stage));
  CHECK(copies(around(StateSharding::optimizer, Reshard::automatic), 0, Op::backward) == Sizes{0, 0, 0});
}

TEST_CASE("layers' weights are gathered in 8 bits, edges' in 16") {
  Transformer model = decoder();
  model.products = ProductFormat::fp8;
  model.narrow_gathers = true;
  const auto work = [&](std::int64_t batch) {
    Workload made{model, Batch{.sequence = 128, .microbatch_size = 1, .global_batch = batch}};
    return made.parameter_bytes(trained_bytes(Dtype::bf16));
  };
  const std::int64_t layer = model.layer_parameters();
  const std::int64_t edge = model.embedding_parameters();
  const auto gathered = [](const Schedule& schedule, int stage) {
    Sizes sizes;
    for (const Task& task : schedule.tasks()) {
      if (task.op == Op::all_gather && task.stage == StageId{stage}) sizes.push_back(task.bytes.value());
    }
    return sizes;
  };
  const Schedule fsdp = build_schedule("fsdp", {.workload = work(4), .nodes = DeviceGroups{{2, 2}}, .options = {}});
  CHECK(gathered(fsdp, 1) == Sizes{layer, layer});
  CHECK(gathered(fsdp, 0)[0] == 2 * edge);
  CHECK(copies(fsdp, 1, Op::forward) == Sizes{2 * layer});
  CHECK(copies(fsdp, 1, Op::backward) == Sizes{8 * layer});
  CHECK(validate(fsdp).ok());
  const Schedule logical = build_schedule("1f1b", {.workload = work(3), .nodes = DeviceGroups{{2}}, .options = {}});
  const Schedule around = compose(logical, work(12), Mesh{.data = 4}.over(8), {.sharding = StateSharding::parameters});
  CHECK(gathered(around, 0) == Sizes{4 * layer + 2 * edge});
  CHECK(validate(around).ok());
  // New weights of an optimizer that is shared are in the model's numbers, but by Megatron-LM.
  const Composition shared{.sharding = StateSharding::optimizer};
  const Schedule renewed = compose(logical, work(12), Mesh{.data = 4}.over(8), shared);
  CHECK(gathered(renewed, 0) == Sizes{2 * (4 * layer + edge)});
  model.code = LayerCode::megatron;
  const Schedule pipeline = build_schedule("1f1b", {.workload = work(3), .nodes = DeviceGroups{{2}}, .options = {}});
  const Schedule narrow = compose(pipeline, work(12), Mesh{.data = 4}.over(8), shared);
  CHECK(gathered(narrow, 0) == Sizes{4 * layer + 2 * edge});
  CHECK(validate(narrow).ok());
}

TEST_CASE("a tensor-parallel rank copies its part, with the first step of a pass") {
  const std::int64_t layer = decoder().layer_parameters();
  const Workload whole = decoder_work(8);
  const Schedule logical = build_schedule("ddp", {.workload = decoder_work(2), .nodes = DeviceGroups{{1}}, .options = {}});
  const Mesh mesh = Mesh{.tensor = 2, .data = 4}.over(8);
  const Composition with{.stages = share_stages(decoder(), whole.batch(), Recompute::none, logical.stages(), {.tensor = 2}),
                         .sharding = StateSharding::parameters};
  const Schedule composed = compose(logical, whole, mesh, with);
  CHECK(copies(composed, 1, Op::forward) == Sizes{2 * layer, 2 * layer});
  const Sizes steps = copies(expand_bodies(composed).schedule, 1, Op::backward);
  std::int64_t sum = 0;
  for (const std::int64_t step : steps) sum += step;
  CHECK(sum == 2 * 5 * layer);
  CHECK(steps.front() == 5 * layer);
  CHECK(steps.size() > 4);
}

TEST_CASE("copies take a device's memory their time, in addition to the pass") {
  const Cluster cluster =
      ClusterBuilder{}.device(device_named("H100-80G")).nodes(1).devices_per_node(4).intra_node({450_GBps, 3_us}).build();
  const auto build = [](bool gathered) {
    return build_schedule(gathered ? "fsdp" : "ddp", {.workload = decoder_work(4), .nodes = DeviceGroups{{4}}, .options = {}});
  };
  const Schedule fsdp = build(true);
  const Schedule ddp = build(false);
  const auto backward = [&](const Schedule& schedule, const auto& cost) {
    for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
      const Task& task = schedule.tasks()[t];
      if (task.op == Op::backward && task.stage == StageId{1})
        return to_seconds(cost.compute_time(schedule, id<TaskId>(t), cluster));
    }
    return 0.0;
  };
  const double bytes = 10 * static_cast<double>(decoder().layer_parameters());
  const double bandwidth = cluster.device(Rank{0}).memory_bandwidth.value();
  const KernelCost kernels{
      .changes = {{&DeviceCurves::memory, 0.5}, {&DeviceCurves::host_layer, 0}, {&DeviceCurves::host_backward, 0}}};
  CHECK(backward(fsdp, kernels) - backward(ddp, kernels) == doctest::Approx(bytes / bandwidth / 0.5).epsilon(1e-6));
  CHECK(backward(fsdp, RooflineCost{}) - backward(ddp, RooflineCost{}) == doctest::Approx(bytes / bandwidth / 0.8).epsilon(1e-6));
  const KernelCost host{.changes = {{&DeviceCurves::host_backward, 1}}};
  CHECK(backward(fsdp, host) == doctest::Approx(1));  // the device waits for the host meanwhile
}

}  // namespace gathered_copies_test
