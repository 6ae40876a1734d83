#pragma once
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace stepcast::cli::report {

/// How values are written on an axis and under the pointer, and where the ticks are round.
struct Scale {
  std::function<std::string(double)> shown;  ///< human(Seconds) and the like
  double thousand = 1000;                    ///< 1024 for bytes
};

/// Horizontal bars, one row each, made of parts that follow one another: where a step goes, what
/// fills a memory, how plans compare. With `from` a bar hangs between two values: a waterfall.
struct BarChart {
  struct Row {
    std::string label;
    std::vector<double> parts = {};   ///< as many as the chart has; a negative one goes left
    double from = 0;                  ///< where the first part begins
    std::optional<double> mark = {};  ///< a line across the row: a capacity, a bound
    std::string note = "";            ///< behind the bar; the sum of the parts where empty
    bool faint = false;               ///< not a real choice: does not fit
  };
  std::string title;
  std::vector<std::string> parts = {};  ///< names for the legend; one: no legend
  std::vector<std::string> kinds = {};  ///< of the parts, whose colours they have; none: in order
  std::string mark = "";                ///< what the marks are
  std::vector<Row> rows = {};
  Scale scale;
};

/// Points of groups on two axes.
struct ScatterChart {
  struct Point {
    double x = 0, y = 0;
    std::string title;
    bool filled = true;
    std::optional<std::pair<double, double>> between = {};  ///< on the y axis: an interval
  };
  struct Group {
    std::string label;
    std::vector<Point> points = {};
  };
  std::string title, x_title = "", y_title = "";
  std::vector<Group> groups = {};
  Scale x_scale, y_scale;
  bool logarithmic = false;    ///< both axes; all values must be positive then
  bool logarithmic_x = false;  ///< the x axis; its values must be positive then
  bool joined = false;         ///< a line through the points of a group, in their order
  bool diagonal = false;       ///< the line x = y; both axes get the same range
};

/// A <figure> with an inline <svg> as wide as its place: positions across are shares of it, so that
/// letters keep their size on a phone. A chart without rows or points is an empty string.
std::string drawn(const BarChart& chart);
std::string drawn(const ScatterChart& chart);

}  // namespace stepcast::cli::report
