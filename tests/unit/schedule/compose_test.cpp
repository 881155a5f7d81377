// Tensor, context and data parallelism around a schedule: the map of ranks, and what each copy
// does.
#include "tawpipe/schedule/compose.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "schedules.hpp"
#include "tawpipe/cost/fixed.hpp"
#include "tawpipe/cost/roofline.hpp"
#include "tawpipe/model/transformer_body.hpp"
#include "tawpipe/schedule/expand.hpp"
#include "tawpipe/simulate/simulate.hpp"
#include "tawpipe/topology/cluster_builder.hpp"
#include "tawpipe/verify/validate.hpp"

using namespace tawpipe;

namespace {

Cluster two_nodes_of_eight() {
  return ClusterBuilder{}
      .device({.name = "d", .memory = 80_GiB, .peak = 312_TFLOPS, .memory_bandwidth = 2039_GBps})
      .nodes(2)
      .devices_per_node(8)
      .intra_node({.bandwidth = 200_GBps, .latency = 3_us})
      .inter_node({.bandwidth = 25_GBps, .latency = 10_us})
      .build();
}

Transformer small() {
  return {
      .name = "small", .layers = 8, .hidden = 256, .heads = 8, .kv_heads = 4, .intermediate = 512, .vocab = 1000, .tied = false};
}

Workload work(std::int64_t batch) {
  return Workload{small(), Batch{.sequence = 128, .microbatch_size = 1, .global_batch = batch}, Recompute::full};
}

}  // namespace

