// Orders of calls whose verdicts are known, every export of the catalogue, and a thousand mutations
// held against a walk through every interleaving.
// Not: the parts of the prover (unit/verify).
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "schedules.hpp"
#include "support/csv.hpp"
#include "support/interleavings.hpp"
#include "support/random.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/report/comm_program_json.hpp"
#include "tawpipe/report/pytorch_calls.hpp"
#include "tawpipe/verify/mend.hpp"

using namespace tawpipe;

namespace {

std::string read(const std::string& name) {
  std::ifstream file{TAWPIPE_TEST_DATA "/hangs/" + name};
  REQUIRE_MESSAGE(file.is_open(), name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Sorted by text, since the same circle can be told from any of its members on.
std::vector<std::string> members(const std::string& circle) {
  std::vector<std::string> all;
  for (std::size_t begin = 0; begin < circle.size();) {
    const std::size_t end = std::min(circle.find(" -> ", begin), circle.size());
    all.push_back(circle.substr(begin, end - begin));
    begin = end + 4;
  }
  std::sort(all.begin(), all.end());
  return all;
}

template <class Order>
void check(const Order& order, const std::map<std::string, std::string>& expected) {
  const HangVerdict verdict = prove(order.program());
  CHECK((verdict.ends ? "ends" : "deadlock") == expected.at("verdict"));
  CHECK(verdict.crossed.empty() == expected.at("crossed_data").empty());
  CHECK(verdict.circle.empty() == expected.at("circle").empty());
  const auto found = mend(order, verdict);
  CHECK(found.has_value() != (verdict.is_right() || expected.at("mend") == "none"));
  if (!found) return;
  CAPTURE(found->text);
  CHECK(prove(found->order.program()).is_right());
}

/// Pipelines of the catalogue as PyTorch's rows, with communication.
std::vector<PytorchSchedule> exports(int ranks, std::int64_t microbatches) {
  std::vector<PytorchSchedule> all;
  for (const auto& info : shipped().schedules()) {
    try {
      const Schedule schedule = build_schedule(
          info.name, {.workload = Workload::abstract(ranks, microbatches), .nodes = DeviceGroups::even(ranks, 1), .options = {}});
      all.push_back(pytorch_schedule(schedule, {.communication = true}));
    } catch (const Error&) {
      continue;  // not a pipeline, or not for so many ranks and microbatches
    }
  }
  return all;
}

/// Two neighbouring cells of a row change places, or become one batch; rows that PyTorch would
/// refuse are left as they were.
PytorchOrder mutated(PytorchOrder order, support::Random& random, int edits) {
  for (int i = 0; i < edits; ++i) {
    const std::int32_t rank = random.between(0, static_cast<int>(order.schedule().ranks.size()) - 1);
    const std::int32_t first = random.between(0, order.items(rank) - 2);
    const std::int32_t second = std::min(order.items(rank) - 1, first + random.between(1, 3));
    const bool both = order.communicates(rank, first) && order.communicates(rank, second);
    const OrderEdit::Kind kinds[]{OrderEdit::Kind::swap, OrderEdit::Kind::move, OrderEdit::Kind::join};
    const OrderEdit edit{kinds[random.between(0, both ? 2 : 1)], rank, first, second};
    if (auto next = order.edited(edit)) order = *std::move(next);
  }
  return order;
}

}  // namespace

TEST_CASE("known orders have their verdicts, and every mend ends") {
  for (const auto& row : support::read_csv(TAWPIPE_TEST_DATA "/hangs/verdicts.csv")) {
    const std::string& name = row.at("case");
    CAPTURE(name);
    if (row.at("verdict") == "refused") {
      CHECK_THROWS_AS(pytorch_calls(parse_pytorch_csv(read(name), name), {}, name), InputError);
      continue;
    }
    if (name.ends_with(".csv")) {
      check(PytorchOrder{parse_pytorch_csv(read(name), name), {}, name}, row);
      continue;
    }
    const ProgramOrder order{parse_comm_program(read(name), name)};
    check(order, row);
    const CommProgram& program = order.program();
    const std::string written = write_comm_program(program);
    CHECK(write_comm_program(parse_comm_program(written)) == written);
    if (program.cold || program.calls() > 16) continue;
    CHECK(support::Interleavings{program}.always_ends() == (row.at("verdict") == "ends"));
  }
}

TEST_CASE("circles of small cases are those that are published") {
  for (const auto& row : support::read_csv(TAWPIPE_TEST_DATA "/hangs/verdicts.csv")) {
    const std::string& name = row.at("case");
    CAPTURE(name);
    if (!name.ends_with(".json") || row.at("circle").empty() || name == "ring3_isend_first_use.json") continue;
    const CommProgram program = parse_comm_program(read(name), name);
    std::string circle;
    for (const auto& calls : prove(program).circle) circle += (circle.empty() ? "" : " -> ") + unit_text(program, calls);
    CHECK(members(circle) == members(row.at("circle")));
  }
}

TEST_CASE("every export of the catalogue ends, whatever carries it") {
  for (const int ranks : {2, 4}) {
    const auto all = exports(ranks, 2 * ranks + 2);
    CHECK(all.size() >= 8);
    for (const PytorchSchedule& schedule : all) {
      for (const auto semantics : {CallSemantics::nccl, CallSemantics::gloo, CallSemantics::mpi}) {
        for (const auto communicators : {CallCommunicators::one, CallCommunicators::direction, CallCommunicators::pair}) {
          CHECK(prove(pytorch_calls(schedule, {semantics, communicators})).ends);
        }
      }
    }
  }
}

TEST_CASE("a thousand mutated pipelines get the verdict of a walk through every interleaving") {
  support::Random random{20};
  const auto two = exports(2, 2);
  const auto three = exports(3, 2);
  REQUIRE(!two.empty());
  int hangs = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto& from = i % 4 == 0 && !three.empty() ? three : two;
    const PytorchCallOptions options{CallSemantics::nccl, static_cast<CallCommunicators>(random.between(0, 2))};
    const PytorchOrder order =
        mutated(PytorchOrder{support::one_of(random, from), options, "mutant"}, random, random.between(1, 4));
    CAPTURE(write_pytorch_csv(order.schedule()));
    const HangVerdict verdict = prove(order.program());
    support::Interleavings every{order.program()};
    CHECK(verdict.ends == every.always_ends());
    if (verdict.ends) continue;
    ++hangs;
    CHECK((!verdict.circle.empty() || !verdict.missing.empty()));
    if (!verdict.circle.empty()) CHECK(every.hangs_at(verdict.circle));
    if (i % 5 != 0) continue;
    const auto found = mend(order, verdict);
    REQUIRE(found);
    CHECK(prove(found->order.program()).is_right());
  }
  CHECK(hangs > 100);
  CHECK(hangs < 900);
}
