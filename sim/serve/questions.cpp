// The form of `tawpipe serve`, its values, and the command that they mean.
#include "questions.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "../request.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/core/version.hpp"
#include "tawpipe/model/huggingface_config.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/report/detail/page_files.hpp"
#include "tawpipe/topology/cluster_dimensions.hpp"
#include "tawpipe/topology/clusters.hpp"
#include "tawpipe/topology/devices.hpp"

namespace tawpipe::sim {

namespace {

constexpr std::size_t max_value = 1000;  // characters; a list of all schedules has a third of them

void check_cluster(const std::string& text, std::string_view) {
  if (looks_like_dimensions(text)) return;
  for (const std::string_view part : split(text, '+')) {
    if (find_sized_cluster(part).first != nullptr || looks_like_dimensions(part) || cluster_of_devices(part)) continue;
    throw InputError(concat(unknown_name("cluster", part, clusters::names()),
                            "; or a number of devices such as 64xH100, or a size such as 3x8 or 8+8+4"));
  }
}

void check_model(const std::string& text, std::string_view) {
  const bool is_path = text.find_first_of("./~") == 0 || std::count(text.begin(), text.end(), '/') > 1;
  if (!is_path && find_published_model(text)) return;
  models::named(text);  // says what there is
}

void check_device(const std::string& text, std::string_view) { known_device(text); }

void check_words(const std::string& text, std::string_view what) {
  if (text.find('/') == std::string::npos) return;
  throw InputError(concat(what, " ", quote(text), " must be names and numbers; paths are not read here"));
}

/// A value of the form: a flag of the same name. Nothing else reaches the command.
struct Control {
  std::string_view name;
  std::string_view label;
  std::string_view hint;
  std::string_view usual;  ///< in the form that is seen first
  bool of_plan_only;
  void (*check)(const std::string& text, std::string_view what);  ///< @throws InputError
};
constexpr Control controls[] = {
    {"cluster", "Cluster", "dgx-h100*2, 64xH100, 3x8", "dgx-h100*2", false, check_cluster},
    {"device", "Device", "as the cluster says", "", false, check_device},
    {"model", "Model", "llama-3-8b", "llama-3-8b", false, check_model},
    {"sequence", "Sequence, tokens", "8192", "8192", false, check_words},
    {"global-batch", "Global batch, sequences", "128", "128", false, check_words},
    {"schedules", "Schedules", "all that matter", "", false, check_words},
    {"price", "Device-hour price", "2.5USD", "", true, check_words},
    {"train-tokens", "Tokens of the run", "15T", "", true, check_words},
};

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    safe += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : std::string(1, c);
  }
  return safe;
}

/// "" where it is not given.
std::string value_of(const HttpRequest& request, std::string_view name) {
  for (const auto& [key, value] : request.values) {
    if (key == name) return value;
  }
  return {};
}

std::vector<std::string> names_for(std::string_view control) {
  std::vector<std::string> names;
  if (control == "cluster") names = clusters::names();
  if (control == "model") {
    for (const auto& preset : models::all()) names.emplace_back(preset.name);
  }
  if (control == "device") {
    for (const KnownDevice& device : known_devices()) names.emplace_back(device.name);
  }
  if (control == "schedules") {
    for (const auto& info : shipped().schedules()) names.push_back(info.name);
  }
  return names;
}

constexpr std::string_view form_style =
    "#ask { display: grid; grid-template-columns: repeat(auto-fill, minmax(11.5rem, 1fr)); gap: 0.5rem 0.8rem; align-items: end;"
    " background: var(--panel); border: 1px solid var(--line); border-radius: 8px; padding: 0.7rem 0.9rem; margin: 1rem 0; }\n"
    "#ask label { color: var(--soft); font-size: 12px; min-width: 0; }\n"
    "#ask input { display: block; width: 100%; }\n"
    "#ask button { margin-right: 0.4rem; }\n"
    "#why { color: var(--bad); overflow-wrap: anywhere; }\n"
    "@media (max-width: 760px) { #ask { grid-template-columns: 1fr 1fr; gap: 0.3rem 0.6rem; } }\n"
    "@media print { #ask { display: none; } }\n";

