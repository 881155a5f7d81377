// Reads values of a parsed JSON text strictly; every error names the path of the value, such as tasks[12].rank.
// Not: public; report/schedule_json.hpp is the door.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::inline v0::detail {

/// Where a value stands: a chain from the value up to the whole text, made into words only for an error.
class JsonPath {
 public:
  JsonPath() = default;
  JsonPath(const JsonPath& up, std::string_view key) : up_{&up}, key_{key} {}
  JsonPath(const JsonPath& up, std::size_t index) : up_{&up}, index_{index} {}

  std::string text() const {
    if (up_ == nullptr) return "";
    const std::string before = up_->text();
    if (key_.data() == nullptr) return concat(before, "[", index_, "]");
    return concat(before, before.empty() ? "" : ".", key_.substr(0, 60));
  }
  [[noreturn]] void fail(std::string_view why) const {
    const std::string where = text();
    throw InputError(where.empty() ? std::string{why} : concat(where, ": ", why));
  }

 private:
  const JsonPath* up_ = nullptr;
  std::string_view key_ = {};
  std::size_t index_ = 0;
};

/// The value in a few words. Lists and objects by their kind alone: writing out a deep one would need as deep a stack.
inline std::string shown(const nlohmann::json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  std::string text = value.dump(-1, ' ', true);
  if (text.size() > 40) text = concat(text.substr(0, 40), "...");
  return text;
}

/// A value and its path. Cheap to make; refers to both.
class JsonValue {
 public:
  JsonValue(const nlohmann::json& json, const JsonPath& path) : json_{&json}, path_{&path} {}

  const nlohmann::json& json() const { return *json_; }
  const JsonPath& path() const { return *path_; }
  [[noreturn]] void fail(std::string_view why) const { path_->fail(why); }

  bool is_text() const { return json_->is_string(); }
  bool is_whole() const { return json_->is_number_integer(); }
  bool is_list() const { return json_->is_array(); }

  std::int64_t whole(std::int64_t least, std::int64_t most) const {
    const bool fits =
        json_->is_number_unsigned()
            ? json_->get<std::uint64_t>() <= static_cast<std::uint64_t>(most) && json_->get<std::int64_t>() >= least
            : json_->is_number_integer() && json_->get<std::int64_t>() <= most && json_->get<std::int64_t>() >= least;
    if (!fits) fail(concat("expected a whole number from ", least, " to ", most, ", not ", shown(*json_)));
    return json_->get<std::int64_t>();
  }
  /// An id of `count` things.
  std::int32_t id(std::size_t count, std::string_view what) const {
    if (!json_->is_number_integer()) fail(concat("expected the number of a ", what, ", not ", shown(*json_)));
    if (count == 0) fail(concat("there is no ", what, " ", shown(*json_), "; there are none"));
    const bool fits = json_->is_number_unsigned() && json_->get<std::uint64_t>() < count;
    if (!fits) fail(concat("there is no ", what, " ", shown(*json_), "; they are 0 to ", count - 1));
    return json_->get<std::int32_t>();
  }
  double positive_or_zero() const {
    const double value = json_->is_number() ? json_->get<double>() : -1.0;
    if (!(value >= 0) || !std::isfinite(value)) fail(concat("expected a number, 0 or more, not ", shown(*json_)));
    return value;
  }
  bool boolean() const {
    if (!json_->is_boolean()) fail(concat("expected true or false, not ", shown(*json_)));
    return json_->get<bool>();
  }
  const std::string& text() const {
    if (!json_->is_string()) fail(concat("expected a text in quotes, not ", shown(*json_)));
    return json_->get_ref<const std::string&>();
  }
  std::size_t list_size() const {
    if (!json_->is_array()) fail(concat("expected a list [...], not ", shown(*json_)));
    return json_->size();
  }
  /// Calls `visit(element, i)` for each element of a list.
  template <class Visit>
  void for_each(Visit&& visit) const {
    const std::size_t size = list_size();
    for (std::size_t i = 0; i < size; ++i) {
      const JsonPath path{*path_, i};
      visit(JsonValue{(*json_)[i], path}, i);
    }
  }
  /// Reads an enumerator by its name().
  template <class Enum>
  Enum enumerator(int count, std::string_view what) const {
    const std::string& wanted = text();
    for (int i = 0; i < count; ++i) {
      if (wanted == name(static_cast<Enum>(i))) return static_cast<Enum>(i);
    }
    std::vector<std::string> known;
    for (int i = 0; i < count; ++i) known.emplace_back(name(static_cast<Enum>(i)));
    fail(unknown_name(what, wanted.substr(0, 40), known));
  }

