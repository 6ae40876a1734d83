#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/system.h"

namespace stepcast::models {

/// Quantile q of a sample, linear between order statistics; 0 of an empty one.
double quantile(std::vector<double> values, double q);
/// Half the distance between the 16th and 84th percentile.
double robust_sigma(std::vector<double> log_residuals);

/// Coordinates of one place have one key: they agree to four digits.
std::vector<std::int64_t> place_key(const std::vector<double>& coordinates);

/// At most `limit` of the points, by farthest-point selection over the first `coordinates`.
std::vector<FittedModel::Point> spread(const std::vector<FittedModel::Point>& points,
                                       std::size_t limit, std::size_t coordinates);

/// Points at the same coordinates become one with their median; at most `limit` remain, spread by
/// farthest-point selection.
std::vector<FittedModel::Point> thin_points(std::vector<FittedModel::Point> points,
                                            std::size_t limit);

/// Chooses scale and noise of the residual surface by its leave-one-out error and stores points,
/// "residual_scale" and "residual_noise" in the model; stores nothing when the surface does not
/// beat the form alone.
void add_residual_surface(FittedModel& model, std::vector<FittedModel::Point> points);

/// The same from many more rows than points: the values at `sites` are those of the smooth surface
/// through all rows, so each point speaks for its neighbourhood and not for one noisy row.
///
///   minimise over w   sum over rows Huber(r_i - k(x_i)^T w) + ridge w^T K w
///   value at site j = (K w)_j
///
/// (subset of regressors; Rasmussen & Williams, section 8.3.1). The scale is chosen on a quarter of
/// the configurations that is left out meanwhile; stores nothing where the surface does not beat
/// the form alone there. Returns its mean |residual| on that quarter; infinity if it stores
/// nothing.
double add_smoothed_surface(FittedModel& model, const std::vector<FittedModel::Point>& sites,
                            const std::vector<FittedModel::Point>& rows,
                            const std::vector<std::int64_t>& configurations);

/// The same as curves over the first coordinate, for rows that sweep it at many places of the
/// others: medians of the rows near each knot, smoothed along the curve by its own Gaussian
/// process. At most `limit` curves, spread by farthest-point selection. Scale and noise are chosen
/// on a quarter of the configurations left out. Returns false and stores nothing where fewer than
/// half of the places are swept, or where curves do not beat the form alone on that quarter.
bool add_curves(FittedModel& model, const std::vector<FittedModel::Point>& rows,
                const std::vector<std::int64_t>& configurations, std::size_t limit);

/// The surface of at most `limit` points that does best on a quarter of the configurations left
/// out: through rows picked by thin_points, or, where rows are many more, smoothed over all of
/// them.
void add_surface(FittedModel& model, const std::vector<FittedModel::Point>& rows,
                 const std::vector<std::int64_t>& configurations, std::size_t limit);

/// Fold of each row: rows of one configuration share a fold; rows without one get their own.
/// Deterministic. Each `draw` deals anew: what a fit leaves out to choose by must not be the fold
/// its caller left out already, of which nothing remains.
std::vector<std::int64_t> folds_of(const std::vector<std::int64_t>& configurations,
                                   std::int64_t folds, std::uint64_t draw = 0);
inline constexpr std::uint64_t kInnerDraw = 1;  ///< of folds inside a fit

/// The rows at these places.
template <class Row>
std::vector<Row> rows_at(const std::vector<Row>& rows, const std::vector<std::size_t>& places) {
  std::vector<Row> out;
  for (const std::size_t i : places) {
    out.push_back(rows[i]);
  }
  return out;
}

/// Sets error and log_sigma of a model: of the times that `predict` gives rows held out, fold by
/// fold, of a model of those kept, where at least `fewest` are; of all rows by a model of all where
/// `folds` is 0. Folds run side by side.
void set_error(
    FittedModel& model, const std::vector<double>& measured,
    const std::vector<std::int64_t>& configurations, std::int64_t folds, std::size_t fewest,
    const std::function<std::vector<double>(const std::vector<std::size_t>& kept,
                                            const std::vector<std::size_t>& held)>& predict);

}  // namespace stepcast::models
