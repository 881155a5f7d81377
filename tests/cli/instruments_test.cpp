// The commands that measure predictions: sweep, sensitivity, spread, calibrate, vtrain's
// iterations.
// Not: the TawPipe paper's cells (reproduce_test.cpp).
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/command_json.hpp"
#include "support/scratch_folder.hpp"

using nlohmann::json;
using support::parsed;
using support::run;

namespace {

const std::string of_24_sequences = " --cluster 3x2 --model llama-12x512 --sequence 512 --global-batch 24 --microbatch 1";

}  // namespace

TEST_CASE("a sweep has a row for each point and schedule, and the crossover between two of its points") {
  const std::string sweep = "sweep --schedules tawpipe,1f1b --vary inter-node=1Mbps:1Tbps:log:5" + of_24_sequences;
  const json answer = parsed(run(sweep + " --json -"));
  const std::string first = run(sweep).out.substr(0, 200);
  CHECK(first.starts_with("Fastest: "));
  CHECK(first.find(" of 5 points, ") != std::string::npos);
  REQUIRE(answer.at("points").size() == 10);
  // Weights are heavier than activations of one short sequence: with slow links 1F1B wins, with
  // fast ones TawPipe.
  CHECK(answer.at("points")[0].at("schedule") == "tawpipe");
  CHECK(answer.at("points")[0].at("makespan_s").get<double>() > answer.at("points")[1].at("makespan_s").get<double>());
  CHECK(answer.at("points")[8].at("makespan_s").get<double>() < answer.at("points")[9].at("makespan_s").get<double>());
  REQUIRE(answer.at("crossovers").size() == 1);
  CHECK(answer.at("crossovers")[0].get<std::string>().starts_with("1f1b overtakes tawpipe below inter-node "));
  const auto text = run(sweep);
  CHECK(text.out.find("1f1b overtakes tawpipe below") != std::string::npos);
}

TEST_CASE("a sweep's output does not depend on the number of threads") {
  const std::string sweep =
      "sweep --schedules all --vary sequence=256,512 --vary option.overlap=on,off --csv -" + of_24_sequences;
  const auto one = run(sweep + " --threads 1");
  const auto many = run(sweep + " --threads 7");
  REQUIRE(one.code == 0);
  CHECK(one.out == many.out);
  CHECK(one.out.starts_with("sequence,option.overlap,schedule,tokens_per_device_per_second,makespan_s,"));
}

TEST_CASE("nodes, shapes and names can be varied") {
  const auto nodes = parsed(run("sweep --schedules tawpipe --vary nodes=1,2 --vary hidden=512,1024 --json -" + of_24_sequences));
  CHECK(nodes.at("points").size() == 4);
  const auto models =
      parsed(run("sweep --schedules fsdp --vary model=llama-12x512,llama-24x512 --cluster 2x2 --sequence 512 "
                 "--global-batch 8 --json -"));
  CHECK(models.at("points")[1].at("makespan_s").get<double>() > models.at("points")[0].at("makespan_s").get<double>());
}

TEST_CASE("a sweep that cannot be is refused") {
  support::check_refused(run("sweep" + of_24_sequences), {"--vary"});
  support::check_refused(run("sweep --vary sequense=1,2" + of_24_sequences), {"did you mean", "sequence"});
  support::check_refused(run("sweep --vary sequence=512 --vary sequence=256" + of_24_sequences), {"twice"});
  support::check_refused(run("sweep --vary sequence=512 --schedules tawpip" + of_24_sequences), {"tawpipe"});
}

TEST_CASE("an improved schedule is faster, and simulates as the search said") {
  const support::ScratchFolder folder;
  const std::string file = folder / "improved.json";
  const json found = parsed(run("improve --schedule tawpipe --budget 200000 --json - --out " + file + of_24_sequences));
  CHECK(found.at("makespan_s").get<double>() < found.at("start_s").get<double>());
  CHECK(!found.at("steps").empty());
  const json again = parsed(run("simulate --schedule-file " + file + " --json -" + of_24_sequences));
  CHECK(again.at("makespan_s") == found.at("makespan_s"));
  CHECK(run("validate --schedule-file " + file + of_24_sequences).code == 0);
  const std::string alone = "simulate --cluster 3x1 --schedule-file " + file;
  for (const std::string wrong : {"--model llama-8x512", "--sequence 64", "--global-batch 3", "--microbatch 7",
                                  "--recompute selective", "--gemm-format fp8"}) {
    support::check_refused(run(alone + " " + wrong), {wrong.substr(0, wrong.find(' ')) + " is not what"});
  }
  support::check_refused(run(alone + " --offload optimizer"), {"--offload has no effect with --schedule-file"});
  support::check_refused(run("improve --schedule tawpip" + of_24_sequences), {"tawpipe"});
  support::check_refused(run("improve --schedule tawpipe --budget 0" + of_24_sequences), {"--budget"});
}

