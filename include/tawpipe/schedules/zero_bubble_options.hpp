// Options of automatic zero-bubble pipelines: a memory limit, times to plan with, and how long to
// plan.
// Not: the plan (zero_bubble_auto.hpp).
#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/core/units.hpp"
#include "tawpipe/model/stage_work.hpp"
#include "tawpipe/schedules/option_field.hpp"
#include "tawpipe/schedules/order_problem.hpp"

namespace tawpipe::inline v0::schedules {

/// A limit on the saved activations of each rank.
struct MemoryLimit {
  std::int64_t activations = 0;  ///< in microbatches; 0: `bytes`
  bool a_rank = false;           ///< that many times the number of ranks
  Bytes bytes{};

  static std::string values() { return "Np|N|SIZE"; }
  static std::string expected() {
    return "a number of activations such as 12 or 2p (p ranks), 1 or more, or a size such as 40GiB";
  }
  std::string text() const { return activations == 0 ? OptionText<Bytes>::text(bytes) : concat(activations, a_rank ? "p" : ""); }
  static std::optional<MemoryLimit> parse(std::string_view text) {
    const bool a_rank = text.ends_with('p');
    const WholeRange range{.low = 1, .high = 1'000'000};
    if (const auto number = range.parse(a_rank ? text.substr(0, text.size() - 1) : text)) return MemoryLimit{*number, a_rank};
    const std::optional<Bytes> bytes = OptionText<Bytes>::parse(text);
    return bytes ? std::optional{MemoryLimit{.bytes = *bytes}} : std::nullopt;
  }
};

/// Times for planning, in any unit: of a device's whole share for one microbatch.
struct ZeroBubbleTimes {
  /// 0, and the next two: in proportion to the stages' operations, transfers free
  std::int64_t forward = 0;
  std::int64_t backward_input = 0;
  std::int64_t backward_weight = 0;
  std::int64_t transfer = 0;

  bool are_given() const { return forward > 0 || backward_input > 0 || backward_weight > 0; }

  static std::string values() { return "operations|F:B:W:C"; }
  static std::string expected() {
    return "the times of forward, backward_input, backward_weight and transfer as whole numbers in one unit, such as "
           "18522:18086:9337:601, or operations";
  }
  std::string text() const {
    return are_given() ? concat(forward, ":", backward_input, ":", backward_weight, ":", transfer) : "operations";
  }
  static std::optional<ZeroBubbleTimes> parse(std::string_view text) {
    if (text == "operations") return ZeroBubbleTimes{};
    const std::vector<std::string_view> parts = split(text, ':');
    if (parts.size() != 4) return std::nullopt;
    std::vector<std::int64_t> times;
    for (const std::string_view part : parts) {
      constexpr std::int64_t most = 1'000'000'000'000;  // with 2^26 computations the sum still fits
      const auto time = to_number<std::int64_t>(part);
      if (!time || *time < (times.size() < 3 ? 1 : 0) || *time > most) return std::nullopt;
      times.push_back(*time);
    }
    return ZeroBubbleTimes{times[0], times[1], times[2], times[3]};
  }
};

/// The times of a stage's computations, in any unit, and the memory they hold, in any unit.
struct ZeroBubbleStage {
  std::int64_t forward = 1;
  std::int64_t backward_input = 1;
  std::int64_t backward_weight = 1;
  std::int64_t saved = 1;  ///< memory saved by a forward
  /// of `saved`, from the end of backward_input to that of backward_weight
  std::int64_t kept = 1;
  std::int64_t limit = 1;  ///< of the memory that the stage may hold
};

namespace detail {

/// A share as a fraction from 0 to 1, to four decimals.
struct FractionText {
  static constexpr std::int32_t parts = 10000;

  static std::string values() { return "0..1"; }
  static std::string expected() { return "a fraction from 0 to 1, such as 0.4"; }
  static std::string text(const Share& share) {
    char digits[32];
    const double rounded = static_cast<double>(std::int64_t{share.numerator} * parts / share.denominator) / parts;
    const auto written = std::to_chars(digits, digits + sizeof digits, rounded);
    return {digits, static_cast<std::size_t>(written.ptr - digits)};
  }
  static std::optional<Share> parse(std::string_view text) {
    const auto value = to_number<double>(text);
    if (!value || *value < 0 || *value > 1) return std::nullopt;
    return Share{static_cast<std::int32_t>(*value * parts + 0.5), parts};
  }
};

}  // namespace detail

/// The source of the order of a pipeline's computations.
enum class OrderSource { paper, searched };
constexpr std::array<std::string_view, 2> option_names(OrderSource) { return {"paper", "searched"}; }

/// The field of the number of orders that a search times.
template <auto member>
auto search_moves() {
  return option_field<member>("moves", {.low = 1, .high = 1'000'000, .reason = "each times the whole order"},
                              "orders that a search times; those of the standard are fewer where that takes long");
}

struct ZeroBubbleOptions {
  MemoryLimit limit{.activations = 2, .a_rank = true};
  Share kept = {};  ///< all of it, as frameworks do today
  ZeroBubbleTimes times{};
  int tries = 256;
  OrderSource order = OrderSource::paper;
  int moves = static_cast<int>(standard_moves);

  static std::vector<Field<ZeroBubbleOptions>> fields() {
    using Options = ZeroBubbleOptions;
    return {auto_tries(option_field<&Options::limit>("memory-limit", "saved activations a device: of N microbatches, or a size"),
                       "1p|2p"),
            option_field<&Options::kept, detail::FractionText>(
                "kept", "of a saved activation, what backward_weight still needs after backward_input"),
            option_field<&Options::times>("times", "times to plan with: forward, backward_input, backward_weight, transfer"),
            option_field<&Options::tries>("tries", {.high = 1'000'000, .reason = "each plans the whole order again"},
                                          "changes tried to make the paper's order better; 0 gives the paper's"),
            option_field<&Options::order>("order", "as the paper's heuristic finds it, or the best that a search finds"),
            search_moves<&Options::moves>()};
  }
};

}  // namespace tawpipe::schedules
