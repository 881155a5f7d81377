// Values over a range as a picture: lines with markers, or only points, on linear or logarithmic
// axes.
// Not: the charts of a page (detail/page_common.hpp), nor the file's bytes (report/drawing.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/report/colors.hpp"
#include "tawpipe/report/drawing.hpp"

namespace tawpipe::inline v0 {

struct ChartAxis {
  std::string name;
  std::string (*tell)(double) = nullptr;  ///< a value as text; null: the axis has no numbers
  bool logarithmic = false;               ///< only if all values are above 0
  bool from_zero = false;
  /// the unit in which ticks are round: 1/8 for bandwidths in bits
  double unit = 1;
  /// the values are indices into this list; none: they are numbers
  std::vector<std::string> names{};
};

struct ChartSeries {
  std::string name;
  /// x, y; values that are not numbers are left out
  std::vector<std::pair<double, double>> points;
  bool joined = true;  ///< connected by a line
};

struct Chart {
  std::string title;
  ChartAxis x;
  ChartAxis y;
  std::vector<ChartSeries> series;
  bool diagonal = false;  ///< a line where x and y are the same
};

namespace detail {

/// The position of a value between both ends of an axis.
class ChartScale {
 public:
  ChartScale(const ChartAxis& axis, const std::vector<double>& values, double from, double to)
      : axis_{axis},
        from_{from},
        to_{to},
        low_{*std::min_element(values.begin(), values.end())},
        high_{*std::max_element(values.begin(), values.end())},
        logarithmic_{axis.logarithmic && low_ > 0} {
    if (!axis.names.empty()) {
      low_ = -0.5;
      high_ = static_cast<double>(axis.names.size()) - 0.5;
    } else if (logarithmic_) {
      const double room = high_ > low_ ? std::pow(high_ / low_, 0.04) : 2;
      low_ /= room;
      high_ *= room;
    } else {
      if (axis.from_zero) low_ = std::min(low_, 0.0);
      const double room = high_ > low_ ? (high_ - low_) * 0.05 : std::max(std::abs(low_), 1.0) * 0.5;
      if (!(axis.from_zero && low_ >= 0)) low_ -= room;
      high_ += room;
    }
  }
  double operator()(double value) const {
    const double part = logarithmic_ ? std::log(value / low_) / std::log(high_ / low_) : (value - low_) / (high_ - low_);
    return from_ + part * (to_ - from_);
  }
  double low() const { return low_; }
  double high() const { return high_; }

  /// Round values, with their text.
  std::vector<std::pair<double, std::string>> ticks() const {
    std::vector<std::pair<double, std::string>> found;
    if (!axis_.names.empty()) {
      for (std::size_t i = 0; i < axis_.names.size(); ++i) found.emplace_back(static_cast<double>(i), axis_.names[i]);
      return found;
    }
    const double low = low_ / axis_.unit;
    const double high = high_ / axis_.unit;
    const auto add = [&](double at) {
      if (at >= low * (1 - 1e-9) && at <= high * (1 + 1e-9)) found.emplace_back(at * axis_.unit, axis_.tell(at * axis_.unit));
    };
    if (logarithmic_) {
      const bool fine = std::log10(high / low) < 2.5;
      for (int power = static_cast<int>(std::floor(std::log10(low))); std::pow(10, power) <= high; ++power) {
        for (const double n : {1.0, 2.0, 5.0}) {
          if (fine || n < 1.5) add(n * std::pow(10, power));
        }
      }
      return found;
    }
    const double rough = std::pow(10, std::floor(std::log10((high - low) / 4)));
    double step = rough;
    for (const double n : {1.0, 2.0, 5.0, 10.0}) {
      step = n * rough;
      if ((high - low) / step <= 6) break;
    }
    for (double i = std::ceil(low / step - 1e-9); i * step <= high * (1 + 1e-9); ++i) add(i * step);
    return found;
  }

