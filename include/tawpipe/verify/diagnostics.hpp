// All findings of a validator as a value, each with a stable code, its task and rank.
// Not: exceptions for input that cannot be used at all (core/error.hpp), nor the checks
// (verify/validate.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/ids.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::inline v0 {

enum class Severity : std::uint8_t {
  error,    ///< the schedule would hang, crash or train something else
  warning,  ///< it may run, but not everywhere or not as intended
};

/// "error" or "warning".
constexpr std::string_view name(Severity severity) { return severity == Severity::error ? "error" : "warning"; }

/// One finding. `docs/validation.md` lists all codes.
struct Finding {
  Severity severity = Severity::error;
  std::string_view code;  ///< e.g. "V101"; must outlive the finding, as a literal does
  TaskId task = none<TaskId>;
  Rank rank = none<Rank>;
  std::string message;  ///< one line that describes the task
  std::string help;     ///< how to fix it
};

/// All findings about one schedule. The first few of each code are kept; all are counted.
class Diagnostics {
 public:
  /// @param keep  how many findings of one code are kept
  explicit Diagnostics(std::size_t keep = 100) : keep_{keep} {}

  /// No errors; there may be warnings.
  bool ok() const { return errors_ == 0; }
  std::size_t errors() const { return errors_; }
  std::size_t warnings() const { return warnings_; }
  /// The findings kept, in the order of the checks.
  std::span<const Finding> findings() const { return findings_; }
  /// The number of findings with a code, kept or not.
  std::size_t count(std::string_view code) const {
    for (const auto& [known, count] : counts_) {
      if (known == code) return count;
    }
    return 0;
  }
  bool has(std::string_view code) const { return count(code) > 0; }

  void add(Finding finding) {
    if (!counts_one_more(finding.severity, finding.code)) return;
    findings_.push_back(std::move(finding));
  }
  /// Adds a finding whose message is built only if it is kept. @param message  called without
  /// arguments
  template <class Message>
  void add(Severity severity, std::string_view code, TaskId task, Rank rank, Message&& message, std::string_view help) {
    if (!counts_one_more(severity, code)) return;
    findings_.push_back({severity, code, task, rank, message(), std::string{help}});
  }
  template <class Message>
  void error(std::string_view code, TaskId task, Rank rank, Message&& message, std::string_view help) {
    add(Severity::error, code, task, rank, message, help);
  }

  /// One paragraph a finding, at most `per_code` of each code, and the number of further ones.
  std::string text(std::size_t per_code = 5) const {
    std::string out;
    for (const auto& [code, count] : counts_) {
      std::size_t shown = 0;
      for (const Finding& finding : findings_) {
        if (finding.code != code || shown == per_code) continue;
        ++shown;
        out += concat(name(finding.severity), " ", finding.code, ": ", finding.message, "\n");
        if (!finding.help.empty()) out += concat("  help: ", finding.help, "\n");
      }
      if (count > shown) out += concat("  and ", count - shown, " more of ", code, "\n");
    }
    return out + summary() + "\n";
  }
  /// "no findings", or the number of errors and warnings.
  std::string summary() const {
    if (errors_ + warnings_ == 0) return "no findings";
    return concat(errors_, errors_ == 1 ? " error, " : " errors, ", warnings_, warnings_ == 1 ? " warning" : " warnings");
  }

 private:
  /// Counts a finding, and returns whether to keep it.
  bool counts_one_more(Severity severity, std::string_view code) {
    ++(severity == Severity::error ? errors_ : warnings_);
    for (auto& [known, count] : counts_) {
      if (known == code) return ++count <= keep_;
    }
    counts_.emplace_back(code, 1);
    return keep_ > 0;
  }

  std::size_t keep_;
  std::size_t errors_ = 0;
  std::size_t warnings_ = 0;
  std::vector<Finding> findings_;
  std::vector<std::pair<std::string_view, std::size_t>> counts_;
};

}  // namespace tawpipe
