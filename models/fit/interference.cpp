#include "models/fit/interference.h"

#include <algorithm>
#include <cmath>

#include "models/fit/least_squares.h"
#include "models/fit/points.h"

namespace stepcast::models {
namespace {

constexpr double kLargestSlowdown = 8;
constexpr double kLeastOverlap = 0.05;

using Overlaps = std::vector<const MeasuredOverlap*>;

double share_of(const MeasuredOverlap& row) {
  return std::clamp(row.overlapped / row.time, 0.0, 1.0);
}

/// Time of an op that takes `alone` by itself when the share f of its time is slowed by s.
double slowed(double alone, double f, double s) { return alone / (1 - f + f / s); }

double fit_factor(const Overlaps& rows, double bias) {
  LeastSquares problem;
  problem.rows = rows.size();
  problem.start = {std::log(1.2)};
  problem.low = {0};
  problem.high = {std::log(kLargestSlowdown)};
  problem.residuals = [&](std::span<const double> x, std::span<double> r) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      r[i] = std::log(slowed(bias * rows[i]->alone.base(), share_of(*rows[i]), std::exp(x[0])) /
                      rows[i]->time.base());
    }
  };
  return std::exp(minimise(problem)[0]);
}

}  // namespace

FittedModels fit_slowdown(std::span<const MeasuredOverlap> rows, const FitOptions& options) {
  Overlaps overlapping;
  std::vector<double> undisturbed;
  for (const MeasuredOverlap& row : rows) {
    if (row.alone <= Seconds{} || row.time <= Seconds{}) {
      continue;
    }
    if (share_of(row) >= kLeastOverlap) {
      overlapping.push_back(&row);
    } else {
      undisturbed.push_back(std::log(row.time / row.alone));
    }
  }
  if (overlapping.size() < kMinimumRows) {
    return {};
  }
  const double bias = undisturbed.size() >= kMinimumRows ? std::exp(quantile(undisturbed, 0.5)) : 1;
  FittedModel model;
  model.form = "slowdown.share";
  model.constants["compute"] = fit_factor(overlapping, bias);
  model.constants["bias"] = bias;

  std::vector<double> measured;
  std::vector<std::int64_t> configurations;
  for (const MeasuredOverlap* row : overlapping) {
    measured.push_back(row->time.base());
    configurations.push_back(row->configuration);
  }
  const bool hold_out = options.folds >= 2 && overlapping.size() >= 2 * kMinimumRows;
  set_error(model, measured, configurations, hold_out ? options.folds : 0, 1,
            [&](const std::vector<std::size_t>& kept, const std::vector<std::size_t>& held) {
              const double s = fit_factor(rows_at(overlapping, kept), bias);
              std::vector<double> times;
              for (const std::size_t i : held) {
                const MeasuredOverlap& row = *overlapping[i];
                times.push_back(slowed(bias * row.alone.base(), share_of(row), s));
              }
              return times;
            });
  model.samples = static_cast<std::int64_t>(overlapping.size());
  model.source = options.source;
  return {{"slowdown", model}};
}

}  // namespace stepcast::models
