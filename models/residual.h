#pragma once
#include <span>
#include <vector>

#include "core/system.h"

namespace stepcast::models {

/// Knots of a model whose points are curves (see ResidualSurface); none where they are points.
std::vector<double> residual_knots(const FittedModel& model);
void set_residual_knots(FittedModel& model, const std::vector<double>& knots);

/// Remainder of calibration points after an analytical form, as a surface over the form's
/// coordinates.
///
///   r(x) = k(x)^T (K + noise I)^-1 r,   k(x, y) = exp(-|x - y| / scale)
///
/// A Gaussian process of mean zero with an exponential kernel: between points it interpolates
/// nearly linearly, away from them it fades to 0, the form alone. `scale` (in coordinates: natural
/// logarithms) and `noise` (variance ratio) are constants "residual_scale" and "residual_noise" of
/// the fitted model.
///
/// A model with constants "residual_knot_00", "residual_knot_01", ... (ascending places of the
/// first coordinate u) holds curves over u instead of points: [the other coordinates, ...,
/// ln(measured / analytical) at each knot]. The surface is then such a process in the other
/// coordinates at every knot, linear in u between two of them, exp(-distance / scale) of the end
/// beyond. Matrix products of one (n, k) at many m are such curves: their number, not that of the
/// rows, is what a prediction and its fit cost. Source: Rasmussen & Williams, "Gaussian Processes
/// for Machine Learning", 2006, eq. 2.25.
class ResidualSurface {
 public:
  ResidualSurface() = default;
  explicit ResidualSurface(const FittedModel& model);
  ResidualSurface(std::vector<FittedModel::Point> points, double scale, double noise,
                  std::vector<double> knots = {});
  [[nodiscard]] double at(
      std::span<const double> coordinates) const;  ///< ln(measured / analytical), 0 without points
  [[nodiscard]] bool empty() const { return points_.empty(); }
  /// Leave-one-out residuals r_i - r_without_i(x_i) in closed form (eq. 5.12), O(n^3). Valid: not
  /// of curves.
  [[nodiscard]] std::vector<double> leave_one_out() const;

 private:
  [[nodiscard]] double along_curves(std::span<const double> coordinates) const;

  std::vector<FittedModel::Point> points_;
  std::vector<double> knots_;
  std::vector<double> weights_;  ///< of each point, or of each curve at each knot
  double scale_ = 1;
  double noise_ = 0;
};

}  // namespace stepcast::models
