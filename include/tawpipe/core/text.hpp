// Small helpers for messages: joining, quoting, and the nearest of some names.
// Not: formatting for people (report/ uses fmt).
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tawpipe::inline v0 {

namespace detail {

inline void append(std::string& out, std::string_view text) { out += text; }
inline void append(std::string& out, char text) { out += text; }
template <class Number>
requires std::is_arithmetic_v<Number>
void append(std::string& out, Number number) { out += std::to_string(number); }

}  // namespace detail

/// Joins text and numbers: `concat("rank ", 3, " of ", 8)`.
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::string out;
  (detail::append(out, parts), ...);
  return out;
}

/// The text with each control character replaced by '?': fit for a one-line message and a terminal,
/// whatever a user's file or path holds. Those beyond ASCII (C1) take two bytes of UTF-8, 0xc2 and
/// 0x80 to 0x9f.
inline std::string one_line(std::string text) {
  unsigned char before = 0;
  for (char& c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f || (before == 0xc2 && byte >= 0x80 && byte < 0xa0)) c = '?';
    before = byte;
  }
  return text;
}

/// `text` in single quotes and on one line, as messages show what a user wrote.
inline std::string quote(std::string_view text) { return concat("'", one_line(std::string{text}), "'"); }

/// The text after a UTF-8 byte order mark, which Windows' editors put before it.
inline std::string_view without_byte_order_mark(std::string_view text) {
  return text.starts_with("\xef\xbb\xbf") ? text.substr(3) : text;
}

/// Joins `parts` with `separator` between them.
inline std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string out;
  for (const auto& part : parts) {
    if (!out.empty()) out += separator;
    out += part;
  }
  return out;
}

/// The parts of `text` between separators: one more than there are separators.
inline std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t end = text.find(separator); end != std::string_view::npos; end = text.find(separator)) {
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  parts.push_back(text);
  return parts;
}

/// The text without spaces, tabs and carriage returns around it.
inline std::string_view trimmed(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(" \t\r"), text.size());
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

/// The text in lower case (A to Z only).
inline std::string lower_case(std::string_view text) {
  std::string lower{text};
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

/// Levenshtein distance. Complexity: O(|a| |b|).
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

/// The candidate closest to `name` by edit distance, whatever the case of letters, or "" when none
/// is close enough to be meant.
inline std::string nearest(std::string_view name, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, name.size() / 2) + 1;
  for (const auto& candidate : candidates) {
    const std::size_t distance = edit_distance(lower_case(name), lower_case(candidate));
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

/// The names, joined; of more than 30 the ten nearest to `name`, and how many more there are.
inline std::string listed_names(std::string_view name, std::vector<std::string> known) {
  constexpr std::size_t all = 30, some = 10;
  if (known.size() <= all) return join(known, ", ");
  const auto distance = [&](const std::string& other) { return edit_distance(lower_case(name), lower_case(other)); };
  std::ranges::stable_sort(known, {}, distance);
  const std::size_t more = known.size() - some;
  known.resize(some);
  return concat(join(known, ", "), " and ", more, " more");
}

/// Why a name stands for what this library does not do; "" for other names.
inline std::string_view out_of_scope(std::string_view name) {
  struct Word {
    std::string_view part;
    std::string_view why;
  };
  constexpr std::string_view adapters =
      "adapters (LoRA and its kin) are not modelled: all parameters are trained; a plan without them is an upper bound on "
      "time and memory";
  constexpr std::string_view inference = "this is about training; inference is not modelled";
  constexpr std::string_view others =
      "only NVIDIA's GPUs are modelled; a cluster file can give any device's peak, memory and links";
  const std::string lower = lower_case(name);
  for (const Word word : {Word{"lora", adapters}, Word{"peft", adapters}, Word{"adapter", adapters}, Word{"inference", inference},
                          Word{"serving", inference}, Word{"vllm", inference}, Word{"tpu", others}, Word{"trainium", others},
                          Word{"gaudi", others}, Word{"mi300", others}, Word{"mi325", others}, Word{"mi355", others},
                          Word{"diffusion", "only decoders (language models) are modelled"}}) {
    const std::size_t at = lower.find(word.part);
    const bool begins =
        at == 0 || (at != std::string::npos && (lower[at - 1] < 'a' || lower[at - 1] > 'z' || word.part == "lora"));
    if (at != std::string::npos && begins) return word.why;
  }
  return {};
}

/// The sentence for an unknown name: what is wrong, the nearest name, and those that exist; or why there is
/// no such thing.
inline std::string unknown_name(std::string_view kind, std::string_view name, const std::vector<std::string>& known) {
  std::string message = concat("unknown ", kind, " ", quote(name));
  if (const std::string_view why = out_of_scope(name); !why.empty()) return concat(message, ": ", why);
  const auto close = nearest(name, known);
  if (close.empty()) return concat(message, "; known: ", listed_names(name, known));
  return concat(message, "; did you mean ", quote(close), "? Known: ", listed_names(name, known));
}

}  // namespace tawpipe
