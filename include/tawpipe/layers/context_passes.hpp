// The operations and collectives of context-parallel ranks' attention, in the order of the mathematics.
// Not: what they compute (layers/host/context_attention.hpp), nor the passes around them
// (layers/tensor_passes.hpp).
#pragma once

#include <algorithm>
#include <cstdint>

#include "tawpipe/backend/shared_compute.hpp"
#include "tawpipe/layers/body_script.hpp"
#include "tawpipe/layers/tensor_code.hpp"
#include "tawpipe/model/shared_stage.hpp"

namespace tawpipe::inline v0::layers {

/// How one layer's attention is shared. Bytes are those of a rank's own tokens.
class ContextPasses {
 public:
  ContextPasses(int ranks, ContextExchange exchange, std::int64_t query_bytes, std::int64_t key_value_bytes)
      : ranks_{ranks}, exchange_{exchange}, queries_{query_bytes}, keys_{key_value_bytes} {}

  bool is_shared() const { return ranks_ > 1; }

  /// Between the product of queries, keys and values and that of the results.
  void forward(BodyScript& script, std::int32_t layer) const {
    const int given = add(script, TensorCode::attention_send, layer);
    switch (exchange_) {
      case ContextExchange::ring:
        return ring_forward(script, layer, given);
      case ContextExchange::all_to_all: {
        const int sent = exchange(script, TensorCode::queries_swap, layer, Kind::all_to_all, false, queries_ + keys_, given);
        const int block = add(script, TensorCode::attention_block, layer, sent);
        const int back = exchange(script, TensorCode::results_swap, layer, Kind::all_to_all, false, queries_, block);
        add(script, TensorCode::attention_receive, layer, back);
        return;
      }
      default: {  // all_gather
        const int gathered = exchange(script, TensorCode::keys_gather, layer, Kind::all_gather, false, keys_ * ranks_, given);
        add(script, TensorCode::attention_block, layer, gathered);
      }
    }
  }

  /// @param given  the computation of the results' gradient. @return that of the input's
  int backward(BodyScript& script, std::int32_t layer, int given) const {
    int arrived = BodyScript::nothing;
    switch (exchange_) {
      case ContextExchange::ring:
        arrived = ring_backward(script, layer, given);
        break;
      case ContextExchange::all_to_all: {
        const int sent = exchange(script, TensorCode::results_swap, layer, Kind::all_to_all, true, queries_, given);
        const int block = add(script, TensorCode::attention_block_gradient, layer, sent);
        arrived = exchange(script, TensorCode::queries_swap, layer, Kind::all_to_all, true, queries_ + keys_, block);
        break;
      }
      default: {  // all_gather, of what the forward has kept
        const int gathered =
            exchange(script, TensorCode::keys_gather, layer, Kind::all_gather, false, keys_ * ranks_, BodyScript::nothing);
        const int block = add(script, TensorCode::attention_block_gradient, layer, gathered);
        arrived = exchange(script, TensorCode::keys_sum, layer, Kind::reduce_scatter, true, keys_ * ranks_, block);
      }
    }
    return add(script, TensorCode::attention_input_gradient, layer, arrived);
  }

 private:
  using Kind = BodyStep::Kind;

  static int add(BodyScript& script, TensorCode code, std::int32_t layer, int after = BodyScript::nothing,
                 std::int32_t block = 0) {
    return script.compute(static_cast<std::uint8_t>(code), layer, after, block);
  }
  int exchange(BodyScript& script, TensorCode code, std::int32_t layer, Kind kind, bool gradients, std::int64_t bytes, int given,
               std::int32_t block = 0) const {
    const BodyStep like{.kind = kind, .axis = BodyStep::Axis::context, .gradients = gradients, .bytes = Bytes{bytes}};
    return script.exchange({static_cast<std::uint8_t>(code), layer, block}, like, given);
  }

  /// Each block is computed while the next one's keys arrive.
  void ring_forward(BodyScript& script, std::int32_t layer, int product) const {
    int arrived = BodyScript::nothing;
    for (int block = 0; block < ranks_; ++block) {
      const int current = arrived;
      if (block + 1 < ranks_) {
        arrived = exchange(script, TensorCode::keys_pass, layer, Kind::ring, false, keys_, block == 0 ? product : current, block);
      }
      script.apart();
      add(script, TensorCode::attention_block, layer, current, block);
    }
  }
  /// Gradients of keys follow them a block later, so that they are where they belong after the last.
  int ring_backward(BodyScript& script, std::int32_t layer, int given) const {
    int arrived = BodyScript::nothing;
    for (int block = 0; block < ranks_; ++block) {
      const int current = arrived;
      const int parts = block > 0 && block + 1 < ranks_ ? 2 : 1;
      arrived = exchange(script, TensorCode::keys_pass, layer, Kind::ring, true, parts * keys_, given, block);
      script.apart();
      given = add(script, TensorCode::attention_block_gradient, layer, current, block);
    }
    return arrived;
  }

  int ranks_;
  ContextExchange exchange_;
  std::int64_t queries_;
  std::int64_t keys_;
};

}  // namespace tawpipe::layers
