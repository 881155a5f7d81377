// The operations and bytes of one rank in the steps of a decoder layer that ranks share.
// Not: the steps (model/detail/body_writer.hpp).
#pragma once

#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/detail/expert_reach.hpp"
#include "tawpipe/model/shared_stage.hpp"
#include "tawpipe/model/transformer.hpp"
#include "tawpipe/model/transformer_work.hpp"

namespace tawpipe::inline v0::detail {

/// Operations and bytes of one rank, of a layer's forward where nothing else is said.
struct BodySizes {
  BodySizes(const Transformer& model, const Batch& batch, const Sharing& sharing) : tensor_{sharing.tensor} {
    const auto whole = static_cast<double>(batch.tokens());
    tokens_ = whole / sharing.token_ranks();
    element_ = static_cast<double>(size_bytes(model.dtype));
    gathered_ = model.gathers_narrow_inputs() ? bytes_of(model.products) : element_;
    hidden_ = model.hidden;
    query_ = static_cast<double>(model.query_width()) / sharing.tensor;
    key_ = static_cast<double>(model.key_width_of_rank(sharing.tensor));
    qkv_ = 2 * tokens_ * hidden_ * static_cast<double>(model.query_width() + 2 * model.key_width()) / sharing.tensor;
    out_ = 2 * tokens_ * hidden_ * static_cast<double>(model.value_width()) / sharing.tensor;
    if (model.is_latent()) {
      const auto down = static_cast<double>(model.latent_down_parameters());
      qkv_ = 2 * tokens_ * (static_cast<double>(model.attention_parameters()) - down) / sharing.tensor - out_;
      qkv_ += 2 * tokens_ * down * sharing.token_ranks() / sharing.token_parts();
    }
    attention_in_ = static_cast<double>(model.attention_gathered());
    is_routed_ = model.is_routed();
    const auto width = static_cast<double>(model.token_width());
    const double routed = sharing.whole_experts ? static_cast<double>(model.experts_per_token) * model.intermediate : 0;
    mlp_out_ = 2 * tokens_ * hidden_ * (width - routed) / sharing.tensor;
    mlp_in_ = static_cast<double>(model.mlp_matrices() - 1) * mlp_out_;
    experts_out_ = 2 * tokens_ * hidden_ * routed / sharing.tensor;
    experts_ = static_cast<double>(model.mlp_matrices()) * experts_out_;
    softmax_ = 5 * tokens_ * element_ * model.experts * sharing.token_ranks() / sharing.token_parts();
    copies_ = static_cast<double>(model.routed_copies()) * tokens_ * element_ / sharing.tensor;
    if (model.is_routed() && sharing.whole_experts && sharing.dispatch == ExpertDispatch::deepep) take_dispatch(model, sharing);
    router_ = 2 * tokens_ * hidden_ * model.experts * sharing.token_ranks() / sharing.token_parts();
    routed_ = model.is_routed() ? tokens_ * element_ * (hidden_ + static_cast<double>(model.routed_copies())) : 0;
    if (sharing.whole_experts) routed_ /= sharing.tensor;
    again_attention_ = 2 * tokens_ * hidden_ * static_cast<double>(model.key_width() + model.query_width()) / sharing.tensor;
    attention_ =
        2 * whole * model.attention_span(batch.sequence) * static_cast<double>(model.attention_width()) / sharing.ranks();
    logits_ = 2 * tokens_ * hidden_ * model.vocab / sharing.tensor;
    rotary_ = inner(2.0 * static_cast<double>(model.turned_width()));
    swiglu_ = inner(width);
    residual_ = tokens_ * element_ * hidden_ * sharing.token_ranks() / sharing.token_parts();
    embedding_ = embedding_traffic(model, batch);
    head_ = head_traffic(model, batch);
    head_norm_ = static_cast<double>(batch.tokens()) * element_ * hidden_;
  }

  /// Memory-bound bytes of `elements` a token that are split by tokens and by matrices.
  double inner(double elements) const { return tokens_ * element_ * elements / tensor_; }

  /// Each rank passes on what ranks at its place in all nodes send it.
  void take_dispatch(const Transformer& model, const Sharing& sharing) {
    neighbours_ = sharing.neighbours;
    const int nodes = sharing.ranks() / neighbours_;
    const int of_rank = model.experts / sharing.ranks();
    const double activations = tokens_ * element_ * hidden_ / sharing.tensor;
    relayed_ = (nodes - 1) * activations * part_reaching(model, of_rank * neighbours_);
    copies_ = relayed_ + sharing.ranks() * activations * part_reaching(model, of_rank);
  }

  int tensor_ = 1;
  double tokens_ = 0;  ///< of the ranks that have the same ones
  double element_ = 0;
  double gathered_ = 0;  ///< bytes of a number that a layer gathers
  double hidden_ = 0;
  double query_ = 0;  ///< width of one rank's query heads
  double key_ = 0;    ///< and of its key heads
  double qkv_ = 0;    ///< operations of one rank, forward
  double out_ = 0;
  double attention_in_ = 0;  ///< numbers of a token that are gathered before attention
  bool is_routed_ = false;   ///< the layer has experts
  double mlp_in_ = 0;
  double mlp_out_ = 0;
  double router_ = 0;
  double experts_ = 0;  ///< of whole experts, all products
  double experts_out_ = 0;
  double softmax_ = 0;  ///< bytes that a router's softmax and choice move
  double routed_ = 0;   ///< bytes of tokens read and copied for experts, or the other way
  double copies_ = 0;   ///< bytes that a rank sends to experts, or back
  double relayed_ = 0;  ///< of these, those to other nodes, by DeepEP
  int neighbours_ = 0;  ///< ranks of a node, by DeepEP
  double attention_ = 0;
  /// of the products around it that torchtitan runs again; of the MLP's, as mlp_out_
  double again_attention_ = 0;
  double logits_ = 0;
  double rotary_ = 0;    ///< bytes
  double swiglu_ = 0;    ///< bytes of one tensor [t, I / T]
  double residual_ = 0;  ///< bytes of one tensor of the residual stream on one rank
  TrafficBytes embedding_;
  TrafficBytes head_;
  double head_norm_ = 0;
};

}  // namespace tawpipe::detail
