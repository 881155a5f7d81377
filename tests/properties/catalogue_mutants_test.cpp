// Mutants of every schedule of the catalogue, by all mistakes: whatever trains something else, or
// aborts, must be found. Whether it does is decided without the validator: by hashes in several
// orders (support/symbolic_run.hpp), and by what an executor computes in f64, against one rank
// (support/sequential_run.hpp).
// Not: more options of each schedule, and composed ones (mutation_test.cpp).
//
// TAWPIPE_MUTANTS=20000 test_properties -tc='*of the catalogue that train*' makes as many.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "schedules.hpp"
#include "support/content_mutations.hpp"
#include "support/draft.hpp"
#include "support/mutations.hpp"
#include "support/sequential_run.hpp"
#include "support/symbolic_run.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/schedule/describe.hpp"
#include "tawpipe/verify/validate.hpp"

using namespace tawpipe;
using namespace tawpipe::test;

namespace {

Workload catalogue_work(std::int64_t microbatches, bool tied) {
  const Transformer model{.name = "m",
                          .layers = 8,
                          .hidden = 4,
                          .heads = 2,
                          .kv_heads = 1,
                          .intermediate = 5,
                          .vocab = 7,
                          .tied = tied,
                          .dtype = Dtype::f64};
  Workload work{model, {.sequence = 3, .microbatch_size = 1, .global_batch = microbatches}, Recompute::none};
  return work.parameter_bytes({.weight = 8, .gradient = 8, .optimizer = 16});
}

/// A schedule, and what mutants of it are compared with.
class Subject {
 public:
  Subject(Schedule schedule, const std::vector<double>& truth) : schedule_{std::move(schedule)}, truth_{truth} {
    for (const Task& task : schedule_.tasks()) bytes_.push_back(task.bytes);
    parts_ = parts_of(schedule_);
    for (const double part : parts_) hashes_.push_back(Interpreter{schedule_, bytes_, part}.run(0, random_));
    trains_ = SequentialRun::same(SequentialRun::weights(schedule_, false), truth_);
  }

  const Schedule& schedule() const { return schedule_; }
  /// Whether it trains what one rank does: the second oracle's word counts then.
  bool trains() const { return trains_; }

  bool changes(const Schedule& mutant, const Draft& draft) {
    if (!Interpreter::well_formed(mutant)) return true;
    std::vector<Bytes> known;
    for (const TaskId t : draft.origin) known.push_back(bytes_[index(t)]);
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      Interpreter interpreter{mutant, known, parts_[i]};
      for (unsigned policy = 0; policy < 4; ++policy) {
        if (interpreter.run(policy, random_) != hashes_[i]) return true;
      }
    }
    if (!trains_) return false;
    return !SequentialRun::same(SequentialRun::weights(mutant, false), truth_) ||
           !SequentialRun::same(SequentialRun::weights(mutant, true), truth_);
  }

 private:
  Schedule schedule_;
  const std::vector<double>& truth_;
  std::vector<Bytes> bytes_;
  std::vector<double> parts_;
  std::vector<std::vector<std::uint64_t>> hashes_;
  Mersenne random_{7};
  bool trains_ = false;
};

struct Counts {
  int changed = 0;
  int refused = 0;  ///< found, though neither oracle saw a difference
  int harmless = 0;
};

}  // namespace

TEST_CASE("mutants of every schedule of the catalogue that train something else are found") {
  const char* wanted = std::getenv("TAWPIPE_MUTANTS");
  const int mutants = wanted == nullptr ? 1500 : std::atoi(wanted);
  std::vector<Mutation> all{std::begin(mutations), std::end(mutations)};
  all.insert(all.end(), std::begin(content_mutations), std::end(content_mutations));
  const std::int64_t microbatches = 4;
  std::vector<std::vector<double>> truths;
  for (const bool tied : {false, true}) {
    const Schedule alone =
        build_schedule("1f1b", {.workload = catalogue_work(microbatches, tied), .nodes = DeviceGroups{{1}}, .options = {}});
    truths.push_back(SequentialRun::weights(alone, false));
    REQUIRE(!truths.back().empty());
  }
  std::vector<Subject> subjects;
  for (const ScheduleInfo& info : shipped().schedules()) {
    for (const std::vector<std::int32_t>& nodes : {std::vector<std::int32_t>{2}, {2, 2}}) {
      const bool tied = subjects.size() % 3 == 2;
      try {
        subjects.emplace_back(
            build_schedule(info.name,
                           {.workload = catalogue_work(microbatches, tied), .nodes = DeviceGroups{nodes}, .options = {}}),
            truths[tied ? 1 : 0]);
      } catch (const InputError&) {  // a size that this schedule cannot have
      }
    }
  }
  CHECK(subjects.size() > 40);
  std::size_t executed = 0;
  Mersenne random{20261122};
  std::map<std::string, Counts> table;
  int made = 0;
  for (Subject& subject : subjects) executed += subject.trains() ? 1 : 0;
  CHECK(executed * 10 > subjects.size() * 8);
  for (std::size_t turn = 0; made < mutants && turn < 100'000'000; ++turn) {
    Subject& subject = subjects[turn % subjects.size()];
    const Mutation& mutation = all[turn / subjects.size() % all.size()];
    Draft draft{subject.schedule()};
    if (!mutation.apply(draft, random)) continue;
    ++made;
    const Schedule mutant = draft.make();
    const Diagnostics found = validate(mutant);
    const bool changed = subject.changes(mutant, draft);
    Counts& counts = table[mutation.name];
    ++(changed ? counts.changed : found.ok() ? counts.harmless : counts.refused);
    if (!changed || !found.ok()) continue;
    std::string difference;
    for (std::size_t t = 0; t < std::min(mutant.tasks().size(), subject.schedule().tasks().size()) && difference.size() < 300;
         ++t) {
      const auto a = mutant.uses(id<TaskId>(t));
      const auto b = subject.schedule().uses(id<TaskId>(t));
      const bool alike = std::equal(a.begin(), a.end(), b.begin(), b.end(),
                                    [](const Use& x, const Use& y) { return x.buffer == y.buffer && x.access == y.access; });
      if (!alike) difference += " uses of " + detail::describe(mutant, id<TaskId>(t));
    }
    for (std::size_t b = 0; b < mutant.buffers().size() && difference.size() < 300; ++b) {
      const Buffer& x = mutant.buffers()[b];
      const Buffer& y = subject.schedule().buffers()[b];
      if (!(x.content == y.content && x.bytes == y.bytes && x.persistent == y.persistent && x.copy == y.copy)) {
        difference += " " + detail::describe(subject.schedule(), id<BufferId>(b)) + " (" + std::string{name(y.content.kind())} +
                      ") became " + detail::describe(mutant, id<BufferId>(b)) + " (" + std::string{name(x.content.kind())} + ")";
      }
    }
    FAIL_CHECK("not found: " << std::string{mutation.name} << " in " << subject.schedule().name() << " on "
                             << subject.schedule().ranks() << ":" << difference);
  }
  Counts sum;
  std::string text = "\nchanged (all found)  refused  harmless  mutation\n";
  for (const auto& [what, counts] : table) {
    text += concat(counts.changed, "\t", counts.refused, "\t", counts.harmless, "\t", what, "\n");
    sum = {sum.changed + counts.changed, sum.refused + counts.refused, sum.harmless + counts.harmless};
  }
  MESSAGE(text << sum.changed << "\t" << sum.refused << "\t" << sum.harmless << "\tof " << made << " mutants of "
               << subjects.size() << " schedules, " << executed << " of them executed");
}
