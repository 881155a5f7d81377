// Tests of schedule/content.hpp: what a content says, and that it stays small.
// Not: what buffers of schedules hold (properties/).
#include "tawpipe/schedule/content.hpp"

#include <doctest/doctest.h>

#include <set>
#include <string>

#include "tawpipe/schedule/task.hpp"

using namespace tawpipe;

TEST_CASE("a content is of a set of parameters, or of a stage's computation for a microbatch") {
  constexpr Content weights{ContentKind::weights, StageId{3}, PiecesId{7}};
  static_assert(weights.kind() == ContentKind::weights && weights.stage() == StageId{3});
  static_assert(weights.parameters() == PiecesId{7} && weights.microbatch() == -1 && !weights.is_slot());

  constexpr Content saved{ContentKind::saved, StageId{max_stages - 1}, 2'000'000'000};
  static_assert(saved.stage() == StageId{max_stages - 1} && saved.microbatch() == 2'000'000'000);
  static_assert(saved.parameters() == none<PiecesId> && !saved.is_slot());
  CHECK(saved != Content{ContentKind::saved, StageId{max_stages - 1}, 1});
  CHECK(saved != Content{ContentKind::stash, StageId{max_stages - 1}, 2'000'000'000});
}

TEST_CASE("a slot names no parameters or no microbatch; what is defined only while a task runs is none") {
  CHECK(Content{ContentKind::gradients}.is_slot());
  CHECK(Content{ContentKind::activation}.is_slot());
  CHECK(Content{ContentKind::activation}.stage() == none<StageId>);
  CHECK_FALSE(Content{ContentKind::workspace}.is_slot());
  CHECK_FALSE(Content{ContentKind::scalar}.is_slot());
  CHECK(Content{} == Content{ContentKind::workspace});
}

TEST_CASE("kinds have names that differ") {
  std::set<std::string> names;
  for (int i = 0; i < content_kinds; ++i) names.emplace(name(static_cast<ContentKind>(i)));
  CHECK(names.size() == content_kinds);
  CHECK(name(ContentKind::optimizer_state) == "optimizer_state");
}

TEST_CASE("a buffer takes 24 bytes, and its content says by which kind memory is reported") {
  CHECK(sizeof(Content) == 8);
  CHECK(sizeof(Buffer) == 24);
  const auto kind = [](ContentKind content, bool copy) {
    return Buffer{.content = Content{content}, .copy = copy, .bytes = {}}.kind();
  };
  CHECK(kind(ContentKind::weights, false) == BufferKind::weights);
  CHECK(kind(ContentKind::gradients, false) == BufferKind::gradients);
  CHECK(kind(ContentKind::optimizer_state, false) == BufferKind::optimizer);
  CHECK(kind(ContentKind::weights, true) == BufferKind::transfer);
  CHECK(kind(ContentKind::gradients, true) == BufferKind::transfer);
  for (const auto content : {ContentKind::activation, ContentKind::activation_gradient, ContentKind::saved, ContentKind::stash}) {
    CHECK(kind(content, false) == BufferKind::activations);
  }
  CHECK(kind(ContentKind::scalar, false) == BufferKind::workspace);
  CHECK(kind(ContentKind::workspace, false) == BufferKind::workspace);
}
