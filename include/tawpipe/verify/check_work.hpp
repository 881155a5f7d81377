// What a schedule says of its work: its model, batch, recomputation and stages agree (V115), and
// computations move what the model's code copies (V116).
// Not: the layout (verify/check_layout.hpp), nor sizes of parameters (verify/check_parameters.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/verify/diagnostics.hpp"

namespace tawpipe::inline v0 {

/// Adds a finding where the model's parts are not those of the decoder that it holds, or a stage is not
/// that of its layers in the model.
/// @pre check_structure() and check_parameters() find nothing. Complexity: O(parts).
TAWPIPE_INLINE void check_work(const Schedule& schedule, Diagnostics& out);

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/model/transformer_body.hpp"
#include "tawpipe/model/transformer_work.hpp"
#include "tawpipe/schedule/describe.hpp"

namespace tawpipe::inline v0 {

namespace detail {

class WorkCheck {
 public:
  WorkCheck(const Schedule& schedule, Diagnostics& out) : schedule_{schedule}, parts_{schedule.parts()}, out_{out} {}

  void run() {
    if (!schedule_.workload().is_abstract() && model()) stages();
    copies();
  }

 private:
  template <class Message>
  void error(std::string_view code, TaskId task, Rank rank, Message&& message, std::string_view help) {
    out_.error(code, task, rank, message, help);
  }

  // ---- model and stages -------------------------------------------------------------------------

  static bool equal(Flops a, Flops b) { return std::abs(a.value() - b.value()) <= 1e-9 * std::abs(b.value()); }
  template <class Number>
  static bool equal(Number a, Number b) {
    return a == b;
  }
  /// A stage's number by its name in files.
  using StageNumber = std::variant<std::int64_t StageWork::*, Bytes StageWork::*, Flops StageWork::*>;
  static constexpr std::pair<std::string_view, StageNumber> stage_numbers[] = {
      {"parameters", &StageWork::parameters},
      {"edge_parameters", &StageWork::edge_parameters},
      {"saved", &StageWork::saved},
      {"stash", &StageWork::stash},
      {"boundary", &StageWork::boundary},
      {"forward_workspace", &StageWork::forward_workspace},
      {"backward_workspace", &StageWork::backward_workspace},
      {"stashed_workspace", &StageWork::stashed_workspace},
      {"forward", &StageWork::forward},
      {"recompute", &StageWork::recompute},
      {"backward_input", &StageWork::backward_input},
      {"backward_weight", &StageWork::backward_weight},
      {"forward_traffic", &StageWork::forward_traffic},
      {"backward_traffic", &StageWork::backward_traffic}};

  static std::int64_t shown(std::int64_t number) { return number; }
  static std::int64_t shown(Bytes number) { return number.value(); }
  static double shown(Flops number) { return number.value(); }
  /// What is compared where a decoder says it: how much memory activations take, and how many bytes
  /// kernels move, may change from one version to the next, and files keep what theirs said; buffers
  /// show the former.
  static bool is_lasting(std::string_view key) {
    return key != "saved" && key != "stash" && key.find("workspace") == key.npos && key.find("traffic") == key.npos;
  }
  /// The first number in which two stages differ, in words; empty if there is none.
  static std::string difference(const StageWork& found, const StageWork& made, bool lasting) {
    std::string different;
    for (const auto& [key, number] : stage_numbers) {
      if (lasting && !is_lasting(key)) continue;
      std::visit(
          [&, key = key](auto member) {
            if (!different.empty() || equal(found.*member, made.*member)) return;
            different = concat(key, " is ", shown(found.*member), " instead of ", shown(made.*member));
          },
          number);
    }
    return different;
  }
  /// Reduces a stage to the part of one of the ranks that share it without exchanges: matrices over
  /// the tensor ranks, tokens over all.
  void divide(StageWork& stage) const {
    const Mesh& mesh = parts_.mesh;
    const auto part = [](std::int64_t whole, int parts) { return (whole + parts - 1) / parts; };
    const std::int64_t experts = mesh.whole_experts ? stage.expert_parameters : 0;
    for (const auto& [key, number] : stage_numbers) {
      if (const auto* bytes = std::get_if<Bytes StageWork::*>(&number)) {
        stage.** bytes = Bytes{part((stage.**bytes).value(), mesh.shared())};
      } else if (const auto* flops = std::get_if<Flops StageWork::*>(&number)) {
        stage.** flops = stage.**flops / static_cast<double>(mesh.shared());
      }
    }
    stage.parameters = part(stage.parameters - experts, mesh.tensor) + part(experts, mesh.expert_parts());
    stage.edge_parameters = part(stage.edge_parameters, mesh.tensor);
  }

