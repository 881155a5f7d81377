// A LLaMA-style decoder by its sizes, and its number of parameters.
// Not: operations and activations (model/transformer_work.hpp) nor known models (model/models.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/dtype.hpp"
#include "tawpipe/model/kernel.hpp"
#include "tawpipe/model/layer_code.hpp"
#include "tawpipe/model/layer_kind.hpp"
#include "tawpipe/model/model.hpp"
#include "tawpipe/model/operator.hpp"

namespace tawpipe::inline v0 {

/// A decoder of equal layers: RMSNorm, grouped-query attention with rotary embedding, RMSNorm,
/// SwiGLU; without biases unless they are asked for. A GPT is a model without the gate; its learned
/// positions are left out.
///
/// Matrices of a layer, with H = hidden, Q = heads x head size, K = kv_heads x head size, I =
/// intermediate: query [H, Q], key and value [H, K], output [Q, H], gate (if gated) and up [H, I],
/// down [I, H]. With experts a layer has E MLPs of width I in place of one, a router [H, E] that
/// chooses k of them for each token, and, if shared_width is J, one more of width J for all tokens.
/// No token is dropped, and experts are taken to get equally many.
/// Source: Touvron et al. 2023, LLaMA, arXiv:2302.13971, section 2.2; Ainslie et al. 2023, GQA,
/// arXiv:2305.13245; Jiang et al. 2024, Mixtral, arXiv:2401.04088, section 2.1; Dai et al. 2024,
/// DeepSeekMoE, arXiv:2401.06066, section 3.2 (shared experts).
/// Example: `Transformer{.name = "tiny", .layers = 2, .hidden = 64, .heads = 4, .kv_heads = 4,
/// .intermediate = 256, .vocab = 500}`
struct Transformer {
  std::string name = {};
  int layers = 0;
  int hidden = 0;
  int heads = 0;
  int kv_heads = 0;  ///< heads of key and value; equal to `heads` without grouping
  int intermediate = 0;
  int vocab = 0;
  bool tied = false;  ///< one matrix [vocab, hidden] serves as token embedding and output matrix
  Dtype dtype = Dtype::bf16;
  std::optional<int> head_dim = {};  ///< hidden / heads where not given
  /// fraction of the matrix peak reached at this hidden size; 0: unknown
  double utilization = 0;
  std::string utilization_source = {};  ///< where `utilization` was measured
  /// Number of vocabulary entries whose logits the head has at a time; they are recomputed in the
  /// backward. 0: all at once, kept.
  int loss_chunk = 0;
  /// Full recomputation covers only that many first layers of each stage (of the model, where each
  /// layer is gathered by itself); 0: all.
  int recompute_layers = 0;
  /// what `selective` runs again; none: its own choice
  RecomputeParts recompute_parts = {};
  /// Full recomputation stops where a layer's backward has all that it needs; nullopt: as the code
  /// that runs the layers does. See stops_early().
  std::optional<bool> early_stop = {};
  /// cross entropy, as automatic mixed precision runs it; false: in `dtype`
  bool loss_in_float32 = true;
  /// One kernel makes the logits' gradient of them: in their place under Megatron-LM (Transformer
  /// Engine, cross_entropy.py), beside them where torch.compile made it; no other tensor of the
  /// vocabulary exists. Not with loss_in_float32 or loss_chunk, which say otherwise.
  bool one_kernel_loss = false;
  /// for the layers' matrix products; attention and head stay in `dtype`
  ProductFormat products = ProductFormat::bits16;
  /// Ranks that gather weights gather those of layers in the products' 8 bits, cast by their
  /// owners; torchtitan where parameters are sharded, Megatron-LM new weights too.
  /// Source: torchao, enable_fsdp_float8_all_gather; Megatron-LM, --fp8-param-gather.
  bool narrow_gathers = false;
  /// Weights of layers live in the products' 8 bits, without a copy in 16, which the optimizer's in 32
  /// replaces. Source: Megatron-LM, --fp8-param-gather; Transformer Engine, fp8_model_init.
  bool narrow_weights = false;
  /// Experts' gate, up and function are one kernel, and so are the gradients of down's input and of the
  /// function, which cast what they give; with `products` mxfp8, from Blackwell on.
  /// Source: Transformer Engine 2.14, pytorch/ops/fused/grouped_mlp.py; Megatron-LM,
  /// --use-transformer-engine-op-fuser with NVTE_CUTEDSL_FUSED_GROUPED_MLP=1.
  bool fused_experts = false;
  /// when it is cut into stages, embedding and loss each count as a layer
  bool edges_count_as_layers = false;
  /// SwiGLU; false: up and down with one function between them, as GPT's GELU
  bool gated = true;
  /// scores stay on the chip; false: each [heads, S, S] is written, as before 2022
  bool fused_attention = true;
  /// one kernel from gate and up to their product: silu(gate) is never kept
  bool fused_swiglu = false;
  LayerCode code = LayerCode::megatron;
  int experts = 0;            ///< E: of each layer, each `intermediate` wide; 0: one MLP
  int experts_per_token = 0;  ///< k: that a token passes
  int shared_width = 0;       ///< J: of the expert that every token passes; 0: none
  /// Equally many experts that follow each other, of which a router chooses groups_per_token first.
  /// Source: DeepSeek-AI 2024, DeepSeek-V2, arXiv:2405.04434, section 2.2.2.
  int expert_groups = 1;
  int groups_per_token = 1;

