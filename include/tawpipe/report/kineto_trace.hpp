// A PyTorch profiler (Kineto) trace read as times of the model's parts, collectives and matrix
// products.
// Not: a cost model's times from that (analysis/gpu_profile.hpp), nor traces for Perfetto
// (report/chrome_trace.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/analysis/gpu_profile.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/report/detail/kineto_collectives.hpp"
#include "tawpipe/report/detail/kineto_events.hpp"

namespace tawpipe::inline v0 {

/// The names of the model's parts: from record_function() around them, or from their modules'
/// classes (with_stack=True). A name may be followed by a number: "layer" is also "layer_3", "layer
/// 3", "layer.3".
struct KinetoNames {
  std::string layer = "layer";
  std::string embedding = "embedding";
  std::string head = "head";
};

namespace detail {

class KinetoProfile {
 public:
  KinetoProfile(KinetoEvents events, const KinetoNames& names) : events_{std::move(events)}, names_{names} {}

  GpuProfile read() {
    profile_.rank = static_cast<int>(events_.rank);
    profile_.device = events_.device;
    profile_.memory = events_.memory;
    profile_.software = events_.software;
    nest(events_);
    for (std::size_t e = 0; e < events_.host.size(); ++e) {
      if (events_.host[e].forward) made_[events_.host[e].sequence].push_back(static_cast<int>(e));
    }
    for (auto& [sequence, made] : made_) {
      std::sort(made.begin(), made.end(), [&](int a, int b) { return host(a).start < host(b).start; });
    }
    for (const KinetoKernel& kernel : events_.kernels) {
      if (!is_communication(kernel)) place(kernel);
    }
    finish_computations();
    finish_products();
    read_collectives();
    name_ranges();
    return std::move(profile_);
  }

 private:
  using Span = std::pair<double, double>;

  const KinetoHostEvent& host(int event) const { return events_.host[static_cast<std::size_t>(event)]; }

  static bool is_called(std::string_view name, std::string_view text) {
    if (text.empty() || !name.starts_with(text)) return false;
    name.remove_prefix(text.size());
    if (!name.empty() && std::string_view{"_ .#:-"}.find(name.front()) != std::string_view::npos) name.remove_prefix(1);
    return std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
  }
  std::optional<ModelPart> part_of(std::string_view name) const {
    if (is_called(name, names_.layer)) return ModelPart::layer;
    if (is_called(name, names_.embedding)) return ModelPart::embedding;
    if (is_called(name, names_.head)) return ModelPart::head;
    return std::nullopt;
  }

  /// The nearest event from `event` outwards that is a part of the model; -1: none.
  int part_around(int event) const {
    while (event >= 0 && !part_of(host(event).name)) event = host(event).parent;
    return event;
  }

  /// The forward operator that created the autograd node run by `backward`: the last one before it
  /// with the same number.
  int made_for(const KinetoHostEvent& backward) const {
    const auto made = made_.find(backward.sequence);
    if (backward.sequence < 0 || made == made_.end()) return -1;
    int latest = -1;
    for (const int e : made->second) {
      if (host(e).start < backward.start) latest = e;
    }
    return latest;
  }

  /// Adds a kernel to the occurrence of a part that it belongs to. A kernel launched by a backward
  /// belongs to the part around the operator that created its autograd node; a checkpoint's
  /// recomputation is launched within the part, and within a backward.
  void place(const KinetoKernel& kernel) {
    const auto launched = events_.by_external.find(kernel.external);
    if (launched == events_.by_external.end()) return;
    if (!host(launched->second).dims.empty()) product_spans_[launched->second].emplace_back(kernel.start, kernel.end);
    int part = -1;
    int node = -1;  // the autograd node, innermost
    for (int e = launched->second; e >= 0; e = host(e).parent) {
      if (host(e).name.starts_with("Optimizer.step#")) {
        updates_[e].emplace_back(kernel.start, kernel.end);
        return;
      }
      if (node < 0 && host(e).name.starts_with("autograd::engine::evaluate_function")) node = e;
      if (part < 0 && part_of(host(e).name)) part = e;
      if (host(e).annotation && !host(e).name.starts_with("ProfilerStep")) ++ranges_[without_number(host(e).name)];
    }
    if (part < 0 && node >= 0) part = part_around(made_for(host(node)));
    if (part < 0) return;
    spans_[{part, node >= 0}].emplace_back(kernel.start, kernel.end);
  }

