// Writes the pages of all commands.
#include "report_file.hpp"

#include <array>
#include <cstdlib>
#include <ctime>

#include "tawpipe/report/html_report.hpp"

namespace tawpipe::sim {

namespace {

/// "2026-03-01", in UTC; that of SOURCE_DATE_EPOCH where it is set, so that a build of documents can be repeated.
std::string date() {
  const char* const fixed = std::getenv("SOURCE_DATE_EPOCH");
  const std::time_t now = fixed != nullptr ? static_cast<std::time_t>(std::strtoll(fixed, nullptr, 10)) : std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d", &parts)};
}

}  // namespace

void ReportFile::write(ReportPage page) {
  page.date = date();
  page.invocation = command_line;
  write_html_report(page, [&](std::string_view text) { (*file_)(text); });
  file_->finish();
}

}  // namespace tawpipe::sim
