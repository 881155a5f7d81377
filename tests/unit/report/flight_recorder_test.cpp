#include "tawpipe/report/flight_recorder.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "support/csv.hpp"
#include "support/text.hpp"

namespace flight_recorder_test {

using namespace tawpipe;
using support::has;

namespace {

/// A dump of one group of four with the entries.
std::string dump(const std::string& entries) {
  return R"({"version": "2.10", "pg_config": {"0": {"name": "0", "desc": "pp", "ranks": "[0, 1, 2, 3]"}}, "entries": [)" +
         entries + "]}";
}
std::string entry(int number, const std::string& name, const std::string& state, const std::string& sizes = "[[8]]") {
  return R"({"record_id": )" + std::to_string(number) + R"(, "process_group": ["0", "pp"], "collective_seq_id": )" +
         std::to_string(number) + R"(, "profiling_name": ")" + name + R"(", "state": ")" + state + R"(", "input_sizes": )" +
         sizes + R"(, "input_dtypes": ["Float"], "is_p2p": false})";
}
FlightDiagnosis diagnosed(const std::vector<std::string>& dumps) {
  FlightRecorderReader reader;
  for (std::size_t r = 0; r < dumps.size(); ++r) {
    if (!dumps[r].empty()) reader.add(static_cast<std::int32_t>(r), dumps[r], "rank " + std::to_string(r));
  }
  return diagnose(reader.take());
}
std::set<std::int32_t> blamed(const FlightDiagnosis& found) {
  std::set<std::int32_t> ranks;
  for (const FlightCulprit& one : found.culprits) ranks.insert(one.rank);
  return ranks;
}
std::string fault(const std::string& text) {
  try {
    diagnosed({text});
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("known dumps have their verdicts and culprits") {
  for (const auto& row : support::read_csv(TAWPIPE_TEST_DATA "/hangs/verdicts_fr.csv")) {
    const std::string& name = row.at("case");
    CAPTURE(name);
    std::vector<std::string> dumps;
    for (int rank = 0; rank < 4; ++rank) {
      std::ifstream file{TAWPIPE_TEST_DATA "/hangs/" + name + "/rank_" + std::to_string(rank) + ".json"};
      std::stringstream text;
      text << file.rdbuf();
      dumps.push_back(text.str());
    }
    const FlightDiagnosis found = diagnosed(dumps);
    CHECK(tawpipe::name(found.verdict) == row.at("verdict"));
    std::set<std::int32_t> expected;
    if (has(row.at("culprit"), "rank 1")) expected = {1};
    if (has(row.at("culprit"), "rank 2;")) expected = {2};
    if (has(row.at("culprit"), "ranks 0 and 1")) expected = {0, 1};
    CHECK(blamed(found) == expected);
  }
}

TEST_CASE("a rank that never makes a call is told from one that has no dump") {
  const std::string makes = dump(entry(0, "nccl:all_reduce", "completed") + "," + entry(1, "nccl:all_reduce", "started"));
  const std::string lacks = dump(entry(0, "nccl:all_reduce", "completed"));
  FlightDiagnosis found = diagnosed({makes, makes, lacks, makes});
  CHECK(found.verdict == FlightVerdict::missing);
  CHECK(blamed(found) == std::set<std::int32_t>{2});
  found = diagnosed({makes, makes, "", makes});
  CHECK(found.verdict == FlightVerdict::undecided);
  CHECK(blamed(found) == std::set<std::int32_t>{2});
}

TEST_CASE("a call that one rank saw complete has ended on all") {
  const std::string late = dump(entry(0, "nccl:all_reduce", "started"));
  const std::string done = dump(entry(0, "nccl:all_reduce", "completed"));
  CHECK(diagnosed({late, done, done, done}).verdict == FlightVerdict::ends);
  CHECK(diagnosed({late, done, done, done}).waits.empty());
}

TEST_CASE("sizes of all_to_all may differ") {
  const std::string few = dump(entry(0, "nccl:all_to_all", "started", "[[8]]"));
  const std::string many = dump(entry(0, "nccl:all_to_all", "started", "[[80]]"));
  CHECK(diagnosed({few, many, few, many}).verdict == FlightVerdict::ends);
}

TEST_CASE("what is no dump is refused with its path") {
  CHECK(has(fault("[]"), "expected a dump of PyTorch's flight recorder"));
  CHECK(has(fault(dump(R"({"process_group": ["7", ""], "profiling_name": "nccl:all_reduce"})")), "no group '7'"));
  CHECK(has(fault(dump(R"({"process_group": ["0", ""], "profiling_name": "nccl:send 0->9", "is_p2p": true})")),
            "expected a rank of the group"));
  CHECK(has(fault(dump(entry(0, "nccl:all_reduce", "started", "[[4000000000000, 4000000000000]]"))), "elements"));
}

TEST_CASE("dumps of Gloo's recorder list no groups, and a call that has ended is retired") {
  const auto gloo = [](int number, const char* group, const char* description, const char* call, bool retired) {
    return concat(R"({"record_id": )", number, R"(, "pg_id": 0, "process_group": [")", group, R"(", ")", description,
                  R"("], "collective_seq_id": )", number + 1, R"(, "profiling_name": "gloo:)", call,
                  R"(", "input_sizes": [[4]], "input_dtypes": ["Float"], "state": "scheduled", "retired": )",
                  retired ? "true" : "false", R"(, "is_p2p": false})");
  };
  const auto dump_of = [](const std::string& entries) {
    return concat(R"({"version": "2.10", "pg_config": {"": {"name": "", "desc": "", "ranks": "[0, 1]"}}, "entries": [)", entries,
                  "]}");
  };
  const std::string first = gloo(0, "0", "default_pg", "all_reduce", true);
  const std::string open = gloo(1, "0", "default_pg", "all_reduce", false);
  FlightDiagnosis found = diagnosed({dump_of(first + "," + open), dump_of(first + "," + open), dump_of(first)});
  CHECK(found.verdict == FlightVerdict::missing);
  CHECK(blamed(found) == std::set<std::int32_t>{2});
  CHECK(diagnosed({dump_of(first), dump_of(first), dump_of(first)}).waits.empty());
  // For a group other than the default one, only ranks that called it are known: rank 2 is not one.
  const std::string pair = gloo(0, "1", "tp", "all_reduce", false);
  found = diagnosed({dump_of(pair), dump_of(pair), dump_of(first)});
  CHECK(found.verdict == FlightVerdict::ends);
  const std::string other = gloo(0, "1", "tp", "broadcast", false);
  CHECK(diagnosed({dump_of(pair), dump_of(other), dump_of(first)}).verdict == FlightVerdict::mismatch);
}

}  // namespace flight_recorder_test
