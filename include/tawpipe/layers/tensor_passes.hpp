// The operations and collectives of the passes of a decoder whose stages ranks share, in the order of the mathematics.
// Not: what they compute (layers/host/tensor_llama.hpp) nor the body's steps (layers/body_script.hpp).
#pragma once

#include <cstdint>
#include <utility>

#include "tawpipe/backend/shared_compute.hpp"
#include "tawpipe/layers/body_script.hpp"
#include "tawpipe/layers/context_passes.hpp"
#include "tawpipe/layers/tensor_code.hpp"
#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/shared_stage.hpp"
#include "tawpipe/model/stage_work.hpp"

namespace tawpipe::inline v0::layers {

/// The passes through one stage.
class TensorPasses {
 public:
  /// Which tokens a rank routes to experts.
  enum class Experts : std::uint8_t {
    none,        ///< there are no experts
    own_tokens,  ///< its own, whose results are then whole
    all_tokens,  ///< those of the tensor-parallel ranks, which divide each expert's width
  };
  /// How tensor-parallel ranks share what they compute.
  struct Split {
    bool sums = true;               ///< there are several such ranks
    bool by_tokens = false;         ///< sequence parallelism
    bool gathers_messages = false;  ///< stages hand on a part of the tokens
    Recompute recompute = Recompute::none;
    bool stops_early = false;  ///< full recomputation leaves out what no gradient needs
    bool dense = true;         ///< there is an MLP that every token passes
    Experts experts = Experts::none;
    std::int64_t expert_bytes = 0;  ///< of the copies of a rank's tokens that are sent to experts; 0: none is
  };

  /// @param tokens  of the ranks that have the same. @param element  bytes of a number
  TensorPasses(const Split& split, const ContextPasses& context, std::int64_t tokens, std::int64_t hidden, std::int64_t element)
      : sums_{split.sums},
        by_tokens_{split.by_tokens},
        gathers_messages_{split.gathers_messages},
        recompute_{split.recompute},
        stops_early_{split.stops_early},
        sums_ffn_{split.dense || split.experts == Experts::all_tokens},
        experts_{split.experts},
        expert_bytes_{split.expert_bytes},
        context_{context},
        stream_bytes_{tokens * hidden * element},
        triples_bytes_{3 * tokens * element} {}

  /// @throws ScheduleError  as BodyScript::over()
  StepPlan plan(const Passes& passes, const StageWork& stage, const StageBody& body, const SharedPart& part) const {
    BodyScript script;
    if (passes.forward) {
      plan_forward(script, stage);
    } else if (passes.backward_input) {
      plan_backward(script, stage, passes.backward_weight);
    } else {
      plan_weights(script, stage);
    }
    return script.over(body, passes, part);
  }

 private:
  using Code = TensorCode;
  using Kind = BodyStep::Kind;
  static constexpr int nothing = BodyScript::nothing;

  int add(BodyScript& script, Code code, std::int32_t layer, int after = nothing) const {
    return script.compute(static_cast<std::uint8_t>(code), layer, after);
  }
  /// With sequence parallelism only. @return the item to wait for
  int gather(BodyScript& script, Code code, std::int32_t layer, bool gradients, int given_by) const {
    if (!by_tokens_) return nothing;
    return script.exchange(static_cast<std::uint8_t>(code), layer, Kind::all_gather, gradients, stream_bytes_, given_by);
  }
  int sum(BodyScript& script, Code code, std::int32_t layer, bool gradients, int given_by) const {
    if (!sums_) return nothing;
    return script.exchange(static_cast<std::uint8_t>(code), layer, by_tokens_ ? Kind::reduce_scatter : Kind::all_reduce,
                           gradients, stream_bytes_, given_by);
  }
  int message(BodyScript& script, bool gradients) const {
    return script.exchange(static_cast<std::uint8_t>(Code::message), 0, Kind::all_gather, gradients, stream_bytes_, nothing);
  }

  void plan_forward(BodyScript& script, const StageWork& stage) const {
    int arrived = nothing;
    if (stage.first_edge) {
      arrived = sum(script, Code::embedding_sum, 0, false, add(script, Code::look_up, 0));
    } else if (gathers_messages_) {
      arrived = message(script, false);
    } else {
      add(script, Code::take, 0);
    }
    for (std::int32_t l = 0; l < stage.layers; ++l) {
      arrived = plan_layer(script, l, arrived, true).sum;
      add(script, Code::output, l, arrived);
    }
    if (!stage.last_edge) {
      add(script, Code::pass_on, 0, arrived);
      return;
    }
    script.apart();
    const int norm = add(script, Code::head_norm, 0, arrived);
    const int logits = add(script, Code::logits, 0, gather(script, Code::head_gather, 0, false, norm));
    const auto sum_code = static_cast<std::uint8_t>(Code::loss_sum);
    add(script, Code::loss, 0, sums_ ? script.exchange(sum_code, 0, Kind::all_reduce, false, triples_bytes_, logits) : nothing);
  }

