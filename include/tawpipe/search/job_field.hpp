// What a field of a job is: its flag, its values, what they become.
// Not: the fields (search/job_fields.hpp).
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/search/problem.hpp"

namespace tawpipe::inline v0 {

struct JobField;

/// How a field's text becomes a value of the problem, and how that is printed.
struct FieldValue {
  std::vector<std::string> words = {};  ///< the values, as far as they can be listed
  std::string_view what = {};           ///< the value in words, for messages
  /// Null: what it says depends on other fields or on files (answers/job_question.hpp). @pre the problem has a model, if of_model
  /// @throws InputError  naming the field, or what is not known
  void (*read)(const JobField& field, const std::string& text, Problem& problem) = nullptr;
  /// Null: as it was given.
  std::string (*print)(const JobField& field, const Problem& problem) = nullptr;
  bool of_model = false;
};

enum class FieldKind : std::uint8_t {
  text,
  count,     ///< a whole number, from `least` to `most`
  tokens,    ///< the same, "8k" too
  fraction,  ///< above 0, at most 1
  number,    ///< any
  flag,      ///< on if it is there
};

/// What a field is about.
enum FieldTraits : std::uint8_t {
  of_plan = 1,       ///< how the work is laid out: a bound does not depend on it
  of_framework = 2,  ///< a framework's settings say it, and its best value is known
  of_experts = 4,    ///< of devices that have whole experts
  of_noise = 8,      ///< that an ideal prediction leaves out
  of_run = 16,       ///< of a whole training run: no step depends on it
};

struct JobField {
  /// Of the flag and its key in files and sweeps: "expert-dispatch". Python has '_' for '-'.
  std::string_view name = {};
  std::string_view group = {};  ///< of flags in help
  std::string_view type = {};   ///< its values in help, "on|off"
  std::string meaning = {};     ///< "{}" stands for the default
  FieldKind kind = FieldKind::text;
  std::string_view standard = {};  ///< the text that says the same as nothing; "": that depends
  FieldValue value = {};
  std::string_view aliases = {};   ///< other tools' names for the same, with spaces between
  std::string_view searched = {};  ///< the default of `plan`, which searches it, in words
  int traits = 0;                  ///< FieldTraits
  std::string_view json = {};      ///< its key in a plan's JSON; "": it is not there
  /// A value that may be faster than the standard, and what it is in words.
  std::pair<std::string_view, std::string_view> tried = {};
  std::uint64_t least = 1;
  std::uint64_t most = std::numeric_limits<std::int64_t>::max();

  bool is(FieldTraits trait) const { return (traits & trait) != 0; }
};

/// Whether the text is the first of two words. @throws InputError  naming the flag, if it is neither.
inline bool one_of_two(std::string_view flag, const std::string& text, std::string_view yes, std::string_view no) {
  if (text == yes) return true;
  if (text == no) return false;
  throw InputError(concat(flag, " ", quote(text), " must be ", yes, " or ", no));
}

/// Sets a model's dtype, in place of what was assumed of the one in which a file's weights are stored.
inline void set_dtype(Transformer& model, Dtype dtype) {
  model.dtype = dtype;
  std::erase_if(model.notes,
                [](const std::string& note) { return note.starts_with("torch_dtype: ") || note.starts_with("dtype: "); });
}

/// @param what  names the value in messages @throws InputError  for a number that is none, or out of range
inline void check_number(const JobField& field, const std::string& text, std::string_view what) {
  if (field.kind == FieldKind::fraction) parse_fraction(text, what);
  if (field.kind == FieldKind::count || field.kind == FieldKind::tokens)
    parse_whole<std::uint64_t>(text, what, field.least, field.most);
  if (field.kind == FieldKind::number && !to_number<double>(text))
    throw InputError(concat(what, " must be a number, not ", quote(text)));
}

}  // namespace tawpipe
