// Strict reading of JSON: every value knows its document, and errors name the file and the value's
// path, such as tasks[12].rank.
// Not: writing (nlohmann::ordered_json does).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/function_ref.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/core/text_file.hpp"
#include "tawpipe/json/detail/python_words.hpp"

namespace tawpipe::inline v0 {

/// Limits of a document.
struct JsonLimits {
  /// of nested lists and objects: a traversal needs proportional stack
  std::size_t depth = 16;
  bool repeated_keys = false;  ///< allowed in one object, the last one counts
  /// Python's words for numbers that JSON does not have are texts: "NaN", "Infinity", "-Infinity"
  bool python_words = false;
};

class JsonValue;

/// Called with each object when it is complete; false: it is dropped, so that a long text takes
/// little memory.
using JsonKeep = FunctionRef<bool(const nlohmann::json&)>;

/// Wraps a value that was not read from JSON text, such as a pickle.
struct JsonTree {
  nlohmann::json json;
};

/// A parsed text and its name in messages.
class JsonDocument {
 public:
  /// @throws InputError  naming line and column, or the duplicate key.
  JsonDocument(std::string_view text, std::string_view source, JsonLimits limits = {});
  JsonDocument(std::string_view text, std::string_view source, JsonLimits limits, JsonKeep keep);
  JsonDocument(JsonTree tree, std::string_view source) : json_(std::move(tree.json)), source_{source} {}
  JsonDocument(const JsonDocument&) = delete;  // its values refer to it
  JsonDocument& operator=(const JsonDocument&) = delete;

  JsonValue root() const;
  /// The whole document, for uses that depend on no particular value.
  const nlohmann::json& json() const { return json_; }
  /// @throws InputError  with the path of the value and why.
  [[noreturn]] void fail(const nlohmann::json& value, std::string_view why) const;

 private:
  nlohmann::json json_;
  std::string source_;
};

/// A value of a document, which must outlive it. Unexpected contents give an InputError with file
/// and path.
class JsonValue {
 public:
  JsonValue(const nlohmann::json& json, const JsonDocument& document) : json_{&json}, document_{&document} {}

  [[noreturn]] void fail(std::string_view why) const { document_->fail(*json_, why); }
  [[noreturn]] void expected(std::string_view what) const { fail(concat("expected ", what, ", not ", shown())); }

  bool is_null() const { return json_->is_null(); }
  /// Whether both are one place of a document.
  bool is_same(const JsonValue& other) const { return json_ == other.json_; }
  bool is_text() const { return json_->is_string(); }
  bool is_whole() const { return json_->is_number_integer(); }
  bool is_number() const { return json_->is_number(); }
  bool is_list() const { return json_->is_array(); }
  bool is_object() const { return json_->is_object(); }

  /// A short description of the value.
  std::string shown() const;

  // ---- single values ----

  template <class Number = std::int64_t>
  Number whole(Number least = 0, Number most = std::numeric_limits<Number>::max()) const {
    const auto fits = [&](auto value) { return std::cmp_greater_equal(value, least) && std::cmp_less_equal(value, most); };
    const bool right =
        json_->is_number_unsigned() ? fits(json_->get<std::uint64_t>()) : is_whole() && fits(json_->get<std::int64_t>());
    if (!right) expected(concat("a whole number from ", least, " to ", most));
    return json_->get<Number>();
  }
  /// An id below `count`.
  std::int32_t id(std::size_t count, std::string_view what) const {
    if (!is_whole()) expected(concat("the number of a ", what));
    if (count == 0) fail(concat("there is no ", what, " ", shown(), "; there are none"));
    const bool fits = json_->is_number_unsigned() && json_->get<std::uint64_t>() < count;
    if (!fits) fail(concat("there is no ", what, " ", shown(), "; they are 0 to ", count - 1));
    return json_->get<std::int32_t>();
  }
  /// Any number, including negative ones.
  double number() const {
    if (!is_number()) expected("a number");
    return json_->get<double>();
  }
  double positive_or_zero() const {
    if (!is_number() || !(json_->get<double>() >= 0)) expected("a number, 0 or more");
    return json_->get<double>();
  }
  double positive() const {
    if (!is_number() || !(json_->get<double>() > 0)) expected("a number above zero");
    return json_->get<double>();
  }
  bool boolean() const {
    if (!json_->is_boolean()) expected("true or false");
    return json_->get<bool>();
  }
  const std::string& text() const {
    if (!is_text()) expected("a text in quotes");
    return json_->get_ref<const std::string&>();
  }
  /// Text to be shown to users: without control characters, which a terminal would obey.
  const std::string& label() const {
    if (one_line(text()) != text()) expected("a name without control characters");
    return text();
  }
  /// The result of `parse` on the text; its InputError gets the path.
  template <class Parse>
  auto parsed(Parse&& parse) const {
    const std::string& wanted = text();
    try {
      return parse(wanted);
    } catch (const InputError& error) {
      fail(error.what());
    }
  }
  /// An enumerator by its name().
  template <class Enum>
  Enum enumerator(int count, std::string_view what) const {
    std::vector<std::string> known;
    for (int i = 0; i < count; ++i) {
      if (text() == name(static_cast<Enum>(i))) return static_cast<Enum>(i);
    }
    for (int i = 0; i < count; ++i) known.emplace_back(name(static_cast<Enum>(i)));
    fail(unknown_name(what, text().substr(0, 40), known));
  }

