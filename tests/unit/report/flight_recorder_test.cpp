#include "tawpipe/report/flight_recorder.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "support/csv.hpp"
#include "support/text.hpp"
#include "tawpipe/report/flight_report.hpp"
#include "tawpipe/verify/diagnose.hpp"

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
/// The dumps of a known case by rank; "" for a rank without one.
std::vector<std::string> known(const std::string& name) {
  std::vector<std::string> dumps;
  for (const auto& [rank, path] : dump_files({TAWPIPE_TEST_DATA "/hangs/" + name})) {
    std::ifstream file{path, std::ios::binary};
    std::stringstream text;
    text << file.rdbuf();
    dumps.resize(static_cast<std::size_t>(rank) + 1);
    dumps.back() = text.str();
  }
  return dumps;
}
std::set<std::int32_t> numbers(const std::string& text) {
  std::stringstream words{text};
  return {std::istream_iterator<std::int32_t>{words}, std::istream_iterator<std::int32_t>{}};
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
    if (row.at("verdict") == "refused") {
      CHECK_THROWS_WITH_AS(diagnosed(known(name)), doctest::Contains("version '3.0' is not known"), InputError);
      continue;
    }
    const FlightDiagnosis found = diagnosed(known(name));
    CHECK(tawpipe::name(found.verdict) == row.at("verdict"));
    CHECK(blamed(found) == numbers(row.at("blamed")));
  }
}

TEST_CASE("without timing the verdicts stay, and who is late is not known") {
  const std::map<std::string, std::pair<std::string, std::string>> without{
      {"fr_tp_dp_crossed_timed_4", {"likely deadlock", "0 1 2 3"}},  // only starts show that streams wait for each other
      {"fr_slow_rank_4", {"ends", ""}},
      {"fr_ring_buffer_4", {"ends", ""}},
      {"fr_late_beyond_limit_4", {"stuck", ""}},
      {"fr_late_rank_holds_another_3", {"missing", "1"}},
      {"fr_late_rank_holds_another_beyond_limit_3", {"missing", "1"}},
  };
  for (const auto& row : support::read_csv(TAWPIPE_TEST_DATA "/hangs/verdicts_fr.csv")) {
    const std::string& name = row.at("case");
    CAPTURE(name);
    std::vector<std::string> dumps = known(name);
    if (row.at("verdict") == "refused" || dumps[0].empty() || dumps[0][0] != '{') continue;
    for (std::string& dump : dumps) {
      if (dump.empty()) continue;
      auto json = nlohmann::json::parse(dump);
      if (!json.contains("entries")) continue;
      for (auto& entry : json["entries"]) {
        if (entry["state"] == "started") entry["state"] = "scheduled";
        entry["time_discovered_started_ns"] = 0;
      }
      dump = json.dump();
    }
    const FlightDiagnosis found = diagnosed(dumps);
    const auto other = without.find(name);
    CHECK(tawpipe::name(found.verdict) == (other == without.end() ? row.at("verdict") : other->second.first));
    CHECK(blamed(found) == numbers(other == without.end() ? row.at("blamed") : other->second.second));
  }
}

TEST_CASE("a culprit's call has its file and line, and a call that is owed those of the ranks that make it") {
  const FlightDiagnosis absent = diagnosed(known("fr_gloo_rank_absent_from_call_3"));
  REQUIRE(absent.culprits.size() == 1);
  CHECK(absent.culprits[0].call == "collective 2");
  CHECK(absent.culprits[0].at == "/home/ml/train.py:88 (train_step)");
  CHECK(has(absent.culprits[0].why,
            "never calls all_reduce; its last call was all_reduce (default_pg, collective 1) at "
            "/home/ml/train.py:61 (train_step)"));
  CHECK(has(absent.culprits[0].why, "may stand in a send or receive"));
  const FlightDiagnosis receive = diagnosed(known("fr_receive_never_made_3"));
  REQUIRE(receive.culprits.size() == 1);
  CHECK(has(receive.culprits[0].why, "never calls recv from rank 1"));
  const FlightDiagnosis hosts = diagnosed(known("fr_hosts_in_three_groups_3"));
  REQUIRE(hosts.culprits.size() == 3);
  CHECK(hosts.culprits[0].at == "/home/ml/train.py:70 (train_step)");
  CHECK(has(hosts.culprits[0].why, "waits in a cycle, and owes all_gather (cp, collective 2)"));
  CHECK(hosts.circle[0] == "rank 0: all_gather (dp, collective 2), which rank 1 has not made");
}

TEST_CASE("a call beyond its limit is told with the limit and the ranks that have made it") {
  CHECK(diagnosed(known("fr_nccl_all_started_4")).note ==
        "all_reduce (default_pg, collective 7) of rank 0 is open beyond its limit of 600 s; ranks 0 to 3 have all made it");
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
  CHECK(has(fault(R"({"pg_config": {}})"), "it names no version"));
  CHECK(has(fault(R"({"version": "1.5", "pg_config": {}})"), "version '1.5' is not known; dumps of version 2.0 to 2.x are"));
  CHECK(has(fault(dump(R"({"process_group": ["0", ""], "profiling_name": "nccl:recv 0<-?", "is_p2p": true})")),
            "a receive from any rank"));
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
  CHECK(diagnosed({dump_of(first), dump_of(first), dump_of(first)}).verdict == FlightVerdict::not_recorded);
  CHECK(diagnosed({dump_of(first), dump_of(first), dump_of(first)}).waits.empty());
  // For a group other than the default one, only ranks that called it are known: rank 2 is not one.
  const std::string pair = gloo(0, "1", "tp", "all_reduce", false);
  found = diagnosed({dump_of(pair), dump_of(pair), dump_of(first)});
  CHECK(found.verdict == FlightVerdict::not_recorded);
  const std::string other = gloo(0, "1", "tp", "broadcast", false);
  CHECK(diagnosed({dump_of(pair), dump_of(other), dump_of(first)}).verdict == FlightVerdict::mismatch);
}

}  // namespace flight_recorder_test
