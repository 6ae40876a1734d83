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
/// Times are not distinguished more finely than this: clocks tick, graphs of other tools round.
constexpr double kResolution = 1e-3;
constexpr double kManyDegrees = 1e6;  ///< as good as infinitely many
/// If the rest got faster, a time must be slower in itself beyond this noise; its net change alone
/// would call all slower that stayed.
constexpr double kInItself = 0.005;
/// A change of a total must also be so many times what its steps explain.
constexpr double kBeyondSteps = 3;
constexpr double kOutlier = 1e-4;  ///< probability that a check calls any of its runs one

double mean_of(const std::vector<double>& v) {
  double sum = 0;
  for (const double x : v) {
    sum += x;
  }
  return v.empty() ? 0 : sum / static_cast<double>(v.size());
}

double mean_square(const std::vector<double>& v) {
  double sum = 0;
  for (const double x : v) {
    sum += x * x;
  }
  return sum / static_cast<double>(v.size());
}

double squares(const std::vector<double>& v) {
  const double mean = mean_of(v);
  double sum = 0;
  for (const double x : v) {
    sum += (x - mean) * (x - mean);
  }
  return sum;
}

double variance(const std::vector<double>& v) {
  return squares(v) / static_cast<double>(v.size() - 1);
}

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
double quantile_of_t(double degrees, double tail) {
  return boost::math::quantile(
      boost::math::complement(boost::math::students_t(std::min(degrees, kManyDegrees)), tail));
}

/// Variances of one time: between runs of a side, and of each run's own steps.
struct Spread {
  double pooled = 0, own_before = 0, own_after = 0, own = 0;
  double degrees = 0, before = 0, after = 0;  ///< of freedom; runs
};

Spread spread_of(const LogTimes& before, const LogTimes& after, double steps_ratio) {
  Spread s;
  s.before = static_cast<double>(before.value.size());
  s.after = static_cast<double>(after.value.size());
  s.degrees = s.before + s.after - 2;
  s.own_before = mean_square(before.error);
  // A later run of fewer or noisier steps has more of its own.
  s.own_after = std::max(mean_square(after.error), s.own_before * steps_ratio);
  s.own = s.own_before;
  if (s.degrees > 0) {
    s.pooled = (squares(before.value) + squares(after.value)) / s.degrees;
    s.own = ((s.before - 1) * s.own_before + (s.after - 1) * s.own_after) / s.degrees;
  }
  return s;
}

/// `variance`: of a run's time, between runs of one side; `least`: it is not below what the steps
/// explain.
Change change_of(const LogTimes& before, const LogTimes& after, const Spread& s, double variance,
                 double degrees, bool least) {
  const auto of_side = [&](double own) {
    const double v = std::max(kResolution * kResolution, variance + own - s.own);
    return least ? std::max(own, v) : v;
  };
  Change c;
  c.value = mean_of(after.value) - mean_of(before.value);
  c.error = std::sqrt(of_side(s.own_before) / s.before + of_side(s.own_after) / s.after);
  c.steps = std::sqrt(s.own_before / s.before + s.own_after / s.after);
  c.degrees = degrees;
  return c;
}

/// The change of a time by its own runs alone; without repeats by its steps.
Change alone(const LogTimes& before, const LogTimes& after, double steps_ratio) {
  const Spread s = spread_of(before, after, steps_ratio);
  return s.degrees > 0 ? change_of(before, after, s, s.pooled, s.degrees, false)
                       : change_of(before, after, s, s.own, kManyDegrees, true);
}

