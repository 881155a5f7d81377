// A training job described by another framework's settings, in the terms of a plan.
// Not: the settings themselves (megatron.hpp, torchtitan.hpp, deepspeed.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/frameworks/setting.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/model/stage_work.hpp"
#include "tawpipe/model/transformer_fields.hpp"
#include "tawpipe/search/plan_space.hpp"
#include "tawpipe/search/sharing.hpp"

namespace tawpipe::inline v0 {

/// What is given in addition to a framework's settings; 0: nothing.
struct GivenJob {
  int layers = 0;  ///< of the model
  std::int64_t global_batch = 0;
  std::int64_t microbatch = 0;
  std::int64_t sequence = 0;  ///< tokens
  bool model = false;         ///< so that the settings need not say it
  int vocab = 0;              ///< tokens, where the settings name a tokenizer only
  ScriptInputs script = {};
  std::string path = {};  ///< of the file, beside which those lie that it names; "": read no others
  int node_devices = 0;   ///< of a node
  bool strict = false;    ///< an unknown name is an error
};

/// What a log of training says; 0: nothing.
struct LoggedRun {
  double step_seconds = 0;           ///< the middle one
  std::int64_t allocated_bytes = 0;  ///< of tensors, the most of a rank
  std::int64_t reserved_bytes = 0;   ///< by the allocator, the most of a rank
};

/// One way to train, complete except for what the framework's settings cannot express.
struct FrameworkJob {
  Mesh mesh = {};  ///< over all devices
  ScheduleChoice choice = {};
  std::int64_t microbatch_size = 1;
  std::int64_t sequence = 0;                ///< tokens; 0: not given
  std::int64_t global_batch = 0;            ///< sequences
  std::optional<Recompute> recompute = {};  ///< none: not given
  int recompute_layers = 0;                 ///< full: this many first layers of each stage; 0: all
  RecomputeParts recompute_parts = {};      ///< selective: of these parts; none: its own choice
  bool sequence_parallel = true;
  StateSharding sharding = StateSharding::optimizer;  ///< over data- and context-parallel devices
  Reshard reshard = Reshard::automatic;
  bool overlap_gradients = true;
  bool overlap_gathers = true;
  std::int64_t bucket = automatic_bucket;  ///< parameters (Composition)
  bool tensor_overlap = false;
  CudaGraphs graphs = CudaGraphs::none;
  ContextExchange context_exchange = ContextExchange::all_gather;
  int context_inner = 0;  ///< of an exchange in two levels
  ExpertDispatch expert_dispatch = ExpertDispatch::all_to_all;
  ExpertOverlap expert_overlap = ExpertOverlap::off;
  Offload offload = {};
  std::int64_t gradient_bytes = 4;
  /// of a parameter's states; 0: as if all were in float32
  std::int64_t optimizer_bytes = 0;
  int moments = 2;            ///< of a parameter, of which they consist: 2 of Adam, 1 of Lion
  bool master_copies = true;  ///< they include a copy of weights of 16 bits
  /// embedding and loss, when the model is cut into stages
  bool edges_count_as_layers = false;
  /// if stages have different numbers of layers: these
  StageCut stage_cut = {};
  std::optional<Dtype> dtype = {};             ///< of the weights, if the settings give it
  std::optional<ProductFormat> products = {};  ///< of the layers' products, if given separately
  bool narrow_gathers = false;                 ///< weights are gathered in the products' format
  LayerCode code = LayerCode::megatron;        ///< whose kernels run the layers
  bool fused_attention = true;
  std::optional<Transformer> model = {};  ///< if the settings give all of it
  std::string model_lacks = {};           ///< otherwise what is missing
  std::string model_name = {};            ///< of a known one, where the settings name it only
  std::vector<std::string> notes = {};    ///< what was read but is not modelled, with its line
  LoggedRun measured = {};                ///< what the same text, a log, says of a run

