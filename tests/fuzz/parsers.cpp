// Each parser of foreign text under libFuzzer: what it takes is used, what it refuses is refused by
// an Error of ours. The environment's TAWPIPE_FUZZ names the parser. Seeds: tests/data and corpus/,
// by tests/fuzz/run.
// Not: the command line; files that can only be read through a path are written to a scratch file
// first.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>

#include "tawpipe/core/csv.hpp"
#include "tawpipe/core/parse_units.hpp"
#include "tawpipe/frameworks/yaml_job.hpp"
#include "tawpipe/model/huggingface_config.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/model/stage_cut.hpp"
#include "tawpipe/replay/straggler_csv.hpp"
#include "tawpipe/replay/what_if.hpp"
#include "tawpipe/report/comm_program_json.hpp"
#include "tawpipe/report/flight_recorder.hpp"
#include "tawpipe/report/flight_report.hpp"
#include "tawpipe/report/held_speeds.hpp"
#include "tawpipe/report/kineto_run.hpp"
#include "tawpipe/report/kineto_trace.hpp"
#include "tawpipe/report/measured_json.hpp"
#include "tawpipe/report/nccl_tests_file.hpp"
#include "tawpipe/report/order_report.hpp"
#include "tawpipe/report/pytorch_csv.hpp"
#include "tawpipe/report/schedule_json.hpp"
#include "tawpipe/report/task_graph_json.hpp"
#include "tawpipe/schedule/mesh.hpp"
#include "tawpipe/schedule/offload.hpp"
#include "tawpipe/search/sweep_axis.hpp"
#include "tawpipe/simulate/noise.hpp"
#include "tawpipe/simulate/task_graph_text.hpp"
#include "tawpipe/timeline/timeline_csv.hpp"
#include "tawpipe/topology/cluster_dimensions.hpp"
#include "tawpipe/topology/cluster_file.hpp"
#include "tawpipe/training/detail/checkpoint_json.hpp"
#include "tawpipe/training/safetensors.hpp"
#include "tawpipe/verify/diagnose.hpp"
#include "tawpipe/verify/validate.hpp"
#if TAWPIPE_FUZZ_CHAKRA
#include "tawpipe/report/chakra_export.hpp"
#include "tawpipe/report/chakra_file.hpp"
#include "tawpipe/report/chakra_import.hpp"
#endif

using namespace tawpipe;

