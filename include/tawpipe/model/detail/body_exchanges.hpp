// Products and attention with what ranks exchange around them, as steps of a body.
// Not: the order of a layer's operators (model/detail/operator_body.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/detail/body_steps.hpp"
#include "tawpipe/model/detail/expert_reach.hpp"
#include "tawpipe/model/dtype.hpp"
#include "tawpipe/model/shared_stage.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::detail {

/// With overlap a product of gathered tokens begins with those of its own rank, and goes on as those of
/// one rank after the other arrive; one whose results are summed sends each of four pieces (Transformer
/// Engine, module/base.py, user buffers: ring_exchange, in tp_size steps by copy engines, and pipeline,
/// in 4). torchtitan's sums have a piece for each rank; each product waits for all gathers before it;
/// with one scale a row its overlap covers only sums. Inputs of 8- and 4-bit products are gathered after
/// the cast (Transformer::gathers_narrow_inputs). Without sequence parallelism there is an all-reduce in
/// place of each reduce-scatter, and all-gathers only of what another stage sent.
/// Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4.2; overlap:
/// LinearWithGradAccumulationAndAsyncCommunication of Megatron-LM, core/tensor_parallel/layers.py.
class BodyExchanges : public BodySteps {
 protected:
  BodyExchanges(const Transformer& model, const Batch& batch, const Sharing& sharing)
      : model_{model},
        sharing_{sharing},
        element_{static_cast<double>(size_bytes(model.dtype))},
        tokens_{static_cast<double>(batch.tokens()) / sharing.token_ranks()} {}

  /// What tensor-parallel ranks gather for a product, and for the gradient of its weights.
  struct Gathered {
    double width = 0;        ///< numbers of a token; 0: none
    double again_width = 0;  ///< of an input at the same time
    double number = 0;       ///< bytes of each
    bool overlaps = false;
  };
  bool splits() const { return sharing_.tensor > 1; }
  bool overlaps() const { return sharing_.overlap && splits() && sharing_.sequence_parallel; }
  /// Bytes of a number that a layer gathers for products; experts' and routers' are wide.
  double gathered_number(bool experts) const {
    return !experts && model_.gathers_narrow_inputs() ? bytes_of(model_.products) : element_;
  }

  /// Gathers all tokens of this context rank on each tensor-parallel rank; only with sequence
  /// parallelism. @return -1 if nothing is done
  std::int32_t gather(bool gradients, double width, double number, std::int32_t after) {
    if (!splits() || !sharing_.sequence_parallel || width <= 0) return -1;
    return collective(Kind::all_gather, Axis::tensor, gradients, tokens_ * number * width, after);
  }
  std::int32_t gather(bool gradients, double width) { return gather(gradients, width, element_, last_compute()); }
  /// Sums the tensor-parallel ranks' partial results. @return -1 if nothing is done
  std::int32_t sum(bool gradients, double width) {
    if (!splits()) return -1;
    const Kind kind = sharing_.sequence_parallel ? Kind::reduce_scatter : Kind::all_reduce;
    return collective(kind, Axis::tensor, gradients, tokens_ * element_ * width, last());
  }
  /// Gathers the parts of an activation that came from another stage.
  void gather_message(bool gradients, double width) {
    if (sharing_.gathers_messages()) collective(Kind::all_gather, Axis::tensor, gradients, tokens_ * element_ * width, last());
  }

