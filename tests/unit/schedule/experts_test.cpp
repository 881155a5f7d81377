// A mesh with an expert axis, and composed schedules of a mixture of experts: bytes by hand, what
// all ranks have together, and what is refused.
// Not: that the data is right (unit/verify/experts_test.cpp) nor steps of stages
// (expert_steps_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "schedules.hpp"
#include "support/mixtures.hpp"
#include "support/refusal.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/schedule/mesh.hpp"

namespace schedule_experts_test {

using namespace tawpipe;
using support::refusal;

namespace {

const Transformer& mixture = support::narrow_mixture;
/// Of two layers and the embedding; of two layers and the head.
constexpr std::int64_t dense[2] = {2 * 416 + 80, 2 * 416 + 88};
constexpr std::int64_t experts = 2 * 2304;

Workload work(std::int64_t microbatches, const Mesh& mesh, const Transformer& model = mixture) {
  return Workload{model, Batch{.sequence = 4, .microbatch_size = mesh.expert, .global_batch = microbatches * mesh.expert}};
}
/// Two logical ranks, two microbatches a replica.
Schedule composed(const char* name, const Mesh& axes, const Composition& with = {}, const Transformer& model = mixture) {
  const Mesh mesh = axes.over(2 * axes.copies());
  const Schedule logical = build_schedule(name, {.workload = work(2, mesh, model), .nodes = DeviceGroups{{2}}, .options = {}});
  return compose(logical, work(2 * mesh.data, mesh, model), mesh, with);
}

const std::vector<Mesh> meshes{
    {.expert = 2, .whole_experts = true},
    {.tensor = 2, .whole_experts = true},
    {.tensor = 2, .data = 2, .whole_experts = true},
    {.context = 2, .data = 3, .expert = 2, .whole_experts = true},
    {.tensor = 2, .context = 2, .data = 2, .expert = 2, .whole_experts = true},
};

/// [bytes, members] how many messages of a stage there are.
using Messages = std::map<std::pair<std::int64_t, std::size_t>, int>;
Messages messages(const Schedule& schedule, Op op, int stage) {
  Messages found;
  for (const Task& task : schedule.tasks()) {
    if (task.op == op && !is_of_tokens(task.payload) && number(task.stage) == stage)
      ++found[{task.bytes.value(), schedule.group(task.group).size()}];
  }
  return found;
}

/// Bytes of a kind of content on all ranks together.
std::int64_t on_all_ranks(const Schedule& schedule, ContentKind kind) {
  std::int64_t sum = 0;
  for (const Buffer& buffer : schedule.buffers()) sum += buffer.content.kind() == kind ? buffer.bytes.value() : 0;
  return sum;
}

}  // namespace

TEST_CASE("an expert axis that the order leaves out lies after the context axis") {
  const Mesh axes{.tensor = 2, .context = 2, .data = 3, .expert = 4, .whole_experts = true};
  const Mesh mesh = axes.over(96);
  CHECK(mesh.pipeline == 2);
  CHECK(mesh_order_text(mesh.order) == "tcesd");
  const auto order = [&](const char* text) {
    Mesh other = axes;
    other.order = parse_mesh_order(text);
    return mesh_order_text(other.over(96).order);
  };
  CHECK(order("dstc") == "dstce");
  CHECK(order("ctds") == "cetds");
  CHECK(order("etcds") == "etcds");
  CHECK(mesh_order_text(Mesh{.tensor = 2, .whole_experts = true}.over(8).order) == "tcsd");  // an axis of one rank
  CHECK_THROWS_AS((order("tcesde")), InputError);
}

TEST_CASE("an expert axis needs whole experts, and divides the devices with the others") {
  CHECK(refusal([] { Mesh{.expert = 4}.over(16); }) == "an expert axis needs whole experts on each rank");
  CHECK(refusal([] { Mesh{.tensor = 2, .data = 2, .expert = 3, .whole_experts = true}.over(16); }) ==
        "tensor 2 x context 1 x expert 3 x data 2 = 12 does not divide the cluster's 16 devices");
  CHECK(refusal([] { Mesh{.expert = 0, .whole_experts = true}.over(16); }) ==
        "tensor, context, expert and data parallelism must be 1 or more");
  CHECK(refusal([] { Mesh{.whole_experts = true}.over(16); }).empty());
}

TEST_CASE("ranks by what they share: tokens, experts, a batch") {
  const Mesh mesh = Mesh{.tensor = 2, .context = 3, .data = 5, .expert = 4, .whole_experts = true}.over(120);
  CHECK(mesh.shared() == 24);
  CHECK(mesh.token_ranks() == 12);
  CHECK(mesh.batch_parts() == 20);
  CHECK(mesh.expert_parts() == 24);
  CHECK(mesh.copies() == 120);
  CHECK(Mesh{.tensor = 2, .context = 3}.expert_parts() == 2);
  CHECK_FALSE(Mesh{.expert = 2, .whole_experts = true}.is_plain());
}

TEST_CASE("the map of ranks is one to one with an expert axis, in every order") {
  std::string order = "cdest";
  do {
    const Mesh mesh =
        Mesh{.tensor = 2, .context = 3, .data = 2, .expert = 2, .order = parse_mesh_order(order), .whole_experts = true}.over(48);
    REQUIRE(mesh.pipeline == 2);
    std::set<int> seen;
    bool back = true;
    for (int rank = 0; rank < 48; ++rank) {
      const MeshPlace place = mesh.place(Rank{rank});
      back = back && mesh.rank(place) == Rank{rank};
      seen.insert(place.tensor + 2 * (place.context + 3 * (place.expert + 2 * (place.pipeline + 2 * place.data))));
    }
    CHECK(back);
    CHECK(seen.size() == 48);
    CHECK(*seen.rbegin() == 47);
  } while (std::next_permutation(order.begin(), order.end()));
  const Mesh mesh = Mesh{.tensor = 2, .data = 2, .expert = 2, .whole_experts = true}.over(16);
  CHECK(mesh.place(Rank{11}) == MeshPlace{.tensor = 1, .pipeline = 0, .data = 1, .expert = 1});
  CHECK(mesh.group(mesh.place(Rank{11}), {MeshAxis::tensor, MeshAxis::expert}) ==
        std::vector{Rank{8}, Rank{9}, Rank{10}, Rank{11}});
}

TEST_CASE("weights and gradients: a part of the matrices, and some whole experts") {
  for (const Mesh& axes : meshes) {
    CAPTURE(axes.shared());
    const Schedule schedule = composed("1f1b", axes);
    const Mesh& mesh = schedule.parts().mesh;
    int found = 0;
    for (const Buffer& buffer : schedule.buffers()) {
      if (!is_of_parameters(buffer.content.kind()) || !buffer.persistent) continue;
      const std::int64_t each = buffer.content.kind() == ContentKind::optimizer_state ? 12 : 2;
      const std::int64_t own = dense[number(buffer.content.stage())] / mesh.tensor + experts / mesh.expert_parts();
      CHECK(buffer.bytes == Bytes{each * own});
      ++found;
    }
    CHECK(found == 3 * mesh.ranks());
    CHECK(on_all_ranks(schedule, ContentKind::weights) ==
          2 * mesh.data * (mesh.token_ranks() * (dense[0] + dense[1]) + 2 * experts));
  }
}

TEST_CASE("gradients are summed over the ranks that hold them: experts' over the replicas only") {
  for (const Mesh& axes : meshes) {
    CAPTURE(axes.shared());
    const Schedule schedule = composed("1f1b", axes);
    const int t = axes.tensor;
    const int all = axes.shared();
    for (const int stage : {0, 1}) {
      Messages expected;
      const auto dense_ranks = static_cast<std::size_t>(axes.token_ranks() * axes.data);
      if (dense_ranks > 1) expected[{2 * dense[stage] / t, dense_ranks}] += t;
      if (axes.data > 1) expected[{2 * experts / all, static_cast<std::size_t>(axes.data)}] += all;
      CHECK(messages(schedule, Op::all_reduce, stage) == expected);
      CHECK(messages(schedule, Op::reduce_scatter, stage).empty());
      CHECK(messages(schedule, Op::all_gather, stage).empty());
    }
  }
}

TEST_CASE("with shared optimizer states each rank has its parts of both, and all ranks together those of the model once") {
  for (const Mesh& axes : meshes) {
    for (const bool early : {false, true}) {
      CAPTURE(axes.shared());
      const Schedule schedule =
          composed("1f1b", axes,
                   {.stages = {}, .sharding = StateSharding::optimizer, .overlap_gradients = early, .overlap_gathers = early});
      const Mesh& mesh = schedule.parts().mesh;
      const int t = mesh.tensor;
      const int all = mesh.shared();
      const auto up = [](std::int64_t whole, std::int64_t parts) { return (whole + parts - 1) / parts; };
      std::int64_t padded = 0;
      for (const Buffer& buffer : schedule.buffers()) {
        if (buffer.content.kind() != ContentKind::optimizer_state) continue;
        const int stage = number(buffer.content.stage());
        const std::int64_t of_dense = up(dense[stage], mesh.token_ranks() * mesh.data);
        CHECK(buffer.bytes == Bytes{up(12 * of_dense, t) + up(12 * up(experts, mesh.data), all)});
        // The last parts may be smaller.
        const std::int64_t own = parameters_in(schedule.pieces(buffer.content.parameters()));
        CHECK(own <= of_dense + up(experts, mesh.data));
        padded += 12 * (of_dense * mesh.token_ranks() * mesh.data - dense[stage]) / (t * mesh.token_ranks() * mesh.data);
      }
      CHECK(on_all_ranks(schedule, ContentKind::optimizer_state) == 12 * mixture.parameters() + padded);
      for (const int stage : {0, 1}) {
        Messages expected;
        const auto dense_ranks = static_cast<std::size_t>(mesh.token_ranks() * mesh.data);
        if (dense_ranks > 1) expected[{2 * dense[stage] / t, dense_ranks}] += t;
        if (mesh.data > 1) expected[{2 * experts / all, static_cast<std::size_t>(mesh.data)}] += all;
        CHECK(messages(schedule, Op::reduce_scatter, stage) == expected);
        CHECK(messages(schedule, Op::all_gather, stage) == expected);
        CHECK(messages(schedule, Op::all_reduce, stage).empty());
      }
    }
  }
}

TEST_CASE("the parts of the states are disjoint, and all parameters together") {
  const Schedule schedule = composed("1f1b", {.tensor = 2, .data = 2, .expert = 2, .whole_experts = true},
                                     {.stages = {}, .sharding = StateSharding::optimizer});
  const Mesh& mesh = schedule.parts().mesh;
  const ParameterBlocks blocks = schedule.workload().model().blocks();
  std::vector<int> of_dense(static_cast<std::size_t>(mixture.parameters()), 0);
  std::vector<int> of_experts = of_dense;
  for (const Buffer& buffer : schedule.buffers()) {
    if (buffer.content.kind() != ContentKind::optimizer_state) continue;
    const auto pieces = schedule.pieces(buffer.content.parameters());
    const MeshPlace place = mesh.place(buffer.rank);
    for (const bool experts_too : {false, true}) {
      // Tensor-parallel ranks have parts of the same matrices, and every rank its own experts of all.
      if (experts_too ? place.tensor != 0 || place.expert != 0 : place.tensor != 0) continue;
      for (const ParameterRange& range : blocks.part_of(pieces, experts_too)) {
        for (std::int64_t p = range.begin; p < range.end; ++p)
          ++(experts_too ? of_experts : of_dense)[static_cast<std::size_t>(p)];
      }
    }
  }
  for (const bool experts_too : {false, true}) {
    const auto all = std::vector{ParameterRange{0, mixture.parameters()}};
    for (const ParameterRange& range : blocks.part_of(all, experts_too)) {
      std::int64_t wrong = 0;
      for (std::int64_t p = range.begin; p < range.end; ++p) {
        const auto at = static_cast<std::size_t>(p);
        wrong += of_experts[at] == (experts_too ? 1 : 0) && of_dense[at] == (experts_too ? 0 : 1) ? 0 : 1;
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("sums in buckets carry as many bytes of both") {
  const Mesh axes{.tensor = 2, .data = 2, .expert = 2, .whole_experts = true};
  for (const StateSharding sharding : {StateSharding::none, StateSharding::optimizer}) {
    const auto carried = [&](std::int64_t bucket) {
      const Schedule schedule =
          composed("1f1b", axes,
                   {.stages = {}, .sharding = sharding, .overlap_gradients = true, .overlap_gathers = true, .bucket = bucket});
      CHECK(schedule.parts().buckets.empty() == (bucket == 0));
      std::map<std::pair<Op, std::size_t>, std::int64_t> bytes;
      for (const Task& task : schedule.tasks()) {
        if (is_collective(task.op)) bytes[{task.op, schedule.group(task.group).size()}] += task.bytes.value();
      }
      return bytes;
    };
    CHECK(carried(1) == carried(0));
  }
}

TEST_CASE("sharded parameters are gathered, and gradients scattered, among the ranks that hold them") {
  const Mesh axes{.data = 2, .expert = 2, .whole_experts = true};  // 4 ranks hold what is dense, 2 each expert
  for (const Reshard reshard : {Reshard::step, Reshard::microbatch}) {
    CAPTURE(name(reshard));
    const Schedule schedule = composed("1f1b", axes, {.stages = {}, .sharding = StateSharding::parameters, .reshard = reshard});
    const ParameterBytes& sizes = schedule.workload().parameter_bytes();
    const int each = reshard == Reshard::step ? 1 : 2;  // microbatches of a replica
    for (const int stage : {0, 1}) {
      const Messages sums = messages(schedule, Op::reduce_scatter, stage);
      CHECK(sums == Messages{{{dense[stage] * sizes.gradient, 4}, each}, {{experts / 2 * sizes.gradient, 2}, 2 * each}});
      const Messages gathers = messages(schedule, Op::all_gather, stage);
      CHECK(gathers.size() == 2);
      CHECK(gathers.begin()->first.second == 4);
      CHECK(gathers.rbegin()->first == std::pair{experts / 2 * sizes.weight, std::size_t{2}});
      CHECK(gathers.rbegin()->second == 2 * gathers.begin()->second);
    }
    std::int64_t kept = 0;
    for (const Buffer& buffer : schedule.buffers()) {
      if (buffer.persistent && buffer.content.kind() == ContentKind::weights) kept += buffer.bytes.value();
    }
    CHECK(kept == (dense[0] + dense[1] + 2 * experts) * sizes.weight);  // each once
  }
}

TEST_CASE("experts stay where they are: what would move them is refused") {
  const Mesh axes{.data = 2, .expert = 2, .whole_experts = true};
  for (const char* name : {"tawpipe", "fsdp", "weipipe", "dualpipe", "chimera"}) {
    CAPTURE(name);
    CHECK(refusal([&] { composed(name, axes); }) ==
          concat("schedule ", quote(name),
                 " moves experts or their gradients between its 2 ranks; expert parallelism needs one whose ranks keep their "
                 "weights, such as 1f1b, interleaved-1f1b or zb-h1, or ddp of one rank with data parallelism around it, which "
                 "with sharded parameters is FSDP"));
  }
  for (const char* name : {"1f1b", "interleaved-1f1b", "zb-h1", "gpipe", "looped-bfs"}) {
    CAPTURE(name);
    CHECK(refusal([&] { composed(name, axes); }).empty());
  }
  Transformer tied = mixture;
  tied.tied = true;
  CHECK(refusal([&] { composed("1f1b", axes, {}, tied); }).empty());  // stages sum the embedding's gradient only
  Transformer none = mixture;
  none.experts = none.experts_per_token = none.shared_width = 0;
  CHECK(refusal([&] { composed("1f1b", axes, {}, none); }) == "expert parallelism: model 'mixture' has no experts");
  const Schedule logical = build_schedule("1f1b", {Workload::abstract(2, 2), DeviceGroups{{2}}, {}});
  CHECK(refusal([&] { compose(logical, Workload::abstract(2, 4), axes.over(8)); }) ==
        "expert parallelism: there is no model with experts");
}

}  // namespace schedule_experts_test
