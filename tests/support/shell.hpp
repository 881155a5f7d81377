// A script's Megatron-LM flags, as tests compare them.
// Not: what the flags mean.
#pragma once

#include <string>
#include <utility>

#include "support/text.hpp"
#include "tawpipe/frameworks/megatron_flags.hpp"
#include "tawpipe/frameworks/shell_settings.hpp"

namespace support {

inline tawpipe::SettingsText flags_of(const std::string& text) {
  return tawpipe::shell_settings(tawpipe::megatron_table(), text, "run.sh");
}

/// "3: --tensor-model-parallel-size 8" for each.
inline std::string listed(const tawpipe::SettingsText& found) {
  std::string text;
  for (const tawpipe::Setting& setting : found.settings) {
    text += tawpipe::concat(setting.line, ": ", setting.name, setting.values.empty() ? "" : " ",
                            tawpipe::join(setting.values, " "), "\n");
  }
  return text;
}

/// The message of the error, or nothing.
inline std::string refusal(const std::string& text) {
  try {
    tawpipe::SettingsText found = flags_of(text);
    found.strict = true;
    tawpipe::read_settings(tawpipe::megatron_table(), std::move(found));
    return {};
  } catch (const tawpipe::InputError& error) {
    return error.what();
  }
}

/// The notes of a script that is read, one a line.
inline std::string notes_of(const std::string& text) {
  return tawpipe::join(tawpipe::read_settings(tawpipe::megatron_table(), flags_of(text)).notes, "\n");
}

}  // namespace support
