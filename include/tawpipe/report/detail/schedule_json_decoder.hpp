// A decoder in a schedule's JSON: its sizes, its kinds of layers, and those that predict further tokens.
// Not: public; report/schedule_json.hpp is the public interface.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/json/json_reader.hpp"
#include "tawpipe/model/layer_stack.hpp"
#include "tawpipe/model/model.hpp"
#include "tawpipe/model/transformer.hpp"
#include "tawpipe/model/transformer_fields.hpp"
#include "tawpipe/report/chrome_trace.hpp"  // json_string

namespace tawpipe::inline v0::detail {

inline constexpr std::size_t max_json_kinds = 256;
inline constexpr std::size_t max_json_sublayers = 8;

/// Whether sizes have the names of all that each decoder has. @param has  whether they have a name
template <class Has>
bool names_decoder(Has&& has) {
  const auto& rows = ModelFields<Transformer>::rows;
  return std::all_of(std::begin(rows), std::end(rows),
                     [&](const auto& field) { return field.least == 0 || field.get(Transformer{}) != 0 || has(field.key); });
}

/// What kinds of layers say of a decoder, or nothing without them. @throws InputError  as Transformer::of
inline Transformer decoder_of(std::vector<LayerKind> kinds, LayerPattern pattern) {
  if (kinds.empty()) return {};
  Transformer known = Transformer::of({.hidden = 1, .vocab = 1, .kinds = std::move(kinds), .pattern = std::move(pattern)});
  known.hidden = known.vocab = 0;
  return known;
}

// ---- writing ----

/// Of a decoder's sizes those that a reader cannot know by its kinds of layers or as the standard.
inline std::vector<std::pair<std::string, std::int64_t>> sizes_of(const Transformer& model) {
  const Transformer known = decoder_of(model.kinds, model.pattern);
  std::vector<std::pair<std::string, std::int64_t>> sizes;
  for (const auto& field : ModelFields<Transformer>::rows) {
    if (const std::int64_t value = field.get(model); value != field.get(known)) sizes.emplace_back(field.key, value);
  }
  return sizes;
}

/// `,"key":value` for each member that is not as in a new value.
template <class Of>
void write_fields(const Of& of, std::string& out) {
  for (const auto& field : ModelFields<Of>::rows) {
    const std::int64_t value = field.get(of);
    if (value == field.get(Of{})) continue;
    out += concat(",\"", field.key, "\":");
    out += field.word != nullptr ? json_string(field.word(value))
           : field.is_switch     ? value == 1 ? "true" : "false"
                                 : concat(value);
  }
}

/// `,"kinds":[...],"mtp":[...]`, each if there is one.
inline void write_kinds(const Transformer& model, std::string& out) {
  const auto write_list = [&](std::string_view key, const auto& list, auto&& write) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      out += i > 0 ? std::string{","} : concat(",\"", key, "\":[");
      write(list[i]);
    }
    if (!list.empty()) out += ']';
  };
  write_list("kinds", model.kinds, [&](const LayerKind& kind) {
    out += concat("{\"name\":", json_string(kind.name));
    write_fields(kind, out);
    write_list("sublayers", kind.sublayers, [&](const LayerKind::Sublayer& sublayer) {
      std::visit(
          [&]<class Of>(const Of& of) {
            std::string fields;
            write_fields(of, fields);
            out += concat("{\"", ModelFields<Of>::name, "\":{", fields.substr(std::min<std::size_t>(1, fields.size())), "}}");
          },
          sublayer);
    });
    out += '}';
  });
  write_list("mtp", model.mtp, [&](std::uint8_t kind) { out += concat(int{kind}); });
}

// ---- reading ----

/// A number, or as is easy to write by hand: true or false, or the name of a value.
template <class Of>
void read_field(const ModelField<Of>& field, JsonValue value, Of& into) {
  if (field.is_switch && !value.is_whole()) return field.set(into, value.boolean() ? 1 : 0);
  if (field.word == nullptr || value.is_whole()) return field.set(into, value.whole<std::int64_t>(field.least, field.most));
  std::vector<std::string> known;
  for (std::int64_t i = field.least; i <= field.most; ++i) {
    if (value.text() == field.word(i)) return field.set(into, i);
    known.emplace_back(field.word(i));
  }
  value.fail(unknown_name(field.key, value.text().substr(0, 40), known));
}

/// Members of `into`. @param keys  others, which the caller reads
template <class Of>
void read_fields(JsonValue value, Of& into, std::vector<std::string_view> keys = {}) {
  for (const auto& field : ModelFields<Of>::rows) keys.push_back(field.key);
  value.only(std::span<const std::string_view>{keys});
  for (const auto& field : ModelFields<Of>::rows) {
    if (const auto found = value.find(field.key)) read_field(field, *found, into);
  }
}

