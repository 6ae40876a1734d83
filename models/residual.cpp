#include "models/residual.h"

#include <fmt/format.h>

#include <Eigen/Cholesky>
#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace stepcast::models {
namespace {

/// A plain loop: the first prediction of a shape calls it once per point.
double distance(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += (a[i] - b[i]) * (a[i] - b[i]);
  }
  return std::sqrt(sum);
}

double constant(const FittedModel& model, const std::string& name, double otherwise) {
  const auto it = model.constants.find(name);
  return it == model.constants.end() ? otherwise : it->second;
}

/// K + noise I.
Eigen::MatrixXd covariance(const std::vector<FittedModel::Point>& points, double scale,
                           double noise) {
  const auto n = static_cast<Eigen::Index>(points.size());
  Eigen::MatrixXd k(n, n);
  for (Eigen::Index i = 0; i < n; ++i) {
    const auto& a = points[static_cast<std::size_t>(i)];
    STEPCAST_CHECK(a.features.size() == points[0].features.size(),
                   "residual points of unequal dimension");
    for (Eigen::Index j = 0; j <= i; ++j) {
      k(i, j) = k(j, i) =
          std::exp(-distance(a.features, points[static_cast<std::size_t>(j)].features) / scale);
    }
    k(i, i) += std::max(noise, 1e-6);
  }
  return k;
}

std::string knot_name(std::size_t i) { return fmt::format("residual_knot_{:02}", i); }

}  // namespace

std::vector<double> residual_knots(const FittedModel& model) {
  std::vector<double> knots;
  for (auto it = model.constants.find(knot_name(0)); it != model.constants.end();
       it = model.constants.find(knot_name(knots.size()))) {
    knots.push_back(it->second);
  }
  return knots;
}

void set_residual_knots(FittedModel& model, const std::vector<double>& knots) {
  for (std::size_t i = 0; i < knots.size(); ++i) {
    model.constants[knot_name(i)] = knots[i];
  }
}

ResidualSurface::ResidualSurface(const FittedModel& model)
    : ResidualSurface(model.points, constant(model, "residual_scale", 1),
                      constant(model, "residual_noise", 0.1), residual_knots(model)) {}

ResidualSurface::ResidualSurface(std::vector<FittedModel::Point> points, double scale, double noise,
                                 std::vector<double> knots)
    : points_(std::move(points)), knots_(std::move(knots)), scale_(scale), noise_(noise) {
  const auto n = static_cast<Eigen::Index>(points_.size());
  if (n == 0) {
    return;
  }
  const std::size_t values = std::max<std::size_t>(1, knots_.size());
  for (FittedModel::Point& p : points_) {
    STEPCAST_CHECK(p.features.size() + 1 > values, "a curve has no value for each of {} knots",
                   values);
    p.features.push_back(p.log_ratio);
  }
  Eigen::MatrixXd r(n, static_cast<Eigen::Index>(values));
  for (Eigen::Index i = 0; i < n; ++i) {
    std::vector<double>& features = points_[static_cast<std::size_t>(i)].features;
    const std::size_t place = features.size() - values;
    for (std::size_t j = 0; j < values; ++j) {
      r(i, static_cast<Eigen::Index>(j)) = features[place + j];
    }
    features.resize(place);
  }
  const Eigen::MatrixXd w = covariance(points_, scale_, noise_).llt().solve(r);
  weights_.assign(w.data(), w.data() + w.size());  // knot by knot
}

double ResidualSurface::at(std::span<const double> coordinates) const {
  if (!knots_.empty() && !points_.empty()) {
    return along_curves(coordinates);
  }
  double sum = 0;
  for (std::size_t i = 0; i < points_.size(); ++i) {
    STEPCAST_CHECK(points_[i].features.size() == coordinates.size(),
                   "residual point and op have other coordinates");
    sum += weights_[i] * std::exp(-distance(points_[i].features, coordinates) / scale_);
  }
  return sum;
}

double ResidualSurface::along_curves(std::span<const double> coordinates) const {
  const double u = coordinates.front();
  const std::span<const double> place = coordinates.subspan(1);
  STEPCAST_CHECK(points_.front().features.size() == place.size(),
                 "residual curve and op have other coordinates");
  const double within = std::clamp(u, knots_.front(), knots_.back());
  const auto above = std::lower_bound(knots_.begin() + 1, knots_.end() - 1, within);
  const auto j = static_cast<std::size_t>(above - knots_.begin());
  const double share = (within - knots_[j - 1]) / (knots_[j] - knots_[j - 1]);
  const double* before = weights_.data() + (j - 1) * points_.size();
  const double* after = before + points_.size();
  double sum = 0;
  for (std::size_t i = 0; i < points_.size(); ++i) {
    const double near = std::exp(-distance(points_[i].features, place) / scale_);
    sum += near * ((1 - share) * before[i] + share * after[i]);
  }
  return sum * std::exp(-std::abs(u - within) / scale_);
}

std::vector<double> ResidualSurface::leave_one_out() const {
  STEPCAST_CHECK(knots_.empty(), "no leave-one-out of curves");
  std::vector<double> out(points_.size());
  if (out.empty()) {
    return out;
  }
  const auto n = static_cast<Eigen::Index>(points_.size());
  const Eigen::MatrixXd inverse =
      covariance(points_, scale_, noise_).llt().solve(Eigen::MatrixXd::Identity(n, n));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto at = static_cast<Eigen::Index>(i);
    out[i] = weights_[i] / inverse(at, at);
  }
  return out;
}

}  // namespace stepcast::models
