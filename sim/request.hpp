// Shared by the commands: what is asked, as text, and its resolved values.
// Not: the parsing of the command line (main.cpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "output_file.hpp"
#include "schedules.hpp"
#include "tawpipe/answers/job_question.hpp"
#include "tawpipe/answers/read_text.hpp"
#include "tawpipe/answers/run_given.hpp"
#include "tawpipe/search/fwd.hpp"
#include "tawpipe/search/what_fits.hpp"

namespace tawpipe::sim {

using namespace answers;

/// Exit codes of the command.
enum Exit : int { ok = 0, findings = 1, bad_input = 2, failure = 3 };

/// What a command was asked: a job, and what is written of the answer.
struct Request : JobQuestion {
  std::string schedule_file;           ///< a schedule file, instead of `schedule`
  std::string comm_groups;             ///< the process groups of a schedule file that is a Chakra trace
  std::string json;                    ///< a file, or "-" for standard output
  std::string timeline;                ///< a file
  std::string trace;                   ///< a file
  std::string report;                  ///< a file
  std::string gantt;                   ///< a file
  std::vector<std::string> arguments;  ///< of the command line, with those of a --config FILE
};

/// The best of the problem's schedules, among those that the library ships; compiled once for all
/// commands. @param hopeless  null: nobody is told
Prediction predict(const Problem& problem, const HopelessSchedule* hopeless = nullptr);
/// The best choice of what the problem and `choice` leave open (search/choose.hpp), also compiled
/// once.
Chosen choose(const Problem& problem, const ScheduleChoice& choice);
/// A layout that fits if none of the problem's schedules does (search/what_fits.hpp).
std::optional<FittingLayout> find_fitting_layout(const Problem& problem);

int run_list(const std::string& what, const std::string& json);
int run_simulate(const Request& request);
int run_compare(const Request& request, const std::vector<std::string>& schedules, bool baselines);
int run_topology_show(const std::string& cluster, const std::string& device, const std::string& inter_node,
                      const std::string& json);

struct ImportRequest {
  std::string file;
  std::string cluster;  ///< --cluster with the nodes below Slurm's tree
  std::string uplink;   ///< --uplink of its switches; "": as much as the nodes below send
  std::string device;   ///< --device
  std::string json;     ///< --json FILE|-
  int nodes = 0;        ///< --nodes; 0: one, or as the file says
  int nvlinks = 0;      ///< --nvlinks of each GPU; 0: as the file says
};
int run_topology_import(const ImportRequest& request);

}  // namespace tawpipe::sim
