// The library answers as the command does: the same bytes of JSON and text (Python's are compared in tests/python/test_plan.py).
// Not: what is in them (plan_test.cpp, plan_frameworks_test.cpp, plan_what_if_test.cpp).
#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include "support/command.hpp"
#include "tawpipe/answers/bound_answer.hpp"
#include "tawpipe/answers/plan_answer.hpp"

namespace plan_library_test {

using tawpipe::answers::PlanAnswer;
using tawpipe::answers::PlanQuestion;

namespace {

/// The job of all cases, as flags and as a question.
const std::vector<std::string> flags{"--cluster",  "dgx-h100*1", "--model",        "llama-8x512",
                                     "--sequence", "2k",         "--global-batch", "16"};

PlanQuestion question() {
  PlanQuestion asked;
  asked.job.set("cluster", "dgx-h100*1");
  asked.job.set("model", "llama-8x512");
  asked.job.set("sequence", "2k");
  asked.job.set("global-batch", "16");
  return asked;
}

std::string printed(const PlanAnswer& answer) { return to_json(answer).dump(2) + "\n"; }

std::string printed_by_command(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "plan");
  arguments.insert(arguments.end(), {"--json", "-"});
  const support::Result result = support::run(arguments);
  CAPTURE(result.err);
  CHECK(result.code == 0);
  return result.out;
}

std::vector<std::string> with_flags(std::vector<std::string> more) {
  more.insert(more.begin(), flags.begin(), flags.end());
  return more;
}

}  // namespace

TEST_CASE("a plan, with what single changes would buy") {
  const PlanAnswer answer = tawpipe::answers::answer(question());
  CHECK(!answer.planned.changes.empty());
  CHECK(printed(answer) == printed_by_command(flags));
  std::vector<std::string> arguments = flags;
  arguments.insert(arguments.begin(), "plan");
  CHECK(to_text(answer, {}) == support::run(arguments).out);
}

TEST_CASE("a plan as settings of a framework") {
  for (const std::string framework : {"megatron", "torchtitan", "deepspeed"}) {
    PlanQuestion asked = question();
    asked.emit = framework;
    const PlanAnswer answer = tawpipe::answers::answer(asked);
    REQUIRE(answer.emitted);
    CHECK(printed(answer) == printed_by_command(with_flags({"--emit", framework})));
  }
}

TEST_CASE("a plan beside today's run, with changes of its settings") {
  const support::Folder folder;
  const std::string script = folder.write(
      "train.sh",
      "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 8 --hidden-size 512 --num-attention-heads 8 \\\n"
      "  --ffn-hidden-size 1408 --swiglu --vocab-size 32000 --seq-length 2048 --max-position-embeddings 2048 --bf16 \\\n"
      "  --tensor-model-parallel-size 4 --micro-batch-size 1 --global-batch-size 16\n");
  PlanQuestion asked;
  asked.job.set("cluster", "dgx-h100*1");
  asked.today = script;
  asked.step_time = "9.1s";
  const PlanAnswer answer = tawpipe::answers::answer(asked);
  REQUIRE(answer.today);
  CHECK(!answer.today->changes.empty());
  CHECK(printed(answer) == printed_by_command({"--cluster", "dgx-h100*1", "--today", script, "--step-time", "9.1s"}));
}

TEST_CASE("a plan with another cluster, a price and a whole run") {
  PlanQuestion asked = question();
  asked.what_if = {"nodes=2"};
  asked.job.set("price", "2.5USD");
  asked.job.set("train-tokens", "1T");
  CHECK(printed(tawpipe::answers::answer(asked)) ==
        printed_by_command(with_flags({"--what-if", "nodes=2", "--price", "2.5USD", "--train-tokens", "1T"})));
}

TEST_CASE("the best for each number of devices") {
  PlanQuestion asked = question();
  asked.devices = "8..16";
  int ended = 0;
  const PlanAnswer answer = tawpipe::answers::answer(
      asked, [](const auto&, const auto&, std::string_view) { return true; }, [&](const auto&) { ++ended; });
  CHECK(ended == 2);
  CHECK(printed(answer) == printed_by_command(with_flags({"--devices", "8..16"})));
}

TEST_CASE("what is told while it searches, and the end that this brings") {
  int told = 0;
  const PlanAnswer answer =
      tawpipe::answers::answer(question(), [&](const tawpipe::PlanProgress& now, const auto&, std::string_view what) {
        CHECK(what == "planning");
        ++told;
        return now.best == nullptr;
      });
  CHECK(told > 0);
  CHECK(answer.stopped());
  CHECK(!answer.planned.result.plans.empty());
  CHECK(answer.planned.changes.empty());
}

TEST_CASE("what is wrong with a question is said in the command's words") {
  PlanQuestion asked = question();
  asked.emit = "megatronn";
  CHECK_THROWS_WITH_AS(tawpipe::answers::answer(asked), doctest::Contains("megatronn"), tawpipe::InputError);
  asked = question();
  asked.job.take_back("sequence");
  CHECK_THROWS_WITH_AS(tawpipe::answers::answer(asked), "--sequence is missing; give the tokens of one sequence, such as 4096",
                       tawpipe::InputError);
}

TEST_CASE("a bound") {
  std::vector<std::string> arguments = flags;
  arguments.insert(arguments.begin(), "bound");
  arguments.insert(arguments.end(), {"--json", "-"});
  CHECK(tawpipe::answers::answer_bound(question(), {}).json.dump(2) + "\n" == support::run(arguments).out);
}

}  // namespace plan_library_test
