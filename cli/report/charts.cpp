#include "cli/report/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "cli/report/svg.h"

namespace stepcast::cli::report {
namespace {

constexpr double kWidth = 960, kPlot = 560, kRow = 22, kTop = 34, kLegend = 20;
constexpr double kLabels = kWidth - kPlot - 100;  ///< left of bars; values stand right of them
constexpr std::size_t kLabelLetters = 42;

std::string opened(double height) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" font-size=\"12\">\n",
      kWidth, height);
}

const char* colour(std::size_t i) { return svg::kColours.at(i % svg::kColours.size()); }

/// Bytes of UTF-8 that continue a letter are not letters.
std::string cut(const std::string& label) {
  std::size_t letters = 0;
  for (std::size_t i = 0; i < label.size(); ++i) {
    const bool begins = (static_cast<unsigned char>(label[i]) & 0xC0) != 0x80;
    if (begins && ++letters > kLabelLetters) {
      return label.substr(0, i) + "...";
    }
  }
  return label;
}

std::string legend(const std::vector<std::string>& names, double y, const std::string& mark) {
  std::string out;
  double x = kLabels;
  for (std::size_t i = 0; i < names.size(); ++i) {
    out += svg::bar(x, y - 10, 10, 10, colour(i), "");
    out += svg::text(x + 14, y, names[i], "start");
    x += 26 + 6.6 * static_cast<double>(names[i].size());
  }
  if (!mark.empty()) {
    out += svg::line(x + 4, y - 12, x + 4, y + 2, svg::kText);
    out += svg::text(x + 12, y, mark, "start");
  }
  return out;
}

double total(const BarChart::Row& row) {
  return std::accumulate(row.parts.begin(), row.parts.end(), 0.0);
}

/// A round number at or above v: 1, 2, 2.5, 5 times a power of ten, of the unit that v is shown in.
double round_up(double v, double thousand) {
  const double unit = std::pow(thousand, std::floor(std::log(v) / std::log(thousand)));
  const double decade = unit * std::pow(10, std::floor(std::log10(v / unit)));
  for (const double step : {1.0, 2.0, 2.5, 5.0}) {
    if (step * decade >= v * (1 - 1e-9)) {
      return step * decade;
    }
  }
  return 10 * decade;
}

struct Axis {
  const Scale& scale;
  bool logarithmic = false;
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void include(double v) {
    low = std::min(low, v);
    high = std::max(high, v);
  }
  /// To whole ticks; a linear axis of positive values begins at 0.
  void close() {
    if (logarithmic) {
      low = std::pow(10, std::floor(std::log10(low) + 1e-9));
      high = std::pow(10, std::max(std::ceil(std::log10(high) - 1e-9), std::log10(low) + 1));
      return;
    }
    low = std::min(low, 0.0);
    high = std::max(high, 0.0);
    if (high == low) {
      high = low + 1;
    }
  }
  [[nodiscard]] double at(double v) const {
    return logarithmic ? std::log(v / low) / std::log(high / low) : (v - low) / (high - low);
  }
  [[nodiscard]] std::string shown(double v) const { return v == 0 ? "0" : scale.shown(v); }
  [[nodiscard]] std::vector<double> ticks() const {
    std::vector<double> all;
    if (logarithmic) {
      const double decades = std::max(1.0, std::ceil(std::log10(high / low) / 6));
      for (double v = low; v <= high * 1.001; v *= std::pow(10, decades)) {
        all.push_back(v);
      }
      return all;
    }
    const double step = round_up((high - low) / 6, scale.thousand);
    for (double i = std::ceil(low / step); i * step <= high * (1 + 1e-9); ++i) {
      all.push_back(i * step);
    }
    return all;
  }
};

}  // namespace

