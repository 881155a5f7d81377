// One iteration's work as schedules see it: stages with their sizes and operation counts, and how many microbatches.
// Not: which rank runs what (schedule/) nor how long it takes (cost/).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/core/units.hpp"
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/layer_stack.hpp"
#include "tawpipe/model/stage_work.hpp"
#include "tawpipe/model/transformer.hpp"
#include "tawpipe/model/transformer_work.hpp"

namespace tawpipe::inline v0 {

/// The work of one iteration: a model and a batch, or (abstract) only counts, for fixed costs.
class Workload {
 public:
  /// A LLaMA decoder. @throws InputError  if the model or batch is impossible (see Transformer::check, Batch::check).
  Workload(const Transformer& model, const Batch& batch, Recompute recompute = Recompute::none)
      : Workload{layer_stack(model, batch, recompute), batch, recompute} {}
  /// A model of any kind. @param recompute  what its parts were made with
  /// @throws InputError  if the model or batch is impossible (see LayerStack::check, Batch::check).
  Workload(LayerStack model, const Batch& batch, Recompute recompute = Recompute::none)
      : model_{std::move(model)}, batch_{batch}, recompute_{recompute}, microbatches_{batch.microbatches()} {
    model_->check();
  }

  /// No model: `devices` equal shares, `microbatches` in all. Every payload (a share's weights, gradient or activation)
  /// counts as 1 MB, so that traffic counts messages.
  static Workload abstract(int devices, std::int64_t microbatches) {
    if (devices < 1) throw InputError("a workload needs at least one device");
    if (microbatches < 1) throw InputError(concat(microbatches, " microbatches are impossible; an iteration needs at least 1"));
    Workload work;
    work.devices_ = devices;
    work.microbatches_ = microbatches;
    work.parameter_bytes_ = {.weight = 1, .gradient = 1, .optimizer = 0};
    return work;
  }

  bool is_abstract() const { return !model_.has_value(); }
  /// @pre not is_abstract()
  const LayerStack& model() const { return *model_; }
  const Batch& batch() const { return batch_; }
  Recompute recompute() const { return recompute_; }
  std::int64_t microbatches() const { return microbatches_; }
  const ParameterBytes& parameter_bytes() const { return parameter_bytes_; }
  /// Other sizes than those of 16-bit training: an executor in float32 keeps 4 bytes of weight and gradient and 8 of states.
  /// @pre before a schedule is built from it
  Workload& parameter_bytes(const ParameterBytes& bytes) {
    parameter_bytes_ = bytes;
    return *this;
  }

  /// Tokens of one iteration over all devices; 0 if abstract.
  double tokens() const { return model_ ? static_cast<double>(batch_.global_batch) * static_cast<double>(batch_.sequence) : 0.0; }
  /// Model FLOPs of one iteration (nothing recomputed, causal attention at half): the numerator of MFU. 0 if abstract.
  Flops model_flops() const {
    if (!model_) return Flops{};
    Flops total;
    for (const auto& stage : split(1)) total += stage.forward + stage.backward_input + stage.backward_weight;
    return total * static_cast<double>(microbatches_);
  }
  /// Parameters of embedding, final norm and head together, a tied matrix counted once. 0 if abstract.
  std::int64_t edge_parameters() const { return model_ ? model_->embedding_parameters() + model_->head_parameters() : 0; }

  /// The model cut into `stages`, as evenly as can be; the first looks up the embedding, the last holds the head. Each of the two
  /// counts as a layer where the model says so (Megatron-LM's --account-for-embedding-in-pipeline-split and -loss-).
  /// Stages without a layer occur where there are more stages than layers.
  std::vector<StageWork> split(int stages) const {
    if (stages < 1) throw InputError(concat(stages, " stages are impossible; a model needs at least 1"));
    std::vector<StageWork> parts;
    for (int s = 0; s < stages; ++s) {
      const bool first = s == 0;
      const bool last = s + 1 == stages;
      if (!model_) {
        parts.push_back(abstract_stage({devices_, stages}, first, last));
        continue;
      }
      const std::int32_t begin = cut(s, stages);
      const std::int32_t end = cut(s + 1, stages);
      parts.push_back(stage(begin, end - begin, first, last));
    }
    return parts;
  }

  /// The units that sharded data parallelism gathers: embedding, each layer, head. Abstract: one a device.
  std::vector<StageWork> units() const {
    if (!model_) return split(devices_);
    std::vector<StageWork> parts;
    parts.push_back(stage(0, 0, true, false));
    for (int layer = 0; layer < model_->layers; ++layer) parts.push_back(stage(layer, 1, false, false));
    parts.push_back(stage(model_->layers, 0, false, true));
    return parts;
  }

  /// `layers` layers from `first_layer` on, with or without embedding and head.
  StageWork stage(int first_layer, int layers, bool embedding, bool head) const {
    StageWork work = model_->stage(first_layer, layers, embedding, head);
    work.share = {devices_ * layers, model_->layers};
    return work;
  }

  /// How many devices the whole model is cut over: 1 / devices of its layers is one device's share, which fixed costs time.
  Workload& over_devices(int devices) {
    devices_ = devices;
    return *this;
  }

 private:
  Workload() = default;

  /// The first layer of a stage; of the one behind the last, the number of layers.
  std::int32_t cut(int stage, int stages) const {
    const std::int64_t more = model_->edges_count_as_layers ? 2 : 0;
    const std::int64_t slot = std::int64_t{stage} * (model_->layers + more) / stages;
    return static_cast<std::int32_t>(std::clamp<std::int64_t>(slot - more / 2, 0, model_->layers));
  }

  static StageWork abstract_stage(Share share, bool embedding, bool head) {
    constexpr std::int64_t unit = 1'000'000;
    StageWork work;
    work.embedding = embedding;
    work.head = head;
    work.share = share;
    work.parameters = unit * share.numerator / share.denominator;
    work.saved = Bytes{work.parameters};
    work.boundary = Bytes{unit};
    return work;
  }

  std::optional<LayerStack> model_;
  Batch batch_;
  Recompute recompute_ = Recompute::none;
  std::int64_t microbatches_ = 1;
  int devices_ = 1;
  ParameterBytes parameter_bytes_;
};

}  // namespace tawpipe
