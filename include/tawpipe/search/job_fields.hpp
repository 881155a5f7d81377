// The fields of a job, a row each, from which flags and their help, configuration files, completion, Python's
// arguments, sweeps and printed commands follow; and a job as the texts of its fields.
// Not: what a row is (search/job_field.hpp), the rows (search/detail/job_rows.hpp), nor the job as values
// (search/problem.hpp).
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
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/search/job_field.hpp"
#include "tawpipe/search/problem.hpp"

namespace tawpipe::inline v0 {

/// Every field, in the order of printed commands.
TAWPIPE_INLINE const std::vector<JobField>& job_fields();

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

/// Sets what one field says. @pre it has a value that is read (FieldValue::read) @throws InputError  as that does
inline void set_job_field(Problem& problem, std::string_view name, const std::string& text) {
  job_field(name).value.read(job_field(name), text, problem);
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
  /// what holds anyway and what is of a whole run.
  std::vector<std::pair<std::string, std::string>> flags() const {
    std::vector<std::pair<std::string, std::string>> all;
    for (const JobField& field : job_fields()) {
      const Text* const found = find(field.name);
      if (found == nullptr || found->first == field.standard || field.is(of_run)) continue;
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
#include "tawpipe/search/detail/run_rows.hpp"

namespace tawpipe::inline v0 {

TAWPIPE_INLINE const std::vector<JobField>& job_fields() {
  static const std::vector<JobField> fields = [] {
    std::vector<JobField> all = detail::make_job_fields();
    for (JobField& field : detail::run_fields()) all.push_back(std::move(field));
    return all;
  }();
  return fields;
}

}  // namespace tawpipe
#endif