  /// Of a layer's forward: the norms that products read, and its last sum.
  struct Forward {
    int attention_norm = nothing;
    int ffn_norm = nothing;
    int sum = nothing;
  };
  void attention(BodyScript& script, std::int32_t l) const {
    if (context_.is_shared()) {
      context_.forward(script, l);
    } else {
      add(script, Code::attention, l);
    }
  }
  /// Copies of tokens go to the experts of all ranks, or back. @return the item to wait for
  int send(BodyScript& script, Code code, std::int32_t layer, bool gradients, int given_by) const {
    if (expert_bytes_ == 0) return nothing;
    const BodyStep like{
        .kind = Kind::all_to_all, .axis = BodyStep::Axis::all, .gradients = gradients, .bytes = Bytes{expert_bytes_}};
    return script.exchange({static_cast<std::uint8_t>(code), layer}, like, given_by);
  }
  bool routes(Experts tokens) const { return experts_ == tokens; }
  /// @param arrived  the tokens. @return their experts' results
  int plan_experts(BodyScript& script, std::int32_t l, int arrived) const {
    const int sent = send(script, Code::dispatch, l, false, add(script, Code::route, l, arrived));
    return send(script, Code::combine, l, false, add(script, Code::experts, l, sent));
  }
  /// @param arrived  the gradient of the experts' results. @return that of the copies
  int plan_experts_backward(BodyScript& script, std::int32_t l, bool weight, int arrived) const {
    const int sent = send(script, Code::results_gradient, l, true, add(script, Code::mix_gradient, l, arrived));
    if (recompute_ == Recompute::selective) {
      script.repeats(true);
      add(script, Code::experts_function, l, sent);
      script.repeats(false);
    }
    const int given = add(script, Code::experts_gradient, l, sent);
    if (weight) add(script, Code::experts_weight, l);
    return send(script, Code::copies_gradient, l, true, given);
  }
  /// A layer's forward but for its last sum with the residual stream. @param whole  with what no gradient needs
  Forward plan_layer(BodyScript& script, std::int32_t l, int arrived, bool whole) const {
    Forward of;
    of.attention_norm = add(script, Code::attention_norm, l, arrived);
    add(script, Code::attention_input, l, gather(script, Code::attention_gather, l, false, of.attention_norm));
    attention(script, l);
    const int product = add(script, Code::attention_output, l);
    add(script, Code::middle, l, sum(script, Code::attention_sum, l, false, product));
    of.ffn_norm = add(script, Code::ffn_norm, l);
    add(script, Code::ffn_input, l, sums_ffn_ ? gather(script, Code::ffn_gather, l, false, of.ffn_norm) : nothing);
    add(script, Code::ffn_function, l);
    if (!whole) return of;
    int given = add(script, Code::ffn_output, l);
    if (routes(Experts::all_tokens)) {
      plan_experts(script, l, nothing);
      given = add(script, Code::mix, l);
    }
    if (sums_ffn_) of.sum = sum(script, Code::ffn_sum, l, false, given);
    if (!routes(Experts::own_tokens)) return of;
    add(script, Code::mix, l, plan_experts(script, l, nothing));
    script.also_after(std::exchange(of.sum, nothing));
    return of;
  }
  /// What a backward repeats of a layer's forward before it begins with the layer.
  /// @param arrived  what it reads first; nothing: it is there
  Forward plan_again(BodyScript& script, std::int32_t l, int arrived) const {
    Forward of;
    script.repeats(true);
    if (recompute_ == Recompute::full) {
      of = plan_layer(script, l, arrived, !stops_early_);
    } else if (recompute_ == Recompute::selective) {
      of.ffn_norm = add(script, Code::ffn_norm, l, arrived);
      add(script, Code::ffn_function, l);
      of.attention_norm = add(script, Code::attention_norm, l);
    }
    script.repeats(false);
    return of;
  }