  /// Whether the model's parts are what its sizes, the batch and the recomputation make.
  bool model() {
    const Workload& workload = schedule_.workload();
    const LayerStack& given = workload.model();
    if (!given.decoder) return true;
    std::string wrong;
    LayerStack made;
    try {
      made = layer_stack(*given.decoder, workload.batch(), workload.recompute());
    } catch (const InputError& error) {
      this->error(
          "V115", none<TaskId>, none<Rank>, [&] { return std::string{error.what()}; },
          "let the model's sizes be those of a decoder that can be");
      return false;
    }
    if (given.pattern != made.pattern || given.others.size() != made.others.size()) wrong = "its layers are of other kinds";
    std::vector<const StageWork*> parts;
    LayerStack::for_each_part(made, [&](const char*, const StageWork& part) { parts.push_back(&part); });
    std::size_t next = 0;
    LayerStack::for_each_part(given, [&](const char* what, const StageWork& one) {
      if (!wrong.empty()) return;
      StageWork part = *parts[next++];
      part.edge_parameters = one.edge_parameters;  // of a part its `parameters` are its own: files hold no others
      const std::string found = difference(one, part, true);
      if (!found.empty()) wrong = concat("of its ", what, " ", found);
    });
    const auto compare = [&](std::string_view what, std::int64_t one, std::int64_t other) {
      if (wrong.empty() && one != other) wrong = concat(what, " is ", one, " instead of ", other);
    };
    compare("keys", given.keys.value(), made.keys.value());
    compare("token_ids", given.token_ids, made.token_ids);
    compare("the number of layers", given.layers, made.layers);
    compare("tied", given.tied, made.tied);
    if (wrong.empty() && given.dtype != made.dtype)
      wrong = concat("dtype is ", name(given.dtype), " instead of ", name(made.dtype));
    for (std::size_t kind = 0; wrong.empty() && kind <= made.others.size(); ++kind) {
      const ParameterRange& one = kind == 0 ? given.experts : given.others[kind - 1].experts;
      const ParameterRange& other = kind == 0 ? made.experts : made.others[kind - 1].experts;
      compare("the first of the experts' parameters", one.begin, other.begin);
      compare("the end of the experts' parameters", one.end, other.end);
    }
    compare("recompute_layers", given.recompute_layers, made.recompute_layers);
    compare("lookup_waits_in_layer", given.lookup_waits_in_layer, made.lookup_waits_in_layer);
    if (wrong.empty()) return true;
    error(
        "V115", none<TaskId>, none<Rank>,
        [&] {
          return concat("the model is not that of its sizes with sequences of ", workload.batch().sequence, " tokens, ",
                        workload.batch().microbatch_size, " in a microbatch, and recomputation ", name(workload.recompute()),
                        ": ", wrong);
        },
        "let the model's parts, its sizes, the batch and the recomputation be those of one workload");
    return false;
  }

