// Tests of cost/kernel_cost.hpp: kernels' times against the measurements that the curves name.
// Not: how well whole iterations are predicted (docs/accuracy.md).
#include "tawpipe/cost/kernel_cost.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "support/clusters.hpp"
#include "support/mixtures.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"

using doctest::Approx;
using tawpipe::Kernel;
using tawpipe::KernelCost;
using tawpipe::KernelPass;

namespace {

double share(const Kernel& kernel, std::string_view name) {
  const tawpipe::DeviceSpec device = tawpipe::device_named(name);
  const tawpipe::DeviceCurves& curves = tawpipe::curves_of(tawpipe::known_device(name).sm);
  const double time = kernel.kind == Kernel::Kind::product ? tawpipe::product_seconds(kernel, curves, device)
                                                           : tawpipe::attention_seconds(kernel, curves, device);
  return kernel.flops() / time / device.peak.value();
}

Kernel product(std::int64_t m, std::int64_t n, std::int64_t k) { return {.kind = Kernel::Kind::product, .m = m, .n = n, .k = k}; }

Kernel attention(Kernel::Kind kind, std::int64_t heads, std::int64_t sequence) {
  return {.kind = kind, .m = sequence, .n = sequence, .k = 128, .batch = heads};
}

/// On one H100: the forwards of two stages of Llama 3 8B, and the backward of the first.
struct TwoStages {
  explicit TwoStages(std::int32_t layers, bool edges) {
    builder.stages({work.stage(0, 2, false, false), work.stage(0, layers, edges, edges)});
    for (const int stage : {0, 1}) add(tawpipe::Op::forward, stage);
    add(tawpipe::Op::backward, 0);
    schedule.emplace(builder.build());
  }
  void add(tawpipe::Op op, int stage) {
    builder.add({.op = op, .rank = tawpipe::Rank{0}, .stage = tawpipe::StageId{stage}, .microbatch = 0}, {});
  }
  const tawpipe::StageWork& stage(int stage) const { return schedule->stage(tawpipe::StageId{stage}); }
  double time(const KernelCost& cost, int task) const {
    return tawpipe::to_seconds(cost.compute_time(*schedule, tawpipe::TaskId{task}, cluster));
  }

  tawpipe::Workload work{tawpipe::models::named("llama-3-8b"), {.sequence = 4096, .microbatch_size = 1, .global_batch = 1}};
  tawpipe::ScheduleBuilder builder{"test", work, 1, {"compute"}};
  tawpipe::Cluster cluster =
      tawpipe::ClusterBuilder{}.device(tawpipe::device_named("H100-80G")).nodes(1).devices_per_node(1).build();
  std::optional<tawpipe::Schedule> schedule;
};

}  // namespace

TEST_CASE("products of A100: large ones at the measured share, small ones by whole waves of tiles") {
  CHECK(share(product(4096, 28672, 8192), "A100-80G") == Approx(0.755).epsilon(0.03));
  CHECK(share(product(4096, 4096, 4096), "A100-80G") == Approx(0.72).epsilon(0.06));
  CHECK(share(product(4096, 2048, 4096), "A100-80G") == Approx(0.61).epsilon(0.12));
  CHECK(share(product(4096, 576, 5120), "A100-80G") == Approx(0.50).epsilon(0.15));
}

TEST_CASE("a weight's gradient that is not added to a sum is written faster") {
  Kernel kernel{.kind = Kernel::Kind::product, .pass = KernelPass::backward_weight, .m = 8192, .n = 8192, .k = 8192};
  const double adds = share(kernel, "A100-80G");
  kernel.adds = false;
  CHECK(share(kernel, "A100-80G") == Approx(adds / 0.94));  // SimuMax, a100_pcie.json
}

