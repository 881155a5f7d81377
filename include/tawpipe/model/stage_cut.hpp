// How a model's layers are cut into stages: evenly, weighted by the parts before and after them, or
// as given.
// Not: the work of a stage (model/stage_work.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::inline v0 {

namespace detail {

// Without <cmath> and <numeric>, which would add a sixth to the preprocessed lines of the folders
// that include this.
/// The largest whole number that is not above.
inline std::int32_t whole_part(double value) {
  const auto whole = static_cast<std::int32_t>(value);
  return whole > value ? whole - 1 : whole;
}
inline std::int64_t sum_of(const std::vector<std::int32_t>& numbers) {
  std::int64_t sum = 0;
  for (const std::int32_t number : numbers) sum += number;
  return sum;
}

}  // namespace detail

/// How layers are cut into stages. By default as evenly as possible.
struct StageCut {
  /// [stage], over all chunks of a pipeline in the model's order; empty: by weights
  std::vector<std::int32_t> layers = {};
  bool balanced = false;  ///< the two below come from a cost model (Problem)
  /// The time of the embedding, and of the head with its loss, relative to a layer's: 1 is
  /// Megatron-LM's --account-for-embedding-in-pipeline-split and
  /// --account-for-loss-in-pipeline-split.
  double embedding = 0;
  double head = 0;
  std::vector<double> each = {};  ///< [layer] its time relative to that layer's, where they differ

  bool is_even() const { return layers.empty() && !balanced && embedding == 0 && head == 0; }
  bool operator==(const StageCut&) const = default;
};

