// Reads Python's pickle as data: lists, dictionaries, texts, numbers. Nothing in it is ever
// executed.
// Not: pickles of objects or functions, which are refused.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
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
/// Values recalled from the memo are copies. Lists and dictionaries are filled after they are
/// memoized, so they are copied when they leave the stack; but only those that are ever recalled
/// (PyTorch's recorder shares the frames of a call stack).
class PickleReader {
 public:
  explicit PickleReader(std::string_view bytes) : bytes_{bytes} { find_recalled(); }

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
          gather(above_mark(op - 0x84));
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
          fail(concat("byte ", static_cast<int>(op), " is not an operation that data needs"));
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

  /// Walks over the operations and records which memo entries are recalled. An invalid operation
  /// ends the walk here, and read() when it gets there.
  void find_recalled() {
    try {
      while (at_ < bytes_.size()) {
        const auto op = static_cast<unsigned char>(take(1)[0]);
        std::optional<std::uint64_t> place;
        switch (op) {
          case 'h':
            place = number<std::uint8_t>();
            break;
          case 'j':
            place = number<std::uint32_t>();
            break;
          case 0x80:
          case 'K':
          case 'q':
            take(1);
            break;
          case 'M':
            take(2);
            break;
          case 'J':
          case 'r':
            take(4);
            break;
          case 'G':
          case 0x95:
            take(8);
            break;
          case 0x8a:
          case 0x8c:
          case 'U':
          case 'C':
            take(number<std::uint8_t>());
            break;
          case 'X':
          case 'T':
          case 'B':
            take(number<std::uint32_t>());
            break;
          case 0x8d:
            take(number<std::uint64_t>());
            break;
          default:
            break;
        }
        if (place && *place < bytes_.size()) {  // an entry takes at least one byte
          if (recalled_.size() <= *place) recalled_.resize(static_cast<std::size_t>(*place) + 1);
          recalled_[static_cast<std::size_t>(*place)] = true;
        }
      }
    } catch (const InputError&) {
      // read() reports where it ends
    }
    at_ = 0;
  }

  template <class Value>
  void push(Value&& value) {
    stack_.emplace_back(std::forward<Value>(value));
    place_.push_back(nowhere);
  }
  /// The value at this height leaves the stack, and is complete.
  void finish(std::size_t height) {
    if (place_[height] == nowhere) return;
    Memorized& kept = memo_[place_[height]];
    kept.value = stack_[height];
    kept.size = size_of(kept.value);
    kept.whole = true;
  }
  std::size_t size_of(const nlohmann::json& value, std::size_t depth = 0) const {
    if (depth > deepest) fail(concat("lists stand more than ", deepest, " deep in each other"));
    std::size_t size = 1;
    if (value.is_structured()) {
      for (const auto& one : value) size += size_of(one, depth + 1);
    }
    return size;
  }
  /// Where the last `count` values begin, which are above the last mark.
  std::size_t above_mark(std::size_t count) const {
    const std::size_t least = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() - least < count) fail("an operation lacks its value");
    return stack_.size() - count;
  }
  nlohmann::json pop() {
    finish(above_mark(1));
    nlohmann::json value = std::move(stack_.back());
    stack_.pop_back();
    place_.pop_back();
    return value;
  }
  std::size_t mark() {
    if (marks_.empty()) fail("an operation lacks its mark");
    const std::size_t from = marks_.back();
    marks_.pop_back();
    return from;
  }
  std::vector<nlohmann::json> cut(std::size_t from) {
    for (std::size_t height = from; height < stack_.size(); ++height) finish(height);
    std::vector<nlohmann::json> values(std::make_move_iterator(stack_.begin() + static_cast<std::ptrdiff_t>(from)),
                                       std::make_move_iterator(stack_.end()));
    stack_.resize(from);
    place_.resize(from);
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
    if (place == memo_.size()) memo_.emplace_back();
    if (place >= recalled_.size() || !recalled_[place]) return;
    if (stack_.back().is_structured()) {
      memo_[place].whole = false;
      place_.back() = place;
    } else {
      memo_[place] = {stack_.back(), 1, true};
    }
  }
  void recall(std::size_t place) {
    if (place >= memo_.size()) fail("the memo has no such value");
    const Memorized& kept = memo_[place];
    const auto still = kept.whole ? place_.end() : std::find(place_.begin(), place_.end(), place);
    if (still != place_.end()) {  // still on the stack: also complete, unless a mark above it shows that it is being filled
      const auto height = static_cast<std::size_t>(still - place_.begin());
      if (std::find(marks_.begin(), marks_.end(), height + 1) == marks_.end()) finish(height);
    }
    if (!kept.whole) fail("a list or dictionary holds itself, which data has no need of");
    copied_ += kept.size;
    if (copied_ > max_copied) fail(concat("what stands in several places has more than ", max_copied, " values"));
    push(kept.value);
  }

  struct Memorized {
    nlohmann::json value;
    std::size_t size = 0;
    bool whole = false;
  };

  static constexpr std::size_t deepest = 32;
  static constexpr std::size_t nowhere = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_copied = std::size_t{1} << 23;

  std::string_view bytes_;
  std::size_t at_ = 0;
  std::vector<nlohmann::json> stack_;
  std::vector<std::size_t> marks_;
  /// [height of stack_] memo index of a list or dictionary that is recalled later
  std::vector<std::size_t> place_;
  std::vector<Memorized> memo_;
  std::vector<bool> recalled_;  ///< [place]
  std::size_t copied_ = 0;      ///< values that were recalled
};

}  // namespace detail

/// Whether the bytes begin like a pickle of protocol 2 or later.
inline bool is_pickle(std::string_view bytes) { return bytes.size() > 1 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5; }

/// The value of a pickle that holds only data; tuples become lists, numeric keys become texts.
/// @throws InputError  naming the byte, for anything that is not data.
inline nlohmann::json parse_pickle(std::string_view bytes) { return detail::PickleReader{bytes}.read(); }

}  // namespace tawpipe