TEST_CASE("rows of an operand that are not whole 16 bytes slow products on A100, as measured") {
  // EleutherAI/cookbook, sizing/results/transformer_data/vocab_v_sweep.out: of 255 TFLOPS 139 and 74.
  const auto rate = [](KernelPass pass, std::int64_t m, std::int64_t n, std::int64_t k) {
    const auto of = [&](bool aligned) {
      return share({.kind = Kernel::Kind::product, .pass = pass, .adds = false, .aligned = aligned, .m = m, .n = n, .k = k},
                   "A100-80G");
    };
    return of(false) / of(true);
  };
  CHECK(rate(KernelPass::backward_input, 8192, 14336, 51200) == 1);
  CHECK(rate(KernelPass::backward_input, 8192, 14336, 51202) == Approx(139.0 / 255).epsilon(0.11));
  CHECK(rate(KernelPass::backward_input, 8192, 14336, 51201) == Approx(74.0 / 255).epsilon(0.03));
  CHECK(rate(KernelPass::backward_weight, 14338, 51200, 8192) == Approx(173.0 / 257).epsilon(0.11));
  CHECK(rate(KernelPass::backward_weight, 14337, 51200, 8192) == Approx(72.0 / 257).epsilon(0.03));
  CHECK(rate(KernelPass::forward, 8192, 51201, 14336) == 1);        // reads rows of 14336 only
  CHECK(rate(KernelPass::backward_weight, 8192, 8192, 4095) == 1);  // tokens are never a row
}

TEST_CASE("attention of B200: more heads fill the device, at the measured shares") {
  const std::pair<int, double> forward[] = {{8, 0.155}, {16, 0.289}, {32, 0.365}, {64, 0.436}, {128, 0.498}};
  for (const auto& [heads, measured] : forward) {
    CAPTURE(heads);
    CHECK(share(attention(Kernel::Kind::attention, heads, 4096), "B200-180G") == Approx(measured).epsilon(0.25));
  }
  const std::pair<int, double> backward[] = {{8, 0.329}, {16, 0.378}, {32, 0.398}, {64, 0.365}, {128, 0.416}};
  for (const auto& [heads, measured] : backward) {
    CAPTURE(heads);
    CHECK(share(attention(Kernel::Kind::attention_backward, heads, 4096), "B200-180G") == Approx(measured).epsilon(0.15));
  }
}

TEST_CASE("narrow formats use their own peak where the device has one") {
  Kernel narrow = product(8192, 8192, 8192);
  narrow.format = tawpipe::ProductFormat::fp8;
  const double wide = share(product(8192, 8192, 8192), "H100-80G");
  CHECK(share(narrow, "H100-80G") > 1.5 * wide);
  CHECK(share(narrow, "A100-80G") == Approx(share(product(8192, 8192, 8192), "A100-80G")).epsilon(0.02));
  narrow.format = tawpipe::ProductFormat::nvfp4;
  CHECK(share(narrow, "B200-180G") > 2 * share(product(8192, 8192, 8192), "B200-180G"));
}

TEST_CASE("float32 runs by TF32, and by vectors on devices without it") {
  const auto peak = [](std::string_view name) {
    const tawpipe::DeviceSpec device = tawpipe::device_named(name);
    return tawpipe::product_peak(tawpipe::ProductFormat::bits32, tawpipe::curves::ampere, device).peak;
  };
  CHECK(peak("A100-80G") == Approx(156e12));
  CHECK(peak("V100-32G") == Approx(15.7e12).epsilon(0.01));
  CHECK(peak("P100-16G") == Approx(10.6e12));
}

TEST_CASE("the shorter the inner dimension, the less 8 bits gain, as measured") {
  const auto gain = [](std::int64_t inner) {
    Kernel narrow = product(4096, 4096, inner);
    narrow.format = tawpipe::ProductFormat::fp8;
    return share(narrow, "B200-180G") / share(product(4096, 4096, inner), "B200-180G");
  };
  const std::pair<std::int64_t, double> measured[] = {{256, 1.30}, {512, 1.46}, {1024, 1.76}};
  for (const auto& [inner, gained] : measured) {
    CAPTURE(inner);
    CHECK(gain(inner) / gain(4096) == Approx(gained / 1.95).epsilon(0.12));
  }
}

