// One rank's part of a LLaMA decoder whose stages ranks share, on the CPU, step by step.
// Not: a decoder on one rank (layers/host/llama.hpp), nor the messages between the ranks (execute/).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tawpipe/backend/shared_compute.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/layers/checked_llama.hpp"
#include "tawpipe/layers/context_passes.hpp"
#include "tawpipe/layers/host/blas.hpp"
#include "tawpipe/layers/host/kernels.hpp"
#include "tawpipe/layers/host/llama.hpp"
#include "tawpipe/layers/host/tensor_forward.hpp"
#include "tawpipe/layers/host/tensor_memory.hpp"
#include "tawpipe/layers/host/vocabulary_part.hpp"
#include "tawpipe/layers/layer_tensors.hpp"
#include "tawpipe/layers/tensor_code.hpp"
#include "tawpipe/layers/tensor_passes.hpp"
#include "tawpipe/model/decoder_constants.hpp"
#include "tawpipe/model/shared_stage.hpp"
#include "tawpipe/model/tensor_part.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::layers::host {

/// Computes one rank's part of any stage of a LLaMA decoder in numbers of type T.
///
/// Models SharedLayerCompute; where no ranks share a stage it is a Llama. Queries, keys, values, gate
/// and up are column-parallel, output and down row-parallel, embedding and loss parallel over the
/// vocabulary. With sequence parallelism norms, residual sums and messages between stages have a part
/// of the tokens, the rank's rows of [tokens, hidden]; otherwise all. Context-parallel ranks have the
/// tokens of ContextTokens each, whole weights of these, and exchange keys and values or heads
/// (ContextAttention).
/// A backward repeats what the policy does not keep, with its collectives. Sizes: tensor_stages().
/// Source: Shoeybi et al. 2019, arXiv:1909.08053, section 3; Korthikanti et al. 2022,
/// arXiv:2205.05198, section 4.2.
template <class T>
class TensorLlama {
 public:
  /// @throws InputError  as Llama, tensor_part() and TensorMemory
  TensorLlama(const Transformer& model, const Batch& batch, Recompute recompute, const DecoderConstants& constants,
              const Sharing& sharing = {})
      : whole_{model, batch, recompute, constants},
        part_{tensor_part(checked_llama(model, batch, constants, model.dtype), sharing.tensor, sharing.whole_experts)},
        memory_{part_, batch, recompute, sharing},
        width_{part_},
        vocabulary_{model.vocab, part_.vocab, part_.hidden, memory_.context().tokens()},
        microbatch_{batch.tokens()},
        all_{memory_.all_tokens()},
        own_{memory_.own_tokens()},
        epsilon_{static_cast<T>(constants.norm_epsilon)},
        forward_{part_, batch_of_rank(batch, sharing), constants} {
    check_shared(model, constants, sharing);
  }

  void forward(const ForwardArgs& args) { whole_.forward(args); }
  void backward(const BackwardArgs& args) { whole_.backward(args); }
  void backward_input(const BackwardArgs& args) { whole_.backward_input(args); }
  void backward_weight(const BackwardArgs& args) { whole_.backward_weight(args); }

  /// @throws ScheduleError  if the body is not that of this code: as BodyScript::over()
  StepPlan plan(const Passes& passes, const StageWork& stage, const StageBody& body, const SharedPart& part) const {
    constexpr std::int64_t element{sizeof(T)};
    const ContextPasses context{memory_.has_context() ? memory_.context().tokens().ranks() : 1, memory_.exchange(),
                                all_ * width_.query * element, 2 * all_ * width_.key * element};
    const TensorPasses all{{.sums = memory_.ranks() > 1,
                            .by_tokens = memory_.by_tokens(),
                            .gathers_messages = memory_.gathers_messages(stage),
                            .recompute = memory_.recompute(),
                            .stops_early = part_.stops_early(),
                            .dense = width_.dense > 0,
                            .experts = !memory_.has_experts()        ? TensorPasses::Experts::none
                                       : memory_.routes_all_tokens() ? TensorPasses::Experts::all_tokens
                                                                     : TensorPasses::Experts::own_tokens,
                            .expert_bytes = memory_.sends_to_experts() ? own_ * width_.routing * element : 0},
                           context,
                           all_,
                           width_.hidden,
                           element};
    return all.plan(passes, stage, body, part);
  }

