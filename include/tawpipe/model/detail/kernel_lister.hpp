// Lists the kernels of decoder layers and of a head, by shape.
// Not: which of them a stage runs (model/transformer_kernels.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tawpipe/model/batch.hpp"
#include "tawpipe/model/kernel.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::detail {

/// Lists kernels; see transformer_kernels().
class KernelLister {
 public:
  KernelLister(const Transformer& model, const Batch& batch, std::int32_t layers)
      : model_{model}, batch_{batch}, layers_{layers} {}

  /// Adds a layer's forward, as `pass`: forward, or what of it is recomputed.
  void forward(KernelPass pass) {
    const bool stops_early = pass == KernelPass::recompute && model_.stops_early();
    matrices([&](const Matrix& matrix) { of_tokens(pass, matrix); }, !stops_early);
    attention(pass);
    forward_traffic(pass, stops_early ? 3 : 0);
    routing_traffic(pass, !stops_early);
    cast_inputs(pass, true, !stops_early);
  }
  /// Adds a layer's attention, as `pass`.
  void attention(KernelPass pass) {
    if (model_.fused_attention) return core(Kernel::Kind::attention, pass);
    scores(pass, 13);
  }
  /// The parts of a layer that selective recomputation runs again: those that it names; or
  /// attention, with the norms and the MLP's function where it is fused; or products between those
  /// that are kept, and all that is memory-bound.
  void selective() {
    if (model_.recompute_parts.any()) return parts(model_.recompute_parts);
    const std::int64_t inner = model_.mlp_matrices() * model_.token_width();
    if (model_.is_torchtitan()) {
      product(KernelPass::recompute, {tokens(), model_.key_width(), model_.hidden}, Dimension::n, Dimension::m);
      product(KernelPass::recompute, {tokens(), model_.hidden, model_.query_width()}, Dimension::k, Dimension::m);
      product(KernelPass::recompute, {tokens(), model_.intermediate, model_.hidden}, Dimension::n, Dimension::m);
      forward_traffic(KernelPass::recompute);
      return;
    }
    attention(KernelPass::recompute);
    if (model_.fused_attention) layer_traffic(KernelPass::recompute, 4 * std::int64_t{model_.hidden}, inner);
  }
  void parts(const RecomputeParts& parts) {
    constexpr KernelPass pass = KernelPass::recompute;
    const bool eager = model_.code == LayerCode::torchtitan_eager;
    const std::int64_t of_mlp = eager ? 5 : model_.mlp_matrices();
    if (parts.core_attn) attention(pass);
    if (parts.mlp) mlp_matrices([&](const Matrix& matrix) { of_tokens(pass, matrix); });
    layer_traffic(pass, parts.layernorm ? (eager ? 36 : 4) * std::int64_t{model_.hidden} : 0,
                  parts.mlp || parts.activation ? of_mlp * model_.token_width() : 0);
    if (parts.mlp) cast_inputs(pass, false);
    if (parts.mlp) routing_traffic(pass);
  }
  /// Norms and residual sums, and rotary embedding and the MLP's function. Layers with unfused
  /// attention (2021 and 2022) have biases and dropout in place of the rotary embedding, and copies
  /// between layouts.
  /// @param left_out  numbers of H a token that are not read or written
  void forward_traffic(KernelPass pass, std::int64_t left_out = 0) {
    if (model_.is_torchtitan()) return torchtitan_traffic(pass, left_out);
    const std::int64_t rotary = 2 * model_.turned_width();
    layer_traffic(
        pass, ((model_.fused_attention ? 10 : 11) - left_out) * std::int64_t{model_.hidden},
        rotary + model_.mlp_matrices() * model_.token_width() + (model_.fused_attention ? 0 : 4 * std::int64_t{model_.hidden}));
  }
  void backward_traffic() {
    if (model_.is_torchtitan()) return torchtitan_traffic(KernelPass::backward_input);
    const std::int64_t rotary = 2 * model_.turned_width();
    const std::int64_t inner = (model_.gated ? 5 : 3) * model_.token_width();
    if (model_.fused_attention) {
      layer_traffic(KernelPass::backward_input, 12 * std::int64_t{model_.hidden}, rotary + inner);
      routing_traffic(KernelPass::backward_input);
    } else {
      layer_traffic(KernelPass::backward_input, 23 * std::int64_t{model_.hidden},
                    rotary + inner + model_.intermediate + 7 * std::int64_t{model_.hidden});
    }
  }
  /// In addition to Megatron-LM's: keys and values copied for each query head; in the backward, the
  /// sums of the gradients that the projections of one input give, which tensor-parallel ranks have
  /// whole. Without torch.compile each operator reads and writes memory, norms and rotary embedding
  /// in float32: a norm's forward 18H, its backward 38H.
  void torchtitan_traffic(KernelPass pass, std::int64_t left_out = 0) {
    const bool backward = pass == KernelPass::backward_input;
    const bool eager = model_.code == LayerCode::torchtitan_eager;
    const std::int64_t hidden = model_.hidden;
    const std::int64_t norms = eager ? (backward ? 76 : 36) : (backward ? 6 : 4);
    const std::int64_t of_mlp = eager ? (backward ? 9 : 5) : (backward ? 5 : 3);
    const std::int64_t copies = 2 * (model_.query_width() + model_.key_width());
    layer_traffic(pass, (norms + 6 - left_out) * hidden,
                  (eager ? 10 : 2) * (model_.query_width() + model_.key_width()) + copies + of_mlp * model_.intermediate +
                      norms / 2 * model_.qk_normed_width());
    if (backward) traffic(pass, token_bytes(7 * hidden * size_bytes(model_.dtype)), 2, Dimension::none);
  }
  /// @param residual  numbers a token of what tensor-parallel ranks split by tokens, if at all;
  /// @param inner  of what they split by matrices
  void layer_traffic(KernelPass pass, std::int64_t residual, std::int64_t inner) {
    traffic(pass, token_bytes(residual * size_bytes(model_.dtype)), 5, Dimension::m);
    traffic(pass, token_bytes(inner * size_bytes(model_.dtype)), 5);
  }
  /// With experts: each token is copied for those that it passes, and their results are added up;
  /// tensor-parallel ranks, which split each expert's width, copy all tokens. The router's softmax
  /// and its choice are kernels in float32. Source: Megatron-LM, core/transformer/moe/moe_utils.py:
  /// permute, unpermute, topk_routing_with_score_function.
  /// @param results  add them up
  void routing_traffic(KernelPass pass, bool results = true) {
    if (!model_.is_routed()) return;
    const std::int64_t element = size_bytes(model_.dtype);
    traffic(pass, token_bytes((results ? 2 : 1) * (model_.routed_copies() + model_.hidden) * element), results ? 4 : 2,
            Dimension::none);
    kernels.back().of_experts = true;
    traffic(pass, token_bytes(5 * std::int64_t{model_.experts} * element), 6, Dimension::m);
  }
  void backward() {
    matrices([&](const Matrix& matrix) {
      const std::int64_t rows = rows_of(matrix);
      const bool by_output = matrix.by == Dimension::n;
      const Dimension back = matrix.by == Dimension::m ? Dimension::m : by_output ? Dimension::k : Dimension::n;
      const Dimension of_weight = matrix.by == Dimension::m ? Dimension::k : by_output ? Dimension::m : Dimension::n;
      product(KernelPass::backward_input, {rows, matrix.in, matrix.out}, back, Dimension::m, format_of(matrix));
      of_matrix(matrix);
      product(KernelPass::backward_weight, {matrix.out, matrix.in, rows}, of_weight, Dimension::k, format_of(matrix));
      of_matrix(matrix);
    });
    if (model_.fused_attention) {
      core(Kernel::Kind::attention_backward, KernelPass::backward_input);
    } else {
      scores(KernelPass::backward_input, 19);
      scores(KernelPass::backward_input, 0);
    }
    cast_gradients();
    add_gradients(model_.layer_matrix_parameters(), 4);
  }
  void traffic(KernelPass pass, double bytes, std::int32_t launches, Kernel::Dimension by_tensor = Kernel::Dimension::n) {
    if (bytes > 0) {
      kernels.push_back({.kind = Kernel::Kind::traffic,
                         .pass = pass,
                         .by_tensor = by_tensor,
                         .count = layers_,
                         .launches = launches,
                         .bytes = bytes});
    }
  }
  /// The same in `parts` equal parts, each launched by itself.
  void chunked_traffic(KernelPass pass, double bytes, std::int32_t launches, std::int64_t parts) {
    traffic(pass, bytes / static_cast<double>(parts), launches);
    if (bytes > 0) kernels.back().count = static_cast<std::int32_t>(parts);
  }
  /// The product with the vocabulary's matrix, in 16 bits (or the model's) whatever the layers'
  /// format; for a loss in chunks twice, a product for each chunk.
  void head() {
    const std::int64_t vocab = model_.vocab;
    const std::int64_t width = model_.loss_chunk > 0 ? std::min<std::int64_t>(model_.loss_chunk, vocab) : vocab;
    head_products(width, vocab / width);
    if (vocab % width > 0) head_products(vocab % width, 1);
    add_gradients(vocab * model_.hidden, 1);
  }
  /// Those of `count` chunks of `width` entries.
  void head_products(std::int64_t width, std::int64_t count) {
    const ProductFormat format = model_.dtype == Dtype::f32 ? ProductFormat::bits32 : ProductFormat::bits16;
    const auto of_vocabulary = [&](KernelPass pass, Shape shape, Dimension by_tensor, Dimension by_context) {
      product(pass, shape, by_tensor, by_context, format);
      kernels.back().aligned = model_.pads_vocabulary();
      kernels.back().count = static_cast<std::int32_t>(count);
    };
    of_vocabulary(KernelPass::forward, {tokens(), width, model_.hidden}, Dimension::n, Dimension::m);
    if (model_.loss_chunk > 0) of_vocabulary(KernelPass::recompute, {tokens(), width, model_.hidden}, Dimension::n, Dimension::m);
    of_vocabulary(KernelPass::backward_input, {tokens(), model_.hidden, width}, Dimension::k, Dimension::m);
    of_vocabulary(KernelPass::backward_weight, {width, model_.hidden, tokens()}, Dimension::m, Dimension::k);
  }