  // ---- lists: for (const JsonValue item : value) ----

  class Iterator {
   public:
    Iterator(const nlohmann::json* at, const JsonDocument& document) : at_{at}, document_{&document} {}
    JsonValue operator*() const { return {*at_, *document_}; }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    bool operator==(const Iterator&) const = default;

   private:
    const nlohmann::json* at_;
    const JsonDocument* document_;
  };
  Iterator begin() const { return {items().data(), *document_}; }
  Iterator end() const { return {items().data() + items().size(), *document_}; }
  std::size_t size() const { return items().size(); }
  JsonValue operator[](std::size_t i) const { return {items()[i], *document_}; }
  /// The value itself, if it is a list of that many items. @param example  a valid text, for the
  /// error
  const JsonValue& of_size(std::size_t size, std::string_view example) const {
    if (!is_list()) expected(example);
    if (items().size() != size) fail(concat("expected ", example, ", not a list of ", items().size()));
    return *this;
  }

  // ---- objects ----

  /// Checks that it is an object without keys other than `known`.
  template <class... Keys>
  const JsonValue& only(const Keys&... keys) const {
    const std::string_view known[] = {std::string_view{keys}...};
    return only(std::span<const std::string_view>{known});
  }
  const JsonValue& only(std::span<const std::string_view> known) const {
    for (const auto& [key, value] : object()) {
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      fail(unknown_name("key", key.substr(0, 40), {known.begin(), known.end()}));
    }
    return *this;
  }
  bool has(std::string_view key) const { return object().find(key) != object().end(); }
  std::optional<JsonValue> find(std::string_view key) const {
    const auto found = object().find(key);
    return found == object().end() ? std::nullopt : std::optional<JsonValue>{{found->second, *document_}};
  }
  /// As find(), for files in which null means an absent key.
  std::optional<JsonValue> find_given(std::string_view key) const {
    const auto found = find(key);
    return found && found->is_null() ? std::nullopt : found;
  }
  JsonValue at(std::string_view key) const {
    const auto found = object().find(key);
    if (found == object().end()) fail(concat(quote(key), " is missing"));
    return {found->second, *document_};
  }
  std::vector<std::pair<std::string, JsonValue>> members() const {
    std::vector<std::pair<std::string, JsonValue>> members;
    for (const auto& [key, value] : object()) members.emplace_back(key, JsonValue{value, *document_});
    return members;
  }

 private:
  const nlohmann::json::array_t& items() const {
    if (!is_list()) expected("a list [...]");
    return json_->get_ref<const nlohmann::json::array_t&>();
  }
  const nlohmann::json::object_t& object() const {
    if (!is_object()) expected("an object {...}");
    return json_->get_ref<const nlohmann::json::object_t&>();
  }

  const nlohmann::json* json_;
  const JsonDocument* document_;
};

inline JsonValue JsonDocument::root() const { return {json_, *this}; }

/// A JSON file. @param kind  for messages: "configuration"
/// @throws InputError  as read_text_file() and JsonDocument.
inline JsonDocument read_json_file(const std::string& path, std::string_view kind, std::int64_t mebibytes,
                                   JsonLimits limits = {}) {
  return JsonDocument{read_text_file(path, kind, mebibytes), concat(kind, " ", quote(path)), limits};
}

}  // namespace tawpipe

#if TAWPIPE_BODIES
namespace tawpipe::inline v0 {

namespace detail {

/// Appends the path from `json` to the value at `wanted`. @return false if it is not in there
inline bool find_json_path(const nlohmann::json& json, const nlohmann::json* wanted, std::string& path) {
  if (&json == wanted) return true;
  const std::size_t before = path.size();
  if (json.is_array()) {
    for (std::size_t i = 0; i < json.size(); ++i) {
      path += concat("[", i, "]");
      if (find_json_path(json[i], wanted, path)) return true;
      path.resize(before);
    }
  } else if (json.is_object()) {
    for (const auto& [key, value] : json.get_ref<const nlohmann::json::object_t&>()) {
      path += concat(before == 0 ? "" : ".", std::string_view{key}.substr(0, 60));
      if (find_json_path(value, wanted, path)) return true;
      path.resize(before);
    }
  }
  return false;
}

/// Builds a document while it is parsed, and rejects what the parser would accept: too much depth,
/// and a duplicate key in an object. Models nlohmann's SAX interface.
class JsonBuilder {
 public:
  using Json = nlohmann::json;

