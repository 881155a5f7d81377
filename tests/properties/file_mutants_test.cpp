// Mutants of schedules' files, with layouts and without: each field in turn, changed in one place.
// Each must be refused by the reader, found by the validator, or say and train the same. Whether it
// does is decided without the validator: by what the file says in all (facts_of), by hashes in
// several orders (support/symbolic_run.hpp), and by what an executor computes in f64
// (support/sequential_run.hpp).
// Not: the bodies of stages that ranks share, which validate() says it does not prove.
//
// TAWPIPE_MUTANTS=5000 test_properties -tc='*files say*' makes as many.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schedules.hpp"
#include "support/file_mutations.hpp"
#include "support/sequential_run.hpp"
#include "support/symbolic_run.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/model/transformer_body.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/verify/validate.hpp"

using namespace tawpipe;
using namespace tawpipe::test;

namespace file_mutants {  // other files of this program have helpers of the same names

namespace {

constexpr std::int64_t microbatches = 4;

Workload file_work(std::int64_t count, bool tied, Recompute recompute) {
  const Transformer model{.name = "m",
                          .layers = 4,
                          .hidden = 4,
                          .heads = 2,
                          .kv_heads = 1,
                          .intermediate = 5,
                          .vocab = 7,
                          .tied = tied,
                          .dtype = Dtype::f64};
  Workload work{model, {.sequence = 3, .microbatch_size = 1, .global_batch = count}, recompute};
  return work.parameter_bytes({.weight = 8, .gradient = 8, .optimizer = 16});
}

/// Windows and a mixture by turns, one of which predicts a further token.
Workload work_of_kinds() {
  const Attention full{.heads = 2, .kv_heads = 1, .head_dim = 2, .sinks = true};
  Attention window = full;
  window.window = 2;
  Transformer model =
      Transformer::of({.name = "k",
                       .hidden = 4,
                       .vocab = 7,
                       .kinds = {{.name = "window", .sublayers = {window, Mlp{.width = 5}}},
                                 {.name = "full", .sublayers = {full, Mixture{.experts = 2, .per_token = 1, .width = 3}}}},
                       .pattern = {0, 1, 0, 1},
                       .mtp = {1}});
  model.dtype = Dtype::f64;
  Workload work{model, {.sequence = 3, .microbatch_size = 1, .global_batch = microbatches}};
  return work.parameter_bytes({.weight = 8, .gradient = 8, .optimizer = 16});
}

/// What nothing else in a file says: the author's words and measurements, and the bodies.
bool is_said_once(std::string_view field) {
  constexpr std::string_view said_once[] = {"tawpipe_schedule",
                                            "name",
                                            "options[]",  // all but the layout's sizes
                                            "options[][]",
                                            "lanes[]",
                                            "tasks[].step",
                                            "workload.model.name",
                                            "workload.model.kinds[].name",
                                            "workload.model.utilization",
                                            "workload.model.utilization_source"};
  return field.starts_with("bodies") || std::find(std::begin(said_once), std::end(said_once), field) != std::end(said_once);
}

/// A schedule, and what mutants of its file are compared with.
class Subject {
 public:
  Subject(std::string what, Schedule schedule)
      : what_{std::move(what)},
        schedule_{std::move(schedule)},
        mutator_{nlohmann::json::parse(schedule_json(schedule_)), is_said_once},
        facts_{facts_of(schedule_)} {
    for (const auto left : {SequentialRun::Left::everywhere, SequentialRun::Left::by_updates}) {
      if (!trained_.empty() || schedule_.parts().mesh.shared() > 1) continue;  // parts of matrices are not executed
      left_ = left;
      trained_ = SequentialRun::weights(schedule_, false, left);
    }
    const Diagnostics found = validate(schedule_);
    CHECK_MESSAGE(found.errors() + found.warnings() == 0, what_ << ": " << found.text());
    const Diagnostics again = validate(parse_schedule_json(schedule_json(schedule_)));
    CHECK_MESSAGE(again.errors() + again.warnings() == 0, what_ << ", from its file: " << again.text());
    for (const Task& task : schedule_.tasks()) bytes_.push_back(task.bytes);
    const Schedule sorted = with_sorted_uses(schedule_);
    for (const double part : parts_of(sorted)) hashes_.push_back(Interpreter{sorted, bytes_, part}.run(0, random_));
  }

  const std::string& what() const { return what_; }
  const FileMutator& mutator() const { return mutator_; }
  bool trains() const { return !trained_.empty(); }

  /// What tells a mutant from the schedule; empty if nothing does.
  std::string difference(const Schedule& given, bool dropped) {
    const Schedule mutant = with_sorted_uses(given);
    const std::vector<std::string> facts = facts_of(mutant);
    std::vector<std::string> only;
    std::set_symmetric_difference(facts.begin(), facts.end(), facts_.begin(), facts_.end(), std::back_inserter(only));
    const bool decodes = mutant.workload().model().decoder.has_value();  // a model of no known sizes has no kernels
    if (!only.empty() && !(dropped && !decodes)) return only.front();
    if (!decodes) return {};  // nor has it layers that could train it
    if (!Interpreter::well_formed(mutant)) return "not well formed";
    std::vector<Bytes> known = bytes_;
    if (mutant.tasks().size() != known.size()) {
      known.clear();
      for (const Task& task : mutant.tasks()) known.push_back(task.bytes);
    }
    const std::vector<double> parts = parts_of(mutant);
    if (parts.size() != hashes_.size()) return "another split";
    for (std::size_t i = 0; i < parts.size() && !trains(); ++i) {  // hashes, where it cannot be executed
      Interpreter interpreter{mutant, known, parts[i]};
      for (unsigned policy = 0; policy < 4; ++policy) {
        if (interpreter.run(policy, random_) != hashes_[i]) return "other hashes";
      }
    }
    if (!trains()) return {};
    for (const bool latest : {false, true}) {
      if (!SequentialRun::same(SequentialRun::weights(given, latest, left_), trained_)) return "other weights";
    }
    return {};
  }

