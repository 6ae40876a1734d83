#pragma once
#include <map>
#include <string>
#include <vector>

#include "core/job/efficiency.h"
#include "validation/published/predictions.h"

namespace stepcast::validation {

/// True if a row may give a efficiency: it was predicted, with a plan that fits, and its time is of
/// steps, not of a whole run with what else those hold.
bool gives_efficiency(const PublishedPrediction* p);

/// Rows of `from` that measure the efficiency of `of`: of its device, framework and family of
/// plans; where there are none, of the framework and family; of the family; all
/// (core/job/efficiency.h).
Predictions efficiency_rows(const Predictions& from, const PublishedPrediction& of);

/// The factor that rows show: exp of the median of ln(measured / simulated), every source counting
/// once, its rows equally. 1 for no rows.
double efficiency_factor(const Predictions& rows);

/// The efficiencies that predictions of published runs show, of every device, framework and family
/// that was measured, of framework and family, of family, of all. Where nine of ten steps of a
/// source to come lie follows from sources left out in turn: the residuals of a source at the
/// efficiencies of the others, of that group where three sources measure it, else of all groups of
/// the family as wide in the chain, and no narrower than at narrower groups.
EfficiencyTable fit_efficiencies(const Predictions& from);

/// ln(measured / predicted) of rows by their source.
using Residuals = std::map<std::string, std::vector<double>>;

/// How far measured steps lie from predicted ones: ln(measured / predicted) of a share `level` of
/// the rows of a source that was not looked at lies between `low` and `high`.
struct StepSpread {
  double level = 0;
  double low = 0, high = 0;
  std::size_t sources = 0, rows = 0;
  [[nodiscard]] bool holds(double residual) const { return residual >= low && residual <= high; }
  [[nodiscard]] std::string factors() const;  ///< "x0.900 .. x1.300"
};

/// Rows of a source share its framework, so every source counts once, its rows equally; the source
/// to come counts as one more that lies beyond all. Around the weighted median m the interval is m
/// -+ h, h the weighted quantile of |r - m| at level * (S + 1) / S for S sources, at most the
/// largest.
/// Source: conformal prediction with hierarchical data, Lee et al., arXiv 2306.06342.
StepSpread spread_of(const Residuals& residuals, double level);

}  // namespace stepcast::validation
