// Tests of report/kineto_trace.hpp: a trace made with known times, small traces of special cases,
// and invalid files.
// Not: the fit (unit/analysis/gpu_profile_test.cpp).
#include "tawpipe/report/kineto_trace.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "support/clusters.hpp"
#include "tawpipe/topology/clusters.hpp"

using doctest::Approx;
using tawpipe::concat;
using tawpipe::GpuProfile;
using tawpipe::InputError;
using tawpipe::ModelPart;
using tawpipe::Op;
using tawpipe::Rank;
using tawpipe::read_kineto_trace;

namespace {

/// Two steps of a model of two layers on rank 0 of four; times in microseconds are round numbers
/// (see the data).
std::string recorded() {
  std::ostringstream text;
  text << std::ifstream{TAWPIPE_TEST_DATA "/kineto/rank0.json"}.rdbuf();
  return text.str();
}

/// [of that pass and part] microseconds, in order of their events
std::vector<double> times(const GpuProfile& profile, Op op, ModelPart part) {
  std::vector<double> found;
  for (const auto& one : profile.computations) {
    if (one.op == op && one.part == part) found.push_back(one.seconds * 1e6);
  }
  return found;
}

std::string host(const char* category, const std::string& name, double start, double length, int thread,
                 const std::string& args) {
  return concat("{\"ph\": \"X\", \"cat\": \"", category, "\", \"name\": \"", name, "\", \"pid\": 1, \"tid\": ", thread,
                ", \"ts\": ", start, ", \"dur\": ", length, ", \"args\": {", args, "}}");
}
std::string kernel(double start, double length, int external, const std::string& name = "gemm", const std::string& more = "") {
  return concat("{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"", name, "\", \"pid\": 0, \"tid\": 7, \"ts\": ", start,
                ", \"dur\": ", length, ", \"args\": {\"External id\": ", external, ", \"device\": 0, \"stream\": 7", more, "}}");
}
std::string trace(const std::vector<std::string>& events) {
  std::string text = "{\"traceEvents\": [";
  for (std::size_t i = 0; i < events.size(); ++i) text += (i > 0 ? ", " : "") + events[i];
  return text + "]}";
}

}  // namespace

TEST_CASE("kernels are placed by annotations, those of backwards by the forward that made their autograd node") {
  const GpuProfile profile = read_kineto_trace(recorded(), {.head = "lm_head"});
  CHECK(profile.rank == 0);
  // Two layers in two steps: 100 us and then 20 us; backwards 40 us, and two of 100 us that overlap
  // by 10.
  const auto forward = times(profile, Op::forward, ModelPart::layer);
  REQUIRE(forward.size() == 4);
  for (const double us : forward) CHECK(us == Approx(120));
  const auto backward = times(profile, Op::backward, ModelPart::layer);
  REQUIRE(backward.size() == 4);
  for (const double us : backward) CHECK(us == Approx(40 + 190));
  CHECK(times(profile, Op::forward, ModelPart::embedding)[0] == Approx(10));
  CHECK(times(profile, Op::backward, ModelPart::embedding)[0] == Approx(15));
  CHECK(times(profile, Op::forward, ModelPart::head)[1] == Approx(50));
  CHECK(times(profile, Op::backward, ModelPart::head)[1] == Approx(100));
  // One optimizer step each: 250 us, and a set of 5 us.
  const auto update = times(profile, Op::update, ModelPart::layer);
  REQUIRE(update.size() == 2);
  CHECK(update[0] == Approx(255));
}

TEST_CASE("collectives have operation, members, bytes and time; matrix products their operations") {
  const GpuProfile profile = read_kineto_trace(recorded());
  REQUIRE(profile.collectives.size() == 8);
  int gathers = 0;
  for (const auto& one : profile.collectives) {
    if (one.op != Op::all_gather) continue;
    ++gathers;
    CHECK(one.members == std::vector<Rank>{Rank{0}, Rank{1}});
    CHECK((one.bytes == 2'000'000 || one.bytes == 64'000'000));
  }
  CHECK(gathers == 4);  // one of each pair by its operator only, as in older versions
  // In each step 3 products of each of 2 layers, of 4096, 1024 and 4096, 100 us each; 3 of the
  // head, half as large, of 50 us.
  const double layer = 2.0 * 4096 * 1024 * 4096;
  CHECK(profile.products == 18);
  CHECK(profile.product_flops == Approx(2 * (2 * 3 * layer + 3 * layer / 2)));
  CHECK(profile.product_seconds == Approx(2 * (2 * 300 + 150) * 1e-6));
}

