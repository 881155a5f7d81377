// The kernels of a layer, from a reading of its operators.
// Not: what each operator computes (model/operator.hpp), nor operations and memory
// (model/detail/operator_reading.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/detail/operator_reading.hpp"
#include "tawpipe/model/dtype.hpp"
#include "tawpipe/model/kernel.hpp"
#include "tawpipe/model/operator.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::detail {

class OperatorKernels {
 public:
  using Kind = Operator::Kind;

  explicit OperatorKernels(const OperatorReading& reading)
      : reading_{reading},
        list_{reading.operators()},
        model_{reading.model()},
        batch_{reading.batch()},
        element_{static_cast<double>(size_bytes(model_.dtype))},
        tokens_{static_cast<double>(batch_.tokens())} {}

  void add_to(std::vector<Kernel>& list) const {
    for (std::size_t i = 0; i < list_.size(); ++i) {
      const Operator& op = list_[i];
      if (op.kind == Kind::product) add_product(list, i);
      if (op.kind == Kind::attention) add_attention(list, i);
      if (op.kind == Kind::index) add_index(list, i);
      if (op.kind == Kind::delta_rule || op.kind == Kind::state_space) add_recurrence(list, i);
    }
    for (const Split split : {Split::tokens, Split::width, Split::experts}) {
      add_traffic(list, KernelPass::forward, split);
      add_traffic(list, KernelPass::recompute, split);
      add_traffic(list, KernelPass::backward_input, split);
    }
  }

