// Reads what a schedule's JSON says of parameters: the sets that buffers hold, and what each member of a collective gives or
// keeps. Not: public; report/schedule_json.hpp is the door.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "tawpipe/core/text.hpp"
#include "tawpipe/model/workload.hpp"
#include "tawpipe/report/detail/json_reader.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::inline v0::detail {

/// Collects sets and splits: those listed under "pieces" and "splits" in their order, then those written where they are used.
class ParameterSetsReader {
 public:
  /// @param parts  with its stages and layout: without a model parameters count on from stage to stage
  void read_lists(JsonValue root, const Workload& workload, const Schedule::Parts& parts) {
    if (!workload.is_abstract()) count_ = workload.model().parameters();
    for (const StageWork& stage : parts.stages) {
      if (workload.is_abstract()) count_ += stage.parameters * parts.layout.tensor;
    }
    root.if_has("pieces", [&](JsonValue value) { value.for_each([&](JsonValue set, std::size_t) { sets_.add(ranges(set)); }); });
    root.if_has("splits",
                [&](JsonValue value) { value.for_each([&](JsonValue split, std::size_t) { splits_.add(sets(split)); }); });
  }

  /// A set by its number, or as ranges.
  PiecesId read_pieces(JsonValue value) {
    return PiecesId{value.is_list() ? sets_.find(ranges(value)) : value.id(sets_.size(), "set of parameters")};
  }
  /// A split by its number, or as sets. @param members  how many there must be: of an all_gather or reduce_scatter its group's
  SplitId read_split(JsonValue value, std::size_t members) {
    const std::int32_t split = value.is_list() ? splits_.find(sets(value)) : value.id(splits_.size(), "split");
    const std::size_t found = splits_.row_size(split);
    if (found != members) value.fail(concat("has ", found, found == 1 ? " set" : " sets", " of parameters, not ", members));
    return SplitId{split};
  }

  /// Leaves nothing behind.
  void finish(Schedule::Parts& parts) {
    parts.pieces = sets_.rows();
    parts.splits = splits_.rows();
  }

 private:
  /// Rows in order; one that is written where it is used is looked for among the others first.
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
    set.for_each([&](JsonValue value, std::size_t) {
      if (count_ == 0) value.fail("no stage has parameters");
      if (value.list_size() != 2) value.fail("expected the first parameter and the one behind the last, such as [0, 512]");
      ParameterRange range;
      value.for_each([&](JsonValue number, std::size_t i) {
        if (i == 0) {
          range.begin = number.whole(0, count_ - 1);
        } else {
          range.end = number.whole(range.begin + 1, count_);
        }
      });
      ranges.push_back(range);
    });
    std::vector<ParameterRange> sorted = ranges;
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t i = 1; i < sorted.size(); ++i) {
      if (sorted[i].begin < sorted[i - 1].end) set.fail(concat("parameter ", sorted[i].begin, " stands twice"));
    }
    return ranges;
  }
  std::vector<PiecesId> sets(JsonValue split) {
    std::vector<PiecesId> sets;
    split.for_each([&](JsonValue set, std::size_t) { sets.push_back(read_pieces(set)); });
    return sets;
  }

  std::int64_t count_ = 0;  ///< parameters of the model, or of all stages where there is none
  FoundRows<ParameterRange> sets_;
  FoundRows<PiecesId> splits_;
};

}  // namespace tawpipe::detail
