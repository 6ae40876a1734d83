#include "models/fit/points.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "models/residual.h"

namespace stepcast::models {
namespace {

double squared_distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += (a[i] - b[i]) * (a[i] - b[i]);
  }
  return sum;
}

std::uint64_t scramble(std::uint64_t x) {  // splitmix64 finaliser (Steele, Lea, Flood, OOPSLA 2014)
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31U);
}

}  // namespace

std::vector<FittedModel::Point> thin_points(std::vector<FittedModel::Point> points,
                                            std::size_t limit) {
  std::map<std::vector<std::int64_t>, std::pair<std::vector<double>, std::vector<double>>> places;
  for (const FittedModel::Point& p : points) {
    std::vector<std::int64_t> key;
    for (const double f : p.features) {
      key.push_back(std::llround(f * 1e4));
    }
    auto& place = places[key];
    place.first = p.features;
    place.second.push_back(p.log_ratio);
  }
  std::vector<FittedModel::Point> unique;
  for (const auto& [key, place] : places) {
    unique.push_back({place.first, quantile(place.second, 0.5)});
  }
  if (unique.size() <= limit || limit == 0) {
    return limit == 0 ? std::vector<FittedModel::Point>{} : unique;
  }
  std::vector<FittedModel::Point> chosen;
  std::vector<double> nearest(unique.size(), std::numeric_limits<double>::infinity());
  std::size_t next = 0;
  while (chosen.size() < limit) {
    chosen.push_back(unique[next]);
    for (std::size_t i = 0; i < unique.size(); ++i) {
      nearest[i] =
          std::min(nearest[i], squared_distance(unique[i].features, chosen.back().features));
    }
    next = static_cast<std::size_t>(std::max_element(nearest.begin(), nearest.end()) -
                                    nearest.begin());
  }
  return chosen;
}

void add_residual_surface(FittedModel& model, std::vector<FittedModel::Point> points) {
  if (points.size() < 5) {
    return;
  }
  constexpr double kScales[] = {0.5, 1, 2, 4, 8};
  constexpr double kNoises[] = {0.02, 0.1, 0.4, 1.5};
  const auto mean_size = [](const std::vector<double>& r) {
    double sum = 0;
    for (const double v : r) {
      sum += std::min(std::abs(v), 1.0);
    }
    return sum / static_cast<double>(r.size());
  };
  std::vector<double> alone;
  for (const FittedModel::Point& p : points) {
    alone.push_back(p.log_ratio);
  }
  double best = 0.95 * mean_size(alone);
  for (const double scale : kScales) {
    for (const double noise : kNoises) {
      const double error = mean_size(ResidualSurface(points, scale, noise).leave_one_out());
      if (error < best) {
        best = error;
        model.constants["residual_scale"] = scale;
        model.constants["residual_noise"] = noise;
      }
    }
  }
  if (model.constants.contains("residual_scale")) {
    model.points = std::move(points);
  }
}

std::vector<std::int64_t> folds_of(const std::vector<std::int64_t>& configurations,
                                   std::int64_t folds) {
  std::vector<std::int64_t> out;
  for (std::size_t i = 0; i < configurations.size(); ++i) {
    const std::uint64_t id =
        configurations[i] >= 0 ? static_cast<std::uint64_t>(configurations[i]) : (1ULL << 40U) + i;
    out.push_back(static_cast<std::int64_t>(scramble(id) % static_cast<std::uint64_t>(folds)));
  }
  return out;
}

}  // namespace stepcast::models