TEST_CASE("the map of ranks is one to one in every order of the axes") {
  std::string order = "cdst";
  do {
    const Mesh mesh = Mesh{.tensor = 2, .context = 3, .data = 2, .order = parse_mesh_order(order)}.over(48);
    CHECK(mesh.pipeline == 4);  // 48 / (2 * 3 * 2)
    std::set<int> seen;
    for (int rank = 0; rank < 48; ++rank) {
      const MeshPlace place = mesh.place(Rank{rank});
      CHECK(mesh.rank(place) == Rank{rank});
      seen.insert(place.tensor + 2 * (place.context + 3 * (place.pipeline + 4 * place.data)));
    }
    CHECK(seen.size() == 48);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("a layout that does not divide the devices, or names no order, is refused") {
  CHECK_THROWS_WITH_AS(Mesh{.tensor = 3}.over(16), "tensor 3 x context 1 x data 1 = 3 does not divide the cluster's 16 devices",
                       InputError);
  CHECK_THROWS_AS(Mesh{.tensor = 0}.over(16), InputError);
  CHECK_THROWS_WITH_AS((Mesh{.expert = 4, .order = parse_mesh_order("tcesd")}.over(16)),
                       "an expert axis needs whole experts on each rank", InputError);
  CHECK(Mesh{.order = parse_mesh_order("tcesd")}.over(16).pipeline == 16);
  CHECK_THROWS_AS((Mesh{.order = parse_mesh_order("tcs")}.over(16)), InputError);
  CHECK_THROWS_AS((Mesh{.order = parse_mesh_order("ttcs")}.over(16)), InputError);
}

TEST_CASE("a group of axes is the ranks that differ in these only, the first axis fastest") {
  const Mesh mesh = Mesh{.tensor = 2, .context = 2, .data = 2}.over(16);  // pipeline 2
  const auto numbers = [](const std::vector<Rank>& ranks) {
    std::vector<int> found;
    for (const Rank rank : ranks) found.push_back(number(rank));
    return found;
  };
  const MeshPlace place = mesh.place(Rank{13});  // tensor 1, context 0, pipeline 1, data 1
  CHECK(place == MeshPlace{.tensor = 1, .context = 0, .pipeline = 1, .data = 1});
  CHECK(numbers(mesh.group(place, {MeshAxis::tensor})) == std::vector{12, 13});
  CHECK(numbers(mesh.group(place, {MeshAxis::context, MeshAxis::data})) == std::vector{5, 7, 13, 15});
  CHECK(numbers(mesh.group(place, {MeshAxis::data, MeshAxis::context})) == std::vector{5, 13, 7, 15});
}

TEST_CASE("an order of axes is read from letters and from names") {
  CHECK(mesh_order_text(parse_mesh_order("tcsd")) == "tcsd");
  CHECK(parse_mesh_order("tp-cp-ep-dp-pp") == parse_mesh_order("tcedp"));
  CHECK(parse_mesh_order("tensor,context,pipeline,data") == Mesh{}.order);
  CHECK_THROWS_AS(parse_mesh_order("tx"), InputError);
  CHECK_THROWS_AS(parse_mesh_order("tp-"), InputError);
}

TEST_CASE("the nodes of a replica's schedule are those of its ranks' first real ranks") {
  const DeviceGroups cluster = two_nodes_of_eight().groups_by_node();
  const DeviceGroups nodes = Mesh{.tensor = 4}.over(16).pipeline_nodes(cluster);
  CHECK(nodes.count() == 2);  // 16 / 4 = 4 ranks of the schedule, 2 in each node
  CHECK(nodes.size(0) == 2);
  CHECK(Mesh{.data = 2, .order = parse_mesh_order("dtcs")}.over(16).pipeline_nodes(cluster).count() == 2);
  CHECK(Mesh{.tensor = 16}.over(16).pipeline_nodes(cluster).count() == 1);
}

TEST_CASE("every schedule composes: form, order and races are clean, and it simulates") {
  const Cluster cluster = two_nodes_of_eight();
  for (const auto& info : shipped().schedules()) {
    for (const Mesh& axes : {Mesh{.tensor = 2}, Mesh{.tensor = 2, .data = 2}, Mesh{.context = 2, .data = 2}}) {
      CAPTURE(info.name);
      CAPTURE(axes.context);
      const Mesh mesh = axes.over(16);
      const Workload part = work(32 / axes.data);
      const Schedule logical =
          build_schedule(info.name, {.workload = part, .nodes = mesh.pipeline_nodes(cluster.groups_by_node()), .options = {}});
      for (const int way : {0, 1, 2, 3, 4, 5, 6, 7}) {
        const Schedule schedule = compose(logical, work(32), mesh,
                                          {.stages = {},
                                           .sharding = static_cast<StateSharding>(way % 4),
                                           .reshard = way > 3 ? Reshard::microbatch : Reshard::step,
                                           .overlap_gradients = way > 3,
                                           .bucket = 1});
        CHECK(schedule.ranks() == 16);
        const Diagnostics found = validate(schedule, cluster);
        CHECK_MESSAGE(found.ok(), found.text());
        const Timeline timeline = simulate(schedule, cluster, RooflineCost{});
        CHECK(timeline.makespan() > Duration{});
      }
    }
  }
}

TEST_CASE("replicas share the microbatches and sum each gradient once before its update") {
  const Mesh mesh = Mesh{.data = 2}.over(4);
  const Workload part = work(4);
  const Schedule logical = build_schedule("1f1b", {.workload = part, .nodes = DeviceGroups{{2}}, .options = {}});
  const Schedule schedule = compose(logical, work(8), mesh);
  std::set<std::pair<int, int>> forwards;
  int sums = 0;
  for (const Task& task : schedule.tasks()) {
    if (task.op == Op::forward) CHECK(forwards.emplace(number(task.stage), task.microbatch).second);
    if (task.op == Op::all_reduce && task.payload == Payload::gradients) ++sums;
  }
  CHECK(forwards.size() == 2 * 8);  // 2 stages, 8 microbatches, each once
  CHECK(sums == 2);                 // one a stage
}

TEST_CASE("ranks that hold the same parameters share the update: each keeps a part of the states") {
  const Mesh mesh = Mesh{.context = 2, .data = 2}.over(8);
  const Schedule logical = build_schedule("1f1b", {.workload = work(4), .nodes = DeviceGroups{{2}}, .options = {}});
  const Schedule whole = compose(logical, work(8), mesh);
  const Schedule schedule = compose(logical, work(8), mesh, {.stages = {}, .sharding = StateSharding::optimizer});
  const Diagnostics found = validate(schedule);
  CHECK_MESSAGE(found.ok(), found.text());
  std::int64_t replicated = 0;
  std::int64_t sharded = 0;
  for (const auto& [of, sum] : {std::pair{&whole, &replicated}, {&schedule, &sharded}}) {
    for (const Buffer& buffer : of->buffers()) {
      if (buffer.kind() == BufferKind::optimizer) *sum += buffer.bytes.value();
    }
  }
  CHECK(replicated == 4 * sharded);  // context 2 x data 2
  std::int64_t scattered = 0;
  std::int64_t gathered = 0;
  for (const Task& task : schedule.tasks()) {
    if (task.op == Op::reduce_scatter && task.payload == Payload::gradients) scattered += task.bytes.value();
    if (task.op == Op::all_gather && task.payload == Payload::weights) gathered += task.bytes.value();
    CHECK(task.op != Op::all_reduce);
  }
  CHECK(scattered == 2 * small().parameters());  // bytes a parameter, once over the two stages
  CHECK(gathered == 2 * small().parameters());
}

TEST_CASE("early sums begin while backwards go on, and early gathers come before the forwards that need them") {
  const Mesh mesh = Mesh{.data = 4}.over(8);
  const Cluster cluster = two_nodes_of_eight();
  const Schedule logical =
      build_schedule("interleaved-1f1b", {.workload = work(4), .nodes = DeviceGroups{{2}}, .options = {{"chunks", "2"}}});
  const auto composed = [&](bool early) {
    return compose(logical, work(16), mesh,
                   {.stages = {}, .sharding = StateSharding::optimizer, .overlap_gradients = early, .overlap_gathers = early});
  };
  struct Found {
    std::int64_t bytes = 0;
    int sums_beside_backwards = 0;
    int gathers_after_updates = 0;
    int gathers = 0;
  };
  const auto look = [&](const Schedule& schedule) {
    const Timeline timeline = simulate(schedule, cluster, RooflineCost{});
    TimePoint last_backward;
    TimePoint first_update = TimePoint{timeline.makespan()};
    for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
      if (schedule.tasks()[t].op == Op::backward) last_backward = std::max(last_backward, timeline.end[t]);
      if (schedule.tasks()[t].op == Op::update) first_update = std::min(first_update, timeline.start[t]);
    }
    Found found;
    for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
      const Task& task = schedule.tasks()[t];
      if (!is_collective(task.op)) continue;
      found.bytes += task.bytes.value();
      if (task.op == Op::reduce_scatter && timeline.end[t] < last_backward) ++found.sums_beside_backwards;
      if (task.op != Op::all_gather) continue;
      ++found.gathers;
      if (timeline.start[t] >= first_update) ++found.gathers_after_updates;
    }
    return found;
  };
  const Found late = look(composed(false));
  const Found early = look(composed(true));
  CHECK(late.bytes == early.bytes);
  CHECK(late.gathers == 4);  // one a stage
  CHECK(early.gathers == 4);
  CHECK(late.gathers_after_updates == 4);
  CHECK(early.gathers_after_updates == 0);
  CHECK(early.sums_beside_backwards > late.sums_beside_backwards);
}

