// Tests of verify/check_parameters.hpp: each way in which sets of parameters can be wrong, in a
// schedule that is right otherwise.
#include "tawpipe/verify/check_parameters.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "schedules.hpp"
#include "support/clusters.hpp"
#include "tawpipe/verify/validate.hpp"

using namespace tawpipe;

namespace {

/// 12 * 8 = 96 parameters of the embedding, layers of 8 * 8 * 4 + 3 * 8 * 16 + 16 = 656, norm and
/// output matrix 104, padded to 112: 1512, and 8 of padding.
Schedule sharded() { return build_schedule("fsdp", {support::transformer(2, 2), DeviceGroups{{2}}, {}}); }

template <class Change>
Diagnostics after(Change&& change) {
  const Schedule right = sharded();
  Schedule::Parts parts = right.parts();
  change(parts);
  return validate(Schedule{right.workload(), std::move(parts)});
}
std::size_t first_gather(const Schedule::Parts& parts) {
  const auto found = std::find_if(parts.tasks.begin(), parts.tasks.end(), [](const Task& t) { return t.op == Op::all_gather; });
  return static_cast<std::size_t>(found - parts.tasks.begin());
}

}  // namespace

#define CHECK_FOUND(diagnostics, code, words)                                     \
  do {                                                                            \
    const Diagnostics found = diagnostics;                                        \
    CHECK_MESSAGE(found.has(code), found.text(3));                                \
    CHECK_MESSAGE(found.text(9).find(words) != std::string::npos, found.text(3)); \
  } while (false)

TEST_CASE("a sharded schedule's own sets are right") {
  Diagnostics out;
  check_parameters(sharded(), out);
  CHECK(out.ok());
}

TEST_CASE("V101, V102: sets and splits that do not exist") {
  CHECK_FOUND(after([](Schedule::Parts& parts) {
                parts.pieces = {{0, 9}, {ParameterRange{0, 1}}};
              }),
              "V101", "sets of parameters");
  CHECK_FOUND(after([](Schedule::Parts& parts) {
                parts.buffers[0].content = Content{ContentKind::weights, none<StageId>, PiecesId{900}};
              }),
              "V102", "names a set of parameters that does not exist");
  CHECK_FOUND(after([](Schedule::Parts& parts) { parts.tasks[first_gather(parts)].split = SplitId{-7}; }), "V102",
              "names a split that does not exist");
  CHECK_FOUND(after([](Schedule::Parts& parts) {
                parts.splits = {{0, 1}, {PiecesId{900}}};
              }),
              "V102", "split 0 names a set of parameters that does not exist");
}

TEST_CASE("V112: ranges beyond the model, empty or twice") {
  for (const ParameterRange range : {ParameterRange{0, 1513}, ParameterRange{-1, 5}, ParameterRange{5, 5}, ParameterRange{6, 5},
                                     ParameterRange{1512, 1514}, ParameterRange{1513, 1522}}) {
    CHECK_FOUND(after([&](Schedule::Parts& parts) {
                  parts.pieces = {{0, 1}, {range}};
                }),
                "V112", "set 0 names a parameter twice, or one that is not among the model's 1512");
  }
  CHECK_FOUND(after([&](Schedule::Parts& parts) {
                parts.pieces = {{0, 2}, {ParameterRange{0, 5}, ParameterRange{4, 9}}};
              }),
              "V112", "twice");
}

TEST_CASE("V112: a buffer smaller than its parameters, a split of another group, a computation with one") {
  // half of each unit: 48 + 2 * 328 + 56 = 760 numbers of 2 bytes
  CHECK_FOUND(after([](Schedule::Parts& parts) {
                const auto weights = std::find_if(parts.buffers.begin(), parts.buffers.end(),
                                                  [](const Buffer& b) { return b.kind() == BufferKind::weights; });
                weights->bytes = Bytes{1519};
              }),
              "V112", "has 1519 bytes; its parameters take 1520");
  CHECK_FOUND(after([](Schedule::Parts& parts) {
                parts.splits = {{0, 1}, {PiecesId{0}}};
                for (Task& task : parts.tasks) task.split = none<SplitId>;
                parts.tasks[first_gather(parts)].split = SplitId{0};
              }),
              "V112", "has 1 sets of parameters instead of 2");
  CHECK_FOUND(after([](Schedule::Parts& parts) {
                for (Task& task : parts.tasks) task.split = task.op == Op::forward ? SplitId{0} : task.split;
              }),
              "V112", "instead of 0");
}