  int dense_layers = 0;  ///< with experts: the first so many layers have one MLP instead
  int dense_width = 0;   ///< and its width
  /// Latent attention: queries (unless 0), and keys with values, are products of a vector of this many
  /// numbers a token, after a norm; heads have head_dim numbers of a query or key, the last rope_width
  /// of which are turned, a key's the same for all heads, and value_size of a value.
  /// Source: DeepSeek-AI 2024, DeepSeek-V2, arXiv:2405.04434, section 2.1.
  int query_rank = 0;
  int key_value_rank = 0;  ///< 0: grouped-query attention
  int rope_width = 0;
  int value_size = 0;

  /// A token attends to itself and the window - 1 before it; 0: to all before it.
  int window = 0;
  bool qkv_bias = false;     ///< queries, keys and values have biases
  bool output_bias = false;  ///< and so has attention's output
  bool mlp_bias = false;     ///< gate, up and down have biases
  QkNorm qk_norm = QkNorm::none;
  bool shared_gate = false;  ///< a product [1, H] scales the shared expert's result
  /// Kinds of layers and which each layer is, where they are not what the sizes above say; these are
  /// then those of the first attention and of the largest mixture or MLP. See of().
  std::vector<LayerKind> kinds = {};
  LayerPattern pattern = {};
  LayerPattern mtp = {};   ///< the kinds of layers that predict a further token
  int positions = 0;       ///< learned ones; 0: none
  bool norm_bias = false;  ///< of the final norm
  /// Sentences on what was assumed or left out when the model was read, for users.
  std::vector<std::string> notes = {};

  static constexpr int max_layers = 1 << 12;
  static constexpr int max_hidden = 1 << 17;        ///< also of heads x head size
  static constexpr int max_intermediate = 1 << 19;  ///< also of all that a token passes
  static constexpr int max_expert_width = 1 << 22;  ///< of all experts of a layer together
  static constexpr int max_experts = 1 << 12;       ///< of a layer
  static constexpr int max_vocab = 1 << 22;
  static constexpr std::int64_t max_parameters = std::int64_t{1} << 46;  ///< of models of several kinds

  /// Width of one head. @pre check() passes
  std::int64_t head_size() const { return head_dim ? *head_dim : hidden / heads; }
  /// Q: width of all query heads.
  std::int64_t query_width() const { return heads * head_size(); }
  /// Whether keys and values are made from one short vector a token.
  bool is_latent() const { return key_value_rank > 0; }
  /// Width of attention's result: Q, or that of all value heads where these have another size.
  std::int64_t value_width() const { return is_latent() ? std::int64_t{heads} * value_size : query_width(); }
  /// K: width of all key heads, and of all value heads; the mean of both where they differ.
  std::int64_t key_width() const {
    return is_latent() ? (query_width() + value_width()) / 2 : std::int64_t{kv_heads} * head_size();
  }
  /// Numbers of a token's queries and keys where these are normed, Q + K.
  std::int64_t qk_normed_width() const { return qk_norm == QkNorm::none ? 0 : query_width() + key_width(); }
  /// Numbers of both short vectors of latent attention, and of the keys' turned part.
  std::int64_t latent_width() const { return std::int64_t{query_rank} + key_value_rank + rope_width; }
  /// Width of what queries are products of: H, or that of their short vector.
  std::int64_t query_input() const { return query_rank > 0 ? query_rank : hidden; }
  /// Width of all key heads of latent attention without the turned part, which they share.
  std::int64_t unturned_width() const { return query_width() - std::int64_t{heads} * rope_width; }
  /// Whether that many ranks can have whole query, key and value heads each, as many as the others.
  bool divides_heads(int ranks) const { return heads % ranks == 0 && kv_heads % ranks == 0; }

