// Lists of a number for each layer, as flags have them in Python's words: "([0]*1+[1]*31)".
// Not: what the numbers mean (detail/megatron_experts.hpp).
#pragma once

#include <cctype>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::detail {

/// Reads sums of lists, and lists times numbers, in parentheses.
class LayerPatternReader {
 public:
  explicit LayerPatternReader(std::string_view text) : rest_{text} {}

  std::optional<std::vector<int>> read() {
    std::optional<Value> value = sum(0);
    if (!value || value->number || next() != '\0') return std::nullopt;
    return std::move(value->list);
  }

 private:
  static constexpr int max_depth = 16;  ///< of parentheses
  struct Value {
    std::vector<int> list = {};
    std::optional<int> number = {};  ///< in place of a list
  };

  std::optional<Value> sum(int depth) {
    std::optional<Value> all = product(depth);
    while (all && takes('+')) {
      const std::optional<Value> more = product(depth);
      if (!more || more->number || all->number || !fits(all->list.size() + more->list.size())) return std::nullopt;
      all->list.insert(all->list.end(), more->list.begin(), more->list.end());
    }
    return all;
  }
  std::optional<Value> product(int depth) {
    std::optional<Value> all = factor(depth);
    while (all && takes('*')) {
      std::optional<Value> by = factor(depth);
      if (!by || by->number.has_value() == all->number.has_value()) return std::nullopt;
      if (all->number) std::swap(*all, *by);
      const auto times = static_cast<std::size_t>(*by->number);
      const std::vector<int> once = std::exchange(all->list, {});
      if (!fits(times) || !fits(times * once.size())) return std::nullopt;
      for (std::size_t i = 0; i < times; ++i) all->list.insert(all->list.end(), once.begin(), once.end());
    }
    return all;
  }
  std::optional<Value> factor(int depth) {
    if (takes('(')) {
      std::optional<Value> inside = depth < max_depth ? sum(depth + 1) : std::nullopt;
      if (!takes(')')) return std::nullopt;
      return inside;
    }
    if (!takes('[')) {
      const std::optional<int> number = digits();
      return number ? std::optional{Value{.number = number}} : std::nullopt;
    }
    Value value;
    while (!takes(']')) {
      const std::optional<int> number = digits();
      if (!number || !fits(value.list.size() + 1)) return std::nullopt;
      value.list.push_back(*number);
      if (!takes(',') && next() != ']') return std::nullopt;
    }
    return value;
  }
  std::optional<int> digits() {
    next();
    std::size_t size = 0;
    while (size < rest_.size() && std::isdigit(static_cast<unsigned char>(rest_[size])) != 0) ++size;
    const std::string_view word = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return to_number<int>(word);
  }
  /// The next character after spaces; 0 at the end.
  char next() {
    while (rest_.starts_with(' ')) rest_.remove_prefix(1);
    return rest_.empty() ? '\0' : rest_.front();
  }
  bool takes(char symbol) {
    if (next() != symbol) return false;
    rest_.remove_prefix(1);
    return true;
  }
  static bool fits(std::size_t layers) { return layers <= static_cast<std::size_t>(Transformer::max_layers); }

  std::string_view rest_;
};

/// The numbers of such a list; nothing if the text is none, or of more layers than a model can have.
inline std::optional<std::vector<int>> layer_pattern(std::string_view text) { return LayerPatternReader{text}.read(); }

}  // namespace tawpipe::v0::detail
