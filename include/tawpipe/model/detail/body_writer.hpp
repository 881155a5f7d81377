// Writes the bodies of a decoder's stages under tensor, sequence and context parallelism, step by
// step.
// Not: one rank's part of a stage's work (model/transformer_body.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "tawpipe/model/activation.hpp"
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/detail/body_sizes.hpp"
#include "tawpipe/model/detail/body_steps.hpp"
#include "tawpipe/model/shared_stage.hpp"
#include "tawpipe/model/transformer.hpp"
#include "tawpipe/model/transformer_work.hpp"

namespace tawpipe::inline v0::detail {

/// Writes the steps of one pass. Symbols as in transformer_work(), T tensor and C context ranks;
/// t = tokens / C; A is an activation [t, H] of all T ranks together.
///
/// A layer's forward: norm, all-gather A, query-key-value products, attention, output product,
/// reduce-scatter A; and the same around the feed-forward. Backward, each half: all-gather of the
/// output's gradient A; the gradient of the input, during which the input A is gathered again; its
/// reduce-scatter, during which the gradient of the weights is computed. Without sequence
/// parallelism: an all-reduce in place of each reduce-scatter, and all-gathers only of what another
/// stage sent. With overlap: a product of gathered tokens begins with those of its own rank, and
/// goes on as those of one rank after the other arrive; one whose results are summed sends each of
/// four pieces (Transformer Engine, module/base.py, user buffers: ring_exchange, in tp_size steps
/// by copy engines, and pipeline, in 4). With whole experts the tokens are sent to them and back in
/// place of gathers and sums.
///
/// torchtitan keeps the gathered input that the gradient of the weights needs, or gathers it again
/// with the norm before it; each product waits for all gathers before it. With one scale a row, its
/// overlap covers only sums. Inputs of 8- and 4-bit products are gathered after the cast
/// (Transformer::gathers_narrow_inputs).
/// Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4.2; overlap:
/// LinearWithGradAccumulationAndAsyncCommunication of Megatron-LM, core/tensor_parallel/layers.py.
class BodyWriter : public BodySteps, private BodySizes {
 public:
  BodyWriter(const Transformer& model, const Batch& batch, Recompute recompute, const Sharing& sharing)
      : BodySizes{model.of_other_layers(), batch, sharing},
        model_{model},
        sharing_{sharing},
        recompute_{recompute},
        others_{*this},
        first_{model.dense_layers > 0 ? BodySizes{model.of_dense_layers(), batch, sharing} : others_} {}

  void forward(const StageWork& stage) {
    if (stage.first_edge) {
      compute(0, static_cast<double>(embedding_.forward) / sharing_.ranks());
      sum(false);
    }
    if (!stage.first_edge) gather_message(false);
    for (int layer = 0; layer < stage.layers; ++layer) {
      take_sizes(stage, layer);
      forward_layer(layer);
    }
    if (stage.last_edge) {
      compute_apart(0, 2 * head_norm_ / sharing_.token_parts(), last());
      body_.back().layer = stage.layers;
      gather(false);
      compute(logits_, (static_cast<double>(head_.forward) - 2 * head_norm_) / sharing_.ranks());
      // For each token: the largest logit, the sum of exponentials and the target's logit, in
      // float32.
      if (sharing_.tensor > 1) collective(Kind::all_reduce, Axis::tensor, false, 12 * tokens_, last());
    }
  }

  /// @param input  the gradients of inputs; @param weight  those of weights
  void backward(const StageWork& stage, bool input, bool weight) {
    if (stage.last_edge) {
      const std::int32_t gathered = weight ? gather(true) : -1;
      if (input) {
        // A loss in chunks computes its logits again.
        compute(logits_ * (model_.loss_chunk > 0 ? 2 : 1),
                (static_cast<double>(head_.backward) - 3 * head_norm_) / sharing_.ranks());
        const std::int32_t summed = sum(true);
        if (weight) compute(logits_, 0, {gathered});
        compute(0, 3 * head_norm_ / sharing_.token_parts(), {summed});
      } else {
        compute(logits_, 0, {gathered});
      }
      if (weight) {
        body_.back().layer = stage.layers;
        compute_apart(0, 0, last());
      }
    }
    if (!stage.last_edge && input) gather_message(true);
    for (int layer = stage.layers; layer-- > 0;) {
      take_sizes(stage, layer);
      if (input && recompute_ == Recompute::full && layer < stage.recomputed) forward_layer();
      backward_layer(input, weight, layer);
    }
    if (stage.first_edge && input) {
      gather(true);
      compute(0, static_cast<double>(embedding_.backward) / sharing_.ranks());
    }
  }

