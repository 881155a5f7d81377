// A picture as a value made of boxes, lines, areas and words, and its text as SVG.
// Not: its contents (report/gantt.hpp, report/chart.hpp).
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/report/formatters.hpp"

namespace tawpipe::inline v0 {

enum class TextAnchor : std::uint8_t { start, middle, end };

/// One mark of a picture. Lengths are points, y grows downwards.
struct Shape {
  enum class Kind : std::uint8_t {
    box,    ///< points: x, y, width, height
    line,   ///< points: x, y of each corner
    area,   ///< the same, closed and filled
    words,  ///< points: x, y of the baseline
  };
  Kind kind = Kind::box;
  std::vector<double> points{};
  std::string color{};  ///< "#rrggbb": of the fill, the line or the letters
  double size = 0;      ///< the width of a line, or the height of letters
  TextAnchor anchor = TextAnchor::start;
  bool dashed = false;   ///< a line
  bool upright = false;  ///< words that run upwards
  std::string text{};    ///< words
  std::string data{};    ///< the meaning of a box, for programs that read the picture
};

/// The colour of words without their own.
inline constexpr std::string_view ink = "#1a1a1a";

/// A picture on white.
struct Drawing {
  std::string title{};
  double width = 0;
  double height = 0;
  std::vector<Shape> shapes{};

  void box(double x, double y, double w, double h, std::string_view color, std::string data = {}) {
    add({.kind = Shape::Kind::box, .points = {x, y, w, h}, .color = std::string{color}, .data = std::move(data)});
  }
  void line(std::vector<double> points, std::string_view color, double wide = 1, bool dashed = false) {
    add({.kind = Shape::Kind::line, .points = std::move(points), .color = std::string{color}, .size = wide, .dashed = dashed});
  }
  void area(std::vector<double> points, std::string_view color) {
    add({.kind = Shape::Kind::area, .points = std::move(points), .color = std::string{color}});
  }
  void words(double x, double y, std::string text, double size = 11, TextAnchor anchor = TextAnchor::start,
             std::string_view color = ink) {
    add({.kind = Shape::Kind::words,
         .points = {x, y},
         .color = std::string{color},
         .size = size,
         .anchor = anchor,
         .text = std::move(text)});
  }
  void add(Shape shape) { shapes.push_back(std::move(shape)); }
};

namespace detail {

/// At most two decimal digits, without trailing zeros.
inline std::string svg_number(double value) {
  std::string text = fmt::format("{:.2f}", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

/// Text between tags and in attributes; what XML cannot hold becomes U+FFFD.
inline std::string xml_text(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t start = at;
    const char32_t code = next_code_point(text, at);
    if (code == '<') {
      out += "&lt;";
    } else if (code == '>') {
      out += "&gt;";
    } else if (code == '&') {
      out += "&amp;";
    } else if (code == '"') {
      out += "&quot;";
    } else if (code == 0xFFFD || (code < 0x20 && code != '\t' && code != '\n') || code == 0xFFFE || code == 0xFFFF) {
      out += "\xEF\xBF\xBD";
    } else {
      out += text.substr(start, at - start);
    }
  }
  return out;
}

}  // namespace detail

/// The picture as an SVG file, one shape a line. The same picture gives the same bytes. A box's
/// data is in `data-of`.
inline std::string svg(const Drawing& drawing) {
  const auto n = detail::svg_number;
  std::string out;
  const auto add = [&]<class... Values>(fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(out), format, std::forward<Values>(values)...);
  };
  add("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"Helvetica, Arial, sans-serif\" fill=\"#1a1a1a\">\n<title>{2}</title>\n<rect width=\"{0}\" height=\"{1}\" "
      "fill=\"#ffffff\"/>\n",
      n(drawing.width), n(drawing.height), detail::xml_text(drawing.title));
  for (const Shape& shape : drawing.shapes) {
    const auto corners = [&] {
      std::string text;
      for (std::size_t i = 0; i + 1 < shape.points.size(); i += 2) {
        text += fmt::format("{}{},{}", i > 0 ? " " : "", n(shape.points[i]), n(shape.points[i + 1]));
      }
      return text;
    };
    switch (shape.kind) {
      case Shape::Kind::box:
        add("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"", n(shape.points[0]), n(shape.points[1]),
            n(shape.points[2]), n(shape.points[3]), shape.color);
        if (!shape.data.empty()) add(" data-of=\"{}\"", detail::xml_text(shape.data));
        break;
      case Shape::Kind::line:
        add("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\"", corners(), shape.color, n(shape.size));
        if (shape.dashed) add(" stroke-dasharray=\"5 3\"");
        break;
      case Shape::Kind::area:
        add("<polygon points=\"{}\" fill=\"{}\"", corners(), shape.color);
        break;
      case Shape::Kind::words:
        add("<text x=\"{}\" y=\"{}\" font-size=\"{}\"", n(shape.points[0]), n(shape.points[1]), n(shape.size));
        if (shape.color != ink) add(" fill=\"{}\"", shape.color);
        if (shape.anchor != TextAnchor::start) add(" text-anchor=\"{}\"", shape.anchor == TextAnchor::middle ? "middle" : "end");
        if (shape.upright) add(" transform=\"rotate(-90 {} {})\"", n(shape.points[0]), n(shape.points[1]));
        add(">{}</text>\n", detail::xml_text(shape.text));
        continue;
    }
    add("/>\n");
  }
  return out + "</svg>\n";
}

}  // namespace tawpipe
