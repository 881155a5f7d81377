// The flags that commands share, and how their help is laid out.
// Not: what the flags stand for (request.hpp) nor which command has which (main.cpp, instruments.cpp).
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <string>
#include <system_error>

#include "request.hpp"
#include "tawpipe/core/text.hpp"

namespace tawpipe::sim {

/// Whole numbers from `least`, 0 or 1: what --sequence 0, -5, 1e18 or text are told.
template <class Number, int least>
std::string count_fault(const std::string& text) {
  Number value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, status] = std::from_chars(text.data(), end, value);
  if (status == std::errc::result_out_of_range) return concat(quote(text), " is too large");
  const bool right = status == std::errc{} && rest == end && value >= Number{least};
  return right ? std::string{} : concat(quote(text), " must be a whole number ", least == 0 ? "from zero" : "above zero");
}

template <int least = 1, class Number>
void add_count(CLI::App& app, const std::string& name, Number& value, const std::string& text, const std::string& type,
               const std::string& group) {
  app.add_option(name, value, text)->type_name(type)->group(group)->check(CLI::Validator{count_fault<Number, least>, ""});
}

/// The fraction of a device's memory that may be needed.
void add_usable_memory(CLI::App& app, double& fraction, const std::string& default_text);
void add_json_flag(CLI::App& app, std::string& json, const std::string& what);
/// The flags that say what is to be trained and where.
void add_problem_flags(CLI::App& app, Request& request, const std::string& microbatch_default);
/// Jitter, stragglers, interference.
void add_noise_flags(CLI::App& app, Request& request);
void add_option_flag(CLI::App& app, Request& request, const std::string& whose);
void add_schedule_flags(CLI::App& app, Request& request);
void add_config_flag(CLI::App& app);
/// --help last of its group, repeated flags replace, and an example below.
void finish(CLI::App& app, const std::string& example);

}  // namespace tawpipe::sim
