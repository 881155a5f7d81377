// Completions of the command line.
#include "completion.hpp"

#include <algorithm>
#include <map>
#include <string_view>

#include "../arguments.hpp"
#include "../output_file.hpp"
#include "../request.hpp"
#include "schedules.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/parse_name.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/frameworks/frameworks.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/report/pytorch_calls.hpp"
#include "tawpipe/topology/clusters.hpp"

namespace tawpipe::sim {

namespace {

constexpr std::string_view bash_script = R"(# tawpipe completion bash > ~/.local/share/bash-completion/completions/tawpipe
_tawpipe() {
  local IFS=$'\n'
  COMPREPLY=($(tawpipe __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -o nosort -F _tawpipe tawpipe
)";
constexpr std::string_view zsh_script = R"(#compdef tawpipe
# tawpipe completion zsh > a folder of $fpath/_tawpipe
_tawpipe() {
  local -a found
  found=("${(@f)$(tawpipe __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -n "${found[1]}" ]]; then compadd -a found; else _files; fi
}
if [[ "${funcstack[1]}" = _tawpipe ]]; then _tawpipe "$@"; else compdef _tawpipe tawpipe; fi
)";
constexpr std::string_view fish_script = R"(# tawpipe completion fish > ~/.config/fish/completions/tawpipe.fish
function __tawpipe_complete
  set -l words (commandline -opc) (commandline -ct)
  tawpipe __complete $words[2..-1] 2>/dev/null
end
complete -c tawpipe -a '(__tawpipe_complete)'
)";

std::vector<std::string> words_of(std::string_view text, char separator) {
  std::vector<std::string> words;
  for (const std::string_view word : split(text, separator)) {
    if (!word.empty()) words.emplace_back(word);
  }
  return words;
}

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const auto& info : shipped().schedules()) names.push_back(info.name);
  return names;
}

/// KEY= for each option of the named schedules, or of all.
std::vector<std::string> option_keys(const std::vector<std::string>& words) {
  std::vector<std::string> keys;
  const auto named = std::find(words.begin(), words.end(), "--schedule");
  const std::string schedule = named != words.end() && named + 1 != words.end() ? named[1] : "";
  for (const auto& info : shipped().schedules()) {
    if (!schedule.empty() && info.name != schedule) continue;
    for (const auto& option : info.options) keys.push_back(option.name + "=");
  }
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

/// The values of flags that are no fields of a job.
const std::map<std::string_view, std::vector<std::string>>& known_values() {
  using tawpipe::detail::names_of;
  static const std::map<std::string_view, std::vector<std::string>> values{
      {"--emit", names_of<Framework, frameworks>()},
      {"--backend", {"host", "mpi", "cuda"}},
      {"--semantics", names_of<CallSemantics, call_semantics>()},
      {"--communicators", names_of<CallCommunicators, call_communicators>()},
  };
  return values;
}

/// The values of a flag, as far as they can be listed.
std::vector<std::string> values_of(const CLI::Option& option, const std::vector<std::string>& words) {
  const std::string flag = option.get_name();
  if (flag == "--cluster") return clusters::names();
  if (flag == "--model") {
    std::vector<std::string> names;
    for (const auto& preset : models::all()) names.emplace_back(preset.name);
    return names;
  }
  if (flag == "--schedule") return schedule_names();
  if (flag == "--option") return option_keys(words);
  if (flag == "--schedules") {
    // The last item of a list, after the existing ones.
    const std::string before = words.back().substr(0, words.back().rfind(',') + 1);
    std::vector<std::string> names = schedule_names();
    names.emplace_back("all");
    for (std::string& name : names) name.insert(0, before);
    return names;
  }
  if (const auto known = known_values().find(flag); known != known_values().end()) return known->second;
  const JobField* const field = find_job_field(flag.substr(std::min<std::size_t>(2, flag.size())));
  if (field != nullptr && !field->value.words.empty()) return field->value.words;
  std::vector<std::string> values = words_of(option.get_type_name(), '|');
  std::erase_if(values, [](const std::string& value) {
    return std::any_of(value.begin(), value.end(), [](char c) { return (c >= 'A' && c <= 'Z') || c == '-' || c == '.'; });
  });
  return values;
}

}  // namespace

std::vector<std::string> completions(const CLI::App& root, const std::vector<std::string>& words) {
  if (words.empty()) return {};
  const std::string& typed = words.back();
  const CLI::App* command = &root;
  const std::size_t before = words.size() - 1;
  const CLI::Option* takes_next = nullptr;
  for (std::size_t i = words.front() == "help" ? 1 : 0; i < before; ++i) {
    if (takes_next != nullptr) {
      takes_next = nullptr;
    } else if (words[i].starts_with("-")) {
      const CLI::Option* option = command->get_option_no_throw(words[i]);
      if (option != nullptr && option->get_items_expected_max() > 0) takes_next = option;
    } else if (const CLI::App* deeper = find_command(*command, words[i])) {
      command = deeper;
    }
  }
  std::vector<std::string> found;
  if (takes_next != nullptr) {
    found = values_of(*takes_next, words);
  } else if (typed.starts_with("-")) {
    for (const CLI::Option* option : command->get_options()) {
      for (const auto& name : option->get_lnames()) found.push_back("--" + name);
    }
  } else {
    for (const CLI::App* sub : command->get_subcommands({})) found.push_back(sub->get_name());
    if (command == &root) found.emplace_back("help");
    if (command->get_name() == "list") found = {"schedules", "clusters", "devices", "models"};
    if (command->get_name() == "explain") found = schedule_names();
    if (command->get_name() == "completion") found = {"bash", "zsh", "fish"};
    if (command->get_name() == "show") found = clusters::names();
  }
  std::erase_if(found, [&](const std::string& text) { return !text.starts_with(typed); });
  return found;
}

int run_completion(const std::string& shell) {
  if (shell == "bash") {
    write_output("-", bash_script);
  } else if (shell == "zsh") {
    write_output("-", zsh_script);
  } else if (shell == "fish") {
    write_output("-", fish_script);
  } else {
    throw InputError(unknown_name("shell", shell, {"bash", "zsh", "fish"}));
  }
  return ok;
}

}  // namespace tawpipe::sim
