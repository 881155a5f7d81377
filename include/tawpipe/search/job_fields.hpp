// The fields of a job, a row each, from which flags and their help, configuration files, completion, Python's
// arguments, sweeps and printed commands follow; and a job as the texts of its fields.
// Not: the rows (search/detail/job_rows.hpp), nor the job as values (search/problem.hpp).
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/core/config.hpp"
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
  /// Null: what it says depends on other fields or on files (sim/request.cpp). @pre the problem has a model, if of_model
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

struct JobField {
  /// Of the flag and its key in files and sweeps: "expert-dispatch". Python has '_' for '-'.
  std::string_view name = {};
  std::string_view group = {};  ///< of flags in help
  std::string_view type = {};   ///< its values in help, "on|off"
  std::string meaning = {};     ///< "{}" stands for a default of the command
  FieldKind kind = FieldKind::text;
  std::string_view standard = {};  ///< the text that says the same as nothing; "": that depends
  FieldValue value = {};
  std::string_view aliases = {};   ///< other tools' names for the same, with spaces between
  std::string_view searched = {};  ///< its meaning for `plan`, which searches it unless it is given
  bool bounds = true;              ///< `bound` depends on it
  bool of_framework = false;       ///< a framework's settings say it, and its best value is known
  std::uint64_t least = 1;
  std::uint64_t most = std::numeric_limits<std::int64_t>::max();
};

/// Every field, in the order of printed commands.
TAWPIPE_INLINE const std::vector<JobField>& job_fields();

/// Whether the text is the first of two words. @throws InputError  naming the flag, if it is neither.
inline bool one_of_two(std::string_view flag, const std::string& text, std::string_view yes, std::string_view no) {
  if (text == yes) return true;
  if (text == no) return false;
  throw InputError(concat(flag, " ", quote(text), " must be ", yes, " or ", no));
}

/// "8k" as "8192", "4M" as "4194304"; any other text as it is.
inline std::string plain_tokens(const std::string& text) {
  if (text.size() < 2 || text.find_first_not_of("0123456789") != text.size() - 1) return text;
  const std::int64_t unit = text.back() == 'k' || text.back() == 'K'   ? 1 << 10
                            : text.back() == 'M' || text.back() == 'm' ? 1 << 20
                                                                       : 0;
  const std::int64_t most = std::numeric_limits<std::int64_t>::max() >> 20;
  const std::int64_t count = to_number<std::int64_t>(text.substr(0, text.size() - 1)).value_or(most + 1);
  return unit == 0 || count > most ? text : std::to_string(count * unit);
}

/// The field of a name, also another tool's; null if there is none. Python's '_' is '-'.
inline const JobField* find_job_field(std::string name) {
  for (char& c : name) c = c == '_' ? '-' : c;
  for (const JobField& field : job_fields()) {
    if (field.name == name) return &field;
  }
  for (const JobField& field : job_fields()) {
    for (const std::string_view alias : split(field.aliases, ' ')) {
      if (!alias.empty() && alias == name) return &field;
    }
  }
  return nullptr;
}
/// @pre it exists
inline const JobField& job_field(std::string_view name) {
  const JobField* const field = find_job_field(std::string{name});
  TAWPIPE_ASSERT(field != nullptr, "job_field(): no field of a job has this name");
  return *field;
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

/// A job as it was asked for: the texts of its fields. Those that are not set are as their rows or commands have them.
class JobTexts {
 public:
  bool has(std::string_view name) const { return find(name) != nullptr; }
  /// Whether a user set it, not a file or a search.
  bool is_given(std::string_view name) const { return has(name) && find(name)->second; }
  /// Its text, or its row's standard.
  std::string text(std::string_view name) const {
    const Text* const found = find(name);
    return found != nullptr ? found->first : std::string{job_field(name).standard};
  }
  /// Of a field of whole numbers; 0 where it is not set.
  std::int64_t count(std::string_view name) const { return has(name) ? to_number<std::int64_t>(text(name)).value_or(0) : 0; }
  /// Sets a field, or takes it back with "".
  void set(std::string_view name, std::string text, bool given = true) {
    const JobField& field = job_field(name);
    if (field.kind == FieldKind::tokens) text = plain_tokens(text);
    if (field.kind == FieldKind::flag && text == "off") text.clear();
    if (text.empty()) {
      texts_.erase(field.name);
    } else {
      texts_.insert_or_assign(field.name, Text{std::move(text), given});
    }
  }
  void take_back(std::string_view name) { set(name, ""); }

  /// Flags and values that say the job: {"--sequence", "4096"}, a flag alone with "". In the order of the rows, without
  /// what holds anyway.
  std::vector<std::pair<std::string, std::string>> flags() const {
    std::vector<std::pair<std::string, std::string>> all;
    for (const JobField& field : job_fields()) {
      const Text* const found = find(field.name);
      if (found == nullptr || found->first == field.standard) continue;
      all.emplace_back(concat("--", field.name), field.kind == FieldKind::flag ? std::string{} : found->first);
    }
    return all;
  }

  /// Sets what its fields say, of the model or of the rest. @throws InputError  naming the field
  void read(Problem& problem, bool of_model) const {
    for (const JobField& field : job_fields()) {
      const Text* const found = find(field.name);
      if (found == nullptr || field.value.read == nullptr || field.value.of_model != of_model) continue;
      field.value.read(field, found->first, problem);
    }
  }

 private:
  using Text = std::pair<std::string, bool>;

  const Text* find(std::string_view name) const {
    const auto found = texts_.find(name);
    return found != texts_.end() ? &found->second : nullptr;
  }

  std::map<std::string_view, Text> texts_;
};

}  // namespace tawpipe

#if TAWPIPE_BODIES
#include "tawpipe/search/detail/job_rows.hpp"
#endif
