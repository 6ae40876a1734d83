#include <Eigen/Cholesky>
#include <algorithm>
#include <cmath>
#include <map>

#include "models/fit/points.h"
#include "models/residual.h"

namespace stepcast::models {
namespace {

using Points = std::vector<FittedModel::Point>;

constexpr double kKnotGap = 0.1;  ///< rows nearer along the curve share a knot
constexpr std::size_t kFewestKnots = 8;
constexpr std::size_t kFewestCurves = 24;
constexpr double kAlongScale = 1;  ///< of the smoothing along a curve
constexpr double kAlongNoise = 0.1;
constexpr double kAlongHuber = 0.05;     ///< a row further off its neighbours counts less
constexpr std::int64_t kCurveFolds = 4;  ///< a quarter is left out to choose

/// Rows at one place of the coordinates but the first.
struct Sweep {
  std::vector<double> place;
  std::int64_t configuration = -1;
  std::vector<std::vector<double>> at_knot;  ///< log ratios
};

std::vector<double> knots_of(const Points& rows) {
  std::vector<double> all;
  for (const FittedModel::Point& p : rows) {
    all.push_back(p.features.front());
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  std::vector<double> knots;
  for (std::size_t begin = 0; begin < all.size();) {
    std::size_t end = begin;
    double sum = 0;
    while (end < all.size() && all[end] - all[begin] < kKnotGap) {
      sum += all[end++];
    }
    knots.push_back(sum / static_cast<double>(end - begin));
    begin = end;
  }
  return knots;
}

std::vector<Sweep> sweeps_of(const Points& rows, const std::vector<std::int64_t>& configurations,
                             const std::vector<double>& knots) {
  std::map<std::vector<std::int64_t>, Sweep> sweeps;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::vector<double>& f = rows[i].features;
    std::vector<std::int64_t> key;
    for (std::size_t d = 1; d < f.size(); ++d) {
      key.push_back(std::llround(f[d] * 1e4));
    }
    Sweep& sweep = sweeps[key];
    if (sweep.at_knot.empty()) {
      sweep = {{f.begin() + 1, f.end()}, configurations[i], {}};
      sweep.at_knot.resize(knots.size());
    }
    const auto above = std::lower_bound(knots.begin(), knots.end(), f.front());
    auto j = static_cast<std::size_t>(above - knots.begin());
    if (j == knots.size() || (j > 0 && f.front() - knots[j - 1] < knots[j] - f.front())) {
      --j;
    }
    sweep.at_knot[j].push_back(rows[i].log_ratio);
  }
  std::vector<Sweep> out;
  for (auto& [key, sweep] : sweeps) {
    const auto empty = std::count_if(sweep.at_knot.begin(), sweep.at_knot.end(),
                                     [](const auto& values) { return values.empty(); });
    if (2 * static_cast<std::size_t>(empty) <= knots.size()) {
      out.push_back(std::move(sweep));
    }
  }
  return out;
}

/// Smoothed medians of a sweep at all knots: the mean of a Gaussian process given those it has,
/// around their middle, reweighted so that single outliers do not bend it.
std::vector<double> curve_of(const Sweep& sweep, const std::vector<double>& knots) {
  std::vector<std::size_t> known;
  std::vector<double> medians;
  for (std::size_t j = 0; j < knots.size(); ++j) {
    if (!sweep.at_knot[j].empty()) {
      known.push_back(j);
      medians.push_back(quantile(sweep.at_knot[j], 0.5));
    }
  }
  const double middle = quantile(medians, 0.5);
  const auto near = [&](std::size_t a, std::size_t b) {
    return std::exp(-std::abs(knots[a] - knots[b]) / kAlongScale);
  };
  const auto n = static_cast<Eigen::Index>(known.size());
  Eigen::MatrixXd k(n, n);
  Eigen::VectorXd r(n);
  Eigen::VectorXd noise(n);
  for (Eigen::Index a = 0; a < n; ++a) {
    const auto at = static_cast<std::size_t>(a);
    r(a) = medians[at] - middle;
    for (Eigen::Index b = 0; b < n; ++b) {
      k(a, b) = near(known[at], known[static_cast<std::size_t>(b)]);
    }
    noise(a) = kAlongNoise / static_cast<double>(sweep.at_knot[known[at]].size());
  }
  Eigen::VectorXd w;
  Eigen::VectorXd doubt = Eigen::VectorXd::Ones(n);
  for (int round = 0; round < 3; ++round) {
    Eigen::MatrixXd noisy = k;
    noisy.diagonal() += noise.cwiseProduct(doubt);
    w = noisy.llt().solve(r);
    doubt = ((r - k * w).array().abs() / kAlongHuber).max(1.0);
  }
  std::vector<double> curve;
  for (std::size_t j = 0; j < knots.size(); ++j) {
    double sum = middle;
    for (Eigen::Index a = 0; a < n; ++a) {
      sum += w(a) * near(j, known[static_cast<std::size_t>(a)]);
    }
    curve.push_back(std::round(sum * 1e4) / 1e4);  // a hundredth of a percent
  }
  return curve;
}

double surface_error(const ResidualSurface* surface, const Points& rows) {
  double sum = 0;
  for (const FittedModel::Point& p : rows) {
    const double left = p.log_ratio - (surface != nullptr ? surface->at(p.features) : 0);
    sum += std::min(std::abs(left), 1.0);
  }
  return sum / static_cast<double>(rows.size());
}

}  // namespace

bool add_curves(FittedModel& model, const Points& rows,
                const std::vector<std::int64_t>& configurations, std::size_t limit) {
  if (rows.size() < kFewestKnots * kFewestCurves || limit == 0) {
    return false;
  }
  const std::vector<double> knots = knots_of(rows);
  if (knots.size() < kFewestKnots || knots.size() * kFewestCurves > rows.size()) {
    return false;
  }
  std::vector<std::int64_t> of_curves;
  Points curves;
  std::size_t covered = 0;
  for (const Sweep& sweep : sweeps_of(rows, configurations, knots)) {
    of_curves.push_back(sweep.configuration);
    const std::vector<double> values = curve_of(sweep, knots);
    FittedModel::Point curve{sweep.place, values.back()};
    curve.features.insert(curve.features.end(), values.begin(), values.end() - 1);
    curves.push_back(std::move(curve));
    for (const auto& at_knot : sweep.at_knot) {
      covered += at_knot.size();
    }
  }
  if (curves.size() < kFewestCurves || 2 * covered < rows.size()) {
    return false;
  }
  const std::vector<std::int64_t> fold = folds_of(of_curves, kCurveFolds, kInnerDraw);
  const std::vector<std::int64_t> row_fold = folds_of(configurations, kCurveFolds, kInnerDraw);
  Points kept;
  Points held;
  for (std::size_t i = 0; i < curves.size(); ++i) {
    if (fold[i] != 0) {
      kept.push_back(curves[i]);
    }
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (row_fold[i] == 0) {
      held.push_back(rows[i]);
    }
  }
  if (kept.empty() || held.empty()) {
    return false;
  }
  const std::size_t places = rows.front().features.size() - 1;
  const Points tried = spread(kept, limit, places);
  double best = 0.95 * surface_error(nullptr, held);
  double scale = 0;
  double noise = 0;
  const auto attempt = [&](double s, double n) {
    const ResidualSurface surface(tried, s, n, knots);
    if (const double error = surface_error(&surface, held); error < best) {
      best = error;
      scale = s;
      noise = n;
    }
  };
  for (const double s : {1.0, 4.0}) {
    attempt(s, 0.1);
  }
  if (scale > 0) {
    attempt(scale, 0.03);
    attempt(scale, 0.3);
  } else {
    return false;
  }
  set_residual_knots(model, knots);
  model.points = spread(curves, limit, places);
  model.constants["residual_scale"] = scale;
  model.constants["residual_noise"] = noise;
  return true;
}

}  // namespace stepcast::models
