// Random mixtures of experts on random meshes: whatever composes is clean under the validator, has
// its model's states, and comes back from its file (TAWPIPE_DRAWS=10000 for more).
// Not: how long they take (fold_test.cpp, bounds_test.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "schedules.hpp"
#include "support/random.hpp"
#include "tawpipe/model/transformer_body.hpp"
#include "tawpipe/report/schedule_json.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/schedule/expand.hpp"
#include "tawpipe/verify/validate.hpp"

using namespace tawpipe;
using support::one_of;
using support::Random;

namespace {

/// What is composed, and how.
struct Drawn {
  Transformer model;
  Mesh mesh;
  std::string schedule;
  std::int64_t microbatches = 1;
  Recompute recompute = Recompute::none;
  ParameterBytes bytes = {};
  Offload offload = {};
  Composition with = {};
  bool bodies = true;
  bool balanced = false;

  Workload work(std::int64_t replicas) const {
    Workload made{model, {8, mesh.expert, microbatches * replicas * mesh.expert}, recompute};
    made.over_devices(mesh.pipeline).parameter_bytes(bytes);
    return made;
  }
  std::string text() const {
    return concat(schedule, ", ", model.layers, " layers, ", model.experts, " experts, tied ", model.tied, ", shared ",
                  model.shared_width, ", tensor ", mesh.tensor, ", context ", mesh.context, ", expert ", mesh.expert,
                  ", pipeline ", mesh.pipeline, ", data ", mesh.data, " in ", mesh_order_text(mesh.order), ", ", microbatches,
                  " microbatches, ", name(recompute), ", sharding ", name(with.sharding), ", reshard ", name(with.reshard),
                  ", early ", with.overlap_gradients, ", bucket ", with.bucket, ", offload ", offload.optimizer,
                  offload.activations, ", bodies ", bodies);
  }
};

Drawn draw_mixture(Random& random) {
  Drawn drawn;
  drawn.mesh.whole_experts = true;
  drawn.mesh.tensor = one_of<int>(random, {1, 1, 2});
  drawn.mesh.context = one_of<int>(random, {1, 1, 2, 3});
  drawn.mesh.expert = one_of<int>(random, {1, 2, 2, 3});
  drawn.mesh.data = one_of<int>(random, {1, 2, 3});
  std::string order = "tcesd";
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[static_cast<std::size_t>(random.between(0, int(i) - 1))]);
  drawn.mesh.order = parse_mesh_order(order);
  drawn.mesh = drawn.mesh.over(drawn.mesh.copies() * random.between(1, 4));
  drawn.model = {.name = "drawn",
                 .layers = random.between(1, 9),
                 .hidden = 12,
                 .heads = 12,
                 .kv_heads = 6,
                 .intermediate = random.between(1, 9),
                 .vocab = random.between(5, 30),
                 .tied = random.between(0, 1) == 0,
                 .gated = random.between(0, 1) == 0,
                 .experts = drawn.mesh.shared() * random.between(1, 3),
                 .shared_width = random.between(0, 1) * 7};
  drawn.model.experts_per_token = random.between(1, drawn.model.experts);
  drawn.schedule = one_of(random, shipped().schedules()).name;
  drawn.microbatches = random.between(1, 2) * one_of<int>(random, {1, 2, 4});
  drawn.recompute = one_of<Recompute>(random, {Recompute::none, Recompute::selective, Recompute::full});
  if (random.between(0, 2) == 0) drawn.bytes.gradient = 4;
  drawn.offload = {.activations = random.between(0, 4) == 0, .optimizer = random.between(0, 4) == 0};
  drawn.bodies = random.between(0, 1) == 0;
  drawn.with.sharding = static_cast<StateSharding>(random.between(0, 3));
  drawn.with.reshard = static_cast<Reshard>(random.between(0, 2));
  drawn.with.overlap_gradients = random.between(0, 1) == 0;
  drawn.with.bucket = one_of<std::int64_t>(random, {automatic_bucket, 0, 1, 3000});
  return drawn;
}

/// Bytes of a kind of content that all ranks keep.
std::int64_t kept(const Schedule& schedule, ContentKind kind) {
  std::int64_t sum = 0;
  for (const Buffer& buffer : schedule.buffers())
    sum += buffer.content.kind() == kind && buffer.persistent ? buffer.bytes.value() : 0;
  return sum;
}

}  // namespace

TEST_CASE("what composes of a mixture of experts is clean, and comes back from its file") {
  Random random{20261127};
  const int wanted = support::draws(300);
  int composed = 0;
  int sent = 0;
  for (int i = 0; i < wanted; ++i) {
    Drawn drawn = draw_mixture(random);
    CAPTURE(i);
    CAPTURE(drawn.text());
    try {
      const Schedule logical = build_schedule(drawn.schedule, {.workload = drawn.work(1),
                                                               .nodes = DeviceGroups::even(drawn.mesh.pipeline, 1),
                                                               .options = {},
                                                               .offload = drawn.offload});
      if (drawn.bodies) {
        drawn.with.stages = share_stages(
            drawn.model, drawn.work(1).batch(), drawn.recompute, logical.stages(),
            {.tensor = drawn.mesh.tensor, .context = drawn.mesh.context, .expert = drawn.mesh.expert, .whole_experts = true});
      }
      const Schedule schedule = compose(logical, drawn.work(drawn.mesh.data), drawn.mesh, drawn.with);
      ++composed;
      const Diagnostics found = validate(schedule);
      CHECK_MESSAGE(found.errors() == 0, found.text());
      const std::string text = schedule_json(schedule);
      const Schedule read = parse_schedule_json(text);
      CHECK(schedule_json(read) == text);
      CHECK(validate(read).text() == found.text());
      if (has_bodies(schedule)) {
        const Schedule steps = expand_bodies(schedule).schedule;
        CHECK(expand_bodies(read).schedule.tasks().size() == steps.tasks().size());
        for (const Task& task : steps.tasks()) sent += task.op == Op::all_to_all && is_of_tokens(task.payload) ? 1 : 0;
      }
      if (drawn.model.tied || drawn.offload.optimizer) continue;
      // All ranks together have the model at least once, and no more than a padding beyond that.
      const std::int64_t once = drawn.model.parameters() * drawn.bytes.optimizer;
      const std::int64_t states = kept(schedule, ContentKind::optimizer_state);
      CHECK(states >= once);
      const bool pipeline = shipped().info(drawn.schedule).family == ScheduleFamily::pipeline;
      const std::int64_t padding = 64 * 4 * static_cast<std::int64_t>(schedule.buffers().size());
      if (drawn.with.sharding >= StateSharding::optimizer && pipeline) CHECK(states <= once + padding);
      if (drawn.with.sharding == StateSharding::parameters && pipeline)
        CHECK(kept(schedule, ContentKind::weights) <= once / drawn.bytes.optimizer * drawn.bytes.weight + padding);
    } catch (const InputError&) {  // the schedule moves weights, or cannot have so few microbatches
    }
  }
  CHECK(composed > wanted / 6);
  CHECK(sent > wanted);
}
