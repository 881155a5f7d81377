// Wraps lines for a terminal.
#include "terminal_text.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "output_file.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/report/formatters.hpp"

namespace tawpipe::sim {

namespace {

constexpr std::size_t help_column = 34;

std::size_t indentation(std::string_view line) { return std::min(line.find_first_not_of(' '), line.size()); }

/// Removes and returns the text's first line.
std::string_view take_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  return line;
}

/// The text without colour sequences.
std::string uncoloured(std::string_view line) {
  std::string plain;
  for (std::size_t at = 0; at < line.size(); ++at) {
    if (line[at] == '\x1b')
      at = line.find('m', at);
    else
      plain += line[at];
    if (at == std::string_view::npos) break;
  }
  return plain;
}

/// A command's line: broken before flags, with a backslash.
void add_command(std::string& out, std::string_view line, int width) {
  const std::string indent(indentation(line), ' ');
  std::string now = indent;
  std::string_view rest = line.substr(indent.size());
  bool first = true;
  while (!rest.empty()) {
    // A part is a flag with its values, or the text before the first.
    const std::size_t end = std::min(rest.find(" --", 1), rest.size());
    const std::string_view part = rest.substr(0, end);
    if (!first && display_width(now) + display_width(part) + 2 > width) {
      out += now + " \\\n";
      now = indent + " ";
    }
    now += part;
    rest.remove_prefix(end);
    first = false;
  }
  out += now + "\n";
}

/// A line in parts that fit. Text in columns, "cluster  a800: 3 nodes", continues under its last
/// one.
std::vector<std::string> broken(std::string_view line, int width) {
  std::size_t hang = indentation(line);
  if (const std::size_t gap = line.find("  ", hang); gap != std::string_view::npos) {
    const std::size_t column = std::min(line.find_first_not_of(' ', gap), line.size());
    if (column < static_cast<std::size_t>(width) / 2 && line.find("  ", column) == std::string_view::npos) hang = column;
  }
  std::vector<std::string> parts = wrapped(line.substr(hang), width - static_cast<int>(hang));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parts[i].insert(0, i == 0 ? std::string{line.substr(0, hang)} : std::string(hang, ' '));
  }
  return parts;
}

}  // namespace

int terminal_width() {
  const char* const given = std::getenv("COLUMNS");
  const int columns = to_number<int>(given == nullptr ? "" : given).value_or(0);
  if (columns >= 40) return columns;
  winsize size{};
  if (isatty(STDOUT_FILENO) == 1 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;  // what files and logs are read in
}

std::string fit(std::string_view text, int width) {
  if (width <= 0) return std::string{text};
  std::string out;
  while (!text.empty()) {
    std::string line{take_line(text)};
    if (trimmed(line).starts_with("tawpipe ")) {
      while (line.ends_with(" \\")) line = concat(line.substr(0, line.size() - 1), trimmed(take_line(text)));
      add_command(out, line, width);
    } else if (display_width(uncoloured(line)) <= width) {
      out += concat(line, "\n");
    } else {
      for (const std::string& part : broken(line, width)) out += concat(part, "\n");
    }
  }
  return out;
}

std::string help_text(std::string_view text, int width) {
  const std::string margin(help_column, ' ');
  std::string out;
  std::string flag;         // the text before a description
  std::string description;  // so far
  const auto flush = [&] {
    if (flag.empty()) return;
    std::vector<std::string> parts;
    for (const std::string_view line : split(description, '\n')) {
      // A line that is indented or ends a sentence's list stays a separate line.
      const bool own = line.starts_with(' ') || parts.empty() || parts.back().starts_with(' ');
      if (own)
        parts.emplace_back(line);
      else
        parts.back() += concat(" ", line);
    }
    bool first = true;
    for (const std::string& part : parts) {
      for (const std::string& line : broken(part, width - static_cast<int>(help_column))) {
        out += concat(first ? flag : margin, line, "\n");
        first = false;
      }
    }
    if (first) out += flag.substr(0, flag.find_last_not_of(' ') + 1) + "\n";
    flag.clear();
    description.clear();
  };
  while (!text.empty()) {
    if (text.starts_with("Example:\n") || text.starts_with("Examples:\n")) break;
    const std::string_view line = take_line(text);
    if (!flag.empty() && line.starts_with(margin)) {
      description += concat(description.empty() ? "" : "\n", line.substr(help_column));
    } else if (line.starts_with("  ") && !line.starts_with("   ")) {
      flush();
      const bool beside = line.size() > help_column && line[help_column - 1] == ' ';
      flag = beside ? std::string{line.substr(0, help_column)} : concat(line, "\n", margin);
      if (beside) description = line.substr(help_column);
    } else {
      flush();
      if (line.starts_with("Usage:") && !out.ends_with("\n\n")) out += '\n';
      if (!line.empty() || !out.ends_with("\n\n")) out += fit(concat(line, "\n"), width);
    }
  }
  flush();
  return out + fit(text, width);
}

void print(std::string_view text) { write_output("-", fit(text, terminal_width())); }

}  // namespace tawpipe::sim