TEST_CASE("a product never outruns the memory that feeds it") {
  const Kernel thin = product(16, 8192, 8192);
  const tawpipe::DeviceSpec device = tawpipe::device_named("H100-80G");
  CHECK(tawpipe::product_seconds(thin, tawpipe::curves::hopper, device) >= 2.0 * 8192 * 8192 / device.memory_bandwidth.value());
}

TEST_CASE("a stage takes the sum of its kernels, and no less than the host takes to launch it") {
  const TwoStages two{4, false};
  const auto time = [&](const KernelCost& cost, int task) { return two.time(cost, task); };
  CHECK(time({}, 1) == Approx(2 * time({}, 0)));
  // 2 x 218 million parameters x 4096 tokens and a little attention: 1.8 TFLOP a layer at about
  // 0.65 of 989 TFLOPS.
  CHECK(time({}, 0) / 2 == Approx(3.1e-3).epsilon(0.15));
  CHECK(time({.changes = {{&tawpipe::DeviceCurves::products, 0.35}}}, 0) > 1.5 * time({}, 0));
  const KernelCost slow{.changes = {{&tawpipe::DeviceCurves::host_layer, 0.1}, {&tawpipe::DeviceCurves::host_backward, 0.2}}};
  CHECK(time(slow, 0) == Approx(0.2));
  const bool again = two.stage(0).recompute.value() > 0;
  CHECK(time(slow, 2) == Approx(again ? 0.6 : 0.4));
}

TEST_CASE("a host that has waited for the numbers of tokens launches each expert's kernels one by one") {
  const auto cluster = tawpipe::ClusterBuilder{}.device(tawpipe::device_named("B200-180G")).nodes(1).devices_per_node(1).build();
  const auto time = [&](tawpipe::ProductFormat format, int task, tawpipe::CudaGraphs graphs) {
    auto model = support::wide_mixture(0);
    model.products = format;
    const tawpipe::Workload work{model, {.sequence = 64, .microbatch_size = 1, .global_batch = 1}};
    tawpipe::ScheduleBuilder builder{"test", work, 1, {"compute"}};
    builder.stages({work.stage(0, 1, false, false)});
    for (const auto op : {tawpipe::Op::forward, tawpipe::Op::backward}) {
      builder.add({.op = op, .rank = tawpipe::Rank{0}, .stage = tawpipe::StageId{0}, .microbatch = 0}, {});
    }
    const KernelCost cost{.changes = {{&tawpipe::DeviceCurves::host_kernel, 1}}, .graphs = graphs};
    return tawpipe::to_seconds(cost.compute_time(builder.build(), tawpipe::TaskId{task}, cluster));
  };
  using enum tawpipe::ProductFormat;
  constexpr auto none = tawpipe::CudaGraphs::none;
  // Gate and up are one product, down another: of 8 experts each.
  CHECK(time(bits16, 0, none) == Approx(16).epsilon(1e-3));
  CHECK(time(bits16, 1, none) == Approx(32).epsilon(1e-3));
  // A cast of each operand that is not a weight, and both operands' scales put in another order.
  CHECK(time(mxfp8, 0, none) == Approx(16 + 3 * 16).epsilon(1e-3));
  CHECK(time(mxfp8, 1, none) == Approx(32 + (3 + 2) * 16).epsilon(1e-3));
  CHECK(time(nvfp4, 0, none) == Approx(16 + 4 * 16).epsilon(1e-3));  // and a scale of each tensor
  CHECK(time(fp8, 1, none) == Approx(32 + 2 * 16).epsilon(1e-3));
  CHECK(time(fp8_block, 1, none) == Approx(32 + 16).epsilon(1e-3));
  CHECK(time(mxfp8, 0, tawpipe::CudaGraphs::iteration) < 0.01);
}

