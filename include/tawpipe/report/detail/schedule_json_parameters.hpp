// Reads the parameters in a schedule's JSON: the sets that buffers hold, and those that each member
// of a collective gives or keeps.
// Not: public; report/schedule_json.hpp is the public interface.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "tawpipe/core/text.hpp"
#include "tawpipe/core/units.hpp"
#include "tawpipe/json/json_reader.hpp"
#include "tawpipe/model/workload.hpp"
#include "tawpipe/report/detail/schedule_json_defaults.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0::detail {

/// Collects sets and splits: those listed under "pieces" and "splits" in their order, then those
/// written where they are used.
class ParameterSetsReader {
 public:
  /// @param parts  with its stages and layout: without a model, parameters are numbered stage by
  /// stage
  void read_lists(JsonValue root, const Workload& workload, const Schedule::Parts& parts) {
    if (!workload.is_abstract()) count_ = workload.model().parameters();
    for (const StageWork& stage : parts.stages) {
      if (workload.is_abstract()) {
        count_ = saturating_add(count_, saturating_multiply<std::int64_t>(stage.parameters, parts.mesh.tensor));
      }
    }
    if (count_ > max_json_parameters)
      root.fail(concat("the stages have more than ", max_json_parameters, " parameters together"));
    padding_ = parts.padding;
    if (const auto pieces = root.find("pieces")) {
      for (const JsonValue set : *pieces) sets_.add(ranges(set));
    }
    if (const auto splits = root.find("splits")) {
      for (const JsonValue split : *splits) splits_.add(sets(split));
    }
  }

  /// A set by its number, or as ranges.
  PiecesId read_pieces(JsonValue value) {
    return PiecesId{value.is_list() ? sets_.find(ranges(value)) : value.id(sets_.size(), "set of parameters")};
  }
  /// A split by its number, or as sets. @param members  how many there must be: for an all_gather
  /// or reduce_scatter the group's size
  SplitId read_split(JsonValue value, std::size_t members) {
    const std::int32_t split = value.is_list() ? splits_.find(sets(value)) : value.id(splits_.size(), "split");
    const std::size_t found = splits_.row_size(split);
    if (found != members) value.fail(concat("has ", found, found == 1 ? " set" : " sets", " of parameters, not ", members));
    return SplitId{split};
  }

  /// The collector is empty afterwards.
  void finish(Schedule::Parts& parts) {
    parts.pieces = sets_.rows();
    parts.splits = splits_.rows();
  }

 private:
  /// Rows in order; one that is written where it is used is first searched among the others.
  template <class T>
  class FoundRows {
   public:
    std::size_t size() const { return begin_.size() - 1; }
    std::size_t row_size(std::int32_t row) const {
      return begin_[static_cast<std::size_t>(row) + 1] - begin_[static_cast<std::size_t>(row)];
    }
    std::int32_t add(std::vector<T> row) {
      const auto added = static_cast<std::int32_t>(size());
      items_.insert(items_.end(), row.begin(), row.end());
      begin_.push_back(static_cast<std::uint32_t>(items_.size()));
      ids_.try_emplace(std::move(row), added);
      return added;
    }
    std::int32_t find(std::vector<T> row) {
      const auto found = ids_.find(row);
      return found != ids_.end() ? found->second : add(std::move(row));
    }
    Rows<T> rows() { return Rows<T>{std::move(begin_), std::move(items_)}; }

   private:
    std::vector<std::uint32_t> begin_{0};
    std::vector<T> items_;
    std::map<std::vector<T>, std::int32_t> ids_;
  };

  std::vector<ParameterRange> ranges(JsonValue set) const {
    std::vector<ParameterRange> ranges;
    for (const JsonValue value : set) {
      if (count_ == 0) value.fail("no stage has parameters");
      value.of_size(2, "the first parameter and the one after the last, such as [0, 512]");
      const std::int64_t end = count_ + (padding_ > 0 ? 1 + padding_ : 0);
      const std::int64_t begin = value[0].whole<std::int64_t>(0, end - 1);
      ranges.push_back({begin, value[1].whole<std::int64_t>(begin + 1, begin < count_ ? count_ : end)});
    }
    std::vector<ParameterRange> sorted = ranges;
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t i = 1; i < sorted.size(); ++i) {
      if (sorted[i].begin < sorted[i - 1].end) set.fail(concat("parameter ", sorted[i].begin, " stands twice"));
    }
    return ranges;
  }
  std::vector<PiecesId> sets(JsonValue split) {
    std::vector<PiecesId> sets;
    for (const JsonValue set : split) sets.push_back(read_pieces(set));
    return sets;
  }

  std::int64_t count_ = 0;    ///< parameters of the model, or of all stages if there is none
  std::int64_t padding_ = 0;  ///< numbers beside these
  FoundRows<ParameterRange> sets_;
  FoundRows<PiecesId> splits_;
};

}  // namespace tawpipe::detail