  /// torchtitan: key and value heads are copied for each query head before attention (`repeat_kv`),
  /// so that context-parallel ranks exchange the copies, and selective recomputation keeps
  /// attention's result and every second product's, and runs the products in between again (key,
  /// output, up or down). Source: torchtitan, models/llama3/model.py, parallelize_llama.py.
  bool is_torchtitan() const { return code == LayerCode::torchtitan || code == LayerCode::torchtitan_eager; }
  /// Of all keys, the width that one of `ranks` tensor-parallel ranks has and exchanges: a group of
  /// queries keeps its key and value head whole, ranks beyond the number of groups hold copies.
  std::int64_t key_width_of_rank(int ranks) const {
    const std::int64_t width = (is_torchtitan() ? query_width() : key_width()) / ranks;
    return std::max(width, key_width() / kv_heads);
  }

  /// Tensor-parallel ranks gather a product's input, and its result's gradient, after the cast.
  /// Source: Transformer Engine, module/layernorm_linear.py: with_quantized_all_gather, module/base.py:
  /// grad_output_preprocess; torchao, float8_tensor_parallel.py: for one scale a tensor.
  bool gathers_narrow_inputs() const { return is_narrow(products) && (!is_torchtitan() || products == ProductFormat::fp8); }
  /// A product's input is gathered again from the tensor-parallel ranks for the gradient of its
  /// weight; torchtitan keeps it, unless products are run again.
  bool gathers_again(Recompute recompute) const { return !is_torchtitan() || chooses_parts(recompute); }
  /// Asynchronous tensor parallelism fuses sums with products, but not gathers. Source:
  /// pytorch/pytorch#149990: for one scale a row.
  bool gathers_apart() const { return is_torchtitan() && products == ProductFormat::fp8_rows; }

  /// Full recomputation of a layer leaves out its last product, that product's sum over ranks and the
  /// residual sum, whose results no gradient needs: PyTorch's checkpoints that are not reentrant
  /// stop early since 2.1, and torch.compile removes what is not needed. Megatron-LM's and
  /// DeepSpeed's own checkpoints run all again, torchtitan's unless compiled or told so. Source:
  /// PyTorch, torch/utils/checkpoint.py: set_checkpoint_early_stop.
  bool stops_early() const {
    return early_stop.value_or(code == LayerCode::torchtitan || code == LayerCode::composer || code == LayerCode::tawpipe);
  }
  /// Cross entropies that are computed again from the logits after each backward, for metrics, in
  /// float32. They take time, and no memory that is not free by then. Source: mosaicml/composer,
  /// trainer.py (_eval_train_metrics), metrics/nlp.py (LanguageCrossEntropy, LanguagePerplexity).
  int metric_losses() const { return code == LayerCode::composer ? 2 : 0; }
  /// Whether the product that gives a weight's gradient adds it to the sum of earlier microbatches.
  /// Source: Megatron-LM, --no-gradient-accumulation-fusion.
  bool fuses_accumulation() const { return code != LayerCode::megatron_unfused; }
  /// Bytes moved for each weight whose gradient a kernel of its own adds: the gradient read, and the sum,
  /// in float32 but for float16 models, read and written; 0: its product adds it.
  std::int64_t added_bytes() const {
    const std::int64_t element = size_bytes(dtype);
    return fuses_accumulation() ? 0 : element + 2 * (dtype == Dtype::f16 ? element : std::max<std::int64_t>(4, element));
  }
  /// Whether logits and their gradient are all that the loss has of the vocabulary's size.
  bool has_one_kernel_loss() const { return one_kernel_loss && !loss_in_float32 && loss_chunk == 0; }
  /// Whether the code pads the vocabulary, so that products with it are fast whatever its size. With
  /// megatron_unfused the model's vocabulary is what is computed. Source: Megatron-LM,
  /// --make-vocab-size-divisible-by.
  bool pads_vocabulary() const { return code == LayerCode::megatron; }
  /// Whether the code that runs the layers fuses SwiGLU by default: Megatron-LM
  /// (bias_swiglu_fusion) and torch.compile do.
  bool code_fuses_swiglu() const { return gated && code != LayerCode::torchtitan_eager && code != LayerCode::tawpipe; }

  /// The named parts of a layer that the policy runs again.
  RecomputeParts parts_again(Recompute recompute) const {
    return recompute == Recompute::selective ? recompute_parts : RecomputeParts{};
  }
  /// Whether the policy is selective by its own choice, without named parts.
  bool chooses_parts(Recompute recompute) const { return recompute == Recompute::selective && !recompute_parts.any(); }