TEST_CASE("a stage takes as long as its layers and edges by themselves, whatever limits each") {
  const auto model = tawpipe::models::llama({.layers = 4, .hidden = 512, .heads = 8, .vocab = 32000});
  const tawpipe::Workload work{model, {.sequence = 1024, .microbatch_size = 1, .global_batch = 1}, tawpipe::Recompute::full};
  const auto cluster = tawpipe::ClusterBuilder{}.device(tawpipe::device_named("H100-80G")).nodes(1).devices_per_node(1).build();
  const auto time = [&](std::vector<tawpipe::StageWork> stages, double host) {
    tawpipe::ScheduleBuilder builder{"test", work, 1, {"compute"}};
    builder.stages(std::move(stages));
    const auto count = static_cast<int>(builder.stages().size());
    for (int task = 0; task < 2 * count; ++task) {
      builder.add({.op = task < count ? tawpipe::Op::forward : tawpipe::Op::backward,
                   .rank = tawpipe::Rank{0},
                   .stage = tawpipe::StageId{task % count},
                   .microbatch = 0},
                  {});
    }
    const tawpipe::Schedule schedule = builder.build();
    const KernelCost cost{.changes = {{&tawpipe::DeviceCurves::host_layer, host}, {&tawpipe::DeviceCurves::host_backward, host}}};
    double sum = 0;
    for (int task = 0; task < 2 * count; ++task)
      sum += tawpipe::to_seconds(cost.compute_time(schedule, tawpipe::TaskId{task}, cluster));
    return sum;
  };
  for (const double host : {1e-7, 1e-4, 1e-3}) {
    CAPTURE(host);
    CHECK(time(work.units(), host) == Approx(time(work.split(1), host)).epsilon(1e-9));
  }
}

TEST_CASE("a loss in chunks takes longer than the same kernels whole, and the longer the more chunks") {
  auto model = tawpipe::models::llama({.layers = 2, .hidden = 1024, .heads = 8, .vocab = 32000});
  const auto cluster = tawpipe::ClusterBuilder{}.device(tawpipe::device_named("H100-80G")).nodes(1).devices_per_node(1).build();
  for (const bool in_float32 : {false, true}) {
    CAPTURE(in_float32);
    model.loss_in_float32 = in_float32;
    const auto time = [&](int chunk) {
      model.loss_chunk = chunk;
      const tawpipe::Workload work{model, {.sequence = 4096, .microbatch_size = 1, .global_batch = 1}};
      tawpipe::ScheduleBuilder builder{"test", work, 1, {"compute"}};
      builder.stages({work.stage(2, 0, false, true)});
      for (const auto op : {tawpipe::Op::forward, tawpipe::Op::backward})
        builder.add({.op = op, .rank = tawpipe::Rank{0}, .stage = tawpipe::StageId{0}, .microbatch = 0}, {});
      const tawpipe::Schedule schedule = builder.build();
      return tawpipe::to_seconds(KernelCost{}.compute_time(schedule, tawpipe::TaskId{0}, cluster) +
                                 KernelCost{}.compute_time(schedule, tawpipe::TaskId{1}, cluster));
    };
    double before = time(0);
    for (const int chunk : {40000, 32000, 8192, 4096, 100, 1}) {
      CAPTURE(chunk);
      CHECK(time(chunk) >= before);
      before = time(chunk);
    }
    // 32,000 chunks of nine launches in a layer's forward and backward of ten, 0.3 ms each.
    CHECK(before > 32000 * 9 * 30e-6);
    CHECK(time(4096) > 1.05 * time(0));
  }
}