 private:
  const ChartAxis& axis_;
  double from_;
  double to_;
  double low_;
  double high_;
  bool logarithmic_;
};

/// Eight markers that differ in form, around a point.
inline std::vector<double> marker(std::size_t kind, double x, double y) {
  std::vector<double> form;
  switch (kind % 8) {
    case 0:
      for (int i = 0; i < 12; ++i) form.insert(form.end(), {4 * std::cos(i * 0.5235987756), 4 * std::sin(i * 0.5235987756)});
      break;
    case 1:
      form = {-4, -4, 4, -4, 4, 4, -4, 4};
      break;
    case 2:
      form = {0, -5, 5, 4, -5, 4};
      break;
    case 3:
      form = {0, -5.5, 5.5, 0, 0, 5.5, -5.5, 0};
      break;
    case 4:
      form = {0, 5, 5, -4, -5, -4};
      break;
    case 5:
      form = {-1.5, -5, 1.5, -5, 1.5, -1.5, 5, -1.5, 5, 1.5, 1.5, 1.5, 1.5, 5, -1.5, 5, -1.5, 1.5, -5, 1.5, -5, -1.5, -1.5, -1.5};
      break;
    case 6:
      form = {-5, -2.5, 5, -2.5, 5, 2.5, -5, 2.5};
      break;
    default:
      form = {-2.5, -5, 2.5, -5, 2.5, 5, -2.5, 5};
  }
  for (std::size_t i = 0; i < form.size(); i += 2) {
    form[i] += x;
    form[i + 1] += y;
  }
  return form;
}

}  // namespace detail

/// The chart as a picture. @throws InputError  if there is no point to draw.
inline Drawing draw(const Chart& chart) {
  constexpr double left = 84;
  constexpr double right = 20;
  constexpr double top = 34;
  constexpr double width = 640;
  constexpr double height = 320;
  std::vector<double> xs;
  std::vector<double> ys;
  for (const ChartSeries& one : chart.series) {
    for (const auto& [x, y] : one.points) {
      if (!std::isfinite(x) || !std::isfinite(y)) continue;
      xs.push_back(x);
      ys.push_back(y);
    }
  }
  if (xs.empty()) throw InputError("there is nothing to draw: no point of the chart is possible");
  if (chart.diagonal) {
    xs.insert(xs.end(), ys.begin(), ys.end());
    ys = xs;
  }
  const detail::ChartScale x{chart.x, xs, left, left + width};
  const detail::ChartScale y{chart.y, ys, top + height, top};
  Drawing picture{.title = chart.title};
  picture.words(left, 20, detail::printable(chart.title), 13);
  for (const auto& [at, text] : y.ticks()) {
    picture.line({left, y(at), left + width, y(at)}, "#d5d8dd");
    picture.words(left - 6, y(at) + 4, detail::printable(text), 11, TextAnchor::end, "#5c6066");
  }
  const auto across = x.ticks();
  const std::size_t each = (across.size() + 8) / 9;
  for (std::size_t i = 0; i < across.size(); i += std::max<std::size_t>(each, 1)) {
    const double at = x(across[i].first);
    picture.line({at, top, at, top + height}, "#d5d8dd");
    picture.words(at, top + height + 16, detail::printable(across[i].second), 11, TextAnchor::middle, "#5c6066");
  }
  picture.line({left, top, left, top + height, left + width, top + height}, "#5c6066");
  picture.words(left + width / 2, top + height + 36, detail::printable(chart.x.name), 11, TextAnchor::middle);
  picture.add({.kind = Shape::Kind::words,
               .points = {16, top + height / 2},
               .color = std::string{ink},
               .size = 11,
               .anchor = TextAnchor::middle,
               .upright = true,
               .text = detail::printable(chart.y.name)});
  if (chart.diagonal) {
    const double low = std::max(x.low(), y.low());
    const double high = std::min(x.high(), y.high());
    picture.line({x(low), y(low), x(high), y(high)}, "#5c6066", 1, true);
  }
  double key = left;
  double line = top + height + 58;
  for (std::size_t s = 0; s < chart.series.size(); ++s) {
    const ChartSeries& one = chart.series[s];
    const std::string_view color = series_colors[s % series_colors.size()];
    std::vector<double> corners;
    for (const auto& [px, py] : one.points) {
      if (std::isfinite(px) && std::isfinite(py)) corners.insert(corners.end(), {x(px), y(py)});
    }
    if (one.joined && corners.size() > 2) picture.line(corners, color, 1.8, s % 2 == 1);
    for (std::size_t i = 0; i < corners.size(); i += 2) picture.area(detail::marker(s, corners[i], corners[i + 1]), color);
    const double wide = 34 + 6.2 * static_cast<double>(display_width(one.name));
    if (key > left && key + wide > left + width) {
      key = left;
      line += 18;
    }
    picture.area(detail::marker(s, key + 6, line - 4), color);
    picture.words(key + 16, line, detail::printable(one.name));
    key += wide;
  }
  picture.width = left + width + right;
  picture.height = line + 14;
  return picture;
}

}  // namespace tawpipe
