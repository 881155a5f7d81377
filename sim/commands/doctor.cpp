// `tawpipe doctor`: what keeps a job from going on, from the flight recorder's dumps of its ranks.
#include <nlohmann/json.hpp>
#include <optional>

#include "instruments.hpp"
#include "output.hpp"
#include "tawpipe/report/flight_recorder.hpp"
#include "tawpipe/report/flight_report.hpp"

namespace tawpipe::sim {

int run_doctor(const DoctorRequest& request) {
  std::optional<OutputFile> file;
  if (!request.json.empty()) file.emplace(request.json);
  FlightRecorderReader reader;
  const auto files = dump_files(request.dumps);
  for (const auto& [rank, path] : files) reader.add(rank, read_text(path, "dump"), one_line(path));
  const FlightDiagnosis found = diagnose(reader.take());
  if (file) {
    (*file)(to_json(found, files.size()).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
    file->finish();
  }
  if (request.json != "-") write_output("-", diagnosis_text(found, files.size()));
  return found.verdict == FlightVerdict::ends ? ok : findings;
}

}  // namespace tawpipe::sim