TEST_CASE("V112: only a gather brings weights in the products' 8 bits, and only for a while") {
  Transformer model = *support::transformer(2, 2).model().decoder;
  model.products = ProductFormat::fp8;
  model.narrow_gathers = true;
  const Schedule right = build_schedule("fsdp", {Workload{model, support::transformer(2, 2).batch()}, DeviceGroups{{2}}, {}});
  const auto after = [&](auto&& change) {
    Schedule::Parts parts = right.parts();
    change(parts);
    Diagnostics out;
    check_parameters(Schedule{right.workload(), std::move(parts)}, out);
    return out;
  };
  CHECK(after([](Schedule::Parts&) {}).ok());
  // a layer: 656 parameters of 1 byte, and of 2 without a gather
  CHECK_FOUND(after([](Schedule::Parts& parts) {
                for (Task& task : parts.tasks) task.op = task.op == Op::all_gather ? Op::reduce_scatter : task.op;
              }),
              "V112", "has 656 bytes; its parameters take 1312");
  CHECK_FOUND(after([](Schedule::Parts& parts) {
                for (Buffer& buffer : parts.buffers) buffer.persistent = true;
              }),
              "V112", "has 656 bytes; its parameters take 1312");
}

TEST_CASE("V305: a message one byte smaller than its parameters") {
  // the embedding: 96 parameters of 2 bytes
  CHECK_FOUND(after([](Schedule::Parts& parts) { parts.tasks[first_gather(parts)].bytes = Bytes{191}; }), "V305",
              "moves 191 bytes; its parameters have 192");
}

TEST_CASE("V112, V116, V305: padding counts exactly, in each buffer and message") {
  for (const bool tied : {false, true}) {
    Transformer model = *support::transformer(2, 6).model().decoder;
    model.tied = tied;
    for (const DeviceGroups& nodes : {DeviceGroups{{3}}, DeviceGroups{{3, 3}}, DeviceGroups{{3, 2}}}) {
      for (const std::string name : {"fsdp", "hpz", "zero1", "zero2", "hsdp", "hfsdp"}) {
        CAPTURE(name);
        const Schedule right = build_schedule(name, {Workload{model, support::transformer(2, 6).batch()}, nodes, {}});
        REQUIRE(right.parts().padding > 0);
        const auto found_after = [&](auto&& change) {
          Schedule::Parts parts = right.parts();
          change(parts);
          Diagnostics out;
          check_parameters(Schedule{right.workload(), std::move(parts)}, out);
          return out;
        };
        CHECK(found_after([](Schedule::Parts&) {}).ok());
        for (std::size_t b = 0; b < right.buffers().size(); ++b) {
          const PiecesId set = right.buffers()[b].content.parameters();
          if (set == none<PiecesId> || right.pieces(set).empty()) continue;
          CHECK(found_after([&](Schedule::Parts& parts) { parts.buffers[b].bytes += Bytes{1}; }).has("V116"));
          CHECK(found_after([&](Schedule::Parts& parts) { parts.buffers[b].bytes -= Bytes{1}; }).has("V112"));
        }
        for (std::size_t t = 0; t < right.tasks().size(); ++t) {
          if (right.tasks()[t].split == none<SplitId>) continue;
          CHECK(found_after([&](Schedule::Parts& parts) {
                  parts.tasks[t].bytes = Bytes{parts.tasks[t].bytes.value() + 1};
                }).has("V116"));
          CHECK(found_after([&](Schedule::Parts& parts) {
                  parts.tasks[t].bytes = Bytes{parts.tasks[t].bytes.value() - 1};
                }).has("V305"));
        }
      }
    }
  }
}
