// Writes the pages of all commands.
#include "report_file.hpp"

#include "tawpipe/report/html_report.hpp"

namespace tawpipe::sim {

void ReportFile::write(ReportPage page) {
  page.invocation = command_line;
  write_html_report(page, [&](std::string_view text) { (*file_)(text); });
  file_->finish();
}

}  // namespace tawpipe::sim
