#include "studies/pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "studies/svg.h"

namespace stepcast::studies {
namespace {

constexpr double kPanel = 360, kLeft = 70, kTop = 50, kGap = 90, kLegendLine = 16;

/// A logarithmic axis over whole decades.
struct LogAxis {
  double low = 0, high = 1;  ///< exponents of ten
  void include(double v) {
    const double e = std::log10(v);
    low = empty ? std::floor(e) : std::min(low, std::floor(e));
    high = empty ? std::floor(e) + 1 : std::max(high, std::floor(e) + 1);
    empty = false;
  }
  [[nodiscard]] double at(double v) const { return (std::log10(v) - low) / (high - low); }
  bool empty = true;
};

std::string frame(double left) { return svg::frame(left, kTop, kPanel, kPanel); }

std::string decades_below(const LogAxis& axis, double left) {
  std::string out;
  const auto step = std::max(1.0, std::ceil((axis.high - axis.low) / 8));
  for (double e = axis.low; e <= axis.high; e += step) {
    const double x = left + kPanel * (e - axis.low) / (axis.high - axis.low);
    out += svg::line(x, kTop, x, kTop + kPanel, "#eee");
    out += svg::text(x, kTop + kPanel + 16, fmt::format("1e{:.0f}", e));
  }
  return out;
}

/// Every k-th point, so that about `limit` remain.
void each_drawn(const ScoredCurve& curve, std::size_t limit,
                const std::function<void(const ScoredCurve::Point&)>& draw) {
  const std::size_t step = std::max<std::size_t>(1, (curve.points.size() + limit - 1) / limit);
  for (std::size_t i = 0; i < curve.points.size(); i += step) {
    draw(curve.points[i]);
  }
}

}  // namespace

std::string accuracy_picture(const std::string& title, std::span<const ScoredCurve* const> curves,
                             std::size_t limit) {
  LogAxis time;
  LogAxis size;
  for (const ScoredCurve* curve : curves) {
    for (const ScoredCurve::Point& p : curve->points) {
      time.include(p.measured);
      time.include(p.predicted);
      size.include(std::max(p.size, 1.0));
    }
  }
  constexpr double kClip = 0.5;
  const double right = kLeft + kPanel + kGap;
  const double height = kTop + kPanel + 60 + kLegendLine * static_cast<double>(curves.size());
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      right + kPanel + 20, height);
  out += svg::text(kLeft, 20, title, "start");
  out += decades_below(time, kLeft) + decades_below(size, right);
  const auto step = std::max(1.0, std::ceil((time.high - time.low) / 8));
  for (double e = time.low; e <= time.high; e += step) {
    const double y = kTop + kPanel * (1 - (e - time.low) / (time.high - time.low));
    out += svg::line(kLeft, y, kLeft + kPanel, y, "#eee");
    out += svg::text(kLeft - 6, y + 4, fmt::format("1e{:.0f}", e), "end");
  }
  for (const double error : {-0.5, -0.25, 0.0, 0.25, 0.5}) {
    const double y = kTop + kPanel * (0.5 - error / (2 * kClip));
    out += svg::line(right, y, right + kPanel, y, error == 0 ? "#888" : "#eee");
    out += svg::text(right - 6, y + 4, fmt::format("{:+.0f} %", 100 * error), "end");
  }
  out += svg::line(kLeft, kTop + kPanel, kLeft + kPanel, kTop, "#888");
  out += frame(kLeft) + frame(right);
  out += svg::text(kLeft + kPanel / 2, kTop + kPanel + 34, "measured (s)");
  out += svg::text(kLeft, kTop - 8, "predicted (s)", "start");
  const bool flops = !curves.empty() && (curves.front()->kind == "gemm" ||
                                         curves.front()->kind.rfind("attention", 0) == 0);
  out += svg::text(right + kPanel / 2, kTop + kPanel + 34, flops ? "size (FLOP)" : "size (bytes)");
  out += svg::text(right, kTop - 8, "predicted / measured - 1", "start");
  for (std::size_t c = 0; c < curves.size(); ++c) {
    const char* colour = svg::kColours.at(c % svg::kColours.size());
    out += fmt::format("<g fill=\"{}\" fill-opacity=\"0.45\">\n", colour);
    each_drawn(*curves[c], limit, [&](const ScoredCurve::Point& p) {
      const double error = std::clamp(p.predicted / p.measured - 1, -kClip, kClip);
      out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"1.5\"/>",
                         kLeft + kPanel * time.at(p.measured),
                         kTop + kPanel * (1 - time.at(p.predicted)));
      out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"1.5\"/>\n",
                         right + kPanel * size.at(std::max(p.size, 1.0)),
                         kTop + kPanel * (0.5 - error / (2 * kClip)));
    });
    out += "</g>\n";
    const double y = kTop + kPanel + 58 + kLegendLine * static_cast<double>(c);
    out += fmt::format("<circle cx=\"{}\" cy=\"{:.0f}\" r=\"4\" fill=\"{}\"/>\n", kLeft + 4, y - 4,
                       colour);
    out +=
        svg::text(kLeft + 14, y,
                  fmt::format("{} ({} rows)", curves[c]->label, curves[c]->points.size()), "start");
  }
  return out + "</svg>\n";
}

}  // namespace stepcast::studies
