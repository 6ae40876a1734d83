#pragma once
#include <optional>
#include <string>
#include <vector>

#include "validation/published/published.h"

namespace stepcast::validation {

/// How far measured steps lie from predicted ones: ln(measured / predicted) of a share `level` of
/// the rows of a source that was not looked at lies between `low` and `high`.
struct StepSpread {
  double level = 0;
  double low = 0, high = 0;
  std::size_t sources = 0, rows = 0;
  [[nodiscard]] bool holds(double residual) const { return residual >= low && residual <= high; }
};

/// From residuals ln(measured / predicted) by source. Rows of a source share its stack, so every
/// source counts once, its rows equally; the source to come counts as one more that lies beyond
/// all. Around the weighted median m the interval is m -+ h, h the weighted quantile of |r - m| at
/// level * (S + 1) / S for S sources, at most the largest.
/// Source: conformal prediction with hierarchical data, Lee et al., arXiv 2306.06342.
StepSpread spread_of(const std::vector<std::vector<double>>& residuals, double level);

/// Rows that an interval is asked of.
enum class SpreadOf : std::uint8_t {
  kPlain,   ///< steps as `predict` says them, no scalar
  kScaled,  ///< after one row of the source gave a scalar; sources whose scalar is a step's only
};
StepSpread published_spread(const std::vector<PublishedPrediction>& predictions, SpreadOf of,
                            double level);

/// A source's rows against the interval that all other sources give, scalars included.
struct IntervalCheck {
  std::string source;
  std::size_t rows = 0, held = 0;
  StepSpread spread;
};
std::vector<IntervalCheck> check_intervals(const std::vector<PublishedPrediction>& predictions,
                                           PublishedRegime regime, double level);
/// The mean over sources of the share of rows held.
double mean_coverage(const std::vector<IntervalCheck>& checks);

}  // namespace stepcast::validation
