// Keeps a message on one line, whatever bytes of a user's file it quotes.
// Not: public.
#pragma once

#include <string>

namespace tawpipe::detail {

/// The text with each control character replaced by '?'.
inline std::string one_line(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text;
}

}  // namespace tawpipe::detail