TEST_CASE("with computation alone, a tenth more of each of its kinds buys a tenth together") {
  const json answer =
      parsed(run("sensitivity --schedule gpipe --cluster 1x2 --microbatches 4 --json - "
                 "--cost fixed:forward=1s,backward_input=1s,backward_weight=1s,transfer=0s"));
  // 2 ranks, 4 microbatches of F = 1 s, B + W = 2 s: (4 + 1) * 3 = 15 s, of which forwards 5 s and
  // backwards 10 s.
  CHECK(answer.at("makespan_s").get<double>() == doctest::Approx(15));
  REQUIRE(answer.at("gains").size() >= 2);
  CHECK(answer.at("gains")[0].at("what") == "computation: backward");
  CHECK(answer.at("gains")[0].at("makespan_s").get<double>() == doctest::Approx(5 + 10 / 1.1));
  CHECK(answer.at("gains")[1].at("makespan_s").get<double>() == doctest::Approx(5 / 1.1 + 10));
  const json links = parsed(run("sensitivity --schedule tawpipe --json -" + of_24_sequences));
  bool network = false;
  for (const auto& gain : links.at("gains")) {
    network = network || gain.at("what") == "links: network, bandwidth";
    CHECK(gain.at("gain").get<double>() > -0.01);
    CHECK(gain.at("gain").get<double>() < 0.11);
  }
  CHECK(network);
}

TEST_CASE("noise is seeded: the same seed gives the same run, stragglers and interference slow it") {
  const std::string simulate = "simulate --schedule tawpipe --json -" + of_24_sequences;
  const json even = parsed(run(simulate));
  const json first = parsed(run(simulate + " --jitter 0.05 --seed 3"));
  CHECK(first == parsed(run(simulate + " --jitter 0.05 --seed 3")));
  CHECK(first.at("makespan_ps") != parsed(run(simulate + " --jitter 0.05 --seed 4")).at("makespan_ps"));
  // All devices twice as slow, and nothing but computation: 2 ranks, 4 microbatches of 3 s take
  // (4 + 1) * 3 = 15 s, then 30 s.
  const json slow =
      parsed(run("simulate --schedule gpipe --cluster 1x2 --microbatches 4 --stragglers 1x2 --json - "
                 "--cost fixed:forward=1s,backward_input=1s,backward_weight=1s,transfer=0s"));
  CHECK(slow.at("makespan_s").get<double>() == doctest::Approx(30));
  CHECK(parsed(run(simulate + " --interference 0.2")).at("makespan_s").get<double>() >= even.at("makespan_s").get<double>());
  support::check_refused(run(simulate + " --jitter 2"), {"--jitter"});
  support::check_refused(run(simulate + " --stragglers often"), {"--stragglers", "0.01x2"});
}

TEST_CASE("collectives can be charged as NCCL's tuner would run them") {
  // Two-level FSDP on nodes of 8 adapters: a flat ring of Simple goes by one of them, NCCL's
  // channels by all.
  const std::string ask =
      "simulate --schedule fsdp --cluster dgx-h100*2 --model llama-12x512 --sequence 512 --global-batch 32 --json -";
  const json simple = parsed(run(ask + " --cost roofline"));
  CHECK(simple == parsed(run(ask + " --cost roofline:collectives=simple")));
  CHECK(parsed(run(ask + " --cost roofline:collectives=nccl")).at("makespan_s").get<double>() <
        simple.at("makespan_s").get<double>());
  support::check_refused(run(ask + " --cost roofline:collectives=nvls"), {"collectives=nvls", "simple or nccl"});
  support::check_refused(run(ask + " --cost roofline:collectives=nccl,all-reduce=tree"), {"leave out all-reduce"});
  CHECK(run("topology show dgx-h100*2").out.find("collectives=nccl") != std::string::npos);
}

