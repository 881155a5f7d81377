// Changes to one place of a schedule's file: a number, name or switch, an item that is missing,
// doubled or elsewhere; and what a file says in all, to compare two of them.
// Not: mistakes of several places at once (mutations.hpp), nor what a schedule trains
// (symbolic_run.hpp, sequential_run.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/mutations.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/report/schedule_json.hpp"
#include "tawpipe/schedule/schedule.hpp"

namespace tawpipe::test {

/// A file taken apart by *fields*: places of the same path but for indices, such as tasks[].bytes.
class FileMutator {
 public:
  using Json = nlohmann::json;

  /// @param skipped  whether a field is left as it is
  template <class Skipped>
  FileMutator(Json file, Skipped&& skipped) : file_(std::move(file)) {  // braces would make a list of it
    find("", Json::json_pointer{});
    std::erase_if(fields_, [&](const Field& field) { return skipped(std::string_view{field.name}); });
  }

  std::size_t fields() const { return fields_.size(); }
  const std::string& name(std::size_t field) const { return fields_[field].name; }

  struct Mutant {
    Json file;
    std::string what;  ///< for messages
    bool dropped = false;
  };
  /// One of a field's places changed in one of the ways that fit it; none if it stays as it was.
  std::optional<Mutant> mutant(std::size_t field, Mersenne& random) const {
    const Field& of = fields_[field];
    const Json::json_pointer place = of.places[below(random, of.places.size())];
    Mutant made{.file = file_, .what = place.to_string()};
    Json& value = made.file[place];
    const Json old = value;
    switch (below(random, 4)) {
      case 0:
        if (!place.empty()) {
          Json& parent = made.file[place.parent_pointer()];
          made.dropped = true;
          made.what += " dropped";
          if (parent.is_object()) {
            parent.erase(place.back());
          } else {
            parent.erase(static_cast<std::size_t>(std::stoul(place.back())));
          }
          return made;
        }
        return std::nullopt;
      case 1:
        value = file_[of.places[below(random, of.places.size())]];  // that of another place
        break;
      default:
        change(value, of.name, random);
    }
    if (value == old) return std::nullopt;
    made.what += concat(": ", old.dump().substr(0, 60), " became ", value.dump().substr(0, 60));
    return made;
  }

 private:
  struct Field {
    std::string name;
    std::vector<Json::json_pointer> places;
  };

  void find(const std::string& name, const Json::json_pointer& place) {
    const Json& value = file_[place];
    if (!name.empty()) {
      const auto [at, added] = index_.try_emplace(name, fields_.size());
      if (added) fields_.push_back({name, {}});
      fields_[at->second].places.push_back(place);
    }
    if (value.is_object()) {
      for (const auto& [member, item] : value.items()) find(name + (name.empty() ? "" : ".") + member, place / member);
    } else if (value.is_array()) {
      for (std::size_t i = 0; i < value.size(); ++i) find(name + "[]", place / i);
    }
  }

  static void change(Json& value, std::string_view name, Mersenne& random) {
    if (value.is_boolean()) {
      value = !value.get<bool>();
    } else if (value.is_number_float()) {
      value = value.get<double>() * (below(random, 2) == 0 ? 1.25 : 0.5);
    } else if (value.is_number()) {
      const auto number = value.get<std::int64_t>();
      const std::int64_t all[] = {number + 1, number - 1, 2 * number, number / 2, 0};
      value = all[below(random, std::size(all))];
    } else if (value.is_string()) {
      value = other_name(name, random);
    } else if (value.is_array() && !value.empty()) {
      const std::size_t i = below(random, value.size());
      const std::size_t k = below(random, value.size());
      const auto at = [&](std::size_t place) { return value.begin() + static_cast<std::ptrdiff_t>(place); };
      if (below(random, 2) == 0) {
        std::swap(*at(i), *at(k));
      } else {
        const Json item = *at(i);
        value.insert(at(k), item);
      }
    }
  }
  /// A name that some field like it may have.
  static std::string other_name(std::string_view field, Mersenne& random) {
    if (field.ends_with(".op")) return std::string{tawpipe::name(static_cast<Op>(below(random, ops)))};
    if (field.ends_with(".payload")) return std::string{tawpipe::name(static_cast<Payload>(below(random, payloads)))};
    if (field.ends_with(".kind")) return std::string{tawpipe::name(static_cast<ContentKind>(below(random, content_kinds)))};
    if (field.ends_with("recompute")) return std::string{tawpipe::name(static_cast<Recompute>(below(random, 3)))};
    if (field.ends_with("order")) return below(random, 2) == 0 ? "dcst" : "stcd";
    if (field.ends_with("dtype")) return below(random, 2) == 0 ? "bf16" : "f32";
    return std::to_string(below(random, 5));
  }

