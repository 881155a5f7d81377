// One iteration's work as schedules see it: stages with their sizes and operation counts, and the
// number of microbatches.
// Not: which rank runs what (schedule/) nor how long it takes (cost/).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/core/units.hpp"
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/layer_stack.hpp"
#include "tawpipe/model/stage_cut.hpp"
#include "tawpipe/model/stage_work.hpp"
#include "tawpipe/model/transformer.hpp"
#include "tawpipe/model/transformer_work.hpp"

namespace tawpipe::inline v0 {

/// The work of one iteration: a model and a batch, or (abstract) only counts, for fixed costs.
class Workload {
 public:
  /// A LLaMA decoder. @throws InputError  if the model or batch is impossible (see
  /// Transformer::check, Batch::check).
  Workload(const Transformer& model, const Batch& batch, Recompute recompute = Recompute::none)
      : Workload{layer_stack(model, batch, recompute), batch, recompute} {}
  /// A model of any kind. @param recompute  the policy with which its parts were made
  /// @throws InputError  if the model or batch is impossible (see LayerStack::check, Batch::check).
  Workload(LayerStack model, const Batch& batch, Recompute recompute = Recompute::none)
      : model_{std::move(model)}, batch_{batch}, recompute_{recompute}, microbatches_{batch.microbatches()} {
    model_->check();
  }

  /// No model: `devices` equal shares, `microbatches` in total. Every payload (a share's weights,
  /// gradient or activation) counts as 1 MB, so that traffic counts messages.
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
  /// The bytes of that many parameters of a stage as ranks gather them: layers' may be in fewer
  /// bits.
  Bytes gathered_bytes(const StageWork& stage, std::int64_t parameters) const {
    const std::int64_t weight = parameter_bytes_.weight;
    const std::int64_t of_layers = model_ && model_->gathered_bytes > 0 ? std::min(weight, model_->gathered_bytes) : weight;
    const std::int64_t edges = std::min(parameters, stage.edge_parameters);
    return Bytes{edges * weight + (parameters - edges) * of_layers};
  }
  /// Sets sizes that differ from those of 16-bit training: an executor in float32 keeps 4 bytes of
  /// weight and gradient and 8 of states.
  /// @pre before a schedule is built from it
  Workload& parameter_bytes(const ParameterBytes& bytes) {
    parameter_bytes_ = bytes;
    return *this;
  }

  /// Tokens of one iteration over all devices; 0 if abstract.
  double tokens() const { return model_ ? static_cast<double>(batch_.global_batch) * static_cast<double>(batch_.sequence) : 0.0; }
  /// Model FLOPs of one iteration (nothing recomputed, causal attention at half): the numerator of
  /// MFU. 0 if abstract.
  Flops model_flops() const {
    if (!model_) return Flops{};
    Flops total;
    const StageWork all = stage(0, model_->layers, true, true);
    total += all.forward + all.backward_input + all.backward_weight;
    return total * static_cast<double>(microbatches_);
  }
  /// Parameters of both edges together, tied ones counted once. 0 if abstract.
  std::int64_t edge_parameters() const { return model_ ? model_->first_edge.parameters + model_->last_edge.parameters : 0; }

  /// The model cut into `stages`, as evenly as possible or as set by cut_by(); the first has the
  /// first edge, the last the last edge. Each of the two counts as a layer if the model says so.
  /// Stages without a layer occur if there are more stages than layers.
  /// @throws InputError  if a given cut has a different number of stages or layers.
  std::vector<StageWork> split(int stages) const;

  /// The units that sharded data parallelism gathers: first edge, each layer, last edge. Abstract:
  /// one a device.
  /// @throws InputError  if the stages were given: there is no model to split.
  std::vector<StageWork> units() const;

  /// `layers` layers from `first_layer` on, with or without the edges.
  StageWork stage(int first_layer, int layers, bool first_edge, bool last_edge) const {
    return shared(model_->stage(first_layer, layers, first_edge, last_edge));
  }
  /// A part of a stage: of its layers, those from `begin` to before `end`.
  StageWork part(const StageWork& stage, int begin, int end, bool first_edge, bool last_edge) const {
    const std::int32_t recomputed = std::clamp(stage.recomputed - begin, 0, end - begin);
    return shared(model_->stage(stage.first_layer + begin, end - begin, first_edge, last_edge, recomputed));
  }

  /// The same with another number of microbatches. @pre count > 0
  Workload with_microbatches(std::int64_t count) const {
    Workload other = *this;
    other.microbatches_ = count;
    other.batch_.global_batch = count * batch_.microbatch_size;
    return other;
  }

  /// How split() cuts the layers. @pre before a schedule is built from it
  Workload& cut_by(StageCut cut) {
    cut_ = std::move(cut);
    return *this;
  }

  /// The number of devices that share the whole model: 1 / devices of its layers is one device's
  /// share, the unit of fixed costs.
  Workload& over_devices(int devices) {
    devices_ = devices;
    return *this;
  }

 private:
  Workload() = default;

  StageWork shared(StageWork work) const {
    work.share = {std::int64_t{devices_} * work.layers, model_->layers};
    return work;
  }

  static StageWork abstract_stage(Share share, bool first_edge, bool last_edge) {
    constexpr std::int64_t unit = 1'000'000;
    StageWork work;
    work.first_edge = first_edge;
    work.last_edge = last_edge;
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
  StageCut cut_;
};

}  // namespace tawpipe

#if TAWPIPE_BODIES
namespace tawpipe::inline v0 {

TAWPIPE_INLINE std::vector<StageWork> Workload::split(int stages) const {
  if (stages < 1) throw InputError(concat(stages, " stages are impossible; a model needs at least 1"));
  std::vector<StageWork> parts;
  std::vector<std::int32_t> layers;
  if (model_) layers = layers_of(cut_, model_->layers, stages, model_->edges_count_as_layers);
  std::int32_t next = 0;
  for (int s = 0; s < stages; ++s) {
    const bool first = s == 0;
    const bool last = s + 1 == stages;
    if (!model_) {
      parts.push_back(abstract_stage({devices_, stages}, first, last));
      continue;
    }
    const std::int32_t count = layers[static_cast<std::size_t>(s)];
    parts.push_back(stage(next, count, first, last));
    next += count;
  }
  return parts;
}

TAWPIPE_INLINE std::vector<StageWork> Workload::units() const {
  if (!model_) return split(devices_);
  if (!cut_.layers.empty()) {
    throw InputError("layers for each stage are given, but sharded data parallelism gathers layer by layer and has no stages");
  }
  std::vector<StageWork> parts;
  parts.push_back(stage(0, 0, true, false));
  const std::int32_t recomputed = model_->recompute_layers > 0 ? model_->recompute_layers : model_->layers;
  for (std::int32_t layer = 0; layer < model_->layers; ++layer) {
    parts.push_back(shared(model_->stage(layer, 1, false, false, layer < recomputed ? 1 : 0)));
  }
  parts.push_back(stage(model_->layers, 0, false, true));
  return parts;
}

}  // namespace tawpipe
#endif