TEST_CASE("kernels of a CUDA graph follow each other sooner, and the host launches all of them at once") {
  using tawpipe::CudaGraphs;
  const TwoStages two{2, true};
  const auto time = [&](CudaGraphs graphs, int task, double host = 1e-6) {
    return two.time({.changes = {{&tawpipe::DeviceCurves::host_layer, host}}, .graphs = graphs}, task);
  };
  const auto launches = [&](int stage, bool edges) {
    int sum = 0;
    for (const tawpipe::Kernel& kernel : two.stage(stage).kernels) {
      if (kernel.pass == tawpipe::KernelPass::forward && kernel.of_edge == edges) sum += kernel.count * kernel.launches;
    }
    return sum;
  };
  const double sooner = tawpipe::curves::hopper.kernel_gap - tawpipe::curves::hopper.graph_gap;
  CHECK(launches(0, false) > 20);
  CHECK(launches(0, true) == 0);
  CHECK(launches(1, true) > 0);
  for (const int stage : {0, 1}) {
    const double of_layers = time(CudaGraphs::none, stage) - time(CudaGraphs::layers, stage);
    CHECK(of_layers == Approx(sooner * launches(stage, false)).epsilon(1e-4));
    const double of_edges = time(CudaGraphs::layers, stage) - time(CudaGraphs::iteration, stage);
    CHECK(of_edges == Approx(sooner * launches(stage, true)).epsilon(1e-4));
  }
  // Two layers, each one launch in place of ten; embedding and head take 7 ms of the device.
  CHECK(time(CudaGraphs::none, 1, 1) == Approx(2).epsilon(0.005));
  CHECK(time(CudaGraphs::layers, 1, 1) == Approx(0.2).epsilon(0.05));
  CHECK(time(CudaGraphs::iteration, 1, 1) == time(CudaGraphs::iteration, 1));
}

TEST_CASE("Blackwell Ultra: more power than a card of the same peak, and a faster forward of attention") {
  const KernelCost cost;
  const auto usual = cost.curves(tawpipe::device_named("GB200-186G"));
  const auto ultra = cost.curves(tawpipe::device_named("GB300-279G"));
  CHECK(ultra.products / usual.products == Approx(1.038).epsilon(0.002));  // (1400 / 1200)^0.24
  CHECK(ultra.products_fp4 / usual.products_fp4 == Approx(1.038).epsilon(0.002));
  CHECK(ultra.products_fp8 / usual.products_fp8 == Approx(1.197).epsilon(0.002));  // 0.675 / 0.585 of it, fitted
  CHECK(ultra.attention / usual.attention == Approx(1.35));
  CHECK(ultra.attention_backward == usual.attention_backward);
}

TEST_CASE("PyTorch's own attention is slower on H100 than Transformer Engine's") {
  // Without a mask, 16 heads of 128: forward of 16,384 tokens 6.55 ms, backward of 4,096 1.40 ms.
  using Kind = tawpipe::Kernel::Kind;
  const auto seconds = [](const char* device, Kind kind, std::int64_t tokens, bool pytorch) {
    const auto spec = tawpipe::device_named(device);
    const tawpipe::Kernel kernel{.kind = kind, .pytorch = pytorch, .m = tokens, .n = tokens, .k = 128, .batch = 16};
    return tawpipe::attention_seconds(kernel, KernelCost{}.curves(spec), spec);
  };
  CHECK(2 * seconds("H100-80G", Kind::attention, 16384, true) == Approx(6.55e-3 * 370 / 302).epsilon(0.03));  // causal: 302
  CHECK(2 * seconds("H100-80G", Kind::attention_backward, 4096, true) == Approx(1.40e-3).epsilon(0.16));      // and causal
  CHECK(seconds("H100-80G", Kind::attention, 16384, false) < 0.6 * seconds("H100-80G", Kind::attention, 16384, true));
  CHECK(seconds("A100-80G", Kind::attention, 16384, false) == seconds("A100-80G", Kind::attention, 16384, true));
}

TEST_CASE("8-bit products with a scale for each row are slower on H100") {
  const auto seconds = [](const char* device, tawpipe::ProductFormat format) {
    const auto spec = tawpipe::device_named(device);
    return tawpipe::product_seconds({.format = format, .m = 8192, .n = 8192, .k = 65536}, KernelCost{}.curves(spec), spec);
  };
  using tawpipe::ProductFormat;
  CHECK(seconds("H100-80G", ProductFormat::fp8_rows) / seconds("H100-80G", ProductFormat::fp8) == Approx(1 / 0.87).epsilon(5e-3));
  CHECK(seconds("B200-180G", ProductFormat::fp8_rows) == seconds("B200-180G", ProductFormat::fp8));
}

