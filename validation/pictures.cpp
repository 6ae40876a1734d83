#include "validation/pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "validation/svg.h"

namespace stepcast::validation {
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

/// Counts points of one panel in square cells and draws each cell once, darker with the decades of
/// its count: as many bytes for 30,000 rows as for 3,000.
class Cells {
 public:
  void add(double across, double down) { ++count_[{cell(down), cell(across)}]; }

  /// One path per shade over the panel that begins at `left`; dots are strokes of no length.
  [[nodiscard]] std::string drawn(double left) const {
    constexpr std::array<const char*, 3> kOpacity{"0.4", "0.65", "1"};
    std::array<std::string, 3> paths;
    std::array<std::pair<int, int>, 3> at{};
    for (const auto& [place, count] : count_) {
      const std::size_t shade = count >= 10 ? 2 : count >= 3 ? 1 : 0;
      const auto [y, x] = place;
      paths[shade] += fmt::format("m{} {}h0", x - at[shade].first, y - at[shade].second);
      at[shade] = {x, y};
    }
    std::string out =
        fmt::format("<g transform=\"translate({} {}) scale({})\">\n", left, kTop, kCell);
    for (std::size_t s = 0; s < paths.size(); ++s) {
      if (!paths[s].empty()) {
        out += fmt::format("<path d=\"{}\" stroke-opacity=\"{}\"/>\n", paths[s], kOpacity[s]);
      }
    }
    return out + "</g>\n";
  }

 private:
  static constexpr double kCell = 2;
  static int cell(double share) { return static_cast<int>(std::lround(share * kPanel / kCell)); }
  std::map<std::pair<int, int>, int> count_;
};

}  // namespace

std::string accuracy_picture(const std::string& title, std::span<const ScoredCurve* const> curves) {
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
    Cells times;
    Cells errors;
    for (const ScoredCurve::Point& p : curves[c]->points) {
      const double error = std::clamp(p.predicted / p.measured - 1, -kClip, kClip);
      times.add(time.at(p.measured), 1 - time.at(p.predicted));
      errors.add(size.at(std::max(p.size, 1.0)), 0.5 - error / (2 * kClip));
    }
    out += fmt::format("<g stroke=\"{}\" stroke-width=\"1.5\" stroke-linecap=\"round\">\n", colour);
    out += times.drawn(kLeft) + errors.drawn(right) + "</g>\n";
    const double y = kTop + kPanel + 58 + kLegendLine * static_cast<double>(c);
    out += fmt::format("<circle cx=\"{}\" cy=\"{:.0f}\" r=\"4\" fill=\"{}\"/>\n", kLeft + 4, y - 4,
                       colour);
    out +=
        svg::text(kLeft + 14, y,
                  fmt::format("{} ({} rows)", curves[c]->label, curves[c]->points.size()), "start");
  }
  return out + "</svg>\n";
}

}  // namespace stepcast::validation