  Json file_;
  std::vector<Field> fields_;
  std::map<std::string, std::size_t> index_;  ///< [name] before any is left out
};

/// What a schedule says of its work, whatever the order and lanes of its tasks: lines that are equal
/// where two schedules compute, move and hold the same.
inline std::vector<std::string> facts_of(const Schedule& schedule) {
  std::vector<std::string> facts;
  const Mesh mesh = schedule.parts().mesh.over(schedule.ranks());
  const Workload& workload = schedule.workload();
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    const MeshPlace place = mesh.place(Rank{rank});
    facts.push_back(concat("rank ", rank, " at ", place.tensor, " ", place.context, " ", place.expert, " ", place.pipeline, " ",
                           place.data, mesh.whole_experts ? " with whole experts" : ""));
  }
  facts.push_back(concat("tokens ", workload.tokens(), " operations ", workload.model_flops().value(), " microbatches ",
                         workload.microbatches(), " recompute ", name(workload.recompute())));
  if (!workload.is_abstract()) {
    facts.push_back(concat("parameters ", workload.model().parameters(), " ", name(workload.model().dtype)));
    if (workload.model().decoder) facts.push_back("of a decoder, with its kernels");
  }
  for (std::size_t t = 0; t < schedule.tasks().size(); ++t) {
    const Task& task = schedule.tasks()[t];
    const bool gradients = task.payload == Payload::edge_gradients;  // a label of its own
    std::string fact = concat(name(task.op), " ", name(gradients ? Payload::gradients : task.payload), " bytes ",
                              task.bytes.value(), " x ", task.bytes.repeat());
    if (!is_collective(task.op) || is_rooted(task.op)) fact += concat(" on ", number(task.rank));
    if (is_stage_work(task.op)) {
      const StageWork& stage = schedule.stage(task.stage);
      fact += concat(" microbatch ", task.microbatch, " of stage ", number(task.stage), ": ", stage.parameters, " ",
                     stage.edge_parameters, " ", stage.saved.value(), " ", stage.boundary.value(), " ", stage.workspace().value(),
                     " ", stage.forward.value(), " ", stage.recompute.value(), " ", stage.backward_input.value(), " ",
                     stage.backward_weight.value(), " ", stage.forward_traffic.value(), " ", stage.backward_traffic.value());
    }
    if (task.op == Op::backward_input) fact += concat(" leaves ", schedule.stage(task.stage).stash.value());
    if (is_point_to_point(task.op)) fact += concat(" to ", number(task.peer));
    if (is_collective(task.op)) {
      std::vector<Rank> members{schedule.group(task.group).begin(), schedule.group(task.group).end()};
      if (!has_own_parts(task.op)) std::sort(members.begin(), members.end());
      for (const Rank rank : members) fact += concat(" ", number(rank));
    }
    if (is_all_pairs(task.op) && task.split != none<SplitId>) {
      for (const Bytes size : schedule.pair_sizes(task.split)) fact += concat(" ", size.value());
    }
    facts.push_back(std::move(fact));
  }
  std::vector<char> used(schedule.buffers().size(), 0);
  for (const Use& use : schedule.parts().uses.items()) used[index(use.buffer)] = 1;
  for (std::size_t b = 0; b < used.size(); ++b) {
    const Buffer& buffer = schedule.buffers()[b];
    const bool slot = buffer.kind() == BufferKind::activations && buffer.content.is_slot();
    const bool spare = slot || buffer.kind() == BufferKind::transfer || buffer.kind() == BufferKind::gradients;
    if (used[b] == 0 && spare) continue;
    facts.push_back(concat("buffer on ", number(buffer.rank), buffer.host ? " host " : " ", buffer.bytes.value()));
  }
  std::sort(facts.begin(), facts.end());
  return facts;
}

/// The same with each task's uses by their buffers: their order has no meaning, but for hashes of them.
inline Schedule with_sorted_uses(const Schedule& schedule) {
  Schedule::Parts parts = schedule.parts();
  std::vector<Use> items = parts.uses.items();
  const auto key = [](const Use& use) { return std::pair{number(use.buffer), use.access}; };
  for (std::size_t t = 0; t < parts.tasks.size(); ++t) {
    const auto at = [&](std::size_t row) { return items.begin() + static_cast<std::ptrdiff_t>(parts.uses.begins()[row]); };
    std::stable_sort(at(t), at(t + 1), [&](const Use& a, const Use& b) { return key(a) < key(b); });
  }
  parts.uses = {parts.uses.begins(), std::move(items)};
  return {schedule.workload(), std::move(parts)};
}

}  // namespace tawpipe::test
