#include "validation/published/spread.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "core/statistics.h"
#include "validation/published/select.h"

namespace stepcast::validation {
namespace {

using BySource = std::map<std::string, std::vector<double>>;

BySource residuals_of(const std::vector<ScaledPrediction>& scores) {
  BySource residuals;
  for (const ScaledPrediction& s : scores) {
    if (s.prediction->skipped.empty() && s.reference.empty() && s.seconds > 0) {
      residuals[s.prediction->source].push_back(std::log(s.prediction->measured / s.seconds));
    }
  }
  return residuals;
}

std::vector<std::vector<double>> lists(const BySource& by_source) {
  std::vector<std::vector<double>> all;
  for (const auto& [source, residuals] : by_source) {
    all.push_back(residuals);
  }
  return all;
}

}  // namespace

StepSpread spread_of(const std::vector<std::vector<double>>& residuals, double level) {
  StepSpread spread{level, 0, 0, 0, 0};
  std::vector<WeightedValue> all;
  for (const std::vector<double>& of_source : residuals) {
    spread.sources += of_source.empty() ? 0 : 1;
    spread.rows += of_source.size();
    for (const double r : of_source) {
      all.emplace_back(r, 1 / static_cast<double>(of_source.size()));
    }
  }
  if (all.empty()) {
    return spread;
  }
  const double middle = weighted_quantile(all, 0.5);
  for (auto& [residual, weight] : all) {
    residual = std::abs(residual - middle);
  }
  const auto sources = static_cast<double>(spread.sources);
  const double half =
      weighted_quantile(std::move(all), std::min(1.0, level * (sources + 1) / sources));
  spread.low = middle - half;
  spread.high = middle + half;
  return spread;
}

StepSpread published_spread(const std::vector<PublishedPrediction>& predictions, SpreadOf of,
                            double level) {
  std::vector<ScaledPrediction> scores;
  if (of == SpreadOf::kScaled) {
    scores = scaled(where(pointers(predictions), [](const auto& p) { return !p.scales_host(); }),
                    PublishedRegime::kOneRow);
  } else {
    for (const PublishedPrediction& p : predictions) {
      scores.push_back({&p, p.skipped.empty() ? p.seconds(1) : 0, 0, {}});
    }
  }
  return spread_of(lists(residuals_of(scores)), level);
}

std::vector<IntervalCheck> check_intervals(const std::vector<PublishedPrediction>& predictions,
                                           PublishedRegime regime, double level) {
  const BySource seen = residuals_of(scaled(pointers(predictions), regime));
  std::vector<IntervalCheck> checks;
  for (const auto& [source, residuals] : seen) {
    const std::string& unseen = source;
    const Predictions others =
        where(pointers(predictions), [&](const auto& p) { return p.source != unseen; });
    IntervalCheck check{source, residuals.size(), 0,
                        spread_of(lists(residuals_of(scaled(others, regime))), level)};
    check.held = static_cast<std::size_t>(std::count_if(
        residuals.begin(), residuals.end(), [&](double r) { return check.spread.holds(r); }));
    checks.push_back(std::move(check));
  }
  return checks;
}

double mean_coverage(const std::vector<IntervalCheck>& checks) {
  double sum = 0;
  for (const IntervalCheck& c : checks) {
    sum += static_cast<double>(c.held) / static_cast<double>(c.rows);
  }
  return checks.empty() ? 0 : sum / static_cast<double>(checks.size());
}

}  // namespace stepcast::validation
