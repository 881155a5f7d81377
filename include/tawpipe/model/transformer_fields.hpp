// The members of a decoder and of its kinds of layers as tables: each one's key in files, bounds, and names of its values.
// Not: texts of files (report/detail/schedule_json_decoder.hpp), nor keys of a config.json (model/detail/config_keys.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string_view>
#include <type_traits>

#include "tawpipe/model/layer_kind.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::detail {

/// What a member decides.
enum class FieldGroup : std::uint8_t {
  matrices,  ///< how many parameters its layers have, and where
  details,   ///< windows, biases, norms and gates
  runs,      ///< how they run
};

/// One member. Its value is a whole number here: of a switch 1 or 0, of what is left open -1.
template <class Of>
struct ModelField {
  std::string_view key;
  std::int64_t least;
  std::int64_t most;
  FieldGroup group;
  bool is_switch;
  std::string_view (*word)(std::int64_t);  ///< the name of a value; nullptr: it has none
  std::int64_t (*get)(const Of&);
  void (*set)(Of&, std::int64_t);
};

template <class Of_, class Value_>
struct FieldOf {
  using Of = Of_;
  using Value = Value_;
};
template <class Of, class Value>
FieldOf<Of, Value> field_of(Value Of::*);

template <class Value>
concept CanBeOpen = requires(const Value& value) {
  value.has_value();
};

template <auto member, class Member = decltype(field_of(member))>
constexpr ModelField<typename Member::Of> model_field(std::string_view key, std::int64_t most = 1, std::int64_t least = 0,
                                                      FieldGroup group = FieldGroup::runs) {
  using Of = typename Member::Of;
  using Value = typename Member::Value;
  ModelField<Of> field{.key = key,
                       .least = least,
                       .most = most,
                       .group = group,
                       .is_switch = std::is_same_v<Value, bool> || std::is_same_v<Value, decltype(Transformer::early_stop)>,
                       .word = nullptr,
                       .get = nullptr,
                       .set = nullptr};
  if constexpr (std::is_same_v<Value, RecomputeParts>) {
    field.get = [](const Of& of) { return std::int64_t{(of.*member).bits()}; };
    field.set = [](Of& of, std::int64_t value) { of.*member = RecomputeParts::of_bits(static_cast<int>(value)); };
  } else if constexpr (CanBeOpen<Value>) {
    field.get = [](const Of& of) { return of.*member ? static_cast<std::int64_t>(*(of.*member)) : std::int64_t{-1}; };
    field.set = [](Of& of, std::int64_t value) { of.*member = static_cast<typename Value::value_type>(value); };
  } else {
    field.get = [](const Of& of) { return static_cast<std::int64_t>(of.*member); };
    field.set = [](Of& of, std::int64_t value) { of.*member = static_cast<Value>(value); };
  }
  if constexpr (std::is_enum_v<Value>) field.word = [](std::int64_t value) { return name(static_cast<Value>(value)); };
  return field;
}

inline constexpr std::int64_t max_span = std::numeric_limits<int>::max();  ///< tokens of a window, a chunk or an index
inline constexpr std::int64_t max_taps = 1 << 12;                          ///< tokens of a convolution

/// `rows`, and of a sublayer its `name` in files. What a file leaves out is as in a value of its own.
template <class Of>
struct ModelFields;

/// All but what each LayerStack has, its kinds of layers, and notes.
template <>
struct ModelFields<Transformer> {
  using T = Transformer;
  using enum FieldGroup;
  static constexpr ModelField<T> rows[] = {
      model_field<&T::hidden>("hidden", T::max_hidden, 1, matrices),
      model_field<&T::heads>("heads", T::max_hidden, 1, matrices),
      model_field<&T::kv_heads>("kv_heads", T::max_hidden, 1, matrices),
      model_field<&T::intermediate>("intermediate", T::max_intermediate, 1, matrices),
      model_field<&T::vocab>("vocab", T::max_vocab, 1, matrices),
      model_field<&T::head_dim>("head_dim", T::max_hidden, 1),  // heads are compared by head_size()
      model_field<&T::loss_chunk>("loss_chunk", T::max_vocab),
      model_field<&T::recompute_layers>("recompute_layers", T::max_layers),
      model_field<&T::recompute_parts>("recompute_parts", 15),
      model_field<&T::early_stop>("early_stop"),
      model_field<&T::loss_in_float32>("loss_in_float32"),
      model_field<&T::one_kernel_loss>("one_kernel_loss"),
      model_field<&T::gated>("gated", 1, 0, matrices),
      model_field<&T::fused_attention>("fused_attention"),
      model_field<&T::fused_swiglu>("fused_swiglu"),
      model_field<&T::code>("code", layer_codes - 1),
      model_field<&T::edges_count_as_layers>("edges_count_as_layers"),
      model_field<&T::narrow_gathers>("narrow_gathers"),
      model_field<&T::narrow_weights>("narrow_weights"),
      model_field<&T::fused_experts>("fused_experts"),
      model_field<&T::products>("products", product_formats - 1),
      model_field<&T::experts>("experts", T::max_experts, 0, matrices),
      model_field<&T::experts_per_token>("experts_per_token", T::max_experts, 0, matrices),
      model_field<&T::shared_width>("shared_width", T::max_intermediate, 0, matrices),
      model_field<&T::expert_groups>("expert_groups", T::max_experts, 1, matrices),
      model_field<&T::groups_per_token>("groups_per_token", T::max_experts, 1, matrices),
      model_field<&T::dense_layers>("dense_layers", T::max_layers, 0, matrices),
      model_field<&T::dense_width>("dense_width", T::max_intermediate, 0, matrices),
      model_field<&T::query_rank>("query_rank", T::max_hidden, 0, matrices),
      model_field<&T::key_value_rank>("key_value_rank", T::max_hidden, 0, matrices),
      model_field<&T::rope_width>("rope_width", T::max_hidden, 0, matrices),
      model_field<&T::value_size>("value_size", T::max_hidden, 0, matrices),
      model_field<&T::window>("window", max_span, 0, details),
      model_field<&T::qkv_bias>("qkv_bias", 1, 0, details),
      model_field<&T::output_bias>("output_bias", 1, 0, details),
      model_field<&T::mlp_bias>("mlp_bias", 1, 0, details),
      model_field<&T::qk_norm>("qk_norm", qk_norms - 1, 0, details),
      model_field<&T::shared_gate>("shared_gate", 1, 0, details),
      model_field<&T::positions>("positions", T::max_vocab),
      model_field<&T::norm_bias>("norm_bias"),
  };
};

