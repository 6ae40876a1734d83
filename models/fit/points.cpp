#include "models/fit/points.h"

#include <Eigen/Cholesky>
#include <algorithm>
#include <cmath>
#include <future>
#include <limits>
#include <map>

#include "core/split_mix.h"
#include "models/fit/fit.h"
#include "models/residual.h"

namespace stepcast::models {
namespace {

/// Over the first `coordinates`.
double squared_distance(const std::vector<double>& a, const std::vector<double>& b,
                        std::size_t coordinates) {
  double sum = 0;
  for (std::size_t i = 0; i < coordinates; ++i) {
    sum += (a[i] - b[i]) * (a[i] - b[i]);
  }
  return sum;
}

using Points = std::vector<FittedModel::Point>;

constexpr std::int64_t kFolds = 4;  ///< a quarter is left out to choose a surface

/// exp(-|x - y| / scale) between the points of two sets.
Eigen::MatrixXd kernel_matrix(const Points& rows, const Points& columns, double scale) {
  Eigen::MatrixXd k(static_cast<Eigen::Index>(rows.size()),
                    static_cast<Eigen::Index>(columns.size()));
  for (Eigen::Index j = 0; j < k.cols(); ++j) {
    const auto& y = columns[static_cast<std::size_t>(j)].features;
    for (Eigen::Index i = 0; i < k.rows(); ++i) {
      const double d = squared_distance(rows[static_cast<std::size_t>(i)].features, y, y.size());
      k(i, j) = std::exp(-std::sqrt(d) / scale);
    }
  }
  return k;
}

/// Weights of the sites that fit the rows best, by reweighted ridge regression.
Eigen::VectorXd site_weights(const Points& sites, const Points& rows, double scale) {
  constexpr double kHuber = 0.05;
  constexpr double kRidge = 0.2;
  const Eigen::MatrixXd p = kernel_matrix(rows, sites, scale);
  const Eigen::MatrixXd k = kernel_matrix(sites, sites, scale);
  Eigen::VectorXd r(p.rows());
  for (Eigen::Index i = 0; i < r.size(); ++i) {
    r(i) = rows[static_cast<std::size_t>(i)].log_ratio;
  }
  Eigen::VectorXd root_weight = Eigen::VectorXd::Ones(r.size());
  Eigen::VectorXd w;
  for (int round = 0; round < 3; ++round) {
    const Eigen::MatrixXd weighted = root_weight.asDiagonal() * p;
    Eigen::MatrixXd normal = kRidge * k;
    normal.selfadjointView<Eigen::Lower>().rankUpdate(weighted.transpose());
    w = normal.selfadjointView<Eigen::Lower>().llt().solve(
        weighted.transpose() * (root_weight.array() * r.array()).matrix());
    const Eigen::VectorXd left = r - p * w;
    root_weight = (kHuber / left.array().abs().max(kHuber)).sqrt();
  }
  return w;
}

double mean_size(const std::vector<double>& r) {
  double sum = 0;
  for (const double v : r) {
    sum += std::min(std::abs(v), 1.0);
  }
  return sum / static_cast<double>(r.size());
}

}  // namespace

std::vector<std::int64_t> place_key(const std::vector<double>& coordinates) {
  std::vector<std::int64_t> key;
  for (const double c : coordinates) {
    key.push_back(std::llround(c * 1e4));
  }
  return key;
}

Points spread(const Points& points, std::size_t limit, std::size_t coordinates) {
  if (points.size() <= limit) {
    return points;
  }
  Points chosen;
  std::vector<double> nearest(points.size(), std::numeric_limits<double>::infinity());
  std::size_t next = 0;
  while (chosen.size() < limit) {
    chosen.push_back(points[next]);
    for (std::size_t i = 0; i < points.size(); ++i) {
      nearest[i] = std::min(
          nearest[i], squared_distance(points[i].features, chosen.back().features, coordinates));
    }
    next = static_cast<std::size_t>(std::max_element(nearest.begin(), nearest.end()) -
                                    nearest.begin());
  }
  return chosen;
}

std::vector<FittedModel::Point> thin_points(std::vector<FittedModel::Point> points,
                                            std::size_t limit) {
  std::map<std::vector<std::int64_t>, std::pair<std::vector<double>, std::vector<double>>> places;
  for (const FittedModel::Point& p : points) {
    auto& place = places[place_key(p.features)];
    place.first = p.features;
    place.second.push_back(p.log_ratio);
  }
  std::vector<FittedModel::Point> unique;
  for (const auto& [key, place] : places) {
    unique.push_back({place.first, quantile(place.second, 0.5)});
  }
  return spread(unique, limit, unique.empty() ? 0 : unique.front().features.size());
}

void add_residual_surface(FittedModel& model, std::vector<FittedModel::Point> points) {
  if (points.size() < 5) {
    return;
  }
  constexpr double kScales[] = {0.5, 1, 2, 4, 8};
  constexpr double kNoises[] = {0.02, 0.1, 0.4, 1.5};
  std::vector<double> alone;
  for (const FittedModel::Point& p : points) {
    alone.push_back(p.log_ratio);
  }
  // The scale first, at a middling noise, then the noise: each try costs the cube of the points.
  double scale = kScales[0], noise = kNoises[1];
  double best = std::numeric_limits<double>::infinity();
  const auto attempt = [&](double s, double n) {
    const double error = mean_size(ResidualSurface(points, s, n).leave_one_out());
    if (error < best) {
      best = error;
      scale = s;
      noise = n;
    }
  };
  for (const double s : kScales) {
    attempt(s, kNoises[1]);
  }
  for (const double n : kNoises) {
    if (n != kNoises[1]) {
      attempt(scale, n);
    }
  }
  if (best < 0.95 * mean_size(alone)) {
    model.constants["residual_scale"] = scale;
    model.constants["residual_noise"] = noise;
    model.points = std::move(points);
  }
}

double add_smoothed_surface(FittedModel& model, const Points& sites, const Points& rows,
                            const std::vector<std::int64_t>& configurations) {
  constexpr double kNothing = std::numeric_limits<double>::infinity();
  const std::vector<std::int64_t> fold = folds_of(configurations, kFolds, kInnerDraw);
  Points kept;
  Points held;
  std::vector<double> alone;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    (fold[i] == 0 ? held : kept).push_back(rows[i]);
    if (fold[i] == 0) {
      alone.push_back(rows[i].log_ratio);
    }
  }
  if (held.empty() || kept.size() < sites.size()) {
    return kNothing;
  }
  constexpr double kScales[] = {1, 4};
  double best = 0.95 * mean_size(alone);
  double chosen = 0;
  for (const double scale : kScales) {
    const Eigen::VectorXd at = kernel_matrix(held, sites, scale) * site_weights(sites, kept, scale);
    std::vector<double> left;
    for (std::size_t i = 0; i < held.size(); ++i) {
      left.push_back(held[i].log_ratio - at(static_cast<Eigen::Index>(i)));
    }
    if (const double error = mean_size(left); error < best) {
      best = error;
      chosen = scale;
    }
  }
  if (chosen <= 0) {
    return kNothing;
  }
  const Eigen::VectorXd values =
      kernel_matrix(sites, sites, chosen) * site_weights(sites, rows, chosen);
  model.points = sites;
  for (std::size_t j = 0; j < sites.size(); ++j) {
    model.points[j].log_ratio = values(static_cast<Eigen::Index>(j));
  }
  model.constants["residual_scale"] = chosen;
  model.constants["residual_noise"] = 1e-4;  // the values are smooth already
  return best;
}