TEST_CASE("the first stage's sums run in buckets beside its last backward, its gathers beside its first forward") {
  const Cluster cluster = ClusterBuilder{}
                              .device({.name = "d", .memory = 80_GiB, .peak = 1_TFLOPS, .memory_bandwidth = 2039_GBps})
                              .nodes(2)
                              .devices_per_node(8)
                              .intra_node({.bandwidth = 20_GBps, .latency = Duration{}})
                              .inter_node({.bandwidth = 20_GBps, .latency = Duration{}})
                              .build();
  for (const Mesh& axes : {Mesh{.data = 4}, Mesh{.tensor = 2, .data = 4}, Mesh{.context = 2, .data = 4}}) {
    CAPTURE(axes.tensor);
    CAPTURE(axes.context);
    const Mesh mesh = axes.over(8 * axes.shared());
    const Schedule logical = build_schedule("1f1b", {.workload = work(4), .nodes = DeviceGroups{{2}}, .options = {}});
    for (const StateSharding sharding : {StateSharding::none, StateSharding::optimizer, StateSharding::gradients}) {
      CAPTURE(name(sharding));
      const auto composed = [&](std::int64_t bucket, bool gathers) {
        Composition with{
            .stages = {}, .sharding = sharding, .overlap_gradients = true, .overlap_gathers = gathers, .bucket = bucket};
        if (mesh.shared() > 1) {
          with.stages = share_stages(small(), logical.workload().batch(), Recompute::full, logical.stages(),
                                     {.tensor = mesh.tensor, .context = mesh.context});
        }
        return compose(logical, work(16), mesh, with);
      };
      const Schedule whole = composed(0, true);
      const Schedule parts = composed(1, true);
      CHECK(whole.parts().buckets.empty());
      REQUIRE_FALSE(parts.parts().buckets.empty());
      // Four layers and the embedding; of each the last sum, and the first gather, wait as usual.
      const std::size_t gathers = sharding == StateSharding::none ? 0 : 4;
      CHECK(parts.parts().buckets.size() == (4 + gathers) * static_cast<std::size_t>(mesh.tensor));
      const auto carried = [](const Schedule& schedule, Payload payload) {
        std::int64_t bytes = 0;
        for (const Task& task : schedule.tasks()) {
          if (is_collective(task.op) && task.payload == payload) bytes += task.bytes.value();
        }
        return bytes;
      };
      CHECK(carried(parts, Payload::gradients) == carried(whole, Payload::gradients));
      CHECK(carried(parts, Payload::weights) == carried(whole, Payload::weights));
      const Diagnostics found = validate(composed(1, false), cluster);
      CHECK_MESSAGE(found.ok(), found.text());

      const ExpandedSchedule steps = expand_bodies(parts);
      const RooflineCost cost{.overhead = Duration{}};
      const Timeline timeline = simulate(steps.schedule, cluster, cost);
      const Timeline before = simulate(has_bodies(whole) ? expand_bodies(whole).schedule : whole, cluster, cost);
      CHECK(timeline.makespan() < before.makespan());
      int early = 0;
      for (const Bucket& bucket : parts.parts().buckets) {
        const TaskId message = steps.first[index(bucket.message)];
        const bool sum = is_sum(parts.task(bucket.message).op);
        CHECK(steps.schedule.uses(message).empty());
        for (std::size_t t = 0; t < parts.tasks().size(); ++t) {
          if (!is_work(parts.tasks()[t].op)) continue;
          const auto waits = [&](TaskId task, TaskId on) {
            const auto all = parts.dependencies(task);
            return std::find(all.begin(), all.end(), on) != all.end();
          };
          const TaskId work = id<TaskId>(t);
          if (sum && waits(bucket.message, work) && timeline.start_of(message) < timeline.end_of(steps.last[t])) ++early;
          if (!sum && waits(work, bucket.message) && timeline.end_of(message) > timeline.start_of(steps.first[t])) ++early;
        }
      }
      CHECK(early > 0);
    }
  }
}

