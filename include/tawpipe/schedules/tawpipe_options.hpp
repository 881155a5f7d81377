// Options of TawPipe.
// Not: the schedule itself (schedules/tawpipe.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/core/units.hpp"
#include "tawpipe/model/workload.hpp"
#include "tawpipe/schedules/common.hpp"
#include "tawpipe/schedules/grouping.hpp"
#include "tawpipe/schedules/microbatch_shares.hpp"
#include "tawpipe/schedules/node_cache.hpp"

namespace tawpipe::inline v0::schedules {

/// When a group fetches its next shard. Without prefetching it does so after its computation,
/// during which gradients travel.
enum class Prefetch {
  on,  ///< during the step before, always
  /// only ahead of backward steps, the default of PyTorch's FSDP (BACKWARD_PRE, no forward
  /// prefetch)
  backward,
  off,
};
constexpr std::array<std::string_view, 3> option_names(Prefetch) { return {"on", "backward", "off"}; }

/// Into how many shards the model is cut.
struct Shards {
  enum class Each { device, layer };

  int count = 0;             ///< 0: one for each of these
  Each each = Each::device;  ///< as far as there are layers

  Shards() = default;
  Shards(int number) : count{number} {}  // NOLINT: a number is one
  explicit Shards(Each of) : each{of} {}

  static std::string values() { return "devices|layers|N"; }
  static std::string expected() { return "devices, layers, or " + numbers().expected(); }
  std::string text() const { return count > 0 ? std::to_string(count) : each == Each::layer ? "layers" : "devices"; }
  static std::optional<Shards> parse(std::string_view text) {
    if (text == "devices") return Shards{};
    if (text == "layers") return Shards{Each::layer};
    const std::optional<int> number = numbers().parse(text);
    return number ? std::optional{Shards{*number}} : std::nullopt;
  }
  /// With a number. A workload without a model has a layer for each rank.
  Shards resolved(const Workload& workload, int ranks) const {
    if (count > 0) return *this;
    const int layers = workload.is_abstract() ? ranks : workload.model().layers;
    return each == Each::layer ? layers : std::max(1, std::min(ranks, layers));
  }

 private:
  static WholeRange numbers() { return {.low = 1, .high = LayerStack::max_layers, .reason = "no model has more layers to cut"}; }
};

/// The names of true, false and none.
struct OnOffAuto {
  static constexpr std::array<std::string_view, 3> names{"on", "off", "auto"};
  static constexpr std::optional<bool> value(std::size_t i) { return i < 2 ? std::optional{i == 0} : std::nullopt; }
};

struct TawpipeOptions {
  Order order = Order::eager;
  bool overlap = true;
  Prefetch prefetch = Prefetch::on;
  int buffers = 2;
  Grouping groups{};
  Shards shards{};
  std::optional<bool> stripe = false;
  Speeds speeds{};
  NodeCache cache{};

  // Facts used only by options that leave a choice to the schedule.
  Bytes device_memory{};                ///< of the smallest device
  std::vector<double> device_speeds{};  ///< [rank]
  bool own_adapters = false;            ///< each device has one

  static std::vector<Field<TawpipeOptions>> fields() {
    using Options = TawpipeOptions;
    return {
        option_field<&Options::order>("order", "each task when its inputs are there, or the turns as the paper draws them"),
        detail::overlap_field<&Options::overlap>(),
        option_field<&Options::prefetch>("prefetch",
                                         "off: the next shard is fetched after the computation, gradients are sent meanwhile; "
                                         "backward: so in forward steps only"),
        auto_tries(
            option_field<&Options::buffers>("buffers", {.low = 1, .high = 1024, .reason = "each takes the memory of a shard"},
                                            "shards a device can hold in addition to its own"),
            "2|3"),
        option_field<&Options::groups>("groups", "what shares a broadcast: each node, all devices, or N equal groups"),
        auto_tries(option_field<&Options::shards>("shards", "pieces the model is cut into: one a device, one a layer, or N"),
                   "devices|layers"),
        auto_tries(option_field<&Options::stripe, OptionNames<std::optional<bool>, OnOffAuto>>(
                       "stripe",
                       "shards cross between nodes in pieces over all adapters (auto: if each device has its own, and nothing is "
                       "cached)"),
                   "off|auto"),
        auto_tries(
            option_field<&Options::speeds>("speeds",
                                           "faster devices run more microbatches in each step: by their peaks, or numbers for "
                                           "nodes or devices such as 1+2"),
            "equal|auto"),
        auto_tries(option_field<&Options::cache>(
                       "node-cache", "shards of other nodes kept once fetched: how many, how much a device, or what fits"),
                   "0|auto")};
  }
};

}  // namespace tawpipe::schedules