/// Changes of the ops net of what they share, each variance drawn toward the others'.
void measure_ops(std::vector<Case>& cases, double steps_ratio) {
  std::vector<std::pair<Case*, Spread>> ops;
  double beyond[2] = {0, 0}, count[2] = {0, 0};
  for (Case& c : cases) {
    if (c.role == Case::Role::kOp) {
      ops.emplace_back(&c, spread_of(c.net_before, c.net_after, steps_ratio));
      beyond[c.collective] += ops.back().second.pooled - ops.back().second.own;
      count[c.collective] += 1;
    }
  }
  // Collectives share a network, the others a processor.
  for (const int k : {0, 1}) {
    beyond[k] = count[k] > 0 ? std::max(0.0, beyond[k] / count[k]) : 0;
  }
  std::vector<double> ratios;
  for (const auto& [c, s] : ops) {
    ratios.push_back(s.pooled / (beyond[c->collective] + s.own));
  }
  const bool repeats = !ops.empty() && ops.front().second.degrees > 0;
  const Excess excess = repeats ? excess_of(ratios, ops.front().second.degrees) : Excess{};
  for (const auto& [c, s] : ops) {
    const double degrees = excess.degrees + s.degrees;
    const double variance = repeats ? (excess.degrees * excess.scale *
                                           (beyond[c->collective] + s.own) +
                                       s.degrees * s.pooled) /
                                          degrees
                                    : s.own;
    c->net = change_of(c->net_before, c->net_after, s, variance, repeats ? degrees : kManyDegrees,
                       true);
  }
}

}  // namespace

LogTimes log_of(const BaselineTimes& times, double added) {
  LogTimes logs;
  for (std::size_t r = 0; r < times.median.size(); ++r) {
    const double m = std::max(times.median[r] + added, 1e-12);
    logs.value.push_back(std::log(m));
    logs.error.push_back(std::max(times.standard_error[r] / m, kResolution));
  }
  return logs;
}

std::optional<Common> common_of(const std::vector<Case>& cases) {
  std::vector<const Case*> ops;
  for (const Case& c : cases) {
    if (c.role == Case::Role::kOp) {
      ops.push_back(&c);
    }
  }
  if (ops.size() < kCommonNeeds) {
    return std::nullopt;
  }
  const auto side = [&ops](LogTimes Case::*times) {
    LogTimes common;
    for (std::size_t r = 0; r < (ops.front()->*times).value.size(); ++r) {
      std::vector<double> changes;
      double squared = 0;
      for (const Case* c : ops) {
        changes.push_back((c->*times).value[r] - middle_of(c->before.value));
        squared += (c->*times).error[r] * (c->*times).error[r];
      }
      const auto n = static_cast<double>(ops.size());
      common.value.push_back(middle_of(changes));
      common.error.push_back(std::max(kResolution, std::sqrt(std::acos(0.0) * squared) / n));
    }
    return common;
  };
  return Common{side(&Case::before), side(&Case::after)};
}

void take_out(const std::optional<Common>& common, std::vector<Case>& cases) {
  for (Case& c : cases) {
    c.net_before = c.before;
    c.net_after = c.after;
    for (std::size_t r = 0; common && r < c.before.value.size(); ++r) {
      c.net_before.value[r] -= common->before.value[r];
    }
    for (std::size_t r = 0; common && r < c.after.value.size(); ++r) {
      c.net_after.value[r] -= common->after.value[r];
    }
  }
}

std::optional<Outlier> outlier_of(const LogTimes& before, const LogTimes& after) {
  std::optional<Outlier> farthest;
  double most = 0;
  for (const bool is_after : {false, true}) {
    const std::vector<double>& side = (is_after ? after : before).value;
    const std::vector<double>& other = (is_after ? before : after).value;
    for (std::size_t r = 0; side.size() > 2 && r < side.size(); ++r) {
      std::vector<double> rest = side;
      rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(r));
      const double apart = side[r] - mean_of(rest);
      const auto degrees = static_cast<double>(rest.size() + other.size() - 2);
      const double error = std::max(kResolution, std::sqrt((squares(rest) + squares(other)) /
                                                           degrees)) *
                           std::sqrt(1 + 1 / static_cast<double>(rest.size()));
      const auto runs = static_cast<double>(side.size() + other.size());
      const double times =
          std::abs(apart) / error / quantile_of_t(degrees, kOutlier / 2 / runs);
      if (times > std::max(1.0, most) && (apart > 0 || !is_after)) {
        most = times;
        farthest = Outlier{is_after, r, std::expm1(apart)};
      }
    }
  }
  return farthest;
}

