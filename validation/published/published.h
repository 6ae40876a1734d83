#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/job/pace.h"
#include "validation/published/predictions.h"
#include "validation/scored_group.h"
#include "validation/validation.h"

namespace stepcast::validation {

/// What a prediction of a published run may use besides the models.
enum class PublishedRegime : std::uint8_t {
  kFacts,    ///< hardware facts only, no fitted constant
  kLoso,     ///< the pace that the other sources show (leave one source out, published_paces.h)
  kOneRow,   ///< the first row of the source and GPU is fitted, the others are scored
  kShipped,  ///< what `predict` says: the pace of a given table
};
std::optional<PublishedRegime> regime_named(std::string_view name);

/// Published training runs under one regime: a group per source and GPU with errors, Kendall tau
/// and regret over the plans of each model, memory where it was measured; beside it the constant
/// MFU that the same rows calibrate. Then one group per bar, each in the regime that the bar
/// states. Every row is listed, with the reason where it is not scored.
ValidationSuite validate_published(const std::vector<PublishedPrediction>& predictions,
                                   PublishedRegime regime, const PaceTable& paces = {});

/// The bars of the project on these sets (published_bars.cpp), those without rows left out.
std::vector<ValidationGroup> published_bars(const std::vector<PublishedPrediction>& predictions);

/// Predictions with their scalars under a regime, by index; nullopt for rows that are not scored:
/// skipped, or the row that gives the scalar.
struct ScaledPrediction {
  const PublishedPrediction* prediction = nullptr;
  double seconds = 0;
  double naive = 0;       ///< of a constant MFU calibrated on the same rows
  std::string reference;  ///< not empty: gives the scalar and is not scored
};
std::vector<ScaledPrediction> scaled(const std::vector<const PublishedPrediction*>& all,
                                     PublishedRegime regime, const PaceTable& paces = {});
/// Scalars as kLoso finds them, from the rows of another table only: nothing of `all` is used.
std::vector<ScaledPrediction> scaled_from(const std::vector<const PublishedPrediction*>& all,
                                          const std::vector<const PublishedPrediction*>& others);
/// One scalar from all rows of other folds, a fold per (hidden, devices).
std::vector<ScaledPrediction> scaled_by_folds(const std::vector<const PublishedPrediction*>& of);

/// Sets tau and regret over plans that are compared: those of one model, or all of one table. What
/// a plan costs is device seconds per model FLOP. Each pair counts once in tau; regret is the mean
/// over what was chosen among.
enum class PlansOf : std::uint8_t { kModel, kTable };
void rank_plans(const std::vector<ScaledPrediction>& of, PlansOf plans, ValidationGroup& group);

/// Every row, then a group and a curve per source and GPU in the order they appear.
ValidationSuite published_by_source(const std::vector<ScaledPrediction>& scores);

/// Statistics of the scored among `of`, ranked by model.
ValidationGroup published_group(const std::string& name, const std::vector<ScaledPrediction>& of);

}  // namespace stepcast::validation
