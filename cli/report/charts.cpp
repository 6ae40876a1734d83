#include "cli/report/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "cli/report/svg.h"

namespace stepcast::cli::report {
namespace {

constexpr double kRow = 34, kBar = 14;  ///< a line of text with its bar below
constexpr std::size_t kLabelLetters = 46;

std::string in_order(std::size_t i) {
  return std::string(svg::kColours.at(i % svg::kColours.size()));
}
/// The colour that a kind has in all pictures, of the page for browsers too.
std::string colour_of(const BarChart& chart, std::size_t part) {
  return part < chart.kinds.size()
             ? fmt::format("var(--k-{}, {})", chart.kinds[part], in_order(part))
             : in_order(part);
}

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

std::string legend_item(const std::string& name, const std::string& style) {
  return fmt::format("<li><i style=\"{}\"></i>{}</li>", style, svg::escaped(name));
}

std::string figure(const std::string& title, const std::string& legend, double height,
                   const std::string& shapes) {
  return fmt::format(
      "<figure>\n<figcaption>{0}</figcaption>\n{1}<svg xmlns=\"http://www.w3.org/2000/svg\" "
      "role=\"img\" aria-label=\"{0}\" width=\"100%\" height=\"{2:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n{3}</svg>\n</figure>\n",
      svg::escaped(title), legend.empty() ? "" : "<ul class=\"legend\">" + legend + "</ul>\n",
      height, shapes);
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
  /// To whole ticks; a linear axis of positive values begins at 0, or with `near` where they are
  /// far from it.
  void close(bool near = false) {
    if (logarithmic) {
      low = std::pow(10, std::floor(std::log10(low) + 1e-9));
      high = std::pow(10, std::max(std::ceil(std::log10(high) - 1e-9), std::log10(low) + 1));
      return;
    }
    const double room = 0.06 * (high - low);
    const bool far = near && low > 0.4 * high && high - low > 0.02 * high;
    low = far ? low - room : std::min(low, 0.0);
    high = far ? high + room : std::max(high, 0.0);
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
    const double step = round_up((high - low) / 5, scale.thousand);
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
  constexpr double kTop = 4;
  const double bottom = kTop + kRow * static_cast<double>(chart.rows.size());
  const auto at = [&](double v) { return 100 * axis.at(v); };
  std::string legend;
  for (std::size_t p = 0; chart.parts.size() > 1 && p < chart.parts.size(); ++p) {
    legend += legend_item(chart.parts[p], "background:" + colour_of(chart, p));
  }
  if (!chart.mark.empty()) {
    legend += legend_item(chart.mark, "background:var(--text);width:2px");
  }
  std::string out;
  const std::vector<double> ticks = axis.ticks();
  for (const double v : ticks) {
    out += svg::line(at(v), kTop, at(v), bottom, svg::kGrid);
    out += svg::text(at(v), bottom + 14, axis.shown(v),
                     at(v) < 4    ? "start"
                     : at(v) > 92 ? "end"
                                  : "middle");
  }
  double y = kTop;
  for (const BarChart::Row& row : chart.rows) {
    out += svg::text(0, y + 12, cut(row.label), "start");
    out += svg::text(100, y + 12, row.note.empty() ? axis.shown(total(row)) : row.note, "end");
    double begin = row.from;
    for (std::size_t p = 0; p < row.parts.size(); ++p) {
      const double end = begin + row.parts[p];
      const std::string name = chart.parts.size() > 1 ? ", " + chart.parts[p] : "";
      const std::string title = fmt::format("{}{}: {}", row.label, name, axis.shown(row.parts[p]));
      const bool back = chart.parts.size() <= 1 && row.parts[p] < 0;
      const std::string fill = row.faint ? std::string(svg::kNoChoice)
                               : back    ? in_order(2)
                                         : colour_of(chart, p);
      out += svg::bar(at(std::min(begin, end)), y + 16, std::abs(at(end) - at(begin)), kBar, fill,
                      title);
      begin = end;
    }
    if (row.mark) {
      out += svg::line(at(*row.mark), y + 14, at(*row.mark), y + kRow - 2, svg::kText, 2);
    }
    y += kRow;
  }
  return figure(chart.title, legend, bottom + 20, out);
}

std::string drawn(const ScatterChart& chart) {
  Axis x{chart.x_scale, chart.logarithmic || chart.logarithmic_x};
  Axis y{chart.y_scale, chart.logarithmic};
  for (const ScatterChart::Group& group : chart.groups) {
    for (const ScatterChart::Point& p : group.points) {
      x.include(p.x);
      y.include(p.y);
      if (p.between) {
        y.include(p.between->first);
        y.include(p.between->second);
      }
      if (chart.diagonal) {
        x.include(p.y);
        y.include(p.x);
      }
    }
  }
  if (x.high < x.low) {
    return "";
  }
  x.close(true);
  y.close(true);
  constexpr double kLeft = 17, kRight = 97, kTop = 20, kHeight = 300;
  constexpr double kBottom = kTop + kHeight;
  const auto across = [&](double v) { return kLeft + (kRight - kLeft) * x.at(v); };
  const auto down = [&](double v) { return kTop + kHeight * (1 - y.at(v)); };
  std::string out = svg::text(0, 12, chart.y_title, "start") +
                    svg::text((kLeft + kRight) / 2, kBottom + 34, chart.x_title);
  for (const double v : x.ticks()) {
    out += svg::line(across(v), kTop, across(v), kBottom, svg::kGrid);
    out += svg::text(across(v), kBottom + 16, x.shown(v), across(v) > 92 ? "end" : "middle");
  }
  for (const double v : y.ticks()) {
    out += svg::line(kLeft, down(v), kRight, down(v), svg::kGrid);
    out += svg::text(kLeft - 1, down(v) + 4, y.shown(v), "end");
  }
  if (chart.diagonal) {
    out += svg::line(across(x.low), down(x.low), across(x.high), down(x.high), svg::kFaint);
  }
  std::string legend;
  for (std::size_t g = 0; g < chart.groups.size(); ++g) {
    const auto& points = chart.groups[g].points;
    const std::string colour = in_order(g);
    for (std::size_t i = 1; chart.joined && i < points.size(); ++i) {
      out += svg::line(across(points[i - 1].x), down(points[i - 1].y), across(points[i].x),
                       down(points[i].y), colour);
    }
    for (const ScatterChart::Point& p : points) {
      if (p.between) {
        out += svg::line(across(p.x), down(p.between->first), across(p.x), down(p.between->second),
                         colour, 2);
      }
      out += svg::dot(across(p.x), down(p.y), 4, colour, p.filled, p.title);
    }
    if (chart.groups.size() > 1) {
      legend += legend_item(chart.groups[g].label, "background:" + colour);
    }
  }
  return figure(chart.title, legend, kBottom + 42, out);
}

}  // namespace stepcast::cli::report
