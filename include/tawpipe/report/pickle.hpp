// Reads Python's pickle as data: lists, dictionaries, texts, numbers. Nothing in it is ever executed.
// Not: a pickle of objects or functions, which is refused.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// Pickle's machine with a stack, a memo and no imports. Protocols 2 to 5.
///
/// Lists and dictionaries are filled after they are memorized, so a value that the memo brings back is a copy of what it was
/// then: texts and numbers, which is what writers share, are whole.
class PickleReader {
 public:
  explicit PickleReader(std::string_view bytes) : bytes_{bytes} {}

  nlohmann::json read() {
    while (true) {
      const auto op = static_cast<unsigned char>(take(1)[0]);
      switch (op) {
        case 0x80:  // PROTO
          if (const int protocol = number<std::uint8_t>(); protocol < 2 || protocol > 5) {
            fail(concat("protocol ", protocol, " is not one of 2 to 5"));
          }
          break;
        case 0x95:  // FRAME
          take(8);
          break;
        case '.':  // STOP
          if (stack_.size() != 1 || !marks_.empty()) fail("it does not end with one value");
          return std::move(stack_[0]);
        case '(':
          if (marks_.size() == deepest) fail(concat("lists stand more than ", deepest, " deep in each other"));
          marks_.push_back(stack_.size());
          break;
        case '}':
          push(nlohmann::json::object());
          break;
        case ']':
        case ')':
          push(nlohmann::json::array());
          break;
        case 0x85:  // TUPLE1
        case 0x86:  // TUPLE2
        case 0x87:  // TUPLE3
          gather(stack_.size() - std::min<std::size_t>(stack_.size(), op - 0x84));
          break;
        case 't':
        case 'l':
          gather(mark());
          break;
        case 'a': {
          nlohmann::json value = pop();
          list().push_back(std::move(value));
          break;
        }
        case 'e': {
          const std::size_t from = mark();
          std::vector<nlohmann::json> values = cut(from);
          for (auto& value : values) list().push_back(std::move(value));
          break;
        }
        case 's': {
          nlohmann::json value = pop();
          const nlohmann::json key = pop();
          set(key, std::move(value));
          break;
        }
        case 'u': {
          std::vector<nlohmann::json> values = cut(mark());
          if (values.size() % 2 != 0) fail("a dictionary has a key without a value");
          for (std::size_t i = 0; i < values.size(); i += 2) set(values[i], std::move(values[i + 1]));
          break;
        }
        case 'N':
          push(nullptr);
          break;
        case 0x88:
          push(true);
          break;
        case 0x89:
          push(false);
          break;
        case 'K':
          push(number<std::uint8_t>());
          break;
        case 'M':
          push(number<std::uint16_t>());
          break;
        case 'J':
          push(static_cast<std::int32_t>(number<std::uint32_t>()));
          break;
        case 0x8a:
          push(long_number(number<std::uint8_t>()));
          break;
        case 'G':
          push(real());
          break;
        case 0x8c:  // SHORT_BINUNICODE
        case 'U':   // SHORT_BINSTRING
        case 'C':   // SHORT_BINBYTES
          push(std::string{take(number<std::uint8_t>())});
          break;
        case 'X':  // BINUNICODE
        case 'T':  // BINSTRING
        case 'B':  // BINBYTES
          push(std::string{take(number<std::uint32_t>())});
          break;
        case 0x8d:  // BINUNICODE8
          push(std::string{take(number<std::uint64_t>())});
          break;
        case 0x94:  // MEMOIZE
          memorize(memo_.size());
          break;
        case 'q':
          memorize(number<std::uint8_t>());
          break;
        case 'r':
          memorize(number<std::uint32_t>());
          break;
        case 'h':
          recall(number<std::uint8_t>());
          break;
        case 'j':
          recall(number<std::uint32_t>());
          break;
        case 'c':   // GLOBAL
        case 0x93:  // STACK_GLOBAL
        case 'R':   // REDUCE
        case 'b':   // BUILD
        case 'i':   // INST
        case 'o':   // OBJ
        case 0x81:  // NEWOBJ
        case 0x92:  // NEWOBJ_EX
          fail("it holds a function or an object, which data has none of; nothing of it was executed");
        default:
          fail(concat("byte ", static_cast<int>(op), " is no operation that data needs"));
      }
    }
  }

