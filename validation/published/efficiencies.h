#pragma once
#include <map>
#include <string>
#include <vector>

#include "core/job/efficiency.h"
#include "validation/published/predictions.h"

namespace stepcast::validation {

/// Rows that the prediction of a row may not know: those of its own publication, of the makers of
/// its software, of GPUs of its generation, of its framework's release (of its year where none is
/// known).
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
/// theta' of the wider group. sigma is the standard deviation of sources in a group, with 4 sources
/// more of half the variance of all; tau that of groups, as DerSimonian and Laird estimate it
/// (Controlled Clinical Trials 7, 1986), from the narrowest groups. w of a generation with n
/// frameworks, and of a framework with n devices there, is n / (n + 1) of that: what one of them
/// shows is not told from what all have in common.
///
/// Intervals follow from rows predicted without their publication, without the makers of their
/// software, and without their generation, by how narrow the group was that they were predicted
/// from: |ln(measured / predicted)| of nine of ten rows, every source alike, times t / z of
/// Student's t of 4 + S degrees of freedom and the normal distribution at 95 %. S sources of a
/// generation and family count beside 4 of the family on all generations, those beside 4 of all
/// families, those beside 4 of all.
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