template <>
struct ModelFields<Attention> {
  using T = Attention;
  static constexpr std::string_view name = "attention";
  static constexpr ModelField<T> rows[] = {
      model_field<&T::heads>("heads", Transformer::max_hidden, 1),
      model_field<&T::kv_heads>("kv_heads", Transformer::max_hidden),
      model_field<&T::head_dim>("head_dim", Transformer::max_hidden, 1),
      model_field<&T::value_dim>("value_dim", Transformer::max_hidden),
      model_field<&T::turned>("turned", Transformer::max_hidden, -1),
      model_field<&T::scaled>("scaled"),
      model_field<&T::window>("window", max_span),
      model_field<&T::chunk>("chunk", max_span),
      model_field<&T::sinks>("sinks"),
      model_field<&T::gate>("gate"),
      model_field<&T::qkv_bias>("qkv_bias"),
      model_field<&T::output_bias>("output_bias"),
      model_field<&T::qk_norm>("qk_norm", qk_norms - 1),
      model_field<&T::query_rank>("query_rank", Transformer::max_hidden),
      model_field<&T::key_value_rank>("key_value_rank", Transformer::max_hidden),
      model_field<&T::index_heads>("index_heads", Transformer::max_hidden),
      model_field<&T::index_dim>("index_dim", Transformer::max_hidden),
      model_field<&T::index_tokens>("index_tokens", max_span),
  };
};

template <>
struct ModelFields<DeltaNet> {
  using T = DeltaNet;
  static constexpr std::string_view name = "delta_net";
  static constexpr ModelField<T> rows[] = {
      model_field<&T::key_heads>("key_heads", Transformer::max_hidden, 1),
      model_field<&T::value_heads>("value_heads", Transformer::max_hidden, 1),
      model_field<&T::key_dim>("key_dim", Transformer::max_hidden, 1),
      model_field<&T::value_dim>("value_dim", Transformer::max_hidden, 1),
      model_field<&T::convolution>("convolution", max_taps, 1),
  };
};

template <>
struct ModelFields<Mamba2> {
  using T = Mamba2;
  static constexpr std::string_view name = "mamba2";
  static constexpr ModelField<T> rows[] = {
      model_field<&T::heads>("heads", Transformer::max_hidden, 1),
      model_field<&T::head_dim>("head_dim", Transformer::max_hidden, 1),
      model_field<&T::groups>("groups", Transformer::max_hidden, 1),
      model_field<&T::state>("state", Transformer::max_hidden, 1),
      model_field<&T::convolution>("convolution", max_taps, 1),
      model_field<&T::convolution_bias>("convolution_bias"),
      model_field<&T::bias>("bias"),
  };
};

template <>
struct ModelFields<Mlp> {
  using T = Mlp;
  static constexpr std::string_view name = "mlp";
  static constexpr ModelField<T> rows[] = {
      model_field<&T::width>("width", Transformer::max_intermediate, 1),
      model_field<&T::function>("function", mlp_functions - 1),
      model_field<&T::bias>("bias"),
  };
};

template <>
struct ModelFields<Mixture> {
  using T = Mixture;
  static constexpr std::string_view name = "mixture";
  static constexpr ModelField<T> rows[] = {
      model_field<&T::experts>("experts", Transformer::max_experts, 1),
      model_field<&T::per_token>("per_token", Transformer::max_experts, 1),
      model_field<&T::width>("width", Transformer::max_intermediate, 1),
      model_field<&T::shared_width>("shared_width", Transformer::max_intermediate),
      model_field<&T::function>("function", mlp_functions - 1),
      model_field<&T::bias>("bias"),
      model_field<&T::bounded>("bounded"),
      model_field<&T::router_bias>("router_bias"),
      model_field<&T::shared_gate>("shared_gate"),
      model_field<&T::latent>("latent", Transformer::max_hidden),
  };
};

/// All but its name and its sublayers.
template <>
struct ModelFields<LayerKind> {
  using T = LayerKind;
  static constexpr ModelField<T> rows[] = {
      model_field<&T::norms>("norms", norm_places - 1),
      model_field<&T::norm_bias>("norm_bias"),
  };
};

/// Whether two decoders have the same values of a group.
inline bool same_fields(const Transformer& a, const Transformer& b, FieldGroup group) {
  const auto& rows = ModelFields<Transformer>::rows;
  return std::all_of(std::begin(rows), std::end(rows),
                     [&](const auto& field) { return field.group != group || field.get(a) == field.get(b); });
}

}  // namespace tawpipe::v0::detail