TEST_CASE("a trace without layers of that name is refused with the names that it has") {
  const GpuProfile profile = read_kineto_trace(recorded(), {.layer = "Block"});
  const auto found = tawpipe::calibrate({&profile, 1}, support::cluster(4, 2));
  CHECK_THROWS_WITH_AS(tawpipe::check_layers(found.calibration.cost, {&profile, 1}, {.layer = "Block"}),
                       doctest::Contains("nothing with such kernels is called 'Block'; name yours with --layer, such as "),
                       tawpipe::InputError);
  const GpuProfile right = read_kineto_trace(recorded());
  tawpipe::check_layers(tawpipe::calibrate({&right, 1}, support::cluster(4, 2)).calibration.cost, {&right, 1}, {});
}

TEST_CASE("a trace says on what it was taken") {
  const GpuProfile profile = read_kineto_trace(recorded());
  CHECK(profile.device == "NVIDIA H100 80GB HBM3");
  CHECK(profile.software == "PyTorch's profiler, NCCL 2.21.5");
  CHECK_THROWS_WITH_AS(tawpipe::calibrate({&profile, 1}, tawpipe::cluster_named("dgx-a100*2")),
                       doctest::Contains("or --device H100-80G"), tawpipe::InputError);
  const auto found = tawpipe::calibrate({&profile, 1}, tawpipe::cluster_named("dgx-h100"));
  CHECK(found.calibration.cost.device == "H100-80G");
  CHECK(found.calibration.cost.software == profile.software);
}

TEST_CASE("a trace gives the measured cost that it was made with") {
  const GpuProfile profile = read_kineto_trace(recorded(), {.head = "lm_head"});
  const auto found = tawpipe::calibrate({&profile, 1}, support::cluster(4, 2));
  const auto& cost = found.calibration.cost;
  CHECK(cost.forward->layer == Approx(120e-6));
  CHECK(cost.backward->head == Approx(100e-6));
  CHECK(cost.update->once == Approx(255e-6));
  CHECK(cost.intra_node->latency == Approx(2e-6).epsilon(1e-3));
  CHECK(cost.intra_node->byte == Approx(1 / 100e9).epsilon(1e-3));
  CHECK(cost.inter_node->latency == Approx(20e-6).epsilon(1e-3));
  CHECK(cost.inter_node->byte == Approx(1 / 10e9).epsilon(1e-3));
  CHECK(found.product_share == Approx(profile.product_flops / profile.product_seconds / 1e12));
}

TEST_CASE("what a checkpoint computes again belongs to the backward") {
  // Thread 1 ran the layer without making nodes; in the backward on thread 2 it runs again, making
  // node 5.
  const auto profile = read_kineto_trace(trace({
      host("user_annotation", "layer", 0, 50, 1, "\"External id\": 1"),
      host("cpu_op", "aten::mm", 5, 20, 1, "\"External id\": 2"),
      kernel(100, 10, 2),
      host("cpu_op", "autograd::engine::evaluate_function: CheckpointFunctionBackward", 200, 300, 2,
           "\"External id\": 3, \"Sequence number\": 1, \"Fwd thread id\": 1"),
      host("user_annotation", "layer", 210, 50, 2, "\"External id\": 4"),
      host("cpu_op", "aten::mm", 215, 20, 2, "\"External id\": 5, \"Sequence number\": 5, \"Fwd thread id\": 0"),
      kernel(300, 10, 5),
      host("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 300, 100, 2,
           "\"External id\": 6, \"Sequence number\": 5, \"Fwd thread id\": 2"),
      host("cpu_op", "aten::mm", 310, 20, 2, "\"External id\": 7"),
      kernel(400, 25, 7),
  }));
  REQUIRE(profile.computations.size() == 2);
  CHECK(times(profile, Op::forward, ModelPart::layer)[0] == Approx(10));
  CHECK(times(profile, Op::backward, ModelPart::layer)[0] == Approx(35));
}