  /// Checks that it is an object with no key beside `known`.
  void expect_object(std::span<const std::string_view> known) const {
    if (!json_->is_object()) fail(concat("expected an object {...}, not ", shown(*json_)));
    for (const auto& item : json_->items()) {
      bool found = false;
      for (const auto key : known) found = found || item.key() == key;
      if (found) continue;
      fail(unknown_name("key", item.key().substr(0, 40), {known.begin(), known.end()}));
    }
  }
  bool has(std::string_view key) const { return json_->find(key) != json_->end(); }
  /// Calls `visit(value)` if the object has the key.
  template <class Visit>
  bool if_has(std::string_view key, Visit&& visit) const {
    const auto found = json_->find(key);
    if (found == json_->end()) return false;
    const JsonPath path{*path_, key};
    visit(JsonValue{*found, path});
    return true;
  }
  /// As if_has(), for a key that must be there.
  template <class Visit>
  void with(std::string_view key, Visit&& visit) const {
    if (!if_has(key, visit)) fail(concat(quote(key), " is missing"));
  }

 private:
  const nlohmann::json* json_;
  const JsonPath* path_;
};

/// Looks through a JSON text for what the parser would let pass: a key that stands twice in one object, and depth.
/// Models nlohmann's SAX interface. Not a callback of its parser: that one scans a list again after each of its elements.
class JsonWatch {
 public:
  using Json = nlohmann::json;

  bool null() { return true; }
  bool boolean(bool) { return true; }
  bool number_integer(Json::number_integer_t) { return true; }
  bool number_unsigned(Json::number_unsigned_t) { return true; }
  bool number_float(Json::number_float_t, const Json::string_t&) { return true; }
  bool string(Json::string_t&) { return true; }
  bool binary(Json::binary_t&) { return true; }
  bool start_array(std::size_t) { return enter(); }
  bool end_array() { return leave(); }
  bool start_object(std::size_t) { return enter(); }
  bool end_object() { return leave(); }
  bool key(const Json::string_t& key) {
    auto& keys = keys_.back();
    for (const auto& earlier : keys) {
      if (earlier == key) throw InputError(concat("the key ", quote(key.substr(0, 40)), " stands twice in one object"));
    }
    if (keys.size() == most_keys) throw InputError(concat("an object has more than ", most_keys, " keys"));
    keys.push_back(key);
    return true;
  }
  template <class Error>
  bool parse_error(std::size_t, const std::string&, const Error&) {
    return false;  // the parser proper words it
  }

 private:
  bool enter() {
    if (keys_.size() == deepest) throw InputError(concat("lists and objects stand more than ", deepest, " deep in each other"));
    keys_.emplace_back();
    return true;
  }
  bool leave() {
    keys_.pop_back();
    return true;
  }

  static constexpr std::size_t deepest = 16;     // writing out a value takes as much stack as it is deep
  static constexpr std::size_t most_keys = 256;  // of one object, so that looking for a key among them stays cheap

  std::vector<std::vector<std::string>> keys_;  ///< of the lists and objects entered; a list has none
};

/// Parses a JSON text; refuses a key that stands twice in one object, which JSON would let pass.
/// @throws InputError  in one line.
inline nlohmann::json parse_json_strictly(std::string_view text) {
  try {
    JsonWatch watch;
    nlohmann::json::sax_parse(text.begin(), text.end(), &watch);
    return nlohmann::json::parse(text.begin(), text.end());
  } catch (const nlohmann::json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    std::string_view message = error.what();
    if (const auto begin = message.find("] "); begin != std::string_view::npos) message.remove_prefix(begin + 2);
    throw InputError(concat("not JSON: ", message.substr(0, 300)));
  }
}

}  // namespace tawpipe::detail
