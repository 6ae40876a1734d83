#pragma once
#include <span>
#include <vector>

#include "core/system.h"

namespace stepcast::models {

/// What is left of calibration points after an analytical form, as a surface over the form's
/// coordinates.
///
///   r(x) = k(x)^T (K + noise I)^-1 r,   k(x, y) = exp(-|x - y| / scale)
///
/// A Gaussian process of mean zero with an exponential kernel: between points it interpolates
/// nearly linearly, away from them it fades to 0, the form alone. `scale` (in coordinates: natural
/// logarithms) and `noise` (variance ratio) are constants "residual_scale" and "residual_noise" of
/// the fitted model. Source: Rasmussen & Williams, "Gaussian Processes for Machine Learning", 2006,
/// eq. 2.25.
class ResidualSurface {
 public:
  ResidualSurface() = default;
  explicit ResidualSurface(const FittedModel& model);
  ResidualSurface(std::vector<FittedModel::Point> points, double scale, double noise);
  [[nodiscard]] double at(
      std::span<const double> coordinates) const;  ///< ln(measured / analytical), 0 without points
  [[nodiscard]] bool empty() const { return points_.empty(); }
  /// Leave-one-out residuals r_i - r_without_i(x_i) in closed form (eq. 5.12).
  [[nodiscard]] std::vector<double> leave_one_out() const;

 private:
  std::vector<FittedModel::Point> points_;
  std::vector<double> weights_;
  std::vector<double> inverse_diagonal_;
  double scale_ = 1;
};

/// Calibration points of one collective as a curve in bytes for each group size: log time is
/// interpolated linearly in log bytes between points whose times are made non-decreasing, so the
/// result is monotone and continuous; beyond the ends the form continues, scaled. Points have
/// features {log_bytes, log_size}.
class CollectiveCurves {
 public:
  CollectiveCurves() = default;
  explicit CollectiveCurves(const FittedModel& model);
  /// ln(corrected / analytical) at `log_bytes` for the group size nearest to `log_size`;
  /// `analytical(log_bytes)` = ln of the form's time.
  template <typename Analytical>
  [[nodiscard]] double at(double log_bytes, double log_size, Analytical analytical) const;
  [[nodiscard]] bool empty() const { return curves_.empty(); }

 private:
  struct Knot {
    double log_bytes, log_ratio;
  };
  struct Curve {
    double log_size;
    std::vector<Knot> knots;
  };
  [[nodiscard]] const Curve& nearest(double log_size) const;
  std::vector<Curve> curves_;
};

template <typename Analytical>
double CollectiveCurves::at(double log_bytes, double log_size, Analytical analytical) const {
  if (curves_.empty()) {
    return 0;
  }
  const std::vector<Knot>& knots = nearest(log_size).knots;
  double previous = 0;  // running maximum of ln time: isotonic without a second pass
  for (std::size_t i = 0; i < knots.size(); ++i) {
    double here = analytical(knots[i].log_bytes) + knots[i].log_ratio;
    here = i == 0 ? here : here > previous ? here : previous;
    if (log_bytes <= knots[i].log_bytes) {
      if (i == 0) {
        return here - analytical(knots[0].log_bytes);
      }
      const double share =
          (log_bytes - knots[i - 1].log_bytes) / (knots[i].log_bytes - knots[i - 1].log_bytes);
      return previous + share * (here - previous) - analytical(log_bytes);
    }
    previous = here;
  }
  return previous - analytical(knots.back().log_bytes);
}

}  // namespace stepcast::models
