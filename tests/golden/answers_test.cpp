// What the command answers to the questions of answers.txt, byte for byte: since every build
// compares with the same file, each compiler and build type that runs this test gives the same
// bytes.
//
// A line is a hash of the answer and the question. Where an answer is meant to change, record again
// with `TAWPIPE_RECORD=1 <this program>`, and explain in the commit why.
// Not: a proof that they are right; to compare several builds, tools/check_same_bytes.sh shows
// which differ.
#include <doctest/doctest.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "support/command.hpp"

#ifdef TAWPIPE_COMMAND

namespace {

const std::string recorded_answers = TAWPIPE_TEST_DATA "/../golden/answers.txt";

/// FNV-1a of all bytes.
std::string hash_of(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : text) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016" PRIx64, hash);
  return digits;
}

}  // namespace

TEST_CASE("every build gives the recorded answers, byte for byte") {
  std::vector<std::pair<std::string, std::string>> lines;
  {
    std::ifstream file{recorded_answers};
    REQUIRE_MESSAGE(file.is_open(), "cannot open " << recorded_answers);
    for (std::string line; std::getline(file, line);) lines.emplace_back(line.substr(0, 16), line.substr(17));
  }
  REQUIRE_FALSE(lines.empty());
  const bool record = std::getenv("TAWPIPE_RECORD") != nullptr;
  for (auto& line : lines) {
    CAPTURE(line.second);
    const support::Result result = support::run(line.second);
    CAPTURE(result.err);
    CHECK(result.code <= 1);  // 1 tells of findings (out of memory), which are an answer too
    CHECK_FALSE(result.out.empty());
    const std::string found = hash_of(result.out);
    if (!record) CHECK_MESSAGE(found == line.first, "another answer than recorded");
    line.first = found;
  }
  if (!record) return;
  std::ofstream file{recorded_answers};
  for (const auto& line : lines) file << line.first << " " << line.second << "\n";
  MESSAGE("recorded " << lines.size() << " answers");
}

#endif