TEST_CASE("collectives of weights and gradients hold more SMs before Blackwell") {
  CHECK(tawpipe::measured_held_sms(tawpipe::device_named("A100-80G")).state_ctas == 47);
  CHECK(tawpipe::measured_held_sms(tawpipe::device_named("H100-80G")).state_ctas == 57);
  CHECK_FALSE(tawpipe::measured_held_sms(tawpipe::device_named("H100-80G")).waiting);
  CHECK_FALSE(tawpipe::measured_held_sms(tawpipe::device_named("B200-180G")).state_ctas);
  CHECK(tawpipe::measured_held_sms(tawpipe::device_named("B200-180G")).collective_ctas == 16);
}

TEST_CASE("a card of less power runs products slower") {
  const KernelCost cost;
  const auto usual = cost.curves(tawpipe::device_named("H100-80G"));
  CHECK(cost.curves(tawpipe::device_named("H200-141G")).products == usual.products);
  const auto less = cost.curves(tawpipe::device_named("H100-96G"));  // 500 W, as measured
  CHECK(less.products / usual.products == Approx(0.85));
  CHECK(less.products_fp8 / usual.products_fp8 == Approx(0.926));
  const auto more = cost.curves(tawpipe::device_named("GB300-279G"));
  CHECK(more.products / cost.curves(tawpipe::device_named("GB200-186G")).products ==
        Approx(std::pow(1400.0 / 1200, 0.24)).epsilon(1e-4));
  CHECK(more.products_fp4 / cost.curves(tawpipe::device_named("GB200-186G")).products_fp4 == Approx(1.0377));
}

TEST_CASE("products in pieces take longer where the pieces fill fewer waves, and never less") {
  const auto model = tawpipe::models::named("llama-3-8b");
  const tawpipe::Workload work{model, {.sequence = 1024, .microbatch_size = 1, .global_batch = 1}};
  const tawpipe::Cluster cluster =
      tawpipe::ClusterBuilder{}.device(tawpipe::device_named("H100-80G")).nodes(1).devices_per_node(1).build();
  const auto time = [&](int pieces) {
    tawpipe::ScheduleBuilder builder{"test", work, 1, {"compute"}};
    tawpipe::StageWork stage = work.stage(0, 2, false, false);
    stage.pieces = pieces;
    builder.stages({stage});
    builder.add({.op = tawpipe::Op::forward, .rank = tawpipe::Rank{0}, .stage = tawpipe::StageId{0}, .microbatch = 0}, {});
    return tawpipe::to_seconds(KernelCost{}.compute_time(builder.build(), tawpipe::TaskId{0}, cluster));
  };
  CHECK(time(4) > 1.1 * time(1));
  CHECK(time(2) >= time(1));
}

TEST_CASE("a device of another generation has A100's curves over its own multiprocessors") {
  for (const auto& [name, own] : {std::pair{"A800-80G", true}, std::pair{"H200-141G", true}, std::pair{"B300-270G", true},
                                  std::pair{"V100-32G", false}, std::pair{"L40S-48G", false}, std::pair{"RTX5090-32G", false}}) {
    CAPTURE(name);
    const tawpipe::DeviceSpec device = tawpipe::device_named(name);
    CHECK(KernelCost{}.curves(device).multiprocessors == device.sms);
    CHECK(tawpipe::has_own_curves(device) == own);
  }
  CHECK_FALSE(tawpipe::has_own_curves({.name = "another"}));
  CHECK(KernelCost{}.curves({.name = "another"}).multiprocessors == 108);
}

TEST_CASE("every device of the table has curves within their ranges") {
  for (const tawpipe::KnownDevice& device : tawpipe::known_devices()) {
    CAPTURE(device.name);
    const tawpipe::DeviceCurves& curves = tawpipe::curves_of(device.sm);
    CHECK_FALSE(curves.source.empty());
    for (const tawpipe::CurveField& field : tawpipe::curve_fields()) {
      CAPTURE(field.name);
      if (field.name != "host-collective") CHECK(curves.*field.member > 0);
      CHECK(curves.*field.member <= field.most);
    }
  }
}
