// A config.json while it is read, and what single keys set in it.
// Not: which keys there are (model/detail/config_keys.hpp).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tawpipe/core/text.hpp"
#include "tawpipe/json/json_reader.hpp"
#include "tawpipe/model/decoder_config.hpp"
#include "tawpipe/model/decoder_constants.hpp"
#include "tawpipe/model/detail/decoder_types.hpp"
#include "tawpipe/model/detail/rotary_keys.hpp"
#include "tawpipe/model/dtype.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::detail {

/// A config.json while it is read.
struct ConfigReading {
  const DecoderType& type;
  HuggingFaceConfig read = {};
  std::optional<JsonValue> dense_width = {};  ///< intermediate_size beside experts of another width
  std::optional<JsonValue> shared_experts = {};
  std::optional<JsonValue> rope_theta = {};
  std::optional<JsonValue> layer_types = {};
  std::optional<JsonValue> use_window = {};
  std::optional<JsonValue> first_window_layer = {};  ///< max_window_layers
  std::optional<JsonValue> balance = {};             ///< router_aux_loss_coef
  bool balances = false;                             ///< output_router_logits
  bool has_rotary = false;                           ///< rope_scaling or rope_parameters
  int turned = 0;                                    ///< rotary_dim
  int unturned = 0;                                  ///< qk_nope_head_dim

  Transformer& model() { return read.model; }
  DecoderConstants& constants() { return read.constants; }
  void note(std::string_view key, std::string_view what) { read.model.notes.push_back(concat(key, ": ", what)); }
  void not_computed(std::string_view key, std::string_view what) { read.not_computed.push_back(concat(key, ": ", what)); }
};

template <auto member>
void read_size(ConfigReading& reading, JsonValue value) {
  reading.model().*member = value.whole<int>();
}
template <auto member>
void read_positive(ConfigReading& reading, JsonValue value) {
  reading.model().*member = value.whole<int>(1);
}
template <auto member, int least>
void read_width(ConfigReading& reading, JsonValue value) {
  reading.model().*member = value.whole<int>(least, Transformer::max_hidden);
}
template <auto member>
void read_flag(ConfigReading& reading, JsonValue value) {
  reading.model().*member = value.boolean();
}
template <auto member>
void keep(ConfigReading& reading, JsonValue value) {
  reading.*member = value;
}

/// A number of experts that has two names.
inline void read_experts(ConfigReading& reading, JsonValue value) {
  const int experts = value.whole<int>(1);
  int& known = reading.model().experts;
  if (known != 0 && known != experts)
    value.fail(concat("is ", known, " by its other name; give one of num_experts, num_local_experts"));
  known = experts;
}

inline void read_stored_dtype(ConfigReading& reading, std::string_view key, JsonValue value) {
  const Dtype stored = value.parsed(parse_dtype);
  if (stored == Dtype::f8) value.fail("8-bit floats are not modelled: a device's peak is of 16-bit ones; give bfloat16");
  reading.read.stored = stored;
  std::erase_if(reading.model().notes, [](const std::string& note) { return note.starts_with("torch_dtype: "); });
  reading.model().dtype = stored == Dtype::f16 ? Dtype::f16 : Dtype::bf16;
  if (size_bytes(stored) > 2) {
    reading.note(key, concat("the weights are stored in ", name(stored),
                             "; training is taken to be in bfloat16 (--dtype says otherwise)"));
  }
}

inline void read_activation(ConfigReading& reading, JsonValue value) {
  constexpr std::string_view known = "silu swish gelu gelu_new gelu_fast gelu_python gelu_pytorch_tanh quick_gelu relu relu2";
  if (!has_word(known, value.text())) value.expected("silu or another function of one number, such as gelu_pytorch_tanh");
  reading.constants().activation = value.text() == "swish" ? "silu" : value.text();
  if (reading.constants().activation != "silu")
    reading.not_computed("hidden_act", concat(value.text(), " is not computed; silu is"));
}

/// Other heads than a language model's have other parameters.
inline void read_architectures(ConfigReading& reading, JsonValue value) {
  for (const JsonValue architecture : value) {
    if (architecture.text().ends_with("ForCausalLM")) continue;
    const std::string what =
        concat(one_line(architecture.text().substr(0, 60)), " has another head; that of a language model is taken");
    reading.note("architectures", what);
    reading.not_computed("architectures", what);
  }
}

inline void read_further_layers(ConfigReading& reading, std::string_view key, JsonValue value) {
  const int layers = value.whole<int>(0, Transformer::max_layers);
  if (layers == 0) return;
  const std::string what =
      concat(layers, layers == 1 ? " layer that predicts" : " layers that predict", " further tokens, with the loss, left out");
  reading.note(key, what);
  reading.not_computed(key, what);
}

inline void read_quantization(ConfigReading& reading, std::string_view key) {
  reading.note(key, "the weights are stored quantized; training is taken to be in 16 bits");
  reading.not_computed(key, "the weights are stored quantized, which is not read");
}

inline void read_attention_bias(ConfigReading& reading, JsonValue value) {
  reading.model().qkv_bias = value.boolean();
  reading.model().output_bias = value.boolean() && reading.type.name != "glm4_moe";  // whose output has none
}

inline void read_rotary_once(ConfigReading& reading, std::string_view key, JsonValue value) {
  if (reading.has_rotary) value.fail("rope_scaling and rope_parameters say the same in two ways; give one of them");
  reading.has_rotary = true;
  read_rotary(value, key, reading.read);
}

inline void read_attention_types(ConfigReading&, JsonValue value) {
  for (const JsonValue type : value) {
    if (type.whole<int>() != 1) type.fail("attention without scores is not modelled; it must be 1");
  }
}

}  // namespace tawpipe::detail
