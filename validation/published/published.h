#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/job/efficiency.h"
#include "validation/published/efficiencies.h"
#include "validation/published/predictions.h"
#include "validation/suite.h"

namespace stepcast::validation {

/// Data that a prediction of a published run may use besides the models.
enum class PublishedRegime : std::uint8_t {
  kFacts,    ///< hardware facts only, no fitted constant
  kLoso,     ///< the efficiency that the other sources show (leave one source out, efficiencies.h)
  kOneRow,   ///< the first row of the source and GPU is fitted, the others are scored
  kShipped,  ///< what `predict` says: the efficiency of a given table
};
std::optional<PublishedRegime> regime_named(std::string_view name);

/// Published training runs under one regime: a group per source and GPU with errors, Kendall tau
/// and regret over the plans of each model, memory where it was measured; compared with the
/// constant MFU that the same rows calibrate. Then one group per bar, each in the regime that the
/// bar states. Every row is listed, with the reason where it is not scored.
Suite validate_published(const std::vector<PublishedPrediction>& predictions,
                         PublishedRegime regime, const EfficiencyTable& efficiencies = {});

/// A table of runs that gave no constant: `runs` with the scalars that the rows `others` of another
/// table give (as kLoso finds them, but nothing of `runs` is used). A group per source and GPU;
/// then all rows without any scalar, as `predict` says them, and with it; those of steps and of
/// whole runs; those whose plan a source states and those whose plan a rule gives. A note counts
/// the rows inside the intervals that `others` give, as `predict --intervals` prints them. There
/// are no bars: the suite passes where every row was predicted.
Suite validate_unseen(const std::vector<PublishedPrediction>& runs,
                      const std::vector<PublishedPrediction>& others);

/// A prediction with its scalar under a regime; 0 for rows that were not predicted.
struct ScaledPrediction {
  const PublishedPrediction* prediction = nullptr;
  double seconds = 0;
  double naive = 0;         ///< of a constant MFU calibrated on the same rows
  std::string reference{};  ///< not empty: gives the scalar and is not scored
  [[nodiscard]] const PublishedPrediction* operator->() const { return prediction; }
};
using Scores = std::vector<ScaledPrediction>;
Scores scaled(const Predictions& all, PublishedRegime regime, const EfficiencyTable& efficiencies = {});
/// One scalar from all rows of other folds, a fold per (hidden, devices).
Scores scaled_by_folds(const Predictions& of);

/// Sets tau and regret over plans that are compared: those of one model, or all of one table. What
/// a plan costs is device seconds per model FLOP. Each pair counts once in tau; regret is the mean
/// over what was chosen among.
enum class PlansOf : std::uint8_t { kModel, kTable };
void rank_plans(const Scores& of, PlansOf plans, Group& group);

/// Statistics of the scored among `of`, ranked by model.
Group published_group(const std::string& name, const Scores& of);

/// The bars of the project on these sets (bars.cpp), those without rows left out.
std::vector<Group> published_bars(const std::vector<PublishedPrediction>& predictions);

/// Rows that an interval is asked of.
enum class SpreadOf : std::uint8_t {
  kPlain,   ///< steps as `predict` says them, no scalar
  kScaled,  ///< after one row of the source gave a scalar; sources whose scalar is a step's only
};
StepSpread published_spread(const std::vector<PublishedPrediction>& predictions, SpreadOf of,
                            double level);

/// A source's rows, and how many of them an interval holds.
struct IntervalCheck {
  std::string source;
  std::size_t rows = 0, held = 0;
  StepSpread spread;
};
/// Every source against the interval that all others give, scalars included.
std::vector<IntervalCheck> check_intervals(const std::vector<PublishedPrediction>& predictions,
                                           PublishedRegime regime, double level);
/// Every source's steps as `predict` says them, without a scalar.
std::vector<IntervalCheck> check_unseen(const std::vector<PublishedPrediction>& runs,
                                        const StepSpread& spread);
/// The mean over sources of the share of rows held.
double mean_coverage(const std::vector<IntervalCheck>& checks);

}  // namespace stepcast::validation