  void run(const StepPlan& plan, std::size_t step, const ForwardArgs& args) {
    for (const StepOperation& operation : plan.operations[step]) compute(operation, args, plan.part);
  }
  void run(const StepPlan& plan, std::size_t step, const BackwardArgs& args) {
    for (const StepOperation& operation : plan.operations[step]) compute(operation, args, plan);
  }

  ExchangeArgs exchange(const StepPlan& plan, std::size_t step, const ForwardArgs& args) const {
    const StepOperation& operation = plan.operations[step].front();
    const TensorMemory<T>& m = memory_;
    switch (static_cast<Code>(operation.code)) {
      case Code::message:
        return gathered(reinterpret_cast<const T*>(args.input.data()), m.reached(args, 0));
      case Code::embedding_sum:
        return {bytes(m.partial(args, m.reached(args, 0))), bytes(m.reached(args, 0)), stream(), Combine::sum};
      case Code::head_gather:
        return gathered(m.head(args.saved, args.stage->layers).normed, m.head_input(args));
      case Code::loss_sum:
        return {bytes(m.triples(args)), bytes(m.triples(args)), 3 * all_, Combine::softmax};
      default:
        return forward_.exchange(m, operation, m.layer(args, operation.layer));
    }
  }
  ExchangeArgs exchange(const StepPlan& plan, std::size_t step, const BackwardArgs& args) const {
    const auto [code, layer, block, again] = plan.operations[step].front();
    const TensorMemory<T>& m = memory_;
    if (again) return forward_.exchange(m, plan.operations[step].front(), m.layer_again(args, plan.passes, layer));
    const TensorMemoryLayer<T> x = m.layer(args, plan.passes, layer);
    switch (static_cast<Code>(code)) {
      case Code::message:
        return gathered(reinterpret_cast<const T*>(args.output_gradient.data()), m.gradient(args));
      case Code::head_gather:
        return gathered(m.head(args.saved, args.stage->layers).normed, m.inputs(args, plan.passes, 0));
      case Code::ffn_gather:
        return gathered(x.ffn_norm, m.inputs(args, plan.passes, 0));
      case Code::attention_gather:
        return gathered(x.attention_norm, m.inputs(args, plan.passes, plan.passes.backward_input ? 0 : 1));
      case Code::ffn_gradient:
        return gathered(m.gradient(args), m.kept_gradient(args, plan.passes, layer, false));
      case Code::attention_gradient:
        return gathered(m.gradient(args), m.kept_gradient(args, plan.passes, layer, true));
      case Code::embedding_gradient:
        return gathered(m.gradient(args), m.lookup_gradient(args, plan.passes));
      case Code::keys_gather:
        return m.context().gathered_again(x.context, m.context_work(args));
      case Code::keys_sum:
        return m.context().summed_keys(m.context_work(args));
      case Code::keys_pass:
        return m.context().passed_gradients(x.context, m.context_work(args), block);
      case Code::queries_swap:
        return m.context().returned_gradients(m.context_work(args));
      case Code::results_swap:
        return m.context().sent_gradient(m.context_work(args));
      case Code::results_gradient:
        return m.experts().gave(x.experts, m.expert_work(args));
      case Code::copies_gradient:
        return m.experts().gave_back(x.experts, m.expert_work(args));
      default:  // head_sum, ffn_sum, attention_sum
        return {bytes(m.partial(args)), bytes(m.summed(args)), all_ * width_.hidden, Combine::sum};
    }
  }

 private:
  using Code = TensorCode;
  using Chunk = typename VocabularyPart<T>::Chunk;