  void plan_backward(BodyScript& script, const StageWork& stage, bool weight) const {
    int arrived = nothing;
    if (stage.last_edge) {
      const int inputs = weight ? gather(script, Code::head_gather, 0, true, nothing) : nothing;
      const int summed = sum(script, Code::head_sum, 0, true, add(script, Code::loss_gradient, 0));
      if (weight) add(script, Code::head_weight, 0, inputs);
      add(script, Code::head_norm_gradient, 0, summed);
      if (weight) add(script, Code::head_norm_weight, 0);
      if (weight) script.apart();
    } else if (gathers_messages_) {
      arrived = message(script, true);
    } else {
      add(script, Code::take, 0);
    }
    for (std::int32_t l = stage.layers; l-- > 0;) {
      int given = script.last();
      const Forward again = plan_again(script, l, arrived);
      if (again.sum != nothing) (by_tokens_ ? given : arrived) = again.sum;
      const int copies =
          routes(Experts::own_tokens) ? plan_experts_backward(script, l, weight, std::exchange(arrived, nothing)) : nothing;
      // Experts keep what they read.
      const auto inputs = [&](Code code, int norm) {
        return weight && (code != Code::ffn_gather || routes(Experts::none)) ? gather(script, code, l, false, norm) : nothing;
      };
      int gathered = sums_ffn_ ? gather(script, Code::ffn_gradient, l, true, given) : nothing;
      int read = inputs(Code::ffn_gather, again.ffn_norm);
      if (!by_tokens_) gathered = std::exchange(arrived, nothing);
      if (routes(Experts::all_tokens)) plan_experts_backward(script, l, weight, gathered);
      given = add(script, Code::ffn_backward, l, gathered);
      if (routes(Experts::all_tokens)) given = add(script, Code::experts_input, l);
      const int summed = sums_ffn_ ? sum(script, Code::ffn_sum, l, true, given) : nothing;
      if (weight) add(script, Code::ffn_weight, l, read);
      if (routes(Experts::own_tokens)) {
        add(script, Code::experts_input, l, copies);
        script.also_after(summed);
      }
      given = add(script, Code::ffn_norm_gradient, l, summed);

      gathered = gather(script, Code::attention_gradient, l, true, given);
      read = inputs(Code::attention_gather, again.attention_norm);
      given = plan_attention_backward(script, l, add(script, Code::attention_backward, l, gathered));
      const int attended = sum(script, Code::attention_sum, l, true, given);
      if (weight) add(script, Code::attention_weight, l, read);
      add(script, Code::attention_norm_gradient, l, attended);
      if (weight) add(script, Code::norm_weights, l);
    }
    if (stage.first_edge) {
      const int given = script.last();
      const int gathered = gather(script, Code::embedding_gradient, 0, true, given);
      if (weight || !by_tokens_) {
        add(script, weight ? Code::look_up_gradient : Code::give, 0, by_tokens_ ? gathered : arrived);
      }
    } else {
      add(script, Code::give, 0, arrived);
    }
  }

  /// @param given  the computation of the results' gradient. @return that of the input's
  int plan_attention_backward(BodyScript& script, std::int32_t l, int given) const {
    if (recompute_ == Recompute::selective) {
      script.repeats(true);
      attention(script, l);
      script.repeats(false);
    }
    if (context_.is_shared()) return context_.backward(script, l, given);
    return add(script, Code::attention_input_gradient, l);
  }

  void plan_weights(BodyScript& script, const StageWork& stage) const {
    if (stage.last_edge) {
      add(script, Code::head_weight, 0, gather(script, Code::head_gather, 0, true, nothing));
      add(script, Code::head_norm_weight, 0);
      script.apart();
    }
    for (std::int32_t l = stage.layers; l-- > 0;) {
      const int ffn = routes(Experts::none) ? gather(script, Code::ffn_gather, l, false, nothing) : nothing;
      const int attention = gather(script, Code::attention_gather, l, false, nothing);
      if (!routes(Experts::none)) add(script, Code::experts_weight, l);
      add(script, Code::ffn_weight, l, ffn);
      add(script, Code::attention_weight, l, attention);
      add(script, Code::norm_weights, l);
    }
    if (stage.first_edge) add(script, Code::look_up_gradient, 0);
  }

  bool sums_;
  bool by_tokens_;
  bool gathers_messages_;
  Recompute recompute_;
  bool stops_early_;
  bool sums_ffn_;  // the feed-forward part has summands of the tensor-parallel ranks
  Experts experts_;
  std::int64_t expert_bytes_;
  ContextPasses context_;
  std::int64_t stream_bytes_;   // of [tokens, hidden]
  std::int64_t triples_bytes_;  // of the loss's numbers of each token
};

}  // namespace tawpipe::layers