std::string drawn(const BarChart& chart) {
  if (chart.rows.empty()) {
    return "";
  }
  Axis axis{chart.scale};
  for (const BarChart::Row& row : chart.rows) {
    axis.include(row.from);
    axis.include(row.from + total(row));
    axis.include(row.mark.value_or(row.from));
  }
  axis.close();
  const bool named = chart.parts.size() > 1 || !chart.mark.empty();
  const double top = kTop + (named ? kLegend : 0);
  const double bottom = top + kRow * static_cast<double>(chart.rows.size());
  const auto at = [&](double v) { return kLabels + kPlot * axis.at(v); };
  std::string out = opened(bottom + 26) + svg::text(0, 16, chart.title, "start");
  if (named) {
    const std::vector<std::string> none;
    out += legend(chart.parts.size() > 1 ? chart.parts : none, kTop + 4, chart.mark);
  }
  for (const double v : axis.ticks()) {
    out += svg::line(at(v), top, at(v), bottom, svg::kGrid);
    out += svg::text(at(v), bottom + 16, axis.shown(v));
  }
  double y = top;
  for (const BarChart::Row& row : chart.rows) {
    out += svg::text(kLabels - 8, y + 15, cut(row.label), "end");
    double begin = row.from;
    for (std::size_t p = 0; p < row.parts.size(); ++p) {
      const double end = begin + row.parts[p];
      const std::string name = chart.parts.size() > 1 ? ", " + chart.parts[p] : "";
      const std::string title = fmt::format("{}{}: {}", row.label, name, axis.shown(row.parts[p]));
      const char* fill = row.faint                ? svg::kNoChoice
                         : chart.parts.size() > 1 ? colour(p)
                                                  : colour(0);
      if (chart.parts.size() <= 1 && row.parts[p] < 0 && !row.faint) {
        fill = colour(2);
      }
      out += svg::bar(at(std::min(begin, end)), y + 3, std::abs(at(end) - at(begin)), kRow - 6,
                      fill, title);
      begin = end;
    }
    if (row.mark) {
      out += svg::line(at(*row.mark), y + 1, at(*row.mark), y + kRow - 1, svg::kText);
    }
    const double right = at(std::max(row.from, row.from + total(row)));
    out +=
        svg::text(right + 6, y + 15, row.note.empty() ? axis.shown(total(row)) : row.note, "start");
    y += kRow;
  }
  return out + "</svg>\n";
}

std::string drawn(const ScatterChart& chart) {
  Axis x{chart.x_scale, chart.logarithmic || chart.logarithmic_x};
  Axis y{chart.y_scale, chart.logarithmic};
  for (const ScatterChart::Group& group : chart.groups) {
    for (const ScatterChart::Point& p : group.points) {
      x.include(p.x);
      y.include(p.y);
      if (chart.diagonal) {
        x.include(p.y);
        y.include(p.x);
      }
    }
  }
  if (x.high < x.low) {
    return "";
  }
  x.close();
  y.close();
  constexpr double kLeft = 90, kHeight = 360, kPanel = 560;
  const auto across = [&](double v) { return kLeft + kPanel * x.at(v); };
  const auto down = [&](double v) { return kTop + 16 + kHeight * (1 - y.at(v)); };
  const double bottom = kTop + 16 + kHeight;
  const double lines = static_cast<double>(chart.groups.size());
  std::string out = opened(std::max(bottom + 44, kTop + 16 + 18 * lines + 20)) +
                    svg::text(0, 16, chart.title, "start") +
                    svg::text(kLeft, kTop + 8, chart.y_title, "start") +
                    svg::text(kLeft + kPanel / 2, bottom + 36, chart.x_title);
  for (const double v : x.ticks()) {
    out += svg::line(across(v), kTop + 16, across(v), bottom, svg::kGrid);
    out += svg::text(across(v), bottom + 16, x.shown(v));
  }
  for (const double v : y.ticks()) {
    out += svg::line(kLeft, down(v), kLeft + kPanel, down(v), svg::kGrid);
    out += svg::text(kLeft - 6, down(v) + 4, y.shown(v), "end");
  }
  if (chart.diagonal) {
    out += svg::line(across(x.low), down(x.low), across(x.high), down(x.high), svg::kFaint);
  }
  out += svg::frame(kLeft, kTop + 16, kPanel, kHeight);
  for (std::size_t g = 0; g < chart.groups.size(); ++g) {
    const auto& points = chart.groups[g].points;
    for (std::size_t i = 1; chart.joined && i < points.size(); ++i) {
      out += svg::line(across(points[i - 1].x), down(points[i - 1].y), across(points[i].x),
                       down(points[i].y), colour(g));
    }
    for (const ScatterChart::Point& p : points) {
      out += svg::dot(across(p.x), down(p.y), 3, colour(g), p.filled, p.title);
    }
    const double line = kTop + 28 + 18 * static_cast<double>(g);
    out += svg::dot(kLeft + kPanel + 20, line - 4, 4, colour(g), true, "");
    out += svg::text(kLeft + kPanel + 30, line, cut(chart.groups[g].label), "start");
  }
  return out + "</svg>\n";
}

}  // namespace stepcast::cli::report