  static std::byte* bytes(const T* numbers) { return reinterpret_cast<std::byte*>(const_cast<T*>(numbers)); }
  std::int64_t stream() const { return all_ * width_.hidden; }
  ExchangeArgs gathered(const T* own, T* all) const { return {bytes(own), bytes(all), stream(), Combine::sum}; }

  // ---- forward ----------------------------------------------------------------------------------

  void compute(const StepOperation& operation, const ForwardArgs& args, const SharedPart& part) const {
    const TensorMemory<T>& m = memory_;
    switch (static_cast<Code>(operation.code)) {
      case Code::look_up:
        vocabulary_.look_up(reinterpret_cast<const T*>(args.weights.first_edge), args.tokens, part,
                            m.partial(args, m.reached(args, 0)));
        break;
      case Code::take:
        copy(reinterpret_cast<const T*>(args.input.data()), m.reached(args, 0));
        break;
      case Code::pass_on:
        m.pass_on(args, part.tensor);
        break;
      case Code::head_norm: {
        const TensorMemoryHead<T> head = m.head(args.saved, args.stage->layers);
        rms_norm(head.input, reinterpret_cast<const T*>(args.weights.last_edge), head.normed, own_, width_.hidden, epsilon_);
        break;
      }
      case Code::logits:
        logits(args, part);
        break;
      case Code::loss:
        loss(args, part);
        break;
      default:
        forward_.compute(m, operation, args.weights.layers, m.layer(args, operation.layer), part);
    }
  }
  void copy(const T* from, T* to) const {
    if (from != to) std::copy_n(from, own_ * width_.hidden, to);
  }
  void logits(const ForwardArgs& args, const SharedPart& part) const {
    T* const kept = memory_.head(args.saved, args.stage->layers).logits;
    for_each_chunk([&](const Chunk& chunk) {
      T* const logits = memory_.chunked() ? memory_.chunk(args) : kept;
      project(memory_.head_input(args), memory_.template output_matrix<const T>(args.weights) + chunk.begin * width_.hidden,
              logits, all_, width_.hidden, chunk.count);
      vocabulary_.add_triples(logits, args.targets, part, chunk, memory_.triples(args));
    });
  }
  /// Context-parallel ranks have the losses of their tokens each.
  void loss(const ForwardArgs& args, const SharedPart& part) const {
    *args.loss = vocabulary_.loss(memory_.triples(args)) / static_cast<double>(microbatch_);
    if (memory_.chunked()) return;
    vocabulary_.softmax(memory_.triples(args), part, {0, part_.vocab}, memory_.head(args.saved, args.stage->layers).logits);
  }

  // ---- backward ---------------------------------------------------------------------------------