TEST_CASE("modules are parts too, by their classes; other names are none") {
  const auto of = [](const std::string& name, const char* category) {
    return read_kineto_trace(trace({host(category, name, 0, 50, 1, ""),
                                    host("cpu_op", "aten::mm", 5, 20, 1, "\"External id\": 2"), kernel(100, 10, 2)}),
                             {.layer = "LlamaDecoderLayer"});
  };
  CHECK(of("nn.Module: LlamaDecoderLayer_12", "python_function").computations.size() == 1);
  CHECK(of("LlamaDecoderLayer.3", "user_annotation").computations.size() == 1);
  CHECK(of("LlamaDecoderLayer", "user_annotation").computations.size() == 1);
  CHECK(of("LlamaDecoderLayerNorm", "user_annotation").computations.empty());
  CHECK(of("LlamaDecoderLayer_12", "python_function").computations.empty());
}

TEST_CASE("groups of many ranks are written short, and communications beside each other are marked") {
  const std::string gather =
      ", \"Collective name\": \"_allgather_base\", \"In msg nelems\": 2, \"Out msg nelems\": 8, \"Group size\": 4, \"dtype\": "
      "\"Float\", "
      "\"Process Group Ranks\": \"[0, 8, ...]\"";
  const std::string send =
      ", \"Collective name\": \"send\", \"In msg nelems\": 2, \"Out msg nelems\": 2, \"Group size\": 2, "
      "\"dtype\": \"Float\", \"Process Group Ranks\": \"[0, 1]\"";
  const auto profile = read_kineto_trace(
      trace({kernel(0, 10, 1, "ncclDevKernel_AllGather_RING_LL", gather), kernel(5, 20, 2, "ncclDevKernel_SendRecv", send),
             kernel(30, 10, 3, "ncclDevKernel_AllGather_RING_LL", gather)}));
  REQUIRE(profile.collectives.size() == 2);
  CHECK(profile.collectives[0].members == std::vector<Rank>{Rank{0}, Rank{8}, Rank{16}, Rank{24}});
  CHECK(profile.collectives[0].bytes == 32);
  CHECK_FALSE(profile.collectives[0].alone);
  CHECK(profile.collectives[1].alone);
}

TEST_CASE("files that are no such trace say what they are") {
  const auto refused = [](const std::string& text, const char* message) {
    CHECK_THROWS_WITH_AS(read_kineto_trace(text, {}, "t.json"), message, InputError);
  };
  const std::string whole = recorded();
  const auto broken = [](const std::string& text, std::string_view place, std::string_view end) {
    try {
      read_kineto_trace(text, {}, "t.json");
      FAIL("was read");
    } catch (const InputError& error) {
      const std::string_view message = error.what();
      CHECK(message.starts_with(place));
      CHECK(message.ends_with(end));
    }
  };
  broken(whole.substr(0, whole.size() / 2), "t.json: not JSON: line ", "; the text is cut off");
  broken("", "t.json: not JSON: line 1, column 1: ", "; the text is cut off");
  broken("{} x", "t.json: not JSON: line 1, column 4: ", "");
  broken("hello", "t.json: not JSON: line 1, column 1: ", "");
  broken(R"({"traceEvents":[{"ph":"X","cat":"kernel","name":"k","ts":1e999,"dur":1}]})", "t.json: not JSON: line 1, column 6",
         "");
  broken(R"({"traceEvents":[{"tid":)" + std::string(100'000, '[') + std::string(100'000, ']') + "}]}",
         "t.json: ", "more than 32 deep in each other");
  refused("\x1f\x8b\x08", "t.json: compressed; unpack it first, as with gunzip");
  const char* without = "t.json: without GPU kernels; profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]";
  refused(trace({host("cpu_op", "aten::mm", 0, 1, 1, "")}), without);
  refused(R"({"model_type": "llama"})",
          "t.json: no trace: it has no \"traceEvents\"; give what torch.profiler's "
          "export_chrome_trace wrote");
  refused(R"({"traceEvents": [{"ph": "X", "cat": "kernel", "name": "gemm", "ts": "soon", "dur": 1}]})",
          "t.json: broken: its event 'gemm' has no number 'ts'");
}