  bool has_experts() const { return model && model->is_routed(); }
  bool shards() const { return sharding != StateSharding::none; }
  /// Parts into which the batch is cut: devices that share experts out have each their own.
  int batch_parts() const { return (splits_batch() ? mesh.pipeline : 1) * mesh.data * mesh.expert; }
  /// Whether the schedule's own ranks each have a part of the batch.
  bool splits_batch() const { return is_one_of({"ddp", "zero1", "zero2", "fsdp", "hsdp", "hpz", "hfsdp"}); }
  bool is_one_of(std::initializer_list<std::string_view> names) const {
    return std::find(names.begin(), names.end(), std::string_view{choice.schedule}) != names.end();
  }
  /// Microbatches of an iteration on one replica.
  std::int64_t microbatches() const { return global_batch / batch_parts() / microbatch_size; }
  int chunks() const {
    const auto found = choice.options.find("chunks");
    return found == choice.options.end() ? 1 : to_number<int>(found->second).value_or(1);
  }
  PlanLayout layout() const {
    return {.mesh = mesh,
            .recompute = recompute.value_or(Recompute::none),
            .microbatch_size = microbatch_size,
            .recompute_layers = recompute_layers};
  }
};

/// What the job's settings lack of its model, and where to add it. @pre it has none
inline std::string said_of_model(const FrameworkJob& job) {
  const bool flags = job.model_lacks.starts_with("--");
  return concat("does not say ", job.model_lacks, flags ? "; add them to its command" : "");
}

namespace detail {

/// Switches that a job and a problem have under the same names, of one for the other.
template <class To, class From>
void take_switches(To& to, const From& from) {
  to.sequence_parallel = from.sequence_parallel;
  to.sharding = from.sharding;
  to.reshard = from.reshard;
  to.overlap_gradients = from.overlap_gradients;
  to.overlap_gathers = from.overlap_gathers;
  to.bucket = from.bucket;
  to.tensor_overlap = from.tensor_overlap;
  to.context_exchange = from.context_exchange;
  to.context_inner = from.context_inner;
  to.expert_dispatch = from.expert_dispatch;
  to.expert_overlap = from.expert_overlap;
  to.offload = from.offload;
  to.master_copies = from.master_copies;
}

}  // namespace detail

/// A plan's choice as a job, with the switches of its problem.
/// @pre problem has a model
inline FrameworkJob job_of(const Problem& problem, const PlanLayout& layout, const ScheduleChoice& choice) {
  StageCut cut = layout.balanced_stages ? StageCut{.balanced = true} : problem.stage_cut;
  const bool both_count = cut == StageCut{.embedding = 1, .head = 1};
  if (both_count) cut = {};
  FrameworkJob job{
      .mesh = layout.mesh,
      .choice = choice,
      .microbatch_size = layout.microbatch_size,
      .sequence = problem.sequence,
      .global_batch = problem.global_batch,
      .recompute = layout.recompute,
      .recompute_layers = layout.recompute != Recompute::full ? 0
                          : layout.recompute_layers > 0       ? layout.recompute_layers
                                                              : problem.model->recompute_layers,
      .recompute_parts = layout.recompute == Recompute::selective ? problem.model->recompute_parts : RecomputeParts{},
      .graphs = graphs_of(problem.cost),
      .gradient_bytes = problem.parameter_bytes.gradient,
      .optimizer_bytes = problem.parameter_bytes.optimizer,
      .edges_count_as_layers = both_count || (problem.model->edges_count_as_layers && cut.is_even()),
      .stage_cut = std::move(cut),
      .dtype = problem.model->dtype,
      .code = problem.model->code,
      .fused_attention = problem.model->fused_attention,
      .model = problem.model};
  detail::take_switches(job, problem);
  if (layout.sharding) job.sharding = *layout.sharding;
  if (layout.offload) job.offload = *layout.offload;
  if (layout.exchange) job.context_exchange = *layout.exchange;
  job.context_inner = job.context_exchange == ContextExchange::two_level ? context_inner_of(problem, layout.mesh) : 0;
  if (layout.loss_chunk > 0) job.model->loss_chunk = layout.loss_chunk;
  return job;
}

/// The model with its weights in that format; products of float32 weights are float32, unless they
/// are in another format.
inline Transformer with_dtype(Transformer model, Dtype dtype) {
  if (dtype == model.dtype) return model;
  const bool plain = model.products == ProductFormat::bits16 || model.products == ProductFormat::bits32;
  if (plain) model.products = dtype == Dtype::f32 ? ProductFormat::bits32 : ProductFormat::bits16;
  model.dtype = dtype;
  return model;
}

/// The model with its products in the format that the job gives separately, if it does.
inline Transformer with_products(Transformer model, const FrameworkJob& job) {
  if (!job.products) return model;
  model.products = *job.products;
  model.narrow_gathers = job.narrow_gathers;
  return model;
}

/// Bytes of Adam's states of a parameter: its master copy (0: it has none) and each of two moments.
struct OptimizerBytes {
  std::int64_t master = 4;
  std::int64_t moment = 4;