TEST_CASE("SMs that communications hold cost time, which is told by rank, and by file of measured speeds") {
  const support::Folder folder;
  const std::string ask =
      "simulate --schedule 1f1b --option overlap=on --cluster 2x2 --model llama-12x512 --sequence 512 "
      "--microbatches 8 --json -";
  const json off = parsed(run(ask + " --hold-sms off"));
  CHECK(!off.contains("held_sms"));
  const json unsaid = parsed(run(ask));
  CHECK(unsaid == parsed(run(ask + " --hold-sms nccl")));
  CHECK(unsaid.at("held_sms").at("waiting_s")[3] == 0);
  CHECK(unsaid.at("cost").get<std::string>().ends_with(
      "; SM contention: 15% slower beside collectives, up to 44% beside those of weights or gradients"));
  CHECK(!parsed(run(ask + " --cost roofline")).contains("held_sms"));
  const json on = parsed(run(ask + " --hold-sms on"));
  CHECK(on == parsed(run(ask + " --hold-sms ctas=8,collective-ctas=16,sms=108")));
  CHECK(on.at("makespan_s").get<double>() > off.at("makespan_s").get<double>());
  const auto fsdp = [](const std::string& held) {
    return parsed(run("simulate --schedule fsdp --cluster dgx-a100 --model llama-12x512 --sequence 512 --microbatches 8 "
                      "--json - --hold-sms " +
                      held))
        .at("makespan_s")
        .get<double>();
  };
  CHECK(fsdp("nccl") > fsdp("collective-ctas=16"));
  CHECK(fsdp("nccl") == fsdp("ctas=0,collective-ctas=16,state-ctas=47,waiting=off"));
  CHECK(fsdp("nccl") > fsdp("ctas=0,collective-ctas=16,state-ctas=47,waiting=off,state-rate=1TBps"));
  // Gathers of weights are for copy engines, sums of gradients are not.
  const std::string ahead = " --option prefetch=1";
  CHECK(fsdp("nccl" + ahead) > fsdp("nccl,copy-engines=node" + ahead));
  CHECK(fsdp("nccl,copy-engines=node" + ahead) > fsdp("off" + ahead));
  CHECK(fsdp("nccl,puts=network" + ahead) == fsdp("nccl" + ahead));
  const json ordered = parsed(run(ask + " --hold-sms on,puts=node,launch-order=implicit"));
  CHECK(ordered.at("makespan_s").get<double>() <= on.at("makespan_s").get<double>());
  CHECK(ordered.at("cost").get<std::string>().ends_with(
      ", computing with the rest; no SMs held by messages inside nodes; communications start in the order of their calls"));
  support::check_refused(run(ask + " --hold-sms puts=on"), {"puts=on must be off, node or network"});
  support::check_refused(run(ask + " --hold-sms launch-order=1"), {"launch-order=1 must be implicit or off"});
  CHECK(on.at("held_sms").at("slowed_s").size() == 4);
  CHECK(on.at("held_sms").at("waiting_s")[3].get<double>() > 0);
  CHECK(on.at("cost").get<std::string>().ends_with("; SMs held: 8 by a message, 16 by a collective, computing with the rest"));
  CHECK(run(ask + " --hold-sms on --trace -").code == 2);  // two outputs
  const auto text = [&](const std::string& more) {
    return run("simulate --schedule 1f1b --option overlap=on --cluster 2x2 --model llama-12x512 --sequence 512 "
               "--microbatches 8 --hold-sms on" +
               more)
        .out;
  };
  CHECK(text("").find("of it due to waiting communications") != std::string::npos);
  CHECK(text(" --trace -").find("\"slowed_us\":") != std::string::npos);
  // As fast with 8 CTAs as without.
  const std::string speeds = folder.write("beside.json",
                                          "{\"multiprocessors\": 108}\n{\"ctas\": 40, \"priority\": \"high\", \"speed\": 1}\n"
                                          "{\"ctas\": 40, \"priority\": \"low\", \"speed\": 0.5}\n");
  CHECK(parsed(run(ask + " --hold-sms speeds=" + speeds)).at("makespan_ps") == off.at("makespan_ps"));
  CHECK(parsed(run(ask + " --hold-sms speeds=" + speeds + ",priority=low")).at("makespan_s").get<double>() >
        on.at("makespan_s").get<double>());
  support::check_refused(run(ask + " --hold-sms speeds=" + speeds + " --cluster dgx-h100"),
                         {"measured on a device of 108 SMs", "'H100-80G' has 132"});
  support::check_refused(run(ask + " --hold-sms priority=low"), {"give speeds=FILE too"});
  support::check_refused(run(ask + " --hold-sms ctas=-1"), {"--hold-sms: ctas=-1", "whole number"});
  support::check_refused(run(ask + " --hold-sms ctas=0,collective-ctas=0"), {"use off"});
  support::check_refused(run(ask + " --hold-sms cta=8"), {"unknown parameter 'cta'; did you mean 'ctas'?"});
  support::check_refused(run(ask + " --hold-sms waiting=maybe"), {"waiting=maybe must be on or off"});
  support::check_refused(run(ask + " --hold-sms maybe"), {"must be on, off, nccl or parameters"});
  support::check_refused(run("export --schedule 1f1b --cluster 2x2 --model llama-12x512 --sequence 512 --microbatches 8 "
                             "--hold-sms on --graph " +
                             folder.write("graph.tg", "")),
                         {"a plain task graph cannot express"});
}

