// Speeds of computation while SMs are held, as measured by bench_gpu_beside: read from its output.
// Not: their use (cost/held_sms.hpp).
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/cost/held_sms.hpp"
#include "tawpipe/json/json_reader.hpp"

namespace tawpipe::inline v0 {

/// Speeds measured on one device.
struct HeldSpeeds {
  std::vector<HeldSpeed> speeds;  ///< by ascending CTAs
  int sms = 0;                    ///< of the device; 0: unknown
};

namespace detail {

/// JSON lines as a list; anything else unchanged.
inline std::string list_of_lines(std::string_view text) {
  const std::string_view first = trimmed(text.substr(0, text.find('\n')));
  if (first.size() < 2 || !first.starts_with('{') || !first.ends_with('}')) return std::string{text};
  std::string list = "[";
  for (const std::string_view line : split(text, '\n')) {
    if (!trimmed(line).empty()) list += concat(list.size() > 1 ? ",\n" : "", line);
  }
  return list + "]";
}

}  // namespace detail

/// @param priority  of the stream that holds the SMs: "high" or "low"
/// @param source  the file's name, for messages
/// @throws InputError  in one line, naming the key that is wrong, or if nothing was measured at
/// that priority.
inline HeldSpeeds parse_held_speeds(std::string_view text, std::string_view source, std::string_view priority) {
  const JsonDocument document{detail::list_of_lines(text), source};
  const JsonValue lines = document.root();
  HeldSpeeds found;
  for (const JsonValue line : lines) {
    if (const auto sms = line.find("multiprocessors")) found.sms = sms->whole<int>(1, max_device_sms);
    const auto ctas = line.find("ctas");
    if (!ctas) continue;
    const std::string& measured_at = line.at("priority").text();
    if (measured_at != "high" && measured_at != "low") line.at("priority").expected("\"high\" or \"low\"");
    if (measured_at != priority) continue;
    // Speeds measured above that of the computation by itself are set to it: the rest is noise.
    found.speeds.push_back({ctas->whole<int>(1, max_device_sms), std::min(1.0, line.at("speed").positive())});
  }
  if (found.speeds.empty()) {
    lines.fail(concat("no line has a \"speed\" and \"ctas\" at ", priority, " priority; give what bench_gpu_beside printed"));
  }
  std::sort(found.speeds.begin(), found.speeds.end(), [](const HeldSpeed& a, const HeldSpeed& b) { return a.ctas < b.ctas; });
  for (std::size_t i = 1; i < found.speeds.size(); ++i) {
    if (found.speeds[i].ctas == found.speeds[i - 1].ctas) {
      lines.fail(concat(found.speeds[i].ctas, " CTAs at ", priority, " priority are measured twice; keep one"));
    }
  }
  return found;
}

}  // namespace tawpipe
