// The library's version: the one place that holds it; CMake reads it from here.
// Not: a changelog (CHANGELOG.md).
#pragma once

#define TAWPIPE_VERSION_MAJOR 0
#define TAWPIPE_VERSION_MINOR 1
#define TAWPIPE_VERSION_PATCH 0

namespace tawpipe::inline v0 {

/// The version as text, e.g. for `tawpipe --version`.
inline constexpr const char* version = "0.1.0";

}  // namespace tawpipe