/// @param starts  with the usual values where nothing is given
std::string form(const HttpRequest& request, bool starts) {
  std::string text = concat("<form id=\"ask\" aria-label=\"Question\">\n<style>\n", form_style, "</style>\n");
  std::string lists;
  for (const Control& control : controls) {
    const std::string given = value_of(request, control.name);
    const std::string value = given.empty() && starts ? std::string{control.usual} : given;
    const std::vector<std::string> names = names_for(control.name);
    text += concat("<label>", control.label, control.of_plan_only ? " (plan)" : "", " <input name=\"", control.name,
                   "\" value=\"", escaped(value), "\" placeholder=\"", control.hint, "\"",
                   names.empty() ? "" : concat(" list=\"ask-", control.name, "\""), "></label>\n");
    if (names.empty()) continue;
    lists += concat("<datalist id=\"ask-", control.name, "\">");
    for (const std::string& name : names) lists += concat("<option value=\"", escaped(name), "\">");
    lists += "</datalist>\n";
  }
  return concat(text, "<div><button formaction=\"/plan\">Plan</button><button formaction=\"/compare\">Compare</button></div>\n",
                lists, "</form>\n");
}

/// @throws InputError
void check_values(const HttpRequest& request) {
  std::vector<std::string> known;
  for (const Control& control : controls) known.emplace_back(control.name);
  std::vector<std::string> seen;
  for (const auto& [name, value] : request.values) {
    if (std::find(known.begin(), known.end(), name) == known.end()) throw InputError(unknown_name("value", name, known));
    if (std::find(seen.begin(), seen.end(), name) != seen.end()) throw InputError(concat(name, " is given twice"));
    if (value.size() > max_value) throw InputError(concat(name, " is longer than ", max_value, " characters"));
    if (value.starts_with("-")) throw InputError(concat(name, " ", quote(value), " must not begin with -"));
    seen.push_back(name);
  }
}

/// The last line of what a command complained about, without its name; progress may be before it.
std::string last_line(std::string_view text) {
  text = text.substr(0, text.find_last_not_of("\r\n") + 1);
  text = text.substr(text.find_last_of("\r\n") + 1);
  constexpr std::string_view name = "tawpipe: ";
  return std::string{text.starts_with(name) ? text.substr(name.size()) : text};
}

}  // namespace

HttpAnswer form_page(const HttpRequest& request, int status, const std::string& why) {
  return {.status = status,
          .text = concat("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                         "<title>tawpipe</title>\n<style>\n",
                         detail::page_style,
                         "</style>\n</head>\n<body>\n<main>\n<header>\n<h1>tawpipe</h1>\n"
                         "<div id=\"verdict\"><p>How should this model train on these devices?</p>\n"
                         "<p><b>Plan</b> searches layouts, schedules and options. <b>Compare</b> ranks schedules. Many schedules "
                         "or devices take minutes.</p></div>\n</header>\n",
                         form(request, request.values.empty()),
                         why.empty() ? "" : concat("<p id=\"why\" role=\"alert\">", escaped(why), "</p>\n"),
                         "<footer><p>tawpipe ", version,
                         ", on this machine: nothing leaves it. The address holds the whole question.</p></footer>\n"
                         "</main>\n</body>\n</html>\n")};
}

std::variant<std::vector<std::string>, HttpAnswer> arguments_of(const HttpRequest& request) {
  const bool plans = request.path == "/plan";
  if (request.path == "/favicon.ico") return HttpAnswer{.text = "", .is_page = false};
  if (request.path == "/") return form_page(request, 200, "");
  if (!plans && request.path != "/compare")
    return form_page(request, 404, concat("There is no ", request.path, ", but /plan and /compare."));
  std::vector<std::string> arguments{request.path.substr(1)};
  try {
    check_values(request);
    for (const Control& control : controls) {
      const std::string value = value_of(request, control.name);
      if (value.empty() || (control.of_plan_only && !plans)) continue;
      control.check(value, control.name);
      arguments.push_back(concat("--", control.name));
      arguments.push_back(value);
    }
  } catch (const Error& error) {
    return form_page(request, 400, error.what());
  }
  arguments.insert(arguments.end(), {"--report", "-"});
  return arguments;
}

HttpAnswer answer_of(const HttpRequest& request, RunEnd& end) {
  if (end.why == RunEnd::Why::too_long)
    return form_page(request, 503, "This took too long and was ended; ask for fewer devices or schedules, or give --time-limit.");
  if (end.why == RunEnd::Why::too_large)
    return form_page(request, 503, "The answer is too large for a page; ask for fewer devices or schedules.");
  if (end.code == bad_input) return form_page(request, 400, last_line(end.errors));
  constexpr std::string_view begin = "\n<main>\n";
  const std::size_t at = end.output.find(begin);
  if ((end.code != ok && end.code != findings) || at == std::string::npos) {
    const std::string why = last_line(end.errors);
    return form_page(request, 500, why.empty() ? "The command ended without an answer; it may need more memory." : why);
  }
  end.output.insert(at + begin.size(), form(request, false));
  return {.status = 200, .text = std::move(end.output)};
}

}  // namespace tawpipe::sim
