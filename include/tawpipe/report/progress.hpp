// The progress of a long task: one line on a terminal, redrawn in place, or in a log a line now and
// then.
// Not: the choice of these (the caller knows whether stderr is a terminal), nor thread-safe.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "tawpipe/report/formatters.hpp"

namespace tawpipe::inline v0 {

struct ProgressOptions {
  std::string label;
  std::int64_t total = 0;  ///< total steps; 0: unknown, so only the count is shown
  bool enabled = false;    ///< false: nothing is ever written. Set it if stderr is a terminal
  /// steps from one drawing to the next; 0: a hundredth of `total`, at least 1
  std::int64_t every = 0;
  /// not enabled: a line of its own each time that so many seconds are over; 0: none
  double seconds_a_line = 0;
  std::chrono::steady_clock::time_point (*clock)() = std::chrono::steady_clock::now;
  int max_width = 80;  ///< columns of the terminal; a longer line could not be overwritten
  Glyphs glyphs = Glyphs::unicode;
};

/// Writes to stderr at once.
struct StandardError {
  void operator()(std::string_view text) const {
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
  }
};

/// A progress line; on a terminal it vanishes with the object. Drawn at most every `every` steps, so a step costs
/// one comparison.
///
/// Example:
/// ```cpp
/// tawpipe::Progress progress{{.label = "plans", .total = 5000, .enabled = isatty(2) != 0}};
/// for (const auto& plan : plans) {
///   evaluate(plan);
///   progress.advance();  // plans  ████▌       45%  2,250/5,000
/// }
/// ```
template <std::invocable<std::string_view> Sink = StandardError>
class Progress {
 public:
  explicit Progress(ProgressOptions options, Sink sink = {}) : options_{std::move(options)}, sink_{std::move(sink)} {
    if (options_.every <= 0) options_.every = std::max<std::int64_t>(1, options_.total / 100);
    options_.label = detail::printable(options_.label);
    if (options_.enabled) draw();
    if (logs()) line_at_ = next_line();
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { finish(); }

  /// Reports that `steps` more are done.
  void advance(std::int64_t steps = 1) {
    done_ += steps;
    if (options_.enabled && done_ >= next_) draw();
    if (logs() && options_.clock() >= line_at_) log();
  }

  /// Shows `text` at the end of the line from now on: the best so far, say.
  void note(std::string_view text) {
    std::string shown = detail::printable(text);
    if (shown == note_) return;
    note_ = std::move(shown);
    if (options_.enabled) draw();
  }

  /// Clears the line; later steps draw nothing. For a message to stderr in between, or the end of
  /// the work.
  void finish() {
    if (drawn_ > 0) sink_(fmt::format("\r{:{}}\r", "", drawn_));
    drawn_ = 0;
    options_.enabled = false;
    options_.seconds_a_line = 0;
  }

  std::int64_t done() const { return done_; }

 private:
  bool logs() const { return !options_.enabled && options_.seconds_a_line > 0; }
  std::chrono::steady_clock::time_point next_line() const {
    return options_.clock() + std::chrono::milliseconds{std::llround(options_.seconds_a_line * 1000)};
  }
  void log() {
    line_at_ = next_line();
    std::string line = fmt::format("{}: {}", options_.label, format_count(done_));
    if (options_.total > 0) {
      const double fraction = static_cast<double>(done_) / static_cast<double>(options_.total);
      line += fmt::format(" of {}, {}", format_count(options_.total), format_percent(fraction, 0));
    }
    sink_(line + (note_.empty() ? "" : ", " + note_) + "\n");
  }

  void draw() {
    next_ = done_ + options_.every;
    std::string line = truncated(note_.empty() ? text() : text() + "  " + note_, options_.max_width - 1,
                                 options_.glyphs);  // the last column would wrap
    const int width = display_width(line);
    if (width < drawn_) line.append(static_cast<std::size_t>(drawn_ - width), ' ');
    drawn_ = width;
    sink_("\r" + line);
  }

  std::string text() const {
    if (options_.total <= 0) return fmt::format("{}  {}", options_.label, format_count(done_));
    const double fraction = static_cast<double>(done_) / static_cast<double>(options_.total);
    return fmt::format("{}  {}  {:>4}  {}/{}", options_.label, bar(fraction, 10, options_.glyphs), format_percent(fraction, 0),
                       format_count(done_), format_count(options_.total));
  }

  ProgressOptions options_;
  Sink sink_;
  std::int64_t done_ = 0;
  std::int64_t next_ = 0;
  std::chrono::steady_clock::time_point line_at_{};
  std::string note_;
  int drawn_ = 0;  ///< columns of the line on the terminal
};

}  // namespace tawpipe
