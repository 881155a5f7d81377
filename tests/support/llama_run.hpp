// Runs a LLaMA decoder stage by stage as an executor would, in memory that shows every touch beyond
// its ends.
// Not: an executor; everything happens in order on one thread.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "tawpipe/layers/host/llama.hpp"
#include "tawpipe/model/parameters.hpp"
#include "tawpipe/model/transformer_work.hpp"

namespace llama_run {

/// Bytes aligned to 64 between guards; filled with NaN, so that reading before writing shows.
class Guarded {
 public:
  explicit Guarded(std::int64_t size) : size_{static_cast<std::size_t>(size)}, memory_(size_ + 2 * guard + 64, mark) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data()) + guard;
    begin_ = guard + (64 - address % 64) % 64;
    std::fill_n(memory_.begin() + static_cast<std::ptrdiff_t>(begin_), size_, std::byte{0xff});
  }

  std::span<std::byte> bytes() { return {memory_.data() + begin_, size_}; }
  std::span<const std::byte> bytes() const { return {memory_.data() + begin_, size_}; }
  template <class T>
  std::span<T> as() {
    return {reinterpret_cast<T*>(bytes().data()), size_ / sizeof(T)};
  }
  template <class T>
  std::vector<T> copy() const {
    std::vector<T> numbers(size_ / sizeof(T));
    std::memcpy(numbers.data(), bytes().data(), numbers.size() * sizeof(T));
    return numbers;
  }
  bool untouched_outside() const {
    const auto is_mark = [](std::byte b) { return b == mark; };
    return std::all_of(memory_.begin(), memory_.begin() + static_cast<std::ptrdiff_t>(begin_), is_mark) &&
           std::all_of(memory_.begin() + static_cast<std::ptrdiff_t>(begin_ + size_), memory_.end(), is_mark);
  }

 private:
  static constexpr std::size_t guard = 256;
  static constexpr std::byte mark{0xa5};
  std::size_t size_;
  std::vector<std::byte> memory_;
  std::size_t begin_ = 0;
};

/// One stage: layers and what stands around them.
struct Piece {
  int layers = 0;
  bool embedding = false;
  bool head = false;
};

struct Options {
  tawpipe::Recompute recompute = tawpipe::Recompute::none;
  bool split = false;     // backward_input of all stages, then backward_weight of all
  bool in_place = false;  // input and output, and their gradients, are the same memory
  double scale = 1;
  tawpipe::DecoderConstants constants = {};
};

/// What one microbatch gives.
template <class T>
struct Result {
  double loss = 0;
  std::vector<std::vector<T>> boundaries;  // output of each piece without head
  std::vector<std::vector<T>> boundary_gradients;
};

/// A model with its parameters and gradients in the order of ParameterOrder, run as `pieces`. T: of
/// weights and activations;
/// Layer: what computes; G: of gradients of parameters.
template <class T, class Layer = tawpipe::layers::host::Llama<T>, class G = T>
class Runner {
 public:
  Runner(tawpipe::Transformer model, tawpipe::Batch batch, std::vector<Piece> pieces, Options options = {})
      : model_{model},
        batch_{batch},
        order_{model},
        options_{options},
        llama_{model, batch, options.recompute, options.constants},
        parameters(order_.count() * std::int64_t{sizeof(T)}),
        gradients(order_.count() * std::int64_t{sizeof(G)}) {
    int first = 0;
    for (const Piece& piece : pieces) {
      stages_.push_back(
          tawpipe::transformer_work(model, batch, options.recompute, first, piece.layers, piece.embedding, piece.head));
      first += piece.layers;
    }
    std::ranges::fill(gradients.bytes(), std::byte{});
  }