/// {"attention": {...}}, or one of the others by its name. @param kind  of which only the type counts
template <class... Of>
LayerKind::Sublayer read_sublayer(JsonValue value, const std::variant<Of...>* /*kind*/ = nullptr) {
  value.only(ModelFields<Of>::name...);
  LayerKind::Sublayer read;
  int count = 0;
  const auto read_one = [&]<class One>(One of) {
    const auto found = value.find(ModelFields<One>::name);
    if (!found) return;
    read_fields(*found, of);
    read = of;
    ++count;
  };
  (read_one(Of{}), ...);
  if (count != 1) value.fail(R"(expected one sublayer, such as {"mlp": {"width": 4096}})");
  return read;
}

inline std::vector<LayerKind> read_kinds(JsonValue list) {
  if (list.size() < 1 || list.size() > max_json_kinds) list.fail(concat("expected 1 to ", max_json_kinds, " kinds of layers"));
  std::vector<LayerKind> kinds;
  for (const JsonValue value : list) {
    LayerKind& kind = kinds.emplace_back();
    read_fields(value, kind, {"name", "sublayers"});
    if (const auto text = value.find("name")) kind.name = text->label();
    const JsonValue sublayers = value.at("sublayers");
    if (sublayers.size() > max_json_sublayers) sublayers.fail(concat("at most ", max_json_sublayers, " sublayers fit"));
    for (const JsonValue sublayer : sublayers)
      kind.sublayers.push_back(read_sublayer(sublayer, static_cast<const LayerKind::Sublayer*>(nullptr)));
  }
  return kinds;
}

/// Runs of equal layers, each a kind and a number. @param kinds  that there are
inline LayerPattern read_pattern(JsonValue runs, std::int32_t layers, std::size_t kinds) {
  LayerPattern pattern;
  for (const JsonValue run : runs) {
    run.of_size(2, "a kind and how many layers in a row are of it, such as [1, 3]");
    const auto left = layers - static_cast<std::int32_t>(pattern.size());
    pattern.insert(pattern.end(), run[1].whole<std::size_t>(1, static_cast<std::size_t>(std::max(1, left))),
                   run[0].whole<std::uint8_t>(0, static_cast<std::uint8_t>(kinds - 1)));
  }
  return pattern;
}

/// What models of all kinds say.
inline LayerStack read_stack(JsonValue value) {
  LayerStack model;
  if (const auto text = value.find("name")) model.name = text->label();
  model.layers = value.at("layers").whole<std::int32_t>(1, LayerStack::max_layers);
  if (const auto dtype = value.find("dtype")) model.dtype = dtype->parsed(parse_dtype);
  if (const auto tied = value.find("tied")) model.tied = tied->boolean();
  if (const auto number = value.find("utilization")) model.utilization = number->positive_or_zero();
  if (const auto text = value.find("utilization_source")) model.utilization_source = text->label();
  return model;
}

/// The decoder of a model. @param sizes  an object with its sizes, which may be `model` itself
inline Transformer read_decoder(JsonValue model, JsonValue sizes, const LayerStack& stack) {
  std::vector<LayerKind> kinds;
  LayerPattern pattern;
  if (const auto list = model.find("kinds")) {
    kinds = read_kinds(*list);
    pattern = read_pattern(model.at("pattern"), stack.layers, kinds.size());
  }
  Transformer decoder;
  try {
    decoder = decoder_of(std::move(kinds), std::move(pattern));
  } catch (const InputError& error) {
    model.fail(error.what());
  }
  std::vector<std::string_view> others;
  if (sizes.is_same(model)) others = {"name", "layers", "dtype", "tied", "utilization", "utilization_source", "kinds", "mtp"};
  if (sizes.is_same(model) && decoder.has_kinds()) others.emplace_back("pattern");
  read_fields(sizes, decoder, std::move(others));
  if (decoder.kv_heads == 0) decoder.kv_heads = decoder.heads;
  for (const auto& field : ModelFields<Transformer>::rows) {
    if (field.get(decoder) == 0 && field.least == 1) sizes.at(field.key);  // which is missing
  }
  if (const auto list = model.find("mtp")) {
    const std::size_t known = decoder.has_kinds() ? decoder.kinds.size() : decoder.dense_layers > 0 ? 2 : 1;
    for (const JsonValue kind : *list) decoder.mtp.push_back(static_cast<std::uint8_t>(kind.id(known, "kind of layers")));
  }
  decoder.name = stack.name;
  decoder.layers = stack.layers;
  decoder.tied = stack.tied;
  decoder.dtype = stack.dtype;
  decoder.utilization = stack.utilization;
  decoder.utilization_source = stack.utilization_source;
  return decoder;
}

}  // namespace tawpipe::v0::detail
