// YAML whose keys are Megatron-LM's arguments, under its own or other names: its functional tests,
// Primus, NeMo, Megatron-Bridge, Accelerate with Megatron-LM.
// Not: what the arguments mean (megatron.hpp), nor which kind a file is (yaml_job.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/frameworks/detail/megatron_arguments.hpp"
#include "tawpipe/frameworks/detail/megatron_yaml_kinds.hpp"
#include "tawpipe/frameworks/setting.hpp"

namespace tawpipe::inline v0 {

/// Arguments of a YAML as flags, and the model that it names; "": none.
struct MegatronYaml {
  SettingsText flags;
  std::string model = {};
};

namespace detail {

class MegatronYamlReader {
 public:
  MegatronYamlReader(const YamlArguments& kind, const SettingsText& text) : kind_{kind}, text_{text} {}

  MegatronYaml read() {
    MegatronYaml found{{.source = text_.source, .settings = {}, .notes = text_.notes, .strict = text_.strict}};
    for (const std::string_view section : kind_.sections) {
      for (const Setting& setting : text_.settings) {
        if (setting.name.starts_with(section)) take_by_name(setting, setting.name.substr(section.size()));
      }
    }
    for (const Setting& setting : text_.settings) take_by_rule(setting, found);
    take_defaults(found);
    if (devices_ > 0) {
      found.flags.processes = devices_ * nodes_;
      found.flags.launch_line = launch_line_;
      found.flags.launched_by = kind_.launched_by;
    }
    const std::vector<std::string> unknown = take_megatron_arguments(all_, found.flags, kind_.complete);
    if (!unknown.empty()) {
      found.flags.notes.push_back(
          one_line(concat(text_.source, ": switched on and not known to change the layout: ", join(unknown, ", "))));
    }
    return found;
  }

 private:
  bool is_of(const YamlRule& rule, std::string_view name) const {
    if (!rule.key.starts_with("*.")) return rule.key == name;
    const std::string_view last = rule.key.substr(2);
    return std::any_of(kind_.sections.begin(), kind_.sections.end(), [&](std::string_view section) {
      return name.starts_with(section) && name.substr(section.size()) == last;
    });
  }
  void add(std::string name, std::vector<std::string> words, const Setting& from) {
    std::erase_if(all_, [&](const MegatronArgument& one) { return one.name == name; });
    all_.push_back({std::move(name), std::move(words), from.line, from.unknown});
  }
  void take_by_name(const Setting& setting, std::string name) {
    if (name.find('.') != std::string::npos && kind_.complete) return;  // of a class that has no argument
    if (among(name, kind_.skipped) || among(setting.name, kind_.skipped)) return;
    if (std::any_of(kind_.rules.begin(), kind_.rules.end(), [&](const YamlRule& rule) { return is_of(rule, setting.name); }))
      return;
    if (name.starts_with("--")) name.erase(0, 2);
    std::replace(name.begin(), name.end(), '-', '_');
    add(std::move(name), setting.values, setting);
  }
  void take_by_rule(const Setting& setting, MegatronYaml& found) {
    std::vector<std::string> others;
    bool taken = false;
    for (const YamlRule& rule : kind_.rules) {
      if (!is_of(rule, setting.name)) continue;
      const std::string value = join(setting.values, " ");
      if (!rule.values.empty() && !among(value, rule.values)) {
        for (const std::string_view word : split(rule.values, ' ')) others.emplace_back(word);
        continue;
      }
      taken = true;
      if (rule.argument == "!") text_.fail(setting.line, concat(setting.name, ": ", rule.value));
      if (rule.argument == "@model") {
        found.model = value;
      } else if (rule.argument == "@devices" || rule.argument == "@nodes") {
        const auto number = to_number<std::int32_t>(value).value_or(0);
        (rule.argument == "@nodes" ? nodes_ : devices_) = std::max(0, number);
        launch_line_ = setting.line;
      } else if (!rule.argument.empty()) {
        add(std::string{rule.argument}, rule.value.empty() ? setting.values : std::vector<std::string>{std::string{rule.value}},
            setting);
      }
    }
    if (!taken && !others.empty())
      text_.fail(setting.line,
                 concat(setting.name, ": ", unknown_name("value", join(setting.values, " ").substr(0, 60), others)));
  }
  void take_defaults(MegatronYaml& found) {
    std::vector<std::string> assumed;
    for (const auto& [name, value] : kind_.defaults) {
      const bool said = std::any_of(all_.begin(), all_.end(), [&, name = name](const MegatronArgument& one) {
        return one.name == name || (name == "bf16" && among(one.name, "fp16 fp32"));
      });
      if (said) continue;
      all_.push_back({std::string{name}, {std::string{value}}, 0});
      assumed.emplace_back(name);
    }
    if (!assumed.empty())
      found.flags.notes.push_back(
          one_line(concat(text_.source, ": not said, and read as ", kind_.kind, " has it: ", join(assumed, ", "))));
  }

  const YamlArguments& kind_;
  const SettingsText& text_;
  MegatronArguments all_;
  int devices_ = 0;
  int nodes_ = 1;
  int launch_line_ = 0;
};

}  // namespace detail

/// @throws InputError  naming a key's line and what is wrong
inline MegatronYaml megatron_yaml(const detail::YamlArguments& kind, const SettingsText& text) {
  return detail::MegatronYamlReader{kind, text}.read();
}

}  // namespace tawpipe