  /// Whether each stage is that of its layers in the model, as a whole or as one rank's part.
  void stages() {
    std::string first;
    const Workload& workload = schedule_.workload();
    const std::optional<Transformer>& decoder = workload.model().decoder;
    const bool shares = decoder && !parts_.bodies.empty();
    LayerStack layers;  // of one rank
    for (const Sharing& sharing : sharings()) {
      if (shares) layers = layers_of_rank(*decoder, workload.batch(), workload.recompute(), workload.model(), sharing);
      std::string wrong;
      for (std::size_t s = 0; s < parts_.stages.size() && wrong.empty(); ++s) {
        if (const std::string found = differs(parts_.stages[s], sharing, layers); !found.empty())
          wrong = concat("stage ", s, ": ", found);
      }
      if (wrong.empty()) return;
      if (first.empty()) first = std::move(wrong);
    }
    error(
        "V115", none<TaskId>, none<Rank>, [&] { return concat("the stages are not those of the model's layers, of ", first); },
        "let each stage have the numbers of its layers in the model, with the batch and the recomputation of the workload");
  }
  /// The ways in which the ranks of a layout share stages, as far as they change a stage's numbers.
  std::vector<Sharing> sharings() const {
    const Mesh& mesh = parts_.mesh;
    Sharing sharing{.tensor = mesh.tensor, .context = mesh.context, .expert = mesh.expert, .whole_experts = mesh.whole_experts};
    if (parts_.bodies.empty() || !schedule_.workload().model().decoder) return {sharing};
    std::vector<Sharing> all;
    for (const ContextExchange exchange : {ContextExchange::all_gather, ContextExchange::ring}) {
      for (const bool by_tokens : {true, false}) {
        for (const bool sends : {false, true}) {
          sharing.exchange = exchange;
          sharing.sequence_parallel = by_tokens;
          sharing.sends_activations = sends;
          all.push_back(sharing);
        }
      }
    }
    return all;
  }
  std::string differs(const StageWork& found, const Sharing& sharing, const LayerStack& layers) const {
    const Workload& workload = schedule_.workload();
    const LayerStack& model = workload.model();
    const std::int32_t usual = model.recompute_layers > 0 ? std::min(found.layers, model.recompute_layers) : found.layers;
    std::string different;
    for (const std::int32_t recomputed : {usual, 0}) {
      StageWork made = model.stage(found.first_layer, found.layers, found.first_edge, found.last_edge, recomputed);
      const bool bodies = !parts_.bodies.empty();  // of one rank too: its numbers are then those of its steps
      if (bodies) {
        if (!model.decoder) return {};
        made = shared_work(made, *model.decoder, workload.batch(), workload.recompute(), model, layers, sharing);
      } else if (parts_.mesh.shared() > 1) {
        divide(made);
      }
      const Share share = workload.stage(found.first_layer, found.layers, false, false).share;
      std::string one = difference(found, made, bodies);
      if (one.empty() && found.share.numerator * share.denominator != share.numerator * found.share.denominator)
        one = concat("share is ", found.share.numerator, " / ", found.share.denominator, " instead of ", share.numerator, " / ",
                     share.denominator);
      if (one.empty()) return {};
      if (different.empty()) different = std::move(one);
    }
    return different;
  }

  // ---- what computations move in addition ----

  /// Only models whose code copies gathered weights and gradients have computations that say so.
  void copies() {
    const Workload& workload = schedule_.workload();
    if (!workload.is_abstract() && workload.model().shard_copies != ShardCopies::none) return;
    for (std::size_t t = 0; t < parts_.tasks.size(); ++t) {
      const Task& task = parts_.tasks[t];
      if (!is_compute(task.op) || task.op == Op::update || task.bytes.value() == 0) continue;
      error(
          "V116", id<TaskId>(t), task.rank,
          [&] {
            return concat(describe(schedule_, id<TaskId>(t)), " moves ", task.bytes.value(),
                          " bytes in addition to its stage's work, and the model's code copies none");
          },
          "leave a computation's bytes out");
    }
  }

  const Schedule& schedule_;
  const Schedule::Parts& parts_;
  Diagnostics& out_;
};

}  // namespace detail

TAWPIPE_INLINE void check_work(const Schedule& schedule, Diagnostics& out) { detail::WorkCheck{schedule, out}.run(); }

}  // namespace tawpipe
#endif
