// What tests ask of a text.
#pragma once

#include <string>

namespace support {

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace support