/// The number of layers for each stage that makes the slowest, with the embedding in the first and
/// the head in the last, as fast as possible. The remainder is taken from the first stages, which
/// hold most activations. Each has a layer if there are enough.
/// @param embedding, head  relative to the time of a layer, 0 or more
/// @pre stages >= 1, total >= 0
/// Complexity: O(stages log total).
inline std::vector<std::int32_t> balanced_layers(std::int32_t total, int stages, double embedding, double head) {
  if (stages == 1) return {total};
  const auto count = static_cast<std::size_t>(stages);
  const std::int32_t least = total >= stages ? 1 : 0;
  const auto within = [&](double most) {
    std::vector<std::int32_t> layers(count, detail::whole_part(most + 1e-9));
    layers.front() = detail::whole_part(most - embedding + 1e-9);
    layers.back() = detail::whole_part(most - head + 1e-9);
    for (std::int32_t& some : layers) some = std::max(some, least);
    return layers;
  };
  const auto holds = [&](double most) {
    const std::vector<std::int32_t> layers = within(most);
    return detail::sum_of(layers) >= total;
  };
  // The slowest stage takes a whole number of layers, or is one with the embedding or the head.
  double best = total + embedding + head;
  for (const double edge : {0.0, embedding, head}) {
    std::int32_t low = 0;
    for (std::int32_t high = total; low < high;) {
      const std::int32_t middle = low + (high - low) / 2;
      if (holds(middle + edge)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    if (holds(low + edge)) best = std::min(best, low + edge);
  }
  std::vector<std::int32_t> layers = within(best);
  std::int64_t spare = detail::sum_of(layers) - total;
  while (spare > 0) {
    for (std::size_t s = 0; s < count && spare > 0; ++s) {
      if (layers[s] <= least) continue;
      --layers[s];
      --spare;
    }
  }
  return layers;
}

/// The same for layers that take `each` of these times.
/// Complexity: O(layers).
inline std::vector<std::int32_t> balanced_layers(const std::vector<double>& each, int stages, double embedding, double head) {
  const auto total = static_cast<std::int32_t>(each.size());
  const std::int32_t least = total >= stages ? 1 : 0;
  // From the last stage on, so that what is left over is for the first; none if it does not hold all.
  const auto within = [&](double most) {
    std::vector<std::int32_t> layers(static_cast<std::size_t>(stages), 0);
    std::int32_t left = total;
    for (int stage = stages; stage-- > 0;) {
      double time = (stage + 1 == stages ? head : 0) + (stage == 0 ? embedding : 0);
      std::int32_t& count = layers[static_cast<std::size_t>(stage)];
      while (left > stage * least && (count < least || time + each[static_cast<std::size_t>(left - 1)] <= most)) {
        time += each[static_cast<std::size_t>(--left)];
        ++count;
      }
      if (time > most && count > least) return std::vector<std::int32_t>{};
    }
    return left > 0 ? std::vector<std::int32_t>{} : layers;
  };
  double high = embedding + head;
  for (const double time : each) high += time;
  double low = 0;
  for (int step = 0; step < 50; ++step) {  // to a double's last bits
    const double middle = (low + high) / 2;
    (within(middle).empty() ? low : high) = middle;
  }
  return within(high);
}

/// [stage] The layers of each, of a model with so many.
/// @param edges_count  where neither layers nor weights are given, embedding and head count as a layer each
/// @throws InputError  if layers are given for other stages, or for more or fewer layers
inline std::vector<std::int32_t> layers_of(const StageCut& cut, std::int32_t total, int stages, bool edges_count = false) {
  if (!cut.layers.empty()) {
    if (std::cmp_not_equal(cut.layers.size(), stages)) {
      throw InputError(
          concat("layers are given for ", cut.layers.size(), " stages, and this schedule cuts the model into ", stages));
    }
    const std::int64_t given = detail::sum_of(cut.layers);
    if (given != total) throw InputError(concat("the stages have ", given, " layers together, and the model has ", total));
    return cut.layers;
  }
  if (!cut.each.empty()) return balanced_layers(cut.each, stages, cut.embedding, cut.head);
  if (!cut.is_even()) return balanced_layers(total, stages, cut.embedding, cut.head);
  const std::int64_t more = edges_count ? 2 : 0;
  const auto before = [&](int stage) {
    return static_cast<std::int32_t>(std::clamp<std::int64_t>(stage * (total + more) / stages - more / 2, 0, total));
  };
  std::vector<std::int32_t> layers;
  for (int stage = 0; stage < stages; ++stage) layers.push_back(before(stage + 1) - before(stage));
  return layers;
}

namespace detail {

/// The text with `x*3` and `(xy|)*3` written out. @throws InputError  for invalid text, or more
/// than 65,536 characters
inline std::string written_out(std::string_view layout) {
  const auto fail = [&](std::string_view why) { return InputError(concat("stages ", quote(layout), ": ", why)); };
  std::string out;
  std::size_t at = 0;
  while (at < layout.size()) {
    std::string part{layout[at]};
    std::size_t next = at + 1;
    if (layout[at] == '(') {
      const std::size_t close = layout.find(')', at);
      if (close == std::string_view::npos) throw fail("'(' has no ')'");
      part = written_out(layout.substr(at + 1, close - at - 1));
      next = close + 1;
      if (next >= layout.size() || layout[next] != '*') throw fail("')' is followed by '*' and a number, as in (tt|)*29");
    }
    std::int64_t times = 1;
    if (next < layout.size() && layout[next] == '*') {
      std::size_t end = next + 1;
      while (end < layout.size() && layout[end] >= '0' && layout[end] <= '9') ++end;
      const auto number = to_number<std::int64_t>(layout.substr(next + 1, end - next - 1));
      if (!number || *number > 65536) throw fail("'*' is followed by a number up to 65536, as in t*3");
      times = *number;
      next = end;
    }
    if (out.size() + part.size() * static_cast<std::size_t>(times) > 65536) throw fail("there are more than 65536 layers");
    for (std::int64_t i = 0; i < times; ++i) out += part;
    at = next;
  }
  return out;
}

/// Megatron-LM's string: E embedding, t a layer, L loss, | between stages.
inline StageCut parse_stage_layout(std::string_view text) {
  const auto fail = [&](std::string_view why) { return InputError(concat("stages ", quote(text), ": ", why)); };
  std::string plain;
  for (const char c : text) {
    if (c != ',') plain += c;
  }
  const std::string written = written_out(plain);
  if (written.empty() || written.front() != 'E') throw fail("the first is E, the embedding, as in Et*3|(tt|)*29L");
  if (written.back() != 'L') throw fail("the last is L, the loss, as in Et*3|(tt|)*29L");
  StageCut cut{.layers = {0}};
  for (std::size_t i = 0; i < written.size(); ++i) {
    switch (written[i]) {
      case '|':
        cut.layers.push_back(0);
        break;
      case 't':
        ++cut.layers.back();
        break;
      case 'E':
        if (i > 0) throw fail("there is one E, at the beginning");
        break;
      case 'L':
        if (i + 1 < written.size()) throw fail("there is one L, at the end");
        break;
      case 'm':
        throw fail("layers that predict several tokens (m) are not modelled");
      default:
        throw fail(concat("'", one_line(std::string{written[i]}), "' is none of E, t, L and |"));
    }
  }
  return cut;
}

}  // namespace detail

/// The text of a cut that parse_stage_cut() reads; the weights of embedding and head are left out.
inline std::string name(const StageCut& cut) {
  if (cut.layers.empty()) return cut.balanced ? "auto" : "even";
  std::string text;
  for (const std::int32_t layers : cut.layers) text += concat(text.empty() ? "" : ",", layers);
  return text;
}

/// The same as Megatron-LM's layout, with equal stages that follow each other written once: Et*2|(t*3|)*4t*2L.
/// @pre !cut.layers.empty()
inline std::string stage_layout(const StageCut& cut) {
  std::string text = "E";
  for (std::size_t stage = 0; stage < cut.layers.size();) {
    const std::int32_t layers = cut.layers[stage];
    std::size_t next = stage + 1;  // the last stage has the loss, and no | behind it
    while (stage > 0 && next + 1 < cut.layers.size() && cut.layers[next] == layers) ++next;
    const std::string one =
        concat(layers == 0 ? "" : "t", layers > 1 ? concat("*", layers) : std::string{}, next < cut.layers.size() ? "|" : "L");
    text += next > stage + 1 ? concat("(", one, ")*", next - stage) : one;
    stage = next;
  }
  return text;
}

/// "even"; "auto", balanced by a cost model; the layers of each stage, "7,8,8,7"; or Megatron-LM's
/// layout, "Et*3|(tt|)*29L".
/// @throws InputError  naming what is invalid
/// Source: Megatron-LM, --pipeline-model-parallel-layout
/// (megatron/core/transformer/pipeline_parallel_layer_layout.py).
inline StageCut parse_stage_cut(std::string_view text) {
  if (text.empty() || text == "even") return {};
  if (text == "auto") return {.balanced = true};
  if (text.find_first_not_of("0123456789, ") != std::string_view::npos) return detail::parse_stage_layout(text);
  StageCut cut;
  for (const std::string_view number : split(text, ',')) {
    const auto layers = to_number<std::int32_t>(trimmed(number));
    if (!layers || *layers > 1'000'000) {
      throw InputError(
          concat("stages ", quote(text),
                 " must be the layers of each, such as 7,8,8,7, or auto, even, or a layout such as Et*7|t*8|t*8|t*7L"));
    }
    cut.layers.push_back(*layers);
  }
  return cut;
}

}  // namespace tawpipe
