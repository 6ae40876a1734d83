#pragma once
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/job/efficiency.h"
#include "validation/published/predictions.h"

namespace stepcast::validation {

/// What a row is predicted without: rows of its own publication, of the makers of its software, of
/// GPUs of its generation, of its framework's release (of its year where no release is known).
enum class LeaveOut : std::uint8_t { kSource, kVendor, kGeneration, kRelease };
/// The part of the rows that is left out with this one.
std::string block_of(const PublishedPrediction& p, LeaveOut what);

/// True if a row may give an efficiency: it was predicted, with a plan that fits, and its time is
/// of steps, not of a whole run with what else those hold.
bool gives_efficiency(const PublishedPrediction* p);

/// Keys of a row in a table of efficiencies.
EfficiencyKeys keys_of(const PublishedPrediction& p);

/// The efficiencies that predictions of published runs show, of every framework and device, of
/// frameworks on a generation, of generations, of all. A kind of training has a group of its own,
/// and leaves the others, where at least 10 rows of 2 sources are of it.
///
/// The factor of a group is exp of
///   theta = w m + (1 - w) theta',  w = S tau^2 / (S tau^2 + sigma^2)
/// of the mean m over its S sources (each the median of ln(measured / simulated) of its rows) and
/// theta' of the wider group. sigma is the standard deviation of sources in a group, tau that of
/// groups, both of the whole table: tau as DerSimonian and Laird estimate it (Controlled Clinical
/// Trials 7, 1986), from the narrowest groups.
///
/// Intervals follow from rows predicted without the makers of their software, and without their
/// generation: with q the mean square of a source's ln(measured / predicted) and S its number in a
/// generation and family,
///   s^2 = (n s'^2 + sum q) / (n + S),  n = 4
/// where s' is that of the family in all generations, and s' of that the one of all rows. Nine of
/// ten steps lie within s times Student's t of n + S degrees of freedom at 95 %.
EfficiencyTable fit_efficiencies(const Predictions& from);

/// The 95 % quantile of Student's t; Abramowitz and Stegun 26.7.5, to 1 % from 3 degrees on.
double student_t95(double degrees);

/// ln(measured / predicted) of rows by their source.
using Residuals = std::map<std::string, std::vector<double>>;

/// Between which ln(measured / predicted) a share `level` of the rows of a source that was not
/// looked at lies.
struct StepSpread {
  double low = 0, high = 0;
};

/// Rows of a source share its framework, so every source counts once, its rows equally; the source
/// to come counts as one more that lies beyond all. Around the weighted median m the interval is m
/// -+ h, h the weighted quantile of |r - m| at level * (S + 1) / S for S sources, at most the
/// largest.
/// Source: conformal prediction with hierarchical data, Lee et al., arXiv 2306.06342.
StepSpread spread_of(const Residuals& residuals, double level);

}  // namespace stepcast::validation