  std::vector<Kernel> kernels;

 private:
  using Dimension = Kernel::Dimension;
  struct Shape {
    std::int64_t m, n, k;
  };

  std::int64_t tokens() const { return batch_.tokens(); }
  double token_bytes(std::int64_t each) const { return static_cast<double>(tokens()) * static_cast<double>(each); }
  ProductFormat format() const { return model_.dtype == Dtype::f32 ? ProductFormat::bits32 : model_.products; }

  /// A matrix [out, in], or `count` equal ones of experts among which `copies` of each token are
  /// divided, and the dimension of a product of tokens with it that tensor parallelism divides: n is
  /// its output, k its input, m the tokens.
  struct Matrix {
    std::int64_t in = 0;
    std::int64_t out = 0;
    Dimension by = Dimension::n;
    std::int64_t count = 1;
    std::int64_t copies = 1;
    bool router = false;
  };
  std::int64_t rows_of(const Matrix& matrix) const { return (tokens() * matrix.copies + matrix.count - 1) / matrix.count; }
  /// Routers choose in 16 bits at least.
  ProductFormat format_of(const Matrix& matrix) const { return matrix.router && narrow() ? ProductFormat::bits16 : format(); }

  /// Calls with each matrix of a layer. @param down  the MLPs' last ones too
  template <class Visit>
  void matrices(Visit&& visit, bool down = true) const {
    const std::int64_t hidden = model_.hidden;
    if (model_.is_torchtitan()) {
      visit(Matrix{hidden, model_.query_width()});
      for (int matrix = 0; matrix < 2; ++matrix) visit(Matrix{hidden, model_.key_width()});
    } else if (model_.is_latent()) {
      latent_matrices(visit);
    } else {
      visit(Matrix{hidden, model_.query_width() + 2 * model_.key_width()});
    }
    visit(Matrix{model_.value_width(), hidden, Dimension::k});
    mlp_matrices(visit, down);
  }
  /// Each rank makes the short vectors of its own tokens. Source: Megatron-LM,
  /// core/transformer/multi_latent_attention.py.
  template <class Visit>
  void latent_matrices(Visit&& visit) const {
    if (model_.query_rank > 0) visit(Matrix{model_.hidden, model_.query_rank, Dimension::m});
    visit(Matrix{model_.query_input(), model_.query_width()});
    visit(Matrix{model_.hidden, model_.key_value_rank + model_.rope_width, Dimension::m});
    visit(Matrix{model_.key_value_rank, model_.unturned_width() + model_.value_width()});
  }
  template <class Visit>
  void mlp_matrices(Visit&& visit, bool down = true) const {
    const std::int64_t hidden = model_.hidden;
    const std::int64_t inward = model_.mlp_matrices() - 1;
    const auto mlp = [&](std::int64_t width, std::int64_t count, std::int64_t copies) {
      for (int matrix = 0; matrix < (model_.is_torchtitan() ? inward : 1); ++matrix) {
        visit(Matrix{hidden, model_.is_torchtitan() ? width : inward * width, Dimension::n, count, copies});
      }
      if (down) visit(Matrix{width, hidden, Dimension::k, count, copies});
    };
    if (!model_.is_routed()) return mlp(model_.intermediate, 1, 1);
    visit(Matrix{.in = hidden, .out = model_.experts, .by = Dimension::m, .router = true});
    mlp(model_.intermediate, model_.experts, model_.experts_per_token);
    if (model_.shared_width > 0) mlp(model_.shared_width, 1, 1);
  }
  /// Completes the last product, which is of a matrix.
  void of_matrix(const Matrix& matrix) {
    kernels.back().batch = matrix.count;
    kernels.back().of_experts = matrix.copies > 1 || matrix.count > 1;
    kernels.back().by_tokens = matrix.by == Dimension::m;
  }
  /// The product of tokens with a matrix, for the visits above.
  void of_tokens(KernelPass pass, const Matrix& matrix) {
    product(pass, {rows_of(matrix), matrix.out, matrix.in}, matrix.by, Dimension::m, format_of(matrix));
    of_matrix(matrix);
  }
  void product(KernelPass pass, Shape shape, Dimension by_tensor, Dimension by_context) {
    product(pass, shape, by_tensor, by_context, format());
  }
  void product(KernelPass pass, Shape shape, Dimension by_tensor, Dimension by_context, ProductFormat format) {
    kernels.push_back({.kind = Kernel::Kind::product,
                       .pass = pass,
                       .format = format,
                       .by_tensor = by_tensor,
                       .by_context = by_context,
                       .count = layers_,
                       .adds = model_.fuses_accumulation(),
                       .m = shape.m,
                       .n = shape.n,
                       .k = shape.k});
  }
  std::int64_t all_heads() const { return batch_.microbatch_size * model_.heads; }
  void core(Kernel::Kind kind, KernelPass pass) {
    kernels.push_back({.kind = kind,
                       .pass = pass,
                       .by_tensor = Dimension::batch,
                       .by_context = Dimension::m,
                       .count = layers_,
                       .pytorch = model_.is_torchtitan(),
                       .m = batch_.sequence,
                       .n = static_cast<std::int64_t>(model_.attention_span(batch_.sequence) + 0.5),
                       .k = model_.attention_width() / model_.heads,
                       .batch = all_heads()});
  }
  /// Unfused: scores and their product with the values, for all pairs of tokens, and `bytes` of
  /// traffic for each pair.
  void scores(KernelPass pass, double bytes) {
    for (const bool values : {false, true}) {
      kernels.push_back({.kind = Kernel::Kind::product,
                         .pass = pass,
                         .by_tensor = Dimension::batch,
                         .by_context = Dimension::m,
                         .count = layers_,
                         .m = batch_.sequence,
                         .n = values ? model_.head_size() : batch_.sequence,
                         .k = values ? batch_.sequence : model_.head_size(),
                         .batch = all_heads()});
    }
    const auto pairs =
        static_cast<double>(all_heads()) * static_cast<double>(batch_.sequence) * static_cast<double>(batch_.sequence);
    traffic(pass, bytes * pairs, 4);
  }
  /// Casts of the products' inputs, of 2H + Q + I numbers a token, or of the MLP's, H + I.
  /// @param down  the last product's too, I
  void cast_inputs(KernelPass pass, bool all = true, bool down = true) {
    const std::int64_t hidden = (all ? model_.hidden : 0) + mlp_inputs();
    const std::int64_t query = all ? model_.value_width() + model_.query_rank + model_.key_value_rank : 0;
    const std::int64_t own = query + (down ? model_.token_width() : 0);
    if (!model_.is_torchtitan()) return cast(pass, hidden + own);
    if (!narrow()) return;
    // Read in 16 bits and written in 8; the largest value is found by the kernel that makes them,
    // except attention's result, which is read once more.
    traffic(pass, token_bytes(3 * own + 2 * query), 4);
    traffic(pass, token_bytes(3 * hidden), 2, by_rows() ? Dimension::none : Dimension::m);
    const std::int64_t matrix = std::int64_t{model_.hidden} * model_.intermediate;
    cast_weights(pass, (all ? model_.layer_matrix_parameters() : model_.mlp_matrices() * matrix) - (down ? 0 : matrix));
  }
  /// Numbers of a token that the MLPs' first products read, and that their last ones write: each
  /// expert's copy.
  std::int64_t mlp_inputs() const {
    if (!model_.is_routed()) return model_.hidden;
    return model_.routed_copies() + (model_.shared_width > 0 ? model_.hidden : 0);
  }
  /// Casts of the gradients of the products' results; torchao's also of their inputs again.
  void cast_gradients() {
    constexpr KernelPass pass = KernelPass::backward_input;
    const std::int64_t hidden = model_.hidden + mlp_inputs();
    const std::int64_t inward = model_.query_width() + 2 * model_.key_width() + model_.latent_width() +
                                (model_.mlp_matrices() - 1) * model_.token_width() -
                                std::int64_t{model_.heads} * model_.rope_width;  // of keys, once a token
    if (!model_.is_torchtitan()) return cast(pass, inward + hidden);
    if (!narrow()) return;
    const std::int64_t own = model_.query_width() + model_.intermediate;
    if (by_rows()) {
      // Along rows 3 bytes a number (read, written), along columns 5 (read twice); gradients both
      // ways. Scales are applied to the results by kernels of their own, which sums of projections
      // include.
      traffic(pass, token_bytes(8 * inward + (5 + 4) * own), 16);
      traffic(pass, token_bytes((8 + 5) * hidden), 6, Dimension::none);
      weight_traffic(KernelPass::backward_weight, 4, model_.layer_matrix_parameters(), 7);
    } else {
      // Read twice, written, and copied to the other layout.
      traffic(pass, token_bytes((5 + 2) * (inward + own)), 18);
      traffic(pass, token_bytes((5 + 5) * hidden), 6, Dimension::m);
      traffic(pass, token_bytes((2 + 2) * hidden), 4, Dimension::none);
    }
    cast_weights(pass, model_.layer_matrix_parameters());
  }
  /// Read twice, for the scale and to be cast, and written in the layout that is used. Weights that
  /// were gathered in 8 bits are copied to the other layout for the backward.
  void cast_weights(KernelPass pass, std::int64_t parameters) {
    const int each = !model_.narrow_gathers ? 5 : pass == KernelPass::backward_input ? 2 : 0;
    weight_traffic(pass, each, parameters, 7);
  }
  /// Adds a microbatch's gradients to the sum, which is in float32 but for float16 models: each is
  /// read, and its sum read and written.
  void add_gradients(std::int64_t parameters, std::int32_t launches) {
    if (model_.fuses_accumulation()) return;
    const std::int64_t element = size_bytes(model_.dtype);
    const std::int64_t of_sum = model_.dtype == Dtype::f16 ? element : std::max<std::int64_t>(4, element);
    weight_traffic(KernelPass::backward_weight, element + 2 * of_sum, parameters, launches);
  }
  void weight_traffic(KernelPass pass, std::int64_t each, std::int64_t parameters, std::int32_t launches) {
    traffic(pass, static_cast<double>(each * parameters), launches);
    if (each * parameters > 0) kernels.back().of_weights = true;
  }
  /// Activations or gradients of `width` numbers a token cast for the products, as Transformer
  /// Engine does: half of them by the kernel that produces them, all written in both layouts. The
  /// 4-bit format also has a scale for the whole tensor, in addition to those of 16 numbers
  /// (NVFP4BlockScaling), so all are read once for the maximum and once more to be cast.
  void cast(KernelPass pass, std::int64_t width) {
    if (!narrow()) return;
    const bool twice = format() == ProductFormat::nvfp4;
    const double read = twice ? 2.0 * static_cast<double>(size_bytes(model_.dtype)) : 1;
    traffic(pass, static_cast<double>(tokens() * width) * (read + 2 * bytes_of(format())), twice ? 4 : 2);
  }
  bool narrow() const { return is_narrow(format()); }
  bool by_rows() const { return format() == ProductFormat::fp8_rows; }

  const Transformer& model_;
  const Batch& batch_;
  std::int32_t layers_;
};

}  // namespace tawpipe::detail
