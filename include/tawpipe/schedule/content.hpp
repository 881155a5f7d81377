// What the bytes of a buffer are: which parameters, or the activations of which stage and
// microbatch.
// Not: how long they are kept, and where (schedule/task.hpp).
#pragma once

#include <cstdint>
#include <string_view>

#include "tawpipe/core/ids.hpp"

namespace tawpipe::inline v0 {

enum class ContentKind : std::uint8_t {
  weights,
  gradients,
  optimizer_state,
  activation,           ///< what a stage's forward passes on
  activation_gradient,  ///< what a stage's backward passes on: the gradient of its input
  saved,                ///< by a stage's forward for its backward
  stash,                ///< by a stage's backward_input for its backward_weight
  tokens,
  scalar,     ///< one number, such as a norm
  workspace,  ///< defined only while a task runs
};
inline constexpr int content_kinds = 10;

/// The kind's name in files and findings.
constexpr std::string_view name(ContentKind kind) {
  constexpr std::string_view names[content_kinds] = {
      "weights", "gradients", "optimizer_state", "activation", "activation_gradient",
      "saved",   "stash",     "tokens",          "scalar",     "workspace"};
  return names[static_cast<int>(kind)];
}

/// Weights, gradients and optimizer states: the kinds that belong to a set of parameters.
constexpr bool is_of_parameters(ContentKind kind) { return kind <= ContentKind::optimizer_state; }
/// The kinds that belong to a stage's computation for a microbatch.
constexpr bool is_of_microbatch(ContentKind kind) { return ContentKind::activation <= kind && kind <= ContentKind::tokens; }

/// What bytes are. A *slot* is reused for different contents: it names no set of parameters, or no
/// microbatch, and the task that fills it says what it brings. Which part of it a rank has, where
/// tensor or context parallelism cuts it, follows from the rank's place in the layout.
class Content {
 public:
  constexpr Content() : Content{ContentKind::workspace} {}
  constexpr explicit Content(ContentKind kind)
      : Content{kind, none<StageId>, std::int32_t{-1}} {}  // clang 14 takes -1 for 67108863
  /// @param stage  whose parameters they are; none if they belong to more than one stage
  constexpr Content(ContentKind kind, StageId stage, PiecesId parameters)
      : stage_{stage}, kind_{kind}, item_{static_cast<std::int32_t>(parameters)} {}
  /// @param stage  whose computation has made it
  constexpr Content(ContentKind kind, StageId stage, std::int32_t microbatch) : stage_{stage}, kind_{kind}, item_{microbatch} {}

  constexpr ContentKind kind() const { return kind_; }
  constexpr StageId stage() const { return stage_; }
  /// The parameters; none for a slot, and for kinds without parameters.
  constexpr PiecesId parameters() const { return is_of_parameters(kind_) ? PiecesId{item_} : none<PiecesId>; }
  /// The microbatch; -1 for a slot, and for kinds without one.
  constexpr std::int32_t microbatch() const { return is_of_parameters(kind_) ? -1 : item_; }
  constexpr bool is_slot() const { return item_ < 0 && (is_of_parameters(kind_) || is_of_microbatch(kind_)); }

  constexpr bool operator==(const Content& other) const {
    return stage_ == other.stage_ && kind_ == other.kind_ && item_ == other.item_;
  }

 private:
  StageId stage_ : 26;
  ContentKind kind_ : 6;
  std::int32_t item_ = -1;  ///< the set of parameters, or the microbatch
};
/// A Content cannot name stages from this number on.
inline constexpr std::int32_t max_stages = std::int32_t{1} << 25;

}  // namespace tawpipe