  /// Forward and backward of one microbatch; gradients are added up.
  Result<T> run(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets, bool with_backward = true) {
    Result<T> result;
    const std::int64_t boundary = batch_.tokens() * model_.hidden * std::int64_t{sizeof(T)};
    std::vector<Guarded> saved;
    Guarded activation{boundary};
    for (const auto& stage : stages_) {
      saved.emplace_back(stage.saved.value());
      Guarded workspace{stage.forward_workspace.value()};
      Guarded output{boundary};
      Guarded& to = options_.in_place ? activation : output;
      llama_.forward({.stage = &stage,
                      .weights = pointers<T, const std::byte>(stage, parameters),
                      .input = stage.first_edge ? std::span<const std::byte>{} : activation.bytes(),
                      .output = stage.last_edge ? std::span<std::byte>{} : to.bytes(),
                      .saved = saved.back().bytes(),
                      .workspace = workspace.bytes(),
                      .tokens = tokens,
                      .targets = targets,
                      .loss = stage.last_edge ? &result.loss : nullptr});
      if (!stage.last_edge) result.boundaries.push_back(to.template copy<T>());
      guards_hold({&saved.back(), &workspace, &output, &activation});
      if (!options_.in_place) activation = output;
    }
    if (!with_backward) return result;

    Guarded gradient{boundary};
    std::vector<Guarded> stash;
    stash.reserve(stages_.size());
    for (const auto& stage : stages_) stash.emplace_back(options_.split ? stage.stash.value() : 0);
    for (std::size_t i = stages_.size(); i-- > 0;) {
      const auto& stage = stages_[i];
      Guarded workspace{options_.split ? stage.input_workspace().value() : stage.backward_workspace.value()};
      Guarded input_gradient{boundary};
      Guarded& to = options_.in_place ? gradient : input_gradient;
      const auto before = gradients.template copy<std::uint8_t>();
      tawpipe::BackwardArgs args{
          .stage = &stage,
          .weights = pointers<T, const std::byte>(stage, parameters),
          .gradients = options_.split ? tawpipe::StageParameters<std::byte>{} : pointers<G, std::byte>(stage, gradients),
          .output_gradient = stage.last_edge ? std::span<const std::byte>{} : gradient.bytes(),
          .input_gradient = stage.first_edge ? std::span<std::byte>{} : to.bytes(),
          .saved = saved[i].bytes(),
          .stash = stash[i].bytes(),
          .workspace = workspace.bytes(),
          .tokens = tokens,
          .targets = targets,
          .scale = options_.scale};
      if (options_.split) {
        llama_.backward_input(args);
        CHECK(before == gradients.template copy<std::uint8_t>());
      } else {
        llama_.backward(args);
      }
      guards_hold({&saved[i], &stash[i], &workspace, &gradient, &input_gradient, &gradients, &parameters});
      if (!stage.first_edge) {
        result.boundary_gradients.push_back(to.template copy<T>());
        if (!options_.in_place) gradient = input_gradient;
      }
    }
    std::ranges::reverse(result.boundary_gradients);
    if (options_.split) {
      for (std::size_t i = stages_.size(); i-- > 0;) {
        Guarded workspace{0};  // a backward_weight has none
        tawpipe::BackwardArgs args;
        args.stage = &stages_[i];
        args.gradients = pointers<G, std::byte>(stages_[i], gradients);
        args.saved = saved[i].bytes();
        args.stash = stash[i].bytes();
        args.workspace = workspace.bytes();
        args.tokens = tokens;
        args.targets = targets;
        args.scale = options_.scale;
        llama_.backward_weight(args);
        guards_hold({&saved[i], &stash[i], &workspace, &gradients});
      }
    }
    return result;
  }

 private:
  tawpipe::Transformer model_;
  tawpipe::Batch batch_;
  tawpipe::ParameterOrder order_;
  Options options_;
  Layer llama_;
  std::vector<tawpipe::StageWork> stages_;

  template <class Number, class Byte>
  tawpipe::StageParameters<Byte> pointers(const tawpipe::StageWork& stage, Guarded& memory) {
    const auto at = [&](const tawpipe::ParameterRange& range) {
      return memory.bytes().data() + range.begin * std::int64_t{sizeof(Number)};
    };
    tawpipe::StageParameters<Byte> pointers;
    if (stage.layers > 0) pointers.layers = at(order_.layers_of(stage).front());
    if (order_.uses_first_edge(stage)) pointers.first_edge = at(order_.first_edge());
    if (stage.last_edge) pointers.last_edge = at(order_.last_edge());
    return pointers;
  }
  static void guards_hold(std::initializer_list<const Guarded*> memories) {
    for (const Guarded* memory : memories) CHECK(memory->untouched_outside());
  }

 public:
  Layer& layer() { return llama_; }

  Guarded parameters;
  Guarded gradients;
};

/// The whole model as one stage.
inline std::vector<Piece> whole(int layers) { return {{.layers = layers, .embedding = true, .head = true}}; }

}  // namespace llama_run
