#include "studies/guard/internal/guard_statistics.h"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <boost/math/special_functions/digamma.hpp>
#include <boost/math/special_functions/trigamma.hpp>
#include <cmath>

#include "core/statistics.h"

namespace stepcast::studies::internal {
namespace {

constexpr double kPower = 0.95;  ///< what "is caught" means
/// Medians are not distinguished more finely than this: clocks tick, graphs of other tools round.
constexpr double kResolution = 1e-3;
constexpr double kManyDegrees = 1e6;  ///< as good as infinitely many

double mean_square(const std::vector<double>& v) {
  double sum = 0;
  for (const double x : v) {
    sum += x * x;
  }
  return sum / static_cast<double>(v.size());
}

double variance(const std::vector<double>& v) {
  double mean = 0, sum = 0;
  for (const double x : v) {
    mean += x / static_cast<double>(v.size());
  }
  for (const double x : v) {
    sum += (x - mean) * (x - mean);
  }
  return sum / static_cast<double>(v.size() - 1);
}

/// Variance of a median of n values of variance 1: pi / (2 n) from three values on.
double of_median(std::size_t n) { return (n > 2 ? std::acos(0.0) : 1.0) / static_cast<double>(n); }

/// x with trigamma(x) = y > 0, by Newton's method on 1 / trigamma, which is convex (Smyth 2004,
/// appendix).
double inverse_trigamma(double y) {
  double x = 0.5 + 1 / y;
  for (int i = 0; i < 50; ++i) {
    const double t = boost::math::trigamma(x);
    const double h = 1e-5 * x;
    const double slope = (boost::math::trigamma(x + h) - t) / h;
    const double step = t * (1 - t / y) / slope;
    x += step;
    if (std::abs(step) < 1e-8 * x) {
      break;
    }
  }
  return x;
}

/// How much runs differ beyond what their steps explain: a scaled inverse chi-squared law over the
/// ops, with `scale` and `degrees` of freedom.
struct Excess {
  double scale = 1, degrees = 0;
};

/// From ratios of observed to expected variance with `degrees` of freedom each.
Excess excess_of(const std::vector<double>& ratios, double degrees) {
  using boost::math::digamma;
  if (ratios.size() < 3) {
    return {};
  }
  std::vector<double> e;
  double mean = 0;
  for (const double ratio : ratios) {
    e.push_back(std::log(std::max(ratio, 1e-6)) - digamma(degrees / 2) + std::log(degrees / 2));
    mean += e.back() / static_cast<double>(ratios.size());
  }
  const double spread = variance(e) - boost::math::trigamma(degrees / 2);
  if (spread <= 0) {
    return {std::exp(mean), kManyDegrees};
  }
  const double prior = 2 * inverse_trigamma(spread);
  return {std::exp(mean + digamma(prior / 2) - std::log(prior / 2)), prior};
}
/// The median change of the ops in run `r`, 0 where there are too few ops to tell.
double common_of(const std::vector<Case>& cases, bool after, std::size_t r) {
  std::vector<double> changes;
  for (const Case& c : cases) {
    if (c.op) {
      changes.push_back((after ? c.after : c.before).median[r] - c.level);
    }
  }
  return changes.size() < kCommonNeeds ? 0 : middle_of(changes);
}
std::vector<double> errors_of_common(const std::vector<Case>& cases, bool after, std::size_t runs) {
  std::vector<double> errors(runs, 0);
  double ops = 0;
  for (const Case& c : cases) {
    ops += c.op ? 1 : 0;
    for (std::size_t r = 0; c.op && r < runs; ++r) {
      const double e = (after ? c.after : c.before).error[r];
      errors[r] += e * e;
    }
  }
  for (double& e : errors) {
    e = std::max(kResolution, ops > 0 ? std::sqrt(std::acos(0.0) * e / ops / ops) : 0);
  }
  return errors;
}
/// Mean of what the variance between runs has beyond the steps' own, over collectives or over the
/// others: they share a network, or a processor.
double beyond_steps(const std::vector<Case>& cases, bool collective) {
  std::vector<double> beyond;
  for (const Case& c : cases) {
    if (c.op && c.collective == collective) {
      beyond.push_back(variance(c.before.median) - mean_square(c.before.error));
    }
  }
  double sum = 0;
  for (const double b : beyond) {
    sum += b / static_cast<double>(beyond.size());
  }
  return std::max(sum, 0.0);
}
double quantile_of_t(double degrees, double tail) {
  return boost::math::quantile(
      boost::math::complement(boost::math::students_t(std::min(degrees, kManyDegrees)), tail));
}
}  // namespace

LogTimes log_of(const BaselineTimes& times, double added) {
  LogTimes logs;
  for (std::size_t r = 0; r < times.median.size(); ++r) {
    const double m = std::max(times.median[r] + added, 1e-12);
    logs.median.push_back(std::log(m));
    logs.error.push_back(std::max(times.standard_error[r] / m, kResolution));
  }
  return logs;
}

Common take_out_common(std::vector<Case>& cases, std::size_t runs_before, std::size_t runs_after) {
  std::vector<double> before, after;
  for (std::size_t r = 0; r < runs_before; ++r) {
    before.push_back(common_of(cases, false, r));
  }
  for (std::size_t r = 0; r < runs_after; ++r) {
    after.push_back(common_of(cases, true, r));
  }
  for (Case& c : cases) {
    for (std::size_t r = 0; (c.op || c.group) && r < runs_before; ++r) {
      c.before.median[r] -= before[r];
    }
    for (std::size_t r = 0; (c.op || c.group) && r < runs_after; ++r) {
      c.after.median[r] -= after[r];
    }
    c.level = middle_of(c.before.median);
    c.change = middle_of(c.after.median) - c.level;
  }
  Common common;
  common.before = {std::move(before), errors_of_common(cases, false, runs_before)};
  common.after = {std::move(after), errors_of_common(cases, true, runs_after)};
  return common;
}
void spread_of(std::vector<Case>& cases, std::size_t runs, double steps_before,
               double steps_after) {
  const auto degrees = static_cast<double>(runs) - 1;
  std::vector<double> ratios;
  if (runs > 1) {
    const double network = beyond_steps(cases, true), processor = beyond_steps(cases, false);
    for (Case& c : cases) {
      if (c.op) {
        c.between = c.collective ? network : processor;
        ratios.push_back(variance(c.before.median) / (c.between + mean_square(c.before.error)));
      }
    }
  }
  const Excess excess = runs > 1 ? excess_of(ratios, degrees) : Excess{1, kManyDegrees};
  for (Case& c : cases) {
    const double own = mean_square(c.before.error);
    double run = own;  // variance of a run's median
    c.degrees = kManyDegrees;
    if (runs > 1) {
      const double prior = c.op ? excess.degrees : 0;
      c.degrees = prior + degrees;
      run = std::max(
          own, (prior * excess.scale * (c.between + own) + degrees * variance(c.before.median)) /
                   c.degrees);
    }
    // A later run of fewer or noisier steps has more of its own.
    const double later =
        run +
        std::max(0.0, std::max(mean_square(c.after.error), own * steps_before / steps_after) - own);
    c.error = std::sqrt(run * of_median(runs) + later * of_median(c.after.median.size()));
  }
}
double disturbance_of(const std::vector<Case>& cases) {
  std::vector<double> deviations;
  for (const Case& c : cases) {
    if (c.op) {
      deviations.push_back(std::abs(c.change) / c.error);
    }
  }
  constexpr double kMedianOfNormal = 0.6745;
  return deviations.size() < kCommonNeeds ? 1.0
                                          : std::max(1.0, middle_of(deviations) / kMedianOfNormal);
}

void judge(Case& c, double false_alarms, const GuardOptions& options, bool spread_known) {
  GuardedTime& time = *c.time;
  if (c.before_times != nullptr) {
    time.before = seconds(middle_of(c.before_times->median));
    time.after = seconds(middle_of(c.after_times->median));
  }
  time.change = std::exp(c.change) - 1;
  time.noise = c.error;
  const double tolerated = std::log1p(options.tolerance);
  if (!spread_known) {
    time.regressed = options.without_spread && c.change > tolerated;
    time.improved = options.without_spread && c.change < -tolerated;
    return;
  }
  const double threshold = std::max(tolerated, quantile_of_t(c.degrees, false_alarms) * c.error);
  // Regressions that are real are in every run: one slow process among several is none.
  const double least = *std::min_element(c.after.median.begin(), c.after.median.end()) - c.level;
  time.regressed = c.change > threshold && least > tolerated / 2;
  time.improved = c.change < -threshold;
  time.detects = std::expm1(threshold + quantile_of_t(c.degrees, 1 - kPower) * c.error);
}

}  // namespace stepcast::studies::internal