TEST_CASE("layers gathered in 8 bits are so in buckets, too") {
  Transformer model = small();
  model.products = ProductFormat::fp8;
  model.narrow_gathers = true;
  const auto of = [&](int batch) { return Workload{model, {128, 1, batch}, Recompute::full}; };
  const Schedule logical = build_schedule("1f1b", {.workload = of(4), .nodes = DeviceGroups{{2}}, .options = {}});
  const auto gathered = [&](std::int64_t bucket) {
    std::int64_t bytes = 0;
    const Schedule schedule =
        compose(logical, of(16), Mesh{.data = 4}.over(8),
                {.stages = {}, .sharding = StateSharding::optimizer, .overlap_gathers = true, .bucket = bucket});
    CHECK(schedule.parts().buckets.empty() == (bucket == 0));
    for (const Task& task : schedule.tasks()) bytes += task.payload == Payload::weights ? task.bytes.value() : 0;
    return bytes;
  };
  CHECK(gathered(1) == gathered(0));
  CHECK(gathered(0) < model.parameters() * 2);
}

TEST_CASE("context and data parallelism never add to a rank's model states") {
  const auto states = [](const Mesh& mesh) {
    const Schedule logical = build_schedule("gpipe", {.workload = work(4), .nodes = DeviceGroups{{1}}, .options = {}});
    const Schedule schedule = compose(logical, work(4 * mesh.data), mesh, {.stages = {}, .sharding = StateSharding::optimizer});
    std::int64_t bytes = 0;
    for (const Buffer& buffer : schedule.buffers()) {
      if (buffer.rank == Rank{0} && buffer.persistent && is_of_parameters(buffer.content.kind())) bytes += buffer.bytes.value();
    }
    return bytes;
  };
  const std::int64_t alone = states(Mesh{}.over(1));
  CHECK(alone == 16 * small().parameters());                           // 2 + 2 + 12 bytes each
  CHECK(states(Mesh{.data = 4}.over(4)) == 7 * small().parameters());  // 2 + 2 + 12 / 4
  CHECK(states(Mesh{.context = 4}.over(4)) == 7 * small().parameters());
  CHECK(states(Mesh{.context = 2, .data = 2}.over(4)) == 7 * small().parameters());
}