void leave_out(const Outlier& outlier, std::vector<Case>& cases) {
  for (Case& c : cases) {
    LogTimes& side = outlier.after ? c.after : c.before;
    side.value.erase(side.value.begin() + static_cast<std::ptrdiff_t>(outlier.run));
    side.error.erase(side.error.begin() + static_cast<std::ptrdiff_t>(outlier.run));
  }
}

void measure(std::vector<Case>& cases, double steps_before, double steps_after) {
  const double ratio = steps_before / steps_after;
  for (Case& c : cases) {
    c.in_itself = alone(c.before, c.after, ratio);
    c.net = alone(c.net_before, c.net_after, ratio);
  }
  measure_ops(cases, ratio);
}

double disturbance_of(const std::vector<Case>& cases) {
  std::vector<double> deviations;
  for (const Case& c : cases) {
    if (c.role == Case::Role::kOp) {
      deviations.push_back(std::abs(c.net.value) / c.net.error);
    }
  }
  // Scale of n normal values; one standard deviation of it is chance.
  constexpr double kMedianOfNormal = 0.6745, kChance = 1.16;
  const double usual = kMedianOfNormal * (1 + kChance / std::sqrt(static_cast<double>(
                                                  std::max<std::size_t>(1, deviations.size()))));
  return deviations.size() < kCommonNeeds ? 1.0 : std::max(1.0, middle_of(deviations) / usual);
}

void add_noise_of(const Change& common, std::vector<Case>& cases) {
  for (Case& c : cases) {
    const double net = c.net.error * c.net.error, shared = common.error * common.error;
    if (c.role != Case::Role::kShared) {
      c.in_itself.error = std::sqrt(net + shared);
      c.in_itself.degrees = (net + shared) * (net + shared) /
                            (net * net / c.net.degrees + shared * shared / common.degrees);
    }
  }
}

double noise_threshold(const Change& c, double tail) {
  return std::max(quantile_of_t(c.degrees, tail) * c.error, kBeyondSteps * c.steps);
}
double seen_from(const Change& c, double threshold) {
  return std::expm1(threshold + quantile_of_t(c.degrees, 1 - kPower) * c.error);
}
double at_most(const Change& c) {
  return std::expm1(c.value + quantile_of_t(c.degrees, 1 - kPower) * c.error);
}

void judge(Case& c, double tail, const GuardOptions& options, bool spread_known, bool faster) {
  GuardedTime& time = *c.time;
  const bool shared = c.role == Case::Role::kShared;
  if (c.before_times != nullptr) {
    time.before = seconds(middle_of(c.before_times->median));
    time.after = seconds(middle_of(c.after_times->median));
  }
  time.change = std::expm1(c.net.value);
  time.noise = c.net.error;
  const double tolerated = std::log1p(options.tolerance);
  if (!spread_known) {
    time.regressed = options.without_spread && c.net.value > tolerated && c.in_itself.value > tolerated;
    time.improved = options.without_spread && c.in_itself.value < -tolerated;
    return;
  }
  const double beyond = std::max(tolerated, noise_threshold(c.net, tail));
  const double itself =
      std::max(tolerated, quantile_of_t(c.in_itself.degrees, kInItself) * c.in_itself.error);
  // Noise that all share hides nothing unless the rest got faster: the net change counts.
  const double least_itself = shared ? beyond : faster ? itself : tolerated / 2;
  // Regressions that are real are in every run: one slow process among several is none.
  const double least = *std::min_element(c.net_after.value.begin(), c.net_after.value.end()) -
                       mean_of(c.net_before.value);
  time.slower = c.in_itself.value > itself;
  time.regressed =
      c.in_itself.value > least_itself && c.net.value > beyond && least > tolerated / 2;
  time.improved = c.net.value < -beyond && c.in_itself.value < -tolerated;
  time.detects = seen_from(c.net, beyond);
  if (faster) {
    time.detects = std::max(time.detects, seen_from(c.in_itself, itself));
  }
}

}  // namespace stepcast::studies::internal