  bool operator==(const OptimizerBytes&) const = default;
};

/// The parts of all of them together, where they are equal moments of 4, 2 or 8 bytes and, if
/// weights of 16 bits have them, master copies of 4 or 2; none otherwise.
inline std::optional<OptimizerBytes> parts_of_optimizer(std::int64_t all, Dtype dtype, bool copies = true) {
  const bool copied = size_bytes(dtype) < 4 && copies;
  for (const std::int64_t master : {copied ? 4 : 0, copied ? 2 : 0}) {
    for (const std::int64_t moment : {4, 2, 8}) {
      if (master + 2 * moment == all) return OptimizerBytes{master, moment};
    }
  }
  return std::nullopt;
}

/// The weights' format; bfloat16 if not given.
inline Dtype job_dtype(const FrameworkJob& job) { return job.dtype ? *job.dtype : job.model ? job.model->dtype : Dtype::bf16; }

/// The same for a job.
inline std::optional<OptimizerBytes> optimizer_of(const FrameworkJob& job) {
  const Dtype dtype = job_dtype(job);
  if (job.optimizer_bytes == 0) return OptimizerBytes{size_bytes(dtype) < 4 && job.master_copies ? 4 : 0, 4};
  return parts_of_optimizer(job.optimizer_bytes, dtype, job.master_copies);
}

/// The job as a problem, on the cluster and with the costs and the model of `base`.
/// @throws InputError  if the job's mesh is not over the cluster
inline Problem problem_of(const FrameworkJob& job, Problem base) {
  base.mesh = job.mesh.over(base.cluster.ranks());
  base.schedules = {job.choice};
  base.microbatch_sizes = {job.microbatch_size};
  base.microbatches = 0;
  if (job.sequence > 0) base.sequence = job.sequence;
  base.global_batch = job.global_batch;
  base.recompute = job.recompute.value_or(Recompute::none);
  detail::take_switches(base, job);
  set_graphs(base.cost, job.graphs);
  base.stage_cut = job.stage_cut;
  if (base.model && job.dtype && *job.dtype != base.model->dtype) {
    base.model = with_dtype(*std::move(base.model), *job.dtype);
    base.parameter_bytes = trained_bytes(*job.dtype);
  }
  base.parameter_bytes.gradient = job.gradient_bytes;
  if (job.optimizer_bytes > 0) base.parameter_bytes.optimizer = job.optimizer_bytes;
  if (base.model) {
    base.model = with_products(*std::move(base.model), job);
    base.model->edges_count_as_layers = job.edges_count_as_layers;
    base.model->code = job.code;
    if (!job.fused_attention) base.model->fused_attention = false;
    base.model->recompute_layers = job.recompute_layers;
    base.model->recompute_parts = job.recompute_parts;
  }
  base.fold = Fold::automatic;
  return base;
}

namespace detail {

/// Collects sentences on why a framework cannot run something.
class Reasons {
 public:
  void add_if(bool wrong, std::string why) {
    if (wrong) reasons_.push_back(std::move(why));
  }
  std::vector<std::string> take() { return std::move(reasons_); }