  static std::string without_number(std::string name) {
    while (!name.empty() && std::string_view{"0123456789_ .#:-"}.find(name.back()) != std::string_view::npos) name.pop_back();
    return name;
  }
  void name_ranges() {
    std::vector<std::pair<std::size_t, std::string>> by_count;
    for (const auto& [name, count] : ranges_) by_count.emplace_back(count, name);
    std::stable_sort(by_count.begin(), by_count.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    for (const auto& [count, name] : by_count) profile_.ranges.push_back(name);
  }

  /// Seconds during which any of the kernels ran.
  static double busy(std::vector<Span>& spans) {
    std::sort(spans.begin(), spans.end());
    double sum = 0;
    double until = spans.front().first;
    for (const auto& [start, end] : spans) {
      sum += std::max(0.0, end - std::max(start, until));
      until = std::max(until, end);
    }
    return sum * 1e-6;
  }

  void finish_computations() {
    for (auto& [key, spans] : spans_) {
      const auto& [event, backward] = key;
      profile_.computations.push_back({backward ? Op::backward : Op::forward, *part_of(host(event).name), busy(spans)});
    }
    for (auto& [event, spans] : updates_) profile_.computations.push_back({Op::update, ModelPart::layer, busy(spans)});
  }

  /// The operations of an operator on matrices; 0 for others, and without its shapes
  /// (record_shapes=True).
  static double product_flops(const KinetoHostEvent& op) {
    const bool added = op.name == "aten::addmm" || op.name == "aten::baddbmm";
    if (!added && op.name != "aten::mm" && op.name != "aten::bmm") return 0;
    const std::size_t first = added ? 1 : 0;
    if (op.dims.size() < first + 2) return 0;
    const auto& a = op.dims[first];      // [m, k] or [batch, m, k]
    const auto& b = op.dims[first + 1];  // [k, n] or [batch, k, n]
    if (a.size() < 2 || a.size() != b.size()) return 0;
    double flops = 2;
    for (const std::int64_t size : a) flops *= static_cast<double>(size);
    return flops * static_cast<double>(b.back());
  }

  void finish_products() {
    for (auto& [event, spans] : product_spans_) {
      const double flops = product_flops(host(event));
      if (flops <= 0) continue;
      ++profile_.products;
      profile_.product_flops += flops;
      profile_.product_seconds += busy(spans);
    }
  }

  void read_collectives() {
    std::vector<const KinetoKernel*> kernels;
    for (const KinetoKernel& kernel : events_.kernels) {
      if (is_communication(kernel)) kernels.push_back(&kernel);
    }
    std::sort(kernels.begin(), kernels.end(), [](const KinetoKernel* a, const KinetoKernel* b) {
      return a->device != b->device ? a->device < b->device : a->start != b->start ? a->start < b->start : a->end < b->end;
    });
    double until = 0;
    for (std::size_t k = 0; k < kernels.size(); ++k) {
      const KinetoKernel& kernel = *kernels[k];
      if (k == 0 || kernels[k - 1]->device != kernel.device) until = kernel.start;
      const bool meets_next =
          k + 1 < kernels.size() && kernels[k + 1]->device == kernel.device && kernels[k + 1]->start < kernel.end;
      const bool alone = !meets_next && kernel.start >= until;
      until = std::max(until, kernel.end);
      const auto& noted = collective_of(events_, kernel);
      if (!noted) continue;
      const auto op = op_of(noted->name);
      const std::int64_t bytes = bytes_of(*noted);
      auto members = members_of(events_, *noted);
      if (!op || bytes == 0 || members.empty()) continue;
      profile_.collectives.push_back({*op, std::move(members), bytes, (kernel.end - kernel.start) * 1e-6, alone});
    }
  }

  KinetoEvents events_;
  const KinetoNames& names_;
  /// [sequence number] forward operators, by start
  std::map<std::int64_t, std::vector<int>> made_;
  std::map<std::pair<int, bool>, std::vector<Span>> spans_;  ///< [part's event, backward]
  std::map<int, std::vector<Span>> updates_;                 ///< [optimizer step's event]
  std::map<int, std::vector<Span>> product_spans_;           ///< [operator]
  std::map<std::string, std::size_t> ranges_;                ///< [annotation's name] kernels in it
  GpuProfile profile_;
};

}  // namespace detail

/// Reads the trace of one device, written by torch.profiler's export_chrome_trace.
///
/// Kernels belong to the part of the model around the operator that launched them, those of a
/// backward to the part whose forward created the autograd node ("Sequence number"). NCCL's kernels
/// are not computation; all-reduce, all-gather, reduce-scatter, broadcast and reduce become
/// collectives if the trace has sizes and groups. Matrix products (mm, addmm, bmm, baddbmm) need
/// record_shapes=True.
/// @param source  the file's name, for messages
/// @throws InputError  in one line: compressed, truncated, not JSON, not a trace, or without GPU
/// kernels.
/// Source: pytorch/kineto, libkineto/src/output_json.cpp; pytorch,
/// torch/csrc/autograd/profiler_kineto.cpp.
inline GpuProfile read_kineto_trace(std::string_view text, const KinetoNames& names = {}, std::string_view source = "trace") {
  return detail::KinetoProfile{detail::KinetoReader::read(text, source), names}.read();
}

/// @throws InputError  if no layer of that name was found in the traces, with the names that are.
inline void check_layers(const MeasuredCost& cost, std::span<const GpuProfile> profiles, const KinetoNames& names) {
  const bool forward = cost.forward && cost.forward->layer > 0;
  if (forward && cost.backward && cost.backward->layer > 0) return;
  std::vector<std::string> ranges;
  for (const GpuProfile& profile : profiles) {
    for (const std::string& range : profile.ranges) {
      if (ranges.size() < 8 && std::find(ranges.begin(), ranges.end(), range) == ranges.end()) ranges.push_back(range);
    }
  }
  throw InputError(one_line(concat(
      "the traces have no ", forward ? "backward" : "forward", " of a layer: nothing with such kernels is called ",
      quote(names.layer), "; name yours with --layer",
      ranges.empty()
          ? concat("; they name no range, so put record_function(\"layer\") around a layer, or profile with with_stack=True")
          : concat(", such as ", join(ranges, ", ")))));
}

}  // namespace tawpipe
