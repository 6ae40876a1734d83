#include "models/fit/fit.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "core/statistics.h"
#include "models/fit/points.h"

namespace stepcast::models {
namespace {

/// Mean of the values between two quantiles of a sample.
double trimmed_mean(std::vector<double> values, double low, double high) {
  if (values.empty()) {
    return 0;
  }
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  const auto first = static_cast<std::size_t>(std::floor(low * n));
  const auto last = std::max(first + 1, static_cast<std::size_t>(std::ceil(high * n)));
  return std::accumulate(values.begin() + static_cast<std::ptrdiff_t>(first),
                         values.begin() + static_cast<std::ptrdiff_t>(last), 0.0) /
         static_cast<double>(last - first);
}

}  // namespace

double quantile(std::vector<double> values, double q) {
  if (values.empty()) {
    return 0;
  }
  std::sort(values.begin(), values.end());
  return interpolated_quantile(values, q);
}

FitError error_of(std::span<const double> predicted, std::span<const double> measured) {
  STEPCAST_CHECK(predicted.size() == measured.size(), "{} predictions of {} measurements",
                 predicted.size(), measured.size());
  FitError e;
  if (predicted.empty()) {
    return e;
  }
  std::vector<double> absolute;
  for (std::size_t i = 0; i < predicted.size(); ++i) {
    const double relative = predicted[i] / measured[i] - 1;
    absolute.push_back(std::abs(relative));
    e.mean += std::abs(relative);
    e.bias += relative;
  }
  const auto n = static_cast<double>(predicted.size());
  e.mean /= n;
  e.bias /= n;
  e.median = quantile(absolute, 0.5);
  e.p90 = quantile(absolute, 0.9);
  e.worst = quantile(absolute, 1);
  return e;
}

double robust_sigma(std::vector<double> log_residuals) {
  // A normal's 16th and 84th percentiles lie one standard deviation from its median; tails do not
  // blow it up.
  return (quantile(log_residuals, 0.84) - quantile(log_residuals, 0.16)) / 2;
}

FittedModels fit_host(const MeasuredHost& samples, const FitOptions& options) {
  FittedModel host;
  host.form = "host.constant";
  host.constants["issue"] = trimmed_mean(samples.issue, 0.05, 0.95);
  host.constants["dispatch"] = trimmed_mean(samples.dispatch, 0.05, 0.95);
  host.constants["step"] = trimmed_mean(samples.step, 0.05, 0.95);
  host.samples = static_cast<std::int64_t>(samples.issue.size() + samples.dispatch.size() +
                                           samples.step.size());
  host.source = options.source;
  return {{"host", host}};
}

FittedModels fit_straggler(std::span<const std::vector<double>> segment_times,
                           const FitOptions& options) {
  // ln t[repeat][rank] = common[repeat] + own: the variance within repeats is (1 - rho) sigma^2,
  // the rest is common.
  double within = 0;
  double within_terms = 0;
  std::vector<double> means;
  std::size_t ranks = 0;
  for (const std::vector<double>& times : segment_times) {
    STEPCAST_CHECK(times.size() >= 2, "a straggler fit needs segment times of two or more ranks");
    double mean = 0;
    for (const double t : times) {
      mean += std::log(t);
    }
    mean /= static_cast<double>(times.size());
    for (const double t : times) {
      within += (std::log(t) - mean) * (std::log(t) - mean);
    }
    within_terms += static_cast<double>(times.size() - 1);
    ranks = std::max(ranks, times.size());
    means.push_back(mean);
  }
  FittedModel straggler;
  straggler.form = "straggler.normal";
  straggler.samples = static_cast<std::int64_t>(segment_times.size() * ranks);
  straggler.source = options.source;
  double own = 0;
  double common = 0;
  if (means.size() >= 2) {
    own = within / within_terms;
    const double centre =
        std::accumulate(means.begin(), means.end(), 0.0) / static_cast<double>(means.size());
    for (const double m : means) {
      common += (m - centre) * (m - centre);
    }
    common = std::max(
        0.0, common / static_cast<double>(means.size() - 1) - own / static_cast<double>(ranks));
  }
  straggler.constants["log_sigma"] = std::sqrt(own + common);
  straggler.constants["rho"] = own + common > 0 ? common / (own + common) : 0;
  return {{"straggler", straggler}};
}

}  // namespace stepcast::models