  void compute(const StepOperation& operation, const BackwardArgs& args, const StepPlan& plan) const {
    const TensorMemory<T>& m = memory_;
    const std::int64_t hidden = width_.hidden;
    const std::int32_t l = operation.layer;
    if (operation.again)
      return forward_.compute(m, operation, args.weights.layers, m.layer_again(args, plan.passes, l), plan.part);
    const auto w = m.template matrices<const T>(args.weights.layers, l);
    const auto g = m.template matrices<T>(args.gradients.layers, l);
    const TensorMemoryLayer<T> x = m.layer(args, plan.passes, l);
    T* const gradient = m.gradient(args);
    switch (static_cast<Code>(operation.code)) {
      case Code::take:
        copy(reinterpret_cast<const T*>(args.output_gradient.data()), gradient);
        break;
      case Code::mix_gradient:
        m.experts().mix_gradient(m.routes_all_tokens() ? m.kept_gradient(args, plan.passes, l, false) : gradient, x.experts,
                                 m.expert_work(args));
        break;
      case Code::experts_gradient:
        m.experts().input_gradient(w, x.experts, m.expert_work(args));
        break;
      case Code::experts_weight:
        m.experts().add_weight_gradients(g, x.experts);
        break;
      case Code::ffn_backward: {
        if (width_.dense == 0) {
          const bool all = m.routes_all_tokens();
          std::fill_n(all ? m.partial(args) : m.summed(args), (all ? all_ : own_) * hidden, T{0});
          break;
        }
        const T* const from = incoming(args, plan.passes, l, false);
        T* const partial = m.partial(args);
        project_back(from, w.down, partial, all_, width_.dense, hidden);
        swiglu_backward(x.gate, x.up, x.sigmoid, partial, all_ * width_.dense);
        project_back(x.gate, w.gate, partial, all_, hidden, width_.dense);
        project_back(x.up, w.up, partial, all_, hidden, width_.dense, T{1});
        break;
      }
      case Code::experts_input:
        m.experts().add_input_gradient(w.router, x.experts, m.expert_work(args),
                                       m.routes_all_tokens() ? m.partial(args) : m.summed(args));
        break;
      case Code::ffn_weight: {
        if (m.has_experts()) m.experts().add_router_gradient(m.routed_input(x), x.experts, g.router);
        if (width_.dense == 0) break;
        const T* const input = m.ffn_input(x, m.inputs(args, plan.passes, 0));
        add_weight_gradient(m.kept_gradient(args, plan.passes, l, false), x.product, g.down, all_, width_.dense, hidden);
        add_weight_gradient(x.gate, input, g.gate, all_, hidden, width_.dense);
        add_weight_gradient(x.up, input, g.up, all_, hidden, width_.dense);
        break;
      }
      case Code::ffn_norm_gradient:
        norm_gradient(x.middle, w.ffn_norm, x.norm_gradients + hidden, args);
        break;
      case Code::attention_backward: {
        const T* const from = incoming(args, plan.passes, l, true);
        T* const partial = m.partial(args);
        project_back(from, w.output, partial, all_, width_.query, hidden);
        if (m.has_context()) m.context().prepare_gradient(partial, m.context_work(args));
        break;
      }
      case Code::attention_block_gradient:
        m.context().block_gradient(x.context, m.partial(args), m.context_work(args), plan.part.context, operation.block);
        break;
      case Code::attention_input_gradient:
        if (m.has_context()) {
          m.context().finish_gradient(forward_.attention(), x.context, m.context_work(args), plan.part.context);
        } else {
          forward_.attention().backward(x.qkv, m.partial(args), m.partial(args) + all_ * width_.query);
        }
        project_back(x.qkv, w.qkv, m.partial(args), all_, hidden, width_.query + 2 * width_.key);
        break;
      case Code::attention_weight: {
        const T* const input = m.by_tokens() ? m.inputs(args, plan.passes, plan.passes.backward_input ? 0 : 1) : x.attention_norm;
        add_weight_gradient(m.kept_gradient(args, plan.passes, l, true), x.attention, g.output, all_, width_.query, hidden);
        add_weight_gradient(x.qkv, input, g.qkv, all_, hidden, width_.query + 2 * width_.key);
        break;
      }
      case Code::attention_norm_gradient:
        norm_gradient(x.input, w.attention_norm, x.norm_gradients, args);
        break;
      case Code::norm_weights:
        add_to(g.attention_norm, x.norm_gradients, hidden);
        add_to(g.ffn_norm, x.norm_gradients + hidden, hidden);
        break;
      case Code::look_up_gradient:
        vocabulary_.add_rows(m.lookup_gradient(args, plan.passes), args.tokens, plan.part,
                             reinterpret_cast<T*>(args.gradients.first_edge));
        break;
      case Code::give:
        m.give(args, plan.passes, plan.part.tensor);
        break;
      default:
        compute_head(operation, args, plan);
    }
  }
  void compute_head(const StepOperation& operation, const BackwardArgs& args, const StepPlan& plan) const {
    const TensorMemory<T>& m = memory_;
    const std::int64_t hidden = width_.hidden;
    const TensorMemoryHead<T> head = m.head(args.saved, args.stage->layers);
    switch (static_cast<Code>(operation.code)) {
      case Code::loss_gradient:
        for_each_chunk([&](const Chunk& chunk) { loss_gradient(args, plan, chunk); });
        break;
      case Code::head_weight:
        if (m.chunked() && plan.passes.backward_input) break;  // added with each chunk's gradient
        for_each_chunk([&](const Chunk& chunk) {
          add_weight_gradient(m.chunked() ? m.chunk(args, plan.passes, chunk.begin) : head.logits,
                              m.by_tokens() ? m.inputs(args, plan.passes, 0) : head.normed,
                              m.template output_matrix<T>(args.gradients) + chunk.begin * hidden, all_, hidden, chunk.count);
        });
        break;
      case Code::head_norm_gradient: {
        T* const summed = m.summed(args);
        rms_norm_backward(head.input, reinterpret_cast<const T*>(args.weights.last_edge), summed, head.norm_gradient, own_,
                          hidden, epsilon_);
        copy(summed, m.gradient(args));
        break;
      }
      default:  // head_norm_weight
        add_to(reinterpret_cast<T*>(args.gradients.last_edge), head.norm_gradient, hidden);
    }
  }

