// The kernels of a layer, each of its operator, from a reading of its operators.
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

  /// Kernel::op is the operator's place in the list.
  void add_to(std::vector<Kernel>& list) const {
    for (std::size_t i = 0; i < list_.size(); ++i) {
      const std::size_t first = list.size();
      switch (list_[i].kind) {
        case Kind::product:
          add_product(list, i);
          break;
        case Kind::attention:
          model_.fused_attention ? add_attention(list, i) : add_scores(list, i);
          break;
        case Kind::index:
          add_products(list, i, batch_.sequence, (batch_.sequence + 1) / 2, list_[i].key,
                       batch_.microbatch_size * list_[i].count);
          break;
        case Kind::delta_rule:
        case Kind::state_space:
          add_recurrence(list, i);
          break;
        default:
          break;
      }
      add_moved(list, i);
      for (std::size_t k = first; k < list.size(); ++k) list[k].op = static_cast<std::int16_t>(i);
    }
  }

 private:
  using Dimension = Kernel::Dimension;

  const Operator& input_of(std::size_t i) const { return list_[static_cast<std::size_t>(list_[i].from[0])]; }
  bool is_inward(std::size_t i) const {
    return list_[i].needs == Split::whole || (list_[i].is_of_experts() && input_of(i).kind == Kind::dispatch);
  }
  ProductFormat format_of(std::size_t i) const {
    if (model_.dtype == Dtype::f32) return ProductFormat::bits32;
    return is_narrow(model_.products) && reading_.is_router(i) ? ProductFormat::bits16 : model_.products;
  }
  /// Whether no product before it reads the same.
  bool is_first_reader(std::size_t i) const {
    return std::none_of(list_.begin(), list_.begin() + static_cast<std::ptrdiff_t>(i),
                        [&](const Operator& op) { return op.kind == Kind::product && op.from[0] == list_[i].from[0]; });
  }
  /// The width of all products of the same input that become one, of which this is the first; 0: it is
  /// not the first.
  std::int64_t joined(std::size_t i) const {
    const Operator& op = list_[i];
    if (!reading_.software().joins_products || op.needs == Split::tokens || op.needs == Split::width) return op.out;
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
    const Dimension by = op.needs == Split::tokens ? Dimension::m : is_inward(i) ? Dimension::n : Dimension::k;
    const auto back = [&](Dimension m, Dimension n, Dimension k) { return by == Dimension::m ? m : by == Dimension::n ? n : k; };
    const auto add = [&](KernelPass pass, std::int64_t m, std::int64_t n, std::int64_t k, Dimension tensor, Dimension context) {
      list.push_back({.kind = Kernel::Kind::product,
                      .pass = pass,
                      .format = format_of(i),
                      .by_tensor = tensor,
                      .by_context = context,
                      .singles = op.is_of_experts() ? static_cast<std::int32_t>(op.count) : 0,
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
    if (is_narrow(format_of(i))) model_.is_torchtitan() ? add_torchao_casts(list, i) : add_casts(list, i, out);
    if (op.is_of_experts() && op.vectors > 0 && !is_inward(i)) add_expert_biases(list, i);
    add_weights(list, i, KernelPass::backward_weight, static_cast<double>(model_.added_bytes() * op.in * out * op.count));
  }
  void add_traffic(std::vector<Kernel>& list, std::size_t i, KernelPass pass, double bytes, Dimension by, int launches) const {
    if (bytes <= 0) return;
    list.push_back({.kind = Kernel::Kind::traffic,
                    .pass = pass,
                    .by_tensor = by,
                    .launches = launches,
                    .of_experts = list_[i].is_of_experts(),
                    .bytes = bytes});
  }
  void add_weights(std::vector<Kernel>& list, std::size_t i, KernelPass pass, double bytes) const {
    add_traffic(list, i, pass, bytes, Dimension::n, 1);
    if (bytes > 0) list.back().of_weights = true;
  }
  static bool has_scale_of_tensor(ProductFormat format) { return format == ProductFormat::fp8 || format == ProductFormat::nvfp4; }
  /// Bytes of a number's scale that are put in another order, read and written; 0: none are.
  static double swizzled_bytes(ProductFormat format) {
    return format == ProductFormat::mxfp8 ? 2.0 / 32 : format == ProductFormat::nvfp4 ? 2.0 / 16 : 0;
  }
  /// Biases of what experts give, which must be scaled by the router's probabilities as the results are,
  /// so that no product can add them: each expert has operators of its own, of which a token's copy takes
  /// 6 numbers a number, 2 launches an expert (bias x probability written; read, added to the result,
  /// written; joined: read, written), and in the backward 8, 4 launches an expert (gradient x
  /// probability read, written, summed over tokens; gradient x bias the same, over the width; gradients
  /// joined). Biases before the function are added and summed by the products.
  /// Source: Megatron-LM, core/transformer/moe/experts.py: TEGroupedMLP._apply_bias; Transformer Engine,
  /// module/grouped_linear.py.
  void add_expert_biases(std::vector<Kernel>& list, std::size_t i) const {
    const Operator& op = list_[i];
    const double numbers = tokens_ * op.copies * static_cast<double>(op.out);
    const auto add = [&](KernelPass pass, double each, int singles) {
      add_traffic(list, i, pass, each * element_ * numbers, Dimension::none, 1);
      list.back().singles = static_cast<std::int32_t>(op.count) * singles;
    };
    add(KernelPass::forward, 6, 2);
    if (reading_.runs_again(i)) add(KernelPass::recompute, 6, 2);
    add(KernelPass::backward_input, 8, 4);
  }
  /// Casts of a product's input and of its result's gradient, as Transformer Engine does: half of them
  /// by the kernel that makes them (a norm), all written in both layouts. No kernel that makes what
  /// experts' products read casts it (copies of tokens, the function times the router's probabilities), so
  /// all of it is read, where a tensor has a scale for that first. The 4-bit format also has a
  /// scale for the whole tensor, in addition to those of 16 numbers (NVFP4BlockScaling), so all are read
  /// once for the maximum and once more to be cast. Of experts' products each expert has kernels of its
  /// own: one that casts, before it one for the maximum where a tensor has a scale, and for each
  /// operand of a product one that puts scales in the order that tensor cores read, where these are of
  /// 32 or 16 numbers. Source: Transformer Engine 2, csrc/extensions/cast.cpp: split_quantize;
  /// gemm.cpp: te_general_grouped_gemm; common/swizzle/swizzle.cu.
  void add_casts(std::vector<Kernel>& list, std::size_t i, std::int64_t out) const {
    const Operator& op = list_[i];
    const bool twice = format_of(i) == ProductFormat::nvfp4;
    const bool read_twice = has_scale_of_tensor(format_of(i)) && (twice || op.is_of_experts());
    const double read = read_twice ? 2 * element_ : op.is_of_experts() ? element_ : 1;
    const double each = (read + 2 * bytes_of(format_of(i))) * tokens_ * op.copies;
    const int launches = is_inward(i) && !op.is_of_experts() ? 0 : read_twice ? 2 : 1;
    const double input = static_cast<double>(op.in) * each;
    const bool fused = op.is_of_experts() && model_.fused_experts;
    const auto add = [&](KernelPass pass, double bytes, int singles) {
      if (fused && is_inward(i) == (pass == KernelPass::backward_input)) return;  // the function's kernel casts them
      add_traffic(list, i, pass, bytes, Dimension::n, launches);
      if (op.is_of_experts() && bytes > 0) list.back().singles = static_cast<std::int32_t>(op.count) * singles;
    };
    const double swizzled = swizzled_bytes(format_of(i));
    const int swizzles = swizzled > 0 ? 2 : 0;  // of both operands
    const int casts = (has_scale_of_tensor(format_of(i)) ? 2 : 1) + swizzles;
    add(KernelPass::forward, input, casts);
    if (reading_.runs_again(i)) add(KernelPass::recompute, input, casts);
    add(KernelPass::backward_input, static_cast<double>(out) * each, casts);
    if (!op.is_of_experts() || swizzles == 0 || fused) return;
    add(KernelPass::backward_weight, swizzled * tokens_ * op.copies * static_cast<double>(op.in + out), swizzles);
  }
  /// Casts as torchao's matmul_with_hp_or_float8_args (float8_linear.py) and Inductor's kernels run
  /// them. An input is read in 16 bits and written in 8; the largest value is found by the kernel that
  /// makes it, except attention's result, which is read once more. Weights are read twice, for the scale
  /// and to be cast, and written in the layout that is used; those that were gathered in 8 bits are
  /// copied to the other layout for the backward. In the backward with one scale a row: along rows 3
  /// bytes a number (read, written), along columns 5 (read twice), gradients both ways; scales are
  /// applied to the results by kernels of their own, which sums of projections include. With one scale a
  /// tensor: read twice, written, and copied to the other layout.
  void add_torchao_casts(std::vector<Kernel>& list, std::size_t i) const {
    const Operator& op = list_[i];
    const bool rows = format_of(i) == ProductFormat::fp8_rows;
    const bool inward = input_of(i).gives == Split::tokens;
    const bool first = is_first_reader(i);
    const double in = tokens_ * static_cast<double>(op.in);
    const double out = tokens_ * static_cast<double>(op.out);
    const auto matrix = static_cast<double>(op.matrices());
    const auto forward = [&](KernelPass pass) {
      const double each = input_of(i).kind == Kind::attention ? 5 : 3;
      if (first)
        add_traffic(list, i, pass, each * in, !inward ? Dimension::n : rows ? Dimension::none : Dimension::m, inward ? 1 : 2);
      add_weights(list, i, pass, model_.narrow_gathers ? 0 : 5 * matrix);
    };
    constexpr KernelPass back = KernelPass::backward_input;
    forward(KernelPass::forward);
    if (reading_.runs_again(i)) forward(KernelPass::recompute);
    if (rows) {
      add_traffic(list, i, back, 8 * out, inward ? Dimension::n : Dimension::none, 2);
      if (first) add_traffic(list, i, back, (inward ? 5 : 9) * in, inward ? Dimension::none : Dimension::n, inward ? 1 : 3);
      add_weights(list, i, KernelPass::backward_weight, 4 * matrix);
    } else {
      const auto cast = [&](double numbers, bool of_width, int launches) {
        add_traffic(list, i, back, (of_width ? 7 : 5) * numbers, of_width ? Dimension::n : Dimension::m, launches);
        if (!of_width) add_traffic(list, i, back, 2 * numbers, Dimension::none, 1);
      };
      cast(out, inward, 2);
      if (first) cast(in, !inward, inward ? 1 : 4);
    }
    add_weights(list, i, back, (model_.narrow_gathers ? 2 : 5) * matrix);
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
  /// Unfused: scores and their product with the values for all pairs of tokens, and for each pair and
  /// head 13 bytes of traffic in the forward (scores written, softmax, dropout, read) and 19 in the
  /// backward.
  void add_scores(std::vector<Kernel>& list, std::size_t i) const {
    const Operator& op = list_[i];
    const std::int64_t heads = batch_.microbatch_size * op.count;
    const double pairs = static_cast<double>(heads) * static_cast<double>(batch_.sequence) * static_cast<double>(batch_.sequence);
    const auto add = [&](KernelPass pass, double bytes) {
      for (const bool values : {false, true}) {
        list.push_back({.kind = Kernel::Kind::product,
                        .pass = pass,
                        .by_tensor = Dimension::batch,
                        .by_context = Dimension::m,
                        .adds = model_.fuses_accumulation(),
                        .m = batch_.sequence,
                        .n = values ? op.value : batch_.sequence,
                        .k = values ? batch_.sequence : op.key,
                        .batch = heads});
      }
      add_traffic(list, i, pass, bytes * pairs, Dimension::n, 4);
    };
    add(KernelPass::forward, 13);
    if (reading_.runs_again(i)) add(KernelPass::recompute, 13);
    add(KernelPass::backward_input, 19);
    add(KernelPass::backward_input, 0);
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
  /// What ranks with experts of their own move in addition (Kernel::split). In 8 and 4 bits tokens of an
  /// expert are a multiple of 16 or 32.
  void add_copies(Kernel& kernel, std::size_t i) const {
    const Operator& op = list_[i];
    kernel.of_experts = true;
    kernel.padded = is_narrow(model_.products);
    kernel.batch = list_[static_cast<std::size_t>(op.from[1])].in;
    kernel.copies = op.copies;
    kernel.token_bytes = element_ * tokens_ * static_cast<double>(op.in);
  }
  /// Launches of an operator's memory-bound work. A router's softmax and its choice are kernels in
  /// float32. Source: Megatron-LM, core/transformer/moe/moe_utils.py: permute, unpermute,
  /// topk_routing_with_score_function.
  static int launches_of(Kind kind) { return kind == Kind::route ? 6 : kind == Kind::dispatch || kind == Kind::combine ? 2 : 1; }
  void add_moved(std::vector<Kernel>& list, std::size_t i) const {
    const Operator& op = list_[i];
    if (op.kind == Kind::function && model_.fused_experts && input_of(i).is_of_experts()) return;  // in the product's kernel
    const bool routed = op.kind == Kind::dispatch || op.kind == Kind::combine;
    const Dimension by = routed ? Dimension::none : op.gives == Split::tokens ? Dimension::m : Dimension::n;
    const OperatorReading::Moved moved = reading_.moved_by(i);
    const auto add = [&](KernelPass pass, double bytes, Dimension of, int launches) {
      add_traffic(list, i, pass, bytes * tokens_, of, launches);
      if (bytes > 0 && routed) add_copies(list.back(), i);
    };
    add(KernelPass::forward, moved.forward, by, launches_of(op.kind));
    if (reading_.runs_again(i)) add(KernelPass::recompute, moved.forward, by, launches_of(op.kind));
    add(KernelPass::backward_input, moved.backward, by, launches_of(op.kind));
    add(KernelPass::backward_input, reading_.branches(i), Dimension::none, 1);
  }

  const OperatorReading& reading_;
  const std::vector<Operator>& list_;
  const Transformer& model_;
  const Batch& batch_;
  double element_;
  double tokens_;
};

}  // namespace tawpipe::detail
