// PyTorch's CSV: both grammars, what is refused and where, and that nothing changes on a round
// trip.
// Not: what the actions mean together (pytorch_pipeline_test.cpp).
#include "tawpipe/report/pytorch_csv.hpp"

#include <doctest/doctest.h>

#include <random>
#include <string>

using namespace tawpipe;

namespace {

std::string csv_error(const std::string& text) {
  try {
    parse_pytorch_csv(text, "s.csv");
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

std::string again(const std::string& text) { return write_pytorch_csv(parse_pytorch_csv(text)); }

}  // namespace

TEST_CASE("a cell of each operation reads and writes the same") {
  const std::string text =
      "0F0,10B2,3I4,3W4,0SEND_F1,1RECV_F1,1SEND_B0,0RECV_B0,0WAIT_SEND_F1,1WAIT_SEND_B0,2UNSHARD,2RESHARD,2REDUCE_GRAD,"
      "2WAIT_REDUCE_GRAD\n";
  const PytorchSchedule schedule = parse_pytorch_csv(text);
  CHECK(schedule.grammar == PytorchGrammar::stage_first);
  REQUIRE(schedule.ranks.size() == 1);
  REQUIRE(schedule.ranks[0].size() == 14);
  for (int op = 0; op < pytorch_ops; ++op) {
    CHECK(schedule.ranks[0][static_cast<std::size_t>(op)].actions[0].op == static_cast<PytorchOp>(op));
  }
  CHECK(schedule.ranks[0][1].actions[0] == PytorchAction{PytorchOp::backward, 10, 2});
  CHECK(schedule.ranks[0][10].actions[0] == PytorchAction{PytorchOp::unshard, 2, -1});
  CHECK(write_pytorch_csv(schedule) == text);
}

TEST_CASE("a row is a rank, blank cells are idle, rows have their own lengths") {
  const std::string text = ",,1F0,\n0F0\n,0F1\n";
  const PytorchSchedule schedule = parse_pytorch_csv(text);
  REQUIRE(schedule.ranks.size() == 3);
  REQUIRE(schedule.ranks[0].size() == 4);
  CHECK(schedule.ranks[0][0].actions.empty());
  CHECK(schedule.ranks[0][3].actions.empty());
  CHECK(schedule.ranks[1].size() == 1);
  CHECK(write_pytorch_csv(schedule) == text);
}

TEST_CASE("an overlapped pair is one cell of two actions") {
  const std::string text = "0F0,(0F7;7B3)OVERLAP_F_B,(7I3;0F8)OVERLAP_F_B\n";
  const PytorchSchedule schedule = parse_pytorch_csv(text);
  CHECK(schedule.ranks[0][1] == PytorchCell{{{PytorchOp::forward, 0, 7}, {PytorchOp::backward, 7, 3}}});
  CHECK(write_pytorch_csv(schedule) == text);
}

TEST_CASE("the older grammar puts the operation first") {
  const std::string text = "F0_s1,B0_s1,W10_s3,\n,F2_s0\n";
  const PytorchSchedule schedule = parse_pytorch_csv(text);
  CHECK(schedule.grammar == PytorchGrammar::op_first);
  CHECK(schedule.ranks[0][2].actions[0] == PytorchAction{PytorchOp::backward_weight, 3, 10});
  CHECK(write_pytorch_csv(schedule) == text);
}

TEST_CASE("spaces, a byte order mark, Windows line ends and a missing last one are read over") {
  CHECK(again("\xef\xbb\xbf 0F0 ,\t0F1,( 0F2 ; 1B0 )OVERLAP_F_B\r\n1F0") == "0F0,0F1,(0F2;1B0)OVERLAP_F_B\n1F0\n");
  // as Python's csv module writes them
  CHECK(again("0F0,0B0\r\n") == "0F0,0B0\n");
}

TEST_CASE("errors name line and cell") {
  CHECK(csv_error("") == "s.csv, line 1: the file is empty; expected a row for each rank");
  CHECK(csv_error("0F0\n\n1F0\n") == "s.csv, line 2: it is empty; expected the actions of rank 1");
  CHECK(csv_error("0F0,0F1\n1F0,,1X1\n").starts_with("s.csv, line 2, column 3: '1X1': unknown operation 'X'; did you mean 'F'?"));
  CHECK(csv_error("0F0\n1X1\n")
            .ends_with("F, B, I, W, SEND_F, RECV_F, SEND_B, RECV_B, WAIT_SEND_F, WAIT_SEND_B, UNSHARD, RESHARD, REDUCE_GRAD, "
                       "WAIT_REDUCE_GRAD"));
  CHECK(
      csv_error("0SENDF1").starts_with("s.csv, line 1, column 1: '0SENDF1': unknown operation 'SENDF'; did you mean 'SEND_F'?"));
  CHECK(csv_error("0F") == "s.csv, line 1, column 1: '0F': the microbatch is missing; expected a number after F");
  CHECK(csv_error("0F1x") == "s.csv, line 1, column 1: '0F1x': nothing may follow the microbatch");
  CHECK(csv_error("0F1 2") == "s.csv, line 1, column 1: '0F1 2': nothing may follow the microbatch");
  CHECK(csv_error("0UNSHARD3") == "s.csv, line 1, column 1: '0UNSHARD3': nothing may follow the operation");
  CHECK(csv_error("0F0,7").starts_with("s.csv, line 1, column 2: '7': unknown operation ''"));
  CHECK(csv_error("F0") == "s.csv, line 1, column 1: 'F0': expected operation, microbatch and stage, such as F0_s1");
  CHECK(csv_error("hello") == "s.csv, line 1, column 1: 'hello': expected stage, operation and microbatch, such as 2F0");
  CHECK(csv_error("-1F0") == "s.csv, line 1, column 1: '-1F0': expected stage, operation and microbatch, such as 2F0");
  CHECK(csv_error("0F-1").starts_with("s.csv, line 1, column 1: '0F-1': unknown operation 'F-'"));
  CHECK(csv_error("\"0F0\"") == "no error");  // a quoted cell, as Python's csv reads it
}

TEST_CASE("numbers beyond reason are refused") {
  CHECK(csv_error("1048575F0") == "no error");
  CHECK(csv_error("1048576F0") == "s.csv, line 1, column 1: '1048576F0': the stage is too large; the most is 1048575");
  CHECK(csv_error("0F2147483646") == "no error");
  CHECK(csv_error("0F2147483647").ends_with("the microbatch is too large; the most is 2147483646"));
  CHECK(csv_error("0F99999999999999999999").ends_with("the microbatch is too large; the most is 2147483646"));
  CHECK(csv_error("F9999999999_s0").ends_with("the microbatch is too large; the most is 2147483646"));
}

TEST_CASE("a pair is one forward and one backward, and closes") {
  const std::string pair = "OVERLAP_F_B overlaps one forward with one backward, such as (0F7;7B3)OVERLAP_F_B";
  CHECK(csv_error("(0F1;1F0)OVERLAP_F_B") == "s.csv, line 1, column 1: '(0F1;1F0)OVERLAP_F_B': " + pair);
  CHECK(csv_error("(0F1)OVERLAP_F_B").ends_with(pair));
  CHECK(csv_error("(0F1;1B0;1B2)OVERLAP_F_B").ends_with(pair));
  CHECK(csv_error("(0F1;0SEND_F0)OVERLAP_F_B").ends_with(pair));
  CHECK(csv_error("(0F1;1B0OVERLAP_F_B").ends_with("the bracket does not close; expected (F;B)OVERLAP_F_B"));
  CHECK(csv_error("(0F1;1B0)OVERLAP").ends_with("expected OVERLAP_F_B or BATCH_P2P after the bracket, not 'OVERLAP'"));
  CHECK(csv_error("(0F1;1B0)OVERLAP_F_B1").ends_with("expected OVERLAP_F_B or BATCH_P2P after the bracket, not 'OVERLAP_F_B1'"));
  CHECK(csv_error("()OVERLAP_F_B").ends_with("expected stage, operation and microbatch, such as 2F0"));
  CHECK(csv_error("0OVERLAP_F_B").starts_with("s.csv, line 1, column 1: '0OVERLAP_F_B': unknown operation"));
}

TEST_CASE("the two grammars do not mix") {
  CHECK(csv_error("0F0,F1_s0") == "s.csv, line 1, column 2: 'F1_s0': one file has either the form 1F0 or F0_s1, not both");
  CHECK(csv_error("F1_s0\n0F0") == "s.csv, line 2, column 1: '0F0': one file has either the form 1F0 or F0_s1, not both");
  CHECK(csv_error("F0_s0,(0F1;0B0)OVERLAP_F_B").ends_with("the older form, F0_s1, has no brackets"));
  CHECK(csv_error("F0_s0x").ends_with("nothing may follow the stage"));
  CHECK(csv_error("I0_s0").ends_with("such as 2F0"));  // the older form had no I
}

TEST_CASE("errors stay one short line whatever the file holds") {
  const std::string message = csv_error("0F0," + std::string(500, 'x') + "\x01\n");
  CHECK(message.size() < 200);
  CHECK(message.find('\n') == std::string::npos);
  CHECK(csv_error(std::string("0F0\x01,1\n", 7)).find('\x01') == std::string::npos);
}

TEST_CASE("what the older grammar cannot say is not written") {
  PytorchSchedule schedule{PytorchGrammar::op_first, {{{{{PytorchOp::send_forward, 0, 1}}}}}};
  CHECK_THROWS_WITH_AS(write_pytorch_csv(schedule), "the older form of PyTorch's CSV, F0_s1, cannot say 0SEND_F1", InputError);
  schedule.ranks = {{}};
  CHECK_THROWS_WITH_AS(write_pytorch_csv(schedule), "rank 0 has no actions; PyTorch's CSV has no row for it", InputError);
}

TEST_CASE("mutated files are read or refused in one line, and read files round-trip") {
  const std::string valid = "0F0,0SEND_F0,,(0F1;1B0)OVERLAP_F_B,0RECV_B0,0B0\n1UNSHARD,1RECV_F0,1F0,1I0,1W0,1REDUCE_GRAD\n";
  const std::string alphabet = "019FBIWSEND_RCVUH,;()\n\r \"-x";
  std::mt19937 random{7};
  int read = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text = valid;
    for (auto edits = random() % 3 + 1; edits > 0; --edits) {
      const std::size_t at = random() % text.size();
      const char letter = alphabet[random() % alphabet.size()];
      const auto kind = random() % 3;
      if (kind == 0) text[at] = letter;
      if (kind == 1) text.insert(at, 1, letter);
      if (kind == 2) text.erase(at, random() % 8 + 1);
      if (text.empty()) text = ",";
    }
    try {
      const PytorchSchedule schedule = parse_pytorch_csv(text);
      ++read;
      bool blank = false;  // a row of one blank cell reads from " ", and cannot be written
      for (const auto& cells : schedule.ranks) blank = blank || (cells.size() == 1 && cells[0].actions.empty());
      if (!blank) CHECK(parse_pytorch_csv(write_pytorch_csv(schedule)) == schedule);
    } catch (const InputError& error) {
      CHECK(std::string{error.what()}.find('\n') == std::string::npos);
    }
  }
  CHECK(read > 100);
}