 private:
  /// Goes on with the sizes of one of the stage's layers.
  void take_sizes(const StageWork& stage, int layer) {
    if (stage.kinds.empty()) return;
    static_cast<BodySizes&>(*this) = stage.kinds[static_cast<std::size_t>(layer)] == 1 ? first_ : others_;
  }
  /// Gathers the parts of an activation that came from another stage.
  void gather_message(bool gradients) {
    if (sharing_.gathers_messages()) collective(Kind::all_gather, Axis::tensor, gradients, tokens_ * element_ * hidden_, last());
  }
  /// Gathers all tokens of this context rank on each tensor-parallel rank; only with sequence
  /// parallelism. @return -1 if nothing is done
  std::int32_t gather(bool gradients) { return gather(gradients, last_compute(), element_, hidden_); }
  std::int32_t gather(bool gradients, std::int32_t after, double element, double width) {
    if (sharing_.tensor == 1 || !sharing_.sequence_parallel) return -1;
    return collective(Kind::all_gather, Axis::tensor, gradients, tokens_ * element * width, after);
  }
  /// Sums the tensor-parallel ranks' partial results. @return -1 if nothing is done
  std::int32_t sum(bool gradients) { return sum(gradients, hidden_); }
  std::int32_t sum(bool gradients, double width) {
    if (sharing_.tensor == 1) return -1;
    const Kind kind = sharing_.sequence_parallel ? Kind::reduce_scatter : Kind::all_reduce;
    return collective(kind, Axis::tensor, gradients, tokens_ * element_ * width, last());
  }
  /// Of a sum: Transformer Engine's number; PyTorch's is one for each rank.
  int pieces() const { return model_.is_torchtitan() ? sharing_.tensor : 4; }
  /// Adds one of `all` pieces of a product. Transformer Engine runs them on several streams, so that
  /// together they fill the device as one product (common/comm_gemm_overlap: _stream_compute).
  void piece(double flops, double traffic, int all, std::int32_t after) {
    compute_apart(flops / all, traffic / all, after);
    if (model_.is_torchtitan()) body_.back().pieces = all;
  }
  bool overlaps() const { return sharing_.overlap && sharing_.tensor > 1 && sharing_.sequence_parallel; }
  /// What tensor-parallel ranks gather for a product, and for the gradient of its weights.
  struct Gathered {
    bool again = false;  ///< an input at the same time, for the gradient of the weights
    double number = 0;   ///< bytes of each number
    double width = 0;    ///< numbers of a token
    double again_width = 0;
  };
  /// A product of tokens, of which all tensor-parallel ranks have a part. @return the gather of the
  /// other input; -1: none
  std::int32_t gathered_product(bool gradients, double flops, double traffic, bool overlap, bool again = false) {
    return gathered_product(gradients, flops, traffic, overlap, {again, gathered_, hidden_, hidden_});
  }
  std::int32_t gathered_product(bool gradients, double flops, double traffic, bool overlap, const Gathered& with) {
    const std::int32_t before = last_compute();
    const bool again = with.again;
    if (!overlap || model_.gathers_apart()) {
      const std::int32_t gathered = gather(gradients, before, with.number, with.width);
      const std::int32_t other = again ? gather(false, before, gathered_, with.again_width) : -1;
      const bool waits = other >= 0 && model_.is_torchtitan();
      compute(flops, traffic, {waits ? other : gathered < 0 ? last() : gathered});
      return other;
    }
    // A rank passes on its own tokens, then those that arrived, one part of each rank a hop.
    std::int32_t arrived = before;
    for (int part = 0; part < sharing_.tensor; ++part) {
      const std::int32_t current = arrived;
      if (part + 1 < sharing_.tensor) {
        arrived = collective(Kind::ring, Axis::tensor, gradients, tokens_ * gathered_ * with.width / sharing_.tensor, current);
        body_.back().pieces = sharing_.tensor - 1;
      }
      piece(flops, traffic, sharing_.tensor, current);
    }
    return again ? collective(Kind::all_gather, Axis::tensor, false, tokens_ * gathered_ * with.again_width, before) : -1;
  }
  /// A product whose result is a sum over the tensor-parallel ranks, and that sum.
  void summed_product(double flops, double traffic, bool overlap) {
    if (!overlap) {
      compute(flops, traffic);
      sum(false);
      return;
    }
    const int all = pieces();
    for (int part = 0; part < all; ++part) {
      piece(flops, traffic, all, part == 0 ? last() : last_compute());
      collective(Kind::reduce_scatter, Axis::tensor, false, tokens_ * element_ * hidden_ / all, last());
      body_.back().pieces = all;
    }
  }

