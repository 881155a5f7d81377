// How texts of fields become members of a problem and are printed from them, by the kind of member.
// Not: the fields (search/job_fields.hpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/schedules/option_field.hpp"
#include "tawpipe/search/job_field.hpp"

namespace tawpipe::inline v0::detail {

/// A mesh's expert axis: what devices among which experts are divided, whole, have beyond tensor x context.
inline void take_expert_parallel(std::int64_t devices, Mesh& mesh) {
  if (devices == 1) return;
  const std::int64_t others = std::int64_t{mesh.tensor} * mesh.context;
  if (devices < 1 || others < 1 || devices % others != 0) {
    throw InputError(concat("--expert-parallel ", devices, " must be a multiple of tensor ", mesh.tensor, " x context ",
                            mesh.context, " devices, which have experts of their own too, or 1"));
  }
  mesh.whole_experts = true;
  mesh.expert = static_cast<int>(devices / others);
}

/// The value of a member of the problem or of one of its parts.
template <auto member, class P>
auto& job_member(P& problem) {
  using Class = typename MemberOf<decltype(member)>::Options;
  if constexpr (std::is_same_v<Class, Transformer>) {
    return (*problem.model).*member;
  } else if constexpr (std::is_same_v<Class, Mesh>) {
    return problem.mesh.*member;
  } else if constexpr (std::is_same_v<Class, Noise>) {
    return problem.noise.*member;
  } else {
    return problem.*member;
  }
}
template <auto member>
inline constexpr bool is_of_model = std::is_same_v<typename MemberOf<decltype(member)>::Options, Transformer>;

/// A member that is true or false, or neither where something else decides.
template <auto member>
FieldValue two_words(std::string_view yes = "on", std::string_view no = "off") {
  return {.words = {std::string{yes}, std::string{no}},
          .read =
              [](const JobField& field, const std::string& text, Problem& problem) {
                const auto& words = field.value.words;
                job_member<member>(problem) = one_of_two(concat("--", field.name), text, words[0], words[1]);
              },
          .print =
              [](const JobField& field, const Problem& problem) {
                const std::optional<bool> value = job_member<member>(problem);
                return value ? field.value.words[*value ? 0 : 1] : std::string{};
              },
          .of_model = is_of_model<member>};
}

/// A member whose values have names. @param what  in words, for messages
template <auto member>
FieldValue named(std::string_view what) {
  using Value = typename MemberOf<decltype(member)>::Value;
  constexpr auto names = option_names(Value{});
  return {.words = {names.begin(), names.end()},
          .what = what,
          .read =
              [](const JobField& field, const std::string& text, Problem& problem) {
                const std::optional<Value> value = OptionText<Value>::parse(text);
                if (!value) throw InputError(unknown_name(field.value.what, text, field.value.words));
                job_member<member>(problem) = *value;
              },
          .print = [](const JobField&, const Problem& problem) { return OptionText<Value>::text(job_member<member>(problem)); },
          .of_model = is_of_model<member>};
}

/// A member whose texts have a parser, and a name().
template <auto member, auto parse>
FieldValue parsed(std::vector<std::string> words = {}) {
  return {.words = std::move(words),
          .read = [](const JobField&, const std::string& text, Problem& problem) { job_member<member>(problem) = parse(text); },
          .print = [](const JobField&, const Problem& problem) { return std::string{name(job_member<member>(problem))}; },
          .of_model = is_of_model<member>};
}

/// A member that is a number, checked by whoever uses it.
template <auto member>
FieldValue numeric() {
  return {.read =
              [](const JobField& field, const std::string& text, Problem& problem) {
                auto& value = job_member<member>(problem);
                using Value = std::remove_reference_t<decltype(value)>;
                if constexpr (std::is_integral_v<Value>) {
                  value = parse_whole<Value>(text, concat("--", field.name), static_cast<Value>(field.least));
                } else {
                  check_number(field, text, concat("--", field.name));
                  value = *to_number<double>(text);
                }
              },
          .print = [](const JobField&, const Problem& problem) { return concat(job_member<member>(problem)); },
          .of_model = is_of_model<member>};
}

}  // namespace tawpipe::v0::detail
