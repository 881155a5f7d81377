// Test helpers: sample files, the message of an error, and inputs that are cut or changed on
// purpose.
// Not: part of the library.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "tawpipe/core/error.hpp"

namespace samples {

inline std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE_MESSAGE(file.good(), path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// A file of tests/data/topology.
inline std::string path(const std::string& name) { return std::string(TAWPIPE_TEST_DATA) + "/topology/" + name; }
inline std::string ours(const std::string& name) { return read(path(name)); }

/// Real machines' files, in a folder that is not always available.
inline std::vector<std::string> reference(const std::string& folder) {
  std::vector<std::string> paths;
  const std::filesystem::path root = std::string(TAWPIPE_SHARED) + "/reference/topology/" + folder;
  if (!std::filesystem::is_directory(root)) return paths;
  for (const auto& entry : std::filesystem::directory_iterator(root)) paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

/// Files of tests/data/topology whose name ends in `ending`.
inline std::vector<std::string> all_ours(const std::string& ending) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(TAWPIPE_TEST_DATA) + "/topology")) {
    const std::string path = entry.path().string();
    if (path.size() > ending.size() && path.compare(path.size() - ending.size(), ending.size(), ending) == 0) {
      paths.push_back(path);
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

/// The InputError's message; "" when there is none. One line, always.
template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const tawpipe::InputError& error) {
    const std::string message = error.what();
    CHECK_MESSAGE(message.find('\n') == std::string::npos, message);
    return message;
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Calls `parse` on `text` cut at every 50th byte and on 200 copies with up to four bytes changed.
/// Anything but success or an InputError escapes and fails the test.
template <class Parse>
void fuzz(const std::string& text, const Parse& parse) {
  const auto attempt = [&](const std::string& input) { error_of([&] { parse(input); }); };
  for (std::size_t length = 0; length < text.size(); length += 50) attempt(text.substr(0, length));
  std::mt19937 random{12345};
  const std::string interesting = "0129 xX+-.,:\"'<>/{}[]=\t\n\x1b\xff";
  for (int copy = 0; copy < 200; ++copy) {
    std::string changed = text;
    for (int change = 0; change < 1 + copy % 4; ++change) {
      const std::size_t place = random() % changed.size();
      const unsigned kind = static_cast<unsigned>(random() % 4);
      if (kind == 0) changed.erase(place, 1 + random() % 20);
      if (kind == 1) changed.insert(place, 1, interesting[random() % interesting.size()]);
      if (kind == 2) changed[place] = static_cast<char>(random() % 256);
      if (kind == 3) changed[place] = interesting[random() % interesting.size()];
      if (changed.empty()) break;
    }
    attempt(changed);
  }
}

}  // namespace samples
