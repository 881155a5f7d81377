// What names in a PyTorch profiler trace mean: kinds of work, and what kept the host busy.
// Not: the events themselves (kineto_events.hpp).
#pragma once

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/text.hpp"
#include "tawpipe/replay/traced_run.hpp"
#include "tawpipe/report/detail/kineto_events.hpp"

namespace tawpipe::inline v0::detail {

inline bool has_any(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](std::string_view part) { return text.find(part) != std::string_view::npos; });
}
/// The kind of a kernel or operator, by its name.
inline TraceKind trace_kind_of(const std::string& name) {
  const std::string text = lower_case(name);
  if (text.starts_with("memcpy") || text.starts_with("memset")) return TraceKind::copy;
  if (has_any(text, {"flash", "fmha", "attention", "sdpa", "attn"})) return TraceKind::attention;
  if (has_any(text, {"gemm", "cutlass", "cublas", "xmma", "nvjet", "matmul", "aten::mm", "aten::bmm", "aten::addmm",
                     "aten::linear", "aten::baddbmm", "addmmbackward", "::mmbackward", "bmmbackward"})) {
    return TraceKind::matmul;
  }
  return TraceKind::compute;
}

/// [thread] the causes by start, none overlapping another. The loader and the collector count before
/// functions of Python; of these the innermost that took long, as the outer ones only called it.
inline std::map<int, std::vector<KinetoCause>> causes_by_thread(std::vector<KinetoCause> causes) {
  const auto order = [](const KinetoCause& one) {
    return one.name == KinetoReader::loader_cause ? 0 : one.name == KinetoReader::collector_cause ? 1 : 2;
  };
  std::stable_sort(causes.begin(), causes.end(), [&](const KinetoCause& a, const KinetoCause& b) {
    return order(a) != order(b) ? order(a) < order(b) : a.end - a.start < b.end - b.start;
  });
  std::map<int, std::vector<KinetoCause>> by_thread;
  for (KinetoCause& cause : causes) {
    std::vector<KinetoCause>& own = by_thread[cause.thread];
    const auto after = std::lower_bound(own.begin(), own.end(), cause.start,
                                        [](const KinetoCause& one, double start) { return one.start < start; });
    const bool free =
        (after == own.end() || after->start >= cause.end) && (after == own.begin() || std::prev(after)->end <= cause.start);
    if (free && cause.end > cause.start) own.insert(after, std::move(cause));
  }
  return by_thread;
}

}  // namespace tawpipe::detail
