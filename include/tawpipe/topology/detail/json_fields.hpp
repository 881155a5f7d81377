// Reads fields of JSON objects with their units, and says in one line what is wrong with them.
// Not: public; topology/cluster_file.hpp is the door.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/parse_units.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::inline v0::detail {

using Json = nlohmann::json;

/// One object of a file, and what to call it in messages.
class JsonFields {
 public:
  /// @throws InputError  if `json` is no object or has a key that is not `known`.
  JsonFields(const Json& json, std::string where, std::initializer_list<const char*> known)
      : json_{&json}, where_{std::move(where)} {
    if (!json.is_object()) throw InputError(concat(where_, " must be an object {...}, not ", json.type_name()));
    const std::vector<std::string> names(known.begin(), known.end());
    for (const auto& item : json.items()) {
      if (std::find(names.begin(), names.end(), item.key()) != names.end()) continue;
      throw InputError(concat(where_, ": ", unknown_name("key", item.key(), names)));
    }
  }

  bool has(const char* key) const { return json_->contains(key); }
  const std::string& where() const { return where_; }
  InputError fail(const char* key, std::string_view message) const {
    return InputError(concat(where_, ", ", key, ": ", message));
  }

  const Json& at(const char* key) const {
    if (!has(key)) throw InputError(concat(where_, ": ", quote(key), " is missing"));
    return (*json_)[key];
  }
  /// @param most  the longest list.
  const Json& list(const char* key, std::size_t most) const {
    const Json& value = at(key);
    if (!value.is_array()) throw fail(key, concat("expected a list [...], not ", value.type_name()));
    if (value.size() > most) throw fail(key, concat("a list of ", value.size(), " is too long; at most ", most, " fit"));
    return value;
  }
  std::string text(const char* key) const {
    const Json& value = at(key);
    if (!value.is_string()) throw fail(key, concat("expected a text in quotes, not ", value.type_name()));
    return value.get<std::string>();
  }
  std::string text_or(const char* key, std::string fallback) const { return has(key) ? text(key) : std::move(fallback); }

  std::int64_t whole(const char* key, std::int64_t least, std::int64_t most) const {
    return whole_value(at(key), key, least, most);
  }
  std::int64_t whole_value(const Json& value, const char* key, std::int64_t least, std::int64_t most) const {
    const bool fits = value.is_number_unsigned() ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most)
                                                 : value.is_number_integer() && value.get<std::int64_t>() <= most;
    if (!fits || (!value.is_number_unsigned() && value.get<std::int64_t>() < least) ||
        (value.is_number_unsigned() && least > 0 && value.get<std::uint64_t>() < static_cast<std::uint64_t>(least))) {
      throw fail(key, concat("expected a whole number from ", least, " to ", most, ", not ", shown(value)));
    }
    return value.get<std::int64_t>();
  }

  /// A rate either as text with its unit under `key`, or exact as a number under `exact_key`, whose name is the unit.
  template <class Rate>
  Rate rate(const char* key, const char* exact_key, Rate (*parse)(std::string_view)) const {
    if (!has(exact_key)) return parsed(key, parse);
    const Json& value = at(exact_key);
    const double number = value.is_number() ? value.get<double>() : 0.0;
    if (!(number > 0) || !std::isfinite(number))
      throw fail(exact_key, concat("expected a number above zero, not ", shown(value)));
    return Rate{number};
  }
  BytesPerSecond bandwidth() const { return rate("bandwidth", "bytes_per_second", parse_bandwidth); }

  /// A duration as text under `key`, or in picoseconds under `exact_key`; zero where both are missing.
  Duration latency() const {
    if (has("latency_ps")) return Duration{whole("latency_ps", 0, 1'000'000'000'000'000)};
    return has("latency") ? parsed("latency", parse_duration) : Duration{};
  }
  Bytes memory() const {
    if (has("memory_bytes")) return Bytes{whole("memory_bytes", 1, 1'000'000'000'000'000)};
    const Bytes memory = parsed("memory", parse_bytes);
    if (memory < Bytes{1}) throw fail("memory", "must be above zero, such as 80GiB");
    return memory;
  }

  /// The value as one short line.
  static std::string shown(const Json& value) {
    std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    if (text.size() > 40) text = concat(text.substr(0, 40), "...");
    return text;
  }

 private:
  template <class Value>
  Value parsed(const char* key, Value (*parse)(std::string_view)) const {
    const Json& value = at(key);
    if (!value.is_string()) throw fail(key, concat("expected a text with a unit in quotes, not ", shown(value)));
    try {
      return parse(value.get_ref<const std::string&>());
    } catch (const InputError& error) {
      throw fail(key, error.what());
    }
  }

  const Json* json_;
  std::string where_;
};

}  // namespace tawpipe::detail