  /// Adds one of `all` pieces of a product. Transformer Engine runs them on several streams, so that
  /// together they fill the device as one product (common/comm_gemm_overlap: _stream_compute).
  void piece(const StepWork& work, int all, std::int32_t after) {
    compute_apart(work.part(all), after);
    if (model_.is_torchtitan()) body_.back().pieces = all;
  }
  /// A product of tokens, of which all tensor-parallel ranks have a part. @return the gather of the
  /// other input; -1: none
  std::int32_t gathered_product(bool gradients, const StepWork& work, const Gathered& with) {
    const std::int32_t before = last_compute();
    if (!with.overlaps || model_.gathers_apart()) {
      const std::int32_t gathered = gather(gradients, with.width, with.number, before);
      const std::int32_t other = gather(false, with.again_width, with.number, before);
      const bool waits = other >= 0 && model_.is_torchtitan();
      compute(work, {waits ? other : gathered < 0 ? last() : gathered});
      return other;
    }
    // A rank passes on its own tokens, then those that arrived, one part of each rank a hop.
    std::int32_t arrived = before;
    for (int part = 0; part < sharing_.tensor; ++part) {
      const std::int32_t current = arrived;
      if (part + 1 < sharing_.tensor) {
        arrived = collective(Kind::ring, Axis::tensor, gradients, tokens_ * with.number * with.width / sharing_.tensor, current);
        body_.back().pieces = sharing_.tensor - 1;
      }
      piece(work, sharing_.tensor, current);
    }
    return gather(false, with.again_width, with.number, before);
  }
  /// A product whose result is a sum over the tensor-parallel ranks, and that sum.
  void summed_product(const StepWork& work, double width, bool overlaps) {
    if (!overlaps) {
      compute(work);
      sum(false, width);
      return;
    }
    const int all = model_.is_torchtitan() ? sharing_.tensor : 4;
    for (int part = 0; part < all; ++part) {
      piece(work, all, part == 0 ? last() : last_compute());
      collective(Kind::reduce_scatter, Axis::tensor, false, tokens_ * element_ * width / all, last());
      body_.back().pieces = all;
    }
  }

  /// Each rank's copies of its tokens to the experts that these pass, or back.
  void send_to_experts(bool gradients, std::int64_t width, int copies) {
    const double activations = tokens_ * element_ * static_cast<double>(width) / sharing_.tensor;
    if (sharing_.dispatch != ExpertDispatch::deepep) {
      collective(Kind::all_to_all, Axis::all, gradients, activations * copies, last_compute());
      return;
    }
    // Each rank passes on what ranks at its place in all nodes send it.
    const int nodes = sharing_.ranks() / sharing_.neighbours;
    const int of_rank = model_.experts / sharing_.ranks();
    const double relayed = (nodes - 1) * activations * part_reaching(model_, of_rank * sharing_.neighbours);
    const double sent = relayed + sharing_.ranks() * activations * part_reaching(model_, of_rank);
    collective(Kind::all_to_all, Axis::all, gradients, sent, last_compute());
    if (relayed == 0) return;
    body_.back().inner = sharing_.neighbours;
    body_.back().relayed = bytes(relayed);
  }

  /// The attention between its products, with the exchanges of the context-parallel ranks.
  /// @param queries  numbers of a token of one rank; @param keys  those of keys and values
  /// @param ready  the step that produces keys and values; -1: the previous one
  void attention(bool backward, const StepWork& work, double queries, double keys, std::int32_t ready = -1) {
    if (sharing_.context == 1) {
      compute(work);
      return;
    }
    queries *= tokens_ * element_;
    keys *= tokens_ * element_;
    switch (sharing_.exchange) {
      case ContextExchange::all_gather:
        // The backward gathers keys and values again, during the gradient of the output product's
        // input.
        compute(work, {collective(Kind::all_gather, Axis::context, false, keys * sharing_.context, ready < 0 ? last() : ready)});
        if (backward) collective(Kind::reduce_scatter, Axis::context, true, keys * sharing_.context, last());
        return;
      case ContextExchange::ring:
        ring(backward, work, keys, 1);
        return;
      case ContextExchange::all_to_all:
      case ContextExchange::two_level: {
        const bool whole = sharing_.exchange == ContextExchange::all_to_all;
        const auto swap = [&](double size) {
          if (!whole && sharing_.inner == 1) return;
          collective(Kind::all_to_all, Axis::context, backward, size, last());
          if (!whole) body_.back().inner = sharing_.inner;
        };
        swap(backward ? queries : queries + keys);
        if (whole || sharing_.inner == sharing_.context) {
          compute(work);
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
  void ring(bool backward, const StepWork& work, double size, int inner) {
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
      compute_apart(work.part(blocks), current);
      done = backward ? last() : done;
    }
    if (backward) compute({}, {arrived});
  }

  const Transformer& model_;
  Sharing sharing_;
  double element_;
  double tokens_;  ///< of the ranks that have the same ones
};

}  // namespace tawpipe::detail