 private:
  using Dimension = Kernel::Dimension;
  static Dimension dimension_of(Split split) {
    return split == Split::tokens ? Dimension::m : split == Split::experts ? Dimension::none : Dimension::n;
  }
  ProductFormat format_of(std::size_t i) const {
    if (model_.dtype == Dtype::f32) return ProductFormat::bits32;
    return is_narrow(model_.products) && reading_.is_router(i) ? ProductFormat::bits16 : model_.products;
  }
  /// The width of all products of the same input that become one, of which this is the first; 0: it is
  /// not the first.
  std::int64_t joined(std::size_t i) const {
    const Operator& op = list_[i];
    if (model_.is_torchtitan() || op.needs == Split::tokens || op.needs == Split::width) return op.out;
    std::int64_t width = 0;
    for (std::size_t other = 0; other < list_.size(); ++other) {
      const Operator& same = list_[other];
      if (same.kind != Kind::product || same.from[0] != op.from[0] || same.needs != op.needs || same.count != op.count) continue;
      if (other < i) return 0;
      width += same.out;
    }
    return width;
  }
  void add_product(std::vector<Kernel>& list, std::size_t i) const {
    const Operator& op = list_[i];
    const std::int64_t out = joined(i);
    if (out == 0) return;
    const std::int64_t rows = (batch_.tokens() * op.copies + op.count - 1) / op.count;
    const bool inward = op.needs == Split::whole || (op.is_of_experts() && op.in < op.out);
    const Dimension by = op.needs == Split::tokens ? Dimension::m : inward ? Dimension::n : Dimension::k;
    const auto back = [&](Dimension m, Dimension n, Dimension k) { return by == Dimension::m ? m : by == Dimension::n ? n : k; };
    const auto add = [&](KernelPass pass, std::int64_t m, std::int64_t n, std::int64_t k, Dimension tensor, Dimension context) {
      list.push_back({.kind = Kernel::Kind::product,
                      .pass = pass,
                      .format = format_of(i),
                      .by_tensor = tensor,
                      .by_context = context,
                      .adds = model_.fuses_accumulation(),
                      .of_experts = op.is_of_experts(),
                      .by_tokens = by == Dimension::m,
                      .m = m,
                      .n = n,
                      .k = k,
                      .batch = op.count});
    };
    add(KernelPass::forward, rows, out, op.in, by, Dimension::m);
    if (reading_.runs_again(i)) add(KernelPass::recompute, rows, out, op.in, by, Dimension::m);
    add(KernelPass::backward_input, rows, op.in, out, back(Dimension::m, Dimension::k, Dimension::n), Dimension::m);
    add(KernelPass::backward_weight, out, op.in, rows, back(Dimension::k, Dimension::m, Dimension::n), Dimension::k);
    add_casts(list, i, out);
  }
  /// Casts of a product's input and of its result's gradient: half of them by the kernel that makes
  /// them, all written in both layouts. Without fused accumulation gradients are added by kernels.
  void add_casts(std::vector<Kernel>& list, std::size_t i, std::int64_t out) const {
    const Operator& op = list_[i];
    const auto add = [&](KernelPass pass, double bytes, std::int32_t launches, bool of_weights) {
      if (bytes <= 0) return;
      list.push_back({.kind = Kernel::Kind::traffic,
                      .pass = pass,
                      .by_tensor = Dimension::n,
                      .launches = launches,
                      .of_weights = of_weights,
                      .of_experts = op.is_of_experts(),
                      .bytes = bytes});
    };
    if (is_narrow(format_of(i))) {
      const bool twice = format_of(i) == ProductFormat::nvfp4;
      const double each = (twice ? 2 * element_ : 1) + 2 * bytes_of(format_of(i));
      const double rows = tokens_ * op.copies;
      add(KernelPass::forward, rows * static_cast<double>(op.in) * each, twice ? 2 : 1, false);
      if (reading_.runs_again(i)) add(KernelPass::recompute, rows * static_cast<double>(op.in) * each, twice ? 2 : 1, false);
      add(KernelPass::backward_input, rows * static_cast<double>(out) * each, twice ? 2 : 1, false);
    }
    if (model_.fuses_accumulation()) return;
    const double sum = model_.dtype == Dtype::f16 ? element_ : std::max(4.0, element_);
    add(KernelPass::backward_weight, (element_ + 2 * sum) * static_cast<double>(op.in * out * op.count), 1, true);
  }
  void add_attention(std::vector<Kernel>& list, std::size_t i) const {
    const Operator& op = list_[i];
    const auto add = [&](Kernel::Kind kind, KernelPass pass) {
      list.push_back({.kind = kind,
                      .pass = pass,
                      .by_tensor = Dimension::batch,
                      .by_context = Dimension::m,
                      .pytorch = model_.is_torchtitan(),
                      .m = batch_.sequence,
                      .n = static_cast<std::int64_t>(op.span(batch_.sequence) + 0.5),
                      .k = (op.key + op.value) / 2,
                      .batch = batch_.microbatch_size * op.count});
    };
    add(Kernel::Kind::attention, KernelPass::forward);
    if (reading_.runs_again(i)) add(Kernel::Kind::attention, KernelPass::recompute);
    add(Kernel::Kind::attention_backward, KernelPass::backward_input);
  }
  /// Products by heads or by chunks of a sequence, `count` of each, and twice as many in the backward.
  void add_products(std::vector<Kernel>& list, std::size_t i, std::int64_t m, std::int64_t n, std::int64_t k,
                    std::int64_t count) const {
    const auto add = [&](KernelPass pass, std::int32_t times) {
      list.push_back({.kind = Kernel::Kind::product,
                      .pass = pass,
                      .by_tensor = Dimension::batch,
                      .by_context = Dimension::batch,
                      .count = times,
                      .m = m,
                      .n = n,
                      .k = k,
                      .batch = count});
    };
    add(KernelPass::forward, 1);
    if (reading_.runs_again(i)) add(KernelPass::recompute, 1);
    add(KernelPass::backward_input, 2);
  }
  void add_index(std::vector<Kernel>& list, std::size_t i) const {
    const Operator& op = list_[i];
    add_products(list, i, batch_.sequence, (batch_.sequence + 1) / 2, op.key, batch_.microbatch_size * op.count);
  }
  /// The products of a chunk: for Mamba-2 scores, their product with the inputs, the chunk's state and
  /// what the earlier state gives; for a delta net also those that solve for what each key takes away.
  void add_recurrence(std::vector<Kernel>& list, std::size_t i) const {
    const Operator& op = list_[i];
    const bool delta = op.kind == Kind::delta_rule;
    const std::int64_t chunk = std::min<std::int64_t>(delta ? 64 : 256, batch_.sequence);
    const std::int64_t count = batch_.microbatch_size * op.count * ((batch_.sequence + chunk - 1) / chunk);
    const auto times = [&](std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t products) {
      add_products(list, i, m, n, k, count * products);
    };
    times(chunk, chunk, op.key, delta ? 2 : 1);
    times(chunk, op.value, chunk, delta ? 2 : 1);
    if (delta) times(chunk, op.key, chunk, 1);
    times(chunk, op.value, op.key, delta ? 2 : 1);
    times(op.key, op.value, chunk, 1);
  }
  /// All memory-bound kernels of a pass that ranks split in one way.
  void add_traffic(std::vector<Kernel>& list, KernelPass pass, Split split) const {
    double sum = 0;
    std::int32_t launches = 0;
    for (std::size_t i = 0; i < list_.size(); ++i) {
      const Operator& op = list_[i];
      const bool experts = op.kind == Kind::dispatch || op.kind == Kind::combine;
      if ((experts ? Split::experts : op.gives == Split::experts ? Split::width : op.gives) != split) continue;
      if (pass == KernelPass::recompute && !reading_.runs_again(i)) continue;
      const OperatorReading::Moved moved = reading_.moved_by(i, true);
      const double bytes = pass == KernelPass::backward_input ? moved.backward : moved.forward;
      if (bytes > 0) ++launches;
      sum += bytes;
    }
    if (sum <= 0) return;
    list.push_back({.kind = Kernel::Kind::traffic,
                    .pass = pass,
                    .by_tensor = dimension_of(split),
                    .launches = launches,
                    .of_experts = split == Split::experts,
                    .bytes = sum * tokens_});
  }

  const OperatorReading& reading_;
  const std::vector<Operator>& list_;
  const Transformer& model_;
  const Batch& batch_;
  double element_;
  double tokens_;
};

}  // namespace tawpipe::detail