TEST_CASE("a spread has mean and deviation of each figure") {
  const json answer = parsed(run("simulate --schedule 1f1b --spread 5 --jitter 0.02 --json -" + of_24_sequences));
  CHECK(answer.at("runs") == 5);
  const json& makespan = answer.at("makespan_s");
  CHECK(makespan.at("deviation").get<double>() > 0);
  CHECK(makespan.at("least").get<double>() <= makespan.at("mean").get<double>());
  CHECK(makespan.at("mean").get<double>() <= makespan.at("most").get<double>());
  CHECK(run("simulate --schedule 1f1b --spread 3" + of_24_sequences).out.find("+-") != std::string::npos);
}

TEST_CASE("links are calibrated from nccl-tests and fit a cluster file") {
  const support::Folder folder;
  std::string text;
  for (int rank = 0; rank < 2; ++rank) {
    text +=
        "#  Rank  " + std::to_string(rank) + " Group  0 Pid  77 on    node0 device  " + std::to_string(rank) + " [0x07] GPU\n";
  }
  // 8.4 us to start, 1.6 us a hop, 100 GB/s
  for (const double bytes : {1e3, 1e6, 1e9}) {
    const std::string time = std::to_string(8.4 + 1.6 + bytes / 100e3);
    text += std::to_string(static_cast<long>(bytes)) + " 1 float sum -1 " + time + " 1 1 0 " + time + " 1 1 0\n";
  }
  const std::string file = folder.write("sendrecv.txt", text);
  const json links = parsed(run("calibrate " + file + " --json -"));
  CHECK(links.at("intra_node").at("bytes_per_second").get<double>() == doctest::Approx(100e9).epsilon(0.01));
  CHECK(links.at("intra_node").at("latency_ps").get<double>() == doctest::Approx(1.6e6).epsilon(0.01));
  support::check_refused(run("calibrate " + folder.write("x.txt", "hello")), {"not an output of nccl-tests"});
}

TEST_CASE("measured Megatron iterations are predicted row by row") {
  const support::Folder folder;
  const std::string names =
      "# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence length,tensor parallelism,data "
      "parallelism,pipeline parallelism,iteration time (ms)\n";
  const json answer =
      parsed(run("reproduce vtrain --json - --data " + folder.write("a.csv", names + "8,16,2,2048,16,24,1024,2,2,2,310\n")));
  REQUIRE(answer.at("sources").size() == 1);
  const json& source = answer.at("sources")[0];
  CHECK(source.at("source") == "vtrain, one node");
  CHECK(source.at("expressible") == 1);
  CHECK(source.at("predictions")[0].at("predicted_s").get<double>() == doctest::Approx(0.31).epsilon(0.3));
  support::check_refused(run("reproduce vtrain"), {"--data"});
  support::check_refused(run("reproduce vtrain --data " + folder.write("b.csv", names + "8,16,2,2048,16,24,1024,2,2,1,310\n")),
                         {"parallelism"});
}