  /// Matrices of the MLP: gate, up and down, or two without a gate.
  std::int64_t mlp_matrices() const { return gated ? 3 : 2; }
  /// Whether a router sends each token to some of several experts.
  bool is_routed() const { return experts > 0; }
  /// The width of an MLP's inner tensors for one token: I, or with experts kI + J.
  std::int64_t token_width() const {
    return is_routed() ? std::int64_t{experts_per_token} * intermediate + shared_width : intermediate;
  }
  /// The width of all MLPs of a layer together: I, or with experts EI + J.
  std::int64_t mlp_width() const { return is_routed() ? std::int64_t{experts} * intermediate + shared_width : intermediate; }
  /// Numbers of a token's copies for its experts: kH, or none.
  std::int64_t routed_copies() const { return is_routed() ? std::int64_t{experts_per_token} * hidden : 0; }
  /// A model of several kinds of layers. @throws InputError  as Model::check
  static Transformer of(const Model& model);
  /// Whether its layers are of `kinds`.
  bool has_kinds() const { return !kinds.empty(); }
  /// Whether products may overlap the collectives of tensor parallelism.
  bool overlaps_collectives() const { return tawpipe::overlaps_collectives(products); }
  /// One of its layers by its operators; with experts, one that has them; of several kinds, the first.
  LayerKind layer_kind() const;
  /// Its kinds of layers and their pattern.
  Model decoder() const;
  /// Parameters of the matrices of attention, without those of its norms and biases.
  std::int64_t attention_parameters() const {
    return sum_of(LayerKind{.sublayers = {layer_kind().sublayers[0]}}.operators(hidden), &Operator::matrices);
  }
  /// Of one layer's matrices, without the shared expert's gate, which is one row.
  std::int64_t layer_matrix_parameters() const { return matrices(&Operator::matrices); }
  /// Of them, those that are of experts with a router before them.
  std::int64_t layer_expert_parameters() const { return matrices(&Operator::expert_matrices); }
  /// Of all, those that one token passes.
  std::int64_t token_matrix_parameters() const { return matrices(&Operator::active_matrices); }
  /// Whether its products, but for routers', have biases.
  bool has_biases() const { return qkv_bias || output_bias || mlp_bias; }
  /// Parameters of one layer: matrices, norms, biases.
  std::int64_t layer_parameters() const { return sum_of(layer_kind().operators(hidden), &Operator::parameters); }
  /// The model without experts whose layers are the first `dense_layers` of this one.
  Transformer of_dense_layers() const {
    Transformer dense = *this;
    dense.experts = dense.experts_per_token = dense.shared_width = dense.dense_layers = dense.dense_width = 0;
    dense.expert_groups = dense.groups_per_token = 1;
    dense.shared_gate = false;
    dense.intermediate = dense_width;
    return dense;
  }
  /// Parameters of all layers.
  std::int64_t all_layer_parameters() const { return parameters() - embedding_parameters() - head_parameters(); }
  /// Parameters of the token embedding: VH.
  std::int64_t embedding_parameters() const { return (std::int64_t{vocab} + positions) * hidden; }
  /// Parameters of the final norm, and of the output matrix where it is not the embedding: H, or
  /// H + VH.
  std::int64_t head_parameters() const {
    return hidden * (norm_bias ? 2 : 1) + (tied ? 0 : std::int64_t{vocab} * hidden) + mtp_parameters();
  }
  /// Of the layers that predict further tokens, which are a part of the last edge.
  std::int64_t mtp_parameters() const { return mtp.empty() ? 0 : decoder().all_mtp_parameters(); }
  /// All parameters; a tied matrix counts once.
  std::int64_t parameters() const { return decoder().parameters(); }
  /// Those of experts with a router before them.
  std::int64_t expert_parameters() const { return decoder().expert_parameters(); }
  /// Those that one token passes: all, without the experts that are not chosen for it.
  std::int64_t active_parameters() const { return decoder().active_parameters(); }

  /// @throws InputError  if a size is below 1 or beyond the limits above, if `heads` does not
  /// divide `hidden` and no head_dim is given, if kv_heads does not divide heads, if utilization is
  /// not within 0 .. 1, or if experts have no number for each token, or code that cannot run them.
  /// The limits keep every size and count of a microbatch (Batch::max_tokens) within 64 bits.
  void check() const;

 private:
  std::int64_t matrices(std::int64_t (Operator::*which)() const) const {
    return sum_of(layer_kind().operators(hidden), which) - (which != &Operator::expert_matrices && shared_gate ? hidden : 0);
  }
  void check_kinds() const;
  void check_experts() const;
  void check_latent() const;
  void check_details() const;
  void check_size(int value, std::string_view what, int most) const {
    if (value < 1 || value > most) fail(concat(what, " must be 1 to ", most, ", not ", value));
  }
  [[noreturn]] void fail(const std::string& why) const {
    throw InputError(concat("model ", quote(name.empty() ? "(unnamed)" : name), ": ", why));
  }
};

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include "tawpipe/model/detail/transformer_check.hpp"
#include "tawpipe/model/detail/transformer_layers.hpp"
#endif
