// --report FILE.html of all commands, compiled once.
// Not: the contents of a page (tawpipe/report/report_page.hpp).
#pragma once

#include <optional>
#include <string>

#include "output_file.hpp"
#include "tawpipe/report/report_page.hpp"

namespace tawpipe::sim {

/// The command as a shell takes it, for its pages: main() sets it.
inline std::string command_line;

/// The page of a command, opened before the work so that an unwritable path is detected early.
class ReportFile {
 public:
  /// @param path  "": none
  explicit ReportFile(const std::string& path) {
    if (!path.empty()) file_.emplace(path);
  }
  explicit operator bool() const { return file_.has_value(); }
  /// @pre *this. @throws InputError  as write_html_report()
  void write(ReportPage page);

 private:
  std::optional<OutputFile> file_;
};

}  // namespace tawpipe::sim
