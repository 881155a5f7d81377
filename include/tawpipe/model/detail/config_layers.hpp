// Which layers of a config.json attend to what, and which have experts: a letter for each layer.
// Not: the sizes of either (model/detail/config_parts.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tawpipe/core/text.hpp"
#include "tawpipe/json/json_reader.hpp"
#include "tawpipe/model/detail/config_reading.hpp"
#include "tawpipe/model/detail/decoder_types.hpp"
#include "tawpipe/model/transformer.hpp"

namespace tawpipe::inline v0::detail {

/// A letter for each layer. Of what mixes tokens: f full attention, s within a window (sliding), c
/// within a chunk, l a gated delta net (linear), m Mamba-2; of MLPs: d dense, e experts; - none.
struct LayerLetters {
  std::string mixers;
  std::string mlps;
  int window = 0;  ///< of s
  int chunk = 0;   ///< of c
};

/// A pattern as often as there are layers.
inline std::string repeated_letters(std::string_view pattern, int layers) {
  std::string letters;
  for (int i = 0; i < layers; ++i) letters += pattern[static_cast<std::size_t>(i) % pattern.size()];
  return letters;
}

inline void check_one_for_each(JsonValue list, int layers) {
  if (std::cmp_not_equal(list.size(), layers))
    list.fail(concat("has not one for each of ", layers, " layers (num_hidden_layers)"));
}

/// Names of layers, in transformers and in other files. E and D are layers of an MLP alone.
struct LayerName {
  std::string_view name;
  char letter;
};
inline constexpr LayerName layer_names[] = {{"full_attention", 'f'},
                                            {"attention", 'f'},
                                            {"global_attention", 'f'},
                                            {"indexed_attention", 'f'},
                                            {"deepseek_sparse_attention", 'f'},
                                            {"sliding_attention", 's'},
                                            {"local_attention", 's'},
                                            {"sliding_window_attention", 's'},
                                            {"chunked_attention", 'c'},
                                            {"linear_attention", 'l'},
                                            {"mamba", 'm'},
                                            {"mamba2", 'm'},
                                            {"moe", 'E'},
                                            {"mlp", 'D'}};

/// Whether layers of a type may be of a letter.
inline bool may_have(const DecoderType& type, char letter) {
  switch (letter) {
    case 's':
      return type.does_read(window);
    case 'c':
      return type.is_unknown() || type.layers.find('c') != std::string_view::npos;
    case 'l':
      return type.does_read(delta_nets | mamba);
    case 'm':
      return type.does_read(mamba);
    case 'E':
    case 'D':
      return type.one_part;
    default:
      return true;
  }
}

/// A layer of a mixer and an MLP, or of one of both.
inline void add_layer(const ConfigReading& reading, LayerLetters& letters, char letter) {
  const bool alone = reading.type.one_part;
  letters.mixers += letter == 'E' || letter == 'D' ? '-' : letter == 'l' && !reading.type.does_read(delta_nets) ? 'm' : letter;
  letters.mlps += letter == 'E' ? 'e' : letter == 'D' ? 'd' : alone ? '-' : '?';
}

inline void read_layer_types(ConfigReading& reading, LayerLetters& letters, JsonValue types) {
  for (const JsonValue type : types) {
    const auto* const known = std::find_if(std::begin(layer_names), std::end(layer_names),
                                           [&](const LayerName& one) { return one.name == type.text(); });
    if (known == std::end(layer_names) || !may_have(reading.type, known->letter))
      type.fail(concat("a layer that is ", quote(abbreviated(type.text())), " is not modelled in a ", reading.type.name()));
    add_layer(reading, letters, known->letter);
  }
}

/// Letters of a file in place of names. @param known  pairs of a letter and ours
inline void read_letters(ConfigReading& reading, LayerLetters& letters, JsonValue text, std::string_view known) {
  for (const char one : text.text()) {
    const auto at = known.find(one);
    if (at == std::string_view::npos || at % 2 == 1)
      text.fail(concat(quote(abbreviated({&one, 1})), " is no known letter of a layer"));
    add_layer(reading, letters, known[at + 1]);
  }
}

/// Whether files of a type say how windows and full attention take turns.
inline bool has_window_pattern(const DecoderType& type) {
  return type.is_unknown() || (type.does_read(window) && !type.does_read(window_switch) && !type.layers.empty());
}

/// Windows and layers between them where no list names each layer.
inline void read_window_pattern(ConfigReading& reading, LayerLetters& letters, bool within) {
  const DecoderType& type = reading.type;
  const int layers = reading.model().layers;
  const auto pattern = has_window_pattern(type) ? reading.take("sliding_window_pattern") : std::nullopt;
  const auto first = type.does_read(window_switch) ? reading.take("max_window_layers") : std::nullopt;
  const std::string_view otherwise = !type.layers.empty() ? type.layers : within ? "s" : "f";
  if (pattern && pattern->is_text() && within) {  // "LLLG"
    LayerLetters part;
    read_letters(reading, part, *pattern, "LsGf");
    if (part.mixers.empty()) pattern->expected("a number, or letters L and G");
    letters.mixers = repeated_letters(part.mixers, layers);
  } else if (pattern && !pattern->is_text() && within) {  // every so many layers one has full attention
    const int every = pattern->whole<int>(1, Transformer::max_layers);
    letters.mixers = repeated_letters(std::string(static_cast<std::size_t>(every) - 1, 's') + 'f', layers);
  } else {
    letters.mixers = repeated_letters(otherwise, layers);
    // Qwen2Config: windows from that layer on, 28 where it is not said; Qwen2MoeConfig: up to it; Qwen3MoeConfig: in all
    const bool up_to = type.name() == "qwen2_moe";
    const bool from_one_on = type.does_read(window_switch) && type.layers.empty();
    const int from = first ? first->whole<int>() : 28;
    for (int i = 0; i < layers; ++i) {
      char& letter = letters.mixers[static_cast<std::size_t>(i)];
      const bool windowless = up_to ? i >= from : from_one_on && i < from;
      if (letter == 's' && (!within || windowless)) letter = 'f';
    }
  }
}

/// What mixes tokens in each layer.
inline void read_mixers(ConfigReading& reading, LayerLetters& letters) {
  const DecoderType& type = reading.type;
  const int layers = reading.model().layers;
  if (type.does_read(window))
    letters.window = reading.says("sliding_window") ? reading.size("sliding_window", 0, 1) : type.window;  // null: none
  if (type.does_read(window_switch)) {
    const bool must_say = !type.is_unknown() && type.name() != "dots1";
    if (!reading.flag("use_sliding_window", !must_say)) letters.window = 0;
  }
  if (type.layers.find('c') != std::string_view::npos)
    letters.chunk = reading.says("attention_chunk_size") ? reading.size("attention_chunk_size", 0, 1) : 8192;  // Llama4TextConfig
  const auto types = reading.take("layer_types");
  const auto pattern = type.one_part ? reading.take("hybrid_override_pattern") : std::nullopt;
  const auto every = type.does_read(delta_nets) ? reading.take("full_attention_interval") : std::nullopt;
  const auto full = type.does_read(mamba) && !type.one_part ? reading.take("attn_layer_indices") : std::nullopt;
  const auto sliding = type.does_read(window) ? reading.take("hybrid_layer_pattern") : std::nullopt;
  if (types) {
    read_layer_types(reading, letters, *types);
    check_one_for_each(*types, layers);
    if (type.does_read(window_switch)) reading.take("max_window_layers");
    if (has_window_pattern(type)) reading.take("sliding_window_pattern");
  } else if (pattern) {
    read_letters(reading, letters, *pattern, "Mm*fEE-D");
    if (std::cmp_not_equal(letters.mixers.size(), layers))
      pattern->fail(concat("has not one for each of ", layers, " layers (num_hidden_layers)"));
  } else if (full) {
    letters.mixers = repeated_letters("m", layers);
    for (const JsonValue layer : *full) letters.mixers[layer.whole<std::size_t>(0, static_cast<std::size_t>(layers) - 1)] = 'f';
  } else if (sliding) {
    check_one_for_each(*sliding, layers);
    for (const JsonValue one : *sliding) letters.mixers += one.whole<int>(0, 1) == 1 ? 's' : 'f';
  } else if (every) {
    const int interval = every->whole<int>(1, Transformer::max_layers);
    letters.mixers = repeated_letters(std::string(static_cast<std::size_t>(interval) - 1, 'l') + 'f', layers);
  } else {
    read_window_pattern(reading, letters, letters.window > 0);
  }
  if (const auto without = type.does_read(no_positions) ? reading.take("no_rope_layers") : std::nullopt) {
    if (without->size() > 0) check_one_for_each(*without, layers);
    for (int i = 0; !types && letters.chunk > 0 && std::cmp_less(i, without->size()); ++i)
      letters.mixers[static_cast<std::size_t>(i)] = (*without)[static_cast<std::size_t>(i)].whole<int>(0, 1) == 1 ? 'c' : 'f';
  }
  if (type.does_read(no_positions) &&
      (!type.is_unknown() || reading.says("no_rope_layers") || reading.says("no_rope_layer_interval"))) {
    reading.take("no_rope_layer_interval");
    reading.not_computed("no_rope_layers", "layers without rotary embedding are not computed");
  }
  if (letters.chunk == 0) std::replace(letters.mixers.begin(), letters.mixers.end(), 'c', 'f');
  const bool within = letters.mixers.find('s') != std::string::npos;
  if (within && letters.window == 0) {
    (types ? *types : *sliding).fail("attention within a window needs sliding_window, and use_sliding_window");
  } else if (types && !within && letters.window > 0 && !type.does_read(window_switch) && type.layers.empty()) {
    types->fail("full attention in all layers contradicts the window; give sliding_window null");
  }
}

/// Layers with experts, from every way to say so.
inline void read_mlps(ConfigReading& reading, LayerLetters& letters) {
  const int layers = reading.model().layers;
  const bool mixture = reading.model().experts > 0;
  letters.mlps.resize(static_cast<std::size_t>(layers), '?');
  const auto set = [&](std::int64_t layer, char letter) {
    char& now = letters.mlps[static_cast<std::size_t>(layer)];
    if (now == '?' || now == 'e' || (now == 'd' && letter == 'e')) now = letter;
  };
  if (!reading.type.one_part) std::fill(letters.mlps.begin(), letters.mlps.end(), mixture ? 'e' : 'd');
  const bool reads_turns = mixture && reading.type.does_read(layers_in_turn);
  if (const auto step = reads_turns ? reading.take("moe_layer_freq") : std::nullopt) {
    if (step->is_list()) check_one_for_each(*step, layers);
    // DeepSeek counts from the first layer, Llama 4 and Qwen from the last of each step
    const int every = step->is_list() ? 1 : step->whole<int>(1);
    const int at = reading.named("moe_layer_freq") == "moe_layer_freq" ? 0 : every - 1;
    for (int i = 0; i < layers; ++i) {
      const bool with = step->is_list() ? (*step)[static_cast<std::size_t>(i)].whole<int>(0, 1) == 1 : i % every == at;
      set(i, with ? 'e' : 'd');
    }
  }
  if (const auto dense = reads_turns ? reading.take("mlp_only_layers") : std::nullopt) {
    for (const JsonValue layer : *dense) set(layer.whole<std::int64_t>(0, layers - 1), 'd');
  }
  if (const auto with = reads_turns ? reading.take("moe_layers") : std::nullopt) {
    for (int i = 0; i < layers; ++i) set(i, 'd');
    for (const JsonValue layer : *with) set(layer.whole<std::int64_t>(0, layers - 1), 'e');
  }
  if (const auto last = reads_turns ? reading.take("moe_layer_end_index") : std::nullopt; last && last->shown() != "-1") {
    for (int i = last->whole<int>(0, layers - 1) + 1; i < layers; ++i) set(i, 'd');
  }
  const bool reads_first = mixture && reading.type.does_read(dense_layers);
  if (const auto first = reads_first ? reading.take("first_k_dense_replace") : std::nullopt) {
    for (int i = 0; i < std::min(first->whole<int>(), layers); ++i) set(i, 'd');
  }
  if (const auto types = reads_first ? reading.take("mlp_layer_types") : std::nullopt) {
    check_one_for_each(*types, layers);
    for (int i = 0; i < layers; ++i) {
      const JsonValue one = (*types)[static_cast<std::size_t>(i)];
      if (one.text() != "dense" && one.text() != "sparse") one.expected("dense or sparse");
      set(i, one.text() == "dense" ? 'd' : 'e');
    }
  }
  if (mixture && letters.mlps.find('e') == std::string::npos)
    reading.config().fail(concat("no layer has the ", reading.model().experts, " experts (first_k_dense_replace, ",
                                 "moe_layer_freq, mlp_only_layers, layer_types); leave them out"));
}

}  // namespace tawpipe::detail