 private:
  std::vector<std::string> reasons_;
};

/// What a framework's settings can say and those of most cannot.
struct WrittenAlso {
  bool cuts = false;   ///< stages of unequal numbers of layers
  bool kinds = false;  ///< layers of several kinds, whose reasons are its own
};

/// Requirements that every framework has for the stages, the loss and the batch.
inline void need_what_all_need(Reasons& reasons, const FrameworkJob& job, WrittenAlso also = {}) {
  reasons.add_if(!job.stage_cut.is_even() && !also.cuts && job.mesh.pipeline > 1 && !job.splits_batch(),
                 "stages of other than equal numbers of layers are not written (--layers-per-stage)");
  reasons.add_if(job.model && job.model->has_kinds() && !also.kinds, "layers of several kinds are not written");
  reasons.add_if(job.model && job.model->loss_chunk > 0, "the loss is computed of all the vocabulary at once (--loss-chunk)");
  const std::int64_t unit = job.microbatch_size * job.batch_parts();
  reasons.add_if(job.global_batch % unit != 0, concat(job.global_batch, " sequences are not a multiple of ", job.microbatch_size,
                                                      " a microbatch x ", job.batch_parts(), " data-parallel replicas"));
}

inline std::string option_of(const ScheduleChoice& choice, std::string_view key, std::string_view standard) {
  const auto found = choice.options.find(std::string{key});
  return found == choice.options.end() ? std::string{standard} : found->second;
}

/// Data parallelism by PyTorch's FSDP, whose groups hold copies of each other, or without it by DDP.
/// @param kept  weights stay gathered from the forward to the backward
inline void run_by_fsdp(FrameworkJob& job, int groups, bool kept) {
  job.choice = {"fsdp", {{"prefetch", "1"}, {"reshard", kept ? "off" : "on"}}};
  job.mesh.data = groups;
  job.mesh.order = parse_mesh_order("tcsd");
  job.sharding = groups > 1 ? StateSharding::none : StateSharding::parameters;  // nothing is sharded over the groups
}
inline void run_by_ddp(FrameworkJob& job) {
  job.choice = {"ddp"};
  job.mesh.order = parse_mesh_order("tcds");
}

/// Whether the axes of more than one rank are ordered as in `order`.
inline bool lies_as(const Mesh& mesh, std::string_view order) {
  Mesh wanted = mesh;
  wanted.order = parse_mesh_order(order);
  return places_of(mesh) == places_of(wanted);
}

/// The number of parts for the layers if embedding and loss may count.
inline int slots_of(const FrameworkJob& job) {
  const int edges = job.edges_count_as_layers ? 2 : (job.stage_cut.embedding == 1 ? 1 : 0) + (job.stage_cut.head == 1 ? 1 : 0);
  return job.model ? job.model->layers + edges : 0;
}

/// Whether two models have the same matrices.
inline bool same_sizes(const Transformer& a, const Transformer& b) {
  return a.layers == b.layers && a.tied == b.tied && same_fields(a, b, FieldGroup::matrices) && a.head_size() == b.head_size();
}

/// Whether they also have the same window, biases, norms and gate.
inline bool same_details(const Transformer& a, const Transformer& b) {
  return same_fields(a, b, FieldGroup::details) && a.kinds == b.kinds && a.pattern == b.pattern && a.mtp == b.mtp;
}

/// The name of a known model of the same sizes and details, if there is one.
inline void take_known_name(Transformer& model) {
  for (const models::ModelPreset& preset : models::all()) {
    if (const Transformer known = preset.make(); same_sizes(known, model) && same_details(known, model)) model.name = preset.name;
  }
}

/// @throws InputError  if a value is negative or beyond the limit of sizes and batches
template <class Settings, class Number>
void check_size(const ReadSettings<Settings>& read, std::string_view name, Number value, std::int64_t most) {
  if (value < 0 || value > most) read.fail(name, concat(value, " must be at most ", most, ", and not below 0"));
}
inline constexpr std::int64_t max_sequences = 1'000'000'000;

/// The product of sizes, or any number above `most` if it exceeds that.
inline std::int64_t product_of(std::initializer_list<int> sizes, int most) {
  std::int64_t product = 1;
  for (const int size : sizes) product = product > most ? product : product * size;
  return product;
}

/// The devices' mesh with data parallelism over the devices that `product` leaves.
template <class Settings>
int left_to_data(const ReadSettings<Settings>& read, std::string_view name, std::int64_t product, int devices,
                 std::string_view what) {
  if (product >= 1 && devices % product == 0) return static_cast<int>(devices / product);
  read.fail(name, concat(what, " = ", product, " does not divide the cluster's ", devices, " devices"));
}

/// The sequences of a microbatch and of an iteration, checked against each other.
template <class Settings>
void check_batch(const ReadSettings<Settings>& read, std::string_view name, const FrameworkJob& job) {
  const std::int64_t unit = job.microbatch_size * job.batch_parts();
  if (job.global_batch % unit == 0 && job.global_batch > 0) return;
  read.fail(name, concat(job.global_batch, " sequences are not a multiple of ", job.microbatch_size, " a microbatch x ",
                         job.batch_parts(), " data-parallel replicas"));
}

}  // namespace detail

}  // namespace tawpipe
