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

}  // namespace stepcast::models