void add_surface(FittedModel& model, const Points& rows,
                 const std::vector<std::int64_t>& configurations, std::size_t limit) {
  const Points sites = thin_points(rows, limit);
  if (rows.size() <= 4 * sites.size()) {
    add_residual_surface(model, sites);
    return;
  }
  FittedModel smoothed = model;
  const double smoothed_error = add_smoothed_surface(smoothed, sites, rows, configurations);
  const std::vector<std::int64_t> fold = folds_of(configurations, kFolds, kInnerDraw);
  Points kept;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (fold[i] != 0) {
      kept.push_back(rows[i]);
    }
  }
  FittedModel picked = model;
  add_residual_surface(picked, thin_points(std::move(kept), limit));
  const ResidualSurface surface(picked);
  std::vector<double> left;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (fold[i] == 0) {
      left.push_back(rows[i].log_ratio - surface.at(rows[i].features));
    }
  }
  // Rows of one configuration leave nothing out to choose by: the points are kept as they are.
  if (left.empty() || mean_size(left) < smoothed_error) {
    add_residual_surface(model, sites);
  } else {
    model = std::move(smoothed);
  }
}

std::vector<std::int64_t> folds_of(const std::vector<std::int64_t>& configurations,
                                   std::int64_t folds, std::uint64_t draw) {
  const std::uint64_t salt = draw == 0 ? 0 : split_mix(draw);
  std::vector<std::int64_t> out;
  for (std::size_t i = 0; i < configurations.size(); ++i) {
    const std::uint64_t id =
        configurations[i] >= 0 ? static_cast<std::uint64_t>(configurations[i]) : (1ULL << 40U) + i;
    out.push_back(
        static_cast<std::int64_t>(split_mix(id ^ salt) % static_cast<std::uint64_t>(folds)));
  }
  return out;
}

void set_error(
    FittedModel& model, const std::vector<double>& measured,
    const std::vector<std::int64_t>& configurations, std::int64_t folds, std::size_t fewest,
    const std::function<std::vector<double>(const std::vector<std::size_t>& kept,
                                            const std::vector<std::size_t>& held)>& predict) {
  const bool hold_out = folds >= 2;
  const std::vector<std::int64_t> fold =
      hold_out ? folds_of(configurations, folds) : std::vector<std::int64_t>(measured.size(), 0);
  using Places = std::vector<std::size_t>;
  std::vector<std::pair<Places, std::future<std::vector<double>>>> parts;
  for (std::int64_t f = 0; f < (hold_out ? folds : 1); ++f) {
    Places kept;
    Places held;
    for (std::size_t i = 0; i < measured.size(); ++i) {
      if (!hold_out || fold[i] != f) {
        kept.push_back(i);
      }
      if (fold[i] == f) {
        held.push_back(i);
      }
    }
    if (!hold_out || (!held.empty() && kept.size() >= fewest)) {
      auto times = std::async(std::launch::async, predict, std::move(kept), held);
      parts.emplace_back(std::move(held), std::move(times));
    }
  }
  std::vector<double> predicted;
  std::vector<double> found;
  std::vector<double> logs;
  for (auto& [held, times] : parts) {
    const std::vector<double> of_held = times.get();
    for (std::size_t i = 0; i < held.size(); ++i) {
      predicted.push_back(of_held[i]);
      found.push_back(measured[held[i]]);
      logs.push_back(std::log(found.back() / of_held[i]));
    }
  }
  model.error = error_of(predicted, found);
  model.log_sigma = robust_sigma(logs);
}

}  // namespace stepcast::models
