// Adds transfers of activations, weights or optimizer states to host memory, while no computation
// needs them, to any schedule. They use the devices' links to their hosts.
// Not: recomputation, which drops activations instead (model/batch.hpp).
#pragma once

#include <string>
#include <string_view>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0 {

/// What lies in host memory between its uses.
struct Offload {
  bool activations = false;  ///< what forwards save for backwards
  /// of each rank, the first ones whose activations are offloaded; 0: all
  int layers = 0;
  /// a rank's own part, copied in for each gather or computation that reads it, and back out after its update
  bool weights = false;
  /// the optimizer's states, copied in for each update and back out after it
  bool optimizer = false;
  /// computations before its use at which a copy back starts; also the number of copies out in
  /// flight
  int ahead = 1;

  bool any() const { return activations || weights || optimizer; }
  bool operator==(const Offload&) const = default;
};

/// "off", or of "activations" ("activations:20" for 20 layers), "weights" and "optimizer" those that are, with "+" between.
inline std::string name(const Offload& offload) {
  if (!offload.any()) return "off";
  std::string text;
  const auto add = [&](bool chosen, std::string_view what) {
    if (chosen) text += concat(text.empty() ? "" : "+", what);
  };
  add(offload.activations, offload.layers > 0 ? concat("activations:", offload.layers) : "activations");
  add(offload.weights, "weights");
  add(offload.optimizer, "optimizer");
  return text;
}

/// The states of a rank are copied and updated in this many pieces, of which a device holds at most
/// four: one being updated, one on its way in and, for `ahead` of 1, two on their way out.
inline constexpr int state_pieces = 64;

/// Parses what name() gives, in any order. @throws InputError  naming the valid values.
TAWPIPE_INLINE Offload parse_offload(std::string_view text);

/// `schedule` with copies to and from the host around its existing computations, on two lanes of
/// their own.
///
/// What a forward saves leaves when the forward has ended and comes back `ahead` computations of
/// its rank before the first backward that reads it; what would be gone for less than one
/// computation stays, and so does what a stage saves that is not within the rank's first `layers`.
/// Weights are kept in host memory by the rank that owns them. A gather's part comes while at most `ahead` gathers
/// before it are under way; what a computation reads itself comes `ahead` computations before it. New weights
/// leave after their update.
/// Optimizer states are kept in host memory, and an update becomes one of each of their pieces, on
/// the device for that update only: the next piece comes while one is updated and the last one
/// leaves. A computation with something to send out waits until all but `ahead` of the rank's
/// earlier ones have left, so that the device holds no more than that many of them.
/// @throws InputError  for `ahead` below 1, if every stage has more than `layers`, or if a message changes weights
/// that lie in host memory.
/// Complexity: O(tasks + uses).
/// Source: NVIDIA/Megatron-LM, megatron/core/optimizer/cpu_offloading,
/// chunked_optimizer_state_offload.py (states in chunks, updated on the device), and
/// transformer_config.py, cpu_offloading_num_layers (layers); Rajbhandari et al. 2021,
/// ZeRO-Infinity, arXiv:2104.07857, section 5.1, and deepspeedai/DeepSpeed,
/// runtime/zero/partition_parameters.py (a part is copied to the device, then gathered); Wan et al. 2025, PipeOffload,
/// arXiv:2503.01328 (activations of pipelines). Example: `const tawpipe::Schedule offloaded = with_offload(schedule,
/// {.activations = true});`
TAWPIPE_INLINE Schedule with_offload(const Schedule& schedule, const Offload& offload);

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include <algorithm>
#include <cstddef>

#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/schedule/detail/offloader.hpp"

namespace tawpipe::inline v0 {

TAWPIPE_INLINE Offload parse_offload(std::string_view text) {
  Offload offload;
  if (text == "off") return offload;
  for (std::string_view rest = text;;) {
    const std::size_t end = std::min(rest.find('+'), rest.size());
    const std::string_view part = rest.substr(0, end);
    const std::string_view what = part.substr(0, part.find(':'));
    bool& chosen = what == "activations" ? offload.activations : what == "weights" ? offload.weights : offload.optimizer;
    if ((what != "activations" && part != "weights" && part != "optimizer") || chosen) {
      throw InputError(concat(quote(text), " is not what can be offloaded; expected off, activations, weights, optimizer,",
                              " several such as activations+optimizer, or activations:20 of the first 20 layers"));
    }
    chosen = true;
    if (what != part) offload.layers = parse_whole(part.substr(what.size() + 1), "the layers of activations:LAYERS", 1);
    if (end == rest.size()) return offload;
    rest.remove_prefix(end + 1);
  }
}

}  // namespace tawpipe
#endif
