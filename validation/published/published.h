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
  kLeftOut,  ///< the efficiencies that other rows show: a part of the rows is left out in turn
  kOneRow,   ///< the first row of the source and GPU is fitted, the others are scored
  kShipped,  ///< what `predict` says: the efficiencies of a given table
};
struct PublishedBasis {
  PublishedRegime regime = PublishedRegime::kLeftOut;
  LeaveOut leave_out = LeaveOut::kSource;
  EfficiencyTable shipped{};
};
/// "facts", "one-row", "shipped", or what is left out: "source" ("loso"), "vendor",
/// "gpu-generation", "release".
std::optional<PublishedBasis> basis_named(std::string_view name);

/// Published training runs on one basis. First the headline: all rows, those on Blackwell with
/// software of 2026, those on the H100; then a group per source and GPU with errors, Kendall tau
/// and regret over the plans of each model, memory where it was measured; the rows by what they
/// have in common. Beside each a constant rate: FLOP/s of a GPU in a format, the median of rows
/// outside the part that is left out; a GPU that no such row has takes the share of the peak of its
/// format's rows. At last one group per bar, each on the basis that the bar states. Every row is
/// listed, with the reason where it is not scored.
Suite validate_published(const std::vector<PublishedPrediction>& predictions,
                         const PublishedBasis& basis);

/// A table of runs that gave no constant: `runs` at the efficiencies that the rows `others` of
/// another table show. A group per source and GPU; then all rows without any efficiency and with
/// it; those of steps and of whole runs; those whose plan a source states and those whose plan a
/// rule gives. There are no bars: the suite passes where every row was predicted.
Suite validate_unseen(const std::vector<PublishedPrediction>& runs,
                      const std::vector<PublishedPrediction>& others);

/// A prediction on a basis; 0 for rows that were not predicted.
struct ScaledPrediction {
  const PublishedPrediction* prediction = nullptr;
  double seconds = 0;
  double naive = 0;  ///< at a constant rate
  double width = 0;  ///< nine of ten lie between exp(-width) and exp(width) times it; 0 unknown
  std::string reference{};  ///< not empty: gives the scalar and is not scored
  [[nodiscard]] const PublishedPrediction* operator->() const { return prediction; }
};
using Scores = std::vector<ScaledPrediction>;
Scores scaled(const Predictions& all, const PublishedBasis& basis);
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

/// Steps that a spread is of.
enum class SpreadOf : std::uint8_t {
  kPlain,   ///< as simulated, without an efficiency
  kScaled,  ///< after one row of the source gave a scalar; sources whose scalar is a step's only
};
/// The spread that system files carry (entry transformer_step, form step.spread).
StepSpread published_spread(const std::vector<PublishedPrediction>& predictions, SpreadOf of,
                            double level);

}  // namespace stepcast::validation
