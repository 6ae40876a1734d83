#include "models/residual.h"

#include <Eigen/Cholesky>
#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace stepcast::models {
namespace {

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

}  // namespace

ResidualSurface::ResidualSurface(const FittedModel& model)
    : ResidualSurface(model.points, constant(model, "residual_scale", 1),
                      constant(model, "residual_noise", 0.1)) {}

ResidualSurface::ResidualSurface(std::vector<FittedModel::Point> points, double scale, double noise)
    : points_(std::move(points)), scale_(scale) {
  const auto n = static_cast<Eigen::Index>(points_.size());
  if (n == 0) {
    return;
  }
  Eigen::MatrixXd k(n, n);
  Eigen::VectorXd r(n);
  for (Eigen::Index i = 0; i < n; ++i) {
    const auto& a = points_[static_cast<std::size_t>(i)];
    STEPCAST_CHECK(a.features.size() == points_[0].features.size(),
                   "residual points of unequal dimension");
    r(i) = a.log_ratio;
    for (Eigen::Index j = 0; j <= i; ++j) {
      k(i, j) = k(j, i) =
          std::exp(-distance(a.features, points_[static_cast<std::size_t>(j)].features) / scale_);
    }
    k(i, i) += std::max(noise, 1e-6);
  }
  const Eigen::MatrixXd inverse = k.llt().solve(Eigen::MatrixXd::Identity(n, n));
  const Eigen::VectorXd w = inverse * r;
  weights_.assign(w.data(), w.data() + n);
  const Eigen::VectorXd diagonal = inverse.diagonal();
  inverse_diagonal_.assign(diagonal.data(), diagonal.data() + n);
}

double ResidualSurface::at(std::span<const double> coordinates) const {
  double sum = 0;
  for (std::size_t i = 0; i < points_.size(); ++i) {
    STEPCAST_CHECK(points_[i].features.size() == coordinates.size(),
                   "residual point and op have other coordinates");
    sum += weights_[i] * std::exp(-distance(points_[i].features, coordinates) / scale_);
  }
  return sum;
}

std::vector<double> ResidualSurface::leave_one_out() const {
  std::vector<double> out(points_.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = weights_[i] / inverse_diagonal_[i];
  }
  return out;
}

}  // namespace stepcast::models
