// Tests of search/job_fields.hpp and of its rows.
// Not: what the fields mean (tests/cli/problem_flags_test.cpp).
#include "tawpipe/search/job_fields.hpp"

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/clusters.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/search/sweep_axis.hpp"

namespace job_fields_test {

using namespace tawpipe;

Problem some_problem() { return {.cluster = support::cluster(8, 2), .model = models::llama_family(8, 512)}; }

TEST_CASE("every field has its own name, a meaning, values and a group") {
  std::set<std::string> names;
  for (const JobField& field : job_fields()) {
    CAPTURE(field.name);
    CHECK(names.insert(std::string{field.name}).second);
    CHECK(!field.meaning.empty());
    CHECK(!field.group.empty());
    CHECK((!field.type.empty() || field.kind == FieldKind::flag));
    CHECK(&job_field(field.name) == &field);
    for (const std::string_view alias : split(field.aliases, ' ')) {
      if (alias.empty()) continue;
      CHECK(find_job_field(std::string{alias}) == &field);
      CHECK(names.insert(std::string{alias}).second);
    }
  }
  CHECK(find_job_field("expert_dispatch") == &job_field("expert-dispatch"));
  CHECK(find_job_field("no-such") == nullptr);
}

TEST_CASE("a standard is what a problem has from the start, and is read back as it is printed") {
  const Problem start = some_problem();
  for (const JobField& field : job_fields()) {
    if (field.value.print == nullptr) continue;
    CAPTURE(field.name);
    const std::string text = field.value.print(field, start);
    if (!field.standard.empty()) CHECK(text == field.standard);
    if (text.empty() || field.value.read == nullptr || (field.name == "loss-chunk" && text == "0")) continue;
    Problem again = some_problem();
    field.value.read(field, text, again);
    CHECK(field.value.print(field, again) == text);
  }
}

TEST_CASE("each word of a field is read, and printed as it was") {
  for (const JobField& field : job_fields()) {
    if (field.value.read == nullptr || field.value.print == nullptr) continue;
    for (const std::string& word : field.value.words) {
      CAPTURE(field.name);
      CAPTURE(word);
      Problem problem = some_problem();
      field.value.read(field, word, problem);
      CHECK(field.value.print(field, problem) == word);
    }
  }
}

TEST_CASE("what is wrong names the flag or what is not known") {
  const auto refusal = [](std::string_view name, const std::string& text) {
    Problem problem = some_problem();
    try {
      job_field(name).value.read(job_field(name), text, problem);
    } catch (const InputError& error) {
      return std::string{error.what()};
    }
    return std::string{};
  };
  CHECK(refusal("expert-dispatch", "nccl") == "unknown dispatch to experts 'nccl'; known: all-to-all, deepep");
  CHECK(refusal("sequence-parallel", "maybe") == "--sequence-parallel 'maybe' must be on or off");
  CHECK(refusal("expert-parallel", "0").starts_with("--expert-parallel must be a whole number from 1"));
  CHECK(refusal("bucket", "-2") == "--bucket must be a number of parameters, or 0 for a whole stage");
  CHECK_THROWS_WITH_AS(check_number(job_field("sequence"), "0", "the value"), doctest::Contains("from 1 to"), InputError);
  CHECK_THROWS_WITH_AS(check_number(job_field("jitter"), "x", "--jitter"), "--jitter must be a number, not 'x'", InputError);
  CHECK_NOTHROW(check_number(job_field("seed"), "18446744073709551615", "--seed"));
}

TEST_CASE("texts of a job are given, taken back, read and told in the order of the rows") {
  JobTexts job;
  CHECK(!job.has("sequence"));
  CHECK(job.count("sequence") == 0);
  job.set("sequence", "8k");
  job.set("shard-states", "gradients");
  job.set("tensor-parallel", "4", false);
  job.set("expert-dispatch", "all-to-all");  // as it is anyway: not told
  job.set("account-for-loss-in-pipeline-split", "on");
  job.set("reshard", "step");
  job.take_back("reshard");
  CHECK(job.count("sequence") == 8192);
  CHECK(job.is_given("sequence"));
  CHECK(!job.is_given("tensor-parallel"));
  CHECK(job.text("reshard") == "auto");
  using Flags = std::vector<std::pair<std::string, std::string>>;
  CHECK(job.flags() == Flags{{"--sequence", "8192"},
                             {"--tensor-parallel", "4"},
                             {"--shard-states", "gradients"},
                             {"--account-for-loss-in-pipeline-split", ""}});
  Problem problem = some_problem();
  job.read(problem, false);
  CHECK(problem.mesh.tensor == 4);
  CHECK(problem.sharding == StateSharding::gradients);
  CHECK(problem.stage_cut.head == 1);
}

TEST_CASE("every field of a job can be swept") {
  for (const JobField& field : job_fields()) {
    CAPTURE(field.name);
    if (field.is(of_run)) {  // no step depends on it
      CHECK_THROWS_AS(parse_sweep_axis(concat(field.name, "=1")), InputError);
      continue;
    }
    const SweepAxis axis = parse_sweep_axis(concat(field.name, field.name == "inter-node" ? "=1Gbps" : "=1"));
    const bool own = field.name == "inter-node";  // links themselves, not the flag
    CHECK((axis.field == &field) == !own);
    CHECK(axis.size() == 1);
  }
  CHECK(parse_sweep_axis("seq-length=8k").numbers == std::vector<double>{8192});
  CHECK(parse_sweep_axis("layers-per-stage=7,8,8,7;auto").names == std::vector<std::string>{"7,8,8,7", "auto"});
}

}  // namespace job_fields_test