  JsonBuilder(std::string_view text, JsonLimits limits, JsonKeep keep) : text_{text}, limits_{limits}, keep_{keep} {}

  Json take() { return std::move(root_); }

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(Json::number_integer_t value) { return add(value); }
  bool number_unsigned(Json::number_unsigned_t value) { return add(value); }
  bool number_float(Json::number_float_t value, const Json::string_t&) { return add(value); }
  bool string(Json::string_t& value) { return add(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }  // not in text
  bool start_array(std::size_t) { return enter(Json::array()); }
  bool start_object(std::size_t) { return enter(Json::object()); }
  bool end_array() {
    open_.pop_back();
    return true;
  }
  bool end_object() {
    Json& object = *open_.back();
    open_.pop_back();
    if (keep_(object)) return true;
    object = nullptr;
    if (!open_.empty() && open_.back()->is_array()) open_.back()->erase(open_.back()->size() - 1);
    return true;
  }
  bool key(Json::string_t& key) {
    const auto [at, added] = open_.back()->template get_ref<Json::object_t&>().try_emplace(key);
    if (!added && !limits_.repeated_keys) {
      std::string path;
      find_json_path(root_, open_.back(), path);
      throw InputError(
          concat(path, path.empty() ? "" : ": ", "the key ", quote(key.substr(0, 40)), " stands twice in one object"));
    }
    member_ = &at->second;
    return true;
  }
  template <class Exception>
  bool parse_error(std::size_t position, const std::string&, const Exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ..."
    std::string_view message = error.what();
    for (const std::string_view before : {"] ", "column ", ": "}) {
      if (const auto at = message.find(before); at != std::string_view::npos) message.remove_prefix(at + before.size());
    }
    const std::string_view read = text_.substr(0, position == 0 ? 0 : position - 1);
    const auto line = 1 + std::count(read.begin(), read.end(), '\n');
    const std::size_t column = read.size() - (read.rfind('\n') + 1) + 1;  // npos + 1 is 0
    throw InputError(concat("not JSON: line ", line, ", column ", column, ": ", message.substr(0, 300),
                            position > text_.size() ? "; the text is cut off" : not_a_number(position)));
  }

 private:
  /// Python's json writes these words, which are no JSON, without being asked.
  std::string_view not_a_number(std::size_t position) const {
    const std::string_view rest = text_.substr(position == 0 ? 0 : position - 1);
    return rest.starts_with("NaN") || rest.starts_with("Infinity")
               ? "; NaN and Infinity, which Python writes, are no numbers of JSON"
               : "";
  }
  bool add(Json value) {
    place(std::move(value));
    return true;
  }
  bool enter(Json value) {
    if (open_.size() == limits_.depth) {
      throw InputError(concat("lists and objects stand more than ", limits_.depth, " deep in each other"));
    }
    open_.push_back(&place(std::move(value)));
    return true;
  }
  Json& place(Json&& value) {
    if (open_.empty()) return root_ = std::move(value);
    if (!open_.back()->is_array()) return *member_ = std::move(value);
    return open_.back()->emplace_back(std::move(value));
  }

  std::string_view text_;
  JsonLimits limits_;
  JsonKeep keep_;
  Json root_;
  std::vector<Json*> open_;  ///< the lists and objects entered
  Json* member_ = nullptr;   ///< the destination of the last key's value
};

}  // namespace detail

TAWPIPE_INLINE JsonDocument::JsonDocument(std::string_view text, std::string_view source, JsonLimits limits)
    : JsonDocument{text, source, limits, [](const nlohmann::json&) { return true; }} {}

TAWPIPE_INLINE JsonDocument::JsonDocument(std::string_view text, std::string_view source, JsonLimits limits, JsonKeep keep)
    : source_{source} {
  try {
    const std::string quoted = limits.python_words ? detail::with_quoted_words(text) : std::string{};
    const std::string_view read = without_byte_order_mark(limits.python_words ? std::string_view{quoted} : text);
    detail::JsonBuilder builder{read, limits, keep};
    nlohmann::json::sax_parse(read, &builder);
    json_ = builder.take();
  } catch (const InputError& error) {
    fail(json_, error.what());
  } catch (const nlohmann::json::exception& error) {
    fail(json_, error.what());
  }
}

TAWPIPE_INLINE void JsonDocument::fail(const nlohmann::json& value, std::string_view why) const {
  std::string path;
  detail::find_json_path(json_, &value, path);
  throw InputError(one_line(concat(source_, path.empty() ? "" : ": ", path, ": ", why)));
}

TAWPIPE_INLINE std::string JsonValue::shown() const {
  if (is_object()) return "an object";
  if (is_list()) return "a list";
  const std::string text = json_->dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return text.size() > 40 ? concat(text.substr(0, 40), "...") : text;
}

}  // namespace tawpipe
#endif
