// A picture as a file: SVG, or PNG with Cairo, which is loaded on demand.
// Not: its contents (tawpipe/report/drawing.hpp).
#pragma once

#include <optional>
#include <string>

#include "output_file.hpp"
#include "tawpipe/report/drawing.hpp"

namespace tawpipe::sim {

/// A picture's file, opened before the work so that an unwritable path is detected early.
class PictureFile {
 public:
  /// @param path  "": none; the ending sets the format
  /// @throws InputError  if it ends neither in .svg nor in .png; DeviceError  if Cairo is missing
  /// for a PNG
  PictureFile(const char* flag, const std::string& path);
  explicit operator bool() const { return file_.has_value(); }
  /// @pre *this
  void write(const Drawing& drawing);

 private:
  bool png_ = false;
  std::optional<OutputFile> file_;
};

}  // namespace tawpipe::sim
