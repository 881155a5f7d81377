#include "tawpipe/report/pytorch_calls.hpp"

#include <doctest/doctest.h>

#include <string>

using namespace tawpipe;

namespace {

CommProgram calls(const char* csv, const PytorchCallOptions& options = {}) {
  return pytorch_calls(parse_pytorch_csv(csv), options, "x.csv");
}
std::string fault(const char* csv) {
  try {
    calls(csv);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

constexpr const char* two = "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n";

}  // namespace

TEST_CASE("a computation waits for its receive, a send for the computation before it") {
  const CommProgram program = calls(two);
  const auto& second = program.ranks[1];
  REQUIRE(second.size() == 4);
  CHECK(second[0].op == CommOp::receive);
  CHECK(second[0].peer == 0);
  CHECK(second[0].data == "F0.0");
  CHECK(second[1].waits_for == std::vector<std::int32_t>{0});
  CHECK(second[3].waits_for == std::vector<std::int32_t>{2});
  CHECK(second[3].stream == second[0].stream);
  CHECK(second[3].item == 3);
}

TEST_CASE("communicators are one, one a direction or one a pair") {
  CHECK(calls(two).communicators.size() == 1);
  CHECK(calls(two, {.communicators = CallCommunicators::direction}).communicators.size() == 2);
  const CommProgram pairs = calls(two, {.communicators = CallCommunicators::pair});
  CHECK(pairs.communicators[0].name == "pp_0_1");
}

TEST_CASE("under Gloo the host waits for what a computation needs") {
  const CommProgram program = calls(two, {.semantics = CallSemantics::gloo});
  const auto& second = program.ranks[1];
  CHECK(second[0].stream == -1);
  CHECK(second[1].op == CommOp::wait);
  CHECK(second[1].blocks_host);
  CHECK(second.back().op == CommOp::wait);  // for the sends
}

TEST_CASE("a batch is one group") {
  const CommProgram program = calls("0F0,0F1,(0SEND_F0;0SEND_F1)BATCH_P2P\n1RECV_F0,1F0,1RECV_F1,1F1\n");
  CHECK(program.ranks[0][2].group >= 0);
  CHECK(program.ranks[0][2].group == program.ranks[0][3].group);
}

TEST_CASE("rows that PyTorch would refuse are refused with line and cell") {
  CHECK(fault("0F0,0SEND_F0\n1F0,1RECV_F0\n").find("line 2, cell 1: '1F0': no 1RECV_F0 stands before it") != std::string::npos);
  CHECK(fault("0SEND_F0,0F0\n1RECV_F0,1F0\n").find("not computed before it") != std::string::npos);
  CHECK(fault("0F0,5SEND_F0\n1F0\n").find("not computed in this line") != std::string::npos);
  CHECK(fault("0F0\n0F1\n").find("computed in line 1 too") != std::string::npos);
  CHECK(fault("0F0,0F1,0B0,0REDUCE_GRAD,0B1\n") ==
        "x.csv: line 1, cell 5: '0B1': the stage's REDUCE_GRAD comes before it; it must come after the last backward");
  CHECK(fault("0UNSHARD,0F0,0I0,0RESHARD,0W0\n") == "x.csv: line 1, cell 5: '0W0': the stage is not unsharded here");
}

TEST_CASE("a batch is proposed only to a reader that has batches") {
  const std::string first = "0F0,0SEND_F0,0F1,0SEND_F1,0WAIT_SEND_F1,0RECV_B0,0B0,";
  const std::string second = "1RECV_F0,1F0,1B0,1SEND_B0,1WAIT_SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1WAIT_SEND_B1\n";
  const PytorchOrder waits{parse_pytorch_csv(first + "0WAIT_SEND_F0,0RECV_B1,0B1\n" + second), {}, "x.csv"};
  CHECK(!waits.takes_groups());
  const auto found = mend(waits, prove(waits.program()));
  REQUIRE(found);
  CHECK(found->text == "move 0RECV_B0 before 0SEND_F1 on rank 0");
  const PytorchOrder batches{parse_pytorch_csv("0F0,0F1,(0SEND_F0;0SEND_F1)BATCH_P2P\n1RECV_F0,1F0,1RECV_F1,1F1\n"), {}, "x.csv"};
  CHECK(batches.takes_groups());
}

TEST_CASE("a wait for a send holds the stream of computations under NCCL, the host under Gloo") {
  const char* waits = "0F0,0SEND_F0,0WAIT_SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0,1WAIT_SEND_B0\n";
  const CommProgram nccl = calls(waits);
  CHECK(nccl.ranks[0][2].op == CommOp::wait);
  CHECK(nccl.ranks[0][2].stream == nccl.ranks[0][0].stream);
  CHECK(nccl.ranks[0][2].waits_for == std::vector<std::int32_t>{1});
  CHECK_FALSE(nccl.ranks[0][2].blocks_host);
  CHECK(nccl.ranks[0][3].waits_for == std::vector<std::int32_t>{2});  // the next transfer waits for the current stream
  const CommProgram gloo = calls(waits, {.semantics = CallSemantics::gloo});
  CHECK(gloo.ranks[0][2].blocks_host);
  CHECK(gloo.ranks[0].back().op == CommOp::compute);  // no send is left to wait for
  CHECK(
      fault("0F0,0WAIT_SEND_F0,0SEND_F0\n1RECV_F0,1F0\n") ==
      "x.csv: line 1, cell 2: '0WAIT_SEND_F0': the send that it waits for does not stand before it; PyTorch refuses this order");
}