 private:
  std::string what_;
  Schedule schedule_;
  FileMutator mutator_;
  std::vector<std::string> facts_;
  std::vector<double> trained_;
  SequentialRun::Left left_ = SequentialRun::Left::everywhere;
  std::vector<Bytes> bytes_;
  std::vector<std::vector<std::uint64_t>> hashes_;
  Mersenne random_{7};
};

struct Counts {
  int refused = 0;
  int found = 0;
  int same = 0;
};

Schedule plain(const char* name, const std::vector<std::int32_t>& nodes, bool tied = false, Recompute recompute = Recompute::none,
               const Offload& offload = {}) {
  return build_schedule(
      name,
      {.workload = file_work(microbatches, tied, recompute), .nodes = DeviceGroups{nodes}, .options = {}, .offload = offload});
}

Schedule in_layout(const char* name, const Mesh& axes, StateSharding sharding, bool early, bool bodies) {
  const Schedule logical = plain(name, {2});
  const Workload whole = file_work(microbatches * axes.data, false, Recompute::none);
  Composition with{.sharding = sharding, .overlap_gradients = early, .overlap_gathers = early, .bucket = early ? 1 : 0};
  if (bodies) {
    with.stages = share_stages(*whole.model().decoder, logical.workload().batch(), Recompute::none, logical.stages(),
                               {.tensor = axes.tensor, .context = axes.context, .sends_activations = true});
  }
  return compose(logical, whole, axes.over(2 * axes.copies()), with);
}

std::vector<Subject> subjects() {
  std::vector<Subject> all;
  const std::vector<std::int32_t> two{2};
  for (const char* name : {"tawpipe", "weipipe", "fsdp", "ddp", "gpipe", "1f1b", "zb-h1", "zb-v", "chimera"})
    all.emplace_back(name, plain(name, two));
  all.emplace_back("tawpipe on two nodes", plain("tawpipe", {2, 2}));
  all.emplace_back("hsdp on two nodes", plain("hsdp", {2, 2}));
  all.emplace_back("1f1b, tied", plain("1f1b", two, true));
  all.emplace_back("1f1b of kinds",
                   build_schedule("1f1b", {.workload = work_of_kinds(), .nodes = DeviceGroups{two}, .options = {}}));
  all.emplace_back("zb-h1, recomputed", plain("zb-h1", two, false, Recompute::full));
  all.emplace_back("gpipe, offloaded", plain("gpipe", two, false, Recompute::none, {.activations = true, .optimizer = true}));
  all.emplace_back("fsdp, offloaded", plain("fsdp", two, false, Recompute::none, {.optimizer = true}));
  for (const auto sharding :
       {StateSharding::none, StateSharding::optimizer, StateSharding::gradients, StateSharding::parameters}) {
    const std::string of = concat(" in a layout, sharded: ", name(sharding));
    all.emplace_back("1f1b" + of, in_layout("1f1b", {.data = 2}, sharding, false, false));
    all.emplace_back("1f1b early" + of, in_layout("1f1b", {.data = 2}, sharding, true, false));
    all.emplace_back("gpipe tensor" + of, in_layout("gpipe", {.tensor = 2, .data = 2}, sharding, true, true));
    all.emplace_back("zb-h1 context" + of, in_layout("zb-h1", {.context = 2}, sharding, false, false));
  }
  return all;
}

}  // namespace

TEST_CASE("mutants of files say and train the same, or are found") {
  const char* wanted = std::getenv("TAWPIPE_MUTANTS");
  const int mutants = wanted == nullptr ? 600 : std::atoi(wanted);
  std::vector<Subject> all = subjects();
  Mersenne random{20261127};
  std::map<std::string, Counts> table;
  int made = 0;
  for (std::size_t turn = 0; made < mutants; ++turn) {
    Subject& subject = all[turn % all.size()];
    const std::size_t field = turn / all.size() % subject.mutator().fields();
    const std::optional<FileMutator::Mutant> mutant = subject.mutator().mutant(field, random);
    if (!mutant) continue;
    ++made;
    Counts& counts = table[subject.mutator().name(field)];
    std::optional<Schedule> read;
    try {
      const JsonDocument file{JsonTree{mutant->file}, "mutant"};
      read = detail::ScheduleJsonReader{file.root()}.read();
    } catch (const InputError&) {
      ++counts.refused;
      continue;
    }
    const Diagnostics found = validate(*read);
    if (found.errors() + found.warnings() > 0) {
      ++counts.found;
      continue;
    }
    const std::string difference = subject.difference(*read, mutant->dropped);
    ++counts.same;
    CHECK_MESSAGE(difference.empty(), subject.what() << ": " << mutant->what << ": " << difference);
  }
  Counts sum;
  std::string text = "\nrefused  found  the same  field\n";
  for (const auto& [field, counts] : table) {
    text += concat(counts.refused, "\t", counts.found, "\t", counts.same, "\t", field, "\n");
    sum = {sum.refused + counts.refused, sum.found + counts.found, sum.same + counts.same};
  }
  MESSAGE(text << sum.refused << "\t" << sum.found << "\t" << sum.same << "\tof " << made << " mutants of " << all.size()
               << " schedules");
}

}  // namespace file_mutants
