// A decoder in bf16 with fused attention, trained by schedules on virtual ranks, against what
// PyTorch computes on this machine in float64: off by no more than twice what PyTorch's bf16 is off
// by. pytorch_test FILE, which pytorch_numbers.py writes.
// Not: float32 (virtual_test.cpp).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/execute/cuda/virtual_executor.hpp"
#include "training.hpp"

using namespace tawpipe;

namespace {

using Layer = layers::cuda::Llama<Bfloat16>;
using Update = layers::cuda::DeviceAdamW<Bfloat16>;

/// [parameter] of the first step, float32 in device memory; both as later ones.
struct FirstGradients {
  cuda::CudaDevice device{0};
  std::int64_t parameters;
  std::byte* at = device.allocate(static_cast<std::size_t>(parameters) * sizeof(float));
};

/// AdamW that keeps the gradients of the first step.
class KeepingAdamW {
 public:
  KeepingAdamW(Update update, std::shared_ptr<FirstGradients> kept) : update_{std::move(update)}, kept_{std::move(kept)} {}
  void update(const DeviceUpdateArgs& args, cudaStream_t stream) const {
    if (first) {
      kept_->device.copy(kept_->at + args.parameters.begin * std::int64_t{sizeof(float)}, args.gradients.data(),
                         args.gradients.size(), stream);
    }
    update_.update(args, stream);
  }
  inline static bool first = true;

 private:
  Update update_;
  std::shared_ptr<FirstGradients> kept_;
};

/// Squares of found - wanted, and of wanted.
struct Off {
  double square = 0;
  double norm = 0;
  void add(double found, double wanted) {
    square += (found - wanted) * (found - wanted);
    norm += wanted * wanted;
  }
  double relative() const { return std::sqrt(square / norm); }
};

void compare(gpu::Checks& checks, const gpu::Reference& reference, const std::string& name,
             const std::vector<std::int32_t>& nodes) {
  const auto schedule = gpu::schedule_of(reference, name, nodes);
  const std::string what = concat(name, " on ", DeviceGroups{nodes}.ranks(), " virtual ranks: ");
  checks.that(schedule.has_value(), what + "has these sizes");
  if (!schedule) return;
  const auto kept = std::make_shared<FirstGradients>(FirstGradients{.parameters = reference.model.parameters()});
  const DecoderConstants options{.rope_theta = reference.number("rope_theta"), .norm_epsilon = reference.number("norm_eps")};
  bool fused = true;
  cuda::VirtualExecutor<cuda::CudaDevice, Layer, KeepingAdamW> executor{
      *schedule,
      cuda::CudaDevice{0},
      [&] {
        Layer layer{reference.model, reference.batch, Recompute::none, options};
        fused = fused && layer.has_fused_attention();
        return layer;
      },
      KeepingAdamW{gpu::optimizer_of<Bfloat16>(reference), kept},
      {.time_limit = 300}};
  checks.that(fused, what + "attention is fused");

  std::vector<Bfloat16> initial(static_cast<std::size_t>(reference.model.parameters()));
  const std::vector<float> exact = reference.initial();
  std::transform(exact.begin(), exact.end(), initial.begin(), [](float one) { return Bfloat16{one}; });
  std::vector<float> last(initial.size());
  executor.for_each_rank([&](auto& rank) {
    rank.set_weights([&](const ParameterRange& range, Dtype type, std::span<std::byte> bytes) {
      const void* const wide = exact.data() + range.begin;
      const void* const rounded = initial.data() + range.begin;
      std::memcpy(bytes.data(), type == Dtype::f32 ? wide : rounded, bytes.size());
    });
  });
  const std::vector<double> losses = reference.numbers("losses");
  double worst = 0;
  std::vector<float> gradients(initial.size());
  for (int step = 1; step <= reference.steps(); ++step) {
    KeepingAdamW::first = step == 1;
    const auto found = executor.run(reference, {.step = step, .learning_rate = reference.number("lr")}).losses;
    for (std::size_t m = 0; m < found.size(); ++m) {
      const double difference = std::abs(found[m] - losses[static_cast<std::size_t>(step - 1) * found.size() + m]);
      worst = difference > worst || std::isnan(difference) ? difference : worst;
    }
  }
  checks.within(worst / (2 * reference.number("loss_off")), what + "losses");
  cuda::check(cudaMemcpy(gradients.data(), kept->at, gradients.size() * sizeof(float), cudaMemcpyDeviceToHost), "cudaMemcpy");
  executor.for_each_rank([&](auto& rank) {
    rank.read_weights([&](const ParameterRange& range, Dtype type, std::span<const std::byte> bytes) {
      if (type == Dtype::f32) std::memcpy(last.data() + range.begin, bytes.data(), bytes.size());
    });
  });
  Off change;
  for (const ParameterTensor& tensor : ParameterOrder{reference.model}.tensors()) {
    const std::vector<double> begin = reference.numbers("init/" + tensor.name);
    const std::vector<double> end = reference.numbers("last/" + tensor.name);
    const std::vector<double> slopes = reference.numbers("gradient/" + tensor.name);
    Off gradient;
    for (std::size_t i = 0; i < begin.size(); ++i) {
      const std::size_t at = static_cast<std::size_t>(tensor.range.begin) + i;
      gradient.add(static_cast<double>(gradients[at]), slopes[i]);
      change.add(static_cast<double>(last[at]) - begin[i], end[i] - begin[i]);
    }
    checks.within(gradient.relative() / (2 * reference.number("gradient_off/" + tensor.name)),
                  what + "gradient of " + tensor.name);
  }
  checks.within(change.relative() / (2 * reference.number("change_off")), what + "change of the weights");
}

}  // namespace

int main(int argc, char** argv) {
  return gpu::run([&](gpu::Checks& checks) {
    gpu::Reference reference{argc > 1 ? argv[1] : ""};
    reference.model.dtype = Dtype::bf16;
    compare(checks, reference, "tawpipe", {1});
    compare(checks, reference, "tawpipe", {2, 2});
    compare(checks, reference, "1f1b", {4});
    compare(checks, reference, "zb-h1", {2});
  });
}
