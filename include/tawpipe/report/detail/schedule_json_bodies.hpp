// The bodies of shared stages in a schedule's JSON: written, and read with all checks that a
// simulator relies on.
// Not: public; report/schedule_json.hpp is the public interface.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "tawpipe/json/json_reader.hpp"
#include "tawpipe/model/shared_stage.hpp"
#include "tawpipe/report/detail/schedule_json_work.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0::detail {

/// Calls `visit(key, body)` for each pass of a stage.
template <class Stage, class Visit>
void for_each_body(Stage& stage, Visit&& visit) {
  visit("forward", stage.forward);
  visit("backward", stage.backward);
  visit("backward_input", stage.backward_input);
  visit("backward_weight", stage.backward_weight);
}

/// One stage's bodies as an object: {"forward": [step, ...], ..., "alternates": true}.
inline void write_bodies(const SharedStage& stage, std::string& out) {
  const auto add = [&]<class... Values>(fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(out), format, std::forward<Values>(values)...);
  };
  bool first = true;
  for_each_body(stage, [&](std::string_view key, const StageBody& body) {
    if (body.empty()) return;
    add("{}\"{}\":[", first ? "{" : ",", key);
    first = false;
    for (std::size_t s = 0; s < body.size(); ++s) {
      const BodyStep& step = body[s];
      add(R"({}{{"kind":"{}")", s == 0 ? "" : ",", name(step.kind));
      if (step.is_compute()) {
        add(R"(,"flops":{},"traffic":{})", step.flops.value(), step.traffic.value());
      } else {
        add(R"(,"axis":"{}","bytes":{})", name(step.axis), step.bytes.value());
        if (step.gradients) add(R"(,"gradients":true)");
        if (step.inner > 0) add(R"(,"inner":{})", step.inner);
        if (step.relayed > Bytes{}) add(R"(,"relayed":{})", step.relayed.value());
      }
      if (step.pieces > 1) add(R"(,"pieces":{})", step.pieces);
      if (step.layer >= 0) add(R"(,"layer":{})", step.layer);
      if (step.after[0] >= 0) add(R"(,"after":[{})", step.after[0]);
      if (step.after[1] >= 0) add(",{}", step.after[1]);
      out += step.after[0] >= 0 ? "]}" : "}";
    }
    out += ']';
  });
  if (stage.alternates) add(R"({}"alternates":true)", first ? "{" : ",");
  out += first && !stage.alternates ? "{}" : "}";
}

inline BodyStep read_body_step(JsonValue value, std::size_t place) {
  value.only("kind", "flops", "traffic", "pieces", "axis", "bytes", "gradients", "inner", "relayed", "layer", "after");
  BodyStep step{.kind = value.at("kind").enumerator<BodyStep::Kind>(body_step_kinds, "kind of step")};
  if (step.is_compute()) {
    if (const auto flops = value.find("flops")) step.flops = Flops{flops->positive_or_zero()};
    if (const auto traffic = value.find("traffic")) step.traffic = read_bytes(*traffic);
  } else {
    step.axis = value.at("axis").enumerator<BodyStep::Axis>(body_axes, "axis");
    step.bytes = read_bytes(value.at("bytes"));
    if (const auto gradients = value.find("gradients")) step.gradients = gradients->boolean();
    if (const auto inner = value.find("inner")) step.inner = inner->whole<std::int32_t>(1, 1 << 20);
    if (const auto relayed = value.find("relayed")) {
      step.relayed = read_bytes(*relayed);
      if (step.kind != BodyStep::Kind::all_to_all || step.inner == 0)
        relayed->fail("only an all_to_all among neighbours (inner) has a part that goes to others");
      if (step.relayed > step.bytes) relayed->fail(concat("is a part of the step's ", step.bytes.value(), " bytes"));
    }
  }
  if (const auto pieces = value.find("pieces")) step.pieces = pieces->whole<std::int32_t>(1, 1 << 20);
  if (const auto layer = value.find("layer")) step.layer = layer->whole<std::int32_t>(0, Transformer::max_layers);
  if (const auto after = value.find("after")) {
    if (after->size() > step.after.size()) after->fail("a step waits for at most two earlier ones");
    for (std::size_t i = 0; i < after->size(); ++i) step.after[i] = (*after)[i].id(place, "earlier step");
  }
  return step;
}

/// Pairs [message, layer]. @param parts  of a schedule, with its tasks
inline std::vector<Bucket> read_buckets(JsonValue value, const Schedule::Parts& parts) {
  std::vector<Bucket> buckets;
  for (const JsonValue pair : value) {
    pair.of_size(2, "a message and the first of its layers, such as [12, 3]");
    const auto message = pair[0].whole<std::int32_t>(0, static_cast<std::int32_t>(parts.tasks.size()) - 1);
    const Task& task = parts.tasks[static_cast<std::size_t>(message)];
    if (!buckets.empty() && number(buckets.back().message) >= message) pair[0].fail("buckets are in the order of their messages");
    const bool parameters = task.payload == Payload::gradients || task.payload == Payload::weights;
    if (!is_collective(task.op) || !parameters || task.stage == none<StageId>) {
      pair[0].fail("a bucket's message is a collective with gradients or weights of a stage");
    }
    const StageWork& stage = parts.stages[index(task.stage)];
    const std::int32_t most = stage.last_edge ? stage.layers : std::max(0, stage.layers - 1);
    buckets.push_back({TaskId{message}, pair[1].whole<std::int32_t>(0, most)});
  }
  return buckets;
}

/// [stage] the bodies. @param parts  of a schedule, with its stages
inline std::vector<SharedStage> read_bodies(JsonValue value, const Schedule::Parts& parts) {
  if (value.size() != parts.stages.size()) value.fail(concat("expected one for each of the ", parts.stages.size(), " stages"));
  std::vector<SharedStage> stages;
  for (std::size_t s = 0; s < parts.stages.size(); ++s) {
    const JsonValue bodies = value[s].only("forward", "backward", "backward_input", "backward_weight", "alternates");
    SharedStage stage{.work = parts.stages[s]};
    if (const auto alternates = bodies.find("alternates")) stage.alternates = alternates->boolean();
    for_each_body(stage, [&](std::string_view key, StageBody& body) {
      const auto steps = bodies.find(key);
      if (!steps) return;
      for (std::size_t i = 0; i < steps->size(); ++i) body.push_back(read_body_step((*steps)[i], i));
      if (body.empty() || !body.front().is_compute() || !body.back().is_compute()) {
        steps->fail("the first and the last step of a body compute");
      }
    });
    stages.push_back(std::move(stage));
  }
  return stages;
}

}  // namespace tawpipe::detail