 private:
  [[noreturn]] void fail(std::string_view why) const { throw InputError(concat("pickle, byte ", at_, ": ", why)); }

  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - at_) fail("it ends too early");
    const std::string_view taken = bytes_.substr(at_, static_cast<std::size_t>(count));
    at_ += static_cast<std::size_t>(count);
    return taken;
  }
  /// Little-endian.
  template <class Number>
  Number number() {
    const std::string_view bytes = take(sizeof(Number));
    std::uint64_t value = 0;
    for (std::size_t i = sizeof(Number); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
    return static_cast<Number>(value);
  }
  std::int64_t long_number(std::size_t size) {
    if (size > 8) fail("a number has more than 64 bits");
    const std::string_view bytes = take(size);
    std::uint64_t value = size > 0 && static_cast<unsigned char>(bytes[size - 1]) >= 0x80 ? ~std::uint64_t{0} : 0;
    for (std::size_t i = size; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
    return static_cast<std::int64_t>(value);
  }
  double real() {
    std::uint64_t bits = 0;
    for (const char byte : take(8)) bits = bits << 8 | static_cast<unsigned char>(byte);
    return std::bit_cast<double>(bits);
  }

  template <class Value>
  void push(Value&& value) {
    stack_.emplace_back(std::forward<Value>(value));
  }
  nlohmann::json pop() {
    const std::size_t least = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() <= least) fail("an operation lacks its value");
    nlohmann::json value = std::move(stack_.back());
    stack_.pop_back();
    return value;
  }
  std::size_t mark() {
    if (marks_.empty()) fail("an operation lacks its mark");
    const std::size_t from = marks_.back();
    marks_.pop_back();
    return from;
  }
  std::vector<nlohmann::json> cut(std::size_t from) {
    std::vector<nlohmann::json> values(std::make_move_iterator(stack_.begin() + static_cast<std::ptrdiff_t>(from)),
                                       std::make_move_iterator(stack_.end()));
    stack_.resize(from);
    return values;
  }
  void gather(std::size_t from) {
    nlohmann::json list = nlohmann::json::array();
    for (auto& value : cut(from)) list.push_back(std::move(value));
    push(std::move(list));
  }
  nlohmann::json& list() {
    if (stack_.empty() || !stack_.back().is_array()) fail("it appends to what is not a list");
    return stack_.back();
  }
  void set(const nlohmann::json& key, nlohmann::json value) {
    if (stack_.empty() || !stack_.back().is_object()) fail("it sets a key of what is not a dictionary");
    const bool whole = key.is_number_integer();
    if (!key.is_string() && !whole) fail("a key is neither a text nor a whole number");
    stack_.back()[whole ? key.dump() : key.get<std::string>()] = std::move(value);
  }
  void memorize(std::size_t place) {
    if (stack_.empty()) fail("there is nothing to memorize");
    if (place > memo_.size()) fail("the memo is not filled in order");
    const nlohmann::json& top = stack_.back();
    // What is filled later is not shared by those who write such data: only its place is kept.
    nlohmann::json kept = top.is_structured() ? nlohmann::json(nlohmann::json::value_t::discarded) : top;
    if (place == memo_.size()) {
      memo_.push_back(std::move(kept));
    } else {
      memo_[place] = std::move(kept);
    }
  }
  void recall(std::size_t place) {
    if (place >= memo_.size()) fail("the memo has no such value");
    if (memo_[place].is_discarded()) fail("a list or dictionary stands in two places, which data has no need of");
    push(memo_[place]);
  }

  static constexpr std::size_t deepest = 32;

  std::string_view bytes_;
  std::size_t at_ = 0;
  std::vector<nlohmann::json> stack_;
  std::vector<std::size_t> marks_;
  std::vector<nlohmann::json> memo_;
};

}  // namespace detail

/// Whether the bytes begin as a pickle of protocol 2 or later does.
inline bool is_pickle(std::string_view bytes) { return bytes.size() > 1 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5; }

/// The value of a pickle that holds data only; tuples become lists, numbers as keys texts.
/// @throws InputError  naming the byte, for whatever is not data.
inline nlohmann::json parse_pickle(std::string_view bytes) { return detail::PickleReader{bytes}.read(); }

}  // namespace tawpipe