  bool gathers_again() const { return model_.gathers_again(recompute_); }
  /// Experts keep their copies of the tokens.
  bool gathers_mlp_again() const { return gathers_again() && !is_routed_; }

  /// @param layer  to note where it begins; -1: it is computed again
  void forward_layer(std::int32_t layer = -1) {
    compute(0, 2 * residual_);
    if (layer >= 0) body_.back().layer = layer;
    gathered_product(false, qkv_, rotary_, overlaps(), {false, gathered_, attention_in_, 0});
    attention(false);
    summed_product(out_, 0, overlaps());
    compute(0, 5 * residual_);  // residual sum 3H, norm 2H
    const bool results = layer >= 0 || !model_.stops_early();
    if (is_routed_) {
      routed_forward(results);
      if (results) compute(0, 3 * residual_);
      return;
    }
    gathered_product(false, mlp_in_, 5 * swiglu_, overlaps());
    if (!results) return;
    summed_product(mlp_out_, 0, overlaps());
    compute(0, 3 * residual_);
  }
  /// The MLPs of a layer with experts. A shared expert is computed before the tokens are sent, as
  /// without --moe-shared-expert-overlap. Source: Megatron-LM, core/transformer/moe: moe_layer.py,
  /// token_dispatcher.py (MoEAlltoAllTokenDispatcher).
  /// @param results  compute the last products, and send and add up what they give
  void routed_forward(bool results) {
    compute(router_, softmax_);
    const double around = sharing_.whole_experts ? 0 : routed_;
    if (mlp_in_ > 0) {
      gathered_product(false, mlp_in_, around + (sharing_.whole_experts ? 0 : 5 * swiglu_), false, {false, element_, hidden_, 0});
      if (results) summed_product(mlp_out_, around, false);
    }
    if (sharing_.whole_experts) {
      compute(0, routed_);
      send_to_experts(false);
      compute(results ? experts_ : experts_ - experts_out_, 5 * swiglu_, {last()});
      if (results) send_to_experts(false);
      if (results) compute(0, routed_, {last()});
    }
  }
  /// Each rank's copies of its tokens to the experts that these pass, or back.
  void send_to_experts(bool gradients) {
    collective(Kind::all_to_all, Axis::all, gradients, copies_, last_compute());
    if (relayed_ == 0) return;
    body_.back().inner = neighbours_;
    body_.back().relayed = bytes(relayed_);
  }
  /// The gradients of the MLPs with experts: of their inputs, and with `weight` of their weights.
  void routed_backward(bool weight, double swiglu, double branches, double norm) {
    if (sharing_.whole_experts) {
      compute(0, routed_);
      send_to_experts(true);
      compute(experts_ * (weight ? 2 : 1), swiglu, {last()});
      send_to_experts(true);
      compute(0, routed_, {last()});
    }
    std::int32_t summed = -1;
    if (mlp_in_ > 0) {
      const double around = sharing_.whole_experts ? 0 : routed_;
      gathered_product(true, mlp_out_, around, false, {false, element_, hidden_, 0});
      compute(mlp_in_, around + (sharing_.whole_experts ? 0 : swiglu));
      summed = sum(true);
      if (weight) compute(mlp_in_ + mlp_out_, 0, {});
    }
    compute(router_ * (weight ? 2 : 1), norm + branches + softmax_, {summed});
  }

