// Checks of what the validator finds.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "support/draft.hpp"
#include "tawpipe/verify/validate.hpp"

namespace support {

/// Whether the code is there with these words in one of its findings.
inline void check_finds(const tawpipe::test::Draft& draft, std::string_view code, std::string_view words) {
  const tawpipe::Diagnostics found = tawpipe::validate(draft.make());
  const bool there = std::any_of(found.findings().begin(), found.findings().end(), [&](const tawpipe::Finding& finding) {
    return finding.code == code && finding.message.find(words) != std::string::npos && !finding.help.empty();
  });
  const std::string text = found.text(2);
  CHECK_MESSAGE(there, code, " with '", words, "' is not in:\n", text);
}

}  // namespace support
