// `tawpipe doctor`: why a job hangs, from the flight recorder's dumps of its ranks.
#include <nlohmann/json.hpp>
#include <optional>

#include "../report_file.hpp"
#include "../terminal_text.hpp"
#include "instruments.hpp"
#include "output.hpp"
#include "tawpipe/report/flight_recorder.hpp"
#include "tawpipe/report/flight_report.hpp"
#include "tawpipe/verify/diagnose.hpp"

namespace tawpipe::sim {

int run_doctor(const DoctorRequest& request) {
  check_outputs({{"--json", request.json}, {"--report", request.report}});
  std::optional<OutputFile> file;
  if (!request.json.empty()) file.emplace(request.json);
  ReportFile report{request.report};
  FlightRecorderReader reader;
  const auto files = dump_files(request.dumps);
  for (const auto& [rank, path] : files) reader.add(rank, read_text(path, "dump"), one_line(path));
  const FlightDiagnosis found = diagnose(reader.take());
  const auto json = to_json(found, files.size());
  if (file) {
    (*file)(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
    file->finish();
  }
  if (report) {
    report.write({.command = "doctor",
                  .title = "What keeps the job from going on",
                  .problem = concat(files.size(), " dumps of the flight recorder"),
                  .answer = json});
  }
  if (!any_standard_output({{"--json", request.json}, {"--report", request.report}})) print(diagnosis_text(found, files.size()));
  return found.verdict == FlightVerdict::ends ? ok : findings;
}

}  // namespace tawpipe::sim
