#pragma once
#include <functional>
#include <span>
#include <vector>

#include "core/system.h"
#include "models/kernels/kernel_form.h"

namespace stepcast::models {

/// A bounded robust least-squares problem in x. `residuals` fills one entry per row; they are
/// errors of logarithms.
struct LeastSquares {
  std::size_t rows = 0;
  std::function<void(std::span<const double> x, std::span<double> residuals)> residuals;
  std::vector<double> start, low, high;
  double huber = 0.1;            ///< residuals beyond this count linearly
  double prior_sigma = 4;        ///< pull of x to `start`: standard deviation in units of x ...
  double prior_residual = 0.05;  ///< ... worth one row of this residual
  int iterations = 60;
  double tolerance = 1e-7;  ///< ends with a step that improves the objective by a smaller share
};

/// Levenberg-Marquardt with Huber reweighting and clamping to the bounds; deterministic. Returns
/// the best x seen.
std::vector<double> minimise(const LeastSquares& problem);

/// A model of a form whose constants, searched for in their logarithms, bring `time(row,
/// constants)` nearest to `measured`: from those of `like`, if it is a model of the form, else
/// where the form says. `pull` is that of FitOptions.
FittedModel search_constants(
    std::string_view form, std::vector<Constant> constants, const FittedModel* like,
    std::span<const double> measured, double pull,
    const std::function<double(std::size_t row, std::span<const double> constants)>& time);

}  // namespace stepcast::models