TEST_CASE("gradients and parameters are shared out in a pipeline: gathered and summed once a step, or for each microbatch") {
  const Mesh mesh = Mesh{.tensor = 2, .context = 2, .data = 2}.over(16);
  const Cluster cluster = two_nodes_of_eight();
  for (const bool tied : {false, true}) {
    Transformer model = small();
    model.tied = tied;
    const auto of = [&](std::int64_t batch) {
      return Workload{model, Batch{.sequence = 128, .microbatch_size = 1, .global_batch = batch}, Recompute::full};
    };
    const Schedule logical = build_schedule("1f1b", {.workload = of(4), .nodes = DeviceGroups{{2}}, .options = {}});
    struct Found {
      std::int64_t states = 0;  ///< bytes that rank 0 keeps of weights and gradients
      std::int64_t whole = 0;   ///< of the largest copies on the move
      int gathers = 0;
      int sums = 0;
    };
    const auto look = [&](StateSharding sharding, Reshard reshard) {
      const Schedule schedule = compose(logical, of(8), mesh, {.stages = {}, .sharding = sharding, .reshard = reshard});
      const Diagnostics found = validate(schedule, cluster);
      CHECK_MESSAGE(found.ok(), found.text());
      CHECK(simulate(schedule, cluster, RooflineCost{}).makespan() > Duration{});
      Found counted;
      for (const Buffer& buffer : schedule.buffers()) {
        const ContentKind kind = buffer.content.kind();
        if (buffer.rank != Rank{0} || (kind != ContentKind::weights && kind != ContentKind::gradients)) continue;
        if (buffer.persistent) counted.states += buffer.bytes.value();
        if (!buffer.persistent) counted.whole = std::max(counted.whole, buffer.bytes.value());
      }
      for (const Task& task : schedule.tasks()) {
        if (!is_collective(task.op) || number(schedule.group(task.group)[0]) != 0) continue;
        if (task.op == Op::all_gather && task.payload == Payload::weights) ++counted.gathers;
        if (task.op == Op::reduce_scatter && task.payload == Payload::gradients) ++counted.sums;
      }
      return counted;
    };
    const Found one = look(StateSharding::optimizer, Reshard::automatic);
    const Found two = look(StateSharding::gradients, Reshard::microbatch);
    const Found three = look(StateSharding::parameters, Reshard::automatic);
    const Found each = look(StateSharding::parameters, Reshard::microbatch);
    CHECK(one.whole == 0);
    CHECK(one.gathers == 1);
    CHECK(three.gathers == 1);  // of rank 0's stage
    CHECK(three.sums == 1);
    if (tied) {  // the stages sum the embedding's gradient between them, so it stays whole
      CHECK(three.states < one.states);
      continue;
    }
    CHECK(two.states == (one.states / 2 + one.states / 8));  // weights whole, a quarter of the gradients
    CHECK(three.states * 4 == one.states);
    CHECK(three.whole == one.states / 2);  // weights, or a gradient
    CHECK(each.states == three.states);
    CHECK(two.sums == 4);  // microbatches of a replica
    CHECK(each.sums == 4);
    CHECK(each.gathers == 8);  // for the forward and the backward of each
  }
}

TEST_CASE("FSDP over context-parallel ranks: units are gathered around each computation of one rank's schedule") {
  const Cluster cluster = two_nodes_of_eight();
  const Mesh mesh = Mesh{.context = 4, .data = 4}.over(16);
  const Schedule logical = build_schedule("ddp", {.workload = work(2), .nodes = DeviceGroups{{1}}, .options = {}});
  const Schedule schedule = compose(logical, work(8), mesh, {.stages = {}, .sharding = StateSharding::parameters});
  const Diagnostics found = validate(schedule, cluster);
  CHECK_MESSAGE(found.ok(), found.text());
  std::int64_t kept = 0;
  int gathers = 0;
  int sums = 0;
  for (const Buffer& buffer : schedule.buffers()) {
    if (buffer.rank == Rank{0} && buffer.persistent && is_of_parameters(buffer.content.kind())) kept += buffer.bytes.value();
  }
  for (const Task& task : schedule.tasks()) {
    if (task.op == Op::all_gather) ++gathers;
    if (task.op == Op::reduce_scatter) ++sums;
  }
  CHECK(kept == 16 * small().parameters() / 16);
  CHECK(sums == 2 * 10);           // 8 layers, embedding and head, for each microbatch
  CHECK(gathers == 2 * (10 + 9));  // the head stays for its backward
}