namespace {

using Parser = void (*)(std::string_view text);

/// Stops at the first difference.
void expect(bool right) {
  if (!right) std::abort();
}

/// Every one of them takes it or refuses it.
void each(std::initializer_list<Parser> parsers, std::string_view text) {
  for (const Parser parse : parsers) {
    try {
      parse(text);
    } catch (const InputError& error) {
      expect(std::string_view{error.what()}.find_first_of("\n\x1b") == std::string_view::npos);
    }
  }
}

void units(std::string_view text) {
  each({Parser{[](std::string_view one) { parse_duration(one); }}, Parser{[](std::string_view one) { parse_bytes(one); }},
        Parser{[](std::string_view one) { parse_bandwidth(one); }}, Parser{[](std::string_view one) { parse_flops_rate(one); }},
        Parser{[](std::string_view one) {
          if (one.size() < 6) cluster_from_dimensions(one);  // up to 999x9: larger ones are right, and slow
        }}},
       text);
}

/// Words that flags take, and files of frameworks name.
void words(std::string_view text) {
  each({Parser{[](std::string_view one) {
          const StageCut cut = parse_stage_cut(one);
          for (const std::int32_t layers : cut.layers) expect(layers >= 0);
        }},
        Parser{[](std::string_view one) { expect(models::named(one).layers > 0); }},
        Parser{[](std::string_view one) { parse_mesh_order(one); }},
        Parser{[](std::string_view one) { expect(parse_offload(name(parse_offload(one))) == parse_offload(one)); }},
        Parser{[](std::string_view one) {
          Noise noise;
          parse_stragglers(one, noise);
        }},
        Parser{[](std::string_view one) {
          const SweepAxis axis = parse_sweep_axis(one);
          expect(!axis.names.empty() || !axis.numbers.empty());
        }}},
       text);
}

/// A run replays itself, and is asked.
void asked(const TracedRun& run) {
  std::size_t events = 0;
  for (const TracedStep& step : run.steps) events += step.events.size();
  if (events > 5000) return;
  for (const TracedStep& step : run.steps) expect(replay(step).makespan() == step.traced);
  ask(run, {.name = {}, .typical = WhatIf::Typical::shared});
  ask(run, {.name = {}, .typical = WhatIf::Typical::peers, .ranks = worst_ranks(run, 1)});
  ask(run, {.name = {}, .scales = {{.kind = TraceKind::host, .factor = 0}, {.computations = true, .factor = 1e6}}});
}

void stragglers(std::string_view text) { asked(read_straggler_csv(text, "fuzz")); }

/// Traces of ranks, a record separator between one and the next.
void kineto_run(std::string_view text) {
  KinetoRunReader reader{text.find("partial") != std::string_view::npos};
  for (const std::string_view one : split(text, '\x1e')) reader.add(one, "fuzz");
  asked(reader.take());
}

void cluster(std::string_view text) {
  const Cluster read = cluster_from_text(text, "fuzz");
  if (read.ranks() > 256) return;
  const std::string written = write_cluster_json(read);
  const Cluster again = cluster_from_json(written);
  expect(again == read);
  expect(write_cluster_json(again) == written);
}

void schedule(std::string_view text) {
  const Schedule read = parse_schedule_json(text);
  if (read.tasks().size() > 5000 || read.ranks() > 64) return;
  validate(read);
  std::string written;
  write_schedule_json(read, [&](std::string_view part) { written += part; });
  std::string again;
  write_schedule_json(parse_schedule_json(written), [&](std::string_view part) { again += part; });
  expect(again == written);
}

void pytorch_csv(std::string_view text) {
  const PytorchSchedule read = parse_pytorch_csv(text);
  if (text.size() < 4096) report_order(read, {}, "fuzz", true);
}

void calls(std::string_view text) {
  const CommProgram read = parse_comm_program(text);
  if (text.size() < 4096) report_order(read, true);
}

void flight_recorder(std::string_view text) {
  FlightRecorderReader reader;
  reader.add(0, std::string{text}, "fuzz");
  diagnose(reader.take());
}

/// For readers that take a path. One at a time.
const std::string& scratch_file(std::string_view text) {
  static const std::string path = [] {
    const char* const folder = std::getenv("TMPDIR");
    return std::string{folder == nullptr ? "/tmp" : folder} + "/tawpipe_fuzz_" + std::to_string(::getpid());
  }();
  std::ofstream{path, std::ios::binary | std::ios::trunc} << text;
  return path;
}

void safetensors(std::string_view text) {
  const training::SafetensorsFile file{scratch_file(text)};
  for (const training::TensorEntry& tensor : file.tensors()) expect(tensor.begin >= 0 && tensor.count() >= 0);
}

/// What reads and can run is written, and reads as the same again.
void framework(Framework which, std::string_view text) {
  FrameworkJob job = read_job(which, text, "fuzz", 16, {.layers = 8});
  if (!job.model) return;
  if (!job.recompute) job.recompute = Recompute::none;
  if (job.sequence == 0 || !cannot_run(which, job).empty()) return;
  const FrameworkJob again = read_job(which, write_job(which, job), "written", 16, {.layers = 8});
  const auto same = [](const Mesh& a, const Mesh& b) {
    return a.tensor == b.tensor && a.context == b.context && a.data == b.data && detail::places_of(a) == detail::places_of(b);
  };
  expect(same(again.mesh, job.mesh) && again.choice.schedule == job.choice.schedule &&
         again.microbatch_size == job.microbatch_size);
}

#if TAWPIPE_FUZZ_CHAKRA
/// One rank's file, and the same as that of two; what becomes a schedule is written, and becomes
/// the same again.
void chakra_trace(std::string_view text) {
  const ChakraRank rank = parse_chakra(text, "fuzz");
  for (const std::size_t ranks : {1, 2}) {
    ChakraTrace trace{.ranks = std::vector<ChakraRank>(ranks, rank), .groups = {{"1", {0}}, {"2", {0, 1}}}};
    if (ranks == 1) trace.groups.erase("2");
    try {
      if (rank.nodes.size() < 100) prove(chakra_calls(trace));
      const ImportedTrace read = import_chakra(trace);
      ChakraTrace written{.ranks = std::vector<ChakraRank>(ranks), .groups = {}};
      written.groups = parse_chakra_groups(chakra_groups_json(read.schedule), "fuzz");
      Timeline timeline;
      for (const Duration& time : read.times) {
        timeline.start.emplace_back();
        timeline.end.emplace_back(TimePoint{} + (time.value() < 0 ? Duration{1} : time));
      }
      export_chakra(read.schedule, timeline, [&](Rank one, const ChakraNode& node) {
        const ChakraRank again = parse_chakra(chakra_head() + chakra_bytes(node), "written");
        expect(again.nodes.size() == 1 && again.nodes[0] == node);
        written.ranks[index(one)].nodes.push_back(node);
      });
      expect(import_chakra(written).schedule.tasks().size() == read.schedule.tasks().size());
    } catch (const Error& error) {
      expect(std::string_view{error.what()}.find_first_of("\n\x1b") == std::string_view::npos);
    }
  }
}
#endif

const std::map<std::string_view, Parser>& parsers() {
  static const std::map<std::string_view, Parser> all {
    {"units", units}, {"cluster", cluster}, {"schedule", schedule}, {"pytorch_csv", pytorch_csv}, {"calls", calls},
        {"flight_recorder", flight_recorder}, {"safetensors", safetensors},
        {"training_state", [](std::string_view text) { training::detail::read_state(scratch_file(text)); }},
        {"model", [](std::string_view text) { parse_huggingface_config(text, "fuzz", "fuzz"); }},
        {"task_graph", [](std::string_view text) { parse_task_graph(text); }},
        {"task_graph_json", [](std::string_view text) { task_graph_from_json(text); }}, {"words", words},
        {"stragglers", stragglers}, {"kineto_run", kineto_run},
        {"kineto", [](std::string_view text) { read_kineto_trace(text); }},
        {"measured", [](std::string_view text) { parse_measured_json(text); }},
        {"nccl_tests", [](std::string_view text) { read_nccl_tests(text, "fuzz"); }},
        {"held_speeds", [](std::string_view text) { parse_held_speeds(text, "fuzz", "low"); }},
        {"yaml",
         [](std::string_view text) {
           const YamlJob read = yaml_job(text, "fuzz", 16, {.global_batch = 64, .microbatch = 1});
           expect(read.job.mesh.tensor > 0 && read.job.microbatch_size > 0);
         }},
        {"megatron", [](std::string_view text) { framework(Framework::megatron, text); }},
        {"torchtitan", [](std::string_view text) { framework(Framework::torchtitan, text); }},
        {"deepspeed", [](std::string_view text) { framework(Framework::deepspeed, text); }},
#if TAWPIPE_FUZZ_CHAKRA
        {"chakra", chakra_trace},
#endif
        {"timeline", [](std::string_view text) { parse_timeline_csv(text); }},
  };
  return all;
}

Parser chosen() {
  const char* const name = std::getenv("TAWPIPE_FUZZ");
  const auto found = parsers().find(name == nullptr ? "" : name);
  if (found != parsers().end()) return found->second;
  std::fputs("TAWPIPE_FUZZ must name a parser:", stderr);
  for (const auto& [known, parser] : parsers()) std::fprintf(stderr, " %s", std::string{known}.c_str());
  std::fputs("\n", stderr);
  std::exit(2);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Parser parse = chosen();
  try {
    parse({reinterpret_cast<const char*>(data), size});
  } catch (const Error& error) {
    expect(std::string_view{error.what()}.find_first_of("\n\x1b") == std::string_view::npos);
  }
  return 0;
}