  /// Of the output matrix too where it is computed in chunks, of which the next overwrites this one.
  void loss_gradient(const BackwardArgs& args, const StepPlan& plan, const Chunk& chunk) const {
    const TensorMemory<T>& m = memory_;
    const TensorMemoryHead<T> head = m.head(args.saved, args.stage->layers);
    const std::int64_t first = chunk.begin * width_.hidden;
    const T* const weights = m.template output_matrix<const T>(args.weights) + first;
    T* const logits = m.chunked() ? m.chunk(args, plan.passes, chunk.begin) : head.logits;
    if (m.chunked()) {
      project(head.all_normed, weights, logits, all_, width_.hidden, chunk.count);
      vocabulary_.softmax(head.triples, plan.part, chunk, logits);
    }
    const T factor = static_cast<T>(args.scale / static_cast<double>(microbatch_));
    vocabulary_.loss_gradient(logits, args.targets, plan.part, chunk, factor);
    project_back(logits, weights, m.partial(args), all_, width_.hidden, chunk.count, chunk.begin > 0 ? T{1} : T{0});
    if (!m.chunked() || !plan.passes.backward_weight) return;
    add_weight_gradient(logits, head.all_normed, m.template output_matrix<T>(args.gradients) + first, all_, width_.hidden,
                        chunk.count);
  }
  /// Calls `visit(chunk)` for those of the rank's part of the vocabulary; all at once if the loss is.
  template <class Visit>
  void for_each_chunk(Visit&& visit) const {
    for (std::int64_t begin = 0; begin < part_.vocab; begin += memory_.chunk_entries())
      visit(Chunk{begin, std::min<std::int64_t>(memory_.chunk_entries(), part_.vocab - begin)});
  }

  /// The gradient of a sublayer's output, of all tokens, where its weights' gradients find it.
  const T* incoming(const BackwardArgs& args, const Passes& passes, std::int32_t layer, bool attention) const {
    T* const kept = memory_.kept_gradient(args, passes, layer, attention);
    if (!memory_.by_tokens()) copy(memory_.gradient(args), kept);
    return kept;
  }
  void norm_gradient(const T* input, const T* gain, T* sums, const BackwardArgs& args) const {
    T* const summed = memory_.summed(args);
    rms_norm_backward(input, gain, summed, sums, own_, width_.hidden, epsilon_);
    add_to(memory_.gradient(args), summed, own_ * width_.hidden);
  }

  Llama<T> whole_;
  Transformer part_;
  TensorMemory<T> memory_;
  TokenWidths width_;
  VocabularyPart<T> vocabulary_;
  std::int64_t microbatch_;  // tokens
  std::int64_t all_;         // of these, of the ranks that have the same
  std::int64_t own_;         // of these, in norms and residual sums
  T epsilon_;
  TensorForward<T> forward_;
};

static_assert(SharedLayerCompute<TensorLlama<float>> && SharedLayerCompute<TensorLlama<double>>);

}  // namespace tawpipe::layers::host