  void backward_layer(bool input, bool weight, std::int32_t layer) {
    if (!input) {
      const std::int32_t feed_forward = gathers_mlp_again() ? gather(false, last_compute(), gathered_, hidden_) : -1;
      const std::int32_t attention = gathers_again() ? gather(false, last_compute(), gathered_, attention_in_) : -1;
      compute(mlp_in_ + mlp_out_ + experts_ + router_, 0, {feed_forward});
      compute(qkv_ + out_, 0, {attention});
      body_.back().layer = layer;
      return;
    }
    const RecomputeParts parts = model_.parts_again(recompute_);
    const bool own = model_.chooses_parts(recompute_);
    const double branches = 9 * inner(hidden_);
    // Includes the norms that are computed again: 2H each.
    const double norm = (own || parts.layernorm ? 8 : 6) * residual_;
    if (parts.mlp && is_routed_) routed_forward(true);
    if (parts.mlp && !is_routed_) {
      gathered_product(false, mlp_in_, 5 * swiglu_, overlaps());
      summed_product(mlp_out_, 0, overlaps());
    }
    if (parts.mlp) compute(0, 0);
    const bool products = own && model_.is_torchtitan();
    const bool function = own || (parts.activation && !parts.mlp);
    std::int32_t again = -1;
    std::int32_t summed = -1;
    if (is_routed_) {
      routed_backward(weight, (function ? 14 : 9) * swiglu_, branches / 3, norm);
    } else {
      again = gathered_product(true, mlp_out_, 0, overlaps(), weight && gathers_again());
      compute(mlp_in_ + (products ? mlp_out_ : 0), (function ? 14 : 9) * swiglu_ + branches / 3);
      summed = sum(true);
      if (weight) compute(mlp_in_ + mlp_out_, 0, {again});
      compute(0, norm, {summed});
    }
    const std::int32_t middle = last_compute();
    again = gathered_product(true, out_, 0, overlaps(), {weight && gathers_again(), gathered_, hidden_, attention_in_});
    attention(true, middle);
    compute(qkv_ + (products ? again_attention_ : 0), rotary_ + 2 * branches / 3);
    summed = sum(true, attention_in_);
    if (weight) {
      compute(qkv_ + out_, 0, {again});
      body_.back().layer = layer;
    }
    compute(0, norm, {summed});
  }

  /// The attention between its products, with the exchanges of the context-parallel ranks. Where it
  /// is computed again, these are repeated.
  /// @param ready  the step that produces keys and values; -1: the previous one
  void attention(bool backward, std::int32_t ready = -1) {
    const bool again = backward && model_.attention_again(recompute_);
    if (sharing_.context == 1) {
      compute(attention_ * (again ? 3 : backward ? 2 : 1), 0);
      return;
    }
    if (again) attention(false, std::exchange(ready, -1));
    const double work = attention_ * (backward ? 2 : 1);
    const double keys = 2 * tokens_ * key_ * element_;  // and values, of one rank
    switch (sharing_.exchange) {
      case ContextExchange::all_gather:
        // The backward gathers keys and values again, during the gradient of the output product's
        // input.
        compute(work, 0,
                {collective(Kind::all_gather, Axis::context, false, keys * sharing_.context, ready < 0 ? last() : ready)});
        if (backward) collective(Kind::reduce_scatter, Axis::context, true, keys * sharing_.context, last());
        return;
      case ContextExchange::ring:
        ring(backward, work, keys, 1);
        return;
      case ContextExchange::all_to_all:
      case ContextExchange::two_level: {
        const bool whole = sharing_.exchange == ContextExchange::all_to_all;
        const double queries = tokens_ * query_ * element_;
        const auto swap = [&](double size) {
          if (!whole && sharing_.inner == 1) return;
          collective(Kind::all_to_all, Axis::context, backward, size, last());
          if (!whole) body_.back().inner = sharing_.inner;
        };
        swap(backward ? queries : queries + keys);
        if (whole || sharing_.inner == sharing_.context) {
          compute(work, 0);
        } else {
          ring(backward, work, keys, sharing_.inner);
        }
        swap(backward ? queries + keys : queries);
        return;
      }
    }
  }
  /// Keys and values of `size` bytes circulate with `work`. Each rank holds an early and a late
  /// piece of the sequence, so that all blocks are equal work. A backward begins with the keys that
  /// the forward ended with, and ends with a rank's own, so that gradients of keys and values, which
  /// follow these a block later, reach their owner during its last block.
  /// Source: Transformer Engine, AttnFuncWithCPAndKVP2P.
  /// @param inner  each rank sends to the one that many further on
  void ring(bool backward, double work, double size, int inner) {
    const int blocks = sharing_.attention_blocks();
    const int hops = backward ? blocks : blocks - 1;
    std::int32_t done = last();
    std::int32_t arrived = done;
    for (int block = 0; block < blocks; ++block) {
      const std::int32_t current = arrived;
      if (block < hops) {
        const int parts = backward && block > 0 && block + 1 < hops ? 2 : 1;
        arrived = collective(Kind::ring, Axis::context, backward, parts * size, std::max(done, current));
        if (inner > 1) body_.back().inner = inner;
      }
      compute_apart(work / blocks, 0, current);
      done = backward ? last() : done;
    }
    if (backward) compute(0, 0, {arrived});
  }
  const Transformer& model_;
  Sharing sharing_;
  Recompute recompute_;
  BodySizes others_;  ///< of the layers with experts
  BodySizes first_;   ///< of the first layers, where they differ
};

}  // namespace tawpipe::detail
