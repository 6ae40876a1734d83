#pragma once
#include <vector>

#include "validation/published/published.h"
#include "validation/published/spread.h"

namespace stepcast::validation {

/// A table of runs that gave no constant: `runs` with the scalars that the rows `others` of another
/// table give (as kLoso finds them, but nothing of `runs` is used). A group per source and GPU;
/// then all rows without any scalar, as `predict` says them, and with it; those of steps and of
/// whole runs; those whose plan a source states and those whose plan a rule gives. A note counts
/// the rows inside the intervals that `others` give, as `predict --intervals` prints them. There
/// are no bars: the suite passes where every row was predicted.
ValidationSuite validate_unseen(const std::vector<PublishedPrediction>& runs,
                                const std::vector<PublishedPrediction>& others);

/// Of rows beside the steps `predict` says, how many lie in the interval.
struct IntervalCount {
  StepSpread spread;
  std::size_t rows = 0, held = 0;
  double by_source = 0;  ///< mean over sources of the share held
};
IntervalCount count_held(const std::vector<PublishedPrediction>& runs, const StepSpread& spread);

}  // namespace stepcast::validation
