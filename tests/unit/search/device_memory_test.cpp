// Tests of search/device_memory.hpp and analysis/device_memory.hpp: what a device holds beside buffers.
#include "tawpipe/search/device_memory.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "tawpipe/analysis/device_memory.hpp"
#include "tawpipe/model/edge_work.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/topology/clusters.hpp"

using namespace tawpipe;

namespace device_memory_test {

namespace {

constexpr Bytes gib(double n) { return Bytes{static_cast<std::int64_t>(n * (1 << 30))}; }

/// A rank whose buffers take so much, of which `weights` bytes are weights.
Summary summary_of(Bytes total, Bytes weights = {}) {
  Summary summary;
  summary.model = "a model";
  summary.peak_memory.resize(1);
  summary.peak_memory[0].total = total;
  summary.peak_memory[0].by_kind[static_cast<std::size_t>(BufferKind::weights)] = weights;
  summary.device_memory = {gib(80)};
  return summary;
}

}  // namespace

TEST_CASE("each figure has what the one before it has, and more") {
  const DeviceMemory memory{.libraries = gib(2), .gaps = 0.1, .context = gib(0.5), .collectives = gib(1), .deviation = 0.05};
  CHECK(memory.allocated(gib(38)) == gib(40));
  CHECK(memory.reserved(gib(38)) == gib(44));
  CHECK(memory.used(gib(38)) == gib(45.5));
  CHECK(memory.needed(gib(38)) == gib(41.5));  // the gaps are given back
}

TEST_CASE("what just fills a device fits in half of the cases, what is an error less in 84 %") {
  DeviceMemory memory;
  memory.deviation = 0.05;
  CHECK(memory.fits(gib(79.2), gib(80)) == doctest::Approx(0.5));  // the driver keeps a hundredth
  CHECK(memory.fits(Bytes{static_cast<std::int64_t>(79.2 * std::exp(-0.05) * (1 << 30))}, gib(80)) == doctest::Approx(0.841345));
  CHECK(memory.fits(gib(60), gib(80)) > 0.99);
  CHECK(memory.fits(gib(100), gib(80)) < 0.01);
  CHECK(memory.fits(Bytes{}, gib(80)) == 1);
  CHECK(DeviceMemory{}.fits(gib(79.3), gib(80)) == 0);  // without an error yes or no
}

TEST_CASE("a summary fits by its buffers; how probably with all the rest stands beside it") {
  Summary summary = summary_of(gib(76));
  summary.beside.emplace();
  summary.beside->libraries = gib(4);
  summary.beside->deviation = 0.05;
  CHECK(summary.fits());
  CHECK(summary.fits_probability() == doctest::Approx(0.5 * std::erfc(std::log(80 / 79.2) / 0.05 / std::sqrt(2.0))));
}

TEST_CASE("Transformer Engine keeps a gradient that nobody reads for each shape of a weight") {
  const Model llama = models::named("llama-3-70b").decoder();
  // [10240, 8192] queries, keys and values, [8192, 8192], [57344, 8192] gate and up, [8192, 28672]
  constexpr std::int64_t shapes = 8192LL * 10240 + 8192LL * 8192 + 8192LL * 57344 + 28672LL * 8192;
  CHECK(detail::unread_gradients(llama, {}) == shapes);
  CHECK(detail::unread_gradients(llama, {.tensor = 4}) == shapes / 4);
  // Experts have one shape; the router is a product of another code.
  const Model mixture = models::named("mixtral-8x7b").decoder();
  constexpr std::int64_t attention = 4096LL * (4096 + 2 * 1024) + 4096LL * 4096;
  CHECK(detail::unread_gradients(mixture, {.tensor = 1, .whole_experts = true}) == attention + 3LL * 4096 * 14336);
}

TEST_CASE("weights in 8 bits are copies beside those in 16, or in their place") {
  Problem problem{.cluster = cluster_named("dgx-h100"), .model = models::named("llama-3-70b")};
  const Transformer& model = *problem.model;
  const Summary summary = summary_of(gib(40), gib(10));
  const double of_layers = static_cast<double>(model.all_layer_parameters()) / static_cast<double>(model.parameters());
  CHECK(detail::narrow_copies(problem, summary.peak_memory[0]) == 0);
  problem.model->products = ProductFormat::fp8;
  // 5 GiB of numbers, of which the layers have two copies of a byte
  CHECK(detail::narrow_copies(problem, summary.peak_memory[0]) == doctest::Approx(of_layers * 10 * (1 << 30)));
  problem.sharding = StateSharding::parameters;  // cast when they are gathered
  CHECK(detail::narrow_copies(problem, summary.peak_memory[0]) == 0);
  problem.sharding = StateSharding::optimizer;
  problem.model->narrow_weights = true;
  CHECK(detail::narrow_copies(problem, summary.peak_memory[0]) == 0);
  problem.cluster = cluster_named("dgx-b200");
  CHECK(detail::narrow_copies(problem, summary.peak_memory[0]) == doctest::Approx(of_layers * -5 * (1 << 30)));
  problem.model->products = ProductFormat::nvfp4;  // 4 bits and a scale of 16 numbers, twice
  problem.model->narrow_weights = false;
  CHECK(detail::narrow_copies(problem, summary.peak_memory[0]) == doctest::Approx(of_layers * 1.125 * 5 * (1 << 30)));
}

TEST_CASE("NCCL's buffers grow with communicators, and most with NVLink peers") {
  constexpr double connection = 4 * (1 << 20) + 4915200 + 524288;
  const auto connections = [&](const Cluster& cluster, const Mesh& mesh) {
    const Problem problem{.cluster = cluster, .mesh = mesh};
    return static_cast<double>(detail::NcclBuffers{problem}.total().value()) / connection;
  };
  const Cluster node = cluster_named("dgx-h100");
  // one group, and that of all ranks: 3 connections for each of 24 channels
  CHECK(connections(node, {.tensor = 8}) == doctest::Approx(2 * 72));
  CHECK(connections(node, {.tensor = 4, .data = 2}) == doctest::Approx(3 * 72));
  // seven peers with 32 channels each
  CHECK(connections(node, {.expert = 8, .whole_experts = true}) == doctest::Approx(7 * 32 + 72));
  // between nodes two channels for each of eight adapters
  CHECK(connections(cluster_named("dgx-h100*2"), {.data = 16}) == doctest::Approx(2 * 48));
}

TEST_CASE("a loss of one kernel has the logits, and by torch.compile their gradient beside them") {
  Transformer model = models::named("llama-3-8b");
  const Batch batch{.sequence = 4096, .microbatch_size = 1, .global_batch = 1};
  const double logits = 4096.0 * model.vocab;
  const auto bytes_a_logit = [&] {
    const StageWork head = head_work(model, batch);
    return static_cast<double>((head.saved + head.backward_workspace).value()) / logits;
  };
  const double hidden = 8.0 * model.hidden / model.vocab;  // input, normed input, two gradients
  CHECK(bytes_a_logit() == doctest::Approx(14 + hidden).epsilon(1e-3));
  model.loss_in_float32 = false;
  CHECK(bytes_a_logit() == doctest::Approx(8 + hidden).epsilon(1e-3));
  model.one_kernel_loss = true;
  CHECK(bytes_a_logit() == doctest::Approx(2 + hidden).epsilon(1e-3));
  model.code = LayerCode::torchtitan;
  CHECK(bytes_a_logit() == doctest::Approx(4 + hidden).epsilon(1e-3));
  model.loss_in_float32 = true;  // says otherwise
  CHECK(bytes_a_logit() == doctest::Approx(14 + hidden).epsilon(1e-3));
}

TEST_CASE("a prediction says all figures: layers by this library have no caching allocator") {
  Problem problem{.cluster = cluster_named("dgx-h100"), .model = models::named("llama-3-8b")};
  problem.mesh = {.tensor = 8};
  const DeviceMemory megatron = device_memory(problem, summary_of(gib(40), gib(10)));
  CHECK(megatron.gaps > 0);
  CHECK(megatron.libraries > Bytes{});
  CHECK(megatron.context > gib(0.4));
  problem.model->code = LayerCode::tawpipe;
  const DeviceMemory own = device_memory(problem, summary_of(gib(40), gib(10)));
  CHECK(own.allocated(gib(40)) == own.reserved(gib(40)));
  problem.model->code = LayerCode::torchtitan;  // expandable segments
  CHECK(device_memory(problem, summary_of(gib(40))).gaps < megatron.gaps);
}

}  // namespace device_memory_test
