// The forward of one rank's part of a layer, step by step, for the first time or again in a backward.
// Not: the edges and the backward (layers/host/tensor_llama.hpp), nor the memory (layers/host/tensor_memory.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tawpipe/backend/shared_compute.hpp"
#include "tawpipe/layers/host/attention.hpp"
#include "tawpipe/layers/host/blas.hpp"
#include "tawpipe/layers/host/kernels.hpp"
#include "tawpipe/layers/host/tensor_memory.hpp"
#include "tawpipe/layers/layer_tensors.hpp"
#include "tawpipe/layers/tensor_code.hpp"
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/decoder_constants.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::layers::host {

template <class T>
class TensorForward {
 public:
  /// @param part  tensor_part() of the model
  TensorForward(const Transformer& part, const Batch& batch, const DecoderConstants& constants)
      : width_{part}, epsilon_{static_cast<T>(constants.norm_epsilon)}, attention_{part, batch, constants} {}

  const Attention<T>& attention() const { return attention_; }

  /// @param weights  of the stage's layers
  void compute(const TensorMemory<T>& m, const StepOperation& operation, const std::byte* weights,
               const TensorMemoryForward<T>& of, const SharedPart& part) const {
    const std::int64_t hidden = width_.hidden;
    const std::int64_t all = m.all_tokens();
    const std::int64_t own = m.own_tokens();
    const auto w = m.template matrices<const T>(weights, operation.layer);
    const TensorMemoryLayer<T>& x = of.x;
    switch (static_cast<Code>(operation.code)) {
      case Code::attention_norm:
        rms_norm(x.input, w.attention_norm, x.attention_norm, own, hidden, epsilon_);
        break;
      case Code::attention_input: {
        T* const product = m.has_context() ? m.context().product(x.context, m.context_work(of.work)) : x.qkv;
        project(m.by_tokens() ? of.work : x.attention_norm, w.qkv, product, all, hidden, width_.query + 2 * width_.key);
        if (m.has_context()) {
          m.context().rotate_product(attention_, x.context, m.context_work(of.work), part.context);
        } else {
          attention_.rotate(product);
        }
        break;
      }
      case Code::attention:
        attention_.forward(x.qkv, x.attention, m.scratch(of.work));
        break;
      case Code::attention_send:
        m.context().send(x.context, m.context_work(of.work));
        break;
      case Code::attention_block:
        m.context().block(x.context, m.context_work(of.work), part.context, operation.block);
        break;
      case Code::attention_receive:
        m.context().receive(x.context, m.context_work(of.work));
        break;
      case Code::attention_output:
        project(x.attention, w.output, m.partial(of.work, x.middle), all, width_.query, hidden);
        break;
      case Code::middle:
        add_to(x.middle, x.input, own * hidden);
        break;
      case Code::ffn_norm:
        rms_norm(x.middle, w.ffn_norm, x.ffn_norm, own, hidden, epsilon_);
        break;
      case Code::ffn_input: {
        if (width_.dense == 0) break;  // there are experts only
        const T* const input = m.ffn_input(x, of.work);
        project(input, w.gate, x.gate, all, hidden, width_.dense);
        project(input, w.up, x.up, all, hidden, width_.dense);
        break;
      }
      case Code::ffn_function:
        swiglu(x.gate, x.up, x.sigmoid, x.product, all * width_.dense);
        break;
      case Code::route:
        m.experts().route(w.router, m.routed_input(x), x.experts, m.expert_work(of.work));
        break;
      case Code::experts:
        m.experts().compute(w, x.experts, m.expert_work(of.work));
        break;
      case Code::experts_function:
        m.experts().function(x.experts);
        break;
      case Code::ffn_output:
        if (width_.dense > 0) {
          project(x.product, w.down, m.partial(of.work, of.output), all, width_.dense, hidden);
        } else if (m.routes_all_tokens()) {
          std::fill_n(m.partial(of.work, of.output), all * hidden, T{0});
        } else {
          std::fill_n(of.output, own * hidden, T{0});
        }
        break;
      case Code::mix:
        m.experts().mix(x.experts, m.routes_all_tokens() ? m.partial(of.work, of.output) : of.output);
        break;
      default:  // output
        add_to(of.output, x.middle, own * hidden);
    }
  }
  ExchangeArgs exchange(const TensorMemory<T>& m, const StepOperation& operation, const TensorMemoryForward<T>& of) const {
    const ContextAttention<T>& context = m.context();
    T* const context_work = m.context_work(of.work);
    const auto args = [&](const T* from, const T* to) {
      return ExchangeArgs{.from = bytes(from), .to = bytes(to), .count = m.all_tokens() * width_.hidden};
    };
    // What the ranks' products give, to be summed.
    const auto summed = [&](T* to) { return args(m.partial(of.work, to), to); };
    switch (static_cast<Code>(operation.code)) {
      case Code::attention_gather:
        return args(of.x.attention_norm, of.work);
      case Code::attention_sum:
        return summed(of.x.middle);
      case Code::ffn_gather:
        return args(of.x.ffn_norm, m.gathered_ffn(of.x, of.work));
      case Code::keys_gather:
        return context.gathered_keys(of.x.context, context_work);
      case Code::keys_pass:
        return context.passed_keys(of.x.context, context_work, operation.block);
      case Code::queries_swap:
        return context.sent_queries(of.x.context, context_work);
      case Code::results_swap:
        return context.sent_results(of.x.context, context_work);
      case Code::dispatch:
        return m.experts().dispatched(of.x.experts, m.expert_work(of.work));
      case Code::combine:
        return m.experts().returned(of.x.experts, m.expert_work(of.work));
      default:  // ffn_sum
        return summed(of.output);
    }
  }

 private:
  using Code = TensorCode;

  static std::byte* bytes(const T* numbers) { return reinterpret_cast<std::byte*>(const_cast<T*>(numbers)); }

  TokenWidths width_;
  T epsilon_;
  Attention<T> attention_;
};

}  // namespace tawpipe::layers::host
